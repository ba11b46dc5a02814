"""cross_entropy: the kernel and its parts for each chip and shape; `python -m harness tune-kernel cross_entropy` finds
rows."""

from typing import NamedTuple


class Row(NamedTuple):
    """`shape` is tokens and classes. `kernel`: "held", "loaded" (the same without a
    ring) or "ring" (NVIDIA), "registers" or "twice". A row of logits is
    cut into `parts`, a power of two. `threads` of a program; `resident` programs of a multiprocessor; `slots`: how many
    parts a program holds, those that are under way included. `lag`: by how many rows, 0 or 1, the gradient is behind
    what it waits for (rings of two or more parts). Of "held" only: `near`, whether the parts of a
    row shall be on one multiprocessor, if so many fit; `load`, the eviction policy of loads (of a ring: how
    lines are fetched into the L2 cache ahead of the copies); `store`, the gradient's stores' cache modifier or eviction
    policy."""

    chip: str
    shape: tuple[int, int]
    kernel: str
    parts: int
    threads: int
    resident: int
    slots: int
    lag: int
    near: bool
    load: str
    store: str
    found: str


UNMEASURED = "not measured: compiles without spilling"

# fmt: off
TABLE = [
    Row("sm_90", (8192, 32000), "ring", 4, 128, 4, 3, 1, False, "", "", "288.0 us, best of 9 measured of 14 (nothing better in a while), NVIDIA H200, 2026-11-23"),
    Row("sm_90", (16384, 128256), "ring", 16, 128, 4, 3, 1, False, "", "", "2218.3 us, best of 9 measured of 15 (nothing better in a while), NVIDIA H200, 2026-11-23"),
    Row("gfx942", (8192, 32000), "registers", 1, 512, 2, 1, 0, False, "", "", UNMEASURED),
    Row("gfx942", (16384, 128256), "registers", 16, 128, 4, 2, 0, False, "", "", UNMEASURED),
    Row("interpreter", (16, 3000), "registers", 1, 64, 1, 1, 0, False, "", "", "small, as the interpreter is slow"),
]
# fmt: on
