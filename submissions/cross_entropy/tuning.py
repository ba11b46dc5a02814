"""cross_entropy: the kernel and its parts for each chip and shape; `python -m harness tune-kernel cross_entropy` finds
rows."""

from typing import NamedTuple


class Row(NamedTuple):
    """`shape` is tokens and classes. `kernel`: "ring", "loaded" (both Hopper), "registers" or "twice". A row of logits is
    cut into `parts`, a power of two ("loaded", "twice": 1). `threads` of a program; `resident` programs of a
    multiprocessor; `slots`: how many parts a program holds, those that are under way included ("loaded": 2). `lag`: by
    how many rows, 0 or 1, the gradient is behind what it waits for (rings of two or more parts)."""

    chip: str
    shape: tuple[int, int]
    kernel: str
    parts: int
    threads: int
    resident: int
    slots: int
    lag: int
    found: str


UNMEASURED = "not measured: compiles without spilling"

# fmt: off
TABLE = [
    Row("sm_90", (8192, 32000), "loaded", 1, 512, 1, 2, 0, "266.8 us, best of 10 measured of 21 (nothing better in a while), NVIDIA H200, 2026-11-24"),
    Row("sm_90", (16384, 128256), "ring", 16, 128, 4, 3, 1, "2209.1 us, best of 9 measured of 22 (nothing better in a while), NVIDIA H200, 2026-11-24"),
    Row("sm", (8192, 32000), "registers", 1, 1024, 1, 1, 0, UNMEASURED),
    Row("sm", (16384, 128256), "registers", 16, 128, 4, 2, 0, UNMEASURED),
    Row("gfx942", (8192, 32000), "registers", 1, 512, 2, 1, 0, UNMEASURED),
    Row("gfx942", (16384, 128256), "registers", 16, 128, 4, 2, 0, UNMEASURED),
    Row("interpreter", (16, 3000), "registers", 1, 64, 1, 1, 0, "small, as the interpreter is slow"),
]
# fmt: on
