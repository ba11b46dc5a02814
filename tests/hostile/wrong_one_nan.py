"""Wrong, and nothing else: one element is not a number.

expect: wrong:
"""

from reference import ref_kernel


def custom_kernel(data):
    output = ref_kernel(data)
    output[0, 0] = float("nan")
    return output
