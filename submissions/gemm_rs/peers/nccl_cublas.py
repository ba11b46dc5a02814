# library: NCCL + cuBLAS
"""gemm_rs as two calls of libraries: cuBLASLt multiplies and adds the bias as it writes, NCCL adds up and scatters."""

import torch
import torch.distributed as dist
from task import input_t, output_t

# The one since, the other before torch 2.13
reduce_scatter_single = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def custom_kernel(data: input_t) -> output_t:
    input_Mk, weight_Nk, bias_N = data
    partial_MN = torch.nn.functional.linear(input_Mk, weight_Nk, bias_N)
    output_mN = partial_MN.new_empty(len(partial_MN) // dist.get_world_size(), partial_MN.shape[1])
    reduce_scatter_single(output_mN, partial_MN)
    return output_mN
