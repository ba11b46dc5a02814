"""What trusted ranks do for llama_pretrain: they draw a language, its text and the first weights, and judge."""

import math
from dataclasses import asdict, replace
from typing import Any

import model
import torch
from corpus import Language
from own_text import OwnText, own_text
from torch import Tensor

HELD_OUT = {"tiny": 256, "small": 64}  # sequences, by size


def generate_input(
    *,
    size: str,
    target: float,
    runs: int,
    samples: int,
    every: int,
    rank: int,
    world_size: int,
    seed: int,
    hidden_seed: str,
    data: str = "",
    vocabulary: int = 0,
) -> dict[str, Any]:
    """What train gets on every rank: the same. Language and text are drawn from `hidden_seed`, which submissions do not
    know, the first weights from `seed`. With `data`, the sha256 of a user's text, sequences are of that, and the model
    has its vocabulary."""
    shape = shape_of(size, vocabulary)
    return {
        "start": model.drawn(shape, seed, torch.get_default_device()),
        "tokens": _own(size, data, hidden_seed).text(samples, f"{hidden_seed}/train")
        if data
        else Language(shape.vocabulary, hidden_seed).text(samples, shape.sequence + 1, f"{hidden_seed}/train"),
        "config": {**asdict(shape), "samples": samples, "evaluate_every": every},
        "seed": seed,
        "target": target,
    }


def shape_of(size: str, vocabulary: int) -> model.Size:
    """The model's; with a vocabulary of its own, if that is not 0."""
    shape = model.SIZES[size]
    return replace(shape, vocabulary=vocabulary) if vocabulary else shape


def _own(size: str, data: str, hidden_seed: str) -> OwnText:
    return own_text(data, model.SIZES[size].sequence + 1, HELD_OUT[size], hidden_seed)


def held_out(*, size: str, hidden_seed: str, data: str = "", **others: Any) -> Tensor:
    """Sequences of the same language or text that no submission gets."""
    if data:
        return _own(size, data, hidden_seed).held_out()
    shape = model.SIZES[size]
    language = Language(shape.vocabulary, hidden_seed)
    return language.text(HELD_OUT[size], shape.sequence + 1, f"{hidden_seed}/held out")


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
