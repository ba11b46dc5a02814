"""Solvers: a program is given an instance and a wall limit, prints answers, and a checker says what the last one costs.

The reference solver runs the same instance under the same limit in the same run. Programs are confined as candidate
ranks are, and get a read-only copy of the instance and nothing else. An instance is run as often as the suite's
benchmark_seconds allow, at least once, and against an opponent LEAST_RUNS times, which an interval takes. Each run has
a seed of its own, which the variable SEED_VARIABLE tells.
"""

import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, cast

from harness.core.checkout import Checkout, shown
from harness.core.curve import Curve
from harness.core.errors import BadFileError, HarnessError, UsageError
from harness.core.files import remove
from harness.core.metrics import COST, GAP
from harness.core.records import Bound, Case, Crashed, Held, Measured, Series, Submission, TimedOut, Wrong
from harness.kinds.kind import SECRET_BITS, Kind, OpponentFailed, Order, Phase, Plan, Progress, SubmissionFailed
from harness.kinds.phases import conditions, phases, planned
from harness.kinds.program.build import BuiltProgram, ProgramPlan, Workshop
from harness.kinds.program.files import BUILD, is_executed, read_solver
from harness.kinds.program.run import Judged, judged
from harness.kinds.program.task import Instance, TaskModule, check_here, load_instance, load_task
from harness.machine import host
from harness.problems.problem import Problem, Suite

SEED_VARIABLE = "KERNEL_EVAL_SEED"
LEAST_RUNS = 3  # of either side, head to head


class ProgramSession(Workshop):
    """The runs of one evaluation, one at a time."""

    def __init__(self, plan: ProgramPlan, progress: Progress) -> None:
        super().__init__(plan, progress)
        self.task: TaskModule = load_task(plan.problem)
        self.runs = 0
        self.instance: Instance | None = None
        self.first: dict[str, Judged] = {}  # the checked runs of the case at hand, by role
        self.sides: dict[str, BuiltProgram] = {}  # by role

    # ---- before the first case

    def prepare(self) -> None:
        """Builds what has to be built, or takes what was built of the same sources before."""
        plan = self.plan
        self.sides["candidate"] = self.side("candidate", plan.submission)
        if plan.opponent is None:
            self.sides["baseline"] = self.reference()
            return
        try:
            self.sides["baseline"] = self.side("baseline", plan.opponent)
        except SubmissionFailed as failed:
            raise OpponentFailed("build", cast(Crashed, failed.outcome)) from None

    # ---- cases

    def check(self, case: Case) -> None:
        """Runs the submission, and an opponent, and checks their last answers."""
        roles = self._roles(case, 0)
        if self.plan.opponent is None:
            roles = ("candidate",)
        self._check_time(case, runs=len(roles))
        self.first = {role: self._solved(role, case) for role in roles}
        failed = {role: failure for role in roles if (failure := self._failure(case, self.first[role])) is not None}
        if "baseline" in failed:
            raise OpponentFailed(f"{case.kind} {case.label}", failed["baseline"])
        if "candidate" in failed:
            raise SubmissionFailed(failed["candidate"])

    def _roles(self, case: Case, number: int) -> tuple[str, ...]:
        """The roles in the order of that pair of runs, which with an opponent the secret decides: none can tell its."""
        roles = ("candidate", "baseline")
        flips = self.plan.opponent is not None and self.plan.seed("order", case.label, number) % 2
        return roles[::-1] if flips else roles

    def _failure(self, case: Case, found: Judged) -> Wrong | Held | None:
        """Why a checked answer does not count, if it does not."""
        if isinstance(found.outcome, Wrong):
            return found.outcome
        bound = self._loaded(case).bound
        assert found.cost is not None
        if bound is None or found.cost >= bound[0]:
            return None
        evidence = f"the answer costs {found.cost}, less than the proved bound {bound[0]} ({bound[1]})"
        return Held(check="bound", evidence=evidence)

    def measure(self, case: Case) -> Measured:
        """The checked runs, the reference's, and further ones in turn where there is time for them."""
        found: dict[str, list[Judged]] = {role: [] for role in self.sides}
        for role, first in self.first.items():
            found[role].append(first)
        for number in range(self.plan.runs[case.label]):
            due = [role for role in self._roles(case, number) if len(found[role]) == number]
            if found["baseline"] and not self._has_time(case, runs=len(due)):
                break
            self._check_time(case, runs=len(due))
            for role in due:
                found[role].append(self._solved(role, case))
                if not isinstance(failed := found[role][-1].outcome, Wrong):
                    continue
                if role == "candidate":
                    raise SubmissionFailed(failed)
                if self.plan.opponent is not None:
                    raise OpponentFailed(f"{case.kind} {case.label}", failed)
                self.note(case, f"the reference has none that is right: {failed.message}")
        return self._measured(case, found["candidate"], found["baseline"])

    def bound(self, case: Case) -> Bound | None:
        """The proved lower bound of a benchmark's instance, where one is known."""
        if case.kind != "benchmark":
            return None
        bound = self._loaded(case).bound
        return Bound(value=float(bound[0]), by=bound[1]) if bound is not None and bound[0] > 0 else None

    def logs_of(self, case: Case) -> tuple[str, ...]:
        """The log of the submission's last run on the case's instance."""
        return (_log_name("candidate", case),)

    # ---- one run

    def _has_time(self, case: Case, runs: int) -> bool:
        """Whether the phase lasts as long as that many runs may take."""
        return time.monotonic() + runs * _most_s(self.task, case) <= self.deadline

    def _check_time(self, case: Case, runs: int) -> None:
        if not self._has_time(case, runs):
            message = f"the phase has less time left than a run of {_limit_s(case):g} s may take; --timeout gives more"
            raise SubmissionFailed(TimedOut(message=message, stacks=()))

    def _loaded(self, case: Case) -> Instance:
        """The case's instance; the last one is kept."""
        name = str(case.params["instance"])
        if self.instance is None or self.instance.name != name:
            self.instance = None  # before the next: two large ones may be too much
            self.instance = load_instance(self.task, name)
        return self.instance

    def _solved(self, role: str, case: Case) -> Judged:
        """One run of a program on the case's instance, judged. The names of its folders tell no role."""
        instance, limit_s, side = self._loaded(case), _limit_s(case), self.sides[role]
        self.runs += 1
        place = Path(tempfile.mkdtemp(prefix="run-", dir=self.folder))
        shutil.copytree(side.files, place / "work", symlinks=True)
        for path in (place / "work").rglob("*"):  # what was built long ago would tell the candidate its role
            os.utime(path, follow_symlinks=False)
        given = Path(tempfile.mkdtemp(prefix="given-", dir=self.folder))
        given.chmod(0o755)
        path = given / "instance.json"
        path.write_bytes(instance.text)
        path.chmod(0o444)
        command = (*side.command, str(path), f"{limit_s:g}")
        wall_s = _most_s(self.task, case)
        seed = self.plan.seed(role, self.runs)
        try:
            ran = self.run(command, place, side.names, wall_s, {SEED_VARIABLE: str(seed)}, (given,), limit_s)
        finally:
            remove(given)
            remove(place)
        if ran.stderr:
            self.logs[_log_name(role, case)] = ran.stderr
        self.peak_memory_bytes[role] = max(self.peak_memory_bytes.get(role, 0), ran.peak_bytes)
        self.lacking = ran.lacking
        found = judged(ran, instance, self.task, limit_s)
        if role == "candidate" and found.note:
            self.note(case, found.note)
        return found

    def _measured(self, case: Case, own: list[Judged], other: list[Judged]) -> Measured:
        instance, limit_s = self._loaded(case), _limit_s(case)
        costs = tuple(float(_positive(one, case)) for one in own)
        theirs = tuple(float(_positive(one, case)) for one in other if one.cost is not None)
        theirs = theirs if len(theirs) == len(costs) else ()
        least = float(instance.bound[0]) if instance.bound else min(costs + theirs)
        areas = tuple(_area(one, least, limit_s) for one in own)
        their_areas = tuple(_area(one, least, limit_s) for one in other) if theirs else ()
        known = theirs if instance.best is None else (*theirs, float(instance.best))
        return Measured(
            series=(
                Series(metric=COST, own=costs, baseline=theirs),
                Series(metric=GAP, own=areas, baseline=their_areas),
            ),
            best=min(known, default=None),
            curves=tuple(
                Curve(limit_s=limit_s, own=one.points, baseline=beside.points, known=instance.known)
                for one, beside in zip(own, other, strict=True)
            ),
        )


class ProgramKind(Kind):
    """Problems whose shape file says `kind: program`."""

    session_type = ProgramSession
    checkers: tuple[str, ...] = ("exact",)
    folder_file = BUILD
    parameters: ClassVar[Mapping[str, type]] = {"instance": str, "limit_s": float}

    def submission(self, path: Path | None, problem: Problem, checkout: Checkout) -> Submission:
        """The program at that path, or the shipped one: a folder where it has a build."""
        shipped = problem.submissions_folder
        default = shipped if (shipped / BUILD).is_file() else problem.default_submission()
        return read_solver(path or default, checkout.root)

    def plan(self, order: Order) -> Plan:
        """Every instance of the suite, with its limit. Raises UsageError where an instance is not here, and where no
        program can be run in the temporary folder."""
        setting = order.setting
        problem, suite = setting.problem, setting.suite
        if order.mode == "profile":
            raise UsageError(f"{problem.name} has nothing to profile: its submissions are programs; leave --mode out")
        task = load_task(problem)
        cases = (*suite.tests, *suite.benchmarks)
        if bad := next((case for case in cases if _limit_s(case) <= 0), None):
            where = shown(problem.shapes_path, problem.root)
            raise BadFileError(f"{where}: {bad.label}: limit_s is {_limit_s(bad):g}; expected seconds above 0")
        check_here(task, [str(case.params["instance"]) for case in cases])
        if any(one is not None and is_executed(one) for one in (order.submission, order.opponent)):
            host.check_executes()
        _, notes = conditions(setting, order.submission)
        runs = runs_of(suite, LEAST_RUNS if order.opponent is not None else 1)
        needed_s = 2 * sum(runs[case.label] * _most_s(task, case) for case in suite.benchmarks)
        if suite.ranked_timeout_s == problem.suite(suite.name).ranked_timeout_s:  # without --timeout, room for all runs
            least_s = max(suite.benchmark_timeout_s, needed_s)
            suite = replace(suite, benchmark_timeout_s=least_s, ranked_timeout_s=max(suite.ranked_timeout_s, needed_s))
        return planned(
            ProgramPlan,
            order,
            suite=suite,
            phases=tuple(
                replace(phase, independent=True, case_s=_mean_s(phase, runs)) for phase in phases(suite, order.mode)
            ),
            secret=secrets.randbits(SECRET_BITS),
            notes=notes,
            cores=tuple(sorted(os.sched_getaffinity(0)))[: task.CORES],
            memory_bytes=min(task.MEMORY_BYTES, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")),
            runs=runs,
        )


def runs_of(suite: Suite, least: int) -> dict[str, int]:
    """How often each benchmark's instance is run by either side."""
    return {case.label: max(least, round(suite.benchmark_s / 2 / _limit_s(case))) for case in suite.benchmarks}


def _mean_s(phase: Phase, runs: dict[str, int]) -> float:
    """How long a case of the phase takes, on average: a test is run once, by the submission alone."""
    times_s = [_limit_s(case) * (2 * runs[case.label] if phase.then == "measure" else 1) for case in phase.cases]
    return sum(times_s) / len(times_s) if times_s else 0.0


def _log_name(role: str, case: Case) -> str:
    return f"{role} {case.kind} {case.params['instance']}"


def _limit_s(case: Case) -> float:
    return float(case.params["limit_s"])  # type: ignore[arg-type]


def _most_s(task: TaskModule, case: Case) -> float:
    """How long a run may take: the limit and its grace."""
    return _limit_s(case) + task.grace_s(_limit_s(case))


def _positive(one: Judged, case: Case) -> int:
    """The cost, of which ratios are taken."""
    assert one.cost is not None
    if one.cost <= 0:
        raise HarnessError(
            f"{case.label}: an answer costs {one.cost}, and ratios need costs above 0: leave the instance out"
        )
    return one.cost


def _area(one: Judged, least: float, limit_s: float) -> float:
    """The mean over the limit of the gap, 1 - least / cost; before the first answer it is 1."""
    total, at, gap = 0.0, 0.0, 1.0
    for point in one.points:
        total += gap * max(0.0, min(point.at_s, limit_s) - at)
        at, gap = min(point.at_s, limit_s), max(0.0, 1.0 - least / point.value)
    return (total + gap * (limit_s - at)) / limit_s
