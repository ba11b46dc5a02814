"""gemm_rs: the blocks for each chip and shape. The rows of a chip are written by `python bench/tune.py gemm_rs`."""

from typing import NamedTuple


class Row(NamedTuple):
    """`shape` is M, N and a rank's K. `per_sm`: programs a multiprocessor; `sum_m`, `sum_n`: the block that a program
    sums up where partial products are not added in the product's own registers."""

    chip: str
    shape: tuple[int, int, int]
    block_m: int
    block_n: int
    block_k: int
    split: int
    group: int
    warps: int
    stages: int
    per_sm: int
    sum_m: int
    sum_n: int
    found: str


UNMEASURED = "not measured: compiles without spilling"

TABLE = [
    Row("sm_90", (64, 7168, 4608), 64, 64, 128, 1, 4, 4, 5, 1, 32, 64, "fastest of 32 on 4x NVIDIA H200, 2026-11-21: 36.2 us"),
    Row("sm_90", (512, 4096, 3072), 128, 128, 64, 1, 8, 8, 4, 1, 32, 64, "fastest of 32 on 4x NVIDIA H200, 2026-11-21: 87.7 us"),
    Row("sm_90", (2048, 2880, 720), 128, 128, 64, 1, 4, 8, 4, 1, 16, 64, "fastest of 32 on 4x NVIDIA H200, 2026-11-21: 61.0 us"),
    Row("sm_90", (4096, 4096, 1024), 128, 128, 64, 1, 8, 4, 3, 2, 32, 128, "fastest of 32 on 4x NVIDIA H200, 2026-11-21: 130.7 us"),
    Row("sm_90", (8192, 4096, 3584), 128, 256, 64, 1, 8, 8, 3, 1, 32, 128, "fastest of 32 on 4x NVIDIA H200, 2026-11-21: 458.1 us"),
    Row("sm_90", (8192, 8192, 7392), 128, 256, 64, 1, 8, 8, 3, 1, 32, 64, "fastest of 32 on 4x NVIDIA H200, 2026-11-21: 1538.2 us"),
    Row("gfx942", (64, 7168, 2304), 64, 32, 64, 1, 8, 4, 2, 1, 16, 32, UNMEASURED),
    Row("gfx942", (8192, 8192, 3696), 128, 128, 32, 1, 4, 8, 2, 1, 16, 64, UNMEASURED),
    Row("interpreter", (64, 64, 64), 32, 32, 32, 1, 2, 1, 1, 1, 16, 32, "small, as the interpreter is slow"),
    Row("interpreter", (16, 64, 64), 32, 32, 32, 2, 2, 1, 1, 1, 16, 32, "small; tiles of several owners, two splits"),
]
