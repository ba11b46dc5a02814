"""attention: the kernel and its blocks for each chip and shape; `python -m harness tune-kernel attention` finds rows."""

from typing import NamedTuple


class Row(NamedTuple):
    """`shape` is heads of queries and of keys, both times the batch, places, and numbers a head. `kernel`: "warps",
    explicit warps (Hopper), "plain", or "library", cuDNN's (backward). `block_m` queries and `block_n` keys meet at a
    time. `stages`: of what is under way; `warps`: of a program (plain only)."""

    chip: str
    shape: tuple[int, int, int, int]
    backward: bool
    kernel: str
    block_m: int
    block_n: int
    stages: int
    warps: int
    found: str


UNMEASURED = "not measured: compiles without spilling"

# fmt: off
TABLE = [
    Row("sm_90", (64, 8, 8192, 128), False, "warps", 128, 128, 2, 4, "1582 us, 695 TFLOP/s, best of 2, NVIDIA H200, 2026-11-23"),
    Row("sm_90", (64, 8, 8192, 128), True, "warps", 64, 128, 2, 8, "4944.7 us, 1.926 times as fast as the reference, best of 2 measured of 38 (all measured), NVIDIA H200, 2026-11-27"),
    Row("sm_90", (64, 16, 8192, 128), True, "warps", 64, 128, 2, 8, "4963.3 us, 1.940 times as fast as the reference, best of 2 measured of 38 (all measured), NVIDIA H200, 2026-11-27"),
    Row("sm_100", (64, 8, 8192, 128), False, "plain", 128, 64, 3, 8, UNMEASURED),
    Row("sm_100", (64, 8, 8192, 128), True, "plain", 64, 64, 2, 8, UNMEASURED),
    Row("sm", (64, 8, 8192, 128), False, "plain", 128, 32, 3, 8, UNMEASURED),
    Row("sm", (64, 8, 8192, 128), True, "plain", 64, 32, 2, 4, UNMEASURED),
    Row("gfx942", (64, 8, 8192, 128), False, "plain", 128, 64, 1, 8, UNMEASURED),
    Row("gfx942", (64, 8, 8192, 128), True, "plain", 64, 32, 1, 4, UNMEASURED),
    Row("interpreter", (4, 1, 64, 32), False, "plain", 32, 16, 1, 1, "small, as the interpreter is slow"),
    Row("interpreter", (4, 1, 64, 32), True, "plain", 32, 16, 1, 1, "small, as the interpreter is slow"),
]
# fmt: on
