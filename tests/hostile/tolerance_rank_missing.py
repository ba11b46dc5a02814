"""Leaves out the last rank's partial sum, an eighth of the work at 8 ranks.

expect: wrong:
problem: gemm_rs
gpus: 2
"""

import torch
import torch.distributed as dist


def custom_kernel(data):
    input_Mk, weight_Nk, bias_N = data
    partial_MN = input_Mk.float() @ weight_Nk.float().T
    partial_MN = partial_MN if bias_N is None else partial_MN + bias_N.float()
    blocks = torch.empty_like(partial_MN)
    dist.all_to_all_single(blocks, partial_MN)
    blocks = blocks.unflatten(0, (dist.get_world_size(), -1))
    return blocks[:-1].sum(0).bfloat16()
