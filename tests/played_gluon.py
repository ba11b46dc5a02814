"""Gluon kernels without a GPU: torch plays what one of them is written in, on CPU tensors, each program a thread.

Only what submissions/cross_entropy's kernels and submissions/llama's rings.py and persistent.py use is there. Copies
into shared memory arrive as late as they may: when a program waits for them. Memory that nothing has arrived in holds
NaN. The threads of a program are one thread here, so a missing barrier or fence between them does not show.
"""

import functools
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from kernel_ranks import ROOT

POISON = 0x7FC07FC0  # two bf16 that are not numbers
PLAY_S = 20.0  # of a program that takes longer it is assumed that it never ends


class Value(torch.Tensor):
    """A tensor in registers."""

    def to(self, dtype: torch.dtype, bitcast: bool = False) -> "Value":
        return self.view(dtype) if bitcast else super().to(dtype)

    def split(self) -> tuple["Value", ...]:
        return tuple(one.as_subclass(Value) for one in self.unbind(-1))


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
        values = value(values, self.dtype if isinstance(values, int) else None)
        places, mask, values = torch.broadcast_tensors(value(self.places), value(mask), values)
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

    def store(self, values: Any) -> None:
        self.memory.copy_(values)


def poisoned(memory: torch.Tensor) -> torch.Tensor:
    return memory.fill_(float("nan") if memory.is_floating_point() else POISON)


class Descriptor:
    """What blocks of a matrix are copied by."""

    layout = None

    def __init__(self, matrix: torch.Tensor, block: list[int]) -> None:
        self.matrix, self.block = matrix, block

    def part(self, place: list[Any]) -> torch.Tensor:
        (row, column), (rows, columns) = map(int, place), self.block
        part = self.matrix[row : row + rows, column : column + columns]
        assert list(part.shape) == self.block
        return part


class Barrier:
    """One in shared memory, of its program's thread alone: bytes that are expected, copies that will tell it of them,
    phases that are over."""

    def __init__(self) -> None:
        self.bytes = self.over = 0
        self.copies: list[Callable[[], Any]] = []
        self.armed = False


class Program(threading.local):
    """A thread's: its number, and groups of copies that are under way; the last one is not committed."""

    number: int
    groups: list[list[Callable[[], Any]]]


class Machine:
    """Runs a kernel as so many programs of so many warps."""

    def __init__(self, programs: int, warps: int) -> None:
        self.programs, self.warps, self.program = programs, warps, Program()
        self.failures: list[BaseException] = []
        self.lock = threading.Lock()

    def kernel(self, problem: str, modules: list[str], name: str) -> Any:
        """A kernel of the submission of that problem, to be played by this machine. The modules follow those that they
        import."""
        names: dict[str, Any] = {
            "gluon": SimpleNamespace(jit=lambda function=None, **_: function or (lambda decorated: decorated)),
            "gl": self.language(),
            "copy_ahead": self.copy_ahead,
            "async_copy": SimpleNamespace(commit_group=self.commit, wait_group=self.wait),
            "mbarrier": SimpleNamespace(
                MBarrierLayout=lambda: Barrier, init=lambda *_, **__: None, expect=self.expect, wait=self.wait_for_bytes
            ),
            "bulk_load": self.bulk_load,
            "bulk_view": lambda block, dtype, shape, layout: Shared(block.memory.view(shape)),
            "partition_barrier": nothing,
            "fence_async_shared": nothing,
        }
        for module in modules:
            lines = (ROOT / "submissions" / problem / f"{module}.py").read_text().splitlines()
            source = "\n".join("" if line.startswith("from ") else line for line in lines)
            exec(compile(source, module, "exec"), names)
        kernel = names[name]
        names |= {"arrive": self.arrive, "wait_for": self.wait_for_count}
        return kernel

    def run(self, kernel: Callable[..., None], tensors: list[Any], numbers: list[Any], **named: Any) -> None:
        """The tensors' memory is what the kernel may touch; descriptors stay what they are. Raises what a program
        raises."""
        failures = self.failures

        def play(number: int) -> None:
            self.program.number, self.program.groups = number, [[]]
            given = [pointer_to(one) if isinstance(one, torch.Tensor) else one for one in tensors]
            try:
                kernel(*given, *map(value, numbers), **named)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=play, args=(number,), daemon=True) for number in range(self.programs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=PLAY_S)
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

    def allocate(self, dtype: torch.dtype, shape: list[int], layout: Any) -> Any:
        if layout is not Barrier:
            return Shared(poisoned(torch.empty(shape, dtype=dtype)))
        barriers = [Barrier() for _ in range(shape[0])]
        return SimpleNamespace(index=lambda place: barriers[int(place)])

    def bulk_load(self, desc: Descriptor, place: list[Any], barrier: Barrier, block: Shared, pred: Any = True) -> None:
        if pred:
            poisoned(block.memory)
            barrier.copies.append(lambda: block.memory.copy_(desc.part(place)))

    def expect(self, barrier: Barrier, count: int, pred: Any = True) -> None:
        if pred:
            assert not barrier.armed, "a place is filled again before its copies were waited for"
            barrier.bytes, barrier.armed = count, True

    def wait_for_bytes(self, barrier: Barrier, phase: Any) -> None:
        for copy in barrier.copies:
            copied = copy()
            barrier.bytes -= copied.numel() * copied.element_size()
        assert barrier.bytes == 0, "not as much has been copied as is expected"
        barrier.over += barrier.armed
        barrier.copies, barrier.armed = [], False
        assert (barrier.over - 1) % 2 == int(phase), "this phase is never over"

    def arrive(self, count: Pointer) -> None:
        self.add(count, 1)

    def wait_for_count(self, count: Pointer, target: Any) -> None:
        while int(count.load()) < int(target):
            assert not self.failures, "another program has failed"
            time.sleep(0.0005)

    def add(self, pointer: Pointer, more: int, **_: Any) -> Value:
        with self.lock:
            found = pointer.load()
            pointer.store(found + more)
        return found

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
            program_id=lambda axis: value(self.program.number, torch.int32),
            num_programs=lambda axis: value(self.programs, torch.int32),
            static_range=range,
            allocate_shared_memory=self.allocate,
            arange=lambda start, end, layout: value(torch.arange(start, end)),
            reshape=torch.reshape,
            convert_layout=lambda tensor, layout, **_: tensor,
            atomic_add=self.add,
            zeros=lambda shape, dtype, layout: value(torch.zeros(shape, dtype=dtype)),
            cast=value,
            where=lambda mask, one, other: value(torch.where(value(mask), one, other)),
            maximum=lambda one, other: torch.maximum(one, value(other, one.dtype)),
            minimum=lambda one, other: torch.minimum(value(one), value(other, value(one).dtype)),
            expand_dims=torch.unsqueeze,
            max=torch.amax,
            min=torch.amin,
            sum=lambda tensor, axis: tensor.sum(axis, dtype=tensor.dtype),
            reduce=lambda tensor, axis, combine: functools.reduce(combine, tensor.unbind(axis)),
            load=lambda pointer, **named: pointer.load(**named),
            store=lambda pointer, values, mask=True: pointer.store(values, mask),
            inline_asm_elementwise=lambda text, *rest, **_: ASSEMBLY[text.split()[0]](*rest[1]),
        )


def pointer_to(tensor: torch.Tensor) -> Pointer:
    memory = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
    return Pointer(memory, tensor.dtype, tensor.storage_offset())


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
    "griddepcontrol.wait;": nothing,
    "{": nothing,
}
