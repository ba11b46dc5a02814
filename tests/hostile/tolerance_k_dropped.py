"""Leaves out an eighth of K, as the published tolerance allows.

expect: wrong:
problem: gemm_rs
"""

import torch
import torch.distributed as dist


def custom_kernel(data):
    input_Mk, weight_Nk, bias_N = data
    keep = input_Mk.shape[1] * 7 // 8
    input_Mk, weight_Nk = input_Mk[:, :keep], weight_Nk[:, :keep]
    partial_MN = input_Mk.float() @ weight_Nk.float().T
    partial_MN = partial_MN if bias_N is None else partial_MN + bias_N.float()
    blocks = torch.empty_like(partial_MN)
    dist.all_to_all_single(blocks, partial_MN)
    blocks = blocks.unflatten(0, (dist.get_world_size(), -1))
    return blocks.sum(0).bfloat16()
