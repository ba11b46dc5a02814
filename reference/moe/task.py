"""The types of moe's custom_kernel(data: input_t) -> output_t.

Legend: E experts, W ranks, T this rank's tokens, k experts per token, H hidden dimension, I intermediate dimension.
"""

from dataclasses import dataclass

import torch
from params import INTERMEDIATE_DIM
from torch import Tensor


@dataclass
class MoEConfig:
    """One case. Expert e lives on rank e // (num_experts / world_size)."""

    num_experts: int
    experts_per_token: int
    hidden_dim: int
    max_num_tokens: int
    intermediate_dim: int = INTERMEDIATE_DIM
    in_dtype: torch.dtype = torch.float16
    out_dtype: torch.dtype = torch.float16


@dataclass
class RankTestData:
    """One rank's tokens and experts, all on the rank's device.

    Tokens: num_tokens (T) in [0, max_num_tokens), indices [T, k] int32, weights [T, k] float32 in [0, 1), x [T, H] of
    in_dtype. A token's experts are distinct.
    Experts: up [E / W, I, H] and down [E / W, H, I] of in_dtype, laid out as torch.nn.Linear's weights. Expert
    rank * E / W + j is y = down[j] @ (up[j] @ x). No other rank has these matrices, and every call has new ones.
    """

    num_tokens: int
    indices: Tensor
    weights: Tensor
    x: Tensor
    up: Tensor
    down: Tensor


input_t = tuple[MoEConfig, RankTestData, int, int]  # config, this rank's data, rank, world size
output_t = Tensor  # [T, H] of out_dtype: each token's weighted sum of its experts' outputs
