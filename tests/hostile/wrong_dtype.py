"""Wrong, and nothing else: it returns float32.

expect: wrong:
"""

from reference import ref_kernel


def custom_kernel(data):
    return ref_kernel(data).float()
