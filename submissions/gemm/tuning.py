"""gemm: the kernel and its blocks for each chip and shape; `python -m harness tune-kernel gemm` finds rows."""

from typing import NamedTuple


class Row(NamedTuple):
    """`shape` is M, N and K. `kernel`: "warps", explicit warps (Hopper), or "plain". `stages`: of the ring of operands
    that are under way. `group`: rows of tiles that are multiplied column by column. `warps`: of a program (plain
    only). `shared`: all programs share the tiles of the last round, which are fewer; `parts`: in
    how many parts, 1 or 2, a half of a tile leaves through memory of their size; `ahead`: less is
    left to do between two tiles (all three explicit warps only)."""

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
    ahead: bool
    found: str


UNMEASURED = "not measured: compiles without spilling"

# fmt: off
TABLE = [
    Row("sm_90", (8192, 8192, 8192), "warps", 128, 256, 64, 3, 16, 4, False, 1, False, "685 TFLOP/s, 1.04 times cuBLAS, best of 4, NVIDIA H200, 2026-11-23"),
    Row("sm_90", (8192, 8192, 28672), "warps", 128, 256, 64, 3, 16, 4, False, 1, False, "677 TFLOP/s, 1.04 times cuBLAS, best of 4, NVIDIA H200, 2026-11-23"),
    Row("sm_90", (8192, 10240, 8192), "warps", 128, 256, 64, 3, 16, 4, False, 1, False, "756 TFLOP/s, 1.03 times cuBLAS, best of 4, NVIDIA H200, 2026-11-23"),
    Row("sm_90", (8192, 57344, 8192), "warps", 128, 256, 64, 3, 16, 4, False, 1, False, "684 TFLOP/s, 1.02 times cuBLAS, best of 4, NVIDIA H200, 2026-11-23"),
    Row("sm_90", (16384, 4096, 4096), "warps", 128, 256, 64, 3, 16, 4, False, 1, False, "677 TFLOP/s, 1.03 times cuBLAS, best of 4, NVIDIA H200, 2026-11-23"),
    Row("sm_90", (16384, 4096, 14336), "warps", 128, 256, 64, 3, 16, 4, False, 1, False, "688 TFLOP/s, 1.06 times cuBLAS, best of 4, NVIDIA H200, 2026-11-23"),
    Row("sm_90", (16384, 6144, 4096), "warps", 128, 256, 64, 3, 16, 4, False, 1, False, "675 TFLOP/s, 1.01 times cuBLAS, best of 4, NVIDIA H200, 2026-11-23"),
    Row("sm_90", (16384, 28672, 4096), "warps", 128, 256, 64, 3, 16, 4, False, 1, False, "680 TFLOP/s, 1.04 times cuBLAS, best of 4, NVIDIA H200, 2026-11-23"),
    Row("sm", (8192, 8192, 8192), "plain", 128, 128, 64, 3, 8, 8, False, 1, False, UNMEASURED),
    Row("gfx942", (8192, 8192, 8192), "plain", 128, 128, 32, 2, 8, 8, False, 1, False, UNMEASURED),
    Row("interpreter", (64, 64, 64), "plain", 32, 32, 32, 1, 2, 1, False, 1, False, "small, as the interpreter is slow"),
]
# fmt: on
