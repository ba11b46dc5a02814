"""Sends JSON nested deeper than a parser's stack.

expect: crashed: sent something that is no reply
"""

import gc

import torch

from harness.ranks.roles import Untrusted


def custom_kernel(data):
    channel = next(thing for thing in gc.get_objects() if isinstance(thing, Untrusted)).channel
    body = b"[" * 500_000
    channel.sock.sendall(len(body).to_bytes(4, "big") + body)
    return torch.zeros_like(data[1].x)
