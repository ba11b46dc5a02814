"""A symmetric heap: every rank has one block of memory, all blocks are laid out alike, every rank maps all of them.

On GPUs the blocks are torch symmetric memory (IPC handles between processes, NVLink or xGMI in between), on CPUs one
POSIX shared-memory file. Kernels and hosts use both alike: `pointers` has the blocks' addresses as this rank sees
them, `view` a tensor anywhere in a block.

A block begins with flags, a cache line each, that hold the number of the last call (the epoch) in which something
happened. Epochs only grow, so that no flag is ever reset and none can be mistaken for one of an earlier call. Calls
take turns with two sets of flags and two halves of the memory behind them. That makes it unnecessary to wait for
readers at a call's end, as long as a rank cannot finish call i before every other rank has begun it: whoever writes in
call i + 2 has finished call i + 1, which everybody else had then begun, so everybody is done with call i. (One set of
flags would not do: a rank in call i + 1 may have other shapes, and what it flags there could be taken, by one that is
late in call i, for something else.)

Allocated at the first call, kept over process groups, cases and shapes; grown (collectively, by doubling) when a call
needs more. It is gone when the last process that maps it is.
"""

import ctypes
import mmap
import os
import secrets
from math import prod
from typing import NamedTuple

import torch
import torch.distributed as dist
from common.launch import INTERPRETED
from common.tuning import CHIPS, chip_of
from torch import Tensor

LINE_BYTES = 128  # a flag's line: no two flags share one on any machine we know
ALIGNMENT = 256  # of everything in a block: enough for every vector access and for bulk copies
SHM = "/dev/shm"

LIBC = ctypes.CDLL(None)
PTHREAD_PROCESS_SHARED = 1  # pthread.h
BARRIER_BYTES = mmap.ALLOCATIONGRANULARITY  # a page before the blocks; a pthread_barrier_t takes 32 bytes

_heaps: dict[torch.device, "Heap | None"] = {}


class Turn(NamedTuple):
    """One call's share of the heap: its epoch, and where its flags and its half of every block begin (bytes)."""

    epoch: int
    flags: int
    offset: int


def open_heap(device: torch.device) -> "Heap | None":
    """This process's heap for tensors on `device`; None where ranks are on several hosts, CPU ranks can share no
    memory, or GPUs are not alike. The first call is collective."""
    if device not in _heaps:
        make = CpuHeap if device.type == "cpu" else GpuHeap
        heap = make(device, dist.get_rank(), dist.get_world_size())
        able = is_one_host(heap.rank, heap.world_size) and heap.suits()
        _heaps[device] = heap if able and heap.allocate(flags=64, half_bytes=1 << 20) else None
    return _heaps[device]


def is_one_host(rank: int, world_size: int) -> bool:
    """Whether this host runs all ranks, by torchrun's variable. Where it does not, rank 0 says so."""
    here = int(os.environ.get("LOCAL_WORLD_SIZE", world_size))
    if here < world_size and rank == 0:
        print(f"{here} of {world_size} ranks on each host, which share no memory: through collectives")
    return here >= world_size


def lay_out(*arrays: tuple[torch.dtype, tuple[int, ...]]) -> tuple[list[int], int]:
    """Where arrays of these dtypes and shapes lie one behind the other, and the bytes they take together."""
    offsets = [0]
    for dtype, shape in arrays:
        offsets.append(offsets[-1] + aligned(prod(shape) * dtype.itemsize))
    return offsets[:-1], offsets[-1]


def aligned(nbytes: int) -> int:
    """`nbytes` rounded up to the heap's alignment."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


class Heap:
    """What both kinds share. `blocks[r]` is rank r's block as bytes. `kernels`: whether Triton's kernels run on it."""

    kernels = True

    def __init__(self, device: torch.device, rank: int, world_size: int) -> None:
        self.device, self.rank, self.world_size = device, rank, world_size
        self.epoch = 0
        self.flags = self.half_bytes = 0  # of each turn
        self.blocks: list[Tensor] = []
        self.addresses: list[int] = []  # of the blocks, as this rank sees them
        self.pointers = torch.empty(0)  # the same on the device, int64 [W]
        self.own: dict[int, Tensor] = {}  # see own_from

    def turn(self, nbytes: int, flags: int = 0) -> Turn:
        """Begins a call that needs `nbytes` of every block and `flags` flags. Every rank has to ask for the same."""
        if nbytes > self.half_bytes or flags > self.flags:
            self.grow(max(flags, self.flags), max(nbytes, self.half_bytes))
        self.epoch += 1
        turn, flags_bytes = self.epoch % 2, self.flags * LINE_BYTES
        return Turn(self.epoch, turn * flags_bytes, 2 * flags_bytes + turn * self.half_bytes)

    def grow(self, flags: int, half_bytes: int) -> None:
        self.barrier()  # nobody uses the old blocks any more
        flags, half_bytes = (1 << (size - 1).bit_length() for size in (flags, half_bytes))
        # Kernels take places in a block as 32-bit numbers.
        if 2 * (flags * LINE_BYTES + half_bytes) >= 1 << 31 or not self.allocate(flags, half_bytes):
            raise MemoryError(f"no room for {2 * half_bytes / 2**20:.0f} MiB of memory that the ranks share")
        self.own.clear()

    def own_from(self, offset: int) -> Tensor:
        """This rank's block from that byte on, as bf16. It is kept: turns begin at two places, and a view takes the
        host microseconds."""
        if offset not in self.own:
            self.own[offset] = self.blocks[self.rank][offset:].view(torch.bfloat16)
        return self.own[offset]

    def view(self, peer: int, offset: int, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
        """An array in the block of `peer`, `offset` bytes from its beginning. What it holds is anything."""
        nbytes = prod(shape) * dtype.itemsize
        return self.blocks[peer][offset : offset + nbytes].view(dtype).view(shape)

    def suits(self) -> bool:
        """Whether the ranks' devices are alike enough for kernels that wait for each other. Collective."""
        return True

    def allocate(self, flags: int, half_bytes: int) -> bool:
        """New blocks with that many flags a turn, all 0, in place of the old. Collective. False where no room."""
        raise NotImplementedError

    def barrier(self) -> None:
        """Every rank has come here, and what it has submitted is done."""
        raise NotImplementedError


class GpuHeap(Heap):
    """Blocks on one GPU a rank, CUDA or ROCm."""

    def suits(self) -> bool:
        """Programs wait for those of the same number on other ranks, so every rank has to have as many; and each has to
        reach the others' memory."""
        chip, index = chip_of(self.device), self.device.index
        others = [other for other in range(torch.cuda.device_count()) if other != index]
        able = chip.name in CHIPS and all(torch.cuda.can_device_access_peer(index, other) for other in others)
        most = torch.tensor([chip.multiprocessors, -chip.multiprocessors, -int(able)], device=self.device)
        dist.all_reduce(most, dist.ReduceOp.MAX)
        return most.tolist() == [chip.multiprocessors, -chip.multiprocessors, -1]

    def allocate(self, flags: int, half_bytes: int) -> bool:
        # Not needed here, and where GPUs are shared with others a fault in it is theirs too.
        os.environ.setdefault("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")
        from torch.distributed import _symmetric_memory as symmetric_memory

        nbytes = 2 * (flags * LINE_BYTES + half_bytes)
        self.memory = symmetric_memory.empty(nbytes, dtype=torch.uint8, device=self.device)
        self.handle = symmetric_memory.rendezvous(self.memory, dist.group.WORLD)
        self.memory[: 2 * flags * LINE_BYTES].zero_()
        self.blocks = [self.handle.get_buffer(peer, (nbytes,), torch.uint8) for peer in range(self.world_size)]
        self.addresses = list(self.handle.buffer_ptrs)
        self.pointers = torch.tensor(self.addresses, dtype=torch.int64, device=self.device)
        self.flags, self.half_bytes = flags, half_bytes
        self.barrier()  # nobody signals before every flag is 0
        return True

    def barrier(self) -> None:
        torch.cuda.synchronize(self.device)
        dist.barrier()
        torch.cuda.synchronize(self.device)


class CpuHeap(Heap):
    """A file that has lost its name, with a barrier in front. Hosts need no memory of their own to be written to by
    others, so there is one block, rank 0's, for all; interpreted kernels get a block each, one behind the other."""

    kernels = INTERPRETED

    def allocate(self, flags: int, half_bytes: int) -> bool:
        block_bytes = 2 * (flags * LINE_BYTES + half_bytes)
        nbytes = BARRIER_BYTES + (self.world_size if INTERPRETED else 1) * block_bytes
        token = torch.tensor(secrets.randbits(62))
        dist.broadcast(token, 0)
        path = f"{SHM}/symmetric-heap-{token.item():x}"
        mapped = _map_file(path, nbytes, create=True) if self.rank == 0 else None
        if _everywhere(mapped is not None or self.rank > 0):
            mapped = mapped or _map_file(path, nbytes, create=False)
        shared = _everywhere(mapped is not None)
        if self.rank == 0 and mapped is not None:
            os.unlink(path)  # all who want it have it
        if mapped is None or not shared:
            return False
        whole = torch.frombuffer(mapped, dtype=torch.uint8)
        self.barrier_at = ctypes.c_void_p(whole.data_ptr())
        if self.rank == 0:
            attributes = ctypes.create_string_buffer(64)  # a pthread_barrierattr_t has at most 8 bytes
            LIBC.pthread_barrierattr_init(attributes)
            LIBC.pthread_barrierattr_setpshared(attributes, PTHREAD_PROCESS_SHARED)
            LIBC.pthread_barrier_init(self.barrier_at, attributes, self.world_size)
        dist.barrier()  # waits for: the barrier of ours
        self.blocks = list(whole[BARRIER_BYTES:].split(block_bytes))
        self.addresses = [block.data_ptr() for block in self.blocks]
        self.pointers = torch.tensor(self.addresses)
        self.flags, self.half_bytes = flags, half_bytes
        return True

    def barrier(self) -> None:
        """Sleeps until every rank is here; there may be more ranks than cores, so none spins."""
        LIBC.pthread_barrier_wait(self.barrier_at)


def _map_file(path: str, nbytes: int, create: bool) -> mmap.mmap | None:
    """The file's memory, shared; a new one of zeros where `create`. None where that cannot be."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0), 0o600)
        try:
            if create:
                os.posix_fallocate(fd, 0, nbytes)  # where there is no room it says so now, not by a SIGBUS later
            return mmap.mmap(fd, nbytes)
        finally:
            os.close(fd)
    except (OSError, ValueError):
        if create and os.path.exists(path):
            os.unlink(path)
        return None


def _everywhere(condition: bool) -> bool:
    """Whether it holds on every rank; collective, on the host."""
    holds = torch.tensor(int(condition))
    dist.all_reduce(holds, dist.ReduceOp.MIN)
    return bool(holds.item())
