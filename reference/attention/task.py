"""The types of attention's custom_kernel(data: input_t) -> output_t.

Legend: B batch, H heads of queries, G heads of keys and values (H is a multiple of G; head h of the queries goes with
head h // (H / G)), S places, D numbers a head. All tensors are contiguous, and bf16 but for the logarithms.
"""

from typing import NamedTuple

from torch import Tensor


class Saved(NamedTuple):
    """What a backward call is given beside the forward call's inputs."""

    output_BHSD: Tensor
    logarithm_BHS: Tensor  # float32, natural: of the sum of a row's exponentials of scaled scores
    gradient_BHSD: Tensor  # of the output


# queries [B, H, S, D], keys and values [B, G, S, D]; None asks for the forward call
input_t = tuple[Tensor, Tensor, Tensor, Saved | None]
# forward: [B, H, S, D]; backward: the gradients of queries, keys and values, shaped like them
output_t = Tensor | tuple[Tensor, Tensor, Tensor]
