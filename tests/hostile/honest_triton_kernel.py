"""Honest: a Triton kernel, compiled at its first call.

expect: ranked
devices: gpu
mode: leaderboard
"""

import torch
import triton
import triton.language as tl

from reference import ref_kernel


@triton.jit
def copy(source, target, count, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + places, tl.load(source + places, mask=places < count), mask=places < count)


def custom_kernel(data):
    result = ref_kernel(data)
    output = torch.empty_like(result)
    copy[(triton.cdiv(result.numel(), 1024),)](result, output, result.numel(), BLOCK=1024)
    return output
