"""Choosing a kernel's blocks: what is known of chips, and the row of a tuning table that is nearest to a shape.

A table is a list of rows, one a chip and shape, each with `chip`, `shape` and `found`, how it was chosen. Kernels do
not branch on chips; all that differs between them stands in these rows and in CHIPS. A chip without rows of its own
takes the rows of its maker, see `rows_for`.
"""

import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple, Protocol, TypeVar

import torch


class Chip(NamedTuple):
    """`dies`: how many parts with an L2 of their own programs are dealt out to in turn."""

    name: str
    multiprocessors: int
    dies: int


class Found(Protocol):
    """A row of a table."""

    @property
    def chip(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...


F = TypeVar("F", bound=Found)
MAKERS = ("sm", "gfx")  # NVIDIA, AMD: the `chip` of a row that is for all chips of the maker without rows of their own
# A row with one of these kernels counts on its own chip only. Explicit warps need Hopper's instructions, `loaded` and
# `ring` were written for Hopper, and the library was ahead where it was measured.
ONE_CHIP = ("warps", "loaded", "ring", "library")
# The chips that the kernels of several ranks run on, with their dies (AMD CDNA 3 and CDNA 4 white papers). sm_90 (H100,
# H200) and gfx942 (MI300X, MI325X) have rows of their own. For sm_100 (B200) and gfx950 (MI355X) kernels are compiled in
# tests, but they were never run there.
CHIPS = {"sm_90": 1, "sm_100": 1, "gfx942": 8, "gfx950": 8, "interpreter": 1}

REGISTERS = 65536  # of a multiprocessor, 32 bits each; NVIDIA CUDA C++ Programming Guide, compute capabilities
SIMDS = 4  # of a compute unit; AMD CDNA 3 white paper


@cache
def chip_of(device: torch.device) -> Chip:
    """The chip behind `device`; on a CPU kernels are interpreted, as one program."""
    if device.type == "cpu":
        return Chip("interpreter", 1, 1)
    properties = torch.cuda.get_device_properties(device)
    cuda = f"sm_{properties.major}{properties.minor}"
    name = properties.gcnArchName.partition(":")[0] if torch.version.hip else cuda
    return Chip(name, properties.multi_processor_count, CHIPS.get(name, 1))


def warps_of(threads: int) -> int:
    """How many warps (waves, on AMD's GPUs) these are, of 64 to 1024 threads."""
    return min(max(threads, 64), 1024) // (64 if torch.version.hip else 32)


def room(chip: Chip, programs: int, warps: int) -> dict[str, int]:
    """The compiler's options that leave room for so many programs of so many warps on a multiprocessor: for programs
    that wait for each other, all of which must fit at once."""
    if chip.name.startswith("gfx"):
        return {"waves_per_eu": -(-programs * warps // SIMDS)}
    return {"maxnreg": min(255, REGISTERS // (programs * warps * 32) // 8 * 8)}


def rows_for(table: Sequence[F], chip: str) -> list[F]:
    """The rows that a kernel for that chip is chosen from: the chip's own; where it has none, those for all chips of
    its maker; where there are none either, those of the maker's other chips, but for the kernels of ONE_CHIP."""
    makers = [row for row in table if row.chip[:2] == chip[:2]]
    own = [row for row in makers if row.chip == chip]
    general = [row for row in makers if row.chip in MAKERS]
    return own or general or [row for row in makers if getattr(row, "kernel", "") not in ONE_CHIP]


def nearest(table: Sequence[F], chip: str, shape: tuple[int, ...]) -> F:
    """The row for that chip whose shape differs least, by factors."""

    def distance(row: F) -> float:
        return sum(abs(math.log(ours / theirs)) for ours, theirs in zip(shape, row.shape, strict=True))

    return min(rows_for(table, chip), key=distance)


def rows_of_tile(block: int, rows: int) -> int:
    """The rows of a tile, where a rank has `rows` and the table says `block`, a power of two from 16 on. That is the
    block, or half of it where one rank's rows do not fill the block but those of two ranks do not fit in it."""
    return block // 2 if max(rows, 16) < block < 2 * rows else block


def largest_power_of_two(most: int) -> int:
    """The largest power of two that is at most `most`."""
    return 1 << most.bit_length() - 1


def dividing(block: int, size: int) -> int:
    """The largest power of two, at most `block`, that divides `size` or is a multiple of it. 0 where none of at least
    16 does."""
    while block >= 16 and size % block and block % size:
        block //= 2
    return block if block >= 16 else 0
