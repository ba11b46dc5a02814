"""The types of ag_gemm's custom_kernel(data: input_t) -> output_t.

Legend: M rows and N columns of the product, K its depth, W ranks.
"""

from torch import Tensor

# (input [M / W, K], weight [N / W, K], bias [N / W] or None), all bf16 on the rank's device
input_t = tuple[Tensor, Tensor, Tensor | None]
output_t = Tensor  # [M, N / W] bf16: all ranks' input rows @ this rank's weight.T + its bias
