"""attention's plain Triton kernels, for GPUs that are not Hopper and for the interpreter; and the small ones that the
backward kernels share.

Every program goes from block to block, those with the most work first. Sums are float32; weights and their gradients
are rounded to bf16 for the products, as the matrix units want them.
"""

import triton
import triton.language as tl
from common.gemm import as_bf16

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def times(a, b, INTERPRET: tl.constexpr):
    """The product of bf16 blocks in float32; the interpreter's bf16 arithmetic is wrong."""
    if INTERPRET:
        a = a.to(tl.float32)
        b = b.to(tl.float32)
    return tl.dot(a, b)


@triton.jit
def plain_forward_kernel(
    q_ptr,  # bf16 [heads, S, DIM]
    k_ptr,  # bf16 [heads / SHARE, S, DIM]
    v_ptr,  # the same
    out_ptr,  # bf16 [heads, S, DIM]
    heads,
    S,
    SHARE: tl.constexpr,  # heads of queries that share one of keys
    FACTOR: tl.constexpr,  # of scores, log2(e) in it
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    DIM: tl.constexpr,
    INTERPRET: tl.constexpr,
):
    q_desc = tl.make_tensor_descriptor(q_ptr, [heads * S, DIM], [DIM, 1], [BLOCK_M, DIM])
    k_desc = tl.make_tensor_descriptor(k_ptr, [heads // SHARE * S, DIM], [DIM, 1], [BLOCK_N, DIM])
    v_desc = tl.make_tensor_descriptor(v_ptr, [heads // SHARE * S, DIM], [DIM, 1], [BLOCK_N, DIM])
    out_desc = tl.make_tensor_descriptor(out_ptr, [heads * S, DIM], [DIM, 1], [BLOCK_M, DIM])
    blocks = S // BLOCK_M
    for tile in range(tl.program_id(0), heads * blocks, tl.num_programs(0)):
        head, query = tile % heads, (blocks - 1 - tile // heads) * BLOCK_M
        q = q_desc.load([head * S + query, 0])
        queries = query + tl.arange(0, BLOCK_M)
        peak = tl.full((BLOCK_M,), float("-inf"), tl.float32)
        total = tl.zeros((BLOCK_M,), tl.float32)
        acc = tl.zeros((BLOCK_M, DIM), tl.float32)
        for key in tl.range(0, query + BLOCK_M, BLOCK_N):
            k = k_desc.load([head // SHARE * S + key, 0])
            keys = key + tl.arange(0, BLOCK_N)
            scores = times(q, k.T, INTERPRET) * FACTOR
            scores = tl.where(queries[:, None] >= keys[None, :], scores, float("-inf"))
            higher = tl.maximum(peak, tl.max(scores, 1))
            fade = tl.exp2(peak - higher)
            p = tl.exp2(scores - higher[:, None])
            total = total * fade + tl.sum(p, 1)
            peak = higher
            v = v_desc.load([head // SHARE * S + key, 0])
            acc = acc * fade[:, None] + times(as_bf16(p, INTERPRET), v, INTERPRET)
        out_desc.store([head * S + query, 0], as_bf16(acc / total[:, None], INTERPRET))


@triton.jit
def delta_kernel(
    out_ptr,  # bf16 [rows, DIM]
    dout_ptr,  # the same
    log_ptr,  # float32 [rows]
    delta_ptr,  # float32 [rows]: the sum of output times gradient
    log2_ptr,  # float32 [rows]: the logarithm to base 2
    BLOCK: tl.constexpr,  # rows of a program
    DIM: tl.constexpr,
):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places.to(tl.int64)[:, None] * DIM + tl.arange(0, DIM)[None, :]
    out, dout = tl.load(out_ptr + inside).to(tl.float32), tl.load(dout_ptr + inside).to(tl.float32)
    tl.store(delta_ptr + places, tl.sum(out * dout, 1))
    tl.store(log2_ptr + places, tl.load(log_ptr + places) * LOG2E)


@triton.jit
def round_kernel(
    sums_ptr,  # float32
    out_ptr,  # bf16
    SCALE: tl.constexpr,
    BLOCK: tl.constexpr,  # numbers of a program
):
    places = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + places, (tl.load(sums_ptr + places) * SCALE).to(tl.bfloat16))


@triton.jit
def gradients(q, k, v, dout, log2, delta, queries, keys, FACTOR: tl.constexpr, INTERPRET: tl.constexpr):
    """The weights and the gradients of the scores (without the scale) where a block of queries meets one of keys, bf16
    [queries, keys]."""
    scores = times(q, k.T, INTERPRET) * FACTOR
    p = tl.where(queries[:, None] >= keys[None, :], tl.exp2(scores - log2[:, None]), 0.0)
    ds = p * (times(dout, v.T, INTERPRET) - delta[:, None])
    return as_bf16(p, INTERPRET), as_bf16(ds, INTERPRET)


@triton.jit
def plain_keys_kernel(
    q_ptr,  # bf16 [heads * SHARE, S, DIM]
    k_ptr,  # bf16 [heads, S, DIM]
    v_ptr,  # the same
    dout_ptr,  # bf16 [heads * SHARE, S, DIM]
    log2_ptr,  # float32 [heads * SHARE, S], as delta_kernel leaves it
    delta_ptr,  # the same
    dk_ptr,  # bf16 [heads, S, DIM]
    dv_ptr,  # the same
    heads,
    S,
    SHARE: tl.constexpr,  # heads of queries that share one of keys
    FACTOR: tl.constexpr,  # of scores, log2(e) in it
    SCALE: tl.constexpr,  # without
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    DIM: tl.constexpr,
    INTERPRET: tl.constexpr,
):
    """The gradients of keys and values: a block of them meets all queries behind it."""
    q_desc = tl.make_tensor_descriptor(q_ptr, [heads * SHARE * S, DIM], [DIM, 1], [BLOCK_M, DIM])
    dout_desc = tl.make_tensor_descriptor(dout_ptr, [heads * SHARE * S, DIM], [DIM, 1], [BLOCK_M, DIM])
    k_desc = tl.make_tensor_descriptor(k_ptr, [heads * S, DIM], [DIM, 1], [BLOCK_N, DIM])
    v_desc = tl.make_tensor_descriptor(v_ptr, [heads * S, DIM], [DIM, 1], [BLOCK_N, DIM])
    dk_desc = tl.make_tensor_descriptor(dk_ptr, [heads * S, DIM], [DIM, 1], [BLOCK_N, DIM])
    dv_desc = tl.make_tensor_descriptor(dv_ptr, [heads * S, DIM], [DIM, 1], [BLOCK_N, DIM])
    for tile in range(tl.program_id(0), heads * (S // BLOCK_N), tl.num_programs(0)):
        head, key = tile % heads, tile // heads * BLOCK_N
        k, v = k_desc.load([head * S + key, 0]), v_desc.load([head * S + key, 0])
        keys = key + tl.arange(0, BLOCK_N)
        dk = tl.zeros((BLOCK_N, DIM), tl.float32)
        dv = tl.zeros((BLOCK_N, DIM), tl.float32)
        for query_head in range(head * SHARE, (head + 1) * SHARE):
            for query in tl.range(key // BLOCK_M * BLOCK_M, S, BLOCK_M):
                row = query_head * S + query
                queries = query + tl.arange(0, BLOCK_M)
                q, dout = q_desc.load([row, 0]), dout_desc.load([row, 0])
                log2 = tl.load(log2_ptr + row + tl.arange(0, BLOCK_M))
                delta = tl.load(delta_ptr + row + tl.arange(0, BLOCK_M))
                p, ds = gradients(q, k, v, dout, log2, delta, queries, keys, FACTOR, INTERPRET)
                dv += times(p.T, dout, INTERPRET)
                dk += times(ds.T, q, INTERPRET)
        dk_desc.store([head * S + key, 0], as_bf16(dk * SCALE, INTERPRET))
        dv_desc.store([head * S + key, 0], as_bf16(dv, INTERPRET))


@triton.jit
def plain_queries_kernel(
    q_ptr,  # all as in plain_keys_kernel
    k_ptr,
    v_ptr,
    dout_ptr,
    log2_ptr,
    delta_ptr,
    dq_ptr,  # bf16 [heads * SHARE, S, DIM]
    heads,
    S,
    SHARE: tl.constexpr,
    FACTOR: tl.constexpr,
    SCALE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    DIM: tl.constexpr,
    INTERPRET: tl.constexpr,
):
    """The gradients of queries: a block of them meets all keys before it."""
    q_desc = tl.make_tensor_descriptor(q_ptr, [heads * SHARE * S, DIM], [DIM, 1], [BLOCK_M, DIM])
    dout_desc = tl.make_tensor_descriptor(dout_ptr, [heads * SHARE * S, DIM], [DIM, 1], [BLOCK_M, DIM])
    k_desc = tl.make_tensor_descriptor(k_ptr, [heads * S, DIM], [DIM, 1], [BLOCK_N, DIM])
    v_desc = tl.make_tensor_descriptor(v_ptr, [heads * S, DIM], [DIM, 1], [BLOCK_N, DIM])
    dq_desc = tl.make_tensor_descriptor(dq_ptr, [heads * SHARE * S, DIM], [DIM, 1], [BLOCK_M, DIM])
    blocks = S // BLOCK_M
    for tile in range(tl.program_id(0), heads * SHARE * blocks, tl.num_programs(0)):
        head, query = tile % (heads * SHARE), (blocks - 1 - tile // (heads * SHARE)) * BLOCK_M
        row = head * S + query
        queries = query + tl.arange(0, BLOCK_M)
        q, dout = q_desc.load([row, 0]), dout_desc.load([row, 0])
        log2 = tl.load(log2_ptr + row + tl.arange(0, BLOCK_M))
        delta = tl.load(delta_ptr + row + tl.arange(0, BLOCK_M))
        dq = tl.zeros((BLOCK_M, DIM), tl.float32)
        for key in tl.range(0, query + BLOCK_M, BLOCK_N):
            k, v = k_desc.load([head // SHARE * S + key, 0]), v_desc.load([head // SHARE * S + key, 0])
            keys = key + tl.arange(0, BLOCK_N)
            _, ds = gradients(q, k, v, dout, log2, delta, queries, keys, FACTOR, INTERPRET)
            dq += times(ds, k, INTERPRET)
        dq_desc.store([row, 0], as_bf16(dq * SCALE, INTERPRET))
