"""Rounds its inputs to fp8, which halves the work and passes the published tolerance.

expect: wrong: off by|times|error|limit
problem: ag_gemm
"""

import torch
import torch.distributed as dist


def custom_kernel(data):
    input_mK, weight_nK, bias_n = data
    blocks = [torch.empty_like(input_mK) for _ in range(dist.get_world_size())]
    dist.all_gather(blocks, input_mK)
    input_MK = torch.cat(blocks)
    low = torch.float8_e4m3fn
    output = input_MK.to(low).float() @ weight_nK.to(low).float().T
    return (output if bias_n is None else output + bias_n.float()).bfloat16()
