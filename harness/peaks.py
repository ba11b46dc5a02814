"""What this machine can do, measured: the roofline of a machine that no table knows.

Runs in trusted ranks, all at once, as a kernel would: what counts is the work of all ranks from the first start to
the last end, so that ranks that share a core share its rate. The best of several tries is taken, because a bound
must not be lower than what can be reached.
"""

import mmap
import os
import time
from collections.abc import Callable
from typing import cast

import torch
import torch.distributed as dist

from harness.wire import PeaksMeasured

TRIES = 7
GEMM_SHAPES_MNK = ((256, 256, 1024), (512, 512, 512), (1024, 1024, 1024))
COPY_BYTES = 8 << 20  # a rank's buffer: larger than a private cache, as flushed inputs are


def measure(rank: int, world_size: int, fd: int) -> PeaksMeasured:
    """Rates of one rank while all work. `fd` is a file of this rank's that its neighbour reads, to move bytes
    between ranks the cheapest way a host has: out of memory that both map. Needs an open process group."""
    flops_per_s = 0.0
    for m, n, k in GEMM_SHAPES_MNK:
        a_MK, b_KN = torch.randn(m, k).bfloat16(), torch.randn(k, n).bfloat16()
        flops_per_s = max(flops_per_s, 2 * m * n * k / _best_s(lambda a=a_MK, b=b_KN: a @ b))  # type: ignore[misc]

    source, target = torch.zeros(COPY_BYTES, dtype=torch.uint8), torch.empty(COPY_BYTES, dtype=torch.uint8)
    memory_bytes_per_s = 2 * COPY_BYTES / _best_s(lambda: target.copy_(source))  # each byte is read and written

    os.ftruncate(fd, COPY_BYTES)
    addresses = torch.zeros(world_size, 2, dtype=torch.int64)
    addresses[rank] = torch.tensor([os.getpid(), fd])
    dist.all_reduce(addresses)  # also: every rank's file has its size now
    pid, peer_fd = addresses[(rank + 1) % world_size].tolist()
    with open(f"/proc/{pid}/fd/{peer_fd}", "r+b") as file, mmap.mmap(file.fileno(), COPY_BYTES) as window:
        own = memoryview(cast(bytearray, target.numpy()))
        link_bytes_per_s = COPY_BYTES / _best_s(lambda: own.__setitem__(slice(None), memoryview(window)))
    return PeaksMeasured(
        flops_per_s=flops_per_s, memory_bytes_per_s=memory_bytes_per_s, link_bytes_per_s=link_bytes_per_s
    )


def _best_s(work: Callable[[], object]) -> float:
    """Seconds one `work` takes when all ranks do it at once; the best of TRIES, the same on every rank."""
    best = float("inf")
    repeats = 1
    for _ in range(TRIES):
        dist.barrier()  # waits for: all ranks done with the try before
        start = time.monotonic()
        for _ in range(repeats):
            work()
        ends = torch.tensor([-start, time.monotonic()], dtype=torch.float64)
        dist.all_reduce(ends, op=dist.ReduceOp.MAX)  # first start (negated) and last end over ranks
        elapsed = float(ends.sum())
        best = min(best, elapsed / repeats)
        repeats = max(repeats, min(64, int(0.02 / max(elapsed / repeats, 1e-6))))  # long against the ranks' skew
    return best
