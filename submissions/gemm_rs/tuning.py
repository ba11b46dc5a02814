"""gemm_rs: the blocks for each chip and shape. The rows of a chip are written by `python bench/tune.py gemm_rs`."""

from typing import NamedTuple


class Row(NamedTuple):
    """`shape` is M, N and a rank's K. `split`: programs that share a tile's depth. `per_sm`: programs a multiprocessor;
    `sum_m`, `sum_n`: the block that a program sums up, `sum_late`: behind the store of another tile instead of before
    it. `kernel`: "plain", which does everything; "engine", beside a copy engine that sends; or "warps", with explicit
    warps (Hopper, tiles of 128 rows). For the latter two `split` and `sum_m` to `sum_late` mean nothing. "warps" has 8
    warps beside those that load and send; `window` is how many bytes a program of it may have in flight to other ranks,
    or 0 where their owners fetch partial products, `fetchers` whether by warps of their own. `read_once`: whether the L2
    keeps the weights least ("plain" alone), which pays where they are many and each is read once."""

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
    sum_late: bool
    window: int
    read_once: bool
    fetchers: bool
    kernel: str
    found: str


UNMEASURED = "not measured: compiles without spilling"

# fmt: off
TABLE = [
    Row("sm_90", (64, 2048, 4096), 64, 64, 128, 4, 4, 4, 5, 1, 16, 64, False, 0, False, False, "plain", "21.2 us, best of 40, 4x NVIDIA H200, 2026-11-22"),
    Row("sm_90", (64, 7168, 4608), 64, 64, 128, 1, 4, 4, 5, 1, 16, 64, False, 0, True, False, "plain", "30.8 us, 33.9 not read once, 4x NVIDIA H200, 2026-11-28"),
    Row("sm_90", (64, 7168, 9216), 64, 64, 128, 1, 4, 4, 5, 1, 32, 64, False, 0, True, False, "plain", "45.7 us, 47.4 not read once, evaluations on 2x NVIDIA H200, 2026-11-28"),
    Row("sm_90", (512, 4096, 3072), 128, 128, 64, 1, 8, 8, 5, 1, 64, 128, True, 0, False, False, "plain", "39.9 us, best of 27, 4x NVIDIA H200, 2026-11-22"),
    Row("sm_90", (512, 4096, 6144), 128, 128, 64, 1, 8, 8, 6, 1, 64, 64, False, 65536, False, False, "warps", "56.1 us, best of 8, 2x NVIDIA H100 80GB HBM3, 2026-11-25"),
    Row("sm_90", (2048, 2880, 720), 128, 128, 64, 1, 4, 8, 5, 1, 64, 64, False, 8192, False, False, "warps", "46.8 us, plain 49.3, best of 4, 4x NVIDIA H200, 2026-11-28"),
    Row("sm_90", (2048, 2880, 1440), 128, 128, 64, 1, 4, 8, 5, 1, 64, 64, False, 0, False, False, "warps", "47.1 us, best of 11, 2x NVIDIA H100 80GB HBM3, 2026-11-25"),
    Row("sm_90", (4096, 4096, 1024), 64, 128, 64, 1, 8, 4, 4, 2, 64, 128, False, 0, False, False, "plain", "109.2 us, best of 46, 4x NVIDIA H200, 2026-11-22"),
    Row("sm_90", (4096, 4096, 2048), 128, 128, 64, 1, 16, 8, 5, 1, 64, 64, False, 0, False, True, "warps", "104.6 us, best of 3, 2x NVIDIA H200, 2026-11-28"),
    Row("sm_90", (8192, 4096, 3584), 128, 256, 64, 1, 8, 8, 3, 1, 64, 128, False, 0, False, False, "engine", "358.3 us, best of 42, 4x NVIDIA H200, 2026-11-22"),
    Row("sm_90", (8192, 4096, 7168), 128, 256, 64, 1, 16, 8, 3, 1, 64, 64, False, 0, False, True, "warps", "617.1 us, best of 2, 2x NVIDIA H200, 2026-11-28"),
    Row("sm_90", (8192, 8192, 7392), 128, 256, 64, 1, 8, 8, 3, 1, 64, 128, False, 0, False, False, "engine", "1405.8 us, best of 38, 4x NVIDIA H200, 2026-11-22"),
    Row("sm_90", (8192, 8192, 14784), 128, 256, 64, 1, 8, 8, 3, 1, 64, 64, False, 0, False, False, "warps", "2620.6 us, best of 10, 2x NVIDIA H100 80GB HBM3, 2026-11-25"),
    Row("gfx942", (64, 7168, 2304), 64, 32, 64, 1, 8, 4, 2, 1, 16, 32, False, 0, False, False, "plain", UNMEASURED),
    Row("gfx942", (8192, 8192, 3696), 128, 128, 32, 1, 4, 8, 2, 1, 64, 128, False, 0, False, False, "plain", UNMEASURED),
    Row("interpreter", (64, 64, 64), 32, 32, 32, 1, 2, 1, 1, 1, 16, 32, False, 0, False, False, "plain", "small, as the interpreter is slow"),
    Row("interpreter", (16, 64, 64), 32, 32, 32, 2, 2, 1, 1, 1, 16, 32, False, 0, False, False, "plain", "small; tiles of several owners, two splits"),
]
# fmt: on
