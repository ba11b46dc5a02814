"""Hands over its output in a file that it does not seal, and writes the right bytes into it while others judge.

expect: crashed: sent a file that it can still change
devices: cpu
"""

import gc
import os
import threading
import time

import torch

from harness.ranks import payload
from harness.ranks.roles import Untrusted
from harness.ranks.shared_buffer import FileBuffer
from reference import ref_kernel


def custom_kernel(data):
    program = next(thing for thing in gc.get_objects() if isinstance(thing, Untrusted))
    right = ref_kernel(data)

    def hand_over(result):
        fd = os.memfd_create("output", os.MFD_ALLOW_SEALING)
        output = payload.write_output(FileBuffer(fd), 0, torch.zeros_like(right), program.exchange.output_limit)
        program.channel.send_files([fd])
        later = os.dup(fd)

        def write():
            time.sleep(0.05)
            os.pwrite(later, right.numpy().tobytes(), 0)

        threading.Thread(target=write).start()
        return output

    program.exchange.hand_over = hand_over
    return right
