"""The program of each group's ranks, and how a rank's process begins."""

import faulthandler
import importlib
import inspect
import os
import pkgutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from harness.problems.problem import ADAPTER
from harness.process import cuda_shim
from harness.ranks import torch_settings, trace, wire
from harness.ranks.captured import Captured
from harness.ranks.program import Program
from harness.ranks.stopwatch import Keep, Kernel, Sample

SUBMITTED = "submission.py"
SHOWN_GPUS = "CUDA_VISIBLE_DEVICES"


class Untrusted(Program):
    """Runs a submission, or the reference if none is staged, and nothing else: both sides' processes differ in nothing
    but their kernel. A rank that also judged would have warmer connections and a larger heap."""

    def __init__(self, order: wire.RankOrder, fds: dict[str, int]) -> None:
        self.judged = order.judged
        super().__init__(order, fds)
        self.profiler: Any  # torch.autograd.profiler.profile, whose methods have no types
        self.trace_file = Path(order.workdir) / trace.FILE
        self.commands |= {"start_profile": self.start_profile, "stop_profile": self.stop_profile}

    def import_kernel(self, command: wire.ImportKernel) -> wire.Reply:
        """A submission is called by CUDA graphs where the folder's own evaluator does so."""
        torch_settings.apply(command.settings)
        self.kernel = staged_kernel(self.order.workdir)
        is_submissions, on_cpu = (Path(self.order.workdir) / SUBMITTED).exists(), self.device.kind == "cpu"
        if torch_settings.CallSettings.capture and is_submissions and (self.order.cuda_is_cpu or not on_cpu):
            self.kernel = Captured(self.kernel, captures_late=on_cpu)
        return wire.Imported(device="")

    def load_inputs(self, command: wire.LoadInputs) -> None:
        self.forget()
        super().load_inputs(command)
        if isinstance(self.kernel, Captured):
            self.kernel.prepare(self.loaded, is_readable=not command.stepped and not any(self.masked))

    def yield_memory(self, command: wire.Yield) -> None:
        self.forget()
        super().yield_memory(command)

    def forget(self) -> None:
        """Frees the captured graphs and their memory."""
        if isinstance(self.kernel, Captured):
            self.kernel.graphs = {}

    def start_profile(self, command: wire.Do) -> None:
        self.trace_file.unlink(missing_ok=True)  # an earlier case's
        # What torch.profiler.profile is a shell of; the shell imports torch's compiler first, seconds a rank.
        self.profiler = torch.autograd.profiler.profile(
            use_kineto=True, use_device="cuda" if self.device.kind == "cuda" else None, record_shapes=True
        )
        self.profiler.__enter__()
        self.stopwatch.clocks["wall"] = self.profiled

    def stop_profile(self, command: wire.Do) -> None:
        self.stopwatch.clocks["wall"] = self.stopwatch.wall
        self.profiler.__exit__(None, None, None)
        self.profiler.export_chrome_trace(str(self.trace_file))

    def profiled(self, kernel: Kernel, data: Any, epoch: int, keep: Keep) -> Sample:
        """The wall clock, with the wait and the call marked in the trace."""
        with torch.autograd.profiler.record_function(trace.BARRIER_SPAN):
            self.barrier.wait(epoch)
        start_ns = time.monotonic_ns()
        with torch.autograd.profiler.record_function(trace.CALL_SPAN):
            result = kernel(data)
            self.device.synchronize()
        end_ns = time.monotonic_ns()
        return start_ns, end_ns, None, keep(result)


def run_rank(order: wire.RankOrder, fds: dict[str, int]) -> None:
    if order.cores:
        os.sched_setaffinity(0, order.cores)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)  # the parent asks for stacks at a deadline
    if order.device == "cuda":  # before anything asks the driver
        os.environ[SHOWN_GPUS] = ",".join(gpus_of(order, os.environ.get(SHOWN_GPUS, "")))
    if order.cuda_is_cpu:
        cuda_shim.install()
    pkgutil.resolve_name(order.program)(order, fds).serve()


def gpus_of(order: wire.RankOrder, shown: str) -> list[str]:
    """The node's GPUs that a group's ranks use, by their names in `shown` (CUDA_VISIBLE_DEVICES; empty: all), in the
    order of its ranks on that node: rank r uses the one that torch calls r, whichever it is in this launch."""
    names = [*filter(None, map(str.strip, shown.split(",")))] or [*map(str, range(order.local_size))]
    own = names[: order.local_size]
    return own[order.first_gpu :] + own[: order.first_gpu]


def staged_kernel(workdir: str) -> Kernel:
    """The kernel that is staged: a submission's, an opponent's among them, or else the reference's (see OpPlan)."""
    if (Path(workdir) / SUBMITTED).exists():
        return custom_kernel(workdir)
    sys.path.insert(0, workdir)
    return importlib.import_module("reference").ref_kernel  # type: ignore[no-any-return]


def custom_kernel(workdir: str) -> Kernel:
    """Imports the staged submission and returns its kernel: what it defines by that name, or what the problem's adapter
    makes of it. Raises whatever the import raises, and AttributeError or TypeError if there is no kernel."""
    sys.path.insert(0, workdir)
    # The adapter first: its modules are then what they are, and not what a submission's import leaves in their place.
    adapter = importlib.import_module(Path(ADAPTER).stem) if (Path(workdir) / ADAPTER).is_file() else None
    adapt = adapter.adapt if adapter else None
    submission = importlib.import_module("submission")
    if adapt is not None:
        return adapt(submission)  # type: ignore[no-any-return]
    kernel = getattr(submission, "custom_kernel", None)
    if kernel is None:
        raise AttributeError("the submission defines no custom_kernel(data); define it at the top level")
    if not callable(kernel):
        raise TypeError(f"custom_kernel is of type {type(kernel).__name__}; it must be a function of one argument")
    must_take(kernel, "custom_kernel", "data")
    return kernel  # type: ignore[no-any-return]


def must_take(function: Callable[..., Any], name: str, arguments: str) -> None:
    """Raises TypeError where what a submission defines by that name cannot be called with these (`config, data`)."""
    try:
        signature = inspect.signature(function)
    except ValueError:
        return  # a callable without a signature: the first call will tell
    try:
        signature.bind(*arguments.split(", "))
    except TypeError:
        if inspect.isclass(function):
            instead = f"define a function {name}({arguments}), or assign an instance that can be called"
            raise TypeError(f"{name} is a class, which a call makes an instance of; {instead}") from None
        own = ", ".join(signature.parameters)
        raise TypeError(f"{name}({own}) cannot be called as {name}({arguments}); change its arguments") from None
