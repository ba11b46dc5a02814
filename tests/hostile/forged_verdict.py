"""Sends the trusted ranks' verdict over its own channel.

expect: crashed: sent 'verified' where 'Called' was due
"""

import gc

import torch

from harness.core.records import Verdict, Verdicts
from harness.ranks import wire
from harness.ranks.roles import Untrusted


def custom_kernel(data):
    channel = next(thing for thing in gc.get_objects() if isinstance(thing, Untrusted)).channel
    good = Verdict(passed=True)
    channel.send(wire.Verified(verdicts=Verdicts(strict=good, gpumode=good)))
    return torch.zeros_like(data[1].x)
