"""rms_norm: the programs for each chip and shape; `python -m harness tune-kernel rms_norm` finds rows."""

from typing import NamedTuple


class Row(NamedTuple):
    """`shape` is rows and hidden dimension. A thread has `elements` of a row. `resident`: threads of a
    multiprocessor, whose programs take row after row (backward only; forward a program has one row, and this is 0).
    `loads`: how inputs leave the cache, Triton's eviction policy; `stores`: how results are cached, its modifier.
    `together`: the same programs add up the weight's gradient (backward only), otherwise a second kernel does."""

    chip: str
    shape: tuple[int, int]
    backward: bool
    elements: int
    resident: int
    loads: str
    stores: str
    together: bool
    found: str


UNMEASURED = "not measured: compiles without spilling"

# fmt: off
TABLE = [
    Row("sm_90", (8192, 8192), False, 8, 0, "evict_last", ".cs", False, "129.9 us, best of 9 measured of 11 (nothing better in a while), NVIDIA H200, 2026-11-23"),
    Row("sm_90", (8192, 8192), True, 16, 512, "evict_last", "", True, "134.0 us, 22.051 times as fast as the reference, best of 5 measured of 13 (as many as asked), NVIDIA H200, 2026-11-24"),
    Row("sm_90", (16384, 4096), False, 8, 0, "evict_last", ".wt", False, "129.1 us, best of 9 measured of 11 (nothing better in a while), NVIDIA H200, 2026-11-23"),
    Row("sm_90", (16384, 4096), True, 16, 512, "evict_last", "", True, "133.8 us, 22.003 times as fast as the reference, best of 5 measured of 13 (as many as asked), NVIDIA H200, 2026-11-24"),
    Row("gfx942", (8192, 8192), False, 8, 0, "", "", False, UNMEASURED),
    Row("gfx942", (8192, 8192), True, 16, 512, "", "", False, UNMEASURED),
    Row("interpreter", (64, 256), False, 8, 0, "", "", False, "one of many that are as good"),
    Row("interpreter", (64, 256), True, 16, 512, "", "", False, "one of many that are as good"),
]
# fmt: on
