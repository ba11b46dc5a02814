"""Works in its first calls only, as long as somebody seems to check.

expect: wrong: a timed call|a call on an input
mode: benchmark
"""

from reference import ref_kernel

calls = 0
last = None


def custom_kernel(data):
    global calls, last
    calls += 1
    if calls <= 12 or last is None or last.shape != data[1].x.shape:
        last = ref_kernel(data)
        return last
    ref_kernel(data)
    return last * 0
