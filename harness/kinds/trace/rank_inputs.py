"""Inputs of a FlashInfer-Trace workload: drawn, scalar, stored or custom, and what may change of them.

Random inputs are after flashinfer_bench/bench/utils.py and bench/evaluators/dsa_topk_indexer.py, custom ones after
SOL-ExecBench's definition.py, read 2026-11; inputs of safetensors files are read here.
"""

import functools
import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harness.kinds.benchmarks import rank_judging as judging
from harness.kinds.trace import schema

MODULE = "problem_file"
PACKED_KEYS = "k_index_cache_fp8"  # [pages, page_size, 1, dim + 4] bytes: of a page all fp8 keys, then their scales
SCALE_BYTES = 4
LARGEST_FP8 = 448.0
DTYPES: dict[str, torch.dtype] = {name: getattr(torch, schema.OLD_NAMES.get(name, name)) for name in schema.DTYPES}
FREE, KEPT, SHARES = "free", "kept", "shares"
PEAKED = 30.0  # in logits: nearly all of a row goes to one token
WHOLE = {torch.int8: (-128, 128), torch.uint8: (0, 256)}  # of random whole numbers; others have 1024 on either side


@functools.cache
def definition() -> Any:
    return json.loads(Path(schema.DEFINITION).read_text())


@functools.cache
def workloads() -> Any:
    return json.loads(Path(schema.WORKLOADS).read_text())


def axis_sizes(axes: Mapping[str, int]) -> dict[str, int]:
    """Every axis's size, given the variable ones."""
    return schema.sizes(definition()["axes"], axes)


def made(workload: str, axes: Mapping[str, int], device: torch.device) -> tuple[list[Any], dict[int, str]]:
    """The inputs in the definition's order, drawn from torch's generators, and how some may change, by their place: as
    anybody's choice (FREE), stored numbers (KEPT), or probabilities (SHARES). Raises ValueError where the
    machine has too little memory for them."""
    sizes, sources = axis_sizes(axes), workloads()[workload]["inputs"]
    if device.type == "cpu":
        judging.check_memory(*(_nbytes(definition()[key], sizes) for key in ("inputs", "outputs")))
    scalars = {name: one["value"] for name, one in sources.items() if one["type"] == "scalar"}
    custom: Mapping[str, Any] = {}
    if any(one["type"] == "custom" for one in sources.values()):
        make = getattr(importlib.import_module(MODULE), definition()[schema.CUSTOM])
        custom = make({**sizes, **scalars}, device)
    inputs: list[Any] = []
    changes: dict[int, str] = {}
    for place, (name, spec) in enumerate(definition()["inputs"].items()):
        source, dtype = sources.get(name, {"type": "random"}), DTYPES[spec["dtype"]]
        shape = schema.shape_of(spec, sizes)
        if name in scalars:
            inputs.append(scalars[name])
        elif source["type"] == "custom":
            inputs.append(custom[name])
        elif source["type"] == "safetensors":
            value = stored(Path(source["path"]), source["tensor_key"]).to(device)
            changes[place] = KEPT
            inputs.append(value.item() if shape is None else value)
        elif name == PACKED_KEYS and shape is not None:
            inputs.append(packed_keys(shape, device).view(dtype))
        elif definition().get("op_type") == schema.SAMPLING and name == "probs":
            changes[place] = SHARES
            inputs.append(drawn(shape or (), dtype, device).softmax(-1))
        else:
            value = drawn(shape or (), dtype, device)
            changes[place] = FREE
            inputs.append(value.item() if shape is None else value)
    return inputs, changes


def _nbytes(specs: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """With numbers of 8 bits as float32, which references make of them."""
    found = 0
    for one in specs.values():
        dtype, shape = DTYPES[one["dtype"]], schema.shape_of(one, sizes) or ()
        found += torch.Size(shape).numel() * (4 if dtype.is_floating_point and dtype.itemsize == 1 else dtype.itemsize)
    return found


def drawn(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    if dtype is torch.bool:
        return torch.randint(0, 2, shape, device=device).bool()
    if not dtype.is_floating_point:
        return torch.randint(*WHOLE.get(dtype, (-1024, 1024)), shape, dtype=dtype, device=device)
    if dtype.itemsize == 1:
        return torch.randn(shape, device=device).clamp_(-2, 2).to(dtype)
    return torch.randn(shape, dtype=dtype, device=device)


def packed_keys(shape: tuple[int, ...], device: torch.device) -> Tensor:
    """Random keys as bytes [pages, page_size, 1, dim + 4], with a scale each: random bytes would be NaN."""
    pages, page_size, _, width = shape
    keys = torch.randn(pages, page_size, width - SCALE_BYTES, device=device)
    scale = keys.abs().amax(-1, keepdim=True).clamp_min(1e-4) / LARGEST_FP8
    parts = ((keys / scale).to(torch.float8_e4m3fn), scale)
    return torch.cat([part.view(torch.uint8).reshape(pages, -1) for part in parts], 1).view(shape)


def stored(path: Path, key: str) -> Tensor:
    """A tensor of a safetensors file, on the host. The kind has looked at the file's header."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        entry = json.loads(file.read(length))[key]
        start, end = entry["data_offsets"]
        file.seek(8 + length + start)
        data = bytearray(file.read(end - start))
    dtype, shape = DTYPES[schema.STORED[entry["dtype"]]], entry["shape"]
    flat_tensor = torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
    return flat_tensor.view(dtype).view(shape)


def varied(value: Tensor, seed: int) -> Tensor:
    """Stored numbers of a float type, each multiplied by 0.5 to 1.5, so that nothing of a workload can be kept for it.
    What they may stand for holds on: shares stay between 0 and 1, distributions sum to 1, and flags, positions (whole
    numbers) and scales that are powers of two stay as they are. Numbers that are all the same are halved or not."""
    if value.numel() < 2:
        return value
    wide = value.float() if value.dtype.itemsize < 4 else value
    generator = torch.Generator("cpu").manual_seed(seed)
    factor = 0.5 + torch.rand(value.shape, generator=generator, device="cpu").to(value.device)
    if bool((wide == wide.flatten()[0]).all()):
        return (wide * torch.where(factor < 1, 0.5, 1.0)).to(value.dtype)
    is_scale = value.dtype.itemsize > 1 and bool((torch.frexp(wide)[0].abs() == 0.5).all())
    if is_scale or bool((wide == wide.round()).all()):
        return value
    is_share = bool(((wide >= 0) & (wide <= 1)).all())
    found = wide * (factor.clamp_max(1) if is_share or value.dtype.itemsize == 1 else factor)  # 8 bits overflow early
    if is_share and value.dim() and bool(((wide.sum(-1) - 1).abs() < 1e-2).all()):
        found = found / found.sum(-1, keepdim=True)
    return found.to(value.dtype)


def peaked(shares: Tensor, seed: int) -> Tensor:
    """Probabilities [B, V], of which every other row, as the seed has it, goes nearly all to one token: a kernel that
    always returns the same one is wrong there."""
    generator = torch.Generator("cpu").manual_seed(seed)
    is_peaked = torch.rand((*shares.shape[:-1], 1), generator=generator, device="cpu").to(shares.device) < 0.5
    return torch.where(is_peaked, (shares.log() * PEAKED).softmax(-1), shares)
