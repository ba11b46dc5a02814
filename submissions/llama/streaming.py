"""Kernels of one decode step: products whose weights stream once through the device, and attention over the cache.

A step moves 2.5 GB of weights and does little else, so every kernel is a matrix by few vectors: a program loads a tile
of weights, all of it at once, and only then waits for the kernel before it (programmatic dependent launch), whose last
programs still run. So memory stays busy between kernels. The residual stream is float32.

Legend: B sequences, C hidden, F ffn, V vocabulary, H heads, G key heads, D head_dim, S parts of the cache.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

LEAST = tl.constexpr(-1e30)  # a logit that is left out; -inf less -inf is no number


@triton.jit
def begin(EARLY: tl.constexpr):
    """Lets the next kernel's programs start, and waits until the kernel before is done."""
    if EARLY:
        gdc_launch_dependents()
        gdc_wait()


@triton.jit
def normed(x_ptr, norm_ptr, eps, C: tl.constexpr):
    """A row of the residual stream, normalised, [C] float32."""
    at = tl.arange(0, C)
    x_C = tl.load(x_ptr + at)
    return x_C * tl.rsqrt(tl.sum(x_C * x_C, 0) / C + eps) * tl.load(norm_ptr + at).to(tl.float32)


@triton.jit
def embed(token_ptr, table_ptr, x_ptr, C: tl.constexpr):
    """x = the token's row of the table, in float32; a program a token."""
    row, at = tl.program_id(0), tl.arange(0, C)
    token = tl.load(token_ptr + row)
    tl.store(x_ptr + row * C + at, tl.load(table_ptr + token * C + at).to(tl.float32))


@triton.jit
def project(
    x_ptr,
    stride,  # of x, between sequences
    norm_ptr,
    w_ptr,  # [(H + 2 G) D, C]: queries, keys, values
    turn_ptr,  # [length, D] float32: cosines, then sines, of each pair
    at_ptr,  # the token's position
    q_ptr,  # [B, H, D]
    k_ptr,  # [B, G, length, D], as v
    v_ptr,
    eps,
    B: tl.constexpr,
    C: tl.constexpr,
    H: tl.constexpr,
    G: tl.constexpr,
    D: tl.constexpr,
    LENGTH: tl.constexpr,
    PAIRS: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Norm, queries, keys and values of one token of each sequence, turned by its position; keys and values go into the
    cache. A program has PAIRS pairs (d, d + D / 2) of a head."""
    parts: tl.constexpr = D // 2 // PAIRS
    head = tl.program_id(0) // parts
    pair = tl.program_id(0) % parts * PAIRS + tl.arange(0, PAIRS)
    rows = w_ptr + (head * D + pair)[:, None] * C + tl.arange(0, C)[None, :]
    first_PC = tl.load(rows)
    second_PC = tl.load(rows + D // 2 * C)
    begin(EARLY)
    position = tl.load(at_ptr)
    cos_P = tl.load(turn_ptr + position * D + pair)
    sin_P = tl.load(turn_ptr + position * D + D // 2 + pair)
    for b in tl.static_range(B):
        x_C = normed(x_ptr + b * stride, norm_ptr, eps, C)
        first_P = tl.sum(first_PC.to(tl.float32) * x_C[None, :], 1)
        second_P = tl.sum(second_PC.to(tl.float32) * x_C[None, :], 1)
        if head < H + G:
            turned_P = first_P * cos_P - second_P * sin_P
            second_P = second_P * cos_P + first_P * sin_P
            first_P = turned_P
        if head < H:
            to = q_ptr + (b * H + head) * D + pair
        elif head < H + G:
            to = k_ptr + ((b * G + head - H) * LENGTH + position) * D + pair
        else:
            to = v_ptr + ((b * G + head - H - G) * LENGTH + position) * D + pair
        tl.store(to, first_P.to(q_ptr.dtype.element_ty))
        tl.store(to + D // 2, second_P.to(q_ptr.dtype.element_ty))


@triton.jit
def attend(
    q_ptr,
    k_ptr,
    v_ptr,
    at_ptr,
    parts_ptr,  # [B G, R, S, D] float32: each part's sum
    scales_ptr,  # [B G, R, 2, S] float32: its largest logit and its sum of weights
    arrived_ptr,  # [B G] int32, 0 between steps
    out_ptr,  # [B, H, D]
    scale,
    H: tl.constexpr,
    G: tl.constexpr,
    D: tl.constexpr,
    LENGTH: tl.constexpr,
    PADDED: tl.constexpr,  # rows of a product: at least the heads of a key head
    BLOCK: tl.constexpr,  # keys of a part: S BLOCK is LENGTH
    S: tl.constexpr,
    EARLY: tl.constexpr,
):
    """One token of each sequence attends to all before it. A program has a key head's part of the cache; the last to
    arrive puts the parts together. All keys but the token's own are there before the kernel before has ended."""
    r: tl.constexpr = H // G
    pair, split = tl.program_id(0), tl.program_id(1)
    length = tl.load(at_ptr) + 1
    splits = tl.cdiv(length, BLOCK)
    head, d, key = tl.arange(0, PADDED), tl.arange(0, D), split * BLOCK + tl.arange(0, BLOCK)
    inside_R = head < r
    place = (pair * LENGTH + key)[:, None] * D + d[None, :]
    k_KD = tl.load(k_ptr + place, mask=(key < length - 1)[:, None], other=0.0)
    v_KD = tl.load(v_ptr + place, mask=(key < length - 1)[:, None], other=0.0)
    if split < splits:  # others leave at once what they take of the multiprocessor
        begin(EARLY)
        if split == splits - 1:  # the token's own are among them
            k_KD = tl.load(k_ptr + place, mask=(key < length)[:, None], other=0.0)
            v_KD = tl.load(v_ptr + place, mask=(key < length)[:, None], other=0.0)
        q_RD = tl.load(q_ptr + (pair * r + head)[:, None] * D + d[None, :], mask=inside_R[:, None], other=0.0)
        logit_RK = tl.where((key < length)[None, :], tl.dot(q_RD, tl.trans(k_KD)) * scale, LEAST)
        most_R = tl.max(logit_RK, 1)
        weight_RK = tl.exp(logit_RK - most_R[:, None])
        sum_R = tl.sum(weight_RK, 1)
        total_RD = tl.dot(weight_RK.to(v_KD.dtype), v_KD)
        place_R = (pair * r + head) * 2 * S + split
        tl.store(scales_ptr + place_R, most_R, mask=inside_R)
        tl.store(scales_ptr + place_R + S, sum_R, mask=inside_R)
        place_RD = ((pair * r + head)[:, None] * S + split) * D + d[None, :]
        tl.store(parts_ptr + place_RD, total_RD, mask=inside_R[:, None])
        tl.debug_barrier()  # every thread's stores come before the count
        if tl.atomic_add(arrived_ptr + pair, 1, sem="acq_rel") == splits - 1:
            tl.store(arrived_ptr + pair, 0)
            # All loads at once: each takes as long as the rest of this together.
            head_r, part = pair * r + tl.arange(0, r), tl.arange(0, S)
            there = (part < splits)[None, :]
            at_rS = head_r[:, None] * 2 * S + part[None, :]
            most_rS = tl.load(scales_ptr + at_rS, mask=there, other=LEAST)
            sum_rS = tl.load(scales_ptr + at_rS + S, mask=there, other=0.0)
            at_rSD = (head_r[:, None] * S + part[None, :])[:, :, None] * D + d[None, None, :]
            part_rSD = tl.load(parts_ptr + at_rSD, mask=there[:, :, None], other=0.0)
            weight_rS = tl.exp(most_rS - tl.max(most_rS, 1)[:, None])
            weight_rS /= tl.sum(weight_rS * sum_rS, 1)[:, None]
            out_rD = tl.sum(part_rSD * weight_rS[:, :, None], 1)
            tl.store(out_ptr + head_r[:, None] * D + d[None, :], out_rD.to(out_ptr.dtype.element_ty))


@triton.jit
def add_product(
    x_ptr,  # [B, C] float32
    a_ptr,  # [B, K]
    w_ptr,  # [C, K]
    C: tl.constexpr,
    K: tl.constexpr,
    B: tl.constexpr,
    ROWS: tl.constexpr,
    EARLY: tl.constexpr,
):
    """x += a w^T, for the ROWS columns of x that a program has."""
    row, k = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, K)
    w_RK = tl.load(w_ptr + row[:, None] * K + k[None, :])
    begin(EARLY)
    for b in tl.static_range(B):
        a_K = tl.load(a_ptr + b * K + k).to(tl.float32)
        added_R = tl.sum(w_RK.to(tl.float32) * a_K[None, :], 1)
        tl.store(x_ptr + b * C + row, tl.load(x_ptr + b * C + row) + added_R)


@triton.jit
def gate_and_up(
    x_ptr,
    norm_ptr,
    w_ptr,  # [2 F, C]: gates, then ups
    out_ptr,  # [B, F]
    eps,
    C: tl.constexpr,
    F: tl.constexpr,
    B: tl.constexpr,
    ROWS: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Norm, both products, silu(gate) * up, for ROWS entries a program."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    rows = w_ptr + row[:, None] * C + tl.arange(0, C)[None, :]
    gate_RC = tl.load(rows)
    up_RC = tl.load(rows + F * C)
    begin(EARLY)
    for b in tl.static_range(B):
        x_C = normed(x_ptr + b * C, norm_ptr, eps, C)
        gate_R = tl.sum(gate_RC.to(tl.float32) * x_C[None, :], 1)
        up_R = tl.sum(up_RC.to(tl.float32) * x_C[None, :], 1)
        tl.store(out_ptr + b * F + row, (gate_R * tl.sigmoid(gate_R) * up_R).to(out_ptr.dtype.element_ty))


@triton.jit
def logits(
    x_ptr,
    norm_ptr,
    w_ptr,  # [V, C]
    out_ptr,  # [B, V] float32
    at_ptr,
    step,  # how far the position moves, once all that need it are done
    eps,
    C: tl.constexpr,
    V: tl.constexpr,
    B: tl.constexpr,
    ROWS: tl.constexpr,
    EARLY: tl.constexpr,
):
    """The last norm and product, for ROWS words a program."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    w_RC = tl.load(w_ptr + row[:, None] * C + tl.arange(0, C)[None, :])
    begin(EARLY)
    for b in tl.static_range(B):
        x_C = normed(x_ptr + b * C, norm_ptr, eps, C)
        tl.store(out_ptr + b * V + row, tl.sum(w_RC.to(tl.float32) * x_C[None, :], 1))
    if tl.program_id(0) == 0:
        tl.store(at_ptr, tl.load(at_ptr) + step)
