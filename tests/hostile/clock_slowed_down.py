"""Slows the clock that ranks are timed with down to a tenth: it finishes a probed call before it can.

expect: held communication:
mode: leaderboard
gpus: 2
"""

import time

from reference import ref_kernel as custom_kernel  # noqa: F401

true_ns = time.monotonic_ns
began_ns = true_ns()
time.monotonic_ns = lambda: began_ns + (true_ns() - began_ns) // 10
