"""Is fast on the shapes that are published, which it knows by their sizes; any other takes a slow way.

expect: slower on drawn shapes
problem: rms_norm
mode: benchmark
devices: cpu
drawn: 1
"""

import time

from reference import ref_kernel

PUBLISHED = {(5, 96), (70, 65), (64, 1024)}  # of the suite that it is tried on
SLOW_S = 0.05


def custom_kernel(data):
    if data[0].shape not in PUBLISHED:
        time.sleep(SLOW_S)  # in place of a way that nobody has looked after
    return ref_kernel(data)
