"""What trusted ranks do for llama_pretrain: they draw a language, its text and the first weights, and judge."""

import hashlib
import math
from dataclasses import asdict
from typing import Any

import model
import torch
from corpus import Language
from torch import Tensor

HELD_OUT = 256  # sequences


def generate_input(
    *, size: str, target: float, runs: int, samples: int, every: int, rank: int, world_size: int, seed: int
) -> dict[str, Any]:
    """What train gets on every rank: the same. Everything is drawn from `seed`, which submissions do not know."""
    shape = model.SIZES[size]
    own = int.from_bytes(hashlib.blake2b(f"{seed}/train".encode(), digest_size=4).digest(), "big") % 2**31
    return {
        "start": model.drawn(shape, own, torch.get_default_device()),
        "tokens": language(shape, seed).text(samples, shape.sequence + 1, seed + 1),
        "config": {**asdict(shape), "samples": samples, "evaluate_every": every},
        "seed": own,
        "target": target,
    }


def language(size: model.Size, seed: int) -> Language:
    """The run's."""
    return Language(size.vocabulary, seed)


def held_out(*, size: str, seed: int, **others: Any) -> Tensor:
    """Sequences of the same language that no submission gets."""
    shape = model.SIZES[size]
    return language(shape, seed).text(HELD_OUT, shape.sequence + 1, seed + 2)


def expected(data: dict[str, Any]) -> model.Weights:
    """Tensors of the names, shapes and dtypes that returned weights must have."""
    return data["start"]


def summed_loss(data: dict[str, Any], weights: model.Weights, inputs: Tensor, targets: Tensor) -> Tensor:
    """The cross entropy of all targets, summed, in nats."""
    return model.summed_loss(size_of(data), weights, inputs, targets)


def quality(loss: float) -> float:
    """The perplexity, which is held against the target; less is better."""
    return math.exp(min(loss, 700.0))


def size_of(data: dict[str, Any]) -> model.Size:
    """The shape of the run's model."""
    return model.Size(**{name: data["config"][name] for name in model.Size.__dataclass_fields__})
