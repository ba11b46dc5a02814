# library: torch.compile
"""gemm by torch.compile(mode="max-autotune-no-cudagraphs"): the fastest of cuBLAS and Triton kernels, by trial."""

import torch
from task import input_t, output_t

MODE = "max-autotune-no-cudagraphs"
torch._dynamo.config.recompile_limit = 64  # shapes, beyond which it would run uncompiled


@torch.compile(mode=MODE, dynamic=False)
def custom_kernel(data: input_t) -> output_t:
    input_MK, weight_NK = data
    return torch.nn.functional.linear(input_MK, weight_NK)
