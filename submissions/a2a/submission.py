#!POPCORN leaderboard amd-all2all
#!POPCORN gpus MI300
"""placeholder"""

import ctypes
import mmap
import os
import secrets

import torch
import torch.distributed as dist
import torch.nn.functional as F
from task import MoEConfig, RankTestData, input_t, output_t
from torch import Tensor


def custom_kernel(data: input_t) -> output_t:
    config, mine, rank, world_size = data
    per_rank = config.num_experts // world_size
    # What each rank has to multiply a token by, but for its experts' own factor. 0: it need not see the token.
    scale_TW = mine.weights.new_zeros(mine.num_tokens, world_size)
    scale_TW.scatter_add_(1, mine.indices.long() // per_rank, mine.weights)
    memory = shared_memory(rank, world_size) if mine.x.device.type == "cpu" else None
    if memory is None:
        return through_collectives(config, mine, scale_TW)
    return through_memory(config, mine, scale_TW, rank, memory)


def through_memory(
    config: MoEConfig, mine: RankTestData, scale_TW: Tensor, rank: int, memory: "SharedMemory"
) -> Tensor:
    """Every array has its place in memory that all ranks map: S source ranks, W expert ranks, C >= T tokens a rank."""
    (tokens, world_size), capacity, hidden = scale_TW.shape, config.max_num_tokens, config.hidden_dim
    scale_WSC, x_CsH, y_WCsH = memory.tensors(
        (torch.float32, (world_size, world_size, capacity)),
        (config.in_dtype, (world_size * capacity, hidden)),
        (config.out_dtype, (world_size, world_size * capacity, hidden)),
    )

    # Dispatch: lay the tokens out where every rank can read them.
    first = rank * capacity
    x_CsH[first : first + tokens] = mine.x
    scale_WSC[:, rank, :tokens] = scale_TW.T
    scale_WSC[:, rank, tokens:] = 0
    memory.barrier()  # for every rank's tokens

    # The experts of this rank: fetch the tokens that need them, multiply, sum over the experts of a token.
    scale_Cs = scale_WSC[rank].flatten()
    (here_Q,) = scale_Cs.nonzero(as_tuple=True)
    y_QH = torch.index_select(x_CsH, 0, here_Q, out=y_WCsH[rank, : len(here_Q)])
    y_QH *= ((1 + rank) * scale_Cs[here_Q]).to(config.in_dtype)[:, None]

    # Where the other ranks put this rank's tokens: after the tokens of the ranks before it.
    needed_TW = scale_TW != 0
    before_W = torch.count_nonzero(scale_WSC[:, :rank].flatten(1), dim=1)
    place_TW = needed_TW.cumsum(0) + (before_W + torch.arange(-1, y_WCsH.shape[0] * y_WCsH.shape[1] - 1, y_WCsH.shape[1]))
    counts_T = needed_TW.sum(1)
    memory.barrier()  # for every rank's outputs

    # Combine: one sum over the rows of a token, accumulated in float32.
    return F.embedding_bag(place_TW[needed_TW], y_WCsH.flatten(0, 1), counts_T.cumsum(0) - counts_T, mode="sum")


def through_collectives(config: MoEConfig, mine: RankTestData, scale_TW: Tensor) -> Tensor:
    raise NotImplementedError

class SharedMemory:
    """Memory that all ranks of this host map, and a barrier in it.

    It has no name, so nothing is left behind: rank 0 makes it (memfd), the others open it through /proc. It goes with
    the last process that maps it. It outlives the process group, as the ranks' processes do.
    """

    HEADER = 4096  # the barrier, and what tells that it is the right memory

    def __init__(self, fd: int, world_size: int) -> None:
        self.fd, self.world_size = fd, world_size
        self.map(self.HEADER)

    def map(self, nbytes: int) -> None:
        # Grown before the barrier of a call, hence to the same size by every rank, and never made smaller.
        if os.fstat(self.fd).st_size < nbytes:
            os.ftruncate(self.fd, nbytes)
        self.nbytes = nbytes
        self.bytes = mmap.mmap(self.fd, nbytes)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.bytes))
        self.cached = {}

    def barrier(self) -> None:
        """Sleeps until every rank is here: the ranks may be more than the cores."""
        LIBC.pthread_barrier_wait(ctypes.c_void_p(self.address))

    def tensors(self, *arrays):
        found = self.cached.get(arrays)
        if found is None:
            found = self._tensors(arrays)
        return found

    def _tensors(self, arrays):
        offset, places = self.HEADER, []
        for dtype, shape in arrays:
            places.append((dtype, shape, offset))
            count = torch.Size(shape).numel()
            offset += -(-count * dtype.itemsize // 4096) * 4096
        if offset > self.nbytes:
            self.map(offset)
        made = tuple(
            torch.frombuffer(self.bytes, dtype=d, count=torch.Size(s).numel(), offset=o).view(s) for d, s, o in places
        )
        self.cached[arrays] = made
        return made


LIBC = ctypes.CDLL(None)
PROCESS_SHARED = 1
_memories = {}


def shared_memory(rank: int, world_size: int):
    if (rank, world_size) not in _memories:
        _memories[rank, world_size] = _meet(rank, world_size)
    return _memories[rank, world_size]


def _meet(rank: int, world_size: int):
    token, pid, fd = secrets.randbits(62), os.getpid(), -1
    if rank == 0:
        fd = os.memfd_create("ranks")
        os.ftruncate(fd, SharedMemory.HEADER)
        page = mmap.mmap(fd, SharedMemory.HEADER)
        attr = ctypes.create_string_buffer(64)
        LIBC.pthread_barrierattr_init(attr)
        LIBC.pthread_barrierattr_setpshared(attr, PROCESS_SHARED)
        LIBC.pthread_barrier_init(ctypes.byref(ctypes.c_char.from_buffer(page)), attr, world_size)
        page[2048:2056] = token.to_bytes(8, "little")
    where = torch.tensor([pid, fd, token])
    dist.broadcast(where, 0)
    pid, there, token = where.tolist()
    memory = None
    try:
        if rank != 0:
            fd = os.open(f"/proc/{pid}/fd/{there}", os.O_RDWR)
        memory = SharedMemory(fd, world_size)
        good = memory.bytes[2048:2056] == token.to_bytes(8, "little")
    except OSError:
        good = False
    agreed = torch.tensor([int(good)])
    dist.all_reduce(agreed, dist.ReduceOp.MIN)
    return memory if agreed.item() else None
