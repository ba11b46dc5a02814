"""What gemm_rs and ag_gemm have in common: in their kernels the order of tiles and the product of one; and a product by
the library.

Operands are row-major with the depth last, [rows, K] and [columns, K], and are read through tensor descriptors (bulk
copies on NVIDIA from Hopper on; plain loads elsewhere), so edges need no masks. Weights that a kernel reads once may be
read by pointers instead.
"""

import torch
import triton
import triton.language as tl
from common.signals import arrive
from torch import Tensor

MOST_SPLIT = tl.constexpr(1024)  # tiles of a product whose depth programs share

_workspaces: dict[tuple[torch.device, int], Tensor] = {}


def multiply(input_MK: Tensor, weight_NK: Tensor, bias_N: Tensor | None, output_MN: Tensor) -> None:
    """`output_MN` becomes the product, by the device's library."""
    if bias_N is None:
        torch.mm(input_MK, weight_NK.T, out=output_MN)
    else:
        torch.addmm(bias_N, input_MK, weight_NK.T, out=output_MN)


def shared(split: int, tiles: int, block_m: int, block_n: int) -> tuple[int, int]:
    """Among how many programs the depth of each of these tiles may be shared, at most `split`; and the float32 of the
    workspace that `joined` then needs."""
    if split == 1 or tiles > MOST_SPLIT.value:
        return 1, 0
    return split, MOST_SPLIT.value + tiles * split * block_m * block_n


def workspace(device: torch.device, count: int, stream: int = 0) -> Tensor:
    """This device's float32 for programs that share a tile's depth, at least so many, zeros at first. What they leave
    there the next launch on the same stream finds. Launches on two streams may run at the same time: `stream` tells
    them apart where ranks do not."""
    made = _workspaces.get((device, stream))
    if made is None or made.numel() < count:  # at every call; len() of a tensor takes a microsecond
        made = _workspaces[device, stream] = torch.zeros(max(1, count), device=device)
    return made


@triton.jit
def share_of(part, steps, SPLIT: tl.constexpr):
    """The first step of a part of a tile's depth, and the one behind its last."""
    first = part * tl.cdiv(steps, SPLIT)
    return first, min(steps, first + tl.cdiv(steps, SPLIT))


@triton.jit
def joined(
    acc,
    tile,
    part,
    work_ptr,  # float32: as int32 [MOST_SPLIT], 0; behind them [tiles, SPLIT, BLOCK_M, BLOCK_N]
    SPLIT: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    AMD: tl.constexpr,
):
    """The product of a tile of which SPLIT programs make a part of the depth each, and whether it is complete: to the
    last of them it is, who adds all up in float32, in the same order whoever is last."""
    inside = tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    sums = work_ptr + MOST_SPLIT + tile * (SPLIT * BLOCK_M * BLOCK_N) + inside
    tl.store(sums + part * (BLOCK_M * BLOCK_N), acc)
    counter = tl.cast(work_ptr, tl.pointer_type(tl.int32)) + tile
    complete = arrive(counter, AMD) == SPLIT - 1
    if complete:
        tl.store(counter, 0)  # for the next call
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for other in range(SPLIT):
            acc += tl.load(sums + other * (BLOCK_M * BLOCK_N))
    return acc, complete


@triton.jit
def swizzled(index, tiles_m, tiles_n, GROUP: tl.constexpr):
    """Row and column of the tile at `index`: column by column within GROUP rows of tiles, so that the tiles that run
    at the same time share operands in the L2."""
    first = index // (GROUP * tiles_n) * GROUP
    rows = min(tiles_m - first, GROUP)
    inside = index % (GROUP * tiles_n)
    return first + inside % rows, inside // rows


@triton.jit
def first_row(tile_m, m, BLOCK_M: tl.constexpr):
    """Where a row of tiles begins among a rank's m >= BLOCK_M rows. The last one is moved back so that it ends with
    them. The rows that it shares with the one before are computed twice, with the same bits: it does not matter which
    of the two stores them last, nor whether they are read between both."""
    return min(tile_m * BLOCK_M, m - BLOCK_M)


@triton.jit
def bf16_at(block, offset):
    """A pointer to the bf16 that lie `offset` bytes, a multiple of 16, behind the address of a block of the heap."""
    return tl.multiple_of(tl.cast(block + offset, tl.pointer_type(tl.bfloat16)), 16)


@triton.jit
def bias_row(bias_ptr, column, columns, BLOCK_N: tl.constexpr):
    """float32 [1, BLOCK_N]: the bias from that column on, 0 beyond all `columns`."""
    places = column + tl.arange(0, BLOCK_N)
    return tl.load(bias_ptr + places, mask=places < columns, other=0.0).to(tl.float32)[None, :]


@triton.jit
def product(
    a_desc,
    b,
    row,
    column,
    first,
    last,
    acc,
    BLOCK_K: tl.constexpr,
    INTERPRET: tl.constexpr,
    READ_ONCE: tl.constexpr = False,
    columns=0,
    K=0,
):
    """`acc` + the product of the blocks that begin at `row` of a and `column` of b, over depths first to last - 1 in
    units of BLOCK_K. `b` is a descriptor or, with READ_ONCE, a pointer to [columns, K], where K is a multiple of
    BLOCK_K: a launch's window for what is read once counts for ordinary copies alone."""
    if READ_ONCE:  # rows behind the last are that one again
        places = tl.minimum(column + tl.arange(0, acc.shape[1]), columns - 1)
        b_rows = b + places.to(tl.int64)[:, None] * K
    for step in tl.range(first, last):
        a = a_desc.load([row, step * BLOCK_K])
        if READ_ONCE:
            b_block = tl.load(b_rows + (step * BLOCK_K + tl.arange(0, BLOCK_K))[None, :])
        else:
            b_block = b.load([column, step * BLOCK_K])
        if INTERPRET:  # whose bf16 arithmetic is wrong
            a = a.to(tl.float32)
            b_block = b_block.to(tl.float32)
        acc = tl.dot(a, b_block.T, acc)
    return acc


@triton.jit
def prefetch_rows(ptr, row, rows, column, K, depth, BLOCK: tl.constexpr, BULK: tl.constexpr):
    """Asks the L2 for `depth` elements (a multiple of 8, as `column` is) from there on of BLOCK rows of [rows, K] bf16,
    while there is nothing better to do."""
    if BULK:
        places = tl.minimum(row + tl.arange(0, BLOCK), rows - 1)
        addresses = (ptr + places.to(tl.int64) * K + column).to(tl.int64)
        tl.inline_asm_elementwise(
            "cp.async.bulk.prefetch.L2.global [$1], $2; mov.b32 $0, 0;",
            "=r,l,r",
            [addresses, tl.minimum(K - column, depth) * 2],
            tl.int32,
            False,
            1,
        )


@triton.jit
def as_bf16(values, INTERPRET: tl.constexpr):
    """float32 rounded to bf16: to the nearest, also in the interpreter, which would cut off."""
    if INTERPRET:
        bits = values.to(tl.uint32, bitcast=True)
        values = (bits + 0x7FFF + ((bits >> 16) & 1)).to(tl.float32, bitcast=True)
    return values.to(tl.bfloat16)


@triton.jit
def spread_over_dies(program, programs, DIES: tl.constexpr):
    """Renumbers programs so that neighbours run on one die of a GPU whose dies (XCDs) get programs in turn: they then
    share its L2."""
    if DIES > 1:
        program = program % DIES * (programs // DIES) + program // DIES
    return program
