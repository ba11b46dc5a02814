#!POPCORN leaderboard llama
"""Llama 3.2 as streaming kernels: a decode step reads every weight once and does nothing else for long.

On NVIDIA GPUs from Hopper on, in bfloat16: streamed.py. On CPU cores, and where the kernels do not fit, few operators
of torch (plain.py): joined weights, a cache that is written in place, tables of rotations, sums in the products.
"""

from typing import Any

from plain import Plain
from streamed import Streamed, fits
from torch import Tensor


def build(config: Any, weights: dict[str, Tensor]) -> Plain:
    """The model for these weights, on their device."""
    return (Streamed if fits(config, weights["model.embed_tokens.weight"]) else Plain)(config, weights)
