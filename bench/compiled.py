"""What each row of the submissions' tuning tables needs of a chip, as the compiler says.

    python3 bench/compiled.py                       all problems with a tuning table
    python3 bench/compiled.py gemm attention        these
    python3 bench/compiled.py --data FILE           ... and into a file for docs/measurements/

Needs no GPU: kernels are compiled for chips that are not here. A line is a kernel that a row launches.

- VGPRs: vector registers of a thread (on NVIDIA, its registers). Spilled VGPRs go to memory. Spilled SGPRs (scalars) go
  to lanes of vector registers, which costs an instruction or two but no memory.
- LDS: shared memory of a program.
- Programs a unit: how many a compute unit (NVIDIA: multiprocessor) has room for at once, and how many waves (warps)
  that makes on each of its 4 SIMDs.

The Triton at hand compiles; another version may use other registers.
"""

import argparse
import platform
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "bench")]

import torch
import triton
from figures import Figures, add_data_argument
from kernel_ranks import imported

from tests.compiled import chip_of, compiled_all

LIKE = {"sm": "sm_100"}  # the chip that a row for all chips of a maker is compiled for
RANKS = {"gfx": 8, "sm_": 4}  # for which the tables of gemm_rs and ag_gemm have rows
EXPERTS = {6144: (8, 2), 2048: (64, 6), 2880: (128, 4), 4096: (128, 8), 7168: (256, 8)}  # official, by hidden_dim
INTERMEDIATE = 16  # of moe's experts
COLUMNS_BUT = ("kernel", "chip", "shape", "VGPRs", "spilled VGPRs", "spilled SGPRs", "LDS, bytes", "warps")
COLUMNS = (*COLUMNS_BUT, "programs a unit")
Compile = Callable[[], Any]


def of_ranks(submission: Any, row: Any, chip: Any) -> list[Compile]:
    """gemm_rs, ag_gemm: with a bias."""
    plan = submission.make_plan(row, chip, RANKS[row.chip[:3]], *row.shape, True)
    return [launching(plan)] if plan.launch else []


def of_experts(submission: Any, row: Any, chip: Any) -> list[Compile]:
    """a2a, moe."""
    hidden, capacity, ranks = row.shape
    more = () if hasattr(row, "piece") else (INTERMEDIATE,)
    return [launching(submission.make_plan(row, chip, ranks, *EXPERTS[hidden], hidden, capacity, *more))]


def of_gemm(submission: Any, row: Any, chip: Any) -> list[Compile]:
    return [launching(submission.make_plan(row, chip, *row.shape))]


def of_attention(submission: Any, row: Any, chip: Any) -> list[Compile]:
    plan = submission.make_plan(row, chip, row.shape)
    return [partial(compile_launch, step, given) for step, given in plan.examples()] if plan else []


def of_rows(submission: Any, row: Any, chip: Any) -> list[Compile]:
    """swiglu, rms_norm."""
    return [submission.make_plan(row, chip, row.shape).compile]


def of_cross_entropy(submission: Any, row: Any, chip: Any) -> list[Compile]:
    """Without label smoothing."""
    return [submission.make_plan(row, chip, submission.Shape(*row.shape, row.shape[1], 8, False)).compile]


def launching(plan: Any) -> Compile:
    return lambda: compile_launch(plan, plan.example_arguments())


def compile_launch(plan: Any, arguments: Any) -> Any:
    return plan.launch.compile(tuple(arguments), plan.constants, plan.options)


# By problem: what compiles each kernel of a row.
PROBLEMS: dict[str, Callable[[Any, Any, Any], list[Compile]]] = {
    "gemm_rs": of_ranks,
    "ag_gemm": of_ranks,
    "a2a": of_experts,
    "moe": of_experts,
    "gemm": of_gemm,
    "attention": of_attention,
    "swiglu": of_rows,
    "rms_norm": of_rows,
    "cross_entropy": of_cross_entropy,
}


def rows(problem: str) -> Iterator[tuple[str, ...]]:
    """A row of the table for each kernel."""
    with imported(problem) as submission:
        for row in submission.TABLE:
            if row.chip == "interpreter":
                continue
            chip = LIKE.get(row.chip, row.chip)
            with patch.object(torch.version, "hip", "6" if chip.startswith("gfx") else None):  # whose waves are of 64
                compilers = PROBLEMS[problem](submission, row, chip_of(submission, chip))
            shape = " x ".join(map(str, row.shape)) + (" backward" if getattr(row, "backward", False) else "")
            found = [kernel for compiling in compilers for kernel in compiled_all(chip, compiling)]
            for kernel in found:
                scalars = str(kernel.spilled_scalars) if chip.startswith("gfx") else "-"
                room = f"{kernel.fit} ({kernel.fit * kernel.warps // 4} a SIMD)"
                cells = (kernel.registers, kernel.spilled_bytes // 4, scalars, kernel.shared_bytes, kernel.warps, room)
                yield (problem, row.chip, shape, *map(str, cells))
            if not found:  # the library's
                yield (problem, row.chip, shape, *["-"] * (len(COLUMNS) - 3))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*", help=f"of {', '.join(PROBLEMS)} (default: all)")
    add_data_argument(parser)
    options = parser.parse_args()
    if unknown := set(options.problems) - set(PROBLEMS):
        parser.error(f"no table of {', '.join(sorted(unknown))}; there are {', '.join(PROBLEMS)}")
    made = [row for problem in options.problems or PROBLEMS for row in rows(problem)]
    figures = Figures("What the kernels need of a chip", f"any ({platform.machine()}, Triton {triton.__version__})")
    figures.table(COLUMNS, made)
    figures.write(options.data)


if __name__ == "__main__":
    main()
