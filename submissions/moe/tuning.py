"""moe: how the kernel is cut for each chip and shape."""

from typing import NamedTuple


class Row(NamedTuple):
    """`shape` is hidden_dim, max_num_tokens and the number of ranks. `split`: into how many parts of H at most the work
    for an expert is cut, each for a program of its own. `tokens` of an expert are multiplied together, by `block`
    elements of H at a time, in `stages`; powers of 2 from 16 on. `request`: for how many of their matrices programs
    ask once they have sent: 2, 1 (the first) or 0. `partial_sums`: whether the rank of a token's experts adds up what
    these make of it and sends one row; otherwise it sends a row for each. `warps` of a program, and programs a
    multiprocessor, `per_sm`."""

    chip: str
    shape: tuple[int, int, int]
    split: int
    tokens: int
    block: int
    stages: int
    request: int
    partial_sums: bool
    warps: int
    per_sm: int
    found: str


UNMEASURED = "not measured: compiles without spilling"

TABLE = [
    Row("sm_90", (2048, 32, 2), 4, 16, 64, 6, 2, False, 2, 8, "18.0 us, best of 31, 2x NVIDIA H200, 2026-11-28"),
    Row("sm_90", (2880, 128, 2), 5, 16, 64, 6, 1, False, 2, 8, "23.1 us, best of 12, 2x NVIDIA H200, 2026-11-28"),
    Row("sm_90", (4096, 256, 2), 4, 16, 64, 5, 1, True, 2, 8, "40.6 us, best of 24, 2x NVIDIA H200, 2026-11-28"),
    Row("sm_90", (6144, 16, 2), 16, 16, 64, 6, 2, False, 2, 6, "16.4 us, best of 31, 2x NVIDIA H200, 2026-11-28"),
    Row("sm_90", (6144, 16, 8), 32, 16, 64, 4, 2, False, 2, 6, UNMEASURED),
    Row("sm_90", (7168, 128, 2), 8, 32, 64, 5, 0, True, 2, 8, "72.9 us, best of 17, 2x NVIDIA H200, 2026-11-28"),
    Row("sm_90", (7168, 256, 2), 8, 16, 64, 6, 1, True, 2, 8, "56.1 us, best of 32, 2x NVIDIA H200, 2026-11-28"),
    Row("sm_90", (7168, 256, 8), 16, 32, 64, 4, 2, False, 2, 6, UNMEASURED),
    Row("gfx942", (6144, 16, 8), 32, 16, 64, 2, 0, False, 1, 4, UNMEASURED),
    Row("gfx942", (7168, 256, 8), 16, 32, 64, 2, 0, False, 2, 4, UNMEASURED),
    Row("interpreter", (64, 8, 4), 3, 16, 16, 1, 0, False, 1, 1, "small blocks, so that small shapes have several"),
]
