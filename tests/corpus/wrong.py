"""Variants that are wrong and must fail the strict verdict on at least one rank, on every shape."""

import torch
import torch.distributed as dist

from tests.corpus.parts import (
    STATE,
    altered,
    corpus,
    fp8,
    fp8_scaled,
    gemm_rs_blocks,
    gemm_rs_partial,
    int3,
    moe_expert_outputs,
    with_inputs,
)

# ---- inputs spoilt ---------------------------------------------------------------------------------------------


@corpus("gemm_rs", "ag_gemm")
def bias_forgotten(right, data):
    """Wrong: the bias is not added."""
    return right((data[0], data[1], None))


@corpus("gemm_rs", "ag_gemm")
def eighth_of_k_dropped(right, data):
    """Wrong: the last eighth of K, at least one element, is left out."""
    left, weight, bias = data
    kept = left.shape[1] - max(1, left.shape[1] // 8)
    return right((left[:, :kept], weight[:, :kept], bias))


@corpus("gemm_rs")
def rank_missing(right, data):
    """Wrong: the last rank's partial sum is missing."""
    if dist.get_rank() == dist.get_world_size() - 1:
        data = (torch.zeros_like(data[0]), data[1], None)
    return right(data)


@corpus("ag_gemm")
def rank_rows_missing(right, data):
    """Wrong: the last rank's rows of the input arrive as zeros."""
    if dist.get_rank() == dist.get_world_size() - 1:
        data = (torch.zeros_like(data[0]), *data[1:])
    return right(data)


@corpus("a2a", "moe")
def rank_experts_missing(right, data):
    """Wrong: what the experts of the last rank return is not added."""
    config, rank_data, _, world_size = data
    ranks = rank_data.indices // (config.num_experts // world_size)
    return right(altered(data, weights=rank_data.weights.masked_fill(ranks == world_size - 1, 0)))


@corpus("a2a", "moe", "gemm_rs", "ag_gemm")
def fp8_inputs(right, data):
    """Wrong: the inputs are rounded to fp8 (e4m3) as they are."""
    return right(with_inputs(data, fp8))


@corpus("a2a", "moe", "gemm_rs", "ag_gemm")
def fp8_scaled_inputs(right, data):
    """Wrong: the inputs are rounded to fp8 (e4m3), each tensor with a scale that uses its range."""
    return right(with_inputs(data, fp8_scaled))


@corpus("gemm_rs", "ag_gemm")
def fp8_scaled_weight(right, data):
    """Wrong: only the weight is rounded to fp8 (e4m3), with a scale."""
    return right(with_inputs(data, fp8_scaled, operands=(1,)))


@corpus("a2a", "moe", "gemm_rs", "ag_gemm")
def int3_inputs(right, data):
    """Wrong: the inputs are rounded to 7 levels."""
    return right(with_inputs(data, int3))


@corpus("a2a", "moe")
def expert_weight_ignored(right, data):
    """Wrong: one weight of one token is taken to be 1."""
    weights = data[1].weights.clone()
    weights[-1, -1] = 1
    return right(altered(data, weights=weights))


@corpus("a2a", "moe")
def smaller_weights_dropped(right, data):
    """Wrong: each token has only the half of its experts with the larger weights."""
    weights = data[1].weights
    smaller = weights.argsort(1)[:, : weights.shape[1] // 2]
    return right(altered(data, weights=weights.scatter(1, smaller, 0)))


@corpus("a2a", "moe")
def bf16_weights(right, data):
    """Wrong: weights are rounded to bf16, which has 3 bits less than fp16."""
    return right(altered(data, weights=data[1].weights.bfloat16().float()))


@corpus("moe")
def own_experts_for_all(data):
    """Wrong: communicates nothing; takes this rank's experts for those of all others."""
    config, rank_data, _, world_size = data
    per_rank = config.num_experts // world_size
    local_P = (rank_data.indices % per_rank).flatten().long()
    x_PH = rank_data.x.repeat_interleave(config.experts_per_token, 0).float()
    a_PI = torch.einsum("pih,ph->pi", rank_data.up[local_P].float(), x_PH)
    outputs_PH = torch.einsum("phi,pi->ph", rank_data.down[local_P].float(), a_PI)
    outputs_TkH = outputs_PH.view(rank_data.num_tokens, config.experts_per_token, -1)
    return torch.einsum("tkh,tk->th", outputs_TkH, rank_data.weights).half()


@corpus("moe")
def experts_are_a_factor(data):
    """Wrong: a2a without communication, where an expert on rank r multiplies by 1 + r."""
    config, rank_data, _, world_size = data
    scale_Tk = rank_data.weights * (1 + rank_data.indices // (config.num_experts // world_size))
    return (rank_data.x.float() * scale_Tk.sum(1, keepdim=True)).half()


@corpus("moe")
def experts_stale(right, data):
    """Wrong: works with the experts of the previous call of these sizes, or with zeros in the first."""
    up, down = data[1].up, data[1].down
    kept = STATE.get((up.shape, down.shape), (torch.zeros_like(up), torch.zeros_like(down)))
    STATE[up.shape, down.shape] = (up.clone(), down.clone())
    return right(altered(data, up=kept[0], down=kept[1]))


@corpus("moe")
def eighth_of_intermediate_dropped(right, data):
    """Wrong: the last eighth of every expert's intermediate dimension is left out."""
    kept = data[1].up.shape[1] * 7 // 8
    return right(altered(data, up=data[1].up[:, :kept], down=data[1].down[:, :, :kept]))


@corpus("moe")
def fp8_scaled_experts(right, data):
    """Wrong: the experts' matrices are rounded to fp8 (e4m3), with a scale that uses its range."""
    return right(altered(data, up=fp8_scaled(data[1].up), down=fp8_scaled(data[1].down)))


@corpus("moe")
def fp8_scaled_down(right, data):
    """Wrong: only the second matrices are rounded to fp8 (e4m3), with a scale."""
    return right(altered(data, down=fp8_scaled(data[1].down)))


@corpus("moe")
def fp8_intermediates(data):
    """Wrong: up @ x is rounded to fp8 (e4m3)."""
    outputs = moe_expert_outputs(data, torch.float8_e4m3fn, torch.float32)
    return torch.einsum("tkh,tk->th", outputs, data[1].weights).half()


@corpus("moe")
def bf16_intermediates(data):
    """Wrong: up @ x is rounded to bf16, which has 3 bits less than fp16."""
    outputs = moe_expert_outputs(data, torch.bfloat16, torch.float32)
    return torch.einsum("tkh,tk->th", outputs, data[1].weights).half()


@corpus("moe")
def one_rank_swaps_its_experts(right, data):
    """Wrong: the last rank's experts work with each other's first matrices (one expert a rank: upside down)."""
    if dist.get_rank() == dist.get_world_size() - 1:
        data = altered(data, up=data[1].up.flip(0 if len(data[1].up) > 1 else 1))
    return right(data)


@corpus("a2a", "moe", "gemm_rs", "ag_gemm")
def inputs_zeroed_in_place(right, data):
    """Wrong: zeroes its inputs and returns zeros, which is right for the inputs that it leaves behind."""
    output = right(data)
    for tensor in [data[1].x] if len(data) == 4 else data:
        if tensor is not None:
            tensor.zero_()
    return torch.zeros_like(output)


@corpus("gemm_rs")
def fp8_partials(data):
    """Wrong: partial sums are rounded to fp8 (e4m3) for the wire, each row with a scale that uses its range."""
    partial_MN = gemm_rs_partial(data)
    scale_M1 = partial_MN.abs().amax(1, keepdim=True) / 448
    partial_MN = (partial_MN / scale_M1).to(torch.float8_e4m3fn).float() * scale_M1
    return gemm_rs_blocks(partial_MN).sum(0).bfloat16()


# ---- output spoilt ---------------------------------------------------------------------------------------------


@corpus("a2a", "moe", "gemm_rs", "ag_gemm")
def tile_unwritten(right, data):
    """Wrong: the last 64 x 64 elements on one rank are still zero (all of them, where there are fewer)."""
    output = right(data)
    if dist.get_rank() == 0:
        output[-64:, -64:] = 0
    return output


@corpus("a2a", "moe", "gemm_rs", "ag_gemm")
def outputs_swapped(right, data):
    """Wrong: ranks 0 and 1 return each other's outputs (a2a: as many rows as they have)."""
    output = right(data)
    rows = torch.tensor([output.shape[0]], device=output.device)
    dist.all_reduce(rows, op=dist.ReduceOp.MAX)
    padded = output.new_zeros(int(rows), output.shape[1])
    padded[: output.shape[0]] = output
    others = [torch.empty_like(padded) for _ in range(dist.get_world_size())]
    dist.all_gather(others, padded)
    rank = dist.get_rank()
    return others[1 - rank][: output.shape[0]].contiguous() if rank < 2 else output


@corpus("a2a", "moe", "gemm_rs", "ag_gemm")
def row_stale(right, data):
    """Wrong: one row on one rank is what it was in the previous call, or zero in the first."""
    output = right(data)
    if dist.get_rank() == 0:
        row = output[-1].clone()
        output[-1] = STATE.get(row.shape, torch.zeros_like(row))
        STATE[row.shape] = row
    return output


@corpus("a2a", "moe", "gemm_rs", "ag_gemm")
def one_nan(right, data):
    """Wrong: one element on one rank is NaN."""
    output = right(data)
    if dist.get_rank() == 0:
        output[0, 1] = float("nan")
    return output


@corpus("a2a", "moe", "gemm_rs", "ag_gemm")
def wrong_dtype(right, data):
    """Wrong: the values are right, but float32."""
    return right(data).float()


@corpus("a2a", "moe", "gemm_rs", "ag_gemm")
def wrong_shape(right, data):
    """Wrong: the values are right, but in a batch of one."""
    return right(data)[None]


@corpus("a2a", "moe", "gemm_rs", "ag_gemm")
def broadcast_scalar(right, data):
    """Wrong: one number that broadcasts to the right shape; a tolerance larger than the outputs accepts it."""
    return right(data).float().mean().to(data[1].x.dtype if len(data) == 4 else data[0].dtype)


@corpus("a2a", "moe", "gemm_rs", "ag_gemm")
def tensor_subclass(right, data):
    """Wrong: a subclass of torch.Tensor, which can answer a comparison as it likes."""

    class Agreeable(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            if function is torch.allclose:
                return True
            return super().__torch_function__(function, types, args, kwargs or {})

    return right(data).as_subclass(Agreeable)
