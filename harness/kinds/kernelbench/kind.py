"""KernelBench's problems: one file with Model, get_inputs and get_init_inputs; a submission defines ModelNew.

The file is staged as it is. Ranks make inputs and parameters from it and judge by it
(rank.py); all else is as for an operator of one rank.
"""

import ast
import re
from dataclasses import replace
from pathlib import Path

from harness.core.checkout import Checkout
from harness.core.records import Submission, Warning
from harness.gpumode.folder import AnyParams
from harness.kinds.benchmarks.problem import (
    BenchmarkProblem,
    batch_of,
    check_defines,
    constants,
    glue,
    is_python_that,
    parsed,
    suites_of,
)
from harness.kinds.kind import Order, Plan
from harness.kinds.op.kind import OpKind
from harness.kinds.op.plan import OpPlan
from harness.problems.problem import Problem

MODEL, ENTRY = "Model", "ModelNew"
NEEDED = {MODEL, "get_inputs", "get_init_inputs"}
SEED = 42  # KernelBench's seed_num
STAGED = "problem_file.py"


class KernelBenchKind(OpKind):
    """A file of KernelBench's."""

    checkers: tuple[str, ...] = ()
    takes_tools = False

    def claims(self, place: Path) -> bool:
        """A Python file that defines what a problem has, and no ModelNew."""
        return is_python_that(place, NEEDED, lacks=ENTRY)

    def read(self, place: Path, checkout: Checkout) -> Problem:
        """The problem in that file. Raises BadFileError where it is no Python."""
        place = place.resolve()
        tree = parsed(place)
        classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == MODEL]
        text = (classes and ast.get_docstring(classes[0])) or place.stem
        return BenchmarkProblem(
            name=f"{place.parent.name}/{place.stem}",
            leaderboard=place.stem,
            description=" ".join(text.split("\n\n")[0].split()),
            root=checkout.root,
            folder=place,
            shapes_path=place,
            submissions_folder=place.parent,
            ranking_by="geom",
            suites=suites_of([sizes := constants(tree)], SEED, 1, batch_of(sizes)),
            params_type=AnyParams,
            cost_of=None,
            multi_gpu=False,
            is_upstream=True,
            checker="benchmark",
            kind="kernelbench",
            files=glue("kernelbench", "sizes") | {STAGED: place.read_bytes()},
            needed=(STAGED,),
            entry=ENTRY,
            theirs=MODEL,
        )

    def submission(self, path: Path | None, problem: Problem, checkout: Checkout) -> Submission:
        """A file that defines ModelNew."""
        found = super().submission(path, problem, checkout)
        check_defines(found, problem)
        return found

    def plan(self, order: Order) -> Plan:
        """An op's plan. A submission that is the problem's own Model under the other name is known as the reference."""
        plan = super().plan(order)
        assert isinstance(plan, OpPlan)
        own = plan.problem.staged()[STAGED].decode(errors="replace")
        if order.opponent is None and _same(re.sub(rf"\b{ENTRY}\b", MODEL, order.submission.source), own):
            plan = replace(plan, is_reference=True, notes=(*plan.notes, Warning(code="reference")))
        return plan


def _same(one: str, other: str) -> bool:
    """Whether two files have the same code."""
    try:
        return ast.dump(ast.parse(one)) == ast.dump(ast.parse(other))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
