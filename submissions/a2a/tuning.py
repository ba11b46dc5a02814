"""a2a: how the kernel is cut for each chip and shape."""

from typing import NamedTuple


class Row(NamedTuple):
    """`shape` is hidden_dim, max_num_tokens and the number of ranks. `piece`: a token is sent in pieces of at most so
    many elements, each with a flag of its own. `sends`: how many pieces a program sends before it flags them, which
    takes one fence; a power of two. `rows`: how many pieces from others it awaits, and answers, at a time. `warps` of a
    program, and programs a multiprocessor, `per_sm`."""

    chip: str
    shape: tuple[int, int, int]
    piece: int
    sends: int
    rows: int
    warps: int
    per_sm: int
    found: str


UNMEASURED = "not measured: compiles without spilling"

TABLE = [
    Row("sm_90", (2048, 32, 2), 3072, 1, 1, 8, 2, "10.4 us, best of 16, 2x NVIDIA H200, 2026-11-22"),
    Row("sm_90", (2048, 32, 4), 3072, 1, 1, 4, 4, "12.0 us, best of 16, 4x NVIDIA H200, 2026-11-28"),
    Row("sm_90", (2048, 32, 8), 1024, 1, 1, 4, 4, UNMEASURED),
    Row("sm_90", (2880, 128, 2), 2880, 1, 2, 8, 3, "15.0 us, best of 5, 2x NVIDIA H200, 2026-11-22"),
    Row("sm_90", (2880, 128, 4), 2880, 1, 2, 8, 2, "21.8 us, best of 10, 4x NVIDIA H200, 2026-11-28"),
    Row("sm_90", (2880, 128, 8), 1536, 1, 4, 4, 4, UNMEASURED),
    Row("sm_90", (4096, 256, 2), 4096, 1, 4, 8, 3, "17.4 us, best of 10, 2x NVIDIA H200, 2026-11-28"),
    Row("sm_90", (4096, 256, 4), 2880, 1, 2, 8, 3, "39.6 us, best of 13, 4x NVIDIA H200, 2026-11-28"),
    Row("sm_90", (4096, 256, 8), 2048, 1, 4, 4, 4, UNMEASURED),
    Row("sm_90", (4096, 4096, 2), 2048, 8, 4, 4, 6, "41.6 us, best of 7, 2x NVIDIA H200, 2026-11-27"),
    Row("sm_90", (6144, 16, 2), 2048, 1, 1, 8, 2, "10.7 us, best of 16, 2x NVIDIA H200, 2026-11-22"),
    Row("sm_90", (6144, 16, 4), 2048, 1, 1, 4, 4, "11.7 us, best of 16, 4x NVIDIA H200, 2026-11-28"),
    Row("sm_90", (6144, 16, 8), 2048, 1, 1, 4, 4, UNMEASURED),
    Row("sm_90", (7168, 256, 2), 3584, 2, 2, 8, 3, "22.6 us, best of 12, 2x NVIDIA H200, 2026-11-28"),
    Row("sm_90", (7168, 256, 4), 3584, 1, 2, 8, 3, "58.2 us, best of 14, 4x NVIDIA H200, 2026-11-28"),
    Row("sm_90", (7168, 256, 8), 2048, 1, 4, 4, 4, UNMEASURED),
    Row("gfx942", (6144, 16, 8), 2048, 1, 1, 4, 2, UNMEASURED),
    Row("gfx942", (7168, 256, 8), 2048, 1, 4, 4, 4, UNMEASURED),
    Row("interpreter", (64, 8, 4), 64, 2, 2, 1, 1, "pieces of few elements, so that small shapes have several"),
]
