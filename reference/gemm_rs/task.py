"""The types of gemm_rs's custom_kernel(data: input_t) -> output_t.

Legend: M rows and N columns of the product, W ranks, local_k = K / W.
"""

from torch import Tensor

# (input [M, local_k], weight [N, local_k], bias [N] or None), all bf16 on the rank's device
input_t = tuple[Tensor, Tensor, Tensor | None]
output_t = Tensor  # [M / W, N] bf16: this rank's rows of the sum over ranks of input @ weight.T + bias
