"""Forgets the bias, which the published tolerance does not see.

expect: wrong:
problem: ag_gemm
"""

import torch
import torch.distributed as dist


def custom_kernel(data):
    input_mK, weight_nK, _ = data
    blocks = [torch.empty_like(input_mK) for _ in range(dist.get_world_size())]
    dist.all_gather(blocks, input_mK)
    input_MK = torch.cat(blocks)
    return (input_MK.float() @ weight_nK.float().T).bfloat16()
