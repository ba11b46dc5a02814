"""A session that runs nothing: it answers with what a report says became of every case.

For tests of evaluations, boards, pages and comparisons, which then need neither ranks nor devices. Importing this
registers the kind.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

from harness.core.checkout import Checkout
from harness.core.errors import HarnessError
from harness.core.records import (
    Bound,
    Case,
    CaseResult,
    EvalReport,
    Failure,
    Measured,
    NotRun,
    Passed,
    Profile,
    Submission,
    Verdicts,
)
from harness.kinds.kind import Kind, Order, Plan, Progress, Session, SubmissionFailed
from harness.kinds.phases import phases
from harness.kinds.registry import KINDS
from harness.problems.problem import Problem

KEPT = (  # of the report that is replayed, beside its cases
    *("phases_s", "environment", "device_model", "empty_call_samples_us", "peaks", "machine_state", "gpu_sampling"),
    *("cpu_use", "warnings", "logs"),
)


@dataclass(frozen=True, kw_only=True)
class ReplayPlan(Plan):
    """The plan of a report's evaluation."""

    report: EvalReport


def replay_of(report: EvalReport, problem: Problem) -> ReplayPlan:
    """A plan whose evaluation has the results of that report, on the report's own cases."""
    cases = [one.case for one in report.results]
    suite = replace(
        next(iter(problem.suites.values())),
        name=report.suite,
        tests=tuple(case for case in cases if case.kind == "test"),
        benchmarks=tuple(replace(case, kind="benchmark") for case in cases if case.kind != "test"),  # profiled or timed
    )
    return ReplayPlan(
        kind="replay",
        problem=problem,
        suite=suite,
        submission=report.submission,
        mode=report.mode,
        device=report.device,
        world_size=report.world_size,
        author=report.author,
        phases=phases(suite, report.mode),
        ranking_by=report.ranking_by,
        checker=report.checker,
        secret=report.secret_seed,
        report=report,
    )


class ReplaySession(Session):
    """Answers in the order in which the cases were run."""

    plan: ReplayPlan

    def __init__(self, plan: ReplayPlan, progress: Progress) -> None:
        super().__init__(plan, progress)
        self.left = list(plan.report.results)
        self.has_failed = False
        self.now: CaseResult

    def check(self, case: Case) -> Verdicts | None:
        """The recorded outcome of the next case."""
        self.now = self.left.pop(0)
        outcome = self.now.outcome
        if isinstance(outcome, NotRun) and not self.has_failed:
            raise HarnessError(f"the report does not say what became of {case.kind} {case.label}")
        self.has_failed = self.has_failed or isinstance(outcome, get_args(Failure))
        if not isinstance(outcome, Measured | Passed):
            raise SubmissionFailed(outcome, self.now.verdicts)
        return self.now.verdicts

    def measure(self, case: Case) -> Measured:
        assert isinstance(self.now.outcome, Measured)
        return self.now.outcome

    def profile(self, case: Case) -> Profile:
        return self.now.profile or Profile(ranks=(), trace_json="")

    def bound(self, case: Case) -> Bound | None:
        found = (one.bound for one in self.plan.report.results if one.case == case)
        return next(found, None)

    def logs_of(self, case: Case) -> tuple[str, ...]:
        """The logs that the report names for the case."""
        return next(one.logs for one in self.plan.report.results if one.case == case)

    def completed(self, report: EvalReport) -> EvalReport:
        return replace(report, **{name: getattr(self.plan.report, name) for name in KEPT})


class ReplayKind(Kind):
    """Registered like any other kind; no folder is of it."""

    session_type = ReplaySession

    def submission(self, path: Path | None, problem: Problem, checkout: Checkout) -> Submission:
        """A replay has its report's."""
        raise HarnessError("a replay is of its report's submission")

    def plan(self, order: Order) -> Plan:
        """A replay needs a report: replay_of makes its plan."""
        raise HarnessError("a replay is planned by replay_of")


KINDS["replay"] = ReplayKind()
