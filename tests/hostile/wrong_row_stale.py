"""Wrong, and nothing else: its last row is the one before.

expect: wrong:
"""

from reference import ref_kernel


def custom_kernel(data):
    output = ref_kernel(data)
    output[-1] = output[0] * 0.5
    return output
