"""Gluon kernels without a GPU: torch plays what one of them is written in, on CPU tensors, each program a thread.

Only what submissions/cross_entropy's kernels and submissions/llama/rings.py use is there. Copies into shared memory
arrive as late as they may: when a program waits for them. Memory that nothing has arrived in holds NaN.
"""

import functools
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from kernel_ranks import ROOT

POISON = 0x7FC07FC0  # two bf16 that are not numbers


class Value(torch.Tensor):
    """A tensor in registers."""

    def to(self, dtype: torch.dtype, bitcast: bool = False) -> "Value":
        return self.view(dtype) if bitcast else super().to(dtype)


def value(data: Any, dtype: torch.dtype | None = None) -> Value:
    return torch.as_tensor(data, dtype=dtype).as_subclass(Value)


class Pointer:
    """Elements of a tensor's memory, by their places."""

    def __init__(self, memory: torch.Tensor, dtype: torch.dtype, places: Any = 0) -> None:
        self.memory, self.dtype, self.places = memory, dtype, places

    def __add__(self, places: Any) -> "Pointer":
        return Pointer(self.memory, self.dtype, self.places + places)

    def to(self, dtype: torch.dtype, bitcast: bool) -> "Pointer":
        """Of another type to the same memory."""
        return Pointer(self.memory, dtype, self.places)

    def load(self, mask: Any = True, other: Any = 0, **_: Any) -> Value:
        places, mask = torch.broadcast_tensors(value(self.places), value(mask))
        found = self.memory.view(self.dtype)[torch.where(mask, places, 0)]
        return value(torch.where(mask, found, value(other, self.dtype)))

    def store(self, values: Any, mask: Any = True) -> None:
        places, mask, values = torch.broadcast_tensors(value(self.places), value(mask), value(values))
        assert values.dtype == self.dtype
        self.memory.view(self.dtype)[places[mask]] = values[mask].as_subclass(torch.Tensor)


class Shared:
    """A block of shared memory."""

    def __init__(self, memory: torch.Tensor) -> None:
        self.memory = memory

    def index(self, place: int) -> "Shared":
        return Shared(self.memory[int(place)])

    def load(self, layout: Any) -> Value:
        return value(self.memory.clone())


class Program(threading.local):
    """A thread's: its number, and groups of copies that are under way; the last one is not committed."""

    number: int
    groups: list[list[Callable[[], Any]]]


class Machine:
    """Runs a kernel as so many programs of so many warps."""

    def __init__(self, programs: int, warps: int) -> None:
        self.programs, self.warps, self.program = programs, warps, Program()

    def kernel(self, problem: str, modules: list[str], name: str) -> Any:
        """A kernel of the submission of that problem, to be played by this machine. The modules follow those that they
        import."""
        names: dict[str, Any] = {
            "gluon": SimpleNamespace(jit=lambda function=None, **_: function or (lambda decorated: decorated)),
            "gl": self.language(),
            "copy_ahead": self.copy_ahead,
            "async_copy": SimpleNamespace(commit_group=self.commit, wait_group=self.wait),
        }
        for module in modules:
            lines = (ROOT / "submissions" / problem / f"{module}.py").read_text().splitlines()
            source = "\n".join("" if line.startswith("from ") else line for line in lines)
            exec(compile(source, module, "exec"), names)
        return names[name]

    def run(self, kernel: Callable[..., None], tensors: list[torch.Tensor], numbers: list[Any], **named: int) -> None:
        """The tensors' memory from their beginning on is what the kernel may touch. Raises what a program raises."""
        failures: list[BaseException] = []

        def play(number: int) -> None:
            self.program.number, self.program.groups = number, [[]]
            memories = [one.untyped_storage() for one in tensors]
            flat = [torch.empty(0, dtype=torch.uint8).set_(memory) for memory in memories]
            pointers = [Pointer(memory, one.dtype) for memory, one in zip(flat, tensors, strict=True)]
            try:
                kernel(*pointers, *map(value, numbers), **named)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=play, args=(number,), daemon=True) for number in range(self.programs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=20)
        if failures:
            raise failures[0]
        assert not any(thread.is_alive() for thread in threads), "programs wait for each other forever"

    def copy_ahead(self, block: Shared, pointer: Pointer, mask: Any) -> None:
        block.memory.fill_(POISON)
        self.program.groups[-1].append(lambda: block.memory.copy_(pointer.load(mask)))

    def commit(self) -> None:
        self.program.groups.append([])

    def wait(self, outstanding: int) -> None:
        while len(self.program.groups) - 1 > outstanding:
            for copy in self.program.groups.pop(0):
                copy()

    def language(self) -> SimpleNamespace:
        """triton.experimental.gluon.language."""
        return SimpleNamespace(
            **{
                name: getattr(torch, name)
                for name in ("int32", "int64", "float32", "bfloat16", "exp2", "exp", "log", "rsqrt")
            },
            constexpr=lambda constant: constant,
            pointer_type=lambda dtype: dtype,
            BlockedLayout=lambda *_: None,
            SliceLayout=lambda *_: None,
            SwizzledSharedLayout=lambda *_: None,
            num_warps=lambda: self.warps,
            program_id=lambda axis: value(self.program.number),
            num_programs=lambda axis: value(self.programs),
            static_range=range,
            allocate_shared_memory=lambda dtype, shape, layout: Shared(torch.full(shape, POISON, dtype=dtype)),
            arange=lambda start, end, layout: value(torch.arange(start, end)),
            zeros=lambda shape, dtype, layout: value(torch.zeros(shape, dtype=dtype)),
            cast=value,
            where=lambda mask, one, other: value(torch.where(value(mask), one, other)),
            maximum=lambda one, other: torch.maximum(one, value(other, one.dtype)),
            minimum=torch.minimum,
            expand_dims=torch.unsqueeze,
            max=torch.amax,
            min=torch.amin,
            sum=lambda tensor, axis: tensor.sum(axis, dtype=tensor.dtype),
            reduce=lambda tensor, axis, combine: functools.reduce(combine, tensor.unbind(axis)),
            load=lambda pointer, **named: pointer.load(**named),
            store=lambda pointer, values, mask=True: pointer.store(values, mask),
            inline_asm_elementwise=lambda text, *rest, **_: ASSEMBLY[text.split()[0]](*rest[1]),
        )


def join_bf16(even: Value, odd: Value) -> Value:
    """cvt.rn.bf16x2.f32 with the odd number first, as its operands are."""
    low, high = (one.to(torch.bfloat16).to(torch.int16, bitcast=True).to(torch.int32) for one in (even, odd))
    return (low & 0xFFFF) | (high << 16)


def by_halves(function: Callable[..., torch.Tensor]) -> Callable[..., Value]:
    """The function of words of two bf16 numbers each, rounded once."""

    def on_words(*words: Value) -> Value:
        halves = ([(word << shift) & -65536 for word in words] for shift in (16, 0))
        numbers = ([half.to(torch.float32, bitcast=True).double() for half in each] for each in halves)
        return join_bf16(*(function(*each).as_subclass(Value) for each in numbers))

    return on_words


def nothing(*_: Any) -> None:
    """Where a kernel waits for the one before it, which has ended, or asks for what the L2 should hold."""


ASSEMBLY = {
    "cvt.rn.bf16x2.f32": join_bf16,
    "max.bf16x2": by_halves(torch.fmax),
    "mul.rn.bf16x2": by_halves(torch.mul),
    "fma.rn.bf16x2": by_halves(lambda one, other, third: one * other + third),
    "lg2.approx.ftz.f32": torch.log2,
    "griddepcontrol.launch_dependents;": nothing,
    "{": nothing,
}
