"""Kernels of a model that is split over ranks: each sends what it has to all ranks' blocks of the symmetric heap, and
adds up or puts together what has come, in the same kernel.

A few numbers travel as words of 64 bits, half of which say which sum they belong to: whoever finds the right half has
the number too, and no flag has to follow it (the protocol LL of NCCL). Programs wait only for those of the same number
on other ranks, and send before they wait. Every rank adds in the order of ranks, so that all have the same bits.

A sum's number is counted from `passes`, of prompts and steps so far, and only grows. Sums take turns with two places:
whoever sends for the next but one has received all of the next, which ranks send when they are done with this one.

Legend: as in streaming.py; W ranks.
"""

import triton
import triton.language as tl
from common.signals import flag_pointers, signal, wait
from streaming import begin, normed


@triton.jit
def words_at(blocks_ptr, peer, offset):
    """The words `offset` bytes behind the beginning of that rank's block."""
    return tl.multiple_of(tl.cast(tl.load(blocks_ptr + peer) + offset, tl.pointer_type(tl.int64)), 16)


@triton.jit
def marked(values, number):
    """float32 values as words that say which sum they belong to."""
    return (number.to(tl.int64) << 32) | (values.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF)


@triton.jit
def received(words, number):
    """The values at these words (a tensor), once all belong to that sum."""
    come = 0  # a number, as Triton 3.6 cannot take a tensor out of such a loop
    while come == 0:
        come = tl.min(((tl.load(words, volatile=True) >> 32) == number).to(tl.int32))
    return (tl.load(words, volatile=True) & 0xFFFFFFFF).to(tl.int32).to(tl.float32, bitcast=True)


@triton.jit(do_not_specialize=["rank", "number", "offset"])
def add_products(
    x_ptr,  # [B, C] float32
    a_ptr,  # [B, K]: this rank's columns
    w_ptr,  # [C, K]
    blocks_ptr,  # [W] int64: the heap's blocks
    passes_ptr,
    rank,
    number,  # of the sum in a pass
    offset,  # of the sum's words in a block: [W, B, C]
    SUMS: tl.constexpr,  # of a pass, at most
    C: tl.constexpr,
    K: tl.constexpr,
    B: tl.constexpr,
    WORLD: tl.constexpr,
    ROWS: tl.constexpr,
    EARLY: tl.constexpr,
):
    """x += the sum over ranks of a w^T, for the ROWS columns of x that a program has."""
    row, k = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, K)
    w_RK = tl.load(w_ptr + row[:, None] * K + k[None, :])
    begin(EARLY)
    number += tl.load(passes_ptr) * SUMS
    for b in tl.static_range(B):
        a_K = tl.load(a_ptr + b * K + k).to(tl.float32)
        words_R = marked(tl.sum(w_RK.to(tl.float32) * a_K[None, :], 1), number)
        for peer in tl.static_range(WORLD):
            tl.store(words_at(blocks_ptr, peer, offset) + (rank * B + b) * C + row, words_R)
    mine = words_at(blocks_ptr, rank, offset)
    for b in tl.static_range(B):
        sum_R = tl.load(x_ptr + b * C + row)
        for peer in tl.static_range(WORLD):
            sum_R += received(mine + (peer * B + b) * C + row, number)
        tl.store(x_ptr + b * C + row, sum_R)


@triton.jit(do_not_specialize=["rank", "offset"])
def gather_logits(
    part_ptr,  # [B, V / W] float32: this rank's
    out_ptr,  # [B, V] float32
    blocks_ptr,
    passes_ptr,  # which this ends
    arrived_ptr,  # int32, 0 between launches
    rank,
    offset,  # of the words in a block: [W, B, V / W]
    SUMS: tl.constexpr,
    V: tl.constexpr,
    B: tl.constexpr,
    WORLD: tl.constexpr,
    BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
):
    """The logits of all ranks; a program has a block of every rank's words, for all sequences."""
    begin(EARLY)
    part: tl.constexpr = V // WORLD
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < part
    at = tl.where(inside, at, part - 1)  # some threads do the last one's work again
    number = tl.load(passes_ptr) * SUMS + SUMS - 1
    for b in tl.static_range(B):
        words = marked(tl.load(part_ptr + b * part + at), number)
        for peer in tl.static_range(WORLD):
            tl.store(words_at(blocks_ptr, peer, offset) + (rank * B + b) * part + at, words)
    mine = words_at(blocks_ptr, rank, offset)
    for b in tl.static_range(B):
        for peer in tl.static_range(WORLD):
            tl.store(out_ptr + b * V + peer * part + at, received(mine + (peer * B + b) * part + at, number))
    if tl.atomic_add(arrived_ptr, 1, sem="acq_rel") == tl.num_programs(0) - 1:  # all know the sum's number
        tl.store(arrived_ptr, 0)
        tl.store(passes_ptr, tl.load(passes_ptr) + 1)


@triton.jit(do_not_specialize=["rank", "number", "offset", "flags"])
def add_rows(
    x_ptr,  # [T, C] float32
    norm_ptr,
    out_ptr,  # [T, C]: the normalised sum
    blocks_ptr,
    passes_ptr,
    rank,
    number,
    offset,  # of a rank's part in its block: [T, C], of the dtype of `out`
    flags,  # of the sum in a block
    eps,
    SUMS: tl.constexpr,
    C: tl.constexpr,
    WORLD: tl.constexpr,
    EARLY: tl.constexpr,
):
    """x += the sum of all ranks' parts, which the kernel before has put into their blocks, and its norm. A program a
    token. Only here parts are fetched, not sent: a prompt's are large."""
    begin(EARLY)
    row, at, peers = tl.program_id(0), tl.arange(0, C), tl.arange(0, WORLD)
    number += tl.load(passes_ptr) * SUMS
    everywhere = peers >= 0
    if row == 0:
        signal(flag_pointers(tl.load(blocks_ptr + peers) + flags, rank), number, everywhere)
    wait(flag_pointers(tl.load(blocks_ptr + rank) + flags, peers), number, everywhere)
    x_C = tl.load(x_ptr + row * C + at)
    for peer in tl.static_range(WORLD):
        part = tl.cast(tl.load(blocks_ptr + peer) + offset, tl.pointer_type(out_ptr.dtype.element_ty))
        x_C += tl.load(tl.multiple_of(part, 16) + row * C + at).to(tl.float32)
    tl.store(x_ptr + row * C + at, x_C)
    tl.debug_barrier()  # the norm reads them again
    tl.store(out_ptr + row * C + at, normed(x_ptr + row * C, norm_ptr, eps, C).to(out_ptr.dtype.element_ty))
