"""Measures what this machine can do, for rooflines on hardware that the hardware table does not know.

Runs in all trusted ranks at once, as a kernel would. A rate counts the work of all ranks from the first start to the
last end, so that ranks that share a core share its rate. The best of several tries is taken, because a bound must not
be lower than what can be reached.
"""

import mmap
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

from harness.ranks.wire import PeaksMeasured

TRIES = 7
WARM = 2  # tries that do not count: the first may load and compile kernels
GEMM_SHAPES_MNK = {"cpu": ((256, 256, 1024), (512, 512, 512), (1024, 1024, 1024)), "cuda": ((8192, 8192, 8192),)}
# A CPU without bf16 instructions multiplies bf16 a hundred times slower than float32, which holds every product of two
# bf16 numbers exactly: a submission may convert, so the better of the two bounds it.
GEMM_DTYPES = {"cpu": (torch.float32, torch.bfloat16), "cuda": (torch.bfloat16,)}
SLOW_PART = 0.25
COPY_BYTES = {"cpu": 8 << 20, "cuda": 1 << 30}  # larger than a private cache, or than any cache of a GPU
LINK_BYTES = 256 << 20  # of one rank, on GPUs


def measure(rank: int, world_size: int, local_size: int, device: torch.device, folder: Path) -> PeaksMeasured:
    """The rates of one rank while all work, each the best of several tries: flops a second in products of bf16 numbers,
    bytes of memory a second (reads and writes both counted), and bytes that the rank sends a second. Needs an open
    process group.

    One rank has no links: their rate is 0. On CPUs each rank has a file in `folder` that its neighbour maps and reads,
    which is the cheapest way to move bytes on one host; the neighbour is one of the `local_size` ranks of the same host
    where there are others. On GPUs each rank sends to all others at once through the process group.
    """
    kind, nbytes = device.type, COPY_BYTES[device.type]
    flops_per_s = 0.0
    for dtype in GEMM_DTYPES[kind]:
        for m, n, k in GEMM_SHAPES_MNK[kind]:
            a_MK, b_KN = (torch.randn(*shape, device=device).to(dtype) for shape in ((m, k), (k, n)))
            hopeless_s = 2 * m * n * k / (SLOW_PART * flops_per_s) if flops_per_s else float("inf")
            best_s = _best_s(lambda a=a_MK, b=b_KN: a @ b, device, hopeless_s)  # type: ignore[misc]
            flops_per_s = max(flops_per_s, 2 * m * n * k / best_s)
            if best_s > hopeless_s:
                break  # larger products of this dtype would take seconds each
    source, target = (torch.zeros(nbytes, dtype=torch.uint8, device=device) for _ in range(2))
    memory_s = _best_s(lambda: target.copy_(source), device)
    link = _host_link if kind == "cpu" else _device_link
    return PeaksMeasured(
        flops_per_s=flops_per_s,
        memory_bytes_per_s=2 * nbytes / memory_s,  # each byte is read and written
        link_bytes_per_s=link(rank, world_size, local_size, device, folder) if world_size > 1 else 0.0,
    )


def _host_link(rank: int, world_size: int, local_size: int, device: torch.device, folder: Path) -> float:
    nbytes = COPY_BYTES["cpu"]
    target = bytearray(nbytes)
    (folder / f"link-{rank}").write_bytes(target)
    dist.barrier()  # waits for: every rank's file
    neighbour = rank - rank % local_size + (rank + 1) % local_size
    with open(folder / f"link-{neighbour}", "r+b") as file, mmap.mmap(file.fileno(), nbytes) as window:
        own = memoryview(target)
        return nbytes / _best_s(lambda: own.__setitem__(slice(None), memoryview(window)), device)


def _device_link(rank: int, world_size: int, local_size: int, device: torch.device, folder: Path) -> float:
    source, target = (torch.zeros(LINK_BYTES, dtype=torch.uint8, device=device) for _ in range(2))
    leaving = LINK_BYTES * (world_size - 1) / world_size
    return leaving / _best_s(lambda: dist.all_to_all_single(target, source), device)


def _best_s(work: Callable[[], object], device: torch.device, hopeless_s: float = float("inf")) -> float:
    """Seconds that `work` takes when all ranks do it at once: the best of TRIES, the same on every rank. More than
    `hopeless_s` after WARM of them are not worth the others."""
    best = float("inf")
    repeats = 1
    for tried in range(TRIES):
        if tried >= WARM and best > hopeless_s:
            break
        _synchronize(device)
        dist.barrier()  # waits for: all ranks done with the try before
        start = time.monotonic()
        for _ in range(repeats):
            work()
        _synchronize(device)
        ends = torch.tensor([-start, time.monotonic()], dtype=torch.float64, device=device)
        dist.all_reduce(ends, op=dist.ReduceOp.MAX)  # first start (negated) and last end over ranks
        elapsed = float(ends.sum())
        best = min(best, elapsed / repeats)
        repeats = max(repeats, min(64, int(0.02 / max(elapsed / repeats, 1e-6))))  # long against the ranks' skew
    return best


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
