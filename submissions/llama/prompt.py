"""Kernels of a prompt: products on the tensor cores with what follows them in the same kernel, and causal attention.

Legend: T tokens of all prompts, P tokens of one, C hidden, F ffn, H heads, G key heads, D head_dim; a product is
[M, K] x [N, K]^T.
"""

import triton
import triton.language as tl
from streaming import LEAST, begin, normed


@triton.jit(do_not_specialize=["P"])
def embed_rows(token_ptr, table_ptr, norm_ptr, x_ptr, out_ptr, at_ptr, P, eps, C: tl.constexpr):
    """x = the token's row of the table, in float32, and its norm; a program a token. The position of the prompt's last
    token is noted for the layer that goes on with it alone."""
    row, at = tl.program_id(0), tl.arange(0, C)
    token = tl.load(token_ptr + row)
    x_C = tl.load(table_ptr + token * C + at).to(tl.float32)
    tl.store(x_ptr + row * C + at, x_C)
    y_C = x_C * tl.rsqrt(tl.sum(x_C * x_C, 0) / C + eps) * tl.load(norm_ptr + at).to(tl.float32)
    tl.store(out_ptr + row * C + at, y_C.to(out_ptr.dtype.element_ty))
    if row == 0:
        tl.store(at_ptr, P - 1)


@triton.jit
def norm_rows(x_ptr, norm_ptr, out_ptr, eps, C: tl.constexpr, EARLY: tl.constexpr):
    """The normalised residual stream in the weights' dtype; a program a token."""
    begin(EARLY)
    row, at = tl.program_id(0), tl.arange(0, C)
    y_C = normed(x_ptr + row * C, norm_ptr, eps, C)
    tl.store(out_ptr + row * C + at, y_C.to(out_ptr.dtype.element_ty))


@triton.jit
def multiply(
    a_desc,  # [M, K], in blocks [BLOCK_M, BLOCK_K]
    b_desc,  # [N, K] (SWIGLU: [2 N, K]: gates, then ups), in blocks [BLOCK_N, BLOCK_K]
    out_ptr,  # [M, N]
    M,
    N: tl.constexpr,
    K: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    ADD: tl.constexpr,
    SWIGLU: tl.constexpr,
    EARLY: tl.constexpr,
):
    """out = a b^T; with ADD, out (float32) += a b^T; with SWIGLU, out = silu(a gates^T) * (a ups^T)."""
    begin(EARLY)
    tiles_m = tl.cdiv(M, BLOCK_M)
    row = tl.program_id(0) % tiles_m * BLOCK_M  # programs side by side share their part of b
    column = tl.program_id(0) // tiles_m * BLOCK_N
    sum_MN = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    if SWIGLU:
        up_MN = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, K, BLOCK_K):
        a_MK = a_desc.load([row, k])
        sum_MN = tl.dot(a_MK, b_desc.load([column, k]).T, sum_MN)
        if SWIGLU:
            up_MN = tl.dot(a_MK, b_desc.load([N + column, k]).T, up_MN)
    if SWIGLU:
        sum_MN = sum_MN * tl.sigmoid(sum_MN) * up_MN
    m, n = row + tl.arange(0, BLOCK_M), column + tl.arange(0, BLOCK_N)
    place, inside = m[:, None] * N + n[None, :], (m < M)[:, None]
    if ADD:
        sum_MN += tl.load(out_ptr + place, mask=inside)
    tl.store(out_ptr + place, sum_MN.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def turn_and_keep(
    qkv_ptr,  # [T, (H + 2 G) D]
    turn_ptr,  # [length, D] float32: cosines, then sines, of each pair
    q_ptr,  # [T, H, D]
    k_ptr,  # [B, G, length, D], as v
    v_ptr,
    P,
    H: tl.constexpr,
    G: tl.constexpr,
    D: tl.constexpr,
    LENGTH: tl.constexpr,
    PADDED: tl.constexpr,  # heads, a power of 2
    EARLY: tl.constexpr,
):
    """Queries and keys turned by their positions; keys and values go into the cache. A program a token."""
    begin(EARLY)
    token = tl.program_id(0)
    position = token % P
    sequence = token // P
    head, pair = tl.arange(0, PADDED)[:, None], tl.arange(0, D // 2)[None, :]
    at = qkv_ptr + token * (H + 2 * G) * D + head * D + pair
    inside = head < H + 2 * G
    first = tl.load(at, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(at + D // 2, mask=inside, other=0.0).to(tl.float32)
    turned = head < H + G
    cos = tl.where(turned, tl.load(turn_ptr + position * D + pair), 1.0)
    sin = tl.where(turned, tl.load(turn_ptr + position * D + D // 2 + pair), 0.0)
    one = (first * cos - second * sin).to(q_ptr.dtype.element_ty)
    other = (second * cos + first * sin).to(q_ptr.dtype.element_ty)
    q_at = q_ptr + (token * H + head) * D + pair
    tl.store(q_at, one, mask=head < H)
    tl.store(q_at + D // 2, other, mask=head < H)
    k_at = ((sequence * G + head - H) * LENGTH + position) * D + pair
    is_key = (head >= H) & (head < H + G)
    tl.store(k_ptr + k_at, one, mask=is_key)
    tl.store(k_ptr + k_at + D // 2, other, mask=is_key)
    v_at = ((sequence * G + head - H - G) * LENGTH + position) * D + pair
    is_value = (head >= H + G) & inside
    tl.store(v_ptr + v_at, one, mask=is_value)
    tl.store(v_ptr + v_at + D // 2, other, mask=is_value)


@triton.jit
def attend_block(
    q_MD,
    place,
    key,
    row_M,
    scale,
    state,
    k_desc,
    v_desc,
    BLOCK: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Attention to BLOCK keys from `key` on, of the sequence and key head whose cache begins with row `place`."""
    most_M, sum_M, total_MD = state
    at = key + tl.arange(0, BLOCK)
    k_KD = k_desc.load(
        [place + key, 0]
    )  # past the prompt too: there are numbers in any case, which the mask leaves out
    v_KD = v_desc.load([place + key, 0])
    logit_MK = tl.dot(q_MD, k_KD.T) * scale
    if MASKED:
        logit_MK = tl.where(at[None, :] <= row_M[:, None], logit_MK, LEAST)
    new_M = tl.maximum(most_M, tl.max(logit_MK, 1))
    weight_MK = tl.exp2(logit_MK - new_M[:, None])
    fade_M = tl.exp2(most_M - new_M)
    total_MD = tl.dot(weight_MK.to(v_KD.dtype), v_KD, total_MD * fade_M[:, None])
    return new_M, sum_M * fade_M + tl.sum(weight_MK, 1), total_MD


@triton.jit
def attend_prompt(
    q_ptr,  # [B, P, H, D]
    k_desc,  # of [B G length, D] in blocks [BLOCK, D], as v
    v_desc,
    out_ptr,  # [B, P, H, D]
    P,
    scale,  # times log2(e)
    H: tl.constexpr,
    G: tl.constexpr,
    D: tl.constexpr,
    LENGTH: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Causal attention of BLOCK_M tokens of one head; the last tokens, which have most to do, come first."""
    begin(EARLY)
    block = tl.num_programs(0) - 1 - tl.program_id(0)
    sequence, head = tl.program_id(1) // H, tl.program_id(1) % H
    row_M, d = block * BLOCK_M + tl.arange(0, BLOCK_M), tl.arange(0, D)
    q_at = ((sequence * P + row_M) * H + head)[:, None] * D + d[None, :]
    q_MD = tl.load(q_ptr + q_at, mask=(row_M < P)[:, None], other=0.0)
    place = (sequence * G + head // (H // G)) * LENGTH
    state = tl.full((BLOCK_M,), LEAST, tl.float32), tl.zeros((BLOCK_M,), tl.float32), tl.zeros((BLOCK_M, D), tl.float32)
    for key in range(0, block * BLOCK_M, BLOCK):
        state = attend_block(q_MD, place, key, row_M, scale, state, k_desc, v_desc, BLOCK, False)
    for key in range(block * BLOCK_M, tl.minimum(block * BLOCK_M + BLOCK_M, P), BLOCK):
        state = attend_block(q_MD, place, key, row_M, scale, state, k_desc, v_desc, BLOCK, True)
    _, sum_M, total_MD = state
    tl.store(out_ptr + q_at, (total_MD / sum_M[:, None]).to(out_ptr.dtype.element_ty), mask=(row_M < P)[:, None])
