"""Which condition of an evaluation makes a kernel slower there than in a bench: one kernel under each by itself, and
under all of them together.

    python3 bench/conditions.py                              swiglu forward, both official shapes
    python3 bench/conditions.py swiglu --shapes 1 3          benchmarks 1 and 3 of its suite: the backward pass
    python3 bench/conditions.py cross_entropy --shapes 0
    python3 bench/conditions.py --only barrier new           the conditions whose names have one of these words
    python3 bench/conditions.py --data FILE                  ... and into a file for docs/measurements/

A bench's call here is one at a time: flushed caches, then a millisecond in which the device sleeps and the host submits
the call, events around it. That is the clock of bench/ops.py without its pauses; all conditions but "back to back"
change it in one point. The input is hardened. A cell has the median of the calls and, behind it, the shortest and the
longest, us. The harness's own parts are used where it has them: its device barrier, and how a rank gives memory back,
waits until that is felt no more, and takes it again. The other process does not wait.

An evaluation's ranks copy each input out of the memory that they share with trusted ranks into memory of their own,
so a kernel never reads the shared memory itself.
"""

import argparse
import importlib
import multiprocessing
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "bench")]

import torch
from figures import Figures, add_data_argument, need_gpus
from kernel_ranks import imported

from harness.core.checkout import Checkout
from harness.core.records import Case
from harness.problems.shape_file import find
from harness.ranks.barrier import DEVICE_HELD, Barrier, make_barrier
from harness.ranks.device import GpuDevice
from harness.ranks.group import LEAD_S
from harness.tuning.clock import AHEAD_CYCLES, restorer, tensors_of

WARM, CALLS = 2, 9
PAUSE_S = 0.005  # about what passes in an evaluation between one process's turn and the next one's call
LONG_PAUSE_S = 0.1  # and while inputs are made
HELD_S = 10.0  # after which the barrier opens, whatever the device does
NEIGHBOUR_BYTES, GIB = 1 << 30, 1 << 30
Kernel = Callable[[Any], Any]


@dataclass(frozen=True, kw_only=True)
class Condition:
    """How a call differs from the bench's.

    wait: what the device does while the host submits the call: it sleeps, it is held by the harness's device barrier,
    or nothing ("none": calls follow each other).
    lead_s: for so long the device barrier stays closed once the device waits at it.
    pause_s: for so long the device has nothing to do before it waits.
    new: what lies in memory that was taken from the driver just before: nothing, the output, or the inputs too.
    neighbour: what another process on the same GPU does before each call: it has a context, it works, or it gives so
    many GiB (`freed_gib`) back to the driver, without the wait that ranks have behind that.
    reset: lines that the call before asked the L2 cache to keep (`evict_last`) are given up before the flush.
    clean: the flush leaves no lines in the caches that are still to be written to memory.
    plain: the input is not hardened.
    alternate: two inputs take turns, as in bench/ops.py.
    """

    name: str
    wait: Literal["sleep", "barrier", "none"] = "sleep"
    lead_s: float = LEAD_S
    pause_s: float = 0.0
    new: Literal["nothing", "output", "all"] = "nothing"
    neighbour: Literal["", "rests", "works", "frees"] = ""
    freed_gib: int = 0
    reset: bool = True
    clean: bool = False
    plain: bool = False
    alternate: bool = False


ALL = Condition(name="all of an evaluation", wait="barrier", pause_s=PAUSE_S, new="all", neighbour="frees", freed_gib=4)
CONDITIONS = [
    Condition(name="bench"),
    Condition(name="two inputs in turn", alternate=True),
    Condition(name="input not hardened", plain=True),
    Condition(name="back to back", wait="none"),
    Condition(name="kept lines not reset", reset=False),
    Condition(name="caches flushed and clean", clean=True),
    Condition(name="long pause before the call", pause_s=LONG_PAUSE_S),
    Condition(name="device barrier", wait="barrier"),
    Condition(name="new memory for the output", new="output"),
    Condition(name="new memory for input and output", new="all"),
    Condition(name="device barrier, long pause", wait="barrier", pause_s=LONG_PAUSE_S),
    Condition(name="device barrier, new memory", wait="barrier", new="all"),
    # From here on the other process has its context, so these come last.
    Condition(name="another process rests", neighbour="rests"),
    Condition(name="another process works between calls", neighbour="works"),
    # Drivers may clear what a process gave back while others work.
    Condition(name="another process frees 2 GiB", neighbour="frees", freed_gib=2),
    Condition(name="another process frees 16 GiB", neighbour="frees", freed_gib=16),
    *(
        Condition(name=f"another process frees {gib} GiB, {ms} ms", neighbour="frees", freed_gib=gib, pause_s=ms / 1000)
        for gib, ms in ((2, 10), (2, 20), (16, 20), (16, 50), (16, 100), (28, 100))
    ),
    # Processes take turns on a GPU; a slice of time could end in the call or before it.
    Condition(name="device barrier, another process rests", wait="barrier", neighbour="rests"),
    Condition(name="... held for 0.3 ms", wait="barrier", neighbour="rests", lead_s=0.3e-3),
    Condition(name="... held for 10 ms", wait="barrier", neighbour="rests", lead_s=10e-3),
    ALL,
    replace(ALL, name="all without the device barrier", wait="sleep"),
    replace(ALL, name="all without the pause", pause_s=0.0),
    replace(ALL, name="all without new memory", new="nothing"),
    replace(ALL, name="all without what another process frees", neighbour="works"),
    replace(ALL, name="all with a long pause", pause_s=LONG_PAUSE_S),
    Condition(name="bench again"),
]


# ---- another process on the same GPU ---------------------------------------------------------------------------------


def work_when_told(told: Connection) -> None:
    """Whenever it is told to, works for some milliseconds, or takes as many GiB as it is told and gives them back; then
    answers. Ends with the other end."""
    memory = torch.zeros(NEIGHBOUR_BYTES // 4, dtype=torch.int32, device="cuda")
    torch.cuda.synchronize()
    told.send(True)
    while True:
        try:
            gib = told.recv()
        except EOFError:
            return
        if gib:
            torch.zeros(gib * GIB, dtype=torch.int8, device="cuda")
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        else:
            for _ in range(8):
                memory.add_(1)
            torch.cuda.synchronize()
        told.send(True)


class Neighbour:
    """The other process; started when it is first needed."""

    def __init__(self) -> None:
        self.process: Any = None

    def start(self) -> None:
        if self.process is None:
            context = multiprocessing.get_context("spawn")
            self.end, other = context.Pipe()
            self.process = context.Process(target=work_when_told, args=(other,), daemon=True)
            self.process.start()
            other.close()
            self.end.recv()

    def work(self, freed_gib: int) -> None:
        self.end.send(freed_gib)
        self.end.recv()

    def close(self) -> None:
        if self.process is not None:
            self.end.close()
            self.process.join(timeout=10)


# ---- one call --------------------------------------------------------------------------------------------------------


class Held:
    """The harness's device as one rank of one has it, with a thread in the parent's place that opens the barrier."""

    def __init__(self) -> None:
        self.barrier = Barrier(make_barrier(1), 1, spin=True)
        self.gpu = GpuDevice(0, 0, 1, self.barrier)
        self.gpu.prepare()
        self.epoch = 0

    def time_us(self, call: Callable[[], Any], lead_s: float) -> float:
        self.epoch += 1
        opener = threading.Thread(target=self.open, args=(self.epoch, lead_s), daemon=True)
        opener.start()
        _, time_us = self.gpu.device_us(call, lambda result: None, self.epoch)
        opener.join()
        return time_us

    def open(self, epoch: int, lead_s: float) -> None:
        """When the device has waited for so long."""
        word, until = self.barrier.marks[0] + DEVICE_HELD, time.monotonic() + HELD_S
        while self.barrier.words[word] < epoch and time.monotonic() < until:
            time.sleep(1e-4)
        time.sleep(lead_s)
        self.barrier.release(epoch)


@dataclass(frozen=True, kw_only=True)
class Bench:
    """One case's kernel and its inputs, which calls get copies of."""

    kernel: Kernel
    hardened: Any
    plain: Any
    in_place: bool
    held: Held
    neighbour: Neighbour

    def times_us(self, condition: Condition) -> list[float]:
        """Of CALLS calls under that condition."""
        if condition.neighbour:
            self.neighbour.start()
        kept = [self.plain] if condition.plain else [self.hardened]
        kept += [self.plain] * condition.alternate
        turns = [copied(data) for data in kept]
        # Where inputs are new, nothing may keep the old ones.
        restorers = [restorer(data, self.in_place and condition.new != "all") for data in turns]
        if condition.wait == "none":
            return self.back_to_back(turns[0], restorers[0])
        times = []
        for number in range(WARM + CALLS):
            index = number % len(turns)
            if condition.new == "all":
                turns[index] = None  # first, so that it is given back
            if condition.new != "nothing":
                torch.cuda.synchronize()
                self.held.gpu.release()
            if condition.neighbour in ("works", "frees"):  # this process's turn begins when the other's ends
                torch.cuda.synchronize()
                self.neighbour.work(condition.freed_gib)
            if condition.new != "nothing":
                self.held.gpu.regain()
            if condition.new == "all":
                turns[index] = copied(kept[index])
            restorers[index]()
            times.append(self.time_us(condition, turns[index]))
        return times[WARM:]

    def back_to_back(self, data: Any, restore: Callable[[], None]) -> list[float]:
        """Calls that the host submits ahead of the device, as in a training step."""
        gpu = self.held.gpu
        events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(WARM + CALLS)]
        for start, end in events:
            restore()
            gpu.flush_caches()
            start.record()
            self.kernel(data)
            end.record()
        gpu.synchronize()
        return [start.elapsed_time(end) * 1000 for start, end in events[WARM:]]

    def time_us(self, condition: Condition, data: Any) -> float:
        gpu = self.held.gpu
        if condition.reset:
            gpu.flush_caches()
        else:
            gpu.scratch.zero_()
        if condition.clean:
            gpu.scratch.sum()  # twice the cache is read: what was to be written is
        gpu.synchronize()
        time.sleep(condition.pause_s)
        if condition.wait == "barrier":
            return self.held.time_us(lambda: self.kernel(data), condition.lead_s)
        torch.cuda._sleep(AHEAD_CYCLES)
        gpu.start.record()
        self.kernel(data)
        gpu.end.record()
        gpu.synchronize()
        return float(gpu.start.elapsed_time(gpu.end)) * 1000


def copied(data: Any) -> Any:
    """The same tree with other memory, and the same gaps between rows."""
    if isinstance(data, torch.Tensor):
        return torch.empty_strided(data.shape, data.stride(), dtype=data.dtype, device=data.device).copy_(data)
    return type(data)(map(copied, data)) if isinstance(data, tuple | list) else data


# ---- the table -------------------------------------------------------------------------------------------------------


@contextmanager
def bench_of(problem: str, case: Case, kernel: Kernel, held: Held, neighbour: Neighbour) -> Iterator[Bench]:
    reference = importlib.import_module("reference")
    with torch.device("cuda"):
        plain = reference.generate_input(**case.params, rank=0, world_size=1, seed=case.seed)
        hardened = reference.harden(plain, case.seed)
    in_place = find(problem, Checkout.here()).in_place
    kernel(copied(hardened))  # compiles
    assert {tensor.device.type for tensor in tensors_of(hardened)} == {"cuda"}
    yield Bench(kernel=kernel, hardened=hardened, plain=plain, in_place=in_place, held=held, neighbour=neighbour)
    torch.cuda.empty_cache()


def measured(problem: str, cases: Sequence[Case], conditions: Sequence[Condition]) -> list[list[str]]:
    """A row a condition, with a cell for each case. Cases take turns, so that the other process comes last for both."""
    held, neighbour = Held(), Neighbour()
    rows = []
    try:
        with imported(problem) as submission:
            for condition in conditions:
                row = [condition.name]
                for case in cases:
                    try:
                        with bench_of(problem, case, submission.custom_kernel, held, neighbour) as bench:
                            times = bench.times_us(condition)
                        row.append(f"{statistics.median(times):.1f} ({min(times):.1f} to {max(times):.1f})")
                    except Exception as error:  # under one condition must not cost the other figures
                        row.append(f"{type(error).__name__}: {str(error)[:60]}")
                print(*row, sep="  ", file=sys.stderr, flush=True)
                rows.append(row)
    finally:
        neighbour.close()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problem", nargs="?", default="swiglu", help="of one GPU (default: %(default)s)")
    parser.add_argument(
        "--shapes", type=int, nargs="+", metavar="N", help="benchmarks of the official suite, from 0 (default: forward)"
    )
    parser.add_argument("--only", nargs="+", default=[""], metavar="WORD", help="conditions whose names have one")
    add_data_argument(parser)
    options = parser.parse_args()
    need_gpus(parser, 1, torch.cuda.device_count())
    cases = find(options.problem, Checkout.here()).suites["official"].benchmarks
    forward = [index for index, case in enumerate(cases) if not case.params.get("backward")]
    chosen = [cases[index] for index in options.shapes or forward]
    conditions = [one for one in CONDITIONS if any(word in one.name for word in options.only)]
    figures = Figures(
        "What of an evaluation makes kernels slower than in a bench", f"1x {torch.cuda.get_device_name(0)}"
    )
    rows = measured(options.problem, chosen, conditions)
    labels = [f"{options.problem} {case.label.replace('  ', ' ')}, us" for case in chosen]
    figures.table(("condition", *labels), rows)
    figures.write(options.data)


if __name__ == "__main__":
    main()
