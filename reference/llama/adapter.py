"""What the harness calls of a submission that defines build(config, weights): one generation, step by step."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from params import CONFIGS
from task import input_t, output_t
from weights import draw


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
        logits_BV, cache = self.model.prefill(prompt_BP)
        logits_BNV[:, 0] = logits_BV
        for step in range(1, shifts_BN.shape[1]):
            # No step can begin before the one before it has its logits, whatever a submission knows of the input.
            token_B = (logits_BNV[:, step - 1].argmax(-1) + shifts_BN[:, step - 1]) % vocab
            logits_BV, cache = self.model.decode(token_B, cache)
            logits_BNV[:, step] = logits_BV
        return logits_BNV


def one_thread(device: torch.device) -> None:
    """On CPU cores, where models are small: a second thread takes longer to wake than most of their operators take. A
    submission's build may ask for more."""
    if device.type == "cpu":
        torch.set_num_threads(1)


def adapt(submission: ModuleType) -> Generation:
    """The kernel of a submission's module. Raises AttributeError or TypeError if it defines no build."""
    build = getattr(submission, "build", None)
    if build is None:
        raise AttributeError("the submission defines no build(config, weights); define it at the top level")
    if not callable(build):
        raise TypeError(f"build is a {type(build).__name__}; it must be a function build(config, weights)")
    return Generation(build)
