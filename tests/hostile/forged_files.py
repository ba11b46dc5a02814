"""Sends the file of its output twice, to have one in store for the next call.

expect: crashed: sent 2 files where 1 were due
devices: cpu
"""

import gc
import os

from harness.ranks.exchange import Exchange
from harness.ranks.roles import Untrusted
from reference import ref_kernel


def custom_kernel(data):
    program = next(thing for thing in gc.get_objects() if isinstance(thing, Untrusted))

    def twice():
        program.exchange.to_send += map(os.dup, program.exchange.to_send[:1])
        Exchange.send_files(program.exchange)

    program.exchange.send_files = twice
    return ref_kernel(data)
