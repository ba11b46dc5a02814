"""A ParallelKernelBench problem as ranks run it: inputs by the clone's own utils, the reference, the judge.

An input is a dict: `inputs` are create_input_tensor()'s for this rank, with a GroupOf for each process group and a
SparseOf for each sparse tensor, which do not travel; `groups` are the ranks of all groups, in the order in which every
rank makes them; `device` is where all of it is. The published verdict is torch.allclose with atol = rtol = 1e-2 on
every rank (README.md and utils/compare_outputs.py, read 2026-11). Every function here is collective.
"""

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from harness.kinds.benchmarks import rank_judging as judging

MODULE, UTILS = "problem_file", "utils.input_output_tensors"
TOLERANCE = 1e-2
HARDEST = 2  # level of hardening
OFFSET = 2.0  # standard deviation of the offsets of columns
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True)
class GroupOf:
    """A process group, by its ranks."""

    ranks: tuple[int, ...]


@dataclass(frozen=True)
class SparseOf:
    """A sparse tensor in coordinate form."""

    indices: Tensor
    values: Tensor
    size: tuple[int, ...]


def tolerance(dtype: torch.dtype) -> float:
    """The published one, as atol and as rtol."""
    return TOLERANCE


class RankGroups:
    """This rank's process groups, by their ranks. They are made anew with the world's."""

    def __init__(self) -> None:
        self.world: Any = None
        self.made: dict[tuple[int, ...], Any] = {}

    def of(self, ranks: tuple[int, ...]) -> Any:
        """The group of these ranks. Collective where it is new."""
        if self.world is not dist.group.WORLD:
            self.world, self.made = dist.group.WORLD, {}
        if ranks not in self.made:
            is_all = len(ranks) == dist.get_world_size()
            self.made[ranks] = dist.group.WORLD if is_all else _new_group(list(ranks))
        return self.made[ranks]

    @contextmanager
    def counted(self) -> Iterator[None]:
        """dist.new_group makes each group once within."""

        def new_group(ranks: list[int] | None = None, *args: Any, **kwargs: Any) -> Any:
            return self.of(tuple(range(dist.get_world_size()) if ranks is None else ranks))

        dist.new_group = new_group
        try:
            yield
        finally:
            dist.new_group = _new_group


_new_group, _gather, _gather_list = dist.new_group, dist.all_gather_into_tensor, dist.all_gather
_exchange = dist.all_to_all


def gathered(output: Tensor, tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
    """dist.all_gather_into_tensor; on CPU cores the output's first dimension must be the ranks', on NCCL any fits."""
    if output.device.type == "cpu" and output.is_contiguous():
        output, tensor = output.view(-1), tensor.contiguous().view(-1)
    return _gather(output, tensor, *args, **kwargs)


def gathered_list(tensors: list[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False) -> Any:
    """dist.all_gather, which on CPU cores takes tensors of one shape only: NCCL takes any, by a broadcast of each."""
    if tensor.device.type != "cpu" or async_op or len({one.shape for one in tensors}) == 1:
        return _gather_list(tensors, tensor, group=group, async_op=async_op)
    tensors[dist.get_rank(group)].copy_(tensor)
    for source, one in zip(dist.get_process_group_ranks(group), tensors, strict=True):
        dist.broadcast(one, source, group=group)
    return None


def exchanged(outputs: list[Tensor], inputs: list[Tensor], group: Any = None, async_op: bool = False) -> Any:
    """dist.all_to_all, which on CPU cores takes tensors of one shape only: NCCL takes any."""
    if inputs[0].device.type != "cpu" or async_op:
        return _exchange(outputs, inputs, group=group, async_op=async_op)
    sent, sizes = torch.cat([one.reshape(-1) for one in inputs]), [one.numel() for one in outputs]
    taken = sent.new_empty(sum(sizes))
    dist.all_to_all_single(taken, sent, sizes, [one.numel() for one in inputs], group=group)
    for one, part in zip(outputs, taken.split(sizes), strict=True):
        one.copy_(part.view(one.shape))
    return None


GROUPS = RankGroups()


def packed(value: Any) -> Any:
    """The tree as it travels."""
    if isinstance(value, dist.ProcessGroup):
        return GroupOf(tuple(dist.get_process_group_ranks(value)))
    if isinstance(value, Tensor) and value.layout is torch.sparse_coo:
        value = value.coalesce()
        return SparseOf(value.indices(), value.values(), tuple(value.shape))
    if type(value) in (tuple, list):
        return type(value)(map(packed, value))
    return {key: packed(item) for key, item in value.items()} if isinstance(value, dict) else value


def unpacked(value: Any) -> Any:
    """The tree as a solution gets it."""
    if isinstance(value, GroupOf):
        return GROUPS.of(value.ranks)
    if isinstance(value, SparseOf):
        return torch.sparse_coo_tensor(value.indices, value.values, value.size).coalesce()
    if type(value) in (tuple, list):
        return type(value)(map(unpacked, value))
    return {key: unpacked(item) for key, item in value.items()} if isinstance(value, dict) else value


def has_group(value: Any) -> bool:
    """Whether a process group is in it: itself, or in lists, tuples and dicts."""
    if isinstance(value, dict):
        value = list(value.values())
    return any(map(has_group, value)) if isinstance(value, list | tuple) else isinstance(value, dist.ProcessGroup)


def forget_groups(module: Any) -> None:
    """Empties what a module keeps process groups in. Those of a world that is gone cannot be used any more."""
    for name, value in list(vars(module).items()):
        if hasattr(value, "cache_clear"):
            value.cache_clear()
        elif has_group(value):
            value.clear() if isinstance(value, dict | list) else setattr(module, name, None)


class CalledSolution:
    """A solution as a kernel."""

    def __init__(self, solution: Callable[..., Any]) -> None:
        self.solution = solution
        self.world: Any = None  # of the last call
        vars(dist).update(all_gather_into_tensor=gathered, all_gather=gathered_list, all_to_all=exchanged)

    def __call__(self, data: Any) -> Any:
        if self.world is not dist.group.WORLD:
            if self.world is not None:
                forget_groups(sys.modules[self.solution.__module__])
            self.world = dist.group.WORLD
        for ranks in data["groups"]:
            GROUPS.of(ranks)
        return judging.flat(self.solution(*unpacked(data["inputs"])), judging.device_of(data))


def adapt(submission: Any) -> Any:
    """The kernel that a submission's solution is. Raises AttributeError or TypeError where it defines none."""
    return CalledSolution(judging.defined(submission, "solution", "define it as the problem's own file does"))


class Reference(judging.JudgedReference):
    """The problem's inputs, its reference, and what it says is right."""

    def __init__(self) -> None:
        super().__init__(CalledSolution(importlib.import_module(MODULE).solution))
        self.fixed: list[bool] | None = None  # which tensors of an input are the same for every seed
        self.where: dict[str, Any] = {}  # the arguments of the input that was made last, without its seed
        self.level = 0  # of hardening

    def generate_input(self, rank: int, world_size: int, seed: int, **params: Any) -> Any:
        """create_input_tensor() of the clone's utils, with the seed as the trial."""
        self.where = {"rank": rank, "world_size": world_size, **params}
        device = torch.get_default_device()
        shape, dtype = (params["rows"], params["cols"]), DTYPES[params["dtype"]]
        make = importlib.import_module(UTILS).create_input_tensor
        with GROUPS.counted():
            made = make(rank, world_size, params["problem"], shape, dtype, trial=seed, device=device)
        made = made if isinstance(made, tuple) else (made,)
        data = {"inputs": packed(made), "groups": list(GROUPS.made), "device": device.type, "hardened": False}
        return data | {"seed": seed}

    def harden(self, data: Any, seed: int) -> Any:
        """The same with numbers of float types that no seed changes multiplied by 0.5 to 1.5, alike on every rank.
        Where the result is the same for every input even so, numbers that are drawn get an offset for each column, and
        at the last level a factor of 0.25 to 2. Raises ValueError for a problem that cannot be judged even so."""
        if self.fixed is None:
            other = self.generate_input(seed=seed + 1, **self.where)
            pairs = zip(judging.leaves_of(data["inputs"]), judging.leaves_of(other["inputs"]), strict=False)
            self.fixed = [
                one.shape == two.shape and torch.equal(judging.wide(one), judging.wide(two)) for one, two in pairs
            ]
            while not self.is_judged(self.changed(data, seed), self.changed(other, seed + 1)):
                self.level += 1
                if self.level > HARDEST:
                    raise ValueError(judging.SAME)
        return self.changed(data, seed)

    def changed(self, data: Any, seed: int) -> Any:
        """The input as it is hardened at the level that was found."""
        fixed = iter(self.fixed or ())

        def changed(tensor: Tensor) -> Tensor:
            is_fixed = next(fixed, False)
            if not tensor.is_floating_point() or tensor.dim() < (1 if is_fixed else 2) or not (is_fixed or self.level):
                return tensor
            generator = torch.Generator("cpu").manual_seed(seed)
            if is_fixed:
                factor = 0.5 + torch.rand(tensor.shape, generator=generator, device="cpu")
                return (tensor * factor.to(tensor.device)).to(tensor.dtype)
            offset = OFFSET * torch.randn(tensor.shape[-1], generator=generator, device="cpu")
            scale = 0.25 + 1.75 * float(torch.rand((), generator=generator, device="cpu")) if self.level > 1 else 1.0
            return (scale * (tensor + offset.to(tensor.device))).to(tensor.dtype)

        return data | {"inputs": judging.mapped(data["inputs"], changed), "hardened": True}

    def is_judged(self, data: Any, other: Any) -> bool:
        """Whether the right results for two hardened inputs differ on some rank."""
        judge = judging.Judging(lambda inputs: self.right_value(data, inputs))
        return self.depends(judge, judge.right(data["inputs"]), other)

    def exact_kernel(self, data: Any) -> judging.Right:
        return self.judging_of(data["hardened"], data).right(data["inputs"])

    def check_implementation(self, data: Any, output: Any) -> tuple[bool, str]:
        """The published verdict on this rank's output. Of a right one it says what is weak about the problem."""
        right = self.right_value(data)
        passed, message = judging.close(output, right, tolerance)
        weak = judging.weakness(data["inputs"], right, tolerance)
        is_weak = judging.everywhere(bool(weak))
        return passed, (weak if is_weak else "") if passed else message
