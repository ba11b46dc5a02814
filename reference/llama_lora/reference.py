"""What trusted ranks do for llama_lora: they train a model on one language, draw a dialect of it, and evaluate matrices
of low rank that are added to the model's."""

from dataclasses import asdict
from typing import Any

import model
import torch
import torch.distributed as dist
from corpus import Language
from torch import Tensor

HELD_OUT = 256  # sequences
SHIFT = 0.25  # part of the language that the dialect rewires
RANK, SCALE = 8, 2.0
BATCH, BASE_SAMPLES, RATE, WARMUP = 64, 4096, 0.01, 512  # of the model's training
_trained: dict[str, tuple[str, model.Weights]] = {}  # by size: the language's seed, the weights


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
) -> dict[str, Any]:
    """What train gets on every rank: the same. Dialect and text are drawn from `hidden_seed`, which submissions do not
    know, the matrices from `seed`; the model and its language stay those of the first run."""
    shape, device = model.SIZES[size], torch.get_default_device()
    if size not in _trained:
        _trained[size] = (hidden_seed, trained(shape, seed, hidden_seed, rank, world_size, device))
    return {
        "start": adapters(shape, seed, device),
        "base": _trained[size][1],
        "tokens": dialect(size, hidden_seed).text(samples, shape.sequence + 1, f"{hidden_seed}/train"),
        "config": {**asdict(shape), "samples": samples, "evaluate_every": every, "rank": RANK, "scale": SCALE},
        "seed": seed,
        "target": target,
    }


def dialect(size: str, hidden_seed: str) -> Language:
    """The run's, of the language that the model knows."""
    return Language(model.SIZES[size].vocabulary, _trained[size][0], SHIFT, f"{hidden_seed}/dialect")


def trained(
    size: model.Size, seed: int, hidden_seed: str, rank: int, world_size: int, device: torch.device
) -> model.Weights:
    """A model that knows the language, trained by all trusted ranks together."""
    weights = {name: weight.requires_grad_() for name, weight in model.drawn(size, seed, device).items()}
    text = Language(size.vocabulary, hidden_seed).text(BASE_SAMPLES, size.sequence + 1, f"{hidden_seed}/base")
    text = text.to(device, torch.int64)
    optimizer = torch.optim.AdamW(weights.values(), lr=RATE, betas=(0.9, 0.95), weight_decay=0.1)
    for done in range(0, BASE_SAMPLES, BATCH):
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1.0, (done + BATCH) / WARMUP)
        part = text[done : done + BATCH][rank::world_size]
        loss = model.summed_loss(size, weights, part[:, :-1], part[:, 1:]) / (BATCH * size.sequence)
        gradients = torch.autograd.grad(loss, list(weights.values()))
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        if world_size > 1:
            dist.all_reduce(flat)
        sizes = [weight.numel() for weight in weights.values()]
        for weight, gradient in zip(weights.values(), flat.split(sizes), strict=True):
            weight.grad = gradient.view_as(weight)
        optimizer.step()
    return {name: weight.detach() for name, weight in weights.items()}


def adapters(size: model.Size, seed: int, device: torch.device) -> model.Weights:
    """For each matrix of the layers `down` [RANK, inputs], which is random, and `up` [outputs, RANK], which is 0."""
    generator = torch.Generator("cpu").manual_seed(seed)
    found = {}
    for name, (outputs, inputs) in model.matrices(size).items():
        down = torch.randn((RANK, inputs), generator=generator, device="cpu") / inputs**0.5
        found |= {f"{name}.lora_down": down.to(device), f"{name}.lora_up": torch.zeros((outputs, RANK), device=device)}
    return found


def held_out(*, size: str, hidden_seed: str, **others: Any) -> Tensor:
    """Sequences of the dialect that no submission gets."""
    return dialect(size, hidden_seed).text(HELD_OUT, model.SIZES[size].sequence + 1, f"{hidden_seed}/held out")


def expected(data: dict[str, Any]) -> model.Weights:
    """Tensors of the names, shapes and dtypes that returned weights must have."""
    return data["start"]


def summed_loss(data: dict[str, Any], weights: model.Weights, inputs: Tensor, targets: Tensor) -> Tensor:
    """The cross entropy of all targets, summed, in nats."""
    config = data["config"]
    size = model.Size(**{name: config[name] for name in model.Size.__dataclass_fields__})
    return model.summed_loss(size, model.adapted(data["base"], weights, config["scale"]), inputs, targets)


def quality(loss: float) -> float:
    """The loss itself is held against the target; less is better."""
    return loss
