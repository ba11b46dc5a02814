"""What the corpus's submissions share: right kernels, and ways to spoil their inputs.

The text of this file becomes part of each submission, so it knows torch and `data` and nothing of the harness.
"""

import copy

import torch
import torch.distributed as dist

STATE = {}  # what a submission keeps between calls


def corpus(*problems):
    """Says which problems a variant is for."""

    def mark(function):
        function.problems = problems
        return function

    return mark


# ---- right kernels: float32 throughout, one rounding at the end ------------------------------------------------


def gemm_rs_blocks(partial_MN):
    """[W, M / W, N]: every rank's partial products for this rank's rows, in rank order."""
    blocks = torch.empty_like(partial_MN)
    dist.all_to_all_single(blocks, partial_MN)
    return blocks.unflatten(0, (dist.get_world_size(), -1))


def gemm_rs_partial(data):
    """[M, N] float32: this rank's product and bias."""
    input_Mk, weight_Nk, bias_N = data
    partial_MN = input_Mk.float() @ weight_Nk.float().T
    return partial_MN if bias_N is None else partial_MN + bias_N.float()


def gemm_rs(data):
    return gemm_rs_blocks(gemm_rs_partial(data)).sum(0).bfloat16()


def ag_gemm_gathered(input_mK):
    blocks = [torch.empty_like(input_mK) for _ in range(dist.get_world_size())]
    dist.all_gather(blocks, input_mK.contiguous())
    return torch.cat(blocks)


def ag_gemm(data):
    input_mK, weight_nK, bias_n = data
    output_Mn = ag_gemm_gathered(input_mK).float() @ weight_nK.float().T
    return (output_Mn if bias_n is None else output_Mn + bias_n.float()).bfloat16()


def a2a_exchanged(rows, send, receive):
    received = rows.new_empty(sum(receive), *rows.shape[1:])
    dist.all_to_all_single(received, rows.contiguous(), output_split_sizes=receive, input_split_sizes=send)
    return received


def a2a_pairs(data):
    """(token of each pair sent, its slot among the token's experts, pairs sent to each rank, received from each)."""
    config, rank_data, _, world_size = data
    ranks_Tk = rank_data.indices // (config.num_experts // world_size)
    order_P = ranks_Tk.flatten().argsort(stable=True)
    send_W = ranks_Tk.flatten().bincount(minlength=world_size)
    receive_W = torch.empty_like(send_W)
    dist.all_to_all_single(receive_W, send_W)
    k = config.experts_per_token
    return order_P // k, order_P % k, send_W.tolist(), receive_W.tolist()


def a2a_expert_outputs(data, output_dtype):
    """[T, k, H] of `output_dtype`: what the experts make of each token, there and back again."""
    config, rank_data, rank, _ = data
    token_P, slot_P, send, receive = a2a_pairs(data)
    rows_QH = a2a_exchanged(rank_data.x[token_P], send, receive)
    outputs_PH = a2a_exchanged((rows_QH.float() * (1 + rank)).to(output_dtype), receive, send)
    outputs_TkH = outputs_PH.new_empty(*rank_data.indices.shape, config.hidden_dim)
    outputs_TkH[token_P, slot_P] = outputs_PH
    return outputs_TkH


def a2a(data):
    outputs_TkH = a2a_expert_outputs(data, torch.float32)
    return torch.einsum("tkh,tk->th", outputs_TkH, data[1].weights).half()


def moe_pairs_at_experts(data, token_P, slot_P, send, receive):
    """What a rank has of each pair that is sent to it: up @ x, [Q, I] float32, and its expert's down, [Q, H, I]."""
    config, rank_data, _, world_size = data
    local_P = rank_data.indices[token_P, slot_P].long() % (config.num_experts // world_size)
    local_Q = a2a_exchanged(local_P, send, receive)
    rows_QH = a2a_exchanged(rank_data.x[token_P], send, receive)
    return torch.einsum("qih,qh->qi", rank_data.up[local_Q].float(), rows_QH.float()), rank_data.down[local_Q]


def moe_expert_outputs(data, intermediate_dtype, output_dtype):
    """[T, k, H] of `output_dtype`: what the experts make of each token, up @ x rounded to `intermediate_dtype`."""
    token_P, slot_P, send, receive = a2a_pairs(data)
    a_QI, down_QHI = moe_pairs_at_experts(data, token_P, slot_P, send, receive)
    made_QH = torch.einsum("qhi,qi->qh", down_QHI.float(), a_QI.to(intermediate_dtype).float())
    outputs_PH = a2a_exchanged(made_QH.to(output_dtype), receive, send)
    outputs_TkH = outputs_PH.new_empty(*data[1].indices.shape, outputs_PH.shape[1])
    outputs_TkH[token_P, slot_P] = outputs_PH
    return outputs_TkH


def moe(data):
    outputs_TkH = moe_expert_outputs(data, torch.float32, torch.float32)
    return torch.einsum("tkh,tk->th", outputs_TkH, data[1].weights).half()


RIGHT = {"a2a": a2a, "moe": moe, "gemm_rs": gemm_rs, "ag_gemm": ag_gemm}


# ---- ways to spoil ---------------------------------------------------------------------------------------------


def altered(data, **fields):
    """a2a's or moe's data with other tensors in it; the original stays as it is."""
    config, rank_data, rank, world_size = data
    rank_data = copy.copy(rank_data)
    for name, value in fields.items():
        setattr(rank_data, name, value)
    return config, rank_data, rank, world_size


def with_inputs(data, spoil, operands=(0, 1)):
    """The data with `spoil` applied to x (a2a, moe), or to the named operands of the product."""
    if len(data) == 4:
        return altered(data, x=spoil(data[1].x))
    return tuple(spoil(part) if index in operands else part for index, part in enumerate(data))


def fp8(tensor):
    """Rounded to fp8 (e4m3) as it is; 448 is the largest."""
    return tensor.float().clamp(-448, 448).to(torch.float8_e4m3fn).to(tensor.dtype)


def fp8_scaled(tensor):
    """Rounded to fp8 (e4m3) with one scale for the tensor, so that its range is used."""
    scale = 448 / tensor.float().abs().max()
    return ((tensor.float() * scale).to(torch.float8_e4m3fn).float() / scale).to(tensor.dtype)


def int3(tensor):
    """Rounded to 7 levels, -3 to 3, with one scale for the tensor."""
    scale = 3 / tensor.float().abs().max()
    return ((tensor.float() * scale).round() / scale).to(tensor.dtype)
