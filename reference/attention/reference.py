"""attention: causal attention with grouped queries, forward and backward, in bf16 with float32 sums.

The scores' scale is 1 / sqrt(D). A backward call is given the output and the logarithms of the forward call, as torch's
own and other libraries' are, so it measures the gradients alone.

Legend: B batch, H heads of queries, G of keys and values, R = H / G, S places, D numbers a head. In `exact_kernel`
one block of queries at a time, of the R heads that share keys: Q queries, K keys, which are those up to the last of
these queries.
"""

import math
from collections.abc import Iterator

import torch
from params import cost as cost
from task import Saved, input_t, output_t
from torch import Tensor
from utils import rank_device, seeded, within_tolerance

from harness.judging.correctness import Expected, accumulation_variance, product, rounding_noise, rounding_variance

RTOL = ATOL = 2e-2
SHIFT = 144.0  # the least of what is added to hardened scores: e^89 is beyond float32
FIRST, SECOND = 24, 20  # the first two numbers of a hardened query; a key has 5 or 6 units there: 24 * 5 is 20 * 6
FEW = 4 / 3  # the largest variance of rounding a value, just above a power of 2, over the usual one
ONE = 8.0  # times the variance of an error that all numbers of a row share: it is not the mean over many
BLOCK = 1024  # queries at a time: few scores are of keys that come after all of them


def generate_input(
    rank: int, world_size: int, batch: int, heads: int, kv_heads: int, seq: int, dim: int, backward: bool, seed: int
) -> input_t:
    """Normal queries, keys, values and, for a backward call, gradients of the output."""
    generator = seeded(seed, rank_device())

    def normal(heads: int) -> Tensor:
        shape = (batch, heads, seq, dim)
        return torch.randn(shape, dtype=torch.bfloat16, device=generator.device, generator=generator)

    queries, keys, values = normal(heads), normal(kv_heads), normal(kv_heads)
    gradient = normal(heads) if backward else None
    return queries, keys, values, None if gradient is None else _saved(queries, keys, values, gradient)


def _saved(queries: Tensor, keys: Tensor, values: Tensor, gradient: Tensor) -> Saved:
    output = torch.empty_like(queries)
    logarithm = queries.new_empty(queries.shape[:3], dtype=torch.float32)
    for b, mine, g in _groups(queries, keys):
        for rows, scores_RQK in _scores(queries[b, mine], keys[b, g]):
            logarithm_RQ = scores_RQK.logsumexp(2)
            logarithm[b, mine, rows] = logarithm_RQ
            scores_RQK.sub_(logarithm_RQ[..., None]).exp_()
            output[b, mine, rows] = (scores_RQK @ values[b, g, : rows.stop].float()).to(output.dtype)
    return Saved(output, logarithm, gradient)


def _groups(queries: Tensor, keys: Tensor) -> Iterator[tuple[int, slice, int]]:
    """The heads of queries that share keys: batch, heads, their head of keys."""
    share = queries.shape[1] // keys.shape[1]
    for b in range(queries.shape[0]):
        for g in range(keys.shape[1]):
            yield b, slice(g * share, (g + 1) * share), g


def _scores(q_RSD: Tensor, k_SD: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Blocks of some heads' queries and their scaled scores, float32 [R, Q, K], -inf where a key comes after the
    query."""
    _, seq, dim = q_RSD.shape
    for first in range(0, seq, BLOCK):
        rows = slice(first, min(first + BLOCK, seq))
        scores_RQK = _products(q_RSD[:, rows], k_SD[: rows.stop]).mul_(dim**-0.5)
        size = rows.stop - first
        after_QQ = torch.ones(size, size, dtype=torch.bool, device=q_RSD.device).triu_(1)
        scores_RQK[:, :, first:].masked_fill_(after_QQ, -torch.inf)
        yield rows, scores_RQK


def _products(a_RQD: Tensor, b_KD: Tensor) -> Tensor:
    """a b^T of bf16 operands in float32, [R, Q, K]."""
    return product(a_RQD.flatten(0, 1), b_KD).unflatten(0, a_RQD.shape[:2])


def _roughly(a: Tensor, b: Tensor) -> Tensor:
    """a b for a variance: on GPUs the operands are rounded to bf16, which matrix units multiply."""
    if not a.is_cuda:
        return a @ b
    return (a.bfloat16() @ b.bfloat16()).float()


def harden(data: input_t, seed: int) -> input_t:
    """The inputs of the strict checker: all scores are higher by SHIFT or a little more, which changes no result, but
    overflows where a kernel does not subtract a row's maximum. Even keys have it from a query's first number, odd keys
    from its second. Both products are equal, but not in a kernel that rounds queries or keys once they are scaled."""
    queries, keys, values, saved = data
    queries, keys = queries.clone(), keys.clone()
    # Few bits, so that its multiples are exact in bf16. With 9 for heads of 64, scaled keys would round alike.
    unit = math.ceil(4 * SHIFT * keys.shape[-1] ** 0.5 / (FIRST * SECOND))
    queries[..., 0], queries[..., 1:2] = FIRST, SECOND  # 1:2, since a head may have one number alone
    keys[..., :2] = 0
    keys[..., ::2, 0], keys[..., 1::2, 1:2] = SECOND // 4 * unit, FIRST // 4 * unit
    return queries, keys, values, None if saved is None else _saved(queries, keys, values, saved.gradient_BHSD)


def ref_kernel(data: input_t) -> output_t:
    """The reference that is timed: torch's attention, and what autograd calls for its gradients."""
    queries, keys, values, saved = data
    if saved is None:
        return torch.nn.functional.scaled_dot_product_attention(
            queries, keys, values, is_causal=True, enable_gqa=queries.shape[1] != keys.shape[1]
        )
    if queries.device.type == "cpu":
        # Heads that share keys get copies of them: torch's kernel would round the sum over them at every head.
        share = queries.shape[1] // keys.shape[1]
        copies = (tensor.repeat_interleave(share, 1) for tensor in (keys, values))
        dq, dk, dv = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
            saved.gradient_BHSD, queries, *copies, saved.output_BHSD, saved.logarithm_BHS, 0.0, True
        )
        gradients = (dq, *(one.unflatten(1, (-1, share)).sum(2) for one in (dk, dv)))
    else:
        seq, state = queries.shape[2], queries.new_zeros(2, dtype=torch.uint64)
        gradients = torch.ops.aten._scaled_dot_product_flash_attention_backward(
            saved.gradient_BHSD,
            queries,
            keys,
            values,
            saved.output_BHSD,
            saved.logarithm_BHS,
            None,
            None,
            seq,
            seq,
            0.0,
            True,
            state,
            state[0],
        )[:3]
    return tuple(gradients)


def exact_kernel(data: input_t) -> Expected | tuple[Expected, Expected, Expected]:
    """The result in float32, and the noise of rounding to bf16 the weights, their gradients and the results."""
    queries, keys, values, saved = data
    return _exact_forward(queries, keys, values) if saved is None else _exact_backward(queries, keys, values, saved)


def _exact_forward(queries: Tensor, keys: Tensor, values: Tensor) -> Expected:
    """A kernel rounds each weight p (before or after it divides by their sum) and the result: the squares are
    sum p^2 v^2 and the result's."""
    value = torch.empty_like(queries, dtype=torch.float32)
    terms = torch.empty_like(value)
    for b, mine, g in _groups(queries, keys):
        for rows, scores_RQK in _scores(queries[b, mine], keys[b, g]):
            p_RQK = scores_RQK.softmax(2)
            v_KD = values[b, g, : rows.stop].float()
            value[b, mine, rows] = p_RQK @ v_KD
            terms[b, mine, rows] = _roughly(p_RQK.square_(), v_KD.square())
    return _expected(value, terms, queries, "the output")


def _exact_backward(queries: Tensor, keys: Tensor, values: Tensor, saved: Saved) -> tuple[Expected, Expected, Expected]:
    """With weights p, gradients do of the output o, and ds = p (do v - do o):

    dq = scale sum ds k, dk = scale sum ds q, dv = sum p do

    A kernel rounds each ds and p, and the results; those of keys and values also for each head of queries by itself,
    before it adds up the heads that share keys. ds also has the error of its two sums. The second query's dq has one
    rounding in all its numbers, since its two ds differ in sign alone: it is not the mean over many. A kernel may also
    find do o from its own output or weights, as flex_attention does: what these round is one error of all ds of a
    query, so that dq has it times the mean of k.
    """
    scale, kv_shape = queries.shape[-1] ** -0.5, keys.shape
    dq, dq_terms = (torch.empty_like(queries, dtype=torch.float32) for _ in range(2))
    dk, dk_terms, dv, dv_terms = (queries.new_zeros(kv_shape, dtype=torch.float32) for _ in range(4))
    seq, dim = queries.shape[2:]
    for b, mine, g in _groups(queries, keys):
        k_SD, v_SD, do_RSD = keys[b, g].float(), values[b, g].float(), saved.gradient_BHSD[b, mine].float()
        mean_dp2_R = ((do_RSD.mT @ do_RSD) * (v_SD.T @ v_SD)).sum((1, 2)) / seq**2  # over all queries and keys
        dk_RSD, dv_RSD = (torch.zeros_like(do_RSD) for _ in range(2))
        for rows, scores_RQK in _scores(queries[b, mine], keys[b, g]):
            before = slice(rows.stop)
            k_KD, v_KD = k_SD[before], v_SD[before]
            q_RQD, do_RQD = queries[b, mine, rows].float(), do_RSD[:, rows]
            o_RQD, do2_RQD = saved.output_BHSD[b, mine, rows].float(), do_RQD.square()
            p_RQK = scores_RQK.sub_(saved.logarithm_BHS[b, mine, rows, None]).exp_()
            delta_RQ = (do_RQD * o_RQD).sum(2)
            ds_RQK = _products(saved.gradient_BHSD[b, mine, rows], values[b, g, before])
            ds_RQK.sub_(delta_RQ[..., None]).mul_(p_RQK)
            dq[b, mine, rows] = ds_RQK @ k_KD
            dk_RSD[:, before] += ds_RQK.mT @ q_RQD
            dv_RSD[:, before] += p_RQK.mT @ do_RQD
            # Variances, in units of a rounding. ds is the difference of two sums in float32, which may be nearly equal.
            sums_RQ = accumulation_variance(dim, mean_dp2_R[:, None] + delta_RQ.square())
            sums_RQ.div_(rounding_variance(queries.dtype))
            mean_k2_RQD = _roughly(p_RQK, k_KD).square_()
            p2_RQK = p_RQK.square_()
            # Of do o: the roundings of two outputs, and of the weights of one.
            o2_RQD = o_RQD.square_().mul_(2).add_(_roughly(p2_RQK, v_KD.square()))
            anew_RQ = (do2_RQD * o2_RQD).sum(2).mul_(ONE)
            ds2_RQK = ds_RQK.square_().mul_(FEW).addcmul_(p2_RQK, sums_RQ.add_(anew_RQ)[..., None])
            dq_terms[b, mine, rows] = _roughly(ds2_RQK, k_KD.square()).addcmul_(mean_k2_RQD, anew_RQ[..., None])
            dk_terms[b, g, before] += _roughly(ds2_RQK.mT, q_RQD.square()).sum(0)
            dv_terms[b, g, before] += _roughly(p2_RQK.mT, do2_RQD).sum(0)
        dk[b, g] = dk_RSD.sum(0)
        dk_terms[b, g] += dk_RSD.square_().sum(0)
        dv[b, g] = dv_RSD.sum(0)
        dv_terms[b, g] += dv_RSD.square_().sum(0)
    for gradient, terms in ((dq, dq_terms), (dk, dk_terms)):
        gradient.mul_(scale)
        terms.mul_(scale * scale)
    return (
        _expected(dq, dq_terms, queries, "the queries' gradient"),
        _expected(dk, dk_terms, queries, "the keys' gradient"),
        _expected(dv, dv_terms, queries, "the values' gradient"),
    )


def _expected(value: Tensor, terms: Tensor, queries: Tensor, name: str) -> Expected:
    """The noise, given the sum of squares of what is rounded before the result (overwritten)."""
    accumulation = accumulation_variance(queries.shape[2], terms)
    noise = rounding_noise(terms.add_(value.square()), queries.dtype, accumulation)
    return Expected(value=value, noise=noise, dtype=queries.dtype, name=name)


def check_implementation(data: input_t, output: output_t) -> tuple[bool, str]:
    """A plain tolerance, against the timed reference; of gradients the first that is off is named."""
    right = ref_kernel(data)
    if isinstance(right, Tensor):
        return within_tolerance(output, right, RTOL, ATOL)
    for name, one, expected in zip(("dq", "dk", "dv"), output, right, strict=True):
        passed, message = within_tolerance(one, expected, RTOL, ATOL)
        if not passed:
            return False, f"{name}: {message}"
    return True, ""
