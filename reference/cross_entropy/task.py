"""The types of cross_entropy's custom_kernel(data: input_t) -> output_t. Legend: M tokens, V classes (vocab)."""

from torch import Tensor

# logits [M, V] bf16, columns of a matrix that may be wider; targets [M] int64; ignore_index, which is the target of
# tokens that do not count; label_smoothing; loss_scale
input_t = tuple[Tensor, Tensor, int, float, float]
# Losses [M] float32, 0 for tokens that do not count. The gradient of loss_scale times the mean loss of those that do,
# [M, V] bf16, which may be written over the logits.
output_t = tuple[Tensor, Tensor]
