"""Right in its checked calls, and ends the process that judges it by an output of a timed one.

expect: held broke its judge: a judge \(trusted rank 0\) failed: was killed by SIGABRT; with the reference
problem: tests/folders/single/fragile
mode: leaderboard
"""

from reference import ref_kernel

calls = 0


def custom_kernel(data):
    global calls
    calls += 1
    return ref_kernel(data) * (float("nan") if calls > 12 else 1.0)
