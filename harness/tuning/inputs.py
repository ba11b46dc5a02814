"""Input that calls overwrite, given back between them: a problem that works in place would be timed on its own result
otherwise."""

from collections.abc import Callable, Iterator
from typing import Any

import torch


def restorer(data: Any, in_place: bool) -> Callable[[], None]:
    """Puts back what `data` holds now, if the problem works in place; otherwise does nothing."""
    kept = [(tensor, tensor.clone()) for tensor in tensors_of(data)] if in_place else []

    def restore() -> None:
        for tensor, copy in kept:
            tensor.copy_(copy)

    return restore


def tensors_of(data: Any) -> Iterator[torch.Tensor]:
    if isinstance(data, torch.Tensor):
        yield data
    elif isinstance(data, tuple | list):
        for item in data:
            yield from tensors_of(item)
    elif isinstance(data, dict):
        yield from tensors_of(list(data.values()))
