"""What the harness calls of a submission that defines build(config, weights): one generation, step by step."""

import math
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import torch
from params import CONFIGS
from task import input_t, output_t
from torch import Tensor
from weights import draw

PARTS, LONG = 96, 1 << 14


class Generation:
    """A kernel that generates with the model of an input. The model is built once, at the first input that names it,
    with weights that nobody else has."""

    def __init__(self, build: Callable[..., Any]) -> None:
        self.build = build
        self.name = ""
        self.model: Any = None

    @torch.no_grad()
    def __call__(self, data: input_t) -> output_t:
        name, prompt_BP, shifts_BN = data
        vocab = CONFIGS[name].vocab
        if name != self.name:
            self.model = None  # first, so that two never need memory at once
            one_thread(prompt_BP.device)
            self.model = self.build(CONFIGS[name], draw(CONFIGS[name], prompt_BP.device))
            self.name = name
        logits_BNV = torch.empty(*shifts_BN.shape, vocab, dtype=torch.float32, device=prompt_BP.device)
        shape = len(prompt_BP), vocab
        logits_BNV[:, 0], cache = returned(self.model.prefill(prompt_BP), "prefill", shape)
        for step in range(1, shifts_BN.shape[1]):
            token_B = (largest(logits_BNV[:, step - 1]) + shifts_BN[:, step - 1]) % vocab
            logits_BNV[:, step], cache = returned(self.model.decode(token_B, cache), "decode", shape)
        revise = getattr(self.model, "revise", None)
        if revise is not None:
            revise(logits_BNV, cache)
        return logits_BNV


def returned(result: Any, what: str, shape: tuple[int, int]) -> tuple[Tensor, Any]:
    """The logits and the cache that a model's method returned. Raises TypeError or ValueError where it is no such pair,
    or the logits have another shape: [V] is not what each of B sequences has."""
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise TypeError(f"{what} returned a {type(result).__name__}; expected (logits, cache)")
    logits, cache = result
    if not isinstance(logits, Tensor):
        raise TypeError(f"{what} returned logits that are a {type(logits).__name__}; expected a tensor")
    if tuple(logits.shape) != shape:
        raise ValueError(f"{what} returned logits {list(logits.shape)}; expected {list(shape)}")
    return logits, cache


def largest(logits_BV: Tensor) -> Tensor:
    """The tokens [B] with the largest logits, the first of several, as torch.argmax finds them. Of rows of LONG logits
    or more, up to PARTS parts are searched at once."""
    batch, vocab = logits_BV.shape
    if vocab < LONG:
        return logits_BV.argmax(-1)
    parts = math.gcd(vocab, PARTS)
    values_BP, places_BP = logits_BV.view(batch, parts, -1).max(-1)
    part_B1 = values_BP.argmax(-1, keepdim=True)
    return (places_BP.gather(-1, part_B1) + part_B1 * (vocab // parts))[:, 0]


def one_thread(device: torch.device) -> None:
    """On CPU cores, where models are small: a second thread takes longer to wake than most of their operators take. A
    submission's build may ask for more."""
    if device.type == "cpu":
        torch.set_num_threads(1)


def adapt(submission: ModuleType, call: Callable[..., output_t] = Generation.__call__) -> Callable[[input_t], output_t]:
    """The kernel of a submission's module. Raises AttributeError or TypeError if it defines no build. `call` is what
    this module defines, whatever the submission puts in its place."""
    build = getattr(submission, "build", None)
    if build is None:
        raise AttributeError("the submission defines no build(config, weights); define it at the top level")
    if not callable(build):
        raise TypeError(f"build is a {type(build).__name__}; it must be a function build(config, weights)")
    return partial(call, Generation(build))
