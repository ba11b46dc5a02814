"""A FlashInfer-Trace definition as ranks run it: inputs as a workload says, the reference, the judge, the adapter.

An input is a dict: `inputs` in the definition's order, `axes` by name, `device`. The published verdict (rtol = atol =
1e-2; an element is off where it exceeds both) and random inputs are after flashinfer_bench/bench/utils.py and
config.py, read 2026-11; inputs of safetensors files are read here.
"""

import functools
import importlib
import inspect
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harness.kinds.benchmarks import rank_judging as judging

MODULE, DEFINITION, WORKLOADS = "problem_file", "definition.json", "workloads.json"
SPEC = "KERNEL_EVAL_SPEC"  # what a staged solution says of itself (kinds.trace)
SAMPLING = "sampling"  # the op_type of definitions whose results are drawn: alike for one seed
TOLERANCE = 1e-2
TINY = 1e-8  # added to what errors are relative to
MOST_SHOWN = 1e300
NAMES = ("float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int64", "int32", "int16", "int8", "bool")
DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in NAMES}
DTYPES["float8_e4m3"] = torch.float8_e4m3fn
STORED = {  # as safetensors call them
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
WHOLE = {torch.int8: 128}  # random whole numbers are below that, and below 1024 where they have more bits


@functools.cache
def definition() -> Any:
    return json.loads(Path(DEFINITION).read_text())


def axis_sizes(axes: Mapping[str, int]) -> dict[str, int]:
    """Every axis's size, given the variable ones."""
    constant = {name: one["value"] for name, one in definition()["axes"].items() if one["type"] == "const"}
    return {**constant, **axes}


def shape_of(spec: Mapping[str, Any], sizes: Mapping[str, int]) -> tuple[int, ...] | None:
    """A tensor's shape; None for a scalar."""
    if spec["shape"] is None:
        return None
    return tuple(one if isinstance(one, int) else sizes[one] for one in spec["shape"])


def drawn(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    if dtype is torch.bool:
        return torch.randint(0, 2, shape, device=device).bool()
    if not dtype.is_floating_point:
        most = WHOLE.get(dtype, 1024)
        return torch.randint(-most, most, shape, dtype=dtype, device=device)
    if dtype.itemsize == 1:
        return torch.randn(shape, device=device).clamp_(-2, 2).to(dtype)
    return torch.randn(shape, dtype=dtype, device=device)


def stored(path: Path, key: str) -> Tensor:
    """A tensor of a safetensors file, on the host. The kind has looked at the file's header."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        entry = json.loads(file.read(length))[key]
        start, end = entry["data_offsets"]
        file.seek(8 + length + start)
        data = bytearray(file.read(end - start))
    dtype, shape = STORED[entry["dtype"]], entry["shape"]
    flat_tensor = torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
    return flat_tensor.view(dtype).view(shape)


def results(value: Any) -> list[Tensor]:
    """A result's tensors, in the order of the definition's outputs."""
    names = list(definition()["outputs"])
    if isinstance(value, Mapping):
        value = [value[name] for name in names]
    value = value if isinstance(value, tuple | list) else (value,)
    kinds = [DTYPES.get(one["dtype"]) for one in definition()["outputs"].values()]
    return [
        one if isinstance(one, Tensor) else torch.tensor(one, dtype=kind)
        for one, kind in zip(value, kinds, strict=True)
    ]


class CalledFunction:
    """A function as a kernel. `fills`: it writes its results into tensors that it gets behind its inputs."""

    def __init__(self, run: Callable[..., Any], fills: bool) -> None:
        self.run, self.fills = run, fills

    def __call__(self, data: Any) -> Any:
        device = judging.device_of(data)
        if definition().get("op_type") == SAMPLING:
            torch.manual_seed(data["seed"])
        with torch.no_grad():
            if not self.fills:
                return judging.flat(results(self.run(*data["inputs"])), device)
            sizes = axis_sizes(data["axes"])
            made = [
                torch.empty(shape_of(spec, sizes) or (), dtype=DTYPES[spec["dtype"]], device=device)
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
    """The kernel that a solution's entry point is. Raises AttributeError where there is none."""
    spec = getattr(submission, SPEC, {"entry": "run", "fills": None})
    run = getattr(submission, spec["entry"], None)
    if run is None:
        raise AttributeError(f"the solution defines no {spec['entry']}, which is its entry point")
    return CalledFunction(run, fills(run, spec["fills"]))


class Reference(judging.JudgedReference):
    """The definition's inputs, its reference, and what it says is right."""

    def __init__(self) -> None:
        super().__init__(CalledFunction(importlib.import_module(MODULE).run, fills=False))
        self.workloads = json.loads(Path(WORKLOADS).read_text())
        self.level: int | None = None  # of hardening; None before it is known
        self.checked: set[str] = set()

    def generate_input(self, rank: int, world_size: int, seed: int, workload: str, **axes: Any) -> Any:
        device = torch.get_default_device()
        torch.manual_seed(seed)
        sizes = axis_sizes(axes)
        inputs: list[Any] = []
        random: list[int] = []
        for name, spec in definition()["inputs"].items():
            source, dtype = self.workloads[workload]["inputs"].get(name, {"type": "random"}), DTYPES[spec["dtype"]]
            shape = shape_of(spec, sizes)
            if source["type"] == "scalar":
                inputs.append(source["value"])
            elif source["type"] == "safetensors":
                inputs.append(stored(Path(source["path"]), source["tensor_key"]).to(device))
            elif shape is None:
                inputs.append(drawn((), dtype, device).item())
            else:
                random.append(len(inputs))
                inputs.append(drawn(shape, dtype, device))
                if definition().get("op_type") == SAMPLING and name == "probs":
                    inputs[-1] = inputs[-1].softmax(-1)
                    random.pop()
        data = {"inputs": inputs, "axes": axes, "device": device.type, "workload": workload, "seed": seed}
        return data | {"random": random, "hardened": False}

    def harden(self, data: Any, seed: int) -> Any:
        """The same with drawn inputs of float types changed as judging.harden_drawn has it, and stored ones multiplied
        by 0.5 to 1.5; as they are where the reference's result is not finite then."""
        for level in [self.level] if self.level is not None else [judging.HARDEST, 0]:
            changed = data | {"inputs": self.changed(data, seed) if level else data["inputs"], "hardened": True}
            if self.level is not None or level == 0 or judging.are_finite(judging.leaves_of(self.right_value(changed))):
                self.level = level
                return changed
        raise AssertionError("level 0 is taken")

    def changed(self, data: Any, seed: int) -> list[Any]:
        inputs: list[Any] = judging.copied(data["inputs"])
        for place, value in enumerate(inputs):
            if not isinstance(value, Tensor) or not value.is_floating_point() or value.dtype.itemsize == 1:
                continue
            if place in data["random"]:
                judging.harden_drawn([(value, False)], seed + place, judging.HARDEST)
            elif value.numel() > 1:
                generator = torch.Generator("cpu").manual_seed(seed + place)
                factor = 0.5 + torch.rand(value.shape, generator=generator, device="cpu")
                inputs[place] = (value * factor.to(value.device)).to(value.dtype)
        return inputs

    def exact_kernel(self, data: Any) -> judging.Right:
        """What is right. Raises ValueError for a workload whose result is the same whatever its inputs."""
        workload = data["workload"]
        judge = self.judging_of((workload, data["hardened"]), data)
        right = judge.right(data["inputs"])
        if data["hardened"] and workload not in self.checked:
            self.checked.add(workload)
            seed = data["seed"] + 1
            other = self.harden(self.generate_input(0, 1, seed, workload, **data["axes"]), seed)
            if not self.depends(judge, right, other):
                raise ValueError(judging.SAME)
        return right

    def check_implementation(self, data: Any, output: Any) -> tuple[bool, str]:
        """The published verdict. What is said of a right output are its largest errors, as JSON."""
        return within(output, self.right_value(data))


def within(output: Any, right: Any) -> tuple[bool, str]:
    """Whether no element exceeds both tolerances, and the largest absolute and relative error."""
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
        is_off = is_off or bool(((error > TOLERANCE) & (part > TOLERANCE)).any()) or not judging.are_finite([error])
        absolute, relative = max(absolute, _shown(error)), max(relative, _shown(part))
    return not is_off, json.dumps({"max_absolute_error": absolute, "max_relative_error": relative})


def _shown(error: Tensor) -> float:
    found = float(error.max())
    return found if math.isfinite(found) else MOST_SHOWN
