"""KernelBot problem folders, run by our ranks and clocks: an operator whose checker is the folder's own."""

import os
from dataclasses import replace
from pathlib import Path

from harness.core.checkout import Checkout
from harness.core.records import Warning
from harness.gpumode import folder
from harness.kinds.kind import Order
from harness.kinds.op.kind import OpKind
from harness.kinds.op.plan import OpPlan
from harness.problems.problem import Problem
from harness.problems.python_text import captures_graphs
from harness.ranks import wire

IN_FLIGHT_BYTES = 1 << 30  # what a folder's own eval.py, which has one input at a time, leaves room for on any GPU


class FolderKind(OpKind):
    """A folder with KernelBot's task.yml."""

    checkers: tuple[str, ...] = ()

    def claims(self, place: Path) -> bool:
        return os.path.isfile(place / folder.FILE)

    def read(self, place: Path, checkout: Checkout) -> Problem:
        """The problem folder. Raises BadFileError for one that does not fit; UsageError for one in another language."""
        return folder.read(place, checkout)

    def plan(self, order: Order) -> OpPlan:
        """An op's plan, with less room for several inputs at a time and for what groups keep."""
        plan = super().plan(order)
        if captures_graphs(plan.problem.staged().get("eval.py", b"")):
            plan = replace(plan, notes=(*plan.notes, Warning(code="captured")))
        task = plan.problem.task if isinstance(plan.problem, folder.TaskProblem) else None
        if plan.mode == "leaderboard" and task and task.validation:
            note = Warning(code="unvalidated", values={"version": str(task.validation.version)})
            plan = replace(plan, notes=(*plan.notes, note))
        return replace(plan, in_flight_bytes=IN_FLIGHT_BYTES, kept_bytes=wire.KEPT_BYTES)
