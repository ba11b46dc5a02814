"""The types of a2a's custom_kernel(data: input_t) -> output_t.

Legend: T this rank's tokens, k experts per token, H hidden dimension.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class MoEConfig:
    """One case. Expert e lives on rank e // (num_experts / world_size)."""

    num_experts: int
    experts_per_token: int
    hidden_dim: int
    max_num_tokens: int
    in_dtype: torch.dtype = torch.float16
    out_dtype: torch.dtype = torch.float16


@dataclass
class RankTestData:
    """One rank's tokens: num_tokens (T) in [0, max_num_tokens), indices [T, k] int32, weights [T, k] float32 in
    [0, 1), x [T, H] of in_dtype, all on the rank's device. A token's experts are distinct."""

    num_tokens: int
    indices: Tensor
    weights: Tensor
    x: Tensor


input_t = tuple[MoEConfig, RankTestData, int, int]  # config, this rank's data, rank, world size
output_t = Tensor  # [T, H] of out_dtype: each token's weighted sum of its experts' outputs
