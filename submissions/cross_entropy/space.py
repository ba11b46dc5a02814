"""cross_entropy: which rows of the tuning table may be good for a shape, and what they ask of a chip."""

from collections.abc import Callable
from typing import Any

import torch
from common.space import Need, fitting
from common.tuning import Chip
from submission import Shape, by_plan, make_plan, shape_of
from torch import Tensor
from tuning import Row

# Logits that a program has of a row at a time; threads, programs of a multiprocessor, slots and lag of the ring.
RINGS = [
    (8192, 128, 4, 3, 1),
    (16384, 256, 2, 3, 1),
    (32768, 512, 1, 3, 1),
]
MOST_LOADED = 32768  # logits of a row that is loaded whole
LOADED = [512, 1024]  # threads of the program that a multiprocessor has
REGISTERS = [(32768, 512, 2, 1), (8192, 128, 4, 2), (16384, 256, 2, 2)]  # the same of registers; no lag


def place(params: dict[str, Any]) -> dict[str, Any]:
    """The fields that say where in the table a case's row stands."""
    return {"shape": (params["tokens"], params["vocab"])}


def rows(chip: str, params: dict[str, Any]) -> list[Row]:
    """Rows to try on that chip, the most promising first."""
    shape = place(params)["shape"]

    def parts(logits: int) -> int:
        return max(1, 1 << (-(-shape[1] // logits) - 1).bit_length())

    loaded = [
        Row(chip, shape, "loaded", 1, threads, 1, 2, 0, "")
        for threads in LOADED
        if chip == "sm_90" and shape[1] <= MOST_LOADED
    ]
    rings = [
        Row(chip, shape, "ring", parts(logits), threads, resident, slots, lag if parts(logits) > 1 else 0, "")
        for logits, threads, resident, slots, lag in RINGS
        if chip == "sm_90"
    ]
    registers = [
        Row(chip, shape, "registers", parts(logits), threads, resident, slots, 0, "")
        for logits, threads, resident, slots in REGISTERS
    ]
    return [*loaded, *dict.fromkeys(rings), *registers, Row(chip, shape, "twice", 1, 512, 2, 1, 0, "")]


def need(row: Row, params: dict[str, Any]) -> Need:
    """What a call with that row asks of a chip: each logit is read and written once; twice read by one of the
    kernels."""
    tokens, vocab = place(params)["shape"]
    nbytes = 2.0 * tokens * vocab
    part_bytes = 2 << (-(-vocab // row.parts) - 1).bit_length()
    return Need(
        flops=0.0,
        hbm_bytes=(3 if row.kernel == "twice" else 2) * nbytes,
        read_bytes=nbytes,
        tiles=tokens * row.parts,
        fit=fitting(row.slots * part_bytes if row.kernel == "ring" else 0, row.resident),
    )


def call(row: Row, chip: Chip, data: Any) -> Callable[[], tuple[Tensor, Tensor]] | None:
    """A call with that row; None where no kernel can do it."""
    plan = make_plan(row, chip, shape_of(data))
    if plan is None:
        return None

    def made() -> tuple[Tensor, Tensor]:
        losses_M = torch.empty(len(data[1]), dtype=torch.float32, device=data[0].device)
        by_plan(plan, data, losses_M)
        return losses_M, data[0]

    return made


def compile_row(row: Row, chip: Chip, params: dict[str, Any]) -> None:
    """Fills Triton's cache."""
    shape = Shape(params["tokens"], params["vocab"], params["row_stride"], 8, params["label_smoothing"] != 0)
    plan = make_plan(row, chip, shape)
    if plan:
        plan.compile()
