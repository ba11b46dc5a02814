"""moe: how the kernel is cut for each chip and shape."""

from typing import NamedTuple


class Row(NamedTuple):
    """`shape` is hidden_dim, max_num_tokens and the number of ranks. `block`: elements of a token's row that a program
    has in its registers at a time, beside as many of each row of an expert's matrix; a power of 2. `warps` of a
    program, and programs a multiprocessor, `per_sm`."""

    chip: str
    shape: tuple[int, int, int]
    block: int
    warps: int
    per_sm: int
    found: str


UNMEASURED = "not measured: compiles without spilling"

TABLE = [
    Row("sm_90", (6144, 16, 2), 256, 4, 4, UNMEASURED),
    Row("sm_90", (6144, 16, 8), 256, 4, 4, UNMEASURED),
    Row("sm_90", (7168, 256, 2), 256, 4, 4, UNMEASURED),
    Row("sm_90", (7168, 256, 8), 256, 4, 4, UNMEASURED),
    Row("gfx942", (6144, 16, 8), 512, 4, 2, UNMEASURED),
    Row("gfx942", (7168, 256, 8), 512, 4, 2, UNMEASURED),
    Row("interpreter", (64, 8, 4), 32, 1, 1, "blocks of few elements, so that rows of small shapes have several"),
]
