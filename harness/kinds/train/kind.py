"""Training runs: a submission trains a model to a quality on held-out data, and the time that it takes counts.

Ranks, clocks and sandbox are those of operators (kinds.op): a run is a row of calls, each of which trains on to the
next evaluation (kinds.train.rank_run). The reference runs on the same data and seeds, in turn. All runs count.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, get_type_hints

from harness.core.errors import HarnessError, UsageError
from harness.core.metrics import SAMPLES, TIME_TO_TARGET
from harness.core.olympic import MOST_FAILED, converges_too_fast
from harness.core.records import Bound, Case, EvalReport, Held, Measured, Series, Submission, Verdict, Verdicts, Wrong
from harness.kinds.kind import OpponentFailed, Order, Progress, SubmissionFailed
from harness.kinds.op.kind import OpKind, OpSession
from harness.kinds.op.plan import OpPlan
from harness.kinds.train import data as train_data
from harness.kinds.train import rules as train_rules
from harness.kinds.train.rules import Hyperparameters, Rules
from harness.kinds.train.run import Runs, Side, TrainingRun, idle_period, mllog_text
from harness.problems.problem import ADAPTER
from harness.problems.token_files import TokenFolder, read_folder
from harness.problems.training import RunParams
from harness.ranks import wire

SIDES: tuple[Side, ...] = ("candidate", "baseline")
LEAST_KNOWN = 2  # runs of the reference, as a variance takes
STARVED = 0.2  # part of a run that loading may take
HYPERPARAMETERS = "hyperparameters.json"  # in a rank's folder
GLUE = (  # the adapter of either side's program
    "from functools import partial\nfrom harness.kinds.train.rank_run import adapted\n"
    f'adapt = partial(adapted, "{HYPERPARAMETERS}")\n'
)
NAMES: dict[Side, str] = {"candidate": "submission", "baseline": "reference"}


@dataclass(frozen=True, kw_only=True)
class TrainPlan(OpPlan):
    """`hyperparameters` are each side's, checked; `text` is the user's own, where it runs on that."""

    rules: Rules
    hyperparameters: dict[Side, Hyperparameters]
    text: TokenFolder | None


class TrainSession(OpSession):
    """The runs of one evaluation."""

    plan: TrainPlan

    def __init__(self, plan: TrainPlan, progress: Progress) -> None:
        super().__init__(plan, progress)
        self.lines: dict[str, str] = {}  # MLPerf's, by run
        self.targets: dict[str, float] = {}  # that had to be found, by case

    def files(self, role: wire.Role) -> dict[str, bytes]:
        """A submission, or one that takes the reference's train.py, and the adapter that makes a kernel of it."""
        files = super().files(role)
        if role not in SIDES:
            return files | (train_data.staged(self.plan.text) if self.plan.text else {})
        files["train.py"] = files.get("submission.py", files["train.py"])
        files.setdefault("submission.py", b"from train import train\n")
        hyperparameters = json.dumps(self.plan.hyperparameters[role]).encode()
        return files | {ADAPTER: GLUE.encode(), HYPERPARAMETERS: hyperparameters}

    def control_plan(self, opponent: Submission | None) -> TrainPlan:
        """The plan with the reference and its hyperparameters in the submission's place."""
        reference = train_rules.reference_hyperparameters(self.plan.problem, self.plan.rules)
        sides = self.plan.hyperparameters | {"candidate": reference} | ({} if opponent else {"baseline": reference})
        return replace(self.plan, is_control=True, opponent=opponent, hyperparameters=sides)

    def against_reference(self) -> TrainPlan:
        """The plan with the reference and its hyperparameters in the opponent's place."""
        reference = train_rules.reference_hyperparameters(self.plan.problem, self.plan.rules)
        return replace(self.plan, opponent=None, hyperparameters=self.plan.hyperparameters | {"baseline": reference})

    def checked_case(self, case: Case) -> Verdicts | None:
        """A test is one run, which has to reach its target. Benchmarks are checked in every run that is timed; before
        that, either side trains up to its first evaluation, which warms it up."""
        calls = self.calls
        calls.open(calls.candidate, calls.baseline)
        case = self._aimed(case)
        runs = Runs(calls, case)
        self._make_input(runs, "check", calls.at)
        if case.kind != "test":
            for side in self._in_turn(0):
                runs.warm_up(side)
            return None
        try:
            for side in self._in_turn(0):
                if side == "candidate" or self.plan.opponent is not None:
                    self._run_to_target(runs, side)
        except SubmissionFailed as failed:
            if not isinstance(failed.outcome, Wrong):
                raise
            verdict = Verdict(passed=False, message=failed.outcome.message)
            raise SubmissionFailed(failed.outcome, Verdicts(strict=verdict, gpumode=verdict)) from None
        passed = Verdict(passed=True)
        return Verdicts(strict=passed, gpumode=passed)

    def _run_to_target(self, runs: Runs, side: Side) -> None:
        run = self._run(runs, side)
        if not run.has_converged:
            failed = Wrong(message=f"the run {run.ending}")
            raise self.calls.blamed(getattr(self.calls, side), runs.case, failed)

    def _aimed(self, case: Case) -> Case:
        """The case with its target; one that nobody has declared is what the reference reaches."""
        if "target" in case.params:
            return case
        if case.label not in self.targets:
            unreached = replace(case, params=case.params | {"target": 0.0})
            runs, number = Runs(self.calls, unreached), train_data.aim(case)
            self._make_input(runs, "target", case.label)
            quality = runs.quality_after("baseline", number)
            if quality is None:
                raise HarnessError(f"{self.plan.baseline_name} diverged, so there is no target; set --target")
            self.targets[case.label] = quality
            self.note(
                case, f"the target is {quality:.4g}, which the reference reached in {number * runs.every} sequences"
            )
        return replace(case, params=case.params | {"target": self.targets[case.label]})

    def measured_case(self, case: Case) -> Measured:
        """Every run of either side, in turn."""
        case = self._aimed(case)
        runs = Runs(self.calls, case)
        found: dict[Side, list[TrainingRun]] = {side: [] for side in SIDES}
        count, began_s = int(case.params["runs"]), time.monotonic()  # type: ignore[arg-type]
        with self.watch.timing():
            for number in range(count):
                with self.spending("data"):
                    self._make_input(runs, "run", self.calls.at, number)
                for side in self._in_turn(number):
                    run = self._run(runs, side)
                    found[side].append(run)
                    self._log(case, side, number, run)
                    done = sum(map(len, found.values()))
                    self.progress.case_left((time.monotonic() - began_s) * (2 * count / done - 1))
        return self._judged(case, found)

    def _in_turn(self, number: int) -> tuple[Side, ...]:
        """Both sides in the order of that pair of runs, of which every second one is reversed. Against an opponent the
        secret says who begins, since a file could tell its role from how long it was stopped."""
        begins = self.plan.seed("order", self.calls.at) % 2 if self.plan.opponent is not None else 0
        return SIDES if (number + begins) % 2 == 0 else SIDES[::-1]

    def _make_input(self, runs: Runs, *place: int | str) -> None:
        runs.make(self.plan.seed(*place), self.plan.hidden_seed(*place))

    def _run(self, runs: Runs, side: Side) -> TrainingRun:
        run = runs.run(side)
        self.count_s("evaluation", run.evaluation_s)
        self.count_s("training", run.seconds - run.loading_s)
        self.count_s("loading", run.loading_s)
        return run

    def _log(self, case: Case, side: Side, number: int, run: TrainingRun) -> None:
        """Logs the run, and says of it what the reader should know."""
        batch_size = self.plan.hyperparameters[side]["batch_size"]
        benchmark = self.plan.problem.name
        name = f"mllog {NAMES[side]} case {self.calls.at} run {number + 1}"
        self.lines[name] = mllog_text(run, benchmark, batch_size, lambda: int(time.time() * 1000))
        who = "run" if side == "candidate" else f"{self.plan.baseline_name}'s run"
        if not run.has_converged:
            self.note(case, f"{who} {number + 1} did not converge and counts as the slowest: it {run.ending}")
        if side == "candidate" and run.loading_s > STARVED * run.seconds:
            part = run.loading_s / run.seconds
            self.note(case, f"{who} {number + 1} spent {part:.0%} of its time on loading data, which starves compute")

    def _judged(self, case: Case, found: dict[Side, list[TrainingRun]]) -> Measured:
        own, other = found["candidate"], found["baseline"]
        if failed := self._failure(case, "candidate", own, other):
            raise SubmissionFailed(failed)
        if self.plan.opponent is not None and (failed := self._failure(case, "baseline", other, own)):
            raise OpponentFailed(f"{case.kind} {case.label}", failed)
        return Measured(
            series=(
                Series(metric=TIME_TO_TARGET, own=_times(own), baseline=_times(other)),
                Series(metric=SAMPLES, own=_samples(own), baseline=_samples(other)),
            )
        )

    def _failure(self, case: Case, side: Side, own: list[TrainingRun], other: list[TrainingRun]) -> Wrong | Held | None:
        """Why that side's runs do not count, if they do not: too many that did not converge, a period in which nothing
        was trained, or fewer sequences than the reference's by more than chance allows. Where its rules have none,
        those of this evaluation count, if they are of the reference and have the same batch size."""
        plan = self.plan
        failed = [run for run in own if not run.has_converged]
        if len(failed) > MOST_FAILED:
            return Wrong(message=f"{len(failed)} of {len(own)} runs did not converge; the last {failed[-1].ending}")
        if evidence := idle_period(own, other):
            return Held(check="training", evidence=evidence)
        batch_size = plan.hyperparameters[side]["batch_size"]
        known = () if plan.data_sha256 else plan.rules.reference_samples(case.params, batch_size)
        if not known and plan.opponent is None and plan.hyperparameters["baseline"]["batch_size"] == batch_size:
            known = tuple(run.samples for run in other if run.has_converged)
        samples = [float(run.samples) for run in own if run.has_converged]
        if len(known) < LEAST_KNOWN:
            text = f"no convergence of the reference is known with batch_size {batch_size}; nothing was held against it"
            self.note(case, text)
            return None
        if not converges_too_fast(samples, known, float(case.params["every"])):  # type: ignore[arg-type]
            return None
        mean, theirs = sum(samples) / len(samples), sum(known) / len(known)
        evidence = (
            f"{len(samples)} runs needed {mean:.0f} sequences on average to the target, {len(known)} runs of "
            f"the reference {theirs:.0f} with the same batch size: more than chance allows (t-test, p < 0.05)"
        )
        return Held(check="convergence", evidence=evidence)

    def bound(self, case: Case) -> Bound | None:
        return None

    def completed(self, report: EvalReport) -> EvalReport:
        """With the runs' log lines."""
        found = super().completed(report)
        # Without empty calls, which are nothing beside seconds.
        return replace(found, empty_call_samples_us={}, logs=found.logs | self.lines)


class TrainKind(OpKind):
    """Problems whose shape file says `kind: train`."""

    session_type = TrainSession
    checkers: tuple[str, ...] = ("quality",)
    takes_data = True
    parameters: ClassVar[Mapping[str, type]] = get_type_hints(RunParams)
    is_pooled = False
    takes_tools = False

    def plan(self, order: Order) -> TrainPlan:
        """Our ranks' plan. Raises BadSubmissionError for hyperparameters out of range."""
        problem = order.setting.problem
        if order.mode == "profile":
            raise UsageError(f"{problem.name} has no profile: a call of it is a whole run; leave --mode out")
        rules = train_rules.read_rules(problem)
        train_rules.check_cases(problem, (*order.setting.suite.tests, *order.setting.suite.benchmarks), rules)
        reference = train_rules.reference_hyperparameters(problem, rules)
        chosen: dict[Side, Hyperparameters] = {"baseline": reference}
        for side, entry in zip(SIDES, (order.submission, order.opponent), strict=True):
            if entry is not None:
                chosen[side] = train_rules.hyperparameters(entry.source, entry.name, rules, reference)
        own, text = order.setting.data, None
        if own is not None:
            text = read_folder(own.folder, own.vocabulary)
            order = replace(order, setting=train_data.with_text(order.setting, text, own.target, rules))
        # One launch, since every sample is a run.
        planned = super().plan(replace(order, setting=replace(order.setting, launches=1)))
        values = vars(planned) | {"has_controls": False}
        if text is not None:
            values |= {"data_sha256": text.sha256, "hidden": text.folders}
        return TrainPlan(**values, rules=rules, hyperparameters=chosen, text=text)


def _times(runs: list[TrainingRun]) -> tuple[float, ...]:
    """Seconds to the target. One that did not converge is the slowest: as slow as any other, at least."""
    slowest = max(run.seconds for run in runs)
    return tuple(run.seconds if run.has_converged else slowest for run in runs)


def _samples(runs: list[TrainingRun]) -> tuple[float, ...]:
    return tuple(float(run.samples) for run in runs)
