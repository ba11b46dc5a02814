"""The device clock of `tune-kernel` and of bench/ops.py: calls one at a time, about as an evaluation makes them.

A GPU whose calls follow each other at once grows warm and can meet its power cap, and the row that is fastest there
need not be the fastest in an evaluation. So each call is alone: the GPU rests; the call gets its input back, and caches
are flushed; the device waits while the host submits the call, which is timed between two events.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch.cuda import _sleep as hold_device  # for so many cycles of its clock

from harness.ranks import driver
from harness.ranks.device import flush_scratch
from harness.tuning.records import PAUSE

DEVICE = "cuda"
LEAST_PAUSE_S = 0.002
AHEAD_CYCLES = 2_000_000  # about a millisecond, in which the host submits a call


class TimedCall(NamedTuple):
    """A call, and what gives it its input back."""

    run: Callable[[], Any]
    restore: Callable[[], None]


def restorer(data: Any, in_place: bool) -> Callable[[], None]:
    """Puts back what `data` holds now, if the problem works in place: else it would be timed on its own result.
    Otherwise does nothing."""
    kept = [(tensor, tensor.clone()) for tensor in tensors_of(data)] if in_place else []

    def restore() -> None:
        for tensor, copy in kept:
            tensor.copy_(copy)

    return restore


def tensors_of(data: Any) -> Iterator[torch.Tensor]:
    if isinstance(data, torch.Tensor):
        yield data
    elif isinstance(data, tuple | list):
        for item in data:
            yield from tensors_of(item)
    elif isinstance(data, dict):
        yield from tensors_of(list(data.values()))


class DeviceClock:
    """`pause`: how long the GPU rests before each call, in times of the call before; 0: calls follow each other at
    once, without waiting for the host, as in a training step."""

    def __init__(self, pause: float = PAUSE) -> None:
        self.pause, self.last_s = pause, 0.0
        self.scratch = flush_scratch(torch.cuda.get_device_properties(0), DEVICE)

    def times_us(self, calls: Iterable[TimedCall]) -> list[float]:
        new: Callable[..., Any] = torch.cuda.Event
        events = []
        for call in calls:
            start, end = (new(enable_timing=True) for _ in range(2))
            events.append((start, end))
            if self.pause:
                time.sleep(max(LEAST_PAUSE_S, self.pause * self.last_s))
            call.restore()
            self.flush()
            if self.pause:
                torch.cuda.synchronize()
                hold_device(AHEAD_CYCLES)
            start.record()
            call.run()
            end.record()
            if self.pause:
                torch.cuda.synchronize()
                self.last_s = start.elapsed_time(end) / 1000
        torch.cuda.synchronize()
        return [start.elapsed_time(end) * 1000 for start, end in events]

    def flush(self) -> None:
        """Nothing of a call's input is in a cache behind this."""
        driver.reset_persisting_l2()
        self.scratch.zero_()
