"""What each row of the submissions' tuning tables needs of a chip, as the compiler says: the table of docs/kernels.md.

    python3 bench/compiled.py             prints it
    python3 bench/compiled.py --write     ... and puts it into docs/kernels.md
    python3 bench/compiled.py --data FILE     ... and into a file for docs/measurements/

Needs no GPU: kernels are compiled for chips that are not here.
"""

import argparse
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "bench")]

import triton
from compiled import chip_of, compiled
from figures import Figures, add_data_argument
from kernel_ranks import imported

DOCUMENT = ROOT / "docs" / "kernels.md"
BEGIN, END = "<!-- compiled:begin -->\n", "<!-- compiled:end -->\n"
CHIPS = {"gfx942": 8, "sm_90": 4}  # and for how many ranks the tables of gemm_rs and ag_gemm have rows
EXPERTS = {6144: (8, 2), 2048: (64, 6), 2880: (128, 4), 4096: (128, 8), 7168: (256, 8)}  # official, by hidden_dim
HEAD = """\
| kernel | chip | shape | VGPRs | spilled VGPRs | spilled SGPRs | LDS, bytes | warps | programs a unit |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""


def label(problem: str, row: Any) -> str:
    """The cells of the table that tell its rows apart."""
    return f"| {problem} | {row.chip} | {' x '.join(map(str, row.shape))} |"


def rows_of(submission: Any) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """The rows for GPUs, each with what its plan is made for: with a bias, where there may be one."""
    for chip, ranks in CHIPS.items():
        for row in submission.TABLE:
            if row.chip == chip and hasattr(row, "piece"):
                hidden, capacity, ranks_of_row = row.shape
                yield row, (ranks_of_row, *EXPERTS[hidden], hidden, capacity)
            elif row.chip == chip:
                yield row, (ranks, *row.shape, True)


def table() -> Iterator[str]:
    for problem in ("gemm_rs", "ag_gemm", "a2a"):
        with imported(problem) as submission:
            for row, sizes in rows_of(submission):
                plan = submission.make_plan(row, chip_of(submission, row.chip), *sizes)
                if not plan.launch:
                    yield f"{label(problem, row)} {' | '.join('-' * 6)} |\n"
                    continue
                kernel = compiled(row.chip, plan.launch, plan.example_arguments(), plan.constants, plan.options)
                scalars = kernel.spilled_scalars if row.chip == "gfx942" else "-"
                vectors, room = kernel.spilled_bytes // 4, f"{kernel.fit} ({kernel.fit * kernel.warps // 4} a SIMD)"
                cells = (kernel.registers, vectors, scalars, kernel.shared_bytes, kernel.warps, room)
                yield f"{label(problem, row)} {' | '.join(map(str, cells))} |\n"


def section() -> str:
    made = f"Compiled by Triton {triton.__version__}; `python3 bench/compiled.py --write` makes this table."
    return f"{BEGIN}{made}\n\n{HEAD}{''.join(table())}{END}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"put it into {DOCUMENT.relative_to(ROOT)}")
    add_data_argument(parser)
    options = parser.parse_args()
    made = section()
    if options.data:
        figures = Figures("What the kernels need of a chip", f"any ({platform.machine()}, Triton {triton.__version__})")
        columns, _, *rows = [
            [cell.strip() for cell in line.strip("| ").split(" | ")] for line in made.splitlines() if line[0:1] == "|"
        ]
        figures.table(columns, rows)
        figures.write(options.data)
        return
    if options.write:
        before, _, rest = DOCUMENT.read_text().partition(BEGIN)
        DOCUMENT.write_text(before + made + rest.partition(END)[2])
    else:
        print(made, end="")


if __name__ == "__main__":
    main()
