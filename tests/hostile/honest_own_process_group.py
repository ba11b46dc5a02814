"""Honest: makes a process group of its own.

expect: ranked
problem: ag_gemm
mode: leaderboard
"""

import torch
import torch.distributed as dist

groups = {}


def custom_kernel(data):
    input_mK, weight_nK, bias_n = data
    world = dist.group.WORLD
    if world not in groups:
        groups.clear()
        groups[world] = dist.new_group()
    blocks = [torch.empty_like(input_mK) for _ in range(dist.get_world_size())]
    dist.all_gather(blocks, input_mK, group=groups[world])
    output = torch.cat(blocks).float() @ weight_nK.float().T
    return (output if bias_n is None else output + bias_n.float()).bfloat16()
