"""A decode step's products for one sequence on Hopper: weights are copied ahead into shared memory, whatever the step
waits for.

About as many programs as multiprocessors share a kernel's rows, in tiles of ROWS, in turn. In shared memory a program
has a ring of SLOTS tiles, which it fills before it waits for the kernel ahead of it (programmatic dependent launch),
and then refills as soon as a tile is in registers. So memory stays busy while the residual stream is summed up, loaded
and normalised, and what a program does per kernel (its norm, its row of activations) it does once and not once a tile.
Registers hold one tile, so that programs of two or three kernels have room on a multiprocessor: the next one's ring
fills while this one empties.

Every thread copies, and later reads, the same 16 bytes, so a tile needs no barrier to be complete. Weights go through
registers as 32-bit words of two bf16 each, and what they are multiplied by is there as two vectors, of the even columns
and of the odd ones. streaming.py has the same kernels in plain Triton, for several sequences.

Legend: R rows of a tile, K columns, W = K / 2 words of a row.
"""

from common.bulk import copy_ahead
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy


@gluon.jit
def begin():
    """Lets the next kernel's programs start, and waits until the kernel before is done."""
    gl.inline_asm_elementwise(
        "griddepcontrol.launch_dependents; griddepcontrol.wait; mov.b32 $0, 0;",
        "=r,~{memory}",
        [],
        dtype=gl.int32,
        is_pure=False,
        pack=1,
    )


@gluon.jit
def unpacked(words):
    """The bf16 numbers in 32-bit words as float32: those at even columns, those at odd ones."""
    return (words << 16).to(gl.float32, bitcast=True), (words & -65536).to(gl.float32, bitcast=True)


@gluon.jit
def normed(x_ptr, norm_words, at_W, eps, K: gl.constexpr):
    """The residual stream, normalised: its even columns, its odd ones."""
    both_W = gl.load(x_ptr.to(gl.pointer_type(gl.int64), bitcast=True) + at_W)
    even_W = both_W.to(gl.int32).to(gl.float32, bitcast=True)
    odd_W = (both_W >> 32).to(gl.int32).to(gl.float32, bitcast=True)
    scale = gl.rsqrt(gl.sum(even_W * even_W + odd_W * odd_W, 0) / K + eps)
    norm_even_W, norm_odd_W = unpacked(norm_words)
    return even_W * scale * norm_even_W, odd_W * scale * norm_odd_W


@gluon.jit
def product(words_RW, even_W, odd_W):
    """[R] float32."""
    even_RW, odd_RW = unpacked(words_RW)
    return gl.sum(even_RW * gl.expand_dims(even_W, 0) + odd_RW * gl.expand_dims(odd_W, 0), 1)


@gluon.jit
def fill(ring, place, words, row, offset_RW, ahead, K: gl.constexpr):
    """Copies rows of weights, from `row` on, into a place of the ring, if `ahead`."""
    copy_ahead(ring.index(place), words + row * (K // 2) + offset_RW, mask=(offset_RW >= 0) & ahead)


@gluon.jit
def ring_project(
    x_ptr,  # float32 [K]
    norm_ptr,  # bf16 [K]
    w_ptr,  # bf16 [(H + 2 G) D, K]: queries, keys, values
    turn_ptr,  # float32 [length, D]: cosines, then sines, of each pair
    at_ptr,  # int32: the token's position
    q_ptr,  # bf16 [H, D]
    k_ptr,  # bf16 [G, length, D], as v
    v_ptr,
    eps,
    K: gl.constexpr,
    H: gl.constexpr,
    G: gl.constexpr,
    D: gl.constexpr,
    LENGTH: gl.constexpr,
    ROWS: gl.constexpr,
    SLOTS: gl.constexpr,
    COLUMNS: gl.constexpr,  # warps that share a row
):
    """Norm, queries, keys and values of one token, turned by its position; keys and values go into the cache. A tile is
    ROWS pairs (d, d + D / 2) of a head."""
    HALF: gl.constexpr = D // 2
    TILES: gl.constexpr = (H + 2 * G) * HALF // ROWS
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [1, 32], [gl.num_warps() // COLUMNS, COLUMNS], [1, 0])
    linear: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    ring = gl.allocate_shared_memory(gl.int32, [2 * SLOTS, ROWS, K // 2], linear)
    words = w_ptr.to(gl.pointer_type(gl.int32), bitcast=True)
    row_R = gl.arange(0, ROWS, layout=gl.SliceLayout(1, layout))
    at_W = gl.arange(0, K // 2, layout=gl.SliceLayout(0, layout))
    offset_RW = gl.expand_dims(row_R * (K // 2), 1) + gl.expand_dims(at_W, 0)
    first, step = gl.program_id(0), gl.num_programs(0)
    for early in gl.static_range(SLOTS):
        tile = first + early * step
        row = tile * ROWS // HALF * D + tile * ROWS % HALF
        fill(ring, 2 * early, words, row, offset_RW, tile < TILES, K)
        fill(ring, 2 * early + 1, words, row + HALF, offset_RW, tile < TILES, K)
        async_copy.commit_group()
    norm_words = gl.load(norm_ptr.to(gl.pointer_type(gl.int32), bitcast=True) + at_W)
    begin()
    position = gl.load(at_ptr)
    even_W, odd_W = normed(x_ptr, norm_words, at_W, eps, K)
    for index in range((TILES - first + step - 1) // step):
        slot, tile = index % SLOTS, first + index * step
        head, pair_R = tile * ROWS // HALF, tile * ROWS % HALF + row_R
        cos_R = gl.load(turn_ptr + position * D + pair_R)
        sin_R = gl.load(turn_ptr + position * D + HALF + pair_R)
        async_copy.wait_group(SLOTS - 1)
        words_RW = ring.index(2 * slot).load(layout)
        other_RW = ring.index(2 * slot + 1).load(layout)
        later = tile + SLOTS * step
        row = later * ROWS // HALF * D + later * ROWS % HALF
        fill(ring, 2 * slot, words, row, offset_RW, later < TILES, K)
        fill(ring, 2 * slot + 1, words, row + HALF, offset_RW, later < TILES, K)
        async_copy.commit_group()
        one_R, other_R = product(words_RW, even_W, odd_W), product(other_RW, even_W, odd_W)
        turned_R = one_R * cos_R - other_R * sin_R
        turned_other_R = other_R * cos_R + one_R * sin_R
        one_R = gl.where(head < H + G, turned_R, one_R).to(gl.bfloat16)
        other_R = gl.where(head < H + G, turned_other_R, other_R).to(gl.bfloat16)
        if head < H:
            gl.store(q_ptr + head * D + pair_R, one_R)
            gl.store(q_ptr + head * D + HALF + pair_R, other_R)
        elif head < H + G:
            to_R = ((head - H) * LENGTH + position) * D + pair_R
            gl.store(k_ptr + to_R, one_R)
            gl.store(k_ptr + to_R + HALF, other_R)
        else:
            to_R = ((head - H - G) * LENGTH + position) * D + pair_R
            gl.store(v_ptr + to_R, one_R)
            gl.store(v_ptr + to_R + HALF, other_R)


@gluon.jit
def ring_gate_up(
    x_ptr,  # float32 [K]
    norm_ptr,  # bf16 [K]
    w_ptr,  # bf16 [2 F, K]: gates, then ups
    out_ptr,  # bf16 [F]
    eps,
    K: gl.constexpr,
    F: gl.constexpr,
    ROWS: gl.constexpr,
    SLOTS: gl.constexpr,
    COLUMNS: gl.constexpr,
):
    """Norm, both products, silu(gate) * up. A tile is ROWS gates and their ups."""
    TILES: gl.constexpr = F // ROWS
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [1, 32], [gl.num_warps() // COLUMNS, COLUMNS], [1, 0])
    linear: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    ring = gl.allocate_shared_memory(gl.int32, [2 * SLOTS, ROWS, K // 2], linear)
    words = w_ptr.to(gl.pointer_type(gl.int32), bitcast=True)
    row_R = gl.arange(0, ROWS, layout=gl.SliceLayout(1, layout))
    at_W = gl.arange(0, K // 2, layout=gl.SliceLayout(0, layout))
    offset_RW = gl.expand_dims(row_R * (K // 2), 1) + gl.expand_dims(at_W, 0)
    first, step = gl.program_id(0), gl.num_programs(0)
    for early in gl.static_range(SLOTS):
        tile = first + early * step
        fill(ring, 2 * early, words, tile * ROWS, offset_RW, tile < TILES, K)
        fill(ring, 2 * early + 1, words, F + tile * ROWS, offset_RW, tile < TILES, K)
        async_copy.commit_group()
    norm_words = gl.load(norm_ptr.to(gl.pointer_type(gl.int32), bitcast=True) + at_W)
    begin()
    even_W, odd_W = normed(x_ptr, norm_words, at_W, eps, K)
    for index in range((TILES - first + step - 1) // step):
        slot, tile = index % SLOTS, first + index * step
        async_copy.wait_group(SLOTS - 1)
        gate_RW = ring.index(2 * slot).load(layout)
        up_RW = ring.index(2 * slot + 1).load(layout)
        later = tile + SLOTS * step
        fill(ring, 2 * slot, words, later * ROWS, offset_RW, later < TILES, K)
        fill(ring, 2 * slot + 1, words, F + later * ROWS, offset_RW, later < TILES, K)
        async_copy.commit_group()
        gate_R, up_R = product(gate_RW, even_W, odd_W), product(up_RW, even_W, odd_W)
        inner_R = gate_R / (1 + gl.exp(-gate_R)) * up_R
        gl.store(out_ptr + tile * ROWS + row_R, inner_R.to(gl.bfloat16))


@gluon.jit
def ring_add_product(
    x_ptr,  # float32 [N]
    a_ptr,  # bf16 [K]
    w_ptr,  # bf16 [N, K]
    N: gl.constexpr,
    K: gl.constexpr,
    ROWS: gl.constexpr,
    SLOTS: gl.constexpr,
    COLUMNS: gl.constexpr,
):
    """x += a w^T."""
    TILES: gl.constexpr = N // ROWS
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [1, 32], [gl.num_warps() // COLUMNS, COLUMNS], [1, 0])
    linear: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    ring = gl.allocate_shared_memory(gl.int32, [SLOTS, ROWS, K // 2], linear)
    words = w_ptr.to(gl.pointer_type(gl.int32), bitcast=True)
    row_R = gl.arange(0, ROWS, layout=gl.SliceLayout(1, layout))
    at_W = gl.arange(0, K // 2, layout=gl.SliceLayout(0, layout))
    offset_RW = gl.expand_dims(row_R * (K // 2), 1) + gl.expand_dims(at_W, 0)
    first, step = gl.program_id(0), gl.num_programs(0)
    for early in gl.static_range(SLOTS):
        tile = first + early * step
        fill(ring, early, words, tile * ROWS, offset_RW, tile < TILES, K)
        async_copy.commit_group()
    begin()
    even_W, odd_W = unpacked(gl.load(a_ptr.to(gl.pointer_type(gl.int32), bitcast=True) + at_W))
    for index in range((TILES - first + step - 1) // step):
        slot, tile = index % SLOTS, first + index * step
        x_R = gl.load(x_ptr + tile * ROWS + row_R)  # before all that takes its time
        async_copy.wait_group(SLOTS - 1)
        words_RW = ring.index(slot).load(layout)
        later = tile + SLOTS * step
        fill(ring, slot, words, later * ROWS, offset_RW, later < TILES, K)
        async_copy.commit_group()
        gl.store(x_ptr + tile * ROWS + row_R, x_R + product(words_RW, even_W, odd_W))


@gluon.jit
def ring_logits(
    x_ptr,  # float32 [K]
    norm_ptr,  # bf16 [K]
    w_ptr,  # bf16 [N, K]
    out_ptr,  # float32 [N]
    at_ptr,  # int32
    moved,  # how far the position moves, once all that need it are done
    eps,
    N: gl.constexpr,
    K: gl.constexpr,
    ROWS: gl.constexpr,
    SLOTS: gl.constexpr,
    COLUMNS: gl.constexpr,
):
    """The last norm and product."""
    TILES: gl.constexpr = N // ROWS
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [1, 32], [gl.num_warps() // COLUMNS, COLUMNS], [1, 0])
    linear: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    ring = gl.allocate_shared_memory(gl.int32, [SLOTS, ROWS, K // 2], linear)
    words = w_ptr.to(gl.pointer_type(gl.int32), bitcast=True)
    row_R = gl.arange(0, ROWS, layout=gl.SliceLayout(1, layout))
    at_W = gl.arange(0, K // 2, layout=gl.SliceLayout(0, layout))
    offset_RW = gl.expand_dims(row_R * (K // 2), 1) + gl.expand_dims(at_W, 0)
    first, step = gl.program_id(0), gl.num_programs(0)
    for early in gl.static_range(SLOTS):
        tile = first + early * step
        fill(ring, early, words, tile * ROWS, offset_RW, tile < TILES, K)
        async_copy.commit_group()
    norm_words = gl.load(norm_ptr.to(gl.pointer_type(gl.int32), bitcast=True) + at_W)
    begin()
    even_W, odd_W = normed(x_ptr, norm_words, at_W, eps, K)
    for index in range((TILES - first + step - 1) // step):
        slot, tile = index % SLOTS, first + index * step
        async_copy.wait_group(SLOTS - 1)
        words_RW = ring.index(slot).load(layout)
        later = tile + SLOTS * step
        fill(ring, slot, words, later * ROWS, offset_RW, later < TILES, K)
        async_copy.commit_group()
        gl.store(out_ptr + tile * ROWS + row_R, product(words_RW, even_W, odd_W))
    if first == 0:
        gl.store(at_ptr, gl.load(at_ptr) + moved)
