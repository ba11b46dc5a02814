#!POPCORN leaderboard amd-gemm-rs
#!POPCORN gpus MI300
"""gemm_rs with the partial products in memory that all ranks map, each rank summing up its own rows.

Each CPU rank multiplies straight into its part of the shared memory (bias included, one rounding to bf16); after one
barrier it reads its rows of all W products and sums them in float32, rounding once. Elsewhere: product and bias in one
operation, then the library's reduce-scatter.

Why it wins on CPUs: gloo's reduce-scatter takes 13 to 18 ms for 8 ranks on 2 cores, whatever the size; the products
themselves take 0.1 to 0.3 ms a rank. What is left is one barrier and one pass over the partial sums.

Measured, speedup over the reference, each within one run: suite cpu 6.4 5.9 5.3 3.7 3.4, geomean 4.8 (4.8 and 5.4 in
two runs on 2 busy cores), 2026-11-20.
Tried and lost:
- gloo's all_to_all of bf16 partial rows and a local float32 sum: 2.0 (2.7 2.4 2.2 1.7 1.2);
- only the bias fused, on gloo: 0.98, which is no difference;
- on 4x H200 through NCCL, official benchmarks: bias fused 0.8 to 1.03, that is the reference within its noise; rows in
  2 chunks, the reduce-scatter of one beside the product of the next: 0.4 to 0.96, in 4 chunks: 0.2 to 0.9. Launching
  more collectives costs more than they hide.

Legend: M rows and N columns of the product, W ranks, k = K / W, m = M / W: this rank's.
"""

import ctypes
import itertools
import math
import mmap
import os
import secrets
from collections.abc import Iterator
from io import FileIO

import torch
import torch.distributed as dist
from task import input_t, output_t
from torch import Tensor

reduce_scatter_single = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor  # older name

Layout = tuple[tuple[torch.dtype, tuple[int, ...]], ...]

LIBC = ctypes.CDLL(None)
PTHREAD_PROCESS_SHARED = 1  # pthread.h
_memories: dict[tuple[int, int], Iterator["SharedMemory | None"]] = {}  # by rank and world size


def custom_kernel(data: input_t) -> output_t:
    input_Mk, weight_Nk, bias_N = data
    rank, world_size = dist.get_rank(), dist.get_world_size()
    memory = shared_memory(rank, world_size) if input_Mk.device.type == "cpu" else None
    if memory is None:
        return through_collectives(input_Mk, weight_Nk, bias_N, world_size)

    rows, columns = len(input_Mk), len(weight_Nk)
    (partial_WMN,) = memory.view((input_Mk.dtype, (world_size, rows, columns)))
    multiply(input_Mk, weight_Nk, bias_N, partial_WMN[rank])
    memory.barrier()  # for every rank's product
    mine = slice(rank * rows // world_size, (rank + 1) * rows // world_size)
    return partial_WMN[:, mine].sum(0)  # torch adds bf16 up in float32 and rounds once


def multiply(input_Mk: Tensor, weight_Nk: Tensor, bias_N: Tensor | None, output_MN: Tensor) -> None:
    if bias_N is None:
        torch.mm(input_Mk, weight_Nk.T, out=output_MN)
    else:
        torch.addmm(bias_N, input_Mk, weight_Nk.T, out=output_MN)


def through_collectives(input_Mk: Tensor, weight_Nk: Tensor, bias_N: Tensor | None, world_size: int) -> Tensor:
    partial_MN = input_Mk.new_empty(len(input_Mk), len(weight_Nk))
    multiply(input_Mk, weight_Nk, bias_N, partial_MN)
    output_mN = partial_MN.new_empty(len(partial_MN) // world_size, partial_MN.shape[1])
    reduce_scatter_single(output_mN, partial_MN)
    return output_mN


class SharedMemory:
    """Memory that all ranks of one host map, and a barrier in it.

    It has no name, so nothing can be left behind: it is gone when the last process that maps it is. It outlives the
    process group, as the ranks' processes do.
    """

    PAGE = mmap.ALLOCATIONGRANULARITY  # holds the barrier and, half-way, the token; the arrays follow

    def __init__(self, file: FileIO) -> None:
        self.file = file
        self.page = mmap.mmap(file.fileno(), self.PAGE)
        self.barrier_at = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(self.page)))
        self.layout: Layout = ()
        self.arrays: list[Tensor] = []

    @classmethod
    def create(cls, world_size: int, token: int) -> "SharedMemory":
        file = FileIO(os.memfd_create("ranks"), "r+")
        file.truncate(cls.PAGE)
        memory = cls(file)
        attributes = ctypes.create_string_buffer(64)  # a pthread_barrierattr_t has at most 8 bytes
        LIBC.pthread_barrierattr_init(attributes)
        LIBC.pthread_barrierattr_setpshared(attributes, PTHREAD_PROCESS_SHARED)
        LIBC.pthread_barrier_init(memory.barrier_at, attributes, world_size)
        memory.token = token
        return memory

    @property
    def token(self) -> int:
        return int.from_bytes(self.page[self.PAGE // 2 :][:8], "little")

    @token.setter
    def token(self, value: int) -> None:
        self.page[self.PAGE // 2 : self.PAGE // 2 + 8] = value.to_bytes(8, "little")

    def barrier(self) -> None:
        """Sleeps until every rank is here; there may be more ranks than cores, so none spins."""
        LIBC.pthread_barrier_wait(self.barrier_at)

    def view(self, *layout: tuple[torch.dtype, tuple[int, ...]]) -> list[Tensor]:
        """Arrays of these dtypes and shapes, which every rank has to ask for alike. What they hold is anything."""
        if layout != self.layout:
            sizes = [-(-math.prod(shape) * dtype.itemsize // 64) * 64 for dtype, shape in layout]
            # Never made smaller. All who are here ask for the same size, so that whoever is late changes nothing.
            if os.fstat(self.file.fileno()).st_size < self.PAGE + sum(sizes):
                self.file.truncate(self.PAGE + sum(sizes))
            mapped = mmap.mmap(self.file.fileno(), sum(sizes), offset=self.PAGE)
            whole = torch.frombuffer(mapped, dtype=torch.uint8)
            parts = zip(whole.split(sizes), layout, strict=True)
            self.arrays = [part[: math.prod(s) * t.itemsize].view(t).view(s) for part, (t, s) in parts]
            self.layout = layout
        return self.arrays


def shared_memory(rank: int, world_size: int) -> SharedMemory | None:
    """The memory for this call, or None where the ranks cannot share any. The first call is collective.

    There are two, used in turn: whoever is in call i + 2 has met, in call i + 1, all that may still have been reading
    in call i. So no call has to wait at its end, and the next one may have other shapes.
    """
    if (rank, world_size) not in _memories:
        _memories[rank, world_size] = itertools.cycle(_meet(rank, world_size))
    return next(_memories[rank, world_size])


def _meet(rank: int, world_size: int) -> list[SharedMemory] | list[None]:
    """Rank 0 makes memory, the others open it through /proc; the token tells whether it is the same host's."""
    token, memories = secrets.randbits(62), []
    if rank == 0 and hasattr(os, "memfd_create"):
        memories = [SharedMemory.create(world_size, token) for _ in range(2)]
    where = torch.tensor([token, os.getpid(), *([memory.file.fileno() for memory in memories] or [-1, -1])])
    dist.broadcast(where, 0)
    token, pid, *fds = where.tolist()
    try:
        memories = memories or [SharedMemory(FileIO(f"/proc/{pid}/fd/{fd}", "r+")) for fd in fds]
        shared = all(memory.token == token for memory in memories)
    except (OSError, ValueError):  # not there, not ours to open, or too short to be it
        shared = False
    everywhere = torch.tensor([int(shared)])
    dist.all_reduce(everywhere, dist.ReduceOp.MIN)
    return memories if everywhere.item() else [None]
