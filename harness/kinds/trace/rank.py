"""A FlashInfer-Trace definition as ranks run it: the reference, the judge, the adapter of solutions.

An input is a dict: `inputs` in the definition's order, `axes` by name, `device`. The published verdict (rtol = atol =
1e-2; an element is off where it exceeds both) is after flashinfer_bench/bench/utils.py, config.py and, on the main
branch, eval_config.yaml, read 2026-11.
"""

import contextlib
import importlib
import inspect
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from harness.kinds.benchmarks import rank_judging as judging
from harness.kinds.trace import rank_inputs, schema
from harness.kinds.trace.rank_inputs import DTYPES, MODULE, axis_sizes, definition

SPEC = "KERNEL_EVAL_SPEC"  # what a staged solution says of itself (kinds.trace)
TOLERANCE = 1e-2
MATCHED = {"moe": 0.95, "lowbit": 0.95}  # by op_type, the part of a result that must be within; else all of it
TINY = 1e-8  # added to what errors are relative to
MOST_SHOWN = 1e300
SHOWN = 4  # parts of a result that is none
DRAWN_ONLY = 1  # level of hardening: stored inputs stay; at HARDEST they change too, at 0 none does
TRIES = 8  # other inputs, of which one must have another result
NOT_TAKEN = RuntimeError, ValueError, IndexError, AssertionError  # raised by a reference that does not take an input


def results(value: Any) -> list[Tensor]:
    """A result's tensors, in the order of the definition's outputs. Raises TypeError for what is none."""
    outputs = definition()["outputs"]
    parts = [value.get(name) for name in outputs] if isinstance(value, Mapping) else value
    parts = parts if isinstance(parts, tuple | list) else (parts,)
    if len(parts) == len(outputs) and all(one is not None for one in parts):
        with contextlib.suppress(TypeError, ValueError):  # torch's, of what is no number
            return [
                one if isinstance(one, Tensor) else torch.tensor(one, dtype=DTYPES.get(spec["dtype"]))
                for one, spec in zip(parts, outputs.values(), strict=True)
            ]
    raise TypeError(f"it returned {_said(value)}; expected a tensor or a number for each of: {', '.join(outputs)}")


def _said(value: Any) -> str:
    """What a value is: `NoneType`, `tuple of 2 (Tensor, str)`, `dict of x`."""
    kind = type(value).__name__
    if not isinstance(value, tuple | list | Mapping):
        return kind
    parts = list(map(str, value)) if isinstance(value, Mapping) else [type(one).__name__ for one in value]
    shown = ", ".join(parts[:SHOWN]) + ", ..." * (len(parts) > SHOWN)
    return f"{kind} of {shown}" if isinstance(value, Mapping) else f"{kind} of {len(parts)} ({shown})"


class CalledFunction:
    """A function as a kernel. `fills`: it writes its results into tensors that it gets behind its inputs."""

    def __init__(self, run: Callable[..., Any], fills: bool) -> None:
        self.run, self.fills = run, fills

    def __call__(self, data: Any) -> Any:
        device = judging.device_of(data)
        if definition().get("op_type") == schema.SAMPLING:
            torch.manual_seed(data["seed"])
        with torch.no_grad():
            if not self.fills:
                return judging.flat(results(self.run(*data["inputs"])), device)
            sizes = axis_sizes(data["axes"])
            made = [
                torch.empty(schema.shape_of(spec, sizes) or (), dtype=DTYPES[spec["dtype"]], device=device)
                for spec in definition()["outputs"].values()
            ]
            self.run(*data["inputs"], *made)
            return judging.flat(made, device)


def fills(run: Callable[..., Any], said: bool | None) -> bool:
    """Whether a solution writes into tensors that it gets: as it says, or as its parameters do. One that says nothing
    and takes any arguments does, by the format's default."""
    if said is not None:
        return said
    inputs, outputs = len(definition()["inputs"]), len(definition()["outputs"])
    parameters = inspect.signature(run).parameters.values()
    plain = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    if any(one.kind is one.VAR_POSITIONAL for one in parameters):
        return True
    return len(plain) >= inputs + outputs and sum(one.default is one.empty for one in plain) > inputs


def adapt(submission: Any) -> Any:
    """The kernel that a solution's entry point is. Raises AttributeError or TypeError where there is none."""
    spec = getattr(submission, SPEC, {"entry": "run", "fills": None})
    run = judging.defined(submission, spec["entry"], "its entry point is a function of the definition's inputs")
    return CalledFunction(run, fills(run, spec["fills"]))


class Reference(judging.JudgedReference):
    """The definition's inputs, its reference, and what it says is right."""

    def __init__(self) -> None:
        super().__init__(CalledFunction(importlib.import_module(MODULE).run, fills=False))
        self.levels: dict[str, int] = {}  # of hardening, by workload, once it is known
        self.checked: set[str] = set()

    def generate_input(self, rank: int, world_size: int, seed: int, workload: str, **axes: Any) -> Any:
        """The workload's inputs. Raises ValueError where the machine has too little memory for them."""
        device = torch.get_default_device()
        torch.manual_seed(seed)
        inputs, changes = rank_inputs.made(workload, axes, device)
        data = {"inputs": inputs, "axes": axes, "device": device.type, "workload": workload, "seed": seed}
        return data | {"changes": changes, "hardened": False}

    def harden(self, data: Any, seed: int) -> Any:
        """The same with drawn inputs of float types changed as judging.harden_drawn has it, and stored ones as
        rank_inputs.varied does; less where the reference does not take them, or its result is no longer finite."""
        workload = data["workload"]
        if workload not in self.levels:
            levels = (level for level in (judging.HARDEST, DRAWN_ONLY) if self.is_taken(data, seed, level))
            self.levels[workload] = next(levels, 0)
        return data | {"inputs": self.changed(data, seed, self.levels[workload]), "hardened": True}

    def is_taken(self, data: Any, seed: int, level: int) -> bool:
        """Whether the reference's result is finite, or infinite only where that of the published input is too."""
        try:
            found = judging.leaves_of(self.right_value(data, self.changed(data, seed, level)))
        except NOT_TAKEN:
            return False
        return judging.are_finite(found) or all(
            not bool(torch.isnan(one).any()) and not judging.are_finite([other])
            for one, other in zip(found, judging.leaves_of(self.right_value(data)), strict=True)
            if not judging.are_finite([one])
        )

    def changed(self, data: Any, seed: int, level: int) -> list[Any]:
        inputs: list[Any] = judging.copied(data["inputs"])
        for place, value in enumerate(inputs):
            if not isinstance(value, Tensor) or not value.is_floating_point():
                continue
            change = data["changes"].get(place)
            if change == rank_inputs.FREE and level and value.dtype.itemsize > 1:
                judging.harden_drawn([(value, False)], seed + place, judging.HARDEST)
            elif change == rank_inputs.SHARES and level:
                inputs[place] = rank_inputs.peaked(value, seed + place)
            elif change == rank_inputs.KEPT and level == judging.HARDEST:
                inputs[place] = rank_inputs.varied(value, seed + place)
        return inputs

    def exact_kernel(self, data: Any) -> judging.Right:
        """What is right. Raises ValueError for a workload whose result is the same whatever its inputs."""
        workload = data["workload"]
        judge = self.judging_of((workload, data["hardened"]), data)
        right = judge.right(data["inputs"])
        if data["hardened"] and workload not in self.checked:
            self.checked.add(workload)
            seeds = range(data["seed"] + 1, data["seed"] + 1 + TRIES)
            others = (self.harden(self.generate_input(0, 1, seed, workload, **data["axes"]), seed) for seed in seeds)
            if not any(self.depends(judge, right, other) for other in others):
                raise ValueError(f"{judging.SAME} (workload {workload})")
        return right

    def depends(self, judge: judging.Judging, right: judging.Right, other: Any) -> bool:
        """Of drawn tokens all that count is how they are distributed. Few of them may be the same for other
        probabilities, drawn with the same seed."""
        return schema.choice(definition()) == schema.TOKENS or super().depends(judge, right, other)

    def check_implementation(self, data: Any, output: Any) -> tuple[bool, str]:
        """The published verdict. What is said of a right output are its largest errors, as JSON."""
        return within(output, self.right_value(data))


def within(output: Any, right: Any) -> tuple[bool, str]:
    """Whether no element, or no more than may, exceeds both tolerances, and the largest absolute and relative error."""
    found, wanted = ([tensor for _, tensor in judging.tensors_of(value)] for value in (output, right))
    pairs = list(zip(found, wanted, strict=False))
    if any(one.shape != other.shape or one.dtype != other.dtype for one, other in pairs):
        return False, "a result's shape or dtype is not the reference's"
    absolute = relative = 0.0
    is_off = len(found) != len(wanted)
    for one, other in pairs:
        if not one.numel():
            continue
        alike = one == other  # which infinite values may be
        error = (one.float() - other.float()).abs().masked_fill_(alike, 0)
        part = (error / (other.float().abs() + TINY)).masked_fill_(alike, 0)
        off = int(((error > TOLERANCE) & (part > TOLERANCE)).sum())
        may_be = (1 - MATCHED.get(definition().get("op_type"), 1.0)) * one.numel()
        is_off = is_off or off > may_be or not judging.are_finite([error])
        absolute, relative = max(absolute, _shown(error)), max(relative, _shown(part))
    return not is_off, json.dumps({"max_absolute_error": absolute, "max_relative_error": relative})


def _shown(error: Tensor) -> float:
    found = float(error.max())
    return found if math.isfinite(found) else MOST_SHOWN
