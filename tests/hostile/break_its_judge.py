"""Ends the process that judges it by what that reads: its folder's check aborts at a value that it is not written for.

expect: held broke its judge: a judge \(trusted rank 0\) failed: was killed by SIGABRT; with the reference
problem: tests/folders/single/fragile
"""

from reference import ref_kernel


def custom_kernel(data):
    return ref_kernel(data) * float("nan")
