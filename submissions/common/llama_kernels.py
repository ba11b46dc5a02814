"""The elementwise steps of a Llama's training as Triton kernels: inputs are read once, results written once.

Arithmetic is in float32, whatever the tensors are. Why it wins on GPUs: eager torch writes every step between to memory
and reads it back, and under autocast in float32. The interpreter runs them on CPU tensors too.

Legend: T tokens, H hidden, N query heads, K key and value heads, D width of a head, F ffn, V vocabulary, P programs.
"""

import torch
import triton
import triton.language as tl
from common.tuning import warps_of
from torch import Tensor

INTERPRETED = triton.knobs.runtime.interpret  # kernels run as Python, on CPU tensors too
ELEMENTS = 8  # of a block that a thread holds
CHUNK = 4096  # columns of the logits that a program has at a time
GATES = 2048  # columns of the ffn that a program does
RESIDENT = 8  # programs a multiprocessor that sum up a norm's gradient
NORM_EPSILON = 1e-5


@triton.jit
def add_norm(stream, delta, weight, total, normed, hidden, epsilon, BLOCK: tl.constexpr):
    """One program: a row of `total` = stream + delta, and of `normed`, its RMS norm."""
    at = tl.arange(0, BLOCK)
    inside = at < hidden
    place = tl.program_id(0).to(tl.int64) * hidden + at
    value = tl.load(stream + place, mask=inside, other=0.0).to(tl.float32)
    value += tl.load(delta + place, mask=inside, other=0.0).to(tl.float32)
    value = value.to(total.dtype.element_ty)
    tl.store(total + place, value, mask=inside)
    value = value.to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value) / hidden + epsilon)
    factor = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(normed + place, (value * scale * factor).to(normed.dtype.element_ty), mask=inside)


@triton.jit
def add_norm_back(total, passed, given, weight, out, partial, rows, hidden, epsilon, BLOCK: tl.constexpr):
    """Rows of `out`, the gradient of either summand, from `passed`, the gradient of `total`, and `given`, that of the
    norm; and this program's part of the weight's gradient."""
    at = tl.arange(0, BLOCK)
    inside = at < hidden
    factor = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    found = tl.zeros((BLOCK,), tl.float32)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        place = tl.cast(row, tl.int64) * hidden + at
        value = tl.load(total + place, mask=inside, other=0.0).to(tl.float32)
        gradient = tl.load(given + place, mask=inside, other=0.0).to(tl.float32)
        scale = tl.rsqrt(tl.sum(value * value) / hidden + epsilon)
        value *= scale
        found += gradient * value
        gradient *= factor
        mean = tl.sum(gradient * value) / hidden
        gradient = scale * (gradient - value * mean)
        gradient += tl.load(passed + place, mask=inside, other=0.0).to(tl.float32)
        tl.store(out + place, gradient.to(out.dtype.element_ty), mask=inside)
    tl.store(partial + tl.program_id(0) * hidden + at, found, mask=inside)


@triton.jit
def rotate(
    heads, out, cosines, sines, length, pairs, turned, sign, HALF: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """One program: the heads of one token, of which the pairs below `turned` are rotated by `sign` times their angle,
    and the others copied."""
    at = tl.arange(0, BLOCK)
    inside = at < pairs
    angle = tl.program_id(0) % length * HALF + at % HALF
    left = tl.program_id(0).to(tl.int64) * pairs * 2 + at // HALF * (2 * HALF) + at % HALF
    one = tl.load(heads + left, mask=inside, other=0.0).to(tl.float32)
    two = tl.load(heads + left + HALF, mask=inside, other=0.0).to(tl.float32)
    cosine = tl.load(cosines + angle, mask=at < turned, other=1.0)
    sine = tl.load(sines + angle, mask=at < turned, other=0.0) * sign
    tl.store(out + left, (one * cosine - two * sine).to(out.dtype.element_ty), mask=inside)
    tl.store(out + left + HALF, (one * sine + two * cosine).to(out.dtype.element_ty), mask=inside)


@triton.jit
def gate(both, out, columns, BLOCK: tl.constexpr):
    """One program: a block of a row of silu(gate) * up, of [T, gate and up]."""
    row, at = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside, line = at < columns, both + row * 2 * columns
    first = tl.load(line + at, mask=inside).to(tl.float32)
    second = tl.load(line + columns + at, mask=inside).to(tl.float32)
    found = first * tl.sigmoid(first) * second
    tl.store(out + row * columns + at, found.to(out.dtype.element_ty), mask=inside)


@triton.jit
def gate_back(both, given, out, columns, BLOCK: tl.constexpr):
    """One program: what a block of a row of the gradient [T, F] makes of both halves of `both` and `out`."""
    row, at = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside, line, made = at < columns, both + row * 2 * columns, out + row * 2 * columns
    first = tl.load(line + at, mask=inside).to(tl.float32)
    second = tl.load(line + columns + at, mask=inside).to(tl.float32)
    gradient = tl.load(given + row * columns + at, mask=inside).to(tl.float32)
    share = tl.sigmoid(first)
    of_first = gradient * second * share * (1 + first * (1 - share))
    tl.store(made + at, of_first.to(out.dtype.element_ty), mask=inside)
    tl.store(made + columns + at, (gradient * first * share).to(out.dtype.element_ty), mask=inside)


@triton.jit
def softmax_less_target(logits, targets, vocabulary, scale, BLOCK: tl.constexpr):
    """One program: `scale` times the gradient of one token's cross entropy, over its logits."""
    row = tl.program_id(0).to(tl.int64)
    line, target = logits + row * vocabulary, tl.load(targets + row)
    most, total = float("-inf"), 0.0
    for start in range(0, vocabulary, BLOCK):
        at = start + tl.arange(0, BLOCK)
        value = tl.load(line + at, mask=at < vocabulary, other=float("-inf")).to(tl.float32)
        larger = tl.maximum(most, tl.max(value))
        total = total * tl.exp(most - larger) + tl.sum(tl.exp(value - larger))
        most = larger
    for start in range(0, vocabulary, BLOCK):
        at = start + tl.arange(0, BLOCK)
        value = tl.load(line + at, mask=at < vocabulary, other=float("-inf")).to(tl.float32)
        found = (tl.exp(value - most) / total - (at == target).to(tl.float32)) * scale
        tl.store(line + at, found.to(logits.dtype.element_ty), mask=at < vocabulary)


class AddNorm(torch.autograd.Function):
    """stream + delta, and its RMS norm."""

    @staticmethod
    def forward(context, stream: Tensor, delta: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        hidden = stream.shape[-1]
        total, normed, block = torch.empty_like(stream), torch.empty_like(stream), triton.next_power_of_2(hidden)
        grid = (stream.numel() // hidden,)
        arguments = (stream, delta.contiguous(), weight, total, normed, hidden, NORM_EPSILON, block)
        add_norm[grid](*arguments, num_warps=warps_of(block // ELEMENTS))
        context.save_for_backward(total, weight)
        return total, normed

    @staticmethod
    def backward(context, passed: Tensor, given: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        total, weight = context.saved_tensors
        hidden = total.shape[-1]
        rows, block = total.numel() // hidden, triton.next_power_of_2(hidden)
        programs = min(rows, RESIDENT * multiprocessors(total.device))
        out, partial_PH = torch.empty_like(total), total.new_empty((programs, hidden), dtype=torch.float32)
        arguments = (total, passed.contiguous(), given.contiguous(), weight, out, partial_PH, rows, hidden)
        add_norm_back[(programs,)](*arguments, NORM_EPSILON, block, num_warps=warps_of(block // ELEMENTS))
        return out, out, partial_PH.sum(0).to(weight.dtype)


class Rotation(torch.autograd.Function):
    """The first `turned` of the heads [B, S, N + 2 K, D] with their positions, the others as they are. Cosines and
    sines are [S, D / 2] float32."""

    @staticmethod
    def forward(context, heads: Tensor, cosines: Tensor, sines: Tensor, turned: int) -> Tensor:
        context.save_for_backward(cosines, sines)
        context.turned = turned
        return _rotated(heads, cosines, sines, turned, 1.0)

    @staticmethod
    def backward(context, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        return _rotated(gradient, *context.saved_tensors, context.turned, -1.0), None, None, None


def _rotated(heads: Tensor, cosines: Tensor, sines: Tensor, turned: int, sign: float) -> Tensor:
    heads = heads.contiguous()
    batch, length, count, width = heads.shape
    half, out = width // 2, torch.empty_like(heads)
    block = triton.next_power_of_2(count * half)
    arguments = (heads, out, cosines, sines, length, count * half, turned * half, sign, half, block)
    rotate[(batch * length,)](*arguments, num_warps=warps_of(block // ELEMENTS))
    return out


class Gate(torch.autograd.Function):
    """silu(gate) * up of [..., gate and up]."""

    @staticmethod
    def forward(context, both: Tensor) -> Tensor:
        context.save_for_backward(both)
        columns = both.shape[-1] // 2
        out = both.new_empty((*both.shape[:-1], columns))
        grid = (out.numel() // columns, triton.cdiv(columns, GATES))
        gate[grid](both, out, columns, GATES, num_warps=warps_of(GATES // ELEMENTS))
        return out

    @staticmethod
    def backward(context, gradient: Tensor) -> Tensor:
        (both,) = context.saved_tensors
        columns, out = gradient.shape[-1], torch.empty_like(both)
        grid = (gradient.numel() // columns, triton.cdiv(columns, GATES))
        gate_back[grid](both, gradient.contiguous(), out, columns, GATES, num_warps=warps_of(GATES // ELEMENTS))
        return out


class Kernels:
    """The steps of a model with that many heads; as fused_llama.Eager, which says what each is."""

    def __init__(self, heads: int, kv_heads: int, cosines: Tensor, sines: Tensor) -> None:
        self.split = (heads, kv_heads, kv_heads)
        self.cosines, self.sines = cosines.contiguous(), sines.contiguous()

    def added_norm(self, stream: Tensor, delta: Tensor | None, weight: Tensor) -> tuple[Tensor, Tensor]:
        return AddNorm.apply(stream, torch.zeros_like(stream) if delta is None else delta, weight)

    def rotated(self, heads: Tensor) -> tuple[Tensor, ...]:
        return Rotation.apply(heads, self.cosines, self.sines, sum(self.split[:2])).split(self.split, dim=2)

    def swiglu(self, both: Tensor) -> Tensor:
        return Gate.apply(both)

    def gradient(self, logits: Tensor, targets: Tensor, scale: float) -> Tensor:
        tokens, vocabulary = logits.shape
        block = min(CHUNK, triton.next_power_of_2(vocabulary))
        arguments = (logits, targets, vocabulary, scale, block)
        softmax_less_target[(tokens,)](*arguments, num_warps=warps_of(block // ELEMENTS))
        return logits


def multiprocessors(device: torch.device) -> int:
    """Of the GPU; 1 where kernels are interpreted."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1
