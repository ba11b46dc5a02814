"""A rank: one process that holds one kernel and obeys the parent's commands, one at a time.

The same loop, clock and input path serve all groups, so that reference and submission are measured alike; only the
program differs. A trusted rank makes inputs and judges outputs. A baseline rank runs the reference, a candidate rank
the submission, and nothing else.
"""

import contextlib
import faulthandler
import functools
import gc
import importlib
import inspect
import itertools
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from harness import correctness, folder_gate, payload, peaks, standin, trace, wire
from harness.box import Box
from harness.device import make_device
from harness.gate import Gate
from harness.records import Clock, Params, Verdict, Verdicts

HOST = "127.0.0.1"
MIN_OUTPUT_BYTES = 64 << 20  # an output may be this large in any case, and OUTPUT_FACTOR times what it is judged by
OUTPUT_FACTOR = 4

NO_BOX = wire.BoxHandle(nbytes=-1, handle="")

Kernel = Callable[[Any], Any]
Keep = Callable[[Any], wire.Output | None]  # what a call returned
Sample = tuple[int, int, float | None, wire.Output | None]  # start and end on the host (ns), the device's time (us)


class Program:
    """What all kinds of rank do. A method per command; what it returns is the reply."""

    judged = True  # whether its outputs go where trusted ranks look for them

    def __init__(self, order: wire.RankOrder, fds: dict[str, int]) -> None:
        self.order, self.fds = order, fds
        self.channel = wire.Channel(socket.socket(fileno=fds["channel"]))
        self.gate = Gate(fds["gate"], order.world_size, order.spin)
        self.device = make_device(
            order.device, order.rank, order.world_size, order.threads, order.flush_bytes, self.gate
        )
        self.kernel: Kernel = lambda data: None
        self.boxes: wire.Boxes | None = None  # those that are open
        self.input_box: Box
        self.output_box: Box
        self.loaded: list[Any] = []
        self.masked: list[list[tuple[torch.Tensor, int]]] = []  # of each of these, what is still to be unmasked
        self.output_limit = 0
        self.output_offset = 0
        self.busy_us = 0.0  # in the last call on the wall clock
        self.settled = order.cores  # where calls run now
        self.commands: dict[type, Callable[[Any], wire.Reply]] = {
            wire.ImportKernel: self.import_kernel,
            wire.CompileKernel: self.compile_kernel,
            wire.OpenGroup: self.open_group,
            wire.CloseGroup: self.close_group,
            wire.LoadInputs: self.load_inputs,
            wire.Call: self.call,
        }
        self.clocks: dict[Clock, Callable[[Kernel, Any, int, Keep], Sample]] = {
            "wall": self.wall,
            "device": self.device_clock,
            "gpumode": self.gpumode,
        }

    def serve(self) -> None:
        self.device.prepare()
        self.channel.send(wire.Done())
        while True:
            try:
                command = self.channel.receive(wire.Command)
            except EOFError:
                return
            try:
                reply = self.commands[type(command)](command)
            except BaseException as error:  # the one broad catch: a submission may raise anything, SystemExit too
                reply = failed(error)
            self.channel.send(reply)

    def import_kernel(self, command: wire.ImportKernel) -> wire.Reply:
        raise NotImplementedError

    def compile_kernel(self, command: wire.CompileKernel) -> wire.Reply:
        """Rank 0's import, with what compilers print; the other ranks' find what it compiled."""
        if self.order.rank == 0:
            with verbose_extensions():
                self.import_kernel(wire.ImportKernel())
        return wire.Imported(device="")

    def open_group(self, command: wire.OpenGroup) -> wire.Reply:
        order = self.order
        os.environ.update(
            # For a submission that opens a group of its own with env://; ours meets in a file, so that no port is
            # raced for and no name server is asked (TCPStore looks every client's address up).
            MASTER_ADDR=HOST,
            MASTER_PORT=str(command.free_port),
            RANK=str(order.rank),
            LOCAL_RANK=str(order.rank),
            WORLD_SIZE=str(order.world_size),
            GLOO_SOCKET_IFNAME="lo",
        )
        dist.init_process_group(
            backend=self.device.backend,
            init_method=f"file://{Path(order.workdir).parent}/meet-{command.number}",
            rank=order.rank,
            world_size=order.world_size,
            device_id=self.device.id,
        )
        return wire.Done()

    def close_group(self, command: wire.CloseGroup) -> wire.Reply:
        self.loaded = self.masked = []
        if dist.is_initialized():
            dist.destroy_process_group()
        return wire.Done()

    def load_inputs(self, command: wire.LoadInputs) -> wire.Reply:
        if self.boxes != command.boxes:
            self.open_boxes(command.boxes)
        self.loaded = self.masked = []  # first, so that two sets never need memory at once
        self.masked = [[] for _ in command.inputs]
        self.loaded = list(map(functools.partial(payload.read_input, self.input_box), command.inputs, self.masked))
        self.output_limit = command.output_limit
        self.output_offset = 0
        return wire.Done()

    def open_boxes(self, boxes: wire.Boxes) -> None:
        """Those of the trusted rank; what has not changed stays open."""
        before, self.boxes = self.boxes, boxes
        if before is None or before.inputs != boxes.inputs:
            if before is not None:
                self.input_box.close()
            self.input_box = self.device.box(self.fds["inputs"], boxes.inputs.nbytes, boxes.inputs.handle)
        if before is None or before.outputs != boxes.outputs:
            if before is not None:
                self.output_box.close()
            handle = boxes.outputs.handle if self.judged else ""
            self.output_box = self.device.box(self.fds["outputs"], boxes.outputs.nbytes, handle)

    def call(self, command: wire.Call) -> wire.Reply:
        samples = []
        self.settle(command)
        gc.disable()  # a collection is the harness's garbage, not the kernel's time
        for epoch, index in enumerate(command.indices, start=command.epoch):
            empty = index < 0
            kernel = (lambda data: None) if empty else self.kernel
            data = None if empty else self.loaded[index]
            if not empty and self.masked[index]:
                self.unmask(index, self.gate.key(epoch))
            self.device.flush_caches()
            self.device.synchronize()
            if epoch == command.epoch:
                self.channel.send(wire.AtGate(epoch=epoch))  # the parent opens
            else:
                self.gate.open(self.order.rank, epoch)  # the last to come opens
            # Kept at once: what is handed over is what was there when the clock stopped.
            keep: Keep = (lambda result: None) if empty else self.hand_over
            start_ns, end_ns, device_us, output = self.clocks[command.clock](kernel, data, epoch, keep)
            self.gate.finish(self.order.rank, epoch)
            sample = wire.CallSample(
                start_ns=start_ns, end_ns=end_ns, device_us=device_us, output=output, busy_us=self.busy_us
            )
            samples.append(sample)
        gc.enable()
        return wire.Called(samples=tuple(samples))

    def settle(self, command: wire.Call) -> None:
        """Runs a burst on one core of this rank's, the same for all groups, and anything else on any of them.

        On a host that is shared with others some cores are twice as fast as others while their siblings rest, so that
        bursts differ by where they happen to run (docs/measurements.md). Only bursts: a process's first calls start
        threads, which keep for life what cores they were born on.
        """
        cores = self.order.cores
        wanted = cores[-1:] if len(command.indices) > 1 and self.device.kind != "cpu" else cores
        if wanted != self.settled:
            self.settled = wanted
            os.sched_setaffinity(0, wanted)

    def unmask(self, index: int, key: int) -> None:
        while self.masked[index]:
            tensor, place = self.masked[index].pop()
            payload.mask(tensor, key, place)

    def wall(self, kernel: Kernel, data: Any, epoch: int, keep: Keep) -> Sample:
        self.gate.wait(epoch)
        busy_ns = time.process_time_ns()
        start_ns = time.monotonic_ns()
        result = kernel(data)
        self.device.synchronize()
        end_ns = time.monotonic_ns()
        self.busy_us = (time.process_time_ns() - busy_ns) / 1000
        return start_ns, end_ns, None, keep(result)

    def device_clock(self, kernel: Kernel, data: Any, epoch: int, keep: Keep) -> Sample:
        start_ns = time.monotonic_ns()
        output, device_us = self.device.device_us(lambda: kernel(data), keep, epoch)
        return start_ns, time.monotonic_ns(), device_us, output

    def gpumode(self, kernel: Kernel, data: Any, epoch: int, keep: Keep) -> Sample:
        """The published region to the letter: the clone and the barrier are inside."""
        self.gate.wait(epoch)
        dist.barrier()  # waits for: all ranks ready
        start_ns = time.monotonic_ns()
        result = kernel(_cloned(data))
        self.device.synchronize()
        dist.barrier()  # waits for: all ranks done
        end_ns = time.monotonic_ns()
        return start_ns, end_ns, None, keep(result)

    def hand_over(self, result: Any) -> wire.Output:
        output = payload.write_output(self.output_box, self.output_offset, result, self.output_limit)
        self.output_offset = payload.aligned(self.output_offset + output.nbytes)
        return output


class Candidate(Program):
    """Runs the submission."""

    def __init__(self, order: wire.RankOrder, fds: dict[str, int]) -> None:
        super().__init__(order, fds)
        self.profiler: Any  # torch.autograd.profiler.profile, whose methods have no types
        self.trace_file = Path(order.workdir) / trace.FILE
        self.commands |= {wire.StartProfile: self.start_profile, wire.StopProfile: self.stop_profile}

    def import_kernel(self, command: wire.ImportKernel) -> wire.Reply:
        self.kernel = custom_kernel(self.order.workdir)
        return wire.Imported(device="")

    def start_profile(self, command: wire.StartProfile) -> wire.Reply:
        self.trace_file.unlink(missing_ok=True)  # an earlier case's
        # What torch.profiler.profile is a shell of; the shell imports torch's compiler first, seconds a rank.
        self.profiler = torch.autograd.profiler.profile(
            use_kineto=True, use_device="cuda" if self.device.kind == "cuda" else None, record_shapes=True
        )
        self.profiler.__enter__()
        self.clocks["wall"] = self.profiled
        return wire.Done()

    def stop_profile(self, command: wire.StopProfile) -> wire.Reply:
        self.clocks["wall"] = self.wall
        self.profiler.__exit__(None, None, None)
        self.profiler.export_chrome_trace(str(self.trace_file))
        return wire.Done()

    def profiled(self, kernel: Kernel, data: Any, epoch: int, keep: Keep) -> Sample:
        """The wall clock, its two parts marked in the trace."""
        with torch.autograd.profiler.record_function(trace.GATE_SPAN):
            self.gate.wait(epoch)
        start_ns = time.monotonic_ns()
        with torch.autograd.profiler.record_function(trace.CALL_SPAN):
            result = kernel(data)
            self.device.synchronize()
        end_ns = time.monotonic_ns()
        return start_ns, end_ns, None, keep(result)


class Baseline(Program):
    """Runs the reference (or an opponent) as if it were a submission, and nothing else, so that both are timed under
    one condition: a rank that also judged would have warmer connections, and a heap that is never short."""

    judged = False

    def import_kernel(self, command: wire.ImportKernel) -> wire.Reply:
        if (Path(self.order.workdir) / "submission.py").exists():  # staged for an opponent, see Plan
            self.kernel = custom_kernel(self.order.workdir)
        else:
            sys.path.insert(0, self.order.workdir)
            self.kernel = importlib.import_module("reference").ref_kernel
        return wire.Imported(device="")


class Trusted(Program):
    """Makes inputs and judges outputs."""

    def __init__(self, order: wire.RankOrder, fds: dict[str, int]) -> None:
        super().__init__(order, fds)
        self.reference: Any = None
        self.made: list[Any] = []  # what the candidate got, out of its reach
        self.taken: list[tuple[wire.Output, torch.Tensor | None]] = []
        self.kept_boxes: list[Box] = []
        self.params: Params = {}
        self.expected_nbytes = 0  # the most that an output for these has had; 0: there was none yet
        self.commands |= {
            wire.MakeInputs: self.make_inputs,
            wire.TakeOutputs: self.take_outputs,
            wire.Verify: self.verify,
            wire.MeasurePeaks: self.measure_peaks,
        }

    def import_kernel(self, command: wire.ImportKernel) -> wire.Reply:
        sys.path.insert(0, self.order.workdir)
        self.reference = importlib.import_module("reference")
        return wire.Imported(device=self.device.name())

    def make_inputs(self, command: wire.MakeInputs) -> wire.Reply:
        self.made, self.taken = [], []
        if command.params != self.params:
            self.params, self.expected_nbytes = command.params, 0
        offsets = [0]
        for spec in command.inputs:
            with self.default_device():
                self.made.append(self.make_input(command.params, spec))
            offsets.append(payload.end_of(self.made[-1], offsets[-1]))
        sizes = [end - start for start, end in itertools.pairwise(offsets)]
        limit = output_limit(max(sizes), self.expected_nbytes)
        self.make_room(offsets[-1], len(sizes) * limit)
        keys = [spec.key for spec in command.inputs]
        inputs = list(map(functools.partial(payload.write_input, self.input_box), offsets, self.made, keys))
        assert self.boxes is not None
        if (nbytes := sum(len(made.tree) for made in inputs)) > wire.MAX_FRAME_BYTES // 2:
            raise ValueError(
                f"{nbytes} bytes of these inputs are in no tensor, for which there is no room; put them in tensors"
            )
        spare = self.device.spare_bytes()
        return wire.InputsMade(inputs=tuple(inputs), boxes=self.boxes, output_limit=limit, spare_bytes=spare)

    def make_input(self, params: Params, spec: wire.InputSpec) -> Any:
        where = {"rank": self.order.rank, "world_size": self.order.world_size, "seed": spec.seed}
        data = self.reference.generate_input(**params, **where)
        return self.reference.harden(data, spec.seed) if spec.hardened else data

    def default_device(self) -> AbstractContextManager[object]:
        """Where references make tensors. Not during a timed call: it makes every call of torch slower."""
        return nullcontext() if self.device.id is None else torch.device(self.device.id)

    def make_room(self, input_nbytes: int, output_nbytes: int) -> None:
        """Boxes at least that large, each grown by itself."""
        had = self.boxes or wire.Boxes(inputs=NO_BOX, outputs=NO_BOX)
        inputs, outputs = had.inputs, had.outputs
        if input_nbytes > inputs.nbytes:
            self.input_box, inputs = self.new_box("inputs", input_nbytes)
        if output_nbytes > outputs.nbytes:
            self.output_box, outputs = self.new_box("outputs", output_nbytes)
        self.boxes = wire.Boxes(inputs=inputs, outputs=outputs)

    def new_box(self, name: str, nbytes: int) -> tuple[Box, wire.BoxHandle]:
        """One with room for that much, for good: other ranks may still have it open when it is outgrown. By doubling,
        all that a box has outgrown are together less than it."""
        size = 1 << (nbytes - 1).bit_length()
        made = self.device.box(self.fds[name], size, "")
        self.kept_boxes.append(made)
        return made, wire.BoxHandle(nbytes=size, handle=made.handle)

    def open_boxes(self, boxes: wire.Boxes) -> None:
        raise AssertionError("a trusted rank made its boxes itself")

    def take_outputs(self, command: wire.TakeOutputs) -> wire.Reply:
        assert self.boxes is not None
        most = self.boxes.outputs.nbytes  # more than it has room for is a lie, and would be memory of ours
        taken = [
            (output, payload.read_output(self.output_box, output) if output.nbytes <= most else None)
            for output in command.outputs
        ]
        if command.judged:
            self.taken += taken
        return wire.Done()

    def verify(self, command: wire.Verify) -> wire.Reply:
        with self.default_device():
            return self.verified(command)

    def verified(self, command: wire.Verify) -> wire.Verified:
        data = self.made[command.index]
        declared, output = self.taken[command.taken]
        # Both are collective: every rank computes them, whatever its own output looks like.
        expected = self.reference.exact_kernel(data)
        nbytes = expected.value.numel() * expected.dtype.itemsize
        self.expected_nbytes = max(self.expected_nbytes, nbytes)
        strict = correctness.strict_declared(declared.kind, declared.device, self.device.kind, declared.note)
        if strict.passed:
            if output is None:
                strict = Verdict(passed=False, message="its bytes do not fit its dtype and shape")
            else:
                strict = correctness.strict(output, expected)
        gpumode = Verdict(passed=True)
        if command.published:
            checked = output if output is not None else torch.empty(0)
            passed, message = self.reference.check_implementation(data, checked)
            gpumode = Verdict(passed=bool(passed), message="" if passed else str(message))
        return wire.Verified(verdicts=Verdicts(strict=strict, gpumode=gpumode))

    def measure_peaks(self, command: wire.MeasurePeaks) -> wire.Reply:
        device, group_folder = self.device.id or torch.device("cpu"), Path(self.order.workdir).parent
        return peaks.measure(self.order.rank, self.order.world_size, device, group_folder)


class FolderTrusted(Trusted):
    """The same by what a KernelBot problem folder has for it: a check_implementation, and a ref_kernel whose result
    says what a result looks like. Inputs are as published, with other seeds."""

    def __init__(self, order: wire.RankOrder, fds: dict[str, int]) -> None:
        super().__init__(order, fds)
        self.trees: list[tuple[wire.Output, Any, str]] = []  # taken, and why it is no value

    def make_input(self, params: Params, spec: wire.InputSpec) -> Any:
        made = self.reference.generate_input
        order = self.order
        where = {"rank": order.rank, "world_size": order.world_size, "seed": spec.seed}
        given = {name: list(value) if isinstance(value, tuple) else value for name, value in params.items()}
        taken = inspect.signature(made).parameters.values()
        if not any(one.kind is inspect.Parameter.VAR_KEYWORD for one in taken):
            where = {name: value for name, value in where.items() if name in {one.name for one in taken}}
        return made(**given, **where)

    def make_inputs(self, command: wire.MakeInputs) -> wire.Reply:
        self.trees = []
        return super().make_inputs(command)

    def default_device(self) -> AbstractContextManager[object]:
        return nullcontext()  # such a folder names its devices itself

    def take_outputs(self, command: wire.TakeOutputs) -> wire.Reply:
        assert self.boxes is not None
        nbytes = self.boxes.outputs.nbytes
        taken = [(output, *payload.read_tree(self.output_box, output, nbytes)) for output in command.outputs]
        if command.judged:
            self.trees += taken
        return wire.Done()

    def verified(self, command: wire.Verify) -> wire.Verified:
        """Never on `made` itself: kernels and checks of such folders may write to what they get."""
        data = self.made[command.index]
        declared, output, lacking = self.trees[command.taken]
        expected = self.reference.ref_kernel(payload.copied(data))
        self.expected_nbytes = max(self.expected_nbytes, payload.nbytes_of(expected))
        strict = folder_gate.declared(declared, output, lacking, expected)
        # It may be collective, so that no rank may leave it out: what cannot be checked is stood in for.
        checked = folder_gate.checked(
            lambda: self.reference.check_implementation(payload.copied(data), output if strict.passed else expected)
        )
        verdict = checked if strict.passed else strict
        return wire.Verified(verdicts=Verdicts(strict=verdict, gpumode=verdict))


PROGRAMS = {"trusted": Trusted, "baseline": Baseline, "candidate": Candidate}


def run_rank(order: wire.RankOrder, fds: dict[str, int]) -> None:
    """The life of a rank's process."""
    if order.cores:
        os.sched_setaffinity(0, order.cores)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)  # the parent asks for stacks at a deadline
    if order.cuda_is_cpu:
        standin.install()
    program = FolderTrusted if order.role == "trusted" and order.gate == "folder" else PROGRAMS[order.role]
    program(order, fds).serve()


@contextlib.contextmanager
def verbose_extensions() -> Iterator[None]:
    """What is compiled in it by torch.utils.cpp_extension tells how."""
    from torch.utils import cpp_extension  # half a second, which submissions that do not compile are spared

    def told(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            bound = inspect.signature(function).bind(*arguments, **named)
            bound.arguments["verbose"] = True
            return function(*bound.args, **bound.kwargs)

        return call

    before = {name: getattr(cpp_extension, name) for name in ("load", "load_inline")}
    try:
        for name, function in before.items():
            setattr(cpp_extension, name, told(function))
        yield
    finally:
        for name, function in before.items():
            setattr(cpp_extension, name, function)


def custom_kernel(workdir: str) -> Kernel:
    """The kernel of the submission that is staged there, imported for good. Raises whatever importing it raises, and
    AttributeError or TypeError where it defines none."""
    sys.path.insert(0, workdir)
    submission = importlib.import_module("submission")
    kernel = getattr(submission, "custom_kernel", None)
    if kernel is None:
        raise AttributeError("the submission defines no custom_kernel(data); define it at the top level")
    if not callable(kernel):
        raise TypeError(f"custom_kernel is a {type(kernel).__name__}; it must be a function of one argument")
    try:
        inspect.signature(kernel).bind(None)
    except TypeError as error:
        raise TypeError(f"custom_kernel must take one argument, custom_kernel(data): {error}") from None
    except ValueError:
        pass  # a callable without a signature: the first call will tell
    return kernel  # type: ignore[no-any-return]


def output_limit(input_nbytes: int, expected_nbytes: int) -> int:
    """How many bytes an output may have: by the largest input, and by what was expected so far, where anything was."""
    return max(MIN_OUTPUT_BYTES, OUTPUT_FACTOR * min(input_nbytes, expected_nbytes or input_nbytes))


def _cloned(data: Any) -> Any:
    """A copy as GPU MODE's evaluator makes it: tensors in tuples, lists and dicts, but not those in other objects."""
    if isinstance(data, torch.Tensor):
        return data.clone()
    if isinstance(data, tuple):
        return tuple(map(_cloned, data))
    if isinstance(data, list):
        return list(map(_cloned, data))
    if isinstance(data, dict):
        return {key: _cloned(item) for key, item in data.items()}
    return data


def failed(error: BaseException) -> wire.Failed:
    """The exception as text, without the frames of the harness and of the import system."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = (os.path.dirname(__file__), os.path.dirname(importlib.__file__), "<frozen importlib")
    theirs = [frame for frame in frames if not frame.filename.startswith(ours)]
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(theirs)] if theirs else []
    lines += traceback.format_exception_only(error)
    message = traceback.format_exception_only(error)[-1].strip()
    if isinstance(error, SystemExit):
        message = f"called sys.exit({error.code!r})"
    return wire.Failed(message=message[-1000:], traceback="".join(lines)[-wire.MAX_TEXT_CHARS :])
