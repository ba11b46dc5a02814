"""The types of gemm's custom_kernel(data: input_t) -> output_t.

Legend: M rows and N columns of the product, K its depth.
"""

from torch import Tensor

input_t = tuple[Tensor, Tensor]  # input [M, K], weight [N, K], both bf16 and contiguous
output_t = Tensor  # [M, N] bf16: input @ weight.T
