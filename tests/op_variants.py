"""Kernels of the operators of one GPU, honest and wrong, each as a function of `data`: the strict verdict tells them
apart on every hardened input of the small suites.

A wrong one that needs something of its input (`needs`) is right without.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import silu


@dataclass(frozen=True, kw_only=True)
class Variant:
    """`needs` says of a case's parameters whether the variant is wrong there."""

    problem: str
    kernel: Callable[[Any], Any]
    is_honest: bool
    needs: Callable[[dict[str, Any]], bool]

    @property
    def name(self) -> str:
        return f"{self.problem}-{self.kernel.__name__}"


VARIANTS: list[Variant] = []


def variant(problem: str, is_honest: bool, needs: Callable[[dict[str, Any]], bool] = lambda params: True) -> Any:
    def mark(kernel: Callable[[Any], Any]) -> Callable[[Any], Any]:
        VARIANTS.append(Variant(problem=problem, kernel=kernel, is_honest=is_honest, needs=needs))
        return kernel

    return mark


def forward(params: dict[str, Any]) -> bool:
    return not params["backward"]


def backward(params: dict[str, Any]) -> bool:
    return bool(params["backward"])


def fp8(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float().clamp(-448, 448).to(torch.float8_e4m3fn).to(tensor.dtype)


def scaled_fp8(tensor: torch.Tensor) -> torch.Tensor:
    """With a scale that uses fp8's range."""
    scale = tensor.abs().amax().float() / 448
    return ((tensor.float() / scale).to(torch.float8_e4m3fn).float() * scale).to(tensor.dtype)


# ---- swiglu ----------------------------------------------------------------------------------------------------------


def swiglu(data, share=torch.sigmoid, slope=lambda gate, part: 1 + gate * (1 - part), rounded=lambda value: value):
    """In float32. `share` is the sigmoid, `slope` its part of silu's, `rounded` what lies between."""
    x, grad = data
    gate, up = x.float().chunk(2, 1)
    part = share(gate)
    if grad is None:
        return (rounded(gate * part) * up).bfloat16()
    for_gate = rounded(rounded(grad.float() * up) * part * slope(gate, part))
    return torch.cat([for_gate, rounded(gate * part) * grad.float()], 1).bfloat16()


@variant("swiglu", is_honest=True)
def one_rounding(data):
    return swiglu(data)


@variant("swiglu", is_honest=True)
def rounded_between(data):
    """silu and grad * up in bf16, as autograd has them."""
    x, grad = data
    gate, up = x.chunk(2, 1)
    if grad is None:
        return silu(gate) * up
    for_silu = torch.ops.aten.silu_backward(grad * up, gate)
    return torch.cat([for_silu, silu(gate) * grad], 1)


@variant("swiglu", is_honest=False)
def halves_exchanged(data):
    x, grad = data
    return swiglu((torch.cat(x.chunk(2, 1)[::-1], 1), grad))


@variant("swiglu", is_honest=False)
def fp8_x(data):
    return swiglu((fp8(data[0]), data[1]))


@variant("swiglu", is_honest=False)
def up_in_scaled_fp8(data):
    gate, up = data[0].chunk(2, 1)
    return swiglu((torch.cat([gate, scaled_fp8(up)], 1), data[1]))


@variant("swiglu", is_honest=False)
def x_in_int8_blocks(data):
    """Each 32 columns, or less, with a scale."""
    parts = [part.float() for part in data[0].split(32, 1)]
    scales = [part.abs().amax(1, keepdim=True) / 127 for part in parts]
    rounded = [(part / scale).round() * scale for part, scale in zip(parts, scales, strict=True)]
    return swiglu((torch.cat(rounded, 1).to(data[0].dtype), data[1]))


@variant("swiglu", is_honest=False, needs=backward)
def gradient_in_scaled_fp8(data):
    return swiglu((data[0], scaled_fp8(data[1])))


@variant("swiglu", is_honest=False)
def hard_sigmoid(data):
    """A cheap sigmoid, as a hard-swish has it."""
    return swiglu(data, share=lambda gate: (gate / 6 + 0.5).clamp(0, 1))


@variant("swiglu", is_honest=False)
def sigmoid_of_a_little_more(data):
    return swiglu(data, share=lambda gate: torch.sigmoid(1.02 * gate))


@variant("swiglu", is_honest=False, needs=backward)
def slope_of_the_sigmoid_forgotten(data):
    return swiglu(data, slope=lambda gate, part: 1.0)


@variant("swiglu", is_honest=False)
def last_column_missing(data):
    result = swiglu(data)
    result[:, -1] = 0
    return result


@variant("swiglu", is_honest=False)
def rows_exchanged(data):
    result = swiglu(data)
    result[[0, 1]] = result[[1, 0]]
    return result


# ---- rms_norm --------------------------------------------------------------------------------------------------------


def rms_norm(data, eps=None, mean=slice(None), passed=True, rows=slice(None), centred=False, columns=slice(None)):
    """In float32; the arguments leave out what a variant forgets: `mean` and `columns` say of what there are means."""
    first, second, weight, grad, right_eps = data
    eps = right_eps if eps is None else eps
    total = first.float() + (second.float() if passed else 0) if grad is None else first.float()
    if centred:
        total = total - total.mean(1, keepdim=True)
    scale = torch.rsqrt(total.square()[:, columns].mean(1, keepdim=True) + eps)
    normed = total * scale
    if grad is None:
        return (normed * weight.float()).bfloat16(), total.bfloat16()
    given = grad.float() * weight.float()
    less = normed * (given * normed)[:, mean].mean(1, keepdim=True) if mean else 0.0
    result = scale * (given - less) + (second.float() if passed else 0)
    return result.bfloat16(), (grad.float() * normed)[rows].sum(0).bfloat16()


@variant("rms_norm", is_honest=True)
def float32_throughout(data):
    return rms_norm(data)


@variant("rms_norm", is_honest=True)
def rounded_sum_and_norm(data):
    """h and the norm in bf16, as many models write it, and autograd's backward pass of that."""
    first, second, weight, grad, eps = data
    if grad is None:
        total = first + second
        scale = torch.rsqrt(total.float().square().mean(1, keepdim=True) + eps)
        return (total.float() * scale).bfloat16() * weight, total
    with torch.enable_grad():
        total, factor = first.detach().requires_grad_(), weight.detach().requires_grad_()
        scale = torch.rsqrt(total.float().square().mean(1, keepdim=True) + eps)
        result = (total.float() * scale).bfloat16() * factor
        through, of_weight = torch.autograd.grad(result, (total, factor), grad)
    return through + second, of_weight


@variant("rms_norm", is_honest=True)
def rounded_factors(data):
    """In the backward pass the norm and grad * weight in bf16, and the products of the weight's gradient: what a
    kernel does that keeps the norm of the forward pass."""
    total, passed, weight, grad, eps = data
    if grad is None:
        return rms_norm(data)
    scale = torch.rsqrt(total.float().square().mean(1, keepdim=True) + eps)
    normed, given = (total.float() * scale).bfloat16(), (grad * weight).float()
    less = normed.float() * (given * normed.float()).mean(1, keepdim=True)
    return (scale * (given - less) + passed.float()).bfloat16(), (grad * normed).float().sum(0).bfloat16()


@variant("rms_norm", is_honest=False)
def eps_forgotten(data):
    return rms_norm(data, eps=1e-12)


@variant("rms_norm", is_honest=False)
def eps_a_tenth_larger(data):
    return rms_norm(data, eps=1.1 * data[4])


@variant("rms_norm", is_honest=False)
def second_input_in_scaled_fp8(data):
    return rms_norm((data[0], scaled_fp8(data[1]), *data[2:]))


@variant("rms_norm", is_honest=False)
def weight_in_scaled_fp8(data):
    return rms_norm((*data[:2], scaled_fp8(data[2]), *data[3:]))


@variant("rms_norm", is_honest=False, needs=backward)
def passed_gradient_in_scaled_fp8(data):
    return rms_norm((*data[:3], scaled_fp8(data[3]), data[4]))


@variant("rms_norm", is_honest=False)
def fp8_first(data):
    return rms_norm((fp8(data[0]), *data[1:]))


@variant("rms_norm", is_honest=False)
def weight_forgotten(data):
    return rms_norm((data[0], data[1], torch.ones_like(data[2]), *data[3:]))


@variant("rms_norm", is_honest=False)
def second_input_forgotten(data):
    return rms_norm(data, passed=False)


@variant("rms_norm", is_honest=False, needs=forward)
def layer_norm(data):
    return rms_norm(data, centred=True)


@variant("rms_norm", is_honest=False, needs=forward)
def sum_without_the_residual(data):
    return rms_norm(data)[0], data[0]


@variant("rms_norm", is_honest=False, needs=backward)
def mean_forgotten(data):
    return rms_norm(data, mean=False)


@variant("rms_norm", is_honest=False, needs=backward)
def mean_of_every_other_column(data):
    return rms_norm(data, mean=slice(None, None, 2))


@variant("rms_norm", is_honest=False)
def squares_of_every_other_column(data):
    return rms_norm(data, columns=slice(None, None, 2))


@variant("rms_norm", is_honest=False, needs=backward)
def a_row_missing_in_the_weights_gradient(data):
    return rms_norm(data, rows=slice(1, None))


@variant("rms_norm", is_honest=False, needs=backward)
def weights_gradient_summed_in_bf16(data):
    result, _ = rms_norm(data)
    scale = torch.rsqrt(data[0].float().square().mean(1, keepdim=True) + data[4])
    products = (data[3].float() * data[0].float() * scale).bfloat16()
    total = torch.zeros_like(products[0])
    for row in products:
        total += row
    return result, total


# ---- cross_entropy ---------------------------------------------------------------------------------------------------


def cross_entropy(data, most=True, columns=None, at_target=True, count_all=False, **changed):
    """In float32; the arguments leave out what a variant forgets."""
    logits, targets, ignore_index, smoothing, scale = data
    smoothing, scale = changed.get("smoothing", smoothing), changed.get("scale", scale)
    counts = (targets != ignore_index)[:, None]
    value = logits.float()
    top = value.amax(1, keepdim=True) if most else 0.0
    lse = top + (value - top).exp()[:, :columns].sum(1, keepdim=True).log()
    chosen = torch.where(counts, targets[:, None], 0)
    loss = lse - (1 - smoothing) * value.gather(1, chosen) - smoothing * value.mean(1, keepdim=True)
    factor = scale / (len(targets) if count_all else counts.sum())
    grad = (value - lse).exp() - smoothing / value.shape[1]
    if at_target:
        grad.scatter_add_(1, chosen, torch.full_like(loss, smoothing - 1))
    grad = grad * factor
    if not changed.get("heeds_ignored", True):
        counts = torch.ones_like(counts)
    return torch.where(counts, loss, 0)[:, 0], logits.copy_(torch.where(counts, grad, 0))


def ignores(params: dict[str, Any]) -> bool:
    return params["ignored"] > 0


@variant("cross_entropy", is_honest=True)
def in_place(data):
    return cross_entropy(data)


@variant("cross_entropy", is_honest=True)
def elsewhere(data):
    """The gradient in memory of its own."""
    losses, grad = cross_entropy((data[0].clone(), *data[1:]))
    return losses, grad.clone()


@variant("cross_entropy", is_honest=True)
def scaled_afterwards(data):
    """The gradient is rounded, multiplied by the loss scale, and rounded again."""
    losses, grad = cross_entropy(data, scale=1.0)
    return losses, grad.mul_(data[4])


@variant("cross_entropy", is_honest=True)
def probabilities_in_bf16(data):
    losses, _ = cross_entropy((data[0].clone(), *data[1:]))
    return losses, gradient_of(data, data[0].float().softmax(1).bfloat16().float())


@variant("cross_entropy", is_honest=False)
def largest_not_subtracted(data):
    return cross_entropy(data, most=False)


@variant("cross_entropy", is_honest=False)
def last_column_not_summed(data):
    """With few classes and even probabilities this is all that is wrong."""
    return cross_entropy(data, columns=-1)


@variant("cross_entropy", is_honest=False)
def target_forgotten(data):
    return cross_entropy(data, at_target=False)


@variant("cross_entropy", is_honest=False)
def logits_in_fp8(data):
    return cross_entropy((fp8(data[0]), *data[1:]))


@variant("cross_entropy", is_honest=False)
def gradient_left_out(data):
    losses, _ = cross_entropy((data[0].clone(), *data[1:]))
    return losses, data[0]


@variant("cross_entropy", is_honest=False, needs=lambda params: params["vocab"] > 1000)
def largest_1000_summed(data):
    losses, _ = cross_entropy((data[0].clone(), *data[1:]))
    lse = data[0].float().topk(1000, 1).values.logsumexp(1, keepdim=True)
    return losses, gradient_of(data, (data[0].float() - lse).exp())


@variant("cross_entropy", is_honest=False)
def small_probabilities_dropped(data):
    """Those below 2^-12, which bf16 does not show beside 1: the filter of Cut Cross-Entropy."""
    losses, _ = cross_entropy((data[0].clone(), *data[1:]))
    share = data[0].float().softmax(1)
    return losses, gradient_of(data, share * (share >= 2**-12))


@variant("cross_entropy", is_honest=False)
def logits_gradient_in_scaled_fp8(data):
    losses, grad = cross_entropy(data)
    return losses, grad.copy_(scaled_fp8(grad))


@variant("cross_entropy", is_honest=False, needs=lambda params: params["row_stride"] > params["vocab"])
def gaps_between_rows_summed(data):
    """What lies between two rows is taken for classes; it is not a number in hardened inputs."""
    logits, *rest = data
    wide = logits.as_strided((len(logits), logits.stride(0)), logits.stride())
    losses, grad = cross_entropy((wide, *rest))
    return losses, grad[:, : logits.shape[1]]


@variant("cross_entropy", is_honest=False, needs=lambda params: params["label_smoothing"] > 0 and params["vocab"] < 500)
def smoothing_over_the_other_classes(data):
    """1 / (V - 1) in place of 1 / V, which many classes make the same."""
    classes = data[0].shape[1]
    return cross_entropy(data, smoothing=data[3] * classes / (classes - 1))


@variant("cross_entropy", is_honest=False)
def losses_in_bf16(data):
    losses, grad = cross_entropy(data)
    return losses.bfloat16().float(), grad


@variant("cross_entropy", is_honest=False)
def log_probabilities_in_bf16(data):
    losses, _ = cross_entropy((data[0].clone(), *data[1:]))
    return losses, gradient_of(data, torch.log_softmax(data[0], 1).float().exp())


@variant("cross_entropy", is_honest=False, needs=lambda params: params["label_smoothing"] > 0)
def smoothing_forgotten(data):
    return cross_entropy(data, smoothing=0.0)


@variant("cross_entropy", is_honest=False, needs=lambda params: params["loss_scale"] != 1)
def scale_forgotten(data):
    return cross_entropy(data, scale=1.0)


@variant("cross_entropy", is_honest=False, needs=ignores)
def mean_over_all_tokens(data):
    return cross_entropy(data, count_all=True)


@variant("cross_entropy", is_honest=False, needs=ignores)
def ignored_tokens_counted(data):
    return cross_entropy(data, heeds_ignored=False)


def gradient_of(data, probabilities):
    """The gradient for these probabilities."""
    logits, targets, ignore_index, smoothing, scale = data
    counts = (targets != ignore_index)[:, None]
    grad = probabilities - smoothing / logits.shape[1]
    grad.scatter_add_(1, torch.where(counts, targets[:, None], 0), grad.new_full((len(grad), 1), smoothing - 1))
    return torch.where(counts, grad * (scale / counts.sum()), 0).bfloat16()
