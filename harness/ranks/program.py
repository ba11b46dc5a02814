"""A rank: one process that holds one kernel and obeys the parent's commands, one at a time.

All groups use the same loop, clocks and input path, so that reference and submission are measured alike; only the
program differs. A trusted rank makes inputs and judges outputs. A baseline rank runs the reference and nothing else. A
candidate rank runs the submission and nothing else.
"""

import contextlib
import errno
import functools
import gc
import importlib
import inspect
import os
import re
import socket
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from harness.core.words import SHOWN_CHARS, both_ends
from harness.problems.problem import ADAPTER
from harness.ranks import channel, payload, wire
from harness.ranks.barrier import Barrier
from harness.ranks.device import make_device
from harness.ranks.exchange import Exchange, Masked
from harness.ranks.stopwatch import Keep, Kernel, Stopwatch, cloned

HOST = "127.0.0.1"
SPARE_OUTPUT_BYTES = 16 << 20, 256 << 20  # at least and at most, by which an output may be larger than the right one
MAX_MESSAGE_CHARS = 1000  # of an exception's last line, which a compiler may fill with its log
# As torch and CUDA say it, and problems that refuse what does not fit.
MEMORY = re.compile("out of memory|cannot allocate|can't allocate|too large for this machine", re.IGNORECASE)


class Program:
    """The commands that every kind of rank obeys: one method a command, which returns the reply; None is Done."""

    judged = True  # whether its outputs go where trusted ranks look for them

    def __init__(self, order: wire.RankOrder, fds: dict[str, int]) -> None:
        self.order, self.fds = order, fds
        self.channel = channel.Channel(socket.socket(fileno=fds["channel"]))
        self.barrier = Barrier(fds["barrier"], order.world_size, order.spin, fds.get("bell"))
        self.device = make_device(order, self.barrier)
        self.stopwatch = Stopwatch(self.device, self.barrier, order.world_size)
        self.exchange = Exchange(self.channel, self.device, self.judged)
        self.kernel: Kernel = lambda data: None
        self.loaded: list[Any] = []
        self.returned: Any = None  # by the last gated call
        self.masked: list[Masked] = []  # of each of these, what is still to be unmasked
        self.settled = order.cores  # where calls run now
        self.is_watched, self.call_bytes = False, 0  # whether the next call's memory is wanted; the last watched one's
        self.commands: dict[type | wire.What, Callable[[Any], wire.Reply | None]] = {
            wire.ImportKernel: self.import_kernel,
            "compile": self.compile_kernel,
            wire.OpenGroup: self.open_group,
            "close_group": self.close_group,
            wire.LoadInputs: self.load_inputs,
            wire.Yield: self.yield_memory,
            "regain": self.regain_memory,
            "watch_memory": self.watch_memory,
            "tell_memory": self.tell_memory,
            wire.Call: self.call,
            wire.StepCalls: self.step_calls,
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
                obey = self.commands[command.what if isinstance(command, wire.Do) else type(command)]
                reply = obey(command) or wire.Done()
            except BaseException as error:  # the one broad catch: a submission may raise anything, SystemExit too
                reply = failed(error, self.order.workdir)
            self.exchange.send_files()
            self.channel.send(reply)

    def import_kernel(self, command: wire.ImportKernel) -> wire.Reply:
        raise NotImplementedError

    def compile_kernel(self, command: wire.Do) -> wire.Reply:
        """Rank 0 imports the kernel and prints what its compilers do. The other ranks find the compiled files later."""
        if self.order.rank == 0:
            with verbose_extensions():
                self.import_kernel(wire.ImportKernel())
        return wire.Imported(device="")

    def open_group(self, command: wire.OpenGroup) -> None:
        order = self.order
        set_meeting(order.rank, order.world_size, command.free_port)
        meeting = f"file://{Path(order.workdir).parent}/meet-{command.number}"
        if order.network is not None:
            set_nodes(order.local_rank, order.local_size, order.network)
            meeting = f"tcp://{order.network.master}:{command.free_port}"
        dist.init_process_group(
            backend=self.device.backend,
            init_method=meeting,
            rank=order.rank,
            world_size=order.world_size,
            device_id=self.device.id,
        )

    def close_group(self, command: wire.Do) -> None:
        self.loaded = self.masked = []
        if dist.is_initialized():
            dist.destroy_process_group()

    def load_inputs(self, command: wire.LoadInputs) -> None:
        exchange = self.exchange
        if command.buffers is not None and exchange.buffers != command.buffers:
            exchange.open_buffers(command.buffers)
        self.loaded = self.masked = []  # first, so that two sets never need memory at once
        self.masked = [[] for _ in command.inputs]
        read = exchange.map_input if command.stepped else exchange.read_input
        self.loaded = list(map(read, command.inputs, self.masked))
        exchange.output_limit = command.output_limit

    def yield_memory(self, command: wire.Yield) -> None:
        self.loaded = self.masked = []
        if command.case:
            self.returned = None
            self.exchange.close_buffers()
        self.device.release(everything=command.case)

    def regain_memory(self, command: wire.Do) -> None:
        self.device.regain()

    def watch_memory(self, command: wire.Do) -> None:
        self.device.watch_memory()
        self.is_watched = True

    def tell_memory(self, command: wire.Do) -> wire.Reply:
        return wire.MemoryTold(peak_bytes=self.device.peak_bytes(), call_bytes=self.call_bytes)

    def call(self, command: wire.Call) -> wire.Reply:
        samples = []
        self.exchange.output_offset = 0  # what earlier calls returned has been taken
        self.settle(command)
        gc.disable()  # a collection is the harness's garbage, not the kernel's time
        for epoch, index in enumerate(command.indices, start=command.epoch):
            empty = index < 0
            kernel: Kernel = (lambda data: None) if empty else self.kernel
            if not empty and not command.gated and self.masked[index]:
                unmask(self.masked[index], self.barrier.key(self.order.rank, epoch))
            self.device.flush_caches()
            self.device.synchronize()
            if command.gated and not empty:
                self.exchange.expect_gated()
            if command.idle:  # the copy is as warm as what a kernel has just written
                kernel = partial(_whatever, cloned(self.returned))
            if epoch == command.epoch:
                self.channel.send(wire.AtBarrier(epoch=epoch))  # the parent opens
            if command.gated:
                self.take_in(command)
            if command.gated or epoch > command.epoch:
                self.barrier.open(self.order.rank, epoch)  # the last to come opens
            data = None if empty else self.loaded[index]
            # Kept at once: what is handed over is what was there when the clock stopped. But where the parent sees the
            # whole call, only when all ranks have finished, so that no rank hands over while another still works.
            keep: Keep = (lambda result: None) if empty else self.exchange.hand_over
            clock = self.stopwatch.clocks[command.clock]
            at_once: Keep = (lambda result: result) if command.gated else keep
            start_ns, end_ns, device_us, output = clock(kernel, data, epoch, at_once)
            self.barrier.finish(self.order.rank, epoch)
            if self.is_watched:
                self.is_watched, self.call_bytes = False, self.device.watched_bytes()
            if command.gated:
                self.returned = output
                output = keep(output)
            samples.append(wire.CallSample(start_ns=start_ns, end_ns=end_ns, device_us=device_us, output=output))
        gc.enable()
        return wire.Called(samples=tuple(samples), excess_bytes=self.device.excess_bytes())

    def step_calls(self, command: wire.StepCalls) -> wire.Reply:
        """Makes stepped calls: the device waits for the parent's words, and the host queues ahead of it if it may."""
        gc.disable()
        for at, (index, work) in enumerate(zip(command.indices, command.work, strict=True)):
            epoch = command.epoch + wire.STEP_EPOCHS * at
            self.exchange.output_offset = 0
            call = partial(self.step_call, index, work, 0 if command.ahead else epoch)
            result, output, host_us = self.device.stepped(call, epoch)
            self.channel.send(wire.Stepped(epoch=epoch, output=output, host_us=host_us))
            self.barrier.wait(epoch + 1)  # the result has to stay until then
            if work == "call":
                self.returned = result
            del result
        gc.enable()
        return wire.Called(samples=(), excess_bytes=self.device.excess_bytes())

    def step_call(self, index: int, work: wire.Work, epoch: int) -> tuple[Any, wire.Output, float]:
        """Does the work of one step and returns its result, where it lies, and the host's time to queue it (us). Waits
        first until the parent tells this rank the epoch, unless that is 0."""
        kernels: dict[wire.Work, Kernel] = {
            "call": self.kernel,
            "nothing": partial(_whatever, self.returned),
            "copy": lambda data: cloned(self.returned),
        }
        data = self.loaded[index] if work == "call" else None
        if epoch:
            self.barrier.key(self.order.rank, epoch)
        start_ns = time.monotonic_ns()
        result = kernels[work](data)
        host_us = (time.monotonic_ns() - start_ns) / 1000
        return result, self.exchange.leave(result), host_us

    def take_in(self, command: wire.Call) -> None:
        """Waits at the gate, and reads the input that comes there, if one does."""
        self.channel.receive_files()
        if self.channel.files:
            self.loaded = []  # first, so that two never need memory at once
            self.loaded = [self.exchange.read_input(None)]
            self.exchange.output_limit = command.output_limit

    def settle(self, command: wire.Call) -> None:
        """Runs a burst on one core of this rank's, the same for all groups, and any other call on any of its cores.

        On a shared host some cores are twice as fast as others while their siblings rest, so bursts would differ by
        where they happen to run (docs/measurements.md). This holds for bursts only: a process's first calls start
        threads, and a thread keeps for life the cores it was born on.
        """
        cores = self.order.cores
        wanted = cores[-1:] if len(command.indices) > 1 and self.device.kind != "cpu" else cores
        if wanted != self.settled:
            self.settled = wanted
            os.sched_setaffinity(0, wanted)


@contextlib.contextmanager
def verbose_extensions() -> Iterator[None]:
    """Inside it, torch.utils.cpp_extension prints what its compilers do, for the run's compile log."""
    from torch.utils import cpp_extension  # half a second, which submissions that do not compile are spared

    def verbose(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            bound = inspect.signature(function).bind(*arguments, **named)
            bound.arguments["verbose"] = True
            return function(*bound.args, **bound.kwargs)

        return call

    before = {name: getattr(cpp_extension, name) for name in ("load", "load_inline")}
    try:
        for name, function in before.items():
            setattr(cpp_extension, name, verbose(function))
        yield
    finally:
        for name, function in before.items():
            setattr(cpp_extension, name, function)


def unmask(masked: Masked, key: int) -> None:
    """Gives the tensors their values; none is left in the list."""
    while masked:
        tensor, place = masked.pop()
        payload.mask(tensor, key, place)


def set_meeting(rank: int, world_size: int, port: int) -> None:
    """Sets the variables for a submission that opens a group of its own with env://. Ours meet in a file, so that no
    port is raced for and no name server is asked (TCPStore looks every client's address up)."""
    os.environ.update(
        MASTER_ADDR=HOST,
        MASTER_PORT=str(port),
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(world_size),
        LOCAL_WORLD_SIZE=str(world_size),
        GLOO_SOCKET_IFNAME="lo",
    )


def set_nodes(local_rank: int, local_size: int, network: wire.Network) -> None:
    """Sets the same variables as `set_meeting` for ranks on several nodes, which meet at rank 0's address."""
    os.environ.update(
        MASTER_ADDR=network.master,
        LOCAL_RANK=str(local_rank),
        LOCAL_WORLD_SIZE=str(local_size),
        GLOO_SOCKET_IFNAME=network.interface,
        NCCL_SOCKET_IFNAME=network.interface,
    )


def _whatever(result: Any, data: Any) -> Any:
    return result


def output_limit(expected_nbytes: int) -> int:
    """How many bytes an output may have where a right one is expected to have so many: a wrong one is to be judged by
    its values, and a number of tokens, say, is drawn anew for every input."""
    return expected_nbytes + min(max(expected_nbytes, SPARE_OUTPUT_BYTES[0]), SPARE_OUTPUT_BYTES[1])


def out_of_memory(said: str) -> str:
    """torch's message about missing device memory in one line: the bytes asked for, and the bytes there are."""
    asked = re.search(r"[Tt]ried to allocate ([0-9.]+ \w+)", said)
    free, total = torch.cuda.mem_get_info() if torch.cuda.is_available() else (0, 0)
    held = torch.cuda.memory_reserved() if total else 0
    return (
        f"out of the device's memory: {asked[1] if asked else 'more'} {'were' if asked else 'was'} asked for, with "
        f"{free / 2**30:.1f} of {total / 2**30:.1f} GiB free and {held / 2**30:.1f} GiB in this rank's hands"
    )


def failed(error: BaseException, folder: str) -> wire.Failed:
    """The exception as text, with those of the submission's that it came of. `folder` is where that is staged."""
    told = traceback.TracebackException.from_exception(error)
    one: traceback.TracebackException | None = told
    while one is not None:
        cause = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
        if cause is not None and not own_frames(cause.stack, folder):  # a library's own matter
            cause = one.__cause__ = one.__context__ = None
        one.stack = theirs(one.stack, folder)
        one = cause
    message = traceback.format_exception_only(error)[-1].strip().replace(f"{folder}/", "")  # alike on all ranks
    if isinstance(error, torch.OutOfMemoryError):
        message = out_of_memory(str(error))
    if isinstance(error, SystemExit):
        message = f"called sys.exit({error.code!r})"
    return wire.Failed(
        message=both_ends(message, MAX_MESSAGE_CHARS),
        traceback=both_ends("".join(told.format()), SHOWN_CHARS),
        reason=reason_of(error),
    )


def own_frames(stack: traceback.StackSummary, folder: str) -> list[int]:
    """The numbers of the frames in that folder, but for those of a problem's adapter, which calls what lies there."""
    glue = f"{folder}/{ADAPTER}"
    return [index for index, one in enumerate(stack) if one.filename.startswith(folder) and one.filename != glue]


def theirs(stack: traceback.StackSummary, folder: str) -> Any:
    """The frames from the first one in that folder on, without the harness's and the import system's; where none is
    there, as when the harness refuses what a file defines, all but those of a rank's program. None where none is left,
    which TracebackException.format takes."""
    own = own_frames(stack, folder)
    ranks = Path(__file__).parent
    ours = (f"{ranks.parent if own else ranks}/", os.path.dirname(importlib.__file__), "<frozen importlib")
    left = [frame for frame in stack[own[0] if own else 0 :] if not frame.filename.startswith(ours)]
    return traceback.StackSummary.from_list(left) if left else None


def reason_of(error: BaseException) -> wire.Reason:
    """The cause of the exception in a word, as wire.Failed has it."""
    said = ""
    with contextlib.suppress(Exception):  # its __str__ is the submission's
        said = str(error)
    if isinstance(error, torch.OutOfMemoryError):
        return "device_memory"
    if isinstance(error, OSError) and error.errno == errno.ETOOMANYREFS:
        return "files"
    if isinstance(error, MemoryError) or MEMORY.search(said):
        return "memory"
    if said.endswith(wire.NO_TASKS):
        return "tasks"
    if said.startswith(wire.WEAK):
        return "weak"
    return "module" if isinstance(error, ModuleNotFoundError) else ""
