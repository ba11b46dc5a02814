"""The devices that ranks run on, behind one small interface.

Knows torch and the device; knows nothing of problems, commands or verdicts.

cpu   gloo, one or more ranks a core
cuda  NVIDIA GPUs, NCCL, one rank a GPU
rocm  AMD GPUs through the same torch API ("cuda" is what torch calls them, "nccl" is RCCL); told apart by
      torch.version.hip. What differs: the driver calls (harness/ranks/driver.py) and the cache to flush. Not yet run on
      an AMD machine.
"""

import contextlib
import resource
import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from harness.ranks import driver, shared_buffer, wire
from harness.ranks.barrier import Barrier
from harness.ranks.steps import CALL, COME

T = TypeVar("T")
HOLDING_THREADS = 1024  # of a program of device_barrier: two fill a multiprocessor
# Drivers clear what they get back, beside whatever else the device does. On an H200 a call right behind 2 or 16 GiB
# that any process gave back took 12 % longer; 20 and 100 ms later it took no longer (bench/conditions.py).
CLEARING_S, CLEARED_BYTES_PER_S = 0.005, 150e9
FELT_BYTES = 64 << 20  # less is cleared before anybody feels it
KEPT_SHARE = 8  # a rank keeps at most an eighth of its device for later calls
INFINITY_CACHE_BYTES = 256 << 20  # MI300X, above its L2s, which is all that torch tells of; AMD CDNA 3 white paper


class Device:
    """One rank's device; what a host does where nothing else is said. `kind` is torch's name for its type, `backend`
    the backend of torch.distributed that connects such devices."""

    kind: str
    backend: str
    id: torch.device | None = None  # for init_process_group's device_id
    has_files: bool  # whether inputs and outputs travel in files of their own, and not in shared buffers

    def prepare(self) -> None:
        """Makes this the process's device. Called once, before anything is allocated on it."""

    def save_memory(self) -> None:
        """Has the allocator map memory as it is needed, so that little is lost between blocks of different sizes. It
        costs calls time, so not where they are timed. Called before anything is allocated."""

    def name(self) -> str:
        """The device's model, by which rooflines are looked up; empty if the device is the host itself."""
        return ""

    def synchronize(self) -> None:
        """Returns once all work that was submitted to the device is done: torch's CPU kernels are when they return."""

    def flush_caches(self) -> None:
        """Evicts what earlier calls left in a GPU's caches. Those of CPU cores are left as they are: a core's own could
        be evicted by the rank that runs there alone, and a submission that left it out would have the faster calls."""
        self.forget_caches()
        self.evict()

    def await_clearing(self) -> None:
        """Waits until the driver must have cleared what any process has given back since the last time."""

    def forget_caches(self) -> None:
        """The part of `flush_caches` that a host does: no line of a GPU's caches is to be kept any more."""

    def evict(self) -> None:
        """The part of `flush_caches` that is queued on the device."""

    def spare_bytes(self) -> int:
        """How much of the device's memory is free. The host's is checked before ranks start, and buffers take none
        before they are written to."""
        return sys.maxsize

    def kept_bytes(self) -> int:
        """How much memory the allocator holds for later calls. The C library's shares the host's well enough."""
        return 0

    def excess_bytes(self) -> int:
        """The same where it is more than a rank may keep while others are on turn, else 0."""
        return 0

    def release(self, everything: bool = False, wait: bool = True) -> None:
        """Gives back what the allocator holds and nobody uses, where it is much or `everything` is to go, which is not
        regained. Returns when no call feels it any more, nor what was released before; without `wait`, which is for a
        process that will release more before the next timed call, at once."""

    def regain(self) -> None:
        """Takes as much again, so that no timed call has to ask the device for memory. After a release, or nothing
        happens."""

    def peak_bytes(self) -> int:
        """The most memory that this process has had: of the device, or resident in the host's."""
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10

    def watch_memory(self) -> None:
        """Forgets how much memory was in use so far."""

    def watched_bytes(self) -> int:
        """The most device memory that was in use since, without what is the harness's; 0 where that is not known: what
        is resident on a host counts pages of libraries and of freed memory, and is no measure of a call."""
        return 0

    def buffer(self, nbytes: int, handle: str) -> shared_buffer.SharedBuffer:
        """A buffer through which tensors pass between processes: `nbytes` of new device memory, or the memory that
        `handle` names."""
        raise NotImplementedError("ranks on CPU cores share sealed files")

    def stepped(self, call: Callable[[], T], epoch: int) -> T:
        """Queues a call behind the first step, and behind the call the word that the second step is done. Returns what
        the call returns, which may not be computed yet."""
        raise NotImplementedError("a CPU has no queue")

    def between(
        self, step: int, work: Callable[[], None], epoch: int, is_alone: bool = False, switched: int | None = None
    ) -> None:
        """Queues work between the words of a step. `is_alone`: no other process is to have anything to run until then,
        so that a kernel may wait for the first word, which sees it sooner. `switched`: a step that is told when the
        device has switched to this process and is about to do the work."""
        raise NotImplementedError("a CPU has no queue")

    def device_us(self, call: Callable[[], Any], keep: Callable[[Any], T], epoch: int) -> tuple[T, float]:
        """Waits for the barrier's epoch, then calls and times the call by the device's own clock. Returns what `keep`
        makes of the result, which runs behind the call in its stream, and the call's microseconds."""
        raise NotImplementedError("a CPU has no clock but the host's")


class Cpu(Device):
    """CPU cores, connected by gloo."""

    kind, backend, has_files = "cpu", "gloo", True

    def __init__(self, threads: int) -> None:
        self.threads = threads

    def prepare(self) -> None:
        torch.set_num_threads(self.threads)


def flush_scratch(properties: Any, device: torch.device | str | None) -> torch.Tensor:
    """Memory of that GPU, twice as large as its last cache: writing to it evicts all else."""
    cache_bytes = max(properties.L2_cache_size, INFINITY_CACHE_BYTES if driver.HIP else 0)
    return torch.empty(2 * cache_bytes // 8, dtype=torch.int64, device=device)


def holding_options(warp_size: int, hip: bool) -> dict[str, int]:
    """The compile options of device_barrier with which two of its programs fit a multiprocessor."""
    return {"num_warps": HOLDING_THREADS // warp_size} | ({} if hip else {"maxnreg": 32})


class GpuDevice(Device):
    """One GPU, CUDA or ROCm."""

    kind, backend, has_files = "cuda", "nccl", False

    def __init__(
        self, rank: int, local_rank: int, world_size: int, barrier: Barrier, kept_bytes: int = wire.KEPT_BYTES
    ) -> None:
        """`kept_bytes`: what it may keep when it releases memory, at most KEPT_SHARE of the device."""
        self.id = torch.device("cuda", local_rank)
        self.most_kept_bytes = kept_bytes
        self.rank, self.world_size = rank, world_size
        self.barrier = barrier
        self.barrier_pointer = 0
        self.gate: driver.Gate | None = None
        self.scratch = torch.empty(0)

    def prepare(self) -> None:
        torch.cuda.set_device(self.id)
        properties = torch.cuda.get_device_properties(self.id)
        self.scratch = flush_scratch(properties, self.id)
        share = properties.total_memory // KEPT_SHARE
        self.most_kept_bytes = max(wire.KEPT_BYTES, min(self.most_kept_bytes, share))
        self.own_bytes, self.most_bytes = torch.cuda.memory_allocated(self.id), 0
        self.barrier_pointer = driver.register_host(*self.barrier.memory())
        # As many programs of as many threads as the device has room for at once.
        self.programs = properties.multi_processor_count * (
            properties.max_threads_per_multi_processor // HOLDING_THREADS
        )
        self.options = holding_options(properties.warp_size, driver.HIP)
        self.released = 0  # bytes, to be regained
        self.cleared_s = 0.0  # monotonic, when what was released is cleared
        self.free_bytes = torch.cuda.mem_get_info(self.id)[0]  # of the device, when last looked at
        self.ended = torch.zeros(1, dtype=torch.int32, device=self.id)
        self.ended.fill_(0)  # whose kernel is loaded now, since loading one waits for the device
        with contextlib.suppress(driver.DriverError):  # AMD, or older than Volta: streams wait by themselves there
            self.gate = driver.Gate()
        self.start, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def save_memory(self) -> None:
        if not driver.HIP:  # not tried there
            torch.cuda.memory._set_allocator_settings("expandable_segments:True")

    def name(self) -> str:
        return torch.cuda.get_device_name(self.id)

    def synchronize(self) -> None:
        driver.synchronize()

    def await_clearing(self) -> None:
        before, self.free_bytes = self.free_bytes, torch.cuda.mem_get_info(self.id)[0]
        if (freed := self.free_bytes - before) > FELT_BYTES:
            time.sleep(CLEARING_S + freed / CLEARED_BYTES_PER_S)

    def forget_caches(self) -> None:
        driver.reset_persisting_l2()

    def evict(self) -> None:
        self.scratch.zero_()

    def spare_bytes(self) -> int:
        # What this process's allocator holds and does not use is free to it, too.
        return torch.cuda.mem_get_info(self.id)[0] + self.kept_bytes() - torch.cuda.memory_allocated(self.id)

    def kept_bytes(self) -> int:
        return torch.cuda.memory_reserved(self.id)

    def excess_bytes(self) -> int:
        return held if (held := self.kept_bytes()) > self.most_kept_bytes else 0

    def release(self, everything: bool = False, wait: bool = True) -> None:
        held = self.kept_bytes()
        if everything or self.excess_bytes():
            self.released = 0 if everything else max(self.released, held)
            torch.cuda.empty_cache()
            freed = held - self.kept_bytes()
            self.cleared_s = max(self.cleared_s, time.monotonic()) + CLEARING_S + freed / CLEARED_BYTES_PER_S
        if wait:
            time.sleep(max(0.0, self.cleared_s - time.monotonic()))

    def regain(self) -> None:
        if (lacking := self.released - self.kept_bytes()) > 0:
            with contextlib.suppress(torch.OutOfMemoryError):  # others have it: the call will allocate it
                torch.empty(lacking, dtype=torch.uint8, device=self.id)
        self.released = 0

    def peak_bytes(self) -> int:
        return max(self.most_bytes, torch.cuda.max_memory_reserved(self.id))

    def watch_memory(self) -> None:
        self.most_bytes = self.peak_bytes()
        torch.cuda.reset_peak_memory_stats(self.id)
        self.before = torch.cuda.mem_get_info(self.id)[0] + self.kept_bytes()

    def watched_bytes(self) -> int:
        """What torch's allocator gave out at most, and what the device lost meanwhile that the allocator does not have:
        memory that was taken from the driver, and is still held."""
        past_torch = self.before - torch.cuda.mem_get_info(self.id)[0] - self.kept_bytes()
        return torch.cuda.max_memory_allocated(self.id) - self.own_bytes + max(0, past_torch)

    def buffer(self, nbytes: int, handle: str) -> shared_buffer.SharedBuffer:
        assert self.id is not None
        return shared_buffer.DeviceBuffer(driver.SharedMemory(nbytes, self.id, handle), self.id)

    def stepped(self, call: Callable[[], T], epoch: int) -> T:
        """The first step is a kernel that already waits for the second: by its word the device has switched to this
        process's context, which takes 150 us, and the call begins as soon as the parent lets it."""
        stream = torch.cuda.current_stream(self.id).cuda_stream
        self._wait(stream, COME, epoch)
        self._switched(stream, COME, CALL, epoch)
        result = call()
        self._tell(stream, CALL, epoch)
        return result

    def between(
        self, step: int, work: Callable[[], None], epoch: int, is_alone: bool = False, switched: int | None = None
    ) -> None:
        stream = torch.cuda.current_stream(self.id).cuda_stream
        if self.gate is not None and is_alone:
            self.gate.wait(stream, self._let_at(step), epoch)
        else:
            self._wait(stream, step, epoch)
        if switched is not None:
            self._switched(stream, switched, step, epoch)
        work()
        self._tell(stream, step, epoch)

    def _switched(self, stream: int, step: int, before: int, epoch: int) -> None:
        """A kernel that tells the step when it runs, which a stream by itself does before its device has switched, and
        then waits for the word before the other step."""
        if self.gate is not None:
            self.gate.wait(stream, self._let_at(before), epoch, tell=self._done_at(step))
            return
        self.ended.fill_(epoch % 2)
        self._tell(stream, step, epoch)
        self._wait(stream, before, epoch)

    def _wait(self, stream: int, step: int, epoch: int) -> None:
        driver.stream_wait(stream, self._let_at(step), epoch)

    def _tell(self, stream: int, step: int, epoch: int) -> None:
        driver.stream_write(stream, self._done_at(step), epoch)

    def _let_at(self, step: int) -> int:
        """The device's address of the word that it waits for before the step."""
        return self.barrier_pointer + self.barrier.steps.let_at(step, self.rank)

    def _done_at(self, step: int) -> int:
        """And of the word that it sets after the step."""
        return self.barrier_pointer + self.barrier.steps.done_at(step, self.rank)

    def device_us(self, call: Callable[[], Any], keep: Callable[[Any], T], epoch: int) -> tuple[T, float]:
        """The result is kept before anything waits for the device. Work that another stream still had to do when the
        clock stopped is therefore not in it."""
        self.device_barrier(epoch)
        self.start.record(torch.cuda.current_stream(self.id))
        result = call()
        self.end.record(torch.cuda.current_stream(self.id))
        kept = keep(result)
        self.synchronize()
        return kept, self.start.elapsed_time(self.end) * 1000

    def device_barrier(self, epoch: int) -> None:
        """Submits the kernel that holds the device until the barrier opens, and returns once it does."""
        from harness.ranks.device_barrier import device_barrier  # a machine without GPUs may be without Triton

        offset, stride = self.barrier.device_marks()
        marks = self.barrier_pointer + offset
        held = self.barrier_pointer + self.barrier.device_held(self.rank)
        numbers = (self.barrier_pointer, held, marks, self.ended.data_ptr(), self.rank, epoch)
        device_barrier[(self.programs,)](*numbers, self.world_size, HOLDING_THREADS, stride, driver.HIP, **self.options)
        self.barrier.wait_device(self.rank, epoch)


def make_device(order: wire.RankOrder, barrier: Barrier) -> Device:
    """The device of one rank, by the name that --device has: cpu, cuda or rocm."""
    if order.device == "cpu":
        return Cpu(order.threads)
    return GpuDevice(order.rank, order.local_rank, order.world_size, barrier, order.kept_bytes)
