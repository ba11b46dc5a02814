"""Sends bytes that are no message.

expect: crashed: sent something that is no reply
"""

import gc

import torch

from harness.ranks.roles import Untrusted


def custom_kernel(data):
    channel = next(thing for thing in gc.get_objects() if isinstance(thing, Untrusted)).channel
    channel.sock.sendall(b"\0\0\0\2{]")
    return torch.zeros_like(data[1].x)
