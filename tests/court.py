"""W ranks as threads of this process, for tests of kernels: collectives work, start-up takes milliseconds.

Each rank is a thread with a default process group of torch's threaded backend (torch's own test helper), so that
ordinary submissions run unchanged. On a GPU all ranks share it. Eight gloo processes take seconds to start; those are
tested end to end elsewhere.
"""

import contextlib
import copy
import ctypes
import importlib
import itertools
import os
import queue
import sys
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.testing._internal.distributed import multi_threaded_pg as threaded

from harness.core.checkout import ROOT
from harness.core.records import Verdict
from harness.judging import correctness

FLAT = (  # what is staged beside a submission
    *("utils", "task", "params", "reference"),
    *("adapter", "weights", "model", "corpus", "own_text", "train"),
)


def ends(_: object, count: int, sizes: Sequence[int] | None, world_size: int) -> list[int]:
    """Where each rank's part of so many rows begins, and where the last one ends. Torch's helper asks for it 72 times
    in a collective of 8 ranks, and makes six tensors each time."""
    return list(itertools.accumulate(map(int, sizes or [count // world_size] * world_size), initial=0))


threaded.AllToAllBase._size_cumsum = ends


class Ranks:
    """`world_size` threads; use it as a context manager."""

    def __init__(self, world_size: int, device: str = "cpu") -> None:
        self.world_size, self.device = world_size, device
        self.todo: list[queue.SimpleQueue] = [queue.SimpleQueue() for _ in range(world_size)]
        self.done: queue.SimpleQueue = queue.SimpleQueue()
        self.core = ctypes.CDLL(None).sched_getcpu
        self.threads = [threading.Thread(target=self._live, args=(rank,), daemon=True) for rank in range(world_size)]

    def __enter__(self) -> "Ranks":
        threaded._install_threaded_pg()
        torch._C._distributed_c10d._set_thread_isolation_mode(True)  # each thread knows its own group only
        self.store = dist.HashStore()
        for thread in self.threads:
            thread.start()
        self.map(self._join_group)
        return self

    def __exit__(self, *exc: object) -> None:
        for todo in self.todo:
            todo.put(None)
        for thread in self.threads:
            thread.join(timeout=10)
        torch._C._distributed_c10d._set_thread_isolation_mode(False)
        threaded._uninstall_threaded_pg()

    def map(self, function: Callable[..., Any], *per_rank: list[Any]) -> list[Any]:
        """[function(rank, *its items of per_rank) for each rank], at the same time. Raises what a rank raised."""
        # All on one core, the caller's: they hand each other Python's lock at every operation of torch, which between
        # cores costs as much again as what they compute.
        core = self.core()
        for rank, todo in enumerate(self.todo):
            todo.put((core, function, [items[rank] for items in per_rank]))
        results: list[Any] = [None] * self.world_size
        errors = []
        for _ in range(self.world_size):
            rank, result, error = self.done.get()
            results[rank] = result
            errors += [error] if error else []
        if errors:
            threaded.ProcessLocalGroup.reset()
            raise next((error for error in errors if not isinstance(error, SystemExit)), errors[0])
        return results

    def _live(self, rank: int) -> None:
        torch.set_num_threads(1)
        if self.device != "cpu":  # it makes every operation of torch pass through Python
            torch.set_default_device(self.device)
        while (job := self.todo[rank].get()) is not None:
            core, function, items = job
            os.sched_setaffinity(0, {core})
            try:
                self.done.put((rank, function(rank, *items), None))
            except BaseException as error:  # whatever it was, the others must not wait for this rank
                threaded.ProcessLocalGroup.exception_handle(None)
                self.done.put((rank, None, error))
        # Else the thread's last breath takes the GIL to forget its device, and aborts a process that is ending.
        torch.set_default_device(None)

    def _join_group(self, rank: int) -> None:
        dist.init_process_group("threaded", rank=rank, world_size=self.world_size, store=self.store)


class Court:
    """One problem on the given ranks: makes inputs, runs submissions on copies of them, judges what they return."""

    def __init__(self, ranks: Ranks, problem: str) -> None:
        self.ranks, self.problem, self.reference = ranks, problem, load_reference(problem)

    def inputs(self, params: dict[str, int | bool], seed: int, hardened: bool) -> list[Any]:
        """Each rank's data."""
        where = {"world_size": self.ranks.world_size, "seed": seed}
        data = self.ranks.map(lambda rank: self.reference.generate_input(**params, rank=rank, **where))
        return [self.reference.harden(part, seed) for part in data] if hardened else data

    def expected(self, data: list[Any]) -> list[correctness.Expected]:
        return self.ranks.map(lambda rank, part: self.reference.exact_kernel(part), data)

    def load(self, source: str) -> list[Callable[[Any], Any]]:
        """Each rank's custom_kernel, with module state of its own."""
        code = compile(source, f"<{self.problem} submission>", "exec")
        kernels = []
        with staged(self.problem):
            for _ in range(self.ranks.world_size):
                module = types.ModuleType("submission")
                exec(code, module.__dict__)
                kernels.append(module.custom_kernel)
        return kernels

    def run(self, kernels: list[Callable[[Any], Any]], data: list[Any]) -> list[Any]:
        """What each rank's kernel returns; the data stay as they are, whatever a kernel does."""
        return self.ranks.map(lambda rank, kernel, part: kernel(copy.deepcopy(part)), kernels, data)


def judge(output: Any, expected: correctness.Expected) -> Verdict:
    """The strict verdict, as a trusted rank gives it."""
    kind = "torch.Tensor" if type(output) is torch.Tensor else type(output).__name__
    device = expected.value.device.type
    declared = correctness.strict_declared(kind, getattr(output, "device", torch.device(device)).type, device, "")
    return correctness.strict(output, expected) if declared.passed else declared


def margin(output: Any, expected: correctness.Expected) -> float:
    """The worst group's error over its limit; infinite where the output is not even judged by its error."""
    fits = type(output) is torch.Tensor and output.dtype == expected.dtype and output.shape == expected.value.shape
    return correctness.margin(output, expected) if fits and bool(output.isfinite().all()) else float("inf")


@contextlib.contextmanager
def staged(problem: str) -> Iterator[None]:
    """The problem's files importable as they are beside a submission: those of FLAT."""
    folders = [str(ROOT / "reference" / problem), str(ROOT / "reference" / "common")]
    sys.path[:0] = folders
    for name in FLAT:
        sys.modules.pop(name, None)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        for name in FLAT:
            sys.modules.pop(name, None)
        for folder in folders:
            sys.path.remove(folder)


def load_reference(problem: str) -> types.ModuleType:
    """The problem's reference.py as a module of its own."""
    with staged(problem):
        return importlib.import_module("reference")
