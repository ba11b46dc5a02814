"""cross_entropy, forward and backward at once, with the gradient written over the logits.

With probabilities p, smoothing s and lse = log(sum(exp(x))), a token's loss is lse - (1 - s) x[target] - s mean(x), and
the gradient of its logits is scale / count * (p - s / V - (1 - s) [target]), where `count` tokens have targets.

Legend: M tokens, m some of them, V classes (vocab).
"""

from collections.abc import Iterator

import torch
from params import cost as cost
from task import input_t, output_t
from torch import Tensor
from torch.nn.functional import cross_entropy
from utils import rank_device, seeded, within_tolerance

from harness.judging.correctness import Expected, rounding_noise

RTOL, LOSS_ATOL = 2e-2, 1e-7  # the gradient's absolute tolerance is RTOL of an even probability's part of it
SHIFT = 96.0  # of hardened logits: exp(96) is not a float32
AT_ONCE = 1 << 26  # logits that exact_kernel works on
# Of the largest term of a loss. In float32, in whatever order, the worst losses of 32000 and 128256 classes were off by
# 0.3 to 1.5 of the noise that this makes; where exponentials were rounded to bf16 before they were summed, by 13 to 65.
LOSS_U = 2.0**-22


def generate_input(
    rank: int,
    world_size: int,
    tokens: int,
    vocab: int,
    row_stride: int,
    ignored: int,
    ignore_index: int,
    label_smoothing: float,
    loss_scale: float,
    seed: int,
) -> input_t:
    """Normal logits, uniform targets; which tokens are ignored is random."""
    device = rank_device()
    on = {"device": device, "generator": seeded(seed, device)}
    wide_MS = torch.randn(tokens, row_stride, dtype=torch.bfloat16, **on)
    targets_M = torch.randint(0, vocab, (tokens,), **on)
    targets_M[torch.randperm(tokens, **on)[:ignored]] = ignore_index
    return wide_MS[:, :vocab], targets_M, ignore_index, label_smoothing, loss_scale


def harden(data: input_t, seed: int) -> input_t:
    """Probabilities are far from even, and every fourth token's logits are so large that exp overflows without care:
    logits are doubled, and those of tokens 1, 5, 9 ... raised by 96. The targets stay."""
    logits_MV, *rest = data
    wide = (len(logits_MV), logits_MV.stride(0))
    hardened_MV = logits_MV.new_full(wide, torch.nan)[:, : logits_MV.shape[1]]  # what is between rows is nobody's
    torch.mul(logits_MV, 2, out=hardened_MV)
    hardened_MV[1::4] += SHIFT
    return hardened_MV, *rest


def ref_kernel(data: input_t) -> output_t:
    """As training loops write it: torch's cross_entropy on float32 logits, and autograd."""
    logits_MV, targets_M, ignore_index, label_smoothing, loss_scale = data
    with torch.enable_grad():
        leaf_MV = logits_MV.detach().requires_grad_()
        losses_M = cross_entropy(
            leaf_MV.float(),
            targets_M,
            ignore_index=ignore_index,
            label_smoothing=label_smoothing,
            reduction="none",
        )
        mean = losses_M.sum() / (targets_M != ignore_index).sum()
        (grad_MV,) = torch.autograd.grad(mean * loss_scale, leaf_MV)
    return losses_M.detach(), logits_MV.copy_(grad_MV)


def exact_kernel(data: input_t) -> tuple[Expected, Expected]:
    """Computed in float32, which the logits are exact in, with sums in float64, some tokens at a time. A kernel may
    round to bf16: a probability; the gradient before it is multiplied by the loss scale, and after. A loss may be off
    by what summing in float32 makes of its terms."""
    logits_MV, targets_M, ignore_index, smoothing, scale = data
    classes = logits_MV.shape[1]
    value_MV = torch.empty(logits_MV.shape, dtype=torch.float32, device=logits_MV.device)
    noise_MV = torch.empty_like(value_MV)
    losses_M = torch.empty(len(targets_M), dtype=torch.float32, device=logits_MV.device)
    terms_M = torch.empty_like(losses_M)
    factor = scale / int((targets_M != ignore_index).sum())
    for tokens in some_tokens(logits_MV):
        value_mV = value_MV[tokens].copy_(logits_MV[tokens])
        counts_m1 = (targets_M[tokens] != ignore_index)[:, None]
        chosen_m1 = torch.where(counts_m1, targets_M[tokens, None], 0)
        own_m1 = value_mV.gather(1, chosen_m1).double()
        mean_m1 = value_mV.sum(1, keepdim=True, dtype=torch.float64) / classes
        top_m1 = value_mV.amax(1, keepdim=True)
        sum_m1 = value_mV.sub_(top_m1).exp_().sum(1, keepdim=True, dtype=torch.float64)
        lse_m1 = sum_m1.log().add_(top_m1)
        loss_m1 = lse_m1 - (1 - smoothing) * own_m1 - smoothing * mean_m1
        losses_M[tokens] = torch.where(counts_m1, loss_m1, 0)[:, 0]
        terms_M[tokens] = torch.where(counts_m1, torch.maximum(lse_m1.abs(), own_m1.abs()) + 1, 0)[:, 0]
        factor_m1 = counts_m1 * factor
        torch.square(value_mV.mul_((factor_m1 / sum_m1).float()), out=noise_MV[tokens])
        value_mV.sub_(factor_m1 * (smoothing / classes))
        value_mV.scatter_add_(1, chosen_m1, factor_m1 * (smoothing - 1))
        noise_MV[tokens].addcmul_(value_mV, value_mV, value=2)
    noise_MV = rounding_noise(noise_MV, logits_MV.dtype)
    return (
        Expected(value=losses_M, noise=LOSS_U * terms_M, dtype=torch.float32, name="the losses"),
        Expected(value=value_MV, noise=noise_MV, dtype=logits_MV.dtype, name="the gradient"),
    )


def some_tokens(logits_MV: Tensor) -> Iterator[slice]:
    step = max(1, AT_ONCE // logits_MV.shape[1])
    return (slice(start, start + step) for start in range(0, len(logits_MV), step))


def check_implementation(data: input_t, output: output_t) -> tuple[bool, str]:
    logits_MV, targets_M, ignore_index, _, loss_scale = data
    even = loss_scale / int((targets_M != ignore_index).sum()) / logits_MV.shape[1]
    given = zip(output, ref_kernel(data), (LOSS_ATOL, RTOL * even), strict=True)
    found = [within_tolerance(own, right, RTOL, atol) for own, right, atol in given]
    return next((one for one in found if not one[0]), (True, ""))
