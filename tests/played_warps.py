"""Runs kernels with explicit warps on a CPU, those of gemm, gemm_rs, ag_gemm, attention and llama's prompts: torch
stands in for Gluon, and each partition of each program of each rank is a thread.

This finds missing waits for barriers in shared memory (mbarriers), for flags, for bulk copies and for asynchronous
products, and wrong indices. Each bulk copy happens at a random time: at once, or when a thread waits for it. An
asynchronous product reads its operands when its thread waits for it. Threads and ranks fall behind at random. The
threads of a warpgroup are one thread here, and memory is in order. So this does not find a missing `partition_barrier`
or `fence_async_shared`, which do nothing here.
"""

import __future__

import ast
import ctypes
import itertools
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from kernel_ranks import ROOT

BLOCK_BYTES = 1 << 24  # of a rank's block, and the room that every other tensor has
PLAY_S, HANG_S = 200.0, 1.0  # a run that takes longer is taken to be a deadlock; one of a kernel with a fault
SEEDS = 16  # a fault has to show in one of so many runs
LATE, LATE_S = 0.1, 0.004  # how many of a thread's arrivals and copies delay it, and for how long
LATE_RANK_S = 0.05  # one rank begins so much later
LOOK_S = 0.02  # how often who waits looks whether another thread has failed
FLAG_S = 0.001  # between two looks at a flag


def is_noticed(is_right: Callable[[int], bool]) -> bool:
    """Whether a kernel with a fault is not right in one of some runs, each of another seed."""
    with mock.patch.object(sys.modules[__name__], "PLAY_S", HANG_S):
        return not all(map(is_right, range(SEEDS)))


class Memory:
    """All that has an address: each rank's block, which all see, and tensors."""

    def __init__(self) -> None:
        self.parts: list[torch.Tensor] = []

    def add(self, tensor: torch.Tensor) -> "Address":
        self.parts.append(tensor)
        return Address(self, torch.tensor((len(self.parts) - 1) * BLOCK_BYTES))

    def at(self, place: int, dtype: torch.dtype) -> torch.Tensor:
        part = self.parts[place // BLOCK_BYTES].view(-1).view(torch.uint8)
        return part[place % BLOCK_BYTES :][: len(part[place % BLOCK_BYTES :]) // dtype.itemsize * dtype.itemsize].view(
            dtype
        )


class Address:
    """Places in memory, bytes."""

    def __init__(self, memory: Memory, places: torch.Tensor) -> None:
        self.memory, self.places = memory, places

    def __add__(self, more: Any) -> "Address":
        return Address(self.memory, self.places + more)

    def to(self, kind: Any) -> Any:
        return Pointer(self.memory, self.places, kind.dtype) if isinstance(kind, SimpleNamespace) else self


class Pointer:
    """Places in memory of elements."""

    def __init__(self, memory: Memory, places: torch.Tensor, dtype: torch.dtype) -> None:
        self.memory, self.places, self.dtype = memory, places, dtype

    def __add__(self, elements: Any) -> "Pointer":
        return Pointer(self.memory, self.places + elements * self.dtype.itemsize, self.dtype)

    def to(self, kind: Any, bitcast: bool) -> "Pointer":
        """Of another type to the same places."""
        return Pointer(self.memory, self.places, kind.dtype)

    def flat(self) -> tuple[torch.Tensor, torch.Tensor]:
        first = int(self.places.min()) // BLOCK_BYTES * BLOCK_BYTES
        return self.memory.at(first, self.dtype), (self.places - first) // self.dtype.itemsize

    def load(self, mask: Any = True, other: float = 0.0) -> Any:
        flat, places = self.flat()
        places, mask = torch.broadcast_tensors(places, torch.as_tensor(mask))
        found = torch.where(mask, flat[torch.where(mask, places, 0)], torch.tensor(other, dtype=self.dtype))
        return Address(self.memory, found) if self.dtype == torch.int64 else found

    def store(self, values: Any, mask: Any = True) -> None:
        flat, places = self.flat()
        values = values if isinstance(values, torch.Tensor) else torch.tensor(values, dtype=self.dtype)
        places, mask, values = torch.broadcast_tensors(places, torch.as_tensor(mask), values)
        assert values.dtype == self.dtype
        flat[places[mask]] = values[mask]


class Blocks:
    """Shared memory as bulk copies lay it out: [blocks, columns of 64, rows, 64], or one block."""

    def __init__(self, memory: torch.Tensor) -> None:
        self.memory = memory
        self.layout = None

    @staticmethod
    def made(shape: list[int], dtype: torch.dtype = torch.bfloat16) -> "Blocks":
        *count, rows, columns = shape
        wide = min(64, columns)
        return Blocks(torch.full((*count, columns // wide, rows, wide), float("nan"), dtype=dtype))

    def viewed(self, shape: list[int]) -> "Blocks":
        count, rows, columns = shape
        wide = min(64, columns)
        return Blocks(self.memory.view(count, columns // wide, rows, wide))

    def index(self, place: Any) -> "Blocks":
        return Blocks(self.memory[int(place)])

    def slice(self, start: int, length: int) -> "Blocks":
        assert len(self.memory) == 1, "its columns do not lie behind each other any more"
        return Blocks(self.memory[:, start : start + length])

    def permute(self, order: tuple[int, ...]) -> SimpleNamespace:
        return SimpleNamespace(load=lambda layout: self.load(layout).T)

    def load(self, layout: Any) -> torch.Tensor:
        return self.memory.permute(1, 0, 2).flatten(1).clone()

    def store(self, values: torch.Tensor) -> None:
        parts, rows, wide = self.memory.shape
        self.memory.copy_(values.reshape(rows, parts, wide).permute(1, 0, 2))


class Rows(Blocks):
    """A row for each place: [places, numbers]."""

    def index(self, place: Any) -> "Rows":
        return Rows(self.memory[int(place)])

    def load(self, layout: Any) -> torch.Tensor:
        return self.memory.clone()

    def store(self, values: torch.Tensor) -> None:
        self.memory.copy_(values.view(self.memory.shape))


class Product:
    """An asynchronous product, added to a sum."""

    def __init__(self, a: Any, b: Blocks, acc: "Product | torch.Tensor") -> None:
        self.a, self.b, self.acc, self.shape = a, b, acc, acc.shape
        self.done: torch.Tensor | None = None

    def value(self) -> torch.Tensor:
        if self.done is None:
            acc = self.acc.value() if isinstance(self.acc, Product) else self.acc
            a = self.a if isinstance(self.a, torch.Tensor) else self.a.load(None)
            self.done = acc + a.float() @ self.b.load(None).float()
        return self.done


class Descriptor:
    """Of a matrix, or of one row of numbers."""

    def __init__(self, pointer: Pointer, shape: list[Any], block: list[int]) -> None:
        self.rows, self.columns = (int(size) for size in [1, *shape][-2:])
        memory = pointer.memory.at(int(pointer.places), pointer.dtype)
        self.tensor, self.block = memory[: self.rows * self.columns].view(self.rows, self.columns), [1, *block][-2:]
        self.layout, self.block_type = None, SimpleNamespace(shape=block)

    def copy(self, coordinates: list[Any], shared: Blocks, load: bool, add: bool = False) -> None:
        """What of the block is outside the tensor reads as 0 and is not written."""
        row, column = (int(one) for one in [0, *coordinates][-2:])
        rows, columns = self.block
        inside = (
            slice(max(row, 0), max(0, min(row + rows, self.rows))),
            slice(column, min(column + columns, self.columns)),
        )
        part = self.tensor[inside]
        at = (slice(max(-row, 0), max(-row, 0) + part.shape[0]), slice(0, part.shape[1]))
        if load:
            values = torch.zeros(rows, columns, dtype=part.dtype)
            values[at] = part
            shared.store(values)
        else:
            values = shared.load(None)[at]
            part.copy_(part + values if add else values)


class Store:
    """A bulk copy out of shared memory: when that is read, and when what it was is where it shall be, or is added to
    what is there."""

    def __init__(self, desc: Descriptor, coordinates: list[Any], shared: Blocks, add: bool) -> None:
        self.desc, self.shared, self.values, self.add = desc, shared, None, add
        self.coordinates = [int(one) for one in coordinates]  # a kernel may count them on
        self.is_over = False

    def read(self) -> None:
        if self.values is None:
            self.values = Blocks(self.shared.memory.clone())

    def write(self) -> None:
        if not self.is_over:
            self.read()
            self.desc.copy(self.coordinates, self.values, False, self.add)
            self.is_over = True


class Barrier:
    """One in shared memory. `late` are copies that it will be told of; `changed` wakes who waits for it."""

    def __init__(self, lock: threading.RLock) -> None:
        self.count = self.left = self.bytes = self.phase = 0
        self.late: list[Callable[[], None]] = []
        self.changed = threading.Condition(lock)


class Machine:
    """Ranks with programs that share memory. `edit`: a piece of the kernel's source, and what to put in its place.
    `kernel`: its name."""

    def __init__(
        self,
        problem: str,
        world_size: int,
        programs: int,
        seed: int,
        edit: tuple[str, str] = ("", ""),
        kernel: str = "warps_kernel",
    ) -> None:
        self.kernel = kernel
        self.world_size, self.programs, self.chance = world_size, programs, random.Random(seed)
        self.lock, self.here, self.failures = threading.RLock(), threading.local(), list[BaseException]()
        self.memory = Memory()
        self.blocks = [torch.zeros(BLOCK_BYTES, dtype=torch.uint8) for _ in range(world_size)]
        self.table = torch.stack([self.memory.add(block).places for block in self.blocks])
        # All threads run on it: they hand each other Python's lock at every operation, which between cores costs more
        # than what they compute.
        self.core = ctypes.CDLL(None).sched_getcpu()
        self.names = self.named(problem, *edit)

    def paths(self, problem: str) -> list[str]:
        """Of the kernel's source files, each behind those that it imports."""
        return ["common/warps.py", f"{problem}/hopper.py"]

    def named(self, problem: str, old: str, new: str) -> dict[str, Any]:
        """The kernel's names: its source, edited, but for what is assembly."""
        gluon = SimpleNamespace(jit=lambda function=None, **_: function or (lambda decorated: decorated))
        names: dict[str, Any] = {"gluon": gluon, **self.language()}
        texts = {path: (ROOT / "submissions" / path).read_text() for path in self.paths(problem)}
        assert any(old in text for text in texts.values()), f"no kernel of {problem} has {old}"
        for path, text in texts.items():
            tree = ast.parse(text.replace(old, new) if old else text)
            tree.body = [node for node in tree.body if not isinstance(node, ast.Import | ast.ImportFrom)]
            exec(compile(tree, path, "exec", __future__.annotations.compiler_flag), names)
        return names | self.assembly()

    def run(
        self, tensors: list[list[torch.Tensor]], numbers: list[list[int]], tiles: Sequence[Any] = (), **constants: Any
    ) -> None:
        """Each rank's tensors, behind which a kernel of several ranks has the table of their blocks, and numbers. Those
        of the first that `tiles` has go as descriptors, the others as pointers. Raises what a thread raises."""
        kernel = self.names[self.kernel]
        kernel.__globals__.update(self.names)
        threads = []
        ranks = self.chance.sample(range(self.world_size), self.world_size)
        for rank, program in itertools.product(ranks, range(self.programs)):
            if rank == ranks[-1] and program == 0:
                time.sleep(LATE_RANK_S)
            pointers = [Pointer(self.memory, self.memory.add(one).places, one.dtype) for one in tensors[rank]]
            made = [
                Descriptor(pointer, of.shape, of.block) if of else pointer
                for pointer, of in zip(pointers, tiles, strict=False)
            ]
            pointers = pointers[len(made) :]
            if self.world_size > 1:
                pointers.append(Pointer(self.memory, self.memory.add(self.table).places, torch.int64))
            arguments = (*made, *pointers, *map(torch.tensor, numbers[rank]))
            threads.append(self.thread(program, kernel, arguments, constants))
        self.join(threads)

    def thread(self, program: int, what: Callable[..., Any], arguments: Any, constants: Any) -> threading.Thread:
        def play() -> None:
            os.sched_setaffinity(0, {self.core})
            self.here.program, self.here.stores, self.here.products = torch.tensor(program), [], []
            try:
                what(*arguments, **constants)
                self.finish(0)
            except BaseException as error:
                self.failures.append(error)

        thread = threading.Thread(target=play, daemon=True)
        thread.start()
        return thread

    def join(self, threads: list[threading.Thread]) -> None:
        deadline = time.monotonic() + PLAY_S
        for thread in threads:
            while thread.is_alive() and not self.failures:
                if time.monotonic() > deadline:
                    raise TimeoutError("threads wait for each other forever")
                thread.join(LOOK_S)
        if self.failures:
            raise self.failures[0]

    def specialize(self, partitions: list[Any], *_: Any) -> None:
        self.join([self.thread(int(self.here.program), what, arguments, {}) for what, arguments in partitions])

    def until(self, holds: Callable[[], bool], changed: threading.Condition) -> None:
        """Waits for what only such a change makes so."""
        with changed:
            while not holds():
                if self.failures:
                    raise RuntimeError("another thread has failed")
                changed.wait(LOOK_S)

    # ---- barriers and copies -----------------------------------------------------------------------------------------

    def arrive(self, barrier: Barrier, count: int = 1, pred: Any = True) -> None:
        with self.lock:
            if pred:
                barrier.left -= count
                assert barrier.left >= 0, "more have arrived than are to"
                self.turn(barrier)
        self.fall_behind()

    def fall_behind(self) -> None:
        if self.chance.random() < LATE:
            time.sleep(LATE_S)

    def turn(self, barrier: Barrier) -> None:
        if barrier.left == 0 and barrier.bytes == 0:
            barrier.phase, barrier.left = barrier.phase + 1, barrier.count
            barrier.changed.notify_all()

    def expect(self, barrier: Barrier, count: int) -> None:
        with self.lock:
            barrier.bytes += count
            barrier.left -= 1
            assert barrier.left >= 0, "more have arrived than are to"
            self.turn(barrier)

    def wait(self, barrier: Barrier, phase: Any) -> None:
        def over() -> bool:
            while barrier.late:
                barrier.late.pop(0)()
            return (barrier.phase - 1) % 2 == int(phase)

        self.until(over, barrier.changed)

    def initialize(self, barrier: Barrier, count: int) -> None:
        barrier.count = barrier.left = count

    def load(self, desc: Descriptor, coordinates: list[Any], barrier: Barrier, shared: Blocks) -> None:
        def copy() -> None:
            desc.copy(coordinates, shared, True)
            barrier.bytes -= shared.memory.nbytes
            assert barrier.bytes >= 0, "more has been copied than is expected"
            self.turn(barrier)

        assert shared.memory.numel() == desc.block[0] * desc.block[1]
        with self.lock:
            if self.chance.random() < 0.5:
                copy()
            else:
                barrier.late.append(copy)
                barrier.changed.notify_all()

    def store(self, desc: Descriptor, coordinates: list[Any], shared: Blocks, add: bool = False) -> None:
        assert shared.memory.numel() == desc.block[0] * desc.block[1]
        self.here.stores.append(Store(desc, coordinates, shared, add))
        if self.chance.random() < 0.5:
            self.here.stores[-1].read()
        if self.chance.random() < 0.5:
            self.write(self.here.stores[-1])
        self.fall_behind()

    def write(self, store: Store) -> None:
        with self.lock:  # one adds up behind the other
            store.write()

    def read(self, left: int) -> None:
        for store in self.here.stores[: len(self.here.stores) - left]:
            store.read()

    def finish(self, left: int) -> None:
        while len(self.here.stores) > left:
            self.write(self.here.stores.pop(0))

    def multiply(self, a: Any, b: Blocks, acc: Any, use_acc: bool = True, is_async: bool = False) -> Any:
        product = Product(a, b, acc if use_acc else torch.zeros(acc.shape))
        self.here.products.append(product)
        if is_async:
            return product
        self.wait_for_products(0, ())
        return product.value()

    def wait_for_products(self, left: int, deps: tuple[Any, ...]) -> Any:
        """Those that are still under way are no numbers yet."""
        while len(self.here.products) > left:
            self.here.products.pop(0).value()
        over = [isinstance(one, Product) and one not in self.here.products for one in deps]
        values = [one.value() if is_over else one for one, is_over in zip(deps, over, strict=True)]
        return values[0] if len(values) == 1 else tuple(values)

    def atomic_add(self, pointer: Pointer, value: int, sem: str, scope: str) -> torch.Tensor:
        self.fall_behind()
        with self.lock:
            before = pointer.load().clone()
            pointer.store(before + value)
        self.fall_behind()
        return before

    # ---- the language ------------------------------------------------------------------------------------------------

    def language(self) -> dict[str, Any]:
        def allocate(dtype: Any, shape: list[int], layout: Any) -> Any:
            if layout == "rows":
                return Rows(torch.full(shape, float("nan"), dtype=dtype))
            if layout != "barriers":
                return Blocks.made(shape, dtype)
            barriers = [Barrier(self.lock) for _ in range(shape[0])]
            return barriers[0] if len(shape) == 1 else SimpleNamespace(index=lambda place: barriers[int(place)])

        def shared_layout(rank: int, **_: Any) -> str:
            assert rank == 1
            return "rows"

        shared_layout.get_default_for = lambda *_: None

        def number(one: Any) -> torch.Tensor:
            return torch.as_tensor(one)

        gl = SimpleNamespace(
            **{name: getattr(torch, name) for name in ("int32", "int64", "float32", "bfloat16")},
            constexpr=lambda constant: constant,
            pointer_type=lambda dtype: SimpleNamespace(dtype=dtype),
            BlockedLayout=lambda *_: None,
            SliceLayout=lambda *_: None,
            NVMMADistributedLayout=lambda **_: None,
            NVMMASharedLayout=shared_layout,
            program_id=lambda axis: self.here.program,
            num_programs=lambda axis: torch.tensor(self.programs),
            static_range=range,
            allocate_shared_memory=allocate,
            arange=lambda start, end, layout: torch.arange(start, end),
            zeros=lambda shape, dtype, layout: torch.zeros(shape, dtype=dtype),
            cdiv=lambda one, other: -(-number(one) // other),
            where=lambda mask, one, other: torch.where(number(mask), one, other),
            maximum=lambda one, other: torch.maximum(number(one), number(other)),
            minimum=lambda one, other: torch.minimum(number(one), number(other)),
            min=lambda tensor, axis: tensor.amin(axis),
            max=lambda tensor, axis: tensor.amax(axis),
            sum=lambda tensor, axis: tensor.sum(axis),
            **{name: getattr(torch, name) for name in ("exp", "exp2", "rsqrt")},
            expand_dims=torch.unsqueeze,
            convert_layout=lambda tensor, layout: tensor,
            DotOperandLayout=lambda **_: None,
            load=lambda pointer, cache_modifier="", **named: pointer.load(**named),
            multiple_of=lambda numbers, factor: numbers,
            store=lambda pointer, values, mask=True: pointer.store(values, mask),
            atomic_add=self.atomic_add,
            split=lambda tensor: tensor.unbind(-1),
            warp_specialize=self.specialize,
        )
        mbarrier = SimpleNamespace(
            MBarrierLayout=lambda: "barriers",
            init=self.initialize,
            wait=self.wait,
            arrive=self.arrive,
            expect=self.expect,
        )
        tma = SimpleNamespace(
            make_tensor_descriptor=lambda pointer, shape, strides, block, layout: Descriptor(pointer, shape, block),
            store_wait=self.read,
        )
        return {
            "gl": gl,
            "mbarrier": mbarrier,
            "tma": tma,
            "bulk_load": self.load,
            "bulk_store": self.store,
            "bulk_add": partial(self.store, add=True),
            "bulk_view": lambda blocks, dtype, shape, layout: blocks.viewed(shape),
            "partition_barrier": lambda: None,
            "fence_async_shared": lambda: None,
            "warpgroup_mma_init": lambda acc: acc,
            "warpgroup_mma_wait": self.wait_for_products,
            "warpgroup_mma": self.multiply,
        }

    def assembly(self) -> dict[str, Any]:
        """In place of functions that are assembly, or look at bits."""

        def next_stage(slot: Any, turn: Any, stages: int) -> tuple[Any, Any]:
            return (0, turn ^ 1) if slot == stages - 1 else (slot + 1, turn)

        def set_flags(addresses: Address, epoch: Any, mask: torch.Tensor) -> None:
            for place in addresses.places[mask]:
                self.memory.at(int(place), torch.int32)[0] = int(epoch)
                self.fall_behind()

        def read_flag(address: Address) -> torch.Tensor:
            time.sleep(FLAG_S)
            if self.failures:
                raise RuntimeError("another thread has failed")
            found = [self.memory.at(int(place), torch.int32)[0] for place in address.places.reshape(-1)]
            return torch.stack(found).view(address.places.shape)

        return {
            "next_stage": next_stage,
            "set_flags": set_flags,
            "read_flag": read_flag,
            "order_copies": lambda: None,
            "finish_copies": lambda: self.finish(0),
            "wait_until_under_way": self.finish,
            "request": lambda *_: None,
            "as_one_product": lambda: None,
        }
