"""ParallelKernelBench's problems: reference/<number>_<name>.py with solution(*inputs), which every rank calls.

Inputs are made by the clone's own utils/input_output_tensors.py, beside reference/, in trusted ranks
(rank.py); all else is as for an operator of several ranks.
"""

import re
from pathlib import Path

from harness.core.checkout import Checkout, shown
from harness.core.errors import BadFileError
from harness.core.records import Params
from harness.kinds.benchmarks.kind import BenchmarkKind
from harness.kinds.benchmarks.problem import BenchmarkProblem, glue, is_python_that, suites_of
from harness.problems.problem import Problem
from harness.problems.python_text import read_tree

ENTRY = "solution"
UTILS = "utils"
INPUTS = "input_output_tensors.py"
NUMBER = re.compile(r"(\d+)_\w+\Z")
RANKS = 8  # that the benchmark is run on
ROWS = COLUMNS = 1024  # its worker's default
DTYPE = "bfloat16"
STAGED = "problem_file.py"


class ParallelKernelBenchKind(BenchmarkKind):
    """A file of ParallelKernelBench's reference/."""

    def claims(self, place: Path) -> bool:
        """A numbered Python file that defines solution, beside whose folder the clone's utils are."""
        if place.suffix != ".py" or not NUMBER.match(place.stem):
            return False
        folder = place.resolve().parent
        has_inputs = (folder.parent / UTILS / INPUTS).is_file()
        return folder.name == "reference" and has_inputs and is_python_that(place, {ENTRY})

    def read(self, place: Path, checkout: Checkout) -> Problem:
        """The problem in that file. Raises BadFileError where it, or the clone's utils, is no Python."""
        place = place.resolve()
        read_tree(place)
        utils = place.parent.parent / UTILS
        read_tree(utils / INPUTS)
        number = NUMBER.match(place.stem)
        if number is None:
            raise BadFileError(f"{shown(place)}: its name does not begin with the problem's number, as in 16_gemm.py")
        params: Params = {"problem": int(number[1]), "rows": ROWS, "cols": COLUMNS, "dtype": DTYPE}
        staged = {f"{UTILS}/{path.name}": path.read_bytes() for path in sorted(utils.glob("*.py"))}
        return BenchmarkProblem(
            name=f"parallel/{place.stem}",
            leaderboard=place.stem,
            description=f"ParallelKernelBench {place.stem.replace('_', ' ')}",
            root=checkout.root,
            folder=place,
            shapes_path=utils / INPUTS,
            submissions_folder=place.parent,
            suites=suites_of([params], 0, RANKS),
            kind="parallelkernelbench",
            files=glue("parallelkernelbench") | staged | {STAGED: place.read_bytes()},
            needed=(STAGED, f"{UTILS}/{INPUTS}"),
            entry=ENTRY,
            theirs=ENTRY,
        )
