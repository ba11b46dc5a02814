"""Tries generic cheats on a problem of another benchmark: `python -m harness.kinds.benchmarks.rank_audit ORDER`.

Runs in a folder with the problem's staged files. ORDER is JSON: `world_size`, `params` of the case, `seed` of the
published input, `batch`: the constant that is halved while inputs and results take more than `most_bytes`, and a call
of the reference more than `most_seconds`. Writes a JSON object to POPCORN_FD: `params` at last, and `cheats`: by name,
whether its result passes the benchmark's own tolerance (`own`) and our strict verdict (`strict`), which judges a
hardened input too; null where it has no result. Nothing is timed.
"""

import importlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from harness.judging import correctness
from harness.judging.correctness import Expected
from harness.kinds.benchmarks.rank_judging import SAME, everywhere, input_like, leaves_of, mapped, through, wide
from harness.process import cuda_shim

Cheat = Callable[[Any, Any, Any], Any]  # an input, its right result, an earlier input's result -> what it returns
OTHER, HARD = 1, 2  # added to the published seed


def as_mean(one: Tensor) -> Tensor:
    """Everywhere the mean of its numbers."""
    return torch.full_like(one, one.double().mean().item()) if one.numel() else one


def stale(data: Any, right: Any, earlier: Any) -> Any:
    """An earlier input's result, where it has the right shapes."""
    one, other = ([tensor.shape for tensor in leaves_of(value)] for value in (earlier, right))
    return earlier if one == other else None


def narrow(dtype: torch.dtype) -> Cheat:
    """The reference on inputs and parameters of that dtype, if inputs have more digits, and it takes them."""

    def cheat(data: Any, right: Any, earlier: Any) -> Any:
        floats = [one for one in leaves_of(data["inputs"]) if one.is_floating_point()]
        if everywhere(all(torch.equal(wide(through(one, dtype)), wide(one)) for one in floats)):
            return None
        try:
            return importlib.import_module("reference").rounded(data, dtype)
        except RuntimeError:  # rounded inputs may be none that it takes: probabilities that are all 0, say
            return None

    return cheat


CHEATS: Mapping[str, Cheat] = {
    "zeros": lambda data, right, earlier: mapped(right, torch.zeros_like),
    "input": lambda data, right, earlier: input_like(data["inputs"], right),
    "constant": lambda data, right, earlier: mapped(earlier, as_mean),
    "stale": stale,
    "bf16": narrow(torch.bfloat16),
    "fp16": narrow(torch.float16),
    "fp8": narrow(torch.float8_e4m3fn),
}


def is_right(output: Any, right: Any) -> bool:
    """Our strict verdict."""
    parts: tuple[Expected, ...] = right if isinstance(right, tuple) else (right,)
    found = leaves_of(output)
    return len(found) == len(parts) and all(
        correctness.strict(one, part).passed for one, part in zip(found, parts, strict=True)
    )


def audited(order: Mapping[str, Any], rank: int) -> dict[str, Any]:
    reference, world_size, params = importlib.import_module("reference"), order["world_size"], order["params"]

    def made(seed: int) -> Any:
        return reference.generate_input(rank, world_size, seed, **params)

    def result(data: Any) -> Any:
        return reference.rounded(data, torch.float64)  # nothing is wider: the reference on a copy

    earlier = result(made(order["seed"]))
    data = made(order["seed"] + OTHER)
    right = result(data)
    refused, hard, exact, exact_hard = "", None, None, None
    try:
        hard = reference.harden(made(order["seed"] + HARD), order["seed"] + HARD)
        exact, exact_hard = reference.exact_kernel(data), reference.exact_kernel(hard)
    except ValueError as error:
        if SAME not in str(error):
            raise
        refused = "refused"
    found: dict[str, Any] = {}
    for name, cheat in CHEATS.items():
        output = cheat(data, right, earlier)
        if not everywhere(output is not None):
            found[name] = None
            continue
        own = everywhere(reference.check_implementation(data, output)[0])
        strict = not refused and everywhere(is_right(output, exact))
        if strict:
            again = cheat(hard, result(hard), right)
            strict = everywhere(again is not None and is_right(again, exact_hard))
        found[name] = {"own": own, "strict": strict}
    return {"params": params, "cheats": found, "refused": refused}


def shrunk(order: dict[str, Any]) -> dict[str, Any]:
    """The order with a batch that is halved until it is small enough; as it is if the file's sizes hang together."""
    reference, batch, params = importlib.import_module("reference"), order["batch"], dict(order["params"])
    sizes = getattr(reference, "sizes", None)
    while sizes and batch and params[batch] > 1 and sum(sizes(**params)[:2]) > order["most_bytes"]:
        params[batch] = params[batch] // 2
    try:
        while batch and params[batch] > 1 and call_s(reference, order, params) > order["most_seconds"]:
            params[batch] = params[batch] // 2
    except (RuntimeError, AssertionError, ValueError, IndexError):  # sizes that do not fit each other
        return order
    return order | {"params": params}


def call_s(reference: Any, order: Mapping[str, Any], params: Mapping[str, Any]) -> float:
    data = reference.generate_input(0, 1, order["seed"], **params)
    began = time.monotonic()
    reference.ref_kernel(data)
    return time.monotonic() - began


def main() -> None:
    order = json.loads(sys.argv[1])
    order["params"] = {key: tuple(one) if isinstance(one, list) else one for key, one in order["params"].items()}
    sys.path.insert(0, os.getcwd())
    if order["cuda_is_cpu"]:
        cuda_shim.install()
    world_size, rank = order["world_size"], 0
    children: list[int] = []
    if order["grouped"]:
        meeting = f"file://{tempfile.mkdtemp(dir=os.getcwd())}/meet"
        for number in range(1, world_size):
            child = os.fork()
            if not child:
                rank, children = number, []
                break
            children.append(child)
        torch.set_num_threads(1)
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=world_size)
    with torch.device("cpu"):
        found = audited(shrunk(order), rank)
    if rank == 0:
        with os.fdopen(int(os.environ["POPCORN_FD"]), "wb") as told:
            told.write(json.dumps(found).encode())
    for child in children:
        os.waitpid(child, 0)
    os._exit(0)


if __name__ == "__main__":
    main()
