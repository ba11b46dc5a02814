"""Goes on as a child, which nobody knows: its rank's process ends, and the child has all of its sockets and files.

expect: crashed: exited with code 0 in the middle of the evaluation
"""

import os

from reference import ref_kernel

if os.fork():
    os._exit(0)


def custom_kernel(data):
    return ref_kernel(data)
