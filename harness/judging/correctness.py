"""The strict verdict: is the error of an output what honest rounding explains, everywhere?

A problem's `exact_kernel` says what the result is (in float32 or better) and, per element, how far a kernel may be
off that rounds where the published algorithm rounds: the standard deviation of that error. One rule then judges any
group of N elements:

    rms(error / noise) <= 1.25 + 6 / sqrt(N)

It is applied to the whole output, to each row, each column, each 64 columns of a row, and each element, so that a
wrong part cannot hide behind a right rest. docs/correctness.md derives it and shows how far honest kernels and wrong
ones are from the limit.

Knows tensors; knows nothing of processes, problems or clocks.

Legend: R rows (all dimensions but the last), C columns (the last dimension), G ceil(C / 64) segments of a row.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from harness.core.records import Verdict

BASE = 1.25  # the honest reach 0.9 of the noise over large groups: docs/correctness.md
SPREAD = 6.0  # standard deviations, roughly, that a group of N may be off by chance
SEGMENT = 64  # columns judged together: a tile of a kernel is seldom narrower
AT_ONCE = 1 << 28  # elements whose errors are looked at together
DEPTH = 2048  # products that a matrix unit adds up at a time
FLOOR = 1e-3  # noise is taken to be at least this part of its rms over the output, so that zeros have some


@dataclass(frozen=True, kw_only=True)
class Expected:
    """A tensor that a call must return: `value` and `noise` (one standard deviation of honest rounding, per element) in
    float32 or better, both of the output's shape; `dtype` is the output's. Where a call returns several tensors, `name`
    says in messages which one this is: `the gradient`. ValueError where they are otherwise, by which right outputs
    would be wrong."""

    value: Tensor
    noise: Tensor
    dtype: torch.dtype
    name: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.dtype, torch.dtype):
            raise ValueError(f"exact_kernel's dtype is {self.dtype!r}; it must be a torch.dtype")
        for what, one in (("value", self.value), ("noise", self.noise)):
            if not isinstance(one, Tensor):
                raise ValueError(f"exact_kernel's {what} is of type {type(one).__name__}; it must be a tensor")
            if one.dtype not in (torch.float32, torch.float64):
                raise ValueError(f"exact_kernel's {what} is {_name(one.dtype)}; it must be float32 or float64")
        if self.noise.shape != self.value.shape:
            shapes = f"{_sizes(self.noise)} and its value's {_sizes(self.value)}"
            raise ValueError(f"the shape of exact_kernel's noise is {shapes}; they must be the same")


def rounding_noise(squares: Tensor, dtype: torch.dtype, accumulation: float | Tensor = 0.0) -> Tensor:
    """The noise of rounding to `dtype` values whose squares sum to `squares`, per element (alters `squares`).
    `accumulation` is a variance that is added."""
    return squares.mul_(rounding_variance(dtype)).add_(accumulation).sqrt_()


def rounding_variance(dtype: torch.dtype) -> float:
    """The mean square error of rounding to `dtype`, of a value whose square is 1.

    u = eps / 2 is half a unit in the last place at 1: 2^-8 for bf16, 2^-11 for fp16. Rounding x to nearest has a
    mean square error of u^2 x^2 / 3 just above a power of 2 and a quarter of that just below one, 0.18 u^2 x^2 for x
    spread evenly in its logarithm; u^2 x^2 / 4 is taken.
    """
    u = torch.finfo(dtype).eps / 2
    return u * u / 4


def accumulation_variance(length: int, mean_square: Tensor) -> Tensor:
    """The variance of summing `length` products in float32, given the mean square of such sums over the output.

    Two parts: a rounding of 2^-24 a product that is as often up as down, and a truncation of 2^-24 every 16
    products towards zero, as matrix units do it, whose errors add up. Both matter only where a sum is nearly 0.
    """
    return mean_square * (length * 2.0**-48 + length**2 * 2.0**-56)


def product(a_MK: Tensor, b_NK: Tensor) -> Tensor:
    """a b^T of 16-bit operands in float32, [M, N]: what the exact kernels of products begin with.

    On CUDA GPUs matrix units multiply, without an error, and add up DEPTH products at a time; these sums are added in
    float32. Its error is a small part of what `accumulation_variance` grants to kernels, which add up all K that way.
    A product of float32 copies would take some ten times as long and twice the memory.
    """
    if a_MK.device.type != "cuda" or torch.version.hip is not None:
        return torch.matmul(a_MK.float(), b_NK.float().T)
    first, *rest = zip(a_MK.split(DEPTH, dim=1), b_NK.split(DEPTH, dim=1), strict=True)
    sums_MN: Tensor = torch.mm(first[0], first[1].T, out_dtype=torch.float32)
    for a_Mk, b_Nk in rest:
        sums_MN += torch.mm(a_Mk, b_Nk.T, out_dtype=torch.float32)
    return sums_MN


def limit(count: int) -> float:
    """How large rms(error / noise) may be over `count` elements."""
    return BASE + SPREAD / math.sqrt(count)


def strict_declared(kind: str, device: str, wanted_device: str, note: str) -> Verdict:
    """The verdict on what an output says of itself: `kind` is its exact type, `device` a device type.

    `note` says why its bytes could not be handed over, if they could not.
    """
    if kind != "torch.Tensor":
        return failed(f"the submission returned {kind}; it must return a plain torch.Tensor")
    if device != wanted_device:
        return failed(f"the result is on {device or 'no device'}; expected it on {wanted_device}")
    if note:
        return failed(f"the result cannot be judged: {note}")
    return Verdict(passed=True)


def strict(output: Tensor, expected: Expected) -> Verdict:
    """Judges dtype, shape, finiteness and error of a plain tensor on the device of `expected`. An output must have the
    infinite values that are expected, and no others. Raises ValueError for noise below 0 and for NaN in what is
    expected, by which none would pass.

    Takes seven passes over the output, some rows at a time, and waits for the device once.
    """
    if output.dtype != expected.dtype:
        return failed(f"the dtype is {_name(output.dtype)}; expected {_name(expected.dtype)}")
    if output.shape != expected.value.shape:
        return failed(f"the shape is {_sizes(output)}; expected {_sizes(expected.value)}")
    if output.numel() == 0:
        return Verdict(passed=True)
    if output.is_floating_point() and output.dtype.itemsize == 1:  # torch hardly computes with 8 bits
        return strict(output.float(), replace(expected, dtype=torch.float32))
    groups = _groups(output, expected)
    if all(ratio <= 1.0 for ratio in torch.stack([group.worst for group in groups]).tolist()):  # NaN is not
        return Verdict(passed=True)
    if bool((expected.noise < 0).any()):
        raise ValueError("exact_kernel's noise is below 0; it is a standard deviation")
    for what, one in (("value", expected.value), ("noise", expected.noise)):
        if count := int(torch.isnan(one).sum()):
            raise ValueError(f"exact_kernel's {what} is NaN in {count} of {one.numel()} elements: no output is right")
    infinite = torch.isinf(expected.value)
    if bool(infinite.any()) and torch.equal(output[infinite].to(expected.value.dtype), expected.value[infinite]):
        finite = replace(expected, value=expected.value.masked_fill(infinite, 0))
        return strict(output.masked_fill(infinite, 0), finite)
    return failed(_not_finite(output, expected) or _too_far(output, expected, groups))


def margin(output: Tensor, expected: Expected) -> float:
    """The largest rms(error / noise) over its limit, of all groups: `strict` passes an output up to 1.0."""
    return farthest(output, expected)[0]


def farthest(output: Tensor, expected: Expected) -> tuple[float, str]:
    """The same, and where that group is."""
    worst = max(_groups(output, expected), key=lambda group: float(group.worst))
    return float(worst.worst), worst.place(int(worst.ratios.argmax()))[0]


@dataclass(frozen=True, kw_only=True)
class _Groups:
    """One way to group the elements: `worst` is the largest rms over its limit, 0-dimensional; `place` says where
    that group is and which of its elements to show, given its flat index."""

    ratios: Tensor
    worst: Tensor
    place: Callable[[int], tuple[str, slice, slice]]


def _squares(output: Tensor, expected: Expected) -> Iterator[Tensor]:
    """(error / noise)^2, [r, C], of the next r rows: what all take at once would be half of a device's memory."""
    columns = output.shape[-1] if output.dim() else 1
    noise_RC = expected.noise.reshape(-1, columns)
    output_RC, value_RC = output.reshape(-1, columns), expected.value.reshape(-1, columns)
    floor = _floor(noise_RC)
    step = max(1, AT_ONCE // columns)
    for start in range(0, len(output_RC), step):
        rows = slice(start, start + step)
        # In the noise's own precision: the difference of two nearly equal numbers must not be rounded to bf16.
        error_rC = output_RC[rows].to(noise_RC.dtype, copy=True).sub_(value_RC[rows])
        yield error_rC.div_(noise_RC[rows].clamp_min(floor)).square_()


def _floor(noise: Tensor) -> Tensor:
    found: Tensor = torch.linalg.vector_norm(noise) * (FLOOR / math.sqrt(noise.numel()))
    return found.clamp_min(torch.finfo(noise.dtype).tiny)


def _sums(squares_rC: Tensor) -> Tensor:
    """Over the segments of rows, [r, G]."""
    rows, columns = squares_rC.shape
    whole = columns - columns % SEGMENT
    parts = [squares_rC[:, :whole].reshape(rows, -1, SEGMENT).sum(-1)] if whole else []
    if columns > whole:
        parts.append(squares_rC[:, whole:].sum(-1, keepdim=True))
    return torch.cat(parts, dim=1)


def _groups(output: Tensor, expected: Expected) -> list[_Groups]:
    sums, sums_C, worst_rows = [], torch.zeros(1), []
    for squares_rC in _squares(output, expected):
        sums.append(_sums(squares_rC))
        sums_C = sums_C.to(squares_rC) + squares_rC.sum(0)
        worst_rows.append(squares_rC.amax(1))
    sums_RG, worst_R = torch.cat(sums), torch.cat(worst_rows)
    rows, columns = len(sums_RG), len(sums_C)
    whole = columns - columns % SEGMENT
    widths = [SEGMENT] * (whole // SEGMENT) + ([columns - whole] if columns > whole else [])
    scale_G = torch.tensor([1 / (math.sqrt(width) * limit(width)) for width in widths]).to(sums_RG)
    sums_R = sums_RG.sum(1)

    def made(ratios: Tensor, place: Callable[[int], tuple[str, slice, slice]]) -> _Groups:
        return _Groups(ratios=ratios, worst=ratios.max(), place=place)

    def evenly(sums: Tensor, count: int) -> Tensor:
        return sums.sqrt().div_(math.sqrt(count) * limit(count))

    def segment(index: int) -> tuple[str, slice, slice]:
        row, start = index // len(widths), index % len(widths) * SEGMENT
        stop = min(start + SEGMENT, columns)
        return f"row {row}, {_span('column', start, stop)}", slice(row, row + 1), slice(start, stop)

    def element(row: int) -> tuple[str, slice, slice]:
        one = Expected(
            value=expected.value.reshape(-1, columns)[row],
            noise=expected.noise.reshape(-1, columns)[row].clamp_min(_floor(expected.noise)),
            dtype=expected.dtype,
        )
        column = int(next(_squares(output.reshape(-1, columns)[row], one)).argmax())
        return f"row {row}, column {column}", slice(row, row + 1), slice(column, column + 1)

    everything = slice(None)
    return [
        made(sums_RG.sqrt().mul_(scale_G), segment),
        made(evenly(sums_R, columns), lambda row: (f"row {row}", slice(row, row + 1), everything)),
        made(evenly(sums_C, rows), lambda col: (f"column {col}", everything, slice(col, col + 1))),
        made(evenly(worst_R, 1), element),
        made(evenly(sums_R.sum(), rows * columns), lambda _: ("the whole output", everything, everything)),
    ]


def _not_finite(output: Tensor, expected: Expected) -> str:
    bad_RC = ~torch.isfinite(output.reshape(-1, output.shape[-1] if output.dim() else 1))
    count = int(bad_RC.sum())
    if not count:
        return "" if bool(torch.isfinite(expected.value).all()) else "the reference itself is not finite"
    row, column = bad_RC.nonzero()[0].tolist()
    value = float(output.reshape(bad_RC.shape)[row, column])
    return f"{count} of {output.numel()} elements are not finite; the first is {value} at row {row}, column {column}"


def _too_far(output: Tensor, expected: Expected, groups: list[_Groups]) -> str:
    """What is wrong with a finite output: the worst group, the largest error in it, and how far the fault reaches."""
    worst = max(groups, key=lambda group: float(group.worst))
    where, rows, columns = worst.place(int(worst.ratios.argmax()))
    shape_RC = (-1, output.shape[-1] if output.dim() else 1)
    got, value = output.reshape(shape_RC)[rows, columns], expected.value.reshape(shape_RC)[rows, columns]
    at = int((got.to(value.dtype) - value).abs().argmax())  # a bool has no difference
    allowed = limit(got.numel())
    message = (
        f"{where}: the error is {float(worst.worst) * allowed:.3g} times what rounding explains (allowed "
        f"{allowed:.3g}); largest there: {float(got.flatten()[at]):.6g} where {float(value.flatten()[at]):.6g} is right"
    )
    bad_RG = groups[0].ratios > 1
    bad = int(bad_RG.sum())
    if bad > 1:
        hit_rows, hit_segments = bad_RG.any(1).nonzero().flatten(), bad_RG.any(0).nonzero().flatten()
        first, last = int(hit_segments[0]) * SEGMENT, (int(hit_segments[-1]) + 1) * SEGMENT
        message += (
            f"; {bad} of {bad_RG.numel()} segments of {SEGMENT} columns are wrong, in "
            f"{_span('row', int(hit_rows[0]), int(hit_rows[-1]) + 1)}, "
            f"{_span('column', first, min(last, shape_RC[1]))}"
        )
    return message


def _span(what: str, start: int, stop: int) -> str:
    return f"{what} {start}" if stop - start == 1 else f"{what}s {start} to {stop - 1}"


def failed(message: str) -> Verdict:
    return Verdict(passed=False, message=message)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _sizes(tensor: Tensor) -> str:
    return str(list(tensor.shape))
