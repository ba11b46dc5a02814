"""A KernelBot problem folder's own functions, called as they want to be: generate_input makes inputs, and the verdict
on outputs is check_implementation's.

Looser than the strict checker (judging.correctness): the folder says how far off a result may be, and there are no
hardened inputs. Where a result that it takes is not of the make of the reference's (type, dtype, shape, device, and
finite wherever the reference's is), that is worth a note. Knows tensors and trees of them; knows nothing of processes.
"""

import inspect
from collections.abc import Callable
from typing import Any

import torch

from harness.core.records import Params, Verdict
from harness.ranks.wire import Output

SHOWN_CHARS = 2000  # of what a check says


def generated(generate_input: Callable[..., Any], params: Params, rank: int, world_size: int, seed: int) -> Any:
    """The result of generate_input for a case. It gets those of rank, world_size and seed that it has parameters for,
    and lists as tuples, as evaluators of GPU MODE that take lists do."""
    where = {"rank": rank, "world_size": world_size, "seed": seed}
    parameters = inspect.signature(generate_input).parameters
    if not any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        where = {name: value for name, value in where.items() if name in parameters}
    return generate_input(**params, **where)


def unlike(output: Output, value: Any, expected: Any) -> str:
    """In what a result, declared as `output` and read as `value`, is not of the make of `expected`; empty if it is."""
    return _wrong(output, expected, "the result") or _not_finite(value, expected, "the result")


def stand_in(expected: Any) -> Any:
    """A value of the make of `expected` that takes no memory."""
    if isinstance(expected, torch.Tensor):
        return torch.zeros((), dtype=expected.dtype, device=expected.device).expand(expected.shape)
    if isinstance(expected, tuple | list):
        return type(expected)(map(stand_in, expected)) if type(expected) in (tuple, list) else expected
    if isinstance(expected, dict):
        return {key: stand_in(item) for key, item in expected.items()}
    return expected


def checked(check: Callable[[], Any]) -> Verdict:
    """The verdict of a check_implementation: it returns (right, message), or a text, empty for a right result. Raises
    ValueError where it returns an empty tuple."""
    try:
        found = check()
    except Exception as error:  # the check was not written for such an output
        return Verdict(
            passed=False, message=f"check_implementation raised {type(error).__name__}: {error}"[:SHOWN_CHARS]
        )
    if isinstance(found, tuple):
        if not found:
            raise ValueError("check_implementation returned (); it must return (right, message), or a text")
        passed, message = bool(found[0]), str(found[1]) if len(found) > 1 else ""
    elif isinstance(found, bool):
        passed, message = found, ""
    else:
        passed, message = not found, str(found or "")
    why = message or "check_implementation says that it is wrong, and not why"
    return Verdict(passed=passed, message="" if passed else why[:SHOWN_CHARS])


def _wrong(output: Output, expected: Any, name: str) -> str:
    if isinstance(expected, torch.Tensor):
        return _wrong_tensor(output, expected, name)
    kind = next((one for one in (tuple, list, dict) if isinstance(expected, one)), type(expected))
    word = "None" if expected is None else kind.__name__
    if output.kind != word:
        return f"{name} is a {output.kind}; expected a {word}"
    if kind is dict:
        if list(output.keys) != list(expected):
            return f"{name} has the keys {', '.join(output.keys)}; expected {', '.join(map(str, expected))}"
        expected = list(expected.values())
    if kind in (tuple, list, dict):
        if len(output.items) != len(expected):
            return f"{name} has {len(output.items)} parts; expected {len(expected)}"
        for index, (part, one) in enumerate(zip(output.items, expected, strict=True)):
            if wrong := _wrong(part, one, f"part {output.keys[index] if output.keys else index} of {name}"):
                return wrong
    return ""


def _wrong_tensor(output: Output, expected: torch.Tensor, name: str) -> str:
    if output.kind != "torch.Tensor":
        return f"{name} is a {output.kind}; expected a plain torch.Tensor"
    if output.dtype != str(expected.dtype):
        wanted = str(expected.dtype).removeprefix("torch.")
        return f"the dtype of {name} is {output.dtype.removeprefix('torch.')}; expected {wanted}"
    if output.shape != tuple(expected.shape):
        return f"the shape of {name} is {list(output.shape)}; expected {list(expected.shape)}"
    if output.device != expected.device.type:
        return f"{name} is on {output.device}; expected it on {expected.device.type}"
    return f"{name} cannot be judged: {output.note}" if output.note else ""


def _not_finite(value: Any, expected: Any, name: str) -> str:
    if isinstance(expected, torch.Tensor):
        if not (value.is_floating_point() or value.is_complex()) or "float4" in str(value.dtype):
            return ""  # which has neither NaN nor infinity
        got, wanted = (one.to(torch.float32) if one.dtype.itemsize == 1 else one for one in (value, expected))
        bad = torch.isfinite(wanted) & ~torch.isfinite(got)
        return f"{int(bad.sum())} of {bad.numel()} elements of {name} are not finite" if bool(bad.any()) else ""
    if isinstance(expected, dict):
        value, expected = list(value.values()), list(expected.values())
    if isinstance(expected, tuple | list):
        pairs = enumerate(zip(value, expected, strict=True))
        found = (_not_finite(one, other, f"part {index} of {name}") for index, (one, other) in pairs)
        return next((wrong for wrong in found if wrong), "")
    return ""
