"""Hands over its output in a file on the disk, which cannot be sealed.

expect: crashed: sent a file that it can still change
devices: cpu
"""

import gc
import tempfile

from harness.ranks import payload
from harness.ranks.roles import Untrusted
from harness.ranks.shared_buffer import FileBuffer
from reference import ref_kernel


def custom_kernel(data):
    program = next(thing for thing in gc.get_objects() if isinstance(thing, Untrusted))

    def hand_over(result):
        fd, _ = tempfile.mkstemp()
        output = payload.write_output(FileBuffer(fd), 0, result, program.exchange.output_limit)
        program.channel.send_files([fd])
        return output

    program.exchange.hand_over = hand_over
    return ref_kernel(data)
