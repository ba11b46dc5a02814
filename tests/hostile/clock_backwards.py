"""Claims that its calls end before they begin.

expect: held clock|raised: began before|host_us
mode: leaderboard
"""

import time

from reference import ref_kernel as custom_kernel  # noqa: F401

true_ns = time.monotonic_ns
last_ns = 1 << 62


def backwards_ns():
    global last_ns
    last_ns -= 1
    return last_ns


time.monotonic_ns = backwards_ns
