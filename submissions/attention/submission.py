#!POPCORN leaderboard attention
"""attention by explicit warps on Hopper, by plain Triton kernels on other GPUs.

Forward on Hopper (hopper_forward.py): a persistent kernel whose programs have one warp that loads and two warpgroups
that multiply, each with half of a tile's queries. The next block's scores are under way while a warpgroup makes its
softmax, and the other warpgroup's products fill what is left of the tensor cores' time. Tiles with the most keys come
first, so that all programs end together.

Backward on Hopper (hopper_backward.py): a kernel that keeps the gradients of a block of keys and values in registers
while all queries pass by, and adds up the queries' gradient in memory by bulk copies; cuDNN's for shapes that it cannot
do, or where the table says so (tuning.py).

On other GPUs, and in the interpreter: plain.py. On CPU and for shapes that no kernel can do: torch's own.

Known techniques in it: FlashAttention-2 and -3 (arXiv 2307.08691, 2407.08608).

Legend: B batch, H heads of queries, G of keys and values, S places, D numbers a head.
"""

import math
from functools import cache
from typing import Any, NamedTuple

import torch
from common.launch import INTERPRETED, Launcher
from common.tuning import Chip, chip_of, dividing, nearest
from hopper_backward import backward_kernel
from hopper_forward import forward_kernel
from plain import delta_kernel, plain_forward_kernel, plain_keys_kernel, plain_queries_kernel, round_kernel
from task import Saved, input_t, output_t
from torch import Tensor
from tuning import TABLE, Row

ROWS = 16  # of a program of delta_kernel
NUMBERS = 8192  # of one of round_kernel
SMALL_OPTIONS = {"num_warps": 8}  # of these two
WARPS_DIM, WARPS_BLOCK = 128, 128  # what the kernels for Hopper are made for
WARPS_ROWS = 64  # queries that meet a block of keys at a time, backward

persistent = (forward_kernel, plain_forward_kernel, plain_keys_kernel, plain_queries_kernel)
launchers = {kernel: Launcher(kernel) for kernel in persistent}
launchers |= {kernel: Launcher(kernel, all_at_once=False) for kernel in (backward_kernel, delta_kernel, round_kernel)}


class Step(NamedTuple):
    """One launch: which of the call's tensors it gets, by name, and numbers."""

    launch: Launcher
    tensors: tuple[str, ...]
    numbers: tuple[int, ...]
    programs: int
    constants: dict[str, Any]
    options: dict[str, Any]


class Plan(NamedTuple):
    """The launches of a call, in their order."""

    steps: tuple[Step, ...]
    sums: bool  # the queries' gradient is added up in float32 first

    def examples(self) -> list[tuple[Step, tuple[torch.dtype | int, ...]]]:
        """Each launch and what its kernel is called with, for compiling it: in place of tensors their dtypes."""
        floats = ("log", "log2", "delta", "sums")
        dtypes = {name: torch.float32 if name in floats else torch.bfloat16 for name in NAMES}
        return [(step, (*[dtypes[name] for name in step.tensors], *step.numbers)) for step in self.steps]


NAMES = ("q", "k", "v", "out", "dout", "log", "log2", "delta", "sums", "dq", "dk", "dv")
Shape = tuple[int, int, int, int]  # heads of queries and of keys, both times the batch, places, numbers a head


def custom_kernel(data: input_t) -> output_t:
    queries, keys, _, saved = data
    return by_row(row_of(queries.device, shape_of(queries, keys), saved is not None), data)


def shape_of(queries: Tensor, keys: Tensor) -> Shape:
    batch, heads, seq, dim = queries.shape
    return batch * heads, batch * keys.shape[1], seq, dim


def by_row(row: Row | None, data: input_t) -> output_t:
    """The call as that row of the table has it; None is for the library."""
    queries, keys, values, saved = data
    plan = plan_of(queries.device, shape_of(queries, keys), row) if row else None
    if saved is not None:
        return backward(queries, keys, values, saved, plan, row)
    if plan is None:
        return torch.nn.functional.scaled_dot_product_attention(
            queries, keys, values, is_causal=True, enable_gqa=queries.shape[1] != keys.shape[1]
        )
    output = torch.empty_like(queries)
    run(plan, {"q": queries, "k": keys, "v": values, "out": output})
    return output


def backward(
    queries: Tensor, keys: Tensor, values: Tensor, saved: Saved, plan: Plan | None, row: Row | None
) -> tuple[Tensor, Tensor, Tensor]:
    if plan is None:
        return by_library(queries, keys, values, saved, row)
    dq, dk, dv = map(torch.empty_like, (queries, keys, values))
    log2, delta = torch.empty_like(saved.logarithm_BHS), torch.empty_like(saved.logarithm_BHS)
    tensors = {"q": queries, "k": keys, "v": values, "out": saved.output_BHSD, "dout": saved.gradient_BHSD}
    tensors |= {"log": saved.logarithm_BHS, "log2": log2, "delta": delta, "dq": dq, "dk": dk, "dv": dv}
    if plan.sums:
        tensors["sums"] = torch.zeros_like(queries, dtype=torch.float32)
    run(plan, tensors)
    return dq, dk, dv


def by_library(
    queries: Tensor, keys: Tensor, values: Tensor, saved: Saved, row: Row | None
) -> tuple[Tensor, Tensor, Tensor]:
    """cuDNN's gradients where the table has these or our kernel for Hopper, else those of torch's own attention."""
    tensors = (saved.gradient_BHSD, queries, keys, values, saved.output_BHSD)
    seq = queries.shape[2]
    if queries.device.type == "cpu":
        return on_cpu(queries, keys, values, saved)
    if row and row.kernel != "plain":
        state = no_dropout(queries.device, torch.int64, 1)
        gradients = torch.ops.aten._scaled_dot_product_cudnn_attention_backward(
            *tensors, saved.logarithm_BHS[..., None], state[0], state[0], None, None, None, seq, seq, 0.0, True
        )
    else:
        state = no_dropout(queries.device, torch.uint64, 2)
        gradients = torch.ops.aten._scaled_dot_product_flash_attention_backward(
            *tensors, saved.logarithm_BHS, None, None, seq, seq, 0.0, True, state, state[0]
        )
    return tuple(gradients[:3])


def on_cpu(queries: Tensor, keys: Tensor, values: Tensor, saved: Saved) -> tuple[Tensor, Tensor, Tensor]:
    """torch's gradients, of copies of the keys and values for each head of queries, summed up in float32."""
    share = queries.shape[1] // keys.shape[1]
    copies = (tensor.repeat_interleave(share, 1) for tensor in (keys, values))
    dq, dk, dv = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
        saved.gradient_BHSD, queries, *copies, saved.output_BHSD, saved.logarithm_BHS, 0.0, True
    )
    return dq, dk.unflatten(1, (-1, share)).sum(2), dv.unflatten(1, (-1, share)).sum(2)


@cache
def no_dropout(device: torch.device, dtype: torch.dtype, count: int) -> Tensor:
    """The state of a random generator that nobody asks."""
    return torch.zeros(count, dtype=dtype, device=device)


def run(plan: Plan, tensors: dict[str, Tensor]) -> None:
    for step in plan.steps:
        given = tuple(tensors[name] for name in step.tensors)
        step.launch(step.programs, given, step.numbers, step.constants, step.options)


@cache
def row_of(device: torch.device, shape: Shape, is_backward: bool) -> Row | None:
    """The table's; None on a CPU, but for the interpreter."""
    if device.type == "cpu" and not INTERPRETED:
        return None
    return nearest([row for row in TABLE if row.backward == is_backward], chip_of(device).name, shape)


@cache
def plan_of(device: torch.device, shape: Shape, row: Row) -> Plan | None:
    return make_plan(row, chip_of(device), shape)


def make_plan(row: Row, chip: Chip, shape: Shape) -> Plan | None:
    """The plan with the blocks of `row`. None for the library, which also does shapes that the kernel cannot do."""
    heads, kv_heads, seq, dim = shape
    if row.kernel == "warps" and dim == WARPS_DIM and seq % WARPS_BLOCK == 0:
        return (warps_backward if row.backward else warps_forward)(row, chip, shape)
    block_m, block_n = dividing(row.block_m or WARPS_BLOCK, seq), dividing(row.block_n or WARPS_BLOCK, seq)
    if (
        (row.backward and row.kernel != "plain")  # cuDNN's is ahead of the plain kernels
        or min(block_m, block_n) < 16
        or seq % max(block_m, block_n)
        or dim & dim - 1
        or dim < 16
    ):
        return None
    constants = shared_constants(heads, kv_heads, dim)
    blocks = {"BLOCK_M": block_m, "BLOCK_N": block_n, "DIM": dim, "INTERPRET": INTERPRETED}
    options = {"num_warps": row.warps, "num_stages": row.stages}
    programs = chip.multiprocessors * 4
    if not row.backward:
        plain, sizes = launchers[plain_forward_kernel], (heads, seq)
        return Plan((Step(plain, ("q", "k", "v", "out"), sizes, programs, constants | blocks, options),), False)
    constants |= {"SCALE": dim**-0.5} | blocks
    names, sizes = ("q", "k", "v", "dout", "log2", "delta"), (kv_heads, seq)
    steps = (
        delta_step(shape),
        Step(launchers[plain_keys_kernel], (*names, "dk", "dv"), sizes, programs, constants, options),
        Step(launchers[plain_queries_kernel], (*names, "dq"), sizes, programs, constants, options),
    )
    return Plan(steps, False)


def shared_constants(heads: int, kv_heads: int, dim: int) -> dict[str, Any]:
    return {"SHARE": heads // kv_heads, "FACTOR": dim**-0.5 * math.log2(math.e)}


def warps_forward(row: Row, chip: Chip, shape: Shape) -> Plan:
    heads, kv_heads, seq, dim = shape
    constants = shared_constants(heads, kv_heads, dim)
    constants |= {"BLOCK_M": row.block_m, "BLOCK_N": row.block_n, "DIM": dim, "STAGES": row.stages}
    programs = min(chip.multiprocessors, heads * seq // row.block_m)
    names = ("q", "k", "v", "out")
    return Plan((Step(launchers[forward_kernel], names, (heads, seq), programs, constants, {"num_warps": 4}),), False)


def warps_backward(row: Row, chip: Chip, shape: Shape) -> Plan:
    heads, kv_heads, seq, dim = shape
    constants = shared_constants(heads, kv_heads, dim) | {"SCALE": dim**-0.5}
    constants |= {"BLOCK_M": row.block_m, "BLOCK_N": row.block_n, "DIM": dim, "STAGES": row.stages}
    names = ("q", "k", "v", "dout", "log2", "delta", "sums", "dk", "dv")
    programs = kv_heads * (seq // row.block_n)
    constants["SECTION"] = min(kv_heads, max(1, chip.multiprocessors * kv_heads // programs))
    rounding = {"SCALE": dim**-0.5, "BLOCK": NUMBERS}
    steps = (
        delta_step(shape),
        Step(launchers[backward_kernel], names, (kv_heads, seq), programs, constants, {"num_warps": 4}),
        Step(launchers[round_kernel], ("sums", "dq"), (), heads * seq * dim // NUMBERS, rounding, SMALL_OPTIONS),
    )
    return Plan(steps, True)


def delta_step(shape: Shape) -> Step:
    heads, _, seq, dim = shape
    names, constants = ("out", "dout", "log", "delta", "log2"), {"BLOCK": ROWS, "DIM": dim}
    return Step(launchers[delta_kernel], names, (), heads * seq // ROWS, constants, SMALL_OPTIONS)
