"""Wrong, and nothing else: it returns the transpose.

expect: wrong:
problem: ag_gemm
"""

from reference import ref_kernel


def custom_kernel(data):
    return ref_kernel(data).T
