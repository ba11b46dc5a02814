"""Wrong, and nothing else: its result is on the host.

expect: wrong: is on cpu
devices: gpu
"""

from reference import ref_kernel


def custom_kernel(data):
    return ref_kernel(data).cpu()
