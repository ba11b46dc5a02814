"""Hands over a file that says nothing, which ends its time, and computes the number that is asked for afterwards: it
says it in the message that describes its output.

expect: wrong: an output that nothing describes
devices: cpu
problem: tests/folders/single/total
"""

import gc

from harness.ranks.roles import Untrusted
from harness.ranks.shared_buffer import new_file, seal
from harness.ranks.wire import Output

program = next(thing for thing in gc.get_objects() if isinstance(thing, Untrusted))
asked = []


def hand_over(result):
    file = new_file("output")
    seal(file)
    program.channel.send_files([file])
    total = int(asked[0].sum())
    return Output(kind="int", dtype="", shape=(), device="", offset=0, nbytes=0, plain=total)


def custom_kernel(data):
    asked[:] = [data]
    if program.exchange.hand_over is hand_over:
        return 0
    program.exchange.hand_over = hand_over  # from the next call on
    return int(data.sum())
