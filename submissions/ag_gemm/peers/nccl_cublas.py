# library: NCCL + cuBLAS
"""ag_gemm as two calls of libraries: NCCL gathers the rows, cuBLASLt multiplies and adds the bias as it writes."""

import torch
import torch.distributed as dist
from task import input_t, output_t

all_gather_single = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # since, before torch 2.13


def custom_kernel(data: input_t) -> output_t:
    input_mK, weight_nK, bias_n = data
    input_MK = input_mK.new_empty(len(input_mK) * dist.get_world_size(), input_mK.shape[1])
    all_gather_single(input_MK, input_mK)
    return torch.nn.functional.linear(input_MK, weight_nK, bias_n)
