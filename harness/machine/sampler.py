"""What the GPUs did while something was timed: clocks, temperature, power and throttling, sampled by NVML.

A thread of the parent process; it sleeps between samples, and NVML's calls run without the interpreter's lock. Does
not import torch and touches no device. AMD's GPUs are not sampled, which the record then says.
"""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from statistics import median
from typing import Any

from harness.core.machine_records import GpuTrack, NotSampled, Sampled, Sampling
from harness.machine.nvml import CLOCK_SM, opened, throttle_reasons
from harness.machine.readings import NOT_THROTTLING, Unread, attempt

INTERVAL_S = 0.05


@dataclass(frozen=True, kw_only=True)
class _Sample:
    at_ns: int
    sm_mhz: int
    temperature_c: int
    power_w: float
    throttled: tuple[str, ...]


class GpuSampler:
    """Samples the GPUs `indices` (NVML's; default all) about every `interval_s` between start() and stop().

    start() and stop() may alternate as often as there are timed blocks: only what lies between them counts, and
    `record` is over all of it. Neither ever raises; close() ends the thread. `nvml` is the module pynvml, or a test's
    fake.
    """

    def __init__(self, indices: Sequence[int] | None = None, interval_s: float = INTERVAL_S, nvml: Any = None) -> None:
        self._interval_s = interval_s
        self._nvml, found = opened(nvml, indices)
        self._handles: dict[int, Any] = {} if isinstance(found, Unread) else found
        self._why = "start() was never called" if self._handles else "no GPU"
        if isinstance(found, Unread):
            self._why = found.why
        self._samples: dict[int, list[_Sample]] = {}
        self._energy_mj: dict[int, int] = {}
        self._started_mj: dict[int, int] = {}
        self._started_s = self._sampled_s = 0.0
        self._lock = threading.Lock()  # holds: a round of samples, so that stop() returns after the last one
        self._running, self._closed = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        if not self._handles or self._closed.is_set() or self._running.is_set():
            return
        self._why = "the block was over before the first sample"
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="gpu-sampler", daemon=True)
            self._thread.start()
        self._started_mj, self._started_s = self._read_energy(), time.monotonic()
        self._running.set()

    def stop(self) -> None:
        """Ends the block. Returns once no sample is being taken any more."""
        if not self._running.is_set():
            return
        self._running.clear()
        with self._lock:  # waits for: a round of samples under way
            self._sampled_s += time.monotonic() - self._started_s
        for index, count_mj in self._read_energy().items():
            if index in self._started_mj:
                self._energy_mj[index] = self._energy_mj.get(index, 0) + count_mj - self._started_mj[index]

    def close(self) -> None:
        """Ends sampling for good; `record` stays."""
        self.stop()
        if self._closed.is_set():
            return
        self._closed.set()
        self._running.set()  # wakes the thread, which then sees that it is over
        if self._thread is not None:
            self._thread.join()
        self._running.clear()
        if self._handles:
            attempt(lambda: self._nvml.nvmlShutdown())

    @property
    def record(self) -> Sampling:
        with self._lock:
            samples = {index: tuple(found) for index, found in self._samples.items() if found}
        if not samples:
            return NotSampled(why=self._why)
        return Sampled(
            gpus=tuple(_track(index, found, self._energy_mj.get(index)) for index, found in sorted(samples.items())),
            samples=max(len(found) for found in samples.values()),
            sampled_s=self._sampled_s,
        )

    def between(self, began_ns: int, ended_ns: int) -> tuple[GpuTrack, ...]:
        """The GPUs in that time (CLOCK_MONOTONIC), which is not long ago; those that were sampled in it. Does not wait
        for a round of samples that is under way: what is copied here is copied in one step, and only grows."""
        found = []
        for index, samples in sorted(self._samples.items()):
            since = takewhile(lambda one: one.at_ns >= began_ns, reversed(list(samples)))
            within = [one for one in since if one.at_ns <= ended_ns]
            if within:
                found.append(_track(index, within))
        return tuple(found)

    def _run(self) -> None:
        while True:
            self._running.wait()  # for: a block to begin, or the end
            if self._closed.is_set():
                return
            began = time.monotonic()
            with self._lock:
                for index, handle in self._handles.items():
                    sample = attempt(lambda handle=handle: self._read(handle))  # type: ignore[misc]
                    if isinstance(sample, Unread):
                        self._why = sample.why
                    elif self._running.is_set():  # else the block ended while this GPU was asked
                        self._samples.setdefault(index, []).append(sample)
            self._closed.wait(max(0.0, self._interval_s - (time.monotonic() - began)))

    def _read(self, handle: Any) -> _Sample:
        nvml = self._nvml
        return _Sample(
            at_ns=time.monotonic_ns(),
            sm_mhz=int(nvml.nvmlDeviceGetClockInfo(handle, CLOCK_SM)),
            temperature_c=int(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
            power_w=nvml.nvmlDeviceGetPowerUsage(handle) / 1e3,
            throttled=throttle_reasons(nvml, handle),
        )

    def _read_energy(self) -> dict[int, int]:
        found = {
            index: attempt(lambda handle=handle: int(self._nvml.nvmlDeviceGetTotalEnergyConsumption(handle)))  # type: ignore[misc]
            for index, handle in self._handles.items()
        }
        return {index: count_mj for index, count_mj in found.items() if not isinstance(count_mj, Unread)}


def _track(index: int, samples: Sequence[_Sample], energy_mj: int | None = None) -> GpuTrack:
    clocks = [sample.sm_mhz for sample in samples]
    powers = [sample.power_w for sample in samples]
    reasons = dict.fromkeys(reason for sample in samples for reason in sample.throttled)
    return GpuTrack(
        index=index,
        sm_mhz_min=min(clocks),
        sm_mhz_median=float(median(clocks)),
        sm_mhz_max=max(clocks),
        temperature_c_max=max(sample.temperature_c for sample in samples),
        power_w_mean=sum(powers) / len(powers),
        power_w_max=max(powers),
        throttled=tuple(reason for reason in reasons if reason not in NOT_THROTTLING),
        energy_j=None if energy_mj is None else energy_mj / 1e3,
    )
