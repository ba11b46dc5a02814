"""What the kinds have in common whose problems are other benchmarks' files."""

import ast
from dataclasses import replace
from pathlib import Path

from harness.core.checkout import Checkout
from harness.core.records import Submission, Warning
from harness.kinds.benchmarks.problem import BenchmarkProblem, check_defines
from harness.kinds.kind import Order
from harness.kinds.op.kind import OpKind
from harness.kinds.op.plan import OpPlan
from harness.problems.problem import Problem
from harness.problems.python_text import UNREADABLE


class BenchmarkKind(OpKind):
    """An operator whose problem is a file."""

    checkers: tuple[str, ...] = ()
    takes_tools = False

    def submission(self, path: Path | None, problem: Problem, checkout: Checkout) -> Submission:
        """A Python file that defines the problem's entry. Raises BadSubmissionError for one that does not."""
        found = super().submission(path, problem, checkout)
        assert isinstance(problem, BenchmarkProblem)
        check_defines(found, problem)
        return found

    def plan(self, order: Order) -> OpPlan:
        """As of any operator. CPU cores stand in for "cuda" where the problem's file or the submission names that."""
        plan = super().plan(order)
        assert isinstance(plan.problem, BenchmarkProblem)
        texts = (plan.submission.source, *(module.source for module in plan.submission.modules))
        if plan.device != "cpu" or not (plan.problem.has_cuda or any("cuda" in text for text in texts)):
            return plan
        return replace(plan, cuda_is_cpu=True, notes=(*plan.notes, Warning(code="cuda_is_cpu")))

    def is_reference(self, submission: Submission, problem: Problem) -> bool:
        """The problem's own code as the submission is known as the reference."""
        return super().is_reference(submission, problem) or _same(submission.source, problem.start())


def _same(one: str, other: str) -> bool:
    try:
        return ast.dump(ast.parse(one)) == ast.dump(ast.parse(other))
    except UNREADABLE:
        return False
