"""gemm: the kernel and its blocks for each chip and shape; `python -m harness tune-kernel gemm` finds rows."""

from typing import NamedTuple


class Row(NamedTuple):
    """`shape` is M, N and K. `kernel`: "warps", explicit warps (Hopper), or "plain". `stages`: of the ring of operands
    that are under way. `group`: rows of tiles that are multiplied column by column. `warps`: of a program (plain
    only). `shared`: all programs share the tiles of the last round, which are fewer; `parts`: in how many parts, 1 or
    2, a half of a tile leaves through memory of their size (both explicit warps only)."""

    chip: str
    shape: tuple[int, int, int]
    kernel: str
    block_m: int
    block_n: int
    block_k: int
    stages: int
    group: int
    warps: int
    shared: bool
    parts: int
    found: str


UNMEASURED = "not measured: compiles without spilling"

# fmt: off
TABLE = [
    Row("sm_90", (8192, 8192, 8192), "warps", 128, 256, 64, 3, 16, 4, True, 1, "1342.0 us, 1.028 times as fast as the reference, best of 9 measured of 42 (nothing better in a while), NVIDIA H200, 2026-11-24"),
    Row("sm_90", (8192, 8192, 28672), "warps", 128, 256, 64, 3, 8, 4, False, 1, "4711.1 us, 1.021 times as fast as the reference, best of 12 measured of 42 (as many as asked), NVIDIA H200, 2026-11-24"),
    Row("sm_90", (8192, 10240, 8192), "warps", 128, 256, 64, 4, 8, 4, True, 2, "1673.3 us, 1.016 times as fast as the reference, best of 9 measured of 42 (nothing better in a while), NVIDIA H200, 2026-11-24"),
    Row("sm_90", (8192, 57344, 8192), "warps", 128, 256, 64, 4, 8, 4, True, 2, "9305.0 us, 1.009 times as fast as the reference, best of 11 measured of 42 (nothing better in a while), NVIDIA H200, 2026-11-24"),
    Row("sm_90", (16384, 4096, 4096), "warps", 128, 256, 64, 3, 16, 4, True, 1, "689.4 us, 1.014 times as fast as the reference, best of 9 measured of 42 (nothing better in a while), NVIDIA H200, 2026-11-24"),
    Row("sm_90", (16384, 4096, 14336), "warps", 128, 256, 64, 3, 16, 4, True, 1, "2344.1 us, 1.021 times as fast as the reference, best of 9 measured of 42 (nothing better in a while), NVIDIA H200, 2026-11-24"),
    Row("sm_90", (16384, 6144, 4096), "warps", 128, 256, 64, 3, 16, 4, True, 1, "1022.0 us, 0.994 times as fast as the reference, best of 9 measured of 42 (nothing better in a while), NVIDIA H200, 2026-11-24"),
    Row("sm_90", (16384, 28672, 4096), "warps", 128, 256, 64, 3, 12, 4, True, 1, "4632.7 us, 1.009 times as fast as the reference, in groups of 16 4647.9, in turn, NVIDIA H200, 2026-11-28"),
    Row("sm", (8192, 8192, 8192), "plain", 128, 128, 64, 3, 8, 8, False, 1, UNMEASURED),
    Row("gfx942", (8192, 8192, 8192), "plain", 128, 128, 32, 2, 8, 8, False, 1, UNMEASURED),
    Row("interpreter", (64, 64, 64), "plain", 32, 32, 32, 1, 2, 1, False, 1, "small, as the interpreter is slow"),
]
# fmt: on
