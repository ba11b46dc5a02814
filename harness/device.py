"""The devices that ranks run on, behind one small seam: what has to be done differently is said here, once.

Knows torch and the device; knows nothing of problems, processes or clocks.
"""

from typing import Protocol

import torch


class Device(Protocol):
    """One rank's device. `backend` is torch.distributed's name for what connects such devices."""

    name: str
    backend: str

    def prepare(self) -> None:
        """Make this the process's device; once, before anything is allocated on it."""

    def synchronize(self) -> None:
        """Returns once all work that was submitted to the device is done."""

    def flush_caches(self) -> None:
        """Evict what earlier calls left in the caches."""

    def place(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor, which lies in the host's memory, on the device."""


class Cpu:
    """CPU cores as the ranks' devices, connected by gloo; `flush_bytes` is this rank's share of the flush."""

    name = "cpu"
    backend = "gloo"

    def __init__(self, threads: int, flush_bytes: int) -> None:
        self.threads = threads
        self.scratch = torch.zeros(flush_bytes // 8, dtype=torch.int64)

    def prepare(self) -> None:
        torch.set_num_threads(self.threads)

    def synchronize(self) -> None:
        pass  # torch's CPU kernels are done when they return

    def flush_caches(self) -> None:
        self.scratch.add_(1)

    def place(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor


def make_device(name: str, rank: int, threads: int, flush_bytes: int) -> Device:
    """The device of one rank; `name` is cpu (cuda and rocm follow)."""
    if name != "cpu":
        raise ValueError(f"no device '{name}'")
    return Cpu(threads, flush_bytes)
