"""swiglu: the blocks for each chip and shape; `python -m harness tune-kernel swiglu` finds rows."""

from typing import NamedTuple


class Row(NamedTuple):
    """`shape` is rows and columns of the result. A program has `block` columns of a row and `threads`. `loads`: how
    inputs leave the cache, Triton's eviction policy; `stores`: how results are cached, its modifier."""

    chip: str
    shape: tuple[int, int]
    backward: bool
    block: int
    threads: int
    loads: str
    stores: str
    found: str


UNMEASURED = "not measured: compiles without spilling"

# fmt: off
TABLE = [
    Row("sm_90", (8192, 28672), False, 2048, 256, "evict_last", ".wt", "321.9 us, best of 9 measured of 16 (nothing better in a while), NVIDIA H200, 2026-11-23"),
    Row("sm_90", (8192, 28672), True, 2048, 256, "evict_last", ".cs", "538.9 us, best of 9 measured of 16 (nothing better in a while), NVIDIA H200, 2026-11-23"),
    Row("sm_90", (16384, 14336), False, 2048, 256, "evict_last", ".wt", "321.8 us, best of 9 measured of 16 (nothing better in a while), NVIDIA H200, 2026-11-23"),
    Row("sm_90", (16384, 14336), True, 2048, 256, "evict_last", ".cs", "539.0 us, best of 9 measured of 16 (nothing better in a while), NVIDIA H200, 2026-11-23"),
    Row("gfx942", (8192, 28672), False, 2048, 256, "", "", UNMEASURED),
    Row("gfx942", (8192, 28672), True, 2048, 256, "", "", UNMEASURED),
    Row("interpreter", (64, 896), False, 2048, 64, "", "", "one of many that are as good"),
    Row("interpreter", (64, 896), True, 2048, 64, "", "", "one of many that are as good"),
]
# fmt: on
