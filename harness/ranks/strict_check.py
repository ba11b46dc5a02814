"""The strict verdict on what a call returned: one tensor, or a tuple of tensors that are judged one by one.

An output's bytes become a tensor only where what is declared of them is what is expected. Knows tensors and how they
are declared; knows nothing of processes. judging.correctness has the rule for one tensor.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch

from harness.core.records import Verdict
from harness.judging import correctness
from harness.judging.correctness import Expected, failed
from harness.ranks import payload
from harness.ranks.shared_buffer import Source
from harness.ranks.wire import Output

Right = Expected | tuple[Expected, ...]  # what exact_kernel returns
Values = tuple[torch.Tensor | None, ...]  # a part each, uint8; None where its bytes are not there


def parts_of(expected: Right) -> tuple[Expected, ...]:
    """One for each tensor of the result. ValueError where exact_kernel returned something else."""
    parts = expected if isinstance(expected, tuple) else (expected,)
    for one in parts:
        if not isinstance(one, Expected):
            of = "a tuple with " if isinstance(expected, tuple) else ""
            raise ValueError(
                f"exact_kernel returned {of}a {type(one).__name__}; it must return an Expected, or a tuple of them"
            )
    return parts


def nbytes_of(expected: Right) -> int:
    """The room that an output like this right result takes in a buffer."""
    return sum(payload.aligned(part.value.numel() * part.dtype.itemsize) for part in parts_of(expected))


def read(source: Source, output: Output, most_nbytes: int) -> Values:
    """Copies of the declared tensors' bytes. Reads at most `most_nbytes`, whatever is declared."""
    left, values = most_nbytes, []
    for part in _declared(output):
        left -= max(0, part.nbytes)
        is_tensor = part.dtype in payload.RESULT_DTYPES
        values.append(source.read(part.offset, part.nbytes) if is_tensor and left >= 0 else None)
    return tuple(values)


def judged(output: Output, values: Values, expected: Right, device: str) -> Verdict:
    """Every part must pass; the message of the first that does not begins with its name."""
    if not isinstance(expected, tuple):
        if output.kind in ("tuple", "list"):
            return failed(f"the submission returned {_counted(output)}; it must return a plain torch.Tensor")
        return _judged_part(output, values[0], expected, device)
    names = [part.name or f"part {index} of the result" for index, part in enumerate(expected)]
    if output.kind != "tuple" or len(output.items) != len(expected):
        wanted = f"a tuple of {len(names)}: {', '.join(names)}"
        return failed(f"the submission returned {_counted(output)}; it must return {wanted}")
    for name, part, value, right in zip(names, output.items, values, expected, strict=True):
        verdict = _judged_part(part, value, right, device)
        if not verdict.passed:
            return replace(verdict, message=f"{name}: {verdict.message}")
    return Verdict(passed=True)


def for_check(output: Output, values: Values, expected: Right, device: str) -> torch.Tensor | tuple[torch.Tensor, ...]:
    """The value for check_implementation: as many tensors as are right, with empty ones in place of the rest."""
    found = [
        tensor_of(part, value, right.dtype, tuple(right.value.shape), device)
        for part, value, right in zip(_declared(output), values, parts_of(expected), strict=False)
    ]
    found += [failed("")] * (len(parts_of(expected)) - len(found))
    present = tuple(torch.empty(0) if isinstance(one, Verdict) else one for one in found)
    return present if isinstance(expected, tuple) else present[0]


def _counted(output: Output) -> str:
    """What an output is. An adapter makes an empty tuple of None."""
    if output.kind not in ("tuple", "list"):
        return output.kind
    return f"a {output.kind} of {len(output.items)}" if output.items else f"no tensor (None or an empty {output.kind})"


def _declared(output: Output) -> Sequence[Output]:
    return output.items if output.kind in ("tuple", "list") else (output,)


def tensor_of(
    output: Output, data: torch.Tensor | None, dtype: torch.dtype, shape: tuple[int, ...], device: str
) -> torch.Tensor | Verdict:
    """The tensor of that dtype and shape that an output with these bytes is, or why it is none."""
    verdict = correctness.strict_declared(output.kind, output.device, device, output.note)
    if not verdict.passed:
        return verdict
    if output.dtype != str(dtype):
        return failed(
            f"the dtype is {output.dtype.removeprefix('torch.')}; expected {str(dtype).removeprefix('torch.')}"
        )
    if output.shape != shape:
        return failed(f"the shape is {list(output.shape)}; expected {list(shape)}")
    found = payload.viewed(output, data)
    return failed("its bytes do not fit its dtype and shape") if found is None else found


def _judged_part(output: Output, data: torch.Tensor | None, expected: Expected, device: str) -> Verdict:
    found = tensor_of(output, data, expected.dtype, tuple(expected.value.shape), device)
    return found if isinstance(found, Verdict) else correctness.strict(found, expected)
