"""A prompt's products on Hopper by explicit warps: one loads, two warpgroups multiply, and what follows a product is in
the same kernel, the norm ahead of the next one included.

A norm is a factor a token and one a column. Behind a product that is added to the residual stream, rows are written
once more, times the next norm's columns and in the weights' dtype, with each tile's sum of squares a token. The product
behind that multiplies these rows and then its result by the tokens' factor. So no kernel has to read a whole row in
between.

A program multiplies tile after tile. Its loading warp fills a ring of stages by bulk copies, also across tiles; weights
of the first stages before the kernel ahead has ended. common/warps.py has the ring; prompt.py has the same products in
plain Triton.

Legend: M tokens, N columns of a result, K depth.
"""

from typing import Any

from common.bulk import bulk_load, bulk_store, bulk_view
from common.warps import made_ring, multiplied, next_stage
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor


def bulk_descriptor(tensor: Tensor, block: list[int]) -> TensorDescriptor:
    """What a Gluon kernel copies blocks of a matrix by."""
    layout = gl.NVMMASharedLayout.get_default_for(block, gl.bfloat16)
    return TensorDescriptor(tensor, list(tensor.shape), list(tensor.stride()), block, layout)


@gluon.jit
def launch_next():
    """Lets the next kernel's programs start where there is room."""
    gl.inline_asm_elementwise(
        "griddepcontrol.launch_dependents; mov.b32 $0, 0;", "=r", [], dtype=gl.int32, is_pure=False, pack=1
    )


@gluon.jit
def wait_for_kernel_before():
    gl.inline_asm_elementwise(
        "griddepcontrol.wait; mov.b32 $0, 0;", "=r,~{memory}", [], dtype=gl.int32, is_pure=False, pack=1
    )


def squares_layout(parts: int) -> Any:
    """Of [64, parts] sums of squares, at least 8 a row: neighbouring numbers in a thread, a row's threads as those of a
    product's row. So their sum is where the product's row is."""
    wide = [[0, 16 << bit] for bit in range((parts // 16).bit_length() - 1)]
    lanes = [[0, 4], [0, 8 if parts > 8 else 0], [1, 0], [2, 0], [4, 0]]
    return gl.DistributedLinearLayout([[0, 1], [0, 2], *wide, [8, 0]], lanes, [[16, 0], [32, 0]], [], [64, parts])


@gluon.jit
def silu(x):
    """x / (1 + exp(-x)) by the approximations of the unit for exponentials, which few instructions are needed for."""
    return gl.inline_asm_elementwise(
        "{ .reg .f32 t; mul.f32 t, $1, 0fBFB8AA3B; ex2.approx.ftz.f32 t, t; add.f32 t, t, 0f3F800000;"
        " rcp.approx.ftz.f32 t, t; mul.f32 $0, $1, t; }",
        "=f,f",
        [x],
        dtype=gl.float32,
        is_pure=True,
        pack=1,
    )


@gluon.jit
def load_weights(b_desc, b_ring, full, slot, column, depth, N: gl.constexpr, SWIGLU: gl.constexpr):
    """The weights of a stage: with SWIGLU, gates and then ups."""
    block = b_ring.index(slot)
    if SWIGLU:
        HALF_N: gl.constexpr = b_desc.block_type.shape[0]
        DEPTH: gl.constexpr = b_desc.block_type.shape[1]
        halves = bulk_view(block, gl.bfloat16, [2, HALF_N, DEPTH], b_desc.layout)
        bulk_load(b_desc, [column, depth], full, halves.index(0))
        bulk_load(b_desc, [N + column, depth], full, halves.index(1))
    else:
        bulk_load(b_desc, [column, depth], full, block)


@gluon.jit
def load_stages(
    descs,
    rings,
    M,
    N: gl.constexpr,
    K: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    STAGES: gl.constexpr,
    SWIGLU: gl.constexpr,
):
    """The loading warp."""
    a_desc, b_desc = descs
    a_ring, b_ring, filled, emptied = rings
    tiles_m, columns = gl.cdiv(M, BLOCK_M), BLOCK_N // 2 if SWIGLU else BLOCK_N
    tiles = tiles_m * (N // columns)
    nbytes: gl.constexpr = (BLOCK_M + BLOCK_N) * BLOCK_K * 2
    for stage in gl.static_range(STAGES):
        mbarrier.expect(filled.index(stage), nbytes)
        column = gl.program_id(0) // tiles_m * columns
        load_weights(b_desc, b_ring, filled.index(stage), stage, column, stage * BLOCK_K, N, SWIGLU)
    wait_for_kernel_before()
    slot, phase, count = gl.program_id(0) * 0, gl.program_id(0) * 0 + 1, gl.program_id(0) * 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        row, column = tile % tiles_m * BLOCK_M, tile // tiles_m * columns
        for depth in range(0, K, BLOCK_K):
            full = filled.index(slot)
            if count >= STAGES:
                mbarrier.wait(emptied.index(slot), phase)
                mbarrier.expect(full, nbytes)
                load_weights(b_desc, b_ring, full, slot, column, depth, N, SWIGLU)
            bulk_load(a_desc, [row, depth], full, a_ring.index(2 * slot))
            bulk_load(a_desc, [row + BLOCK_M // 2, depth], full, a_ring.index(2 * slot + 1))
            slot, phase = next_stage(slot, phase, STAGES)
            count += 1


@gluon.jit
def places(row, column, M, N: gl.constexpr, ROWS: gl.constexpr, COLUMNS: gl.constexpr, layout: gl.constexpr):
    """Of a tile of [M, N]: its rows and columns, where its elements are, and which rows there are."""
    m = row + gl.arange(0, ROWS, layout=gl.SliceLayout(1, layout))
    n = column + gl.arange(0, COLUMNS, layout=gl.SliceLayout(0, layout))
    return m, n, gl.expand_dims(m * N, 1) + gl.expand_dims(n, 0), gl.expand_dims(m < M, 1)


@gluon.jit
def multiply_stages(
    rings,
    out_desc,
    out_s,
    norms,
    M,
    eps,
    N: gl.constexpr,
    K: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    STAGES: gl.constexpr,
    SWIGLU: gl.constexpr,
    ADD: gl.constexpr,
    PARTS: gl.constexpr,
    LEAD: gl.constexpr,
    PARTS_LAYOUT: gl.constexpr,
    MINE: gl.constexpr,
):
    """A warpgroup: its half of every tile's rows."""
    a_ring, b_ring, filled, emptied = rings
    x_ptr, norm_ptr, squares_ptr = norms
    HALF: gl.constexpr = BLOCK_M // 2
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, BLOCK_N, 16]
    )
    tiles_m, columns = gl.cdiv(M, BLOCK_M), BLOCK_N // 2 if SWIGLU else BLOCK_N
    tiles = tiles_m * (N // columns)
    slot, phase = gl.program_id(0) * 0, gl.program_id(0) * 0
    wait_for_kernel_before()
    if MINE * LEAD > 0:  # stays that far behind the other one, which multiplies while this one ends a tile
        mbarrier.wait(filled.index(LEAD), phase)
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        row, column = tile % tiles_m * BLOCK_M + MINE * HALF, tile // tiles_m * columns
        # What is needed behind the product is loaded before it.
        if ADD:
            m, n, place, inside = places(row, column, M, N, HALF, BLOCK_N, layout)
            before, next_norm = gl.load(x_ptr + place, mask=inside, other=0.0), gl.load(norm_ptr + n)
        elif PARTS > 0:
            token = row + gl.arange(0, HALF, layout=gl.SliceLayout(1, PARTS_LAYOUT))
            part = gl.arange(0, PARTS, layout=gl.SliceLayout(0, PARTS_LAYOUT))
            squares_at = gl.expand_dims(token * PARTS, 1) + gl.expand_dims(part, 0)
            squares = gl.load(squares_ptr + squares_at, mask=gl.expand_dims(token < M, 1), other=0.0)
        acc = gl.zeros((HALF, BLOCK_N), gl.float32, layout)
        acc, slot, phase = multiplied(a_ring, b_ring, filled, emptied, acc, K // BLOCK_K, slot, phase, MINE, STAGES)
        if ADD:
            acc += before
            gl.store(x_ptr + place, acc, mask=inside)
            gl.store(squares_ptr + m * (N // BLOCK_N) + column // BLOCK_N, gl.sum(acc * acc, 1), mask=m < M)
            acc = acc * gl.expand_dims(next_norm.to(gl.float32), 0)
        elif PARTS > 0:
            total = gl.convert_layout(gl.sum(squares, 1), gl.SliceLayout(1, layout))
            acc = acc * gl.expand_dims(gl.rsqrt(total / K + eps), 1)
        if SWIGLU:
            gate, up = acc.reshape((HALF, 2, BLOCK_N // 2)).permute((0, 2, 1)).split()
            rounded = (silu(gate) * up).to(gl.bfloat16)
        else:
            rounded = acc.to(gl.bfloat16)
        tma.store_wait(0)
        out_s.store(rounded)
        fence_async_shared()
        bulk_store(out_desc, [row, column], out_s)
    tma.store_wait(0)


@gluon.jit
def multiply_warps(
    a_desc,  # bf16 [M, K], in blocks [BLOCK_M / 2, BLOCK_K]
    b_desc,  # bf16 [N, K] (SWIGLU: [2 N, K]: gates, then ups), in blocks [columns, BLOCK_K]
    out_desc,  # bf16 [M, N], in blocks [BLOCK_M / 2, columns]
    x_ptr,  # ADD: float32 [M, N], the residual stream
    norm_ptr,  # ADD: bf16 [N], the next norm's
    squares_ptr,  # float32 [M, parts of a row]: sums of squares, which ADD writes and PARTS says how many to read
    M,
    eps,
    N: gl.constexpr,
    K: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    STAGES: gl.constexpr,
    SWIGLU: gl.constexpr,
    ADD: gl.constexpr,
    PARTS: gl.constexpr,
    LEAD: gl.constexpr,
    PARTS_LAYOUT: gl.constexpr,  # squares_layout(PARTS)
):
    """out = a b^T times each token's factor of the norm, which with PARTS 0 is 1; with SWIGLU, silu of the gates' half
    times the ups'; with ADD, x += a b^T, and out = x times the norm's columns. LEAD: by how many stages the second
    warpgroup begins later than the first."""
    launch_next()
    rings = made_ring(BLOCK_M, BLOCK_N, BLOCK_K, STAGES)
    top = gl.allocate_shared_memory(gl.bfloat16, out_desc.block_type.shape, out_desc.layout)
    low = gl.allocate_shared_memory(gl.bfloat16, out_desc.block_type.shape, out_desc.layout)
    fence_async_shared()
    norms = (x_ptr, norm_ptr, squares_ptr)
    gl.warp_specialize(
        [
            (multiply_stages, (
                rings, out_desc, top, norms, M, eps, N, K, BLOCK_M, BLOCK_N, BLOCK_K, STAGES, SWIGLU, ADD, PARTS,
                LEAD, PARTS_LAYOUT, 0,
            )),
            (multiply_stages, (
                rings, out_desc, low, norms, M, eps, N, K, BLOCK_M, BLOCK_N, BLOCK_K, STAGES, SWIGLU, ADD, PARTS,
                LEAD, PARTS_LAYOUT, 1,
            )),
            (load_stages, ((a_desc, b_desc), rings, M, N, K, BLOCK_M, BLOCK_N, BLOCK_K, STAGES, SWIGLU)),
        ],
        [4, 1],
        [240, 24],
    )  # fmt: skip
