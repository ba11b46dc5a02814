"""Honest: torch's symmetric memory, written to by every rank, with barriers on the device.

expect: ranked
devices: gpu
problem: ag_gemm
mode: leaderboard
"""

import os

os.environ.setdefault("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric_memory

heaps = {}


def heap_of(like):
    world, key = dist.group.WORLD, (dist.group.WORLD, like.shape)
    if key not in heaps:
        if any(known is not world for known, _ in heaps):
            heaps.clear()  # of a process group that is gone
        local = symmetric_memory.empty(like.shape, dtype=like.dtype, device=like.device)
        heaps[key] = local, symmetric_memory.rendezvous(local, world)
    return heaps[key]


def custom_kernel(data):
    input_mK, weight_nK, bias_n = data
    local, handle = heap_of(input_mK)
    local.copy_(input_mK)
    handle.barrier(channel=0)
    blocks = [handle.get_buffer(peer, input_mK.shape, input_mK.dtype) for peer in range(dist.get_world_size())]
    input_MK = torch.cat(blocks)
    handle.barrier(channel=1)
    return torch.nn.functional.linear(input_MK, weight_nK, bias_n)
