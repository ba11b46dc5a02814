"""What ranks share that run problems of other benchmarks: results as tensors, how far one may be off, other inputs.

Such a problem has a reference and no error analysis. The reference says what a right result is, run with more precision
where its inputs have 16 bits. It says too how far an honest kernel may be off: by how much its own result moves when
its inputs move by a rounding. docs/problems.md has the rule.
"""

import contextlib
import copy
import functools
import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import psutil
import torch
import torch.distributed as dist
from torch import Tensor, nn

from harness.judging import correctness
from harness.judging.correctness import Expected

Run = Callable[[Any], Any]  # a tree of inputs -> what the reference returns; it leaves the inputs as they are
Right = Expected | tuple[Expected, ...]

# An honest kernel's error over what the result moves by when inputs are rounded: sums in another order, fast
# exponentials. Operands rounded from float32 to tf32 move it by 2^13 / ROOM times as much.
ROOM = 64.0
ROOM_16 = 2.0  # where results have 16 bits or fewer: the reference rounds as often as kernels do
OTHER_WAY = 16.0  # half units of 16 bits, by which more precision moves results at most, unless it makes other choices
LEAST = 8.0  # half units in the last place that a result of float32 may always be off by
MOST = 2.0**-14  # of a result's size, that ROOM gives at most
ILL = 4.0  # instead of ROOM, where roundings of inputs alone move results by more than MOST / ILL
SUMMED = 1.0  # half units per fourth root of the inputs that a result has: partial sums are as long as the square root
SHAKEN = 2.0**-21  # by which inputs are moved, at most, to see what moves: 8 roundings of float32, which it can hold
ROUNDING = 2.0**-24  # of float32: half a unit in the last place
MOSTLY = 0.9  # of a result's numbers: a kernel that leaves as many out is fast and yet right
EXACT = 0.01  # the noise of whole numbers, which have to be right
MEMORY_PARTS = 5, 9  # copies of inputs and of results that an evaluation holds on CPU cores: ours, files, both sides'

NARROW = (torch.float16, torch.bfloat16)
SAME = (
    "weak problem: the result is the same for every input, so a kernel that returns a constant would be right, and "
    "nothing can be judged"
)


def called(make: Callable[[], Any], names: Sequence[str]) -> list[Callable[..., Any]]:
    """Functions that call the methods of these names, of the one `make()` of a process: made when one is first called,
    since a reference may need the process group."""
    made = functools.cache(make)

    def method(name: str) -> Callable[..., Any]:
        return lambda *values, **named: getattr(made(), name)(*values, **named)

    return [method(name) for name in names]


def tensors_of(value: Any, name: str = "the result") -> list[tuple[str, Tensor]]:
    """The tensors of what a call returned, in order, with what messages call them: alone, or in tuples, lists and
    mappings. A number is a tensor without dimensions; None is left out. Raises TypeError for anything else."""
    if isinstance(value, Tensor):
        return [(name, value.detach())]
    if value is None:
        return []
    if isinstance(value, bool | int | float | complex):
        return [(name, torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else None, device="cpu"))]
    if isinstance(value, Mapping):
        return [found for key, item in value.items() for found in tensors_of(item, f"{key!r} of {name}")]
    if isinstance(value, tuple | list):
        return [found for at, item in enumerate(value) for found in tensors_of(item, f"part {at} of {name}")]
    raise TypeError(
        f"{name} is a {type(value).__name__}; expected tensors, numbers, or tuples, lists and dicts of them"
    )


def defined(submission: Any, name: str, advice: str) -> Callable[..., Any]:
    """What a submission's module defines by that name, to be called. Raises AttributeError or TypeError."""
    found = getattr(submission, name, None)
    if found is None:
        raise AttributeError(f"the submission defines no {name}; {advice}")
    if not callable(found):
        raise TypeError(f"{name} is of type {type(found).__name__} and cannot be called; {advice}")
    return cast(Callable[..., Any], found)


def flat(value: Any, device: torch.device) -> Any:
    """A result as ranks hand it over: a tensor, or a tuple of tensors, on that device; complex numbers as pairs."""
    found = tuple(_plain(tensor.to(device)) for _, tensor in tensors_of(value))
    return found[0] if len(found) == 1 else found


def _plain(tensor: Tensor) -> Tensor:
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """A tree of tuples, lists, dicts and modules with every tensor changed, a module's parameters among them."""
    if isinstance(value, Tensor):
        return change(value)
    if type(value) in (tuple, list):
        return type(value)(mapped(item, change) for item in value)
    if isinstance(value, dict):
        return {key: mapped(item, change) for key, item in value.items()}
    if isinstance(value, nn.Module):
        found = copy.deepcopy(value)
        for module in found.modules():
            held: dict[str, Any] = module._parameters
            held.update({name: change(one.detach()) for name, one in held.items() if one is not None})
        return found
    return value


def copied(inputs: Any) -> Any:
    """A copy for a call that may write to its inputs."""
    return mapped(inputs, lambda tensor: tensor.detach().clone().requires_grad_(tensor.requires_grad))


def leaves_of(value: Any) -> list[Tensor]:
    """The tensors in a tree of inputs, in order."""
    found: list[Tensor] = []

    def noted(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    mapped(value, noted)
    return found


def everywhere(flag: bool) -> bool:
    """Whether it is so on every rank of the process group, if there is one."""
    if not dist.is_initialized():
        return flag
    flags: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(flags, flag)
    return all(flags)


@contextlib.contextmanager
def precisely() -> Iterator[None]:
    """No product is rounded to tf32 within."""
    backends: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [one.allow_tf32 for one in backends]
    try:
        for one in backends:
            one.allow_tf32 = False
        yield
    finally:
        for one, was in zip(backends, before, strict=True):
            one.allow_tf32 = was


def raised(value: Tensor) -> Tensor:
    """Numbers of 16 bits as float32; others as they are."""
    return value.float() if value.dtype in NARROW else value


def wide(value: Tensor) -> Tensor:
    """Numbers of 8 bits, which torch hardly computes with, as float32; others as they are."""
    return value.float() if value.is_floating_point() and value.dtype.itemsize == 1 else value


def through(value: Tensor, dtype: torch.dtype) -> Tensor:
    """Numbers rounded to a narrower dtype, in their own again; others as they are."""
    is_wider = value.is_floating_point() and value.dtype.itemsize > dtype.itemsize
    return value.to(dtype).to(value.dtype) if is_wider else value.clone()


def shaken(value: Tensor) -> Tensor:
    """Numbers of float32 and float64, each moved by up to SHAKEN of itself; others as they are."""
    if value.dtype not in (torch.float32, torch.float64):
        return value
    return torch.empty_like(value).uniform_(1 - SHAKEN, 1 + SHAKEN).mul_(value)


@dataclass(frozen=True)
class Part:
    """Of one tensor of a result: its name, its dtype as the reference returns it, and by which part of its size an
    honest kernel may be off, as one standard deviation. `relative` is 0 for whole numbers."""

    name: str
    dtype: torch.dtype
    relative: float


class Judging:
    """What is right for a reference's inputs. How far off is honest is found out on the first of them.

    `run` is the reference. It may be collective: every rank then calls `right` alike."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.parts: list[Part] | None = None
        self.is_raised = False  # whether inputs of 16 bits are taken as float32

    def value(self, inputs: Any) -> list[Tensor]:
        """The tensors of the right result, in float32 or better."""
        with precisely():
            found = self.run(mapped(inputs, raised) if self.is_raised else inputs)
        return [_plain(tensor) for _, tensor in tensors_of(found)]

    def right(self, inputs: Any) -> Right:
        """The right result, with the noise of honest rounding."""
        if self.parts is None:
            self.parts = self._learnt(inputs)
        found = tuple(map(expected, self.parts, self.value(inputs)))
        return found[0] if len(found) == 1 else found

    def _learnt(self, inputs: Any) -> list[Part]:
        as_timed = [(name, _plain(tensor)) for name, tensor in tensors_of(self.run(inputs))]
        moved_by = [  # first, since each result that is held may take a tenth of a device's memory
            distance(_plain(other), own) * ROUNDING / SHAKEN
            for (_, other), (_, own) in zip(tensors_of(self.run(mapped(inputs, shaken))), as_timed, strict=True)
        ]
        values = self._values(inputs, [tensor for _, tensor in as_timed])
        count = sum(tensor.numel() for tensor in leaves_of(inputs))

        def part(name: str, own: Tensor, value: Tensor, by: float, off: Callable[[Tensor, Tensor], float]) -> Part:
            is_float = own.is_floating_point()
            relative = allowed(own.dtype, by, off(own, value), count / max(1, own.numel())) if is_float else 0.0
            return Part(name=name, dtype=own.dtype, relative=relative)

        seen = [(name, own, value, by) for (name, own), value, by in zip(as_timed, values, moved_by, strict=True)]
        parts = [part(*one, distance) for one in seen]
        if self.is_raised and not everywhere(
            all(
                correctness.strict(own, expected(one, value)).passed
                for one, (_, own, value, _) in zip(parts, seen, strict=True)
            )
        ):  # some rows come from other choices: the reference's own are right
            self.is_raised = False
            parts = [part(*one, typical) for one in seen]
        return parts

    def _values(self, inputs: Any, own: Sequence[Tensor]) -> Sequence[Tensor]:
        """The right values, by the reference with more precision if that finds the same but for rounding: where it
        leads to other choices (which experts are the best), the reference's own result is right."""
        is_narrow = any(one.dtype in NARROW for one in leaves_of(inputs))
        if not everywhere(is_narrow):
            return self.value(inputs)
        self.is_raised = True
        try:
            values = self.value(inputs)
        except (RuntimeError, TypeError, ValueError, AssertionError):  # that insists on its dtypes
            values = []
        alike = len(values) == len(own) and all(
            distance(one, other) <= OTHER_WAY * torch.finfo(other.dtype).eps / 2
            if other.dtype in NARROW
            else one.shape == other.shape
            for one, other in zip(values, own, strict=True)
        )
        self.is_raised = everywhere(alike)
        return values if self.is_raised else self.value(inputs)


def allowed(dtype: torch.dtype, by_inputs: float, by_running: float, share: float) -> float:
    """By which part of a result's size an honest kernel may be off. `by_inputs`: the result moves by so much when the
    inputs are rounded; `by_running`: the reference as it is timed is off by so much; `share`: inputs per result."""
    unit = torch.finfo(dtype).eps / 2
    if dtype.itemsize < 4:
        return max(unit / 2, ROOM_16 * (by_running or unit / 2))
    unit = max(unit, ROUNDING)
    moved = max(by_inputs, by_running)
    return max(
        LEAST * unit, min(ROOM * moved, MOST), ILL * moved, SUMMED * unit * math.sqrt(math.sqrt(max(1.0, share)))
    )


def distance(one: Tensor, other: Tensor) -> float:
    """How far apart two results are, as a part of their size; infinite if their shapes or infinite values differ."""
    if one.shape != other.shape:
        return math.inf
    size = off = 0.0
    for some, others in pieces(wide(one), wide(other)):
        if not torch.equal(infinite := torch.isinf(others), torch.isinf(some)):
            return math.inf
        value = others.float().masked_fill(infinite, 0)
        size = math.hypot(size, float(torch.linalg.vector_norm(value)))
        off = math.hypot(off, float(torch.linalg.vector_norm(value.sub_(some.float().masked_fill(infinite, 0)))))
    return off / size if size else (math.inf if off else 0.0)


def pieces(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Rows of tensors of one shape, some at a time: what all take at once would be half of a device's memory."""
    if not tensors[0].dim():
        return iter([tensors])
    step = max(1, correctness.AT_ONCE // max(1, tensors[0].numel() // max(1, len(tensors[0]))))
    return zip(*(tensor.split(step) for tensor in tensors), strict=True)


def expected(part: Part, value: Tensor) -> Expected:
    """The tensor that a call must return. Its noise is relative to the element, its row and, a little, to the whole
    tensor: sums that cancel have the error of what was summed."""
    if not part.dtype.is_floating_point:
        value = value.double()
        return Expected(value=value, noise=torch.full_like(value, EXACT), dtype=part.dtype, name=part.name)
    value = value if value.dtype == torch.float64 else value.float()
    squares = value.masked_fill(torch.isinf(value), 0).square_()
    if value.dim():
        row = squares.mean(-1, keepdim=True)
        squares.add_(row).add_(row.mean(), alpha=2**-4)
    return Expected(value=value, noise=squares.sqrt_().mul_(part.relative), dtype=part.dtype, name=part.name)


def typical(one: Tensor, other: Tensor) -> float:
    """The median distance of rows: that of most, where some of them differ by more than rounding."""
    if one.dim() < 2 or one.shape != other.shape:
        return distance(one, other)
    size = torch.linalg.vector_norm(other.float(), dim=-1)
    off = torch.linalg.vector_norm(one.float() - other.float(), dim=-1)
    return float((off / size)[size > 0].median()) if bool((size > 0).any()) else 0.0


def is_same(right: Right, others: Sequence[Tensor]) -> bool:
    """Whether the right result of another input passes for this one's."""
    parts = right if isinstance(right, tuple) else (right,)
    return len(parts) == len(others) and all(
        correctness.strict(other.to(part.dtype), part).passed for other, part in zip(others, parts, strict=True)
    )


def are_finite(values: Sequence[Tensor]) -> bool:
    return all(bool(torch.isfinite(wide(value)).all()) for value in values if value.is_floating_point())


def close(output: Any, right: Any, tolerance: Callable[[torch.dtype], float]) -> tuple[bool, str]:
    """A benchmark's own verdict, and what is wrong: torch.allclose with one number as rtol and atol, by tensor."""
    names = tensors_of(right)
    for (name, wanted), (_, found) in zip(names, tensors_of(output), strict=False):
        if found.shape != wanted.shape:
            return False, f"{name}: the shape is {list(found.shape)}; expected {list(wanted.shape)}"
        limit = tolerance(wanted.dtype)
        near = (
            torch.isclose(wide(one.to(other.dtype)), wide(other), rtol=limit, atol=limit)
            for one, other in pieces(found, wanted)
        )
        if count := sum(int((~one).sum()) for one in near):
            return False, f"{name}: {count} of {wanted.numel()} elements are off (rtol = atol = {limit:g})"
    count, wanted_count = len(tensors_of(output)), len(names)
    return count == wanted_count, "" if count == wanted_count else f"{count} tensors; expected {wanted_count}"


def input_like(inputs: Any, right: Any) -> Any:
    """Inputs of the shapes of a result, as that result; None where there are none."""
    known = leaves_of(inputs)
    alike = [next((one for one in known if one.shape == wanted.shape), None) for wanted in leaves_of(right)]
    if not alike or any(one is None for one in alike):
        return None
    copies = iter(alike)
    return mapped(right, lambda wanted: cast(Tensor, next(copies)).to(wanted.dtype))


def weakness(inputs: Any, right: Any, tolerance: Callable[[torch.dtype], float]) -> str:
    """What computes nothing and yet passes a benchmark's own verdict on this input, in words; "" where nothing does."""
    zeros, alike = mapped(right, lambda one: one.new_zeros(()).expand(one.shape)), input_like(inputs, right)
    if close(zeros, right, tolerance)[0]:
        return "weak problem: zeros pass its own tolerance"
    numbers = [wide(one) for one in leaves_of(right) if one.is_floating_point()]
    small = sum(int((some.abs() <= tolerance(some.dtype)).sum()) for one in numbers for (some,) in pieces(one))
    if small > MOSTLY * sum(one.numel() for one in numbers):
        return f"weak problem: zeros pass its own tolerance in more than {MOSTLY:.0%} of the result"
    is_alike = alike is not None and close(alike, right, tolerance)[0]
    return "weak problem: an input passes as the result, by its own tolerance" if is_alike else ""


def check_memory(inputs: int, results: int, parameters: int = 0) -> None:
    """Raises ValueError if inputs, results and parameters of that many bytes do not fit this machine's memory."""
    needed = MEMORY_PARTS[0] * (inputs + parameters) + MEMORY_PARTS[1] * results
    spare = psutil.virtual_memory().available
    if needed > spare:
        of_parameters = f", its parameters {parameters / 2**30:.1f} GiB" if parameters else ""
        raise ValueError(
            f"too large for this machine: its inputs have {inputs / 2**30:.1f} GiB and its results "
            f"{results / 2**30:.1f} GiB{of_parameters}, of which an evaluation holds several copies "
            f"({needed / 2**30:.0f} GiB), and {spare / 2**30:.0f} GiB of memory are free"
        )


def device_of(data: Any) -> torch.device:
    kind: str = data["device"]
    return torch.device(kind, torch.cuda.current_device()) if kind == "cuda" else torch.device(kind)


class JudgedReference:
    """A reference that says what is right. An input is a dict that has the call's own in `inputs`; `ref_kernel` takes
    it. If the reference is collective, every rank calls all of this alike."""

    def __init__(self, ref_kernel: Callable[[Any], Any]) -> None:
        self.ref_kernel = ref_kernel
        self.judging: dict[Hashable, Judging] = {}

    def right_value(self, data: Any, inputs: Any = None) -> Any:
        """What the reference returns for that input, or with these inputs in it, which stay as they are."""
        return self.ref_kernel(data | {"inputs": copied(data["inputs"] if inputs is None else inputs)})

    def judging_of(self, key: Hashable, data: Any) -> Judging:
        """How results for inputs of that key are judged, here for this one."""

        def run(inputs: Any) -> Any:
            return self.right_value(data, inputs)

        judging = self.judging.setdefault(key, Judging(run))
        judging.run = run
        return judging

    def depends(self, judging: Judging, right: Right, other: Any) -> bool:
        """Whether the right result of the other input is another than this one, on some rank."""
        return not everywhere(is_same(right, judging.value(other["inputs"])))

    def rounded(self, data: Any, dtype: torch.dtype) -> Any:
        """The reference's result as a kernel finds it that keeps inputs and results in that dtype."""
        found = self.right_value(data, mapped(data["inputs"], lambda tensor: through(tensor, dtype)))
        return mapped(found, lambda tensor: through(tensor, dtype))


HARDEST = 2  # level of `harden_drawn`; 0 leaves inputs as they are


def harden_drawn(free: Sequence[tuple[Tensor, bool]], seed: int, level: int) -> None:
    """Changes drawn inputs in place: uniform ones get both signs, and at level 2 every index of the first dimension a
    scale and an offset of its own, and every index of the last one a factor. Then a mean over many inputs is no
    constant, no mean over some of them is that over all, and no sign can be counted on."""
    for place, (tensor, is_uniform) in enumerate(free):
        if not level or not tensor.is_floating_point():
            continue
        if is_uniform:
            tensor.mul_(2).sub_(1)
        if level < HARDEST:
            continue
        generator = torch.Generator("cpu").manual_seed(seed + place)
        shape = (tensor.shape[0], *[1] * (tensor.dim() - 1)) if tensor.dim() else ()
        scale, offset = (torch.rand(shape, generator=generator, device="cpu").to(tensor) for _ in range(2))
        tensor.mul_(0.5 + 1.5 * scale).add_(offset - 0.5)
        if tensor.dim() > 1:
            tensor.mul_(0.5 + torch.rand(tensor.shape[-1], generator=generator, device="cpu").to(tensor))
