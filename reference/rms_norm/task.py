"""The types of rms_norm's custom_kernel(data: input_t) -> output_t. Legend: M rows, H hidden dimension.

Forward: x, residual, weight, None, eps -> norm of their sum h = x + residual, times weight; and h, for what comes next.
Backward: h, gradient of h from what came next, weight, gradient of the norm, eps -> gradient of x, which is the
residual's too; and the weight's.
"""

from torch import Tensor

# [M, H], [M, H], [H], None or [M, H]; all bf16. eps is added to the mean of the squares.
input_t = tuple[Tensor, Tensor, Tensor, Tensor | None, float]
output_t = tuple[Tensor, Tensor]  # [M, H] and [M, H]; backward [M, H] and [H]. All bf16
