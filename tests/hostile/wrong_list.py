"""Wrong, and nothing else: it returns a list.

expect: wrong:
"""

from reference import ref_kernel


def custom_kernel(data):
    return [ref_kernel(data)]
