from dataclasses import dataclass
from typing import NamedTuple

import torch


@dataclass
class Groups:
    values: torch.Tensor
    offsets: torch.Tensor
    sizes: tuple


class Sums(NamedTuple):
    sums: torch.Tensor
    counts: torch.Tensor


input_t = Groups
output_t = Sums
