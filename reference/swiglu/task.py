"""The types of swiglu's custom_kernel(data: input_t) -> output_t. Legend: M rows, F columns of the result (ffn)."""

from torch import Tensor

# x [M, 2 F], whose first F columns are gates; and None, or for the backward pass the gradient of the result, [M, F]
input_t = tuple[Tensor, Tensor | None]
output_t = Tensor  # silu(gates) * rest, [M, F]; backward the gradient of x, [M, 2 F]. All bf16
