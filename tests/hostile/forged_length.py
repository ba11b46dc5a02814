"""Announces a frame of four gigabytes.

expect: crashed: a frame of 4294967295 bytes
"""

import gc

import torch

from harness.ranks.roles import Untrusted


def custom_kernel(data):
    channel = next(thing for thing in gc.get_objects() if isinstance(thing, Untrusted)).channel
    channel.sock.sendall(b"\xff\xff\xff\xff")
    return torch.zeros_like(data[1].x)
