"""Honest: passes its data through memory that its ranks share, and signals there.

expect: ranked
devices: cpu
problem: ag_gemm
mode: leaderboard
"""

import mmap
import os
import time

import numpy as np
import torch
import torch.distributed as dist

BYTES = 1 << 20
state = {}


def shared():
    """A file in /dev/shm that has lost its name: a flag of 8 bytes and a block for each rank."""
    if not state:
        rank, world_size = dist.get_rank(), dist.get_world_size()
        names = [f"/dev/shm/honest-{os.getpid()}"]
        if rank == 0:
            with open(names[0], "xb") as file:
                file.truncate(world_size * BYTES)
        dist.broadcast_object_list(names, 0)
        with open(names[0], "r+b") as file:
            memory = mmap.mmap(file.fileno(), world_size * BYTES)
        dist.barrier()
        if rank == 0:
            os.unlink(names[0])
        blocks = np.frombuffer(memory, dtype=np.uint8).reshape(world_size, BYTES)
        state.update(flags=blocks[:, :8].view(np.int64), blocks=blocks, epoch=0)
    state["epoch"] += 1
    return state


def custom_kernel(data):
    input_mK, weight_nK, bias_n = data
    heap, rank = shared(), dist.get_rank()
    nbytes, half = input_mK.nbytes, 64 + heap["epoch"] % 2 * (BYTES // 2)
    heap["blocks"][rank, half : half + nbytes] = input_mK.view(torch.uint8).numpy().reshape(-1)
    heap["flags"][rank] = heap["epoch"]
    while (heap["flags"] < heap["epoch"]).any():
        time.sleep(0)
    bytes_MK = torch.from_numpy(heap["blocks"][:, half : half + nbytes].copy())
    input_MK = bytes_MK.view(input_mK.dtype).reshape(-1, input_mK.shape[1])
    output = input_MK.float() @ weight_nK.float().T
    return (output if bias_n is None else output + bias_n.float()).bfloat16()
