"""W ranks as threads of this process, for tests of kernels: collectives work, start-up takes milliseconds.

Each rank is a thread with a default process group of torch's threaded backend (torch's own test helper), so that
ordinary submissions run unchanged. On a GPU all ranks share it. Eight gloo processes take seconds to start; those are
tested end to end elsewhere.
"""

import contextlib
import importlib
import queue
import sys
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.testing._internal.distributed import multi_threaded_pg as threaded

ROOT = Path(__file__).resolve().parent.parent
FLAT = ("utils", "task", "params", "reference")  # what is staged beside a submission


class Ranks:
    """`world_size` threads; use it as a context manager."""

    def __init__(self, world_size: int, device: str = "cpu") -> None:
        self.world_size, self.device = world_size, device
        self.todo: list[queue.SimpleQueue] = [queue.SimpleQueue() for _ in range(world_size)]
        self.done: queue.SimpleQueue = queue.SimpleQueue()
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
        for rank, todo in enumerate(self.todo):
            todo.put((function, [items[rank] for items in per_rank]))
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
        torch.set_default_device(self.device)
        while (job := self.todo[rank].get()) is not None:
            function, items = job
            try:
                self.done.put((rank, function(rank, *items), None))
            except BaseException as error:  # whatever it was, the others must not wait for this rank
                threaded.ProcessLocalGroup.exception_handle(None)
                self.done.put((rank, None, error))
        # Else the thread's last breath takes the GIL to forget its device, and aborts a process that is ending.
        torch.set_default_device(None)

    def _join_group(self, rank: int) -> None:
        dist.init_process_group("threaded", rank=rank, world_size=self.world_size, store=self.store)


@contextlib.contextmanager
def staged(problem: str) -> Iterator[None]:
    """The problem's files importable as they are beside a submission: `reference`, `task`, `params`, `utils`."""
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


def load_submission(problem: str, source: str) -> types.ModuleType:
    """A submission as one rank has it: each call makes a module with state of its own."""
    module = types.ModuleType("submission")
    with staged(problem):
        exec(compile(source, f"<{problem} submission>", "exec"), module.__dict__)
    return module
