"""ag_gemm: the blocks for each chip and shape. The rows of a chip are written by `python bench/tune.py ag_gemm`."""

from typing import NamedTuple


class Row(NamedTuple):
    """`shape` is M, a rank's N, and K. `senders` programs send this rank's rows, in blocks of `send_m` rows, before
    they join the others `lead` rounds of tiles later. Of `send_rows` rows after the other they send the first columns
    first; a flag tells the arrival of `flag_k` columns of `flag_m` rows.
    `kernel`: "plain", which does everything; "engine": a copy engine sends, the chip's library multiplies, and of the
    row nothing else counts; or "warps", with explicit warps (Hopper, tiles of 128 rows), 8 beside those that load and
    send. For "warps" `split`, `flag_m` and `prefetch` mean nothing; its chunks, with a flag each, are of `send_m` rows and
    `flag_k` columns, of which `send_rows` rows go column by column; `lead` chunks share the fence of their flags (up to
    32); and its `block_n` may be three times a power of two.
    `prefetch`: elements of each of its weight's rows that a program asks the L2 for while it waits, where a tile has
    rows of several ranks. `read_once`: as in gemm_rs. `per_sm`: programs a multiprocessor. `split`: programs that share a
    tile's depth."""

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
    senders: int
    lead: int
    send_m: int
    send_rows: int
    flag_m: int
    flag_k: int
    prefetch: int
    read_once: bool
    kernel: str
    found: str


UNMEASURED = "not measured: compiles without spilling"

# fmt: off
TABLE = [
    Row("sm_90", (64, 1024, 8192), 64, 32, 128, 2, 8, 4, 8, 1, 48, 1, 16, 32, 32, 256, 1024, False, "plain", "23.4 us, best of 684, 4x NVIDIA H200, 2026-11-22"),
    Row("sm_90", (64, 4608, 7168), 64, 64, 128, 1, 8, 4, 5, 1, 32, 1, 16, 32, 32, 256, 0, True, "plain", "34.9 us, 35.3 not read once, 4x NVIDIA H200, 2026-11-28"),
    Row("sm_90", (64, 9216, 7168), 64, 128, 128, 1, 8, 4, 4, 1, 48, 1, 16, 32, 32, 256, 0, True, "plain", "48.7 us, 50.0 not read once, evaluations on 2x NVIDIA H200, 2026-11-28"),
    Row("sm_90", (512, 3072, 4096), 128, 128, 64, 1, 8, 8, 4, 1, 16, 1, 32, 128, 32, 256, 4096, False, "plain", "40.8 us, best of 434, 4x NVIDIA H200, 2026-11-22"),
    Row("sm_90", (512, 6144, 4096), 128, 192, 64, 1, 8, 8, 4, 1, 20, 1, 64, 2048, 64, 128, 0, False, "warps", "44.0 us, best of 16, 2x NVIDIA H200, 2026-11-28"),
    Row("sm_90", (2048, 720, 2880), 128, 128, 64, 1, 8, 4, 5, 1, 24, 3, 32, 512, 64, 256, 4096, False, "plain", "45.6 us, best of 723, 4x NVIDIA H200, 2026-11-22"),
    Row("sm_90", (2048, 1440, 2880), 128, 192, 64, 1, 8, 8, 4, 1, 72, 2, 64, 2048, 64, 64, 0, False, "warps", "41.0 us, best of 12, 2x NVIDIA H200, 2026-11-28"),
    Row("sm_90", (4096, 1024, 4096), 64, 128, 64, 1, 8, 4, 4, 2, 24, 4, 32, 512, 64, 256, 4096, False, "plain", "101.2 us, best of 1085, 4x NVIDIA H200, 2026-11-22"),
    Row("sm_90", (4096, 2048, 4096), 128, 256, 64, 1, 8, 8, 3, 1, 40, 4, 64, 2048, 64, 64, 0, False, "warps", "99.7 us, best of 6, 2x NVIDIA H200, 2026-11-28"),
    Row("sm_90", (8192, 3584, 4096), 128, 256, 64, 1, 8, 8, 3, 1, 64, 1, 32, 512, 32, 128, 0, False, "warps", "359.6 us, plain 368.4, best of 4, 4x NVIDIA H200, 2026-11-28"),
    Row("sm_90", (8192, 7168, 4096), 128, 256, 64, 1, 8, 8, 3, 1, 64, 1, 32, 512, 32, 128, 0, False, "warps", "654.0 us, best of 17, 2x NVIDIA H200, 2026-11-24"),
    Row("sm_90", (8192, 7392, 8192), 128, 256, 64, 1, 8, 8, 3, 1, 0, 0, 32, 128, 128, 256, 4096, False, "engine", "1255.8 us, best of 213, 4x NVIDIA H200, 2026-11-22"),
    Row("sm_90", (8192, 14784, 8192), 128, 256, 64, 1, 8, 8, 3, 1, 48, 4, 64, 2048, 64, 64, 0, False, "warps", "2645.2 us, plain 2697.5, 2x NVIDIA H200, 2026-11-28"),
    Row("gfx942", (64, 2304, 7168), 64, 32, 64, 1, 8, 4, 2, 1, 56, 1, 8, 64, 64, 256, 4096, False, "plain", UNMEASURED),
    Row("gfx942", (8192, 3696, 8192), 128, 128, 32, 1, 4, 8, 2, 1, 56, 4, 16, 128, 128, 256, 4096, False, "plain", UNMEASURED),
    Row("interpreter", (64, 64, 64), 32, 32, 32, 1, 2, 1, 1, 1, 1, 0, 16, 32, 32, 32, 0, False, "plain", "small, as the interpreter is slow"),
]
# fmt: on
