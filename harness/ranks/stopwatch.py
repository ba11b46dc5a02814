"""The clocks of a rank: one call of a kernel, timed. What its figures count is for witness.py to say."""

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from harness.core.records import Clock
from harness.ranks import wire
from harness.ranks.barrier import Barrier
from harness.ranks.device import Device

Kernel = Callable[[Any], Any]
Keep = Callable[[Any], wire.Output | None]  # what a call returned
Sample = tuple[int, int, float | None, wire.Output | None]  # start and end on the host (ns), the device's time (us)


class Stopwatch:
    """Each clock waits at the barrier, calls the kernel, and has the result kept as soon as it has stopped."""

    def __init__(self, device: Device, barrier: Barrier, world_size: int) -> None:
        self.device, self.barrier, self.world_size = device, barrier, world_size
        self.clocks: dict[Clock, Callable[[Kernel, Any, int, Keep], Sample]] = {
            "wall": self.wall,
            "device": self.device_clock,
            "gpumode": self.gpumode,
        }

    def wall(self, kernel: Kernel, data: Any, epoch: int, keep: Keep) -> Sample:
        self.barrier.wait(epoch)
        start_ns = time.monotonic_ns()
        result = kernel(data)
        self.device.synchronize()
        end_ns = time.monotonic_ns()
        return start_ns, end_ns, None, keep(result)

    def device_clock(self, kernel: Kernel, data: Any, epoch: int, keep: Keep) -> Sample:
        start_ns = time.monotonic_ns()
        output, device_us = self.device.device_us(lambda: kernel(data), keep, epoch)
        return start_ns, time.monotonic_ns(), device_us, output

    def gpumode(self, kernel: Kernel, data: Any, epoch: int, keep: Keep) -> Sample:
        """The published region to the letter, with the clone and the barrier inside."""
        together = self.world_size > 1
        self.barrier.wait(epoch)
        if together:
            dist.barrier()  # waits for: all ranks ready
        start_ns = time.monotonic_ns()
        result = kernel(cloned(data))
        self.device.synchronize()
        if together:
            dist.barrier()  # waits for: all ranks done
        end_ns = time.monotonic_ns()
        return start_ns, end_ns, None, keep(result)


def cloned(data: Any) -> Any:
    """A copy as GPU MODE's evaluator makes it: tensors in tuples, lists and dicts, but not those in other objects. A
    named tuple keeps its names, which GPU MODE's would lose."""
    if isinstance(data, torch.Tensor):
        return data.clone()
    if hasattr(data, "_fields"):
        return data._make(map(cloned, data))
    if isinstance(data, tuple):
        return tuple(map(cloned, data))
    if isinstance(data, list):
        return list(map(cloned, data))
    if isinstance(data, dict):
        return {key: cloned(item) for key, item in data.items()}
    return data
