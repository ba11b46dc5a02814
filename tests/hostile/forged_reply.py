"""Answers a call twice, the first time before it is done.

expect: crashed: sent 'called' where
"""

import gc

import torch

from harness.ranks import wire
from harness.ranks.roles import Untrusted


def custom_kernel(data):
    channel = next(thing for thing in gc.get_objects() if isinstance(thing, Untrusted)).channel
    none = wire.CallSample(start_ns=1, end_ns=2, device_us=None, output=None)
    channel.send(wire.Called(samples=(none,)))
    return torch.zeros_like(data[1].x)
