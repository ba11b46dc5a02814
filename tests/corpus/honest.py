"""Variants that are right, each rounding in a way of its own, and must pass the strict verdict on every rank."""

import torch
import torch.distributed as dist

from tests.corpus.parts import (
    STATE,
    a2a_exchanged,
    a2a_expert_outputs,
    a2a_pairs,
    ag_gemm_gathered,
    altered,
    corpus,
    gemm_rs_blocks,
    gemm_rs_partial,
    moe_expert_outputs,
    moe_pairs_at_experts,
)

# ---- any problem -----------------------------------------------------------------------------------------------


@corpus("a2a", "moe", "gemm_rs", "ag_gemm")
def one_rounding(right, data):
    """Honest: float32 throughout, rounded once at the end."""
    return right(data)


@corpus("a2a", "moe", "gemm_rs", "ag_gemm")
def strided_view(right, data):
    """Honest: returns a view that is not contiguous, right at return."""
    output = right(data)
    wide = output.new_full((output.shape[0], 2 * output.shape[1]), float("nan"))
    wide[:, ::2] = output
    return wide[:, ::2]


@corpus("a2a", "moe", "gemm_rs", "ag_gemm")
def reused_buffer(right, data):
    """Honest: returns the same buffer in every call, right at return."""
    output = right(data)
    kept = STATE.get("buffer")
    if kept is None or kept.shape[0] < output.shape[0] or kept.shape[1:] != output.shape[1:]:
        kept = STATE["buffer"] = torch.empty_like(output)
    kept[: output.shape[0]] = output
    return kept[: output.shape[0]]


# ---- gemm_rs ---------------------------------------------------------------------------------------------------


@corpus("gemm_rs")
def bf16_in_rank_order(data):
    """Honest: product, bias and sum over ranks in bf16, rank 0 first, as a plain reduce-scatter does."""
    left, weight, bias = data
    partial = left @ weight.T
    blocks = gemm_rs_blocks(partial if bias is None else partial + bias)
    total = blocks[0]
    for block in blocks[1:]:
        total = total + block
    return total


@corpus("gemm_rs")
def bf16_reversed(data):
    """Honest: the sum over ranks in bf16, the last rank first."""
    blocks = gemm_rs_blocks(gemm_rs_partial(data).bfloat16())
    total = blocks[-1]
    for block in reversed(blocks[:-1].unbind()):
        total = total + block
    return total


@corpus("gemm_rs")
def bf16_ring(data):
    """Honest: the sum over ranks in bf16, from the next rank on around to this one, as a ring does."""
    blocks = gemm_rs_blocks(gemm_rs_partial(data).bfloat16()).roll(-1 - dist.get_rank(), 0)
    total = blocks[0]
    for block in blocks[1:]:
        total = total + block
    return total


@corpus("gemm_rs")
def bf16_tree(data):
    """Honest: the sum over ranks in bf16, by halves."""
    blocks = gemm_rs_blocks(gemm_rs_partial(data).bfloat16())
    while len(blocks) > 1:
        half = len(blocks) // 2
        odd = blocks[2 * half :]
        blocks = torch.cat([blocks[:half] + blocks[half : 2 * half], odd])
    return blocks[0]


@corpus("gemm_rs")
def bf16_partials_float32_sum(data):
    """Honest: bf16 partial sums on the wire, added in float32."""
    return gemm_rs_blocks(gemm_rs_partial(data).bfloat16()).float().sum(0).bfloat16()


@corpus("gemm_rs")
def bias_after_reduction(data):
    """Honest: bf16 products added in bf16, then world_size * bias at once."""
    left, weight, bias = data
    blocks = gemm_rs_blocks(left @ weight.T)
    total = blocks[0]
    for block in blocks[1:]:
        total = total + block
    return total if bias is None else total + dist.get_world_size() * bias


@corpus("gemm_rs")
def bias_on_one_rank(data):
    """Honest: rank 0 adds world_size * bias to its product, and is the first in a sum in bf16."""
    left, weight, bias = data
    partial = gemm_rs_partial((left, weight, None))
    if bias is not None and dist.get_rank() == 0:
        partial = partial + dist.get_world_size() * bias
    blocks = gemm_rs_blocks(partial.bfloat16())
    total = blocks[0]
    for block in blocks[1:]:
        total = total + block
    return total


@corpus("gemm_rs")
def split_k(data):
    """Honest: K in four parts, each accumulated in float32, added in float32."""
    left, weight, bias = data
    parts = zip(left.float().chunk(4, 1), weight.float().chunk(4, 1), strict=True)
    partial = torch.stack([left_part @ weight_part.T for left_part, weight_part in parts]).sum(0)
    return gemm_rs_blocks(partial if bias is None else partial + bias).sum(0).bfloat16()


# ---- ag_gemm ---------------------------------------------------------------------------------------------------


@corpus("ag_gemm")
def bf16_product_then_bias(data):
    """Honest: the product rounded to bf16, the bias added in bf16."""
    left, weight, bias = data
    output = (ag_gemm_gathered(left).float() @ weight.float().T).bfloat16()
    return output if bias is None else output + bias


@corpus("ag_gemm")
def split_k_gathered(data):
    """Honest: K in four parts, each accumulated in float32, added in float32."""
    left, weight, bias = data
    parts = zip(ag_gemm_gathered(left).float().chunk(4, 1), weight.float().chunk(4, 1), strict=True)
    output = torch.stack([left_part @ weight_part.T for left_part, weight_part in parts]).sum(0)
    return (output if bias is None else output + bias).bfloat16()


# ---- a2a -------------------------------------------------------------------------------------------------------


@corpus("a2a")
def fp16_expert_outputs(data):
    """Honest: expert outputs rounded to fp16, added in float32."""
    outputs = a2a_expert_outputs(data, torch.float16)
    return torch.einsum("tkh,tk->th", outputs.float(), data[1].weights).half()


@corpus("a2a")
def fp16_running_sum(data):
    """Honest: expert outputs rounded to fp16, added one after the other into fp16, as the published baseline does."""
    outputs = a2a_expert_outputs(data, torch.float16)
    total = outputs.new_zeros(outputs.shape[0], outputs.shape[2])
    for slot in range(outputs.shape[1]):
        total += outputs[:, slot].float() * data[1].weights[:, slot, None]
    return total


@corpus("a2a")
def fp16_terms(data):
    """Honest: w * expert output rounded to fp16 too, added one after the other into fp16."""
    outputs = a2a_expert_outputs(data, torch.float16)
    total = outputs.new_zeros(outputs.shape[0], outputs.shape[2])
    for slot in range(outputs.shape[1]):
        total += (outputs[:, slot].float() * data[1].weights[:, slot, None]).half()
    return total


@corpus("a2a")
def weighted_on_the_expert_side(data):
    """Honest: each token goes once to a rank, its weights with it; one fp16 row a (token, rank) comes back."""
    config, rank_data, rank, world_size = data
    ranks_Tk = (rank_data.indices // (config.num_experts // world_size)).long()
    weights_TW = rank_data.weights.new_zeros(rank_data.num_tokens, world_size)
    weights_TW.scatter_add_(1, ranks_Tk, rank_data.weights)
    rank_P, token_P = weights_TW.T.nonzero(as_tuple=True)
    send_W = rank_P.bincount(minlength=world_size)
    receive_W = torch.empty_like(send_W)
    dist.all_to_all_single(receive_W, send_W)
    send, receive = send_W.tolist(), receive_W.tolist()
    rows_QH = a2a_exchanged(rank_data.x[token_P], send, receive)
    weights_Q = a2a_exchanged(weights_TW[token_P, rank_P], send, receive)
    sums_QH = (rows_QH.float() * (1 + rank) * weights_Q[:, None]).half()
    rows_PH = a2a_exchanged(sums_QH, receive, send)
    output_TH = torch.zeros_like(rank_data.x)
    for source in range(world_size):  # into fp16, in rank order
        output_TH[token_P[rank_P == source]] += rows_PH[rank_P == source]
    return output_TH


@corpus("a2a")
def fp16_weights(right, data):
    """Honest: weights rounded to fp16, as they are where they travel with the tokens."""
    return right(altered(data, weights=data[1].weights.half().float()))


# ---- moe -------------------------------------------------------------------------------------------------------


@corpus("moe")
def fp16_intermediates(data):
    """Honest: up @ x rounded to fp16, and expert outputs rounded to fp16, added in float32: two fp16 products."""
    outputs = moe_expert_outputs(data, torch.float16, torch.float16)
    return torch.einsum("tkh,tk->th", outputs.float(), data[1].weights).half()


@corpus("moe")
def fp16_everywhere(data):
    """Honest: up @ x, the expert outputs and w * output rounded to fp16, added one after the other into fp16."""
    outputs = moe_expert_outputs(data, torch.float16, torch.float16)
    total = outputs.new_zeros(outputs.shape[0], outputs.shape[2])
    for slot in range(outputs.shape[1]):
        total += (outputs[:, slot].float() * data[1].weights[:, slot, None]).half()
    return total


@corpus("moe")
def fp16_backwards(data):
    """Honest: expert outputs rounded to fp16, added into fp16 from the last slot to the first."""
    outputs = moe_expert_outputs(data, torch.float32, torch.float16)
    total = outputs.new_zeros(outputs.shape[0], outputs.shape[2])
    for slot in reversed(range(outputs.shape[1])):
        total += outputs[:, slot].float() * data[1].weights[:, slot, None]
    return total


@corpus("moe")
def weighted_intermediates(data):
    """Honest: w * (up @ x) rounded to fp16 ahead of the second product; one fp16 row a (token, expert) comes back and
    is added into fp16."""
    token_P, slot_P, send, receive = a2a_pairs(data)
    a_QI, down_QHI = moe_pairs_at_experts(data, token_P, slot_P, send, receive)
    weights_Q = a2a_exchanged(data[1].weights[token_P, slot_P], send, receive)
    a_QI = (a_QI * weights_Q[:, None]).half().float()
    rows_PH = a2a_exchanged(torch.einsum("qhi,qi->qh", down_QHI.float(), a_QI).half(), receive, send)
    output_TH = torch.zeros_like(data[1].x)
    for slot in range(data[1].indices.shape[1]):
        output_TH[token_P[slot_P == slot]] += rows_PH[slot_P == slot]
    return output_TH


@corpus("moe")
def split_k_in_fp16(data):
    """Honest: each product in two parts of its depth, as a library may split it, whose sums are rounded to fp16 before
    they are added; w * (up @ x) rounded to fp16 in between; added into fp16."""
    token_P, slot_P, send, receive = a2a_pairs(data)
    x_TH = data[1].x
    first_H = torch.arange(x_TH.shape[1], device=x_TH.device) < x_TH.shape[1] // 2
    halves = [altered(data, x=x_TH * of_half_H) for of_half_H in (first_H, ~first_H)]
    found = [moe_pairs_at_experts(half, token_P, slot_P, send, receive) for half in halves]
    a_QI, down_QHI = sum(a_QI.half().float() for a_QI, _ in found), found[0][1]
    weights_Q = a2a_exchanged(data[1].weights[token_P, slot_P], send, receive)
    a_QI = (a_QI.half().float() * weights_Q[:, None]).half().float()
    parts = zip(down_QHI.float().chunk(2, 2), a_QI.chunk(2, 1), strict=True)
    made_QH = sum(torch.einsum("qhi,qi->qh", *pair).half().float() for pair in parts)
    rows_PH = a2a_exchanged(made_QH.half(), receive, send)
    output_TH = torch.zeros_like(x_TH)
    for slot in range(data[1].indices.shape[1]):
        output_TH[token_P[slot_P == slot]] += rows_PH[slot_P == slot]
    return output_TH


@corpus("moe")
def experts_gathered(data):
    """Honest: every rank gets all experts in place of sending its tokens, and computes alone from there on."""
    config, rank_data, _, world_size = data
    parts = []
    for matrices in (rank_data.up, rank_data.down):
        blocks = [torch.empty_like(matrices) for _ in range(world_size)]
        dist.all_gather(blocks, matrices.contiguous())
        parts.append(torch.cat(blocks).float())
    total_TH = torch.zeros_like(rank_data.x, dtype=torch.float32)
    for slot in range(config.experts_per_token):
        chosen_T = rank_data.indices[:, slot].long()
        for expert in chosen_T.unique().tolist():
            rows = (chosen_T == expert).nonzero().flatten()
            a_tI = rank_data.x[rows].float() @ parts[0][expert].T
            total_TH[rows] += rank_data.weights[rows, slot, None] * (a_tI @ parts[1][expert].T)
    return total_TH.half()
