"""Operators, on one rank or on several: reference and submission run on ranks of ours, under our clocks.

Three groups of ranks: trusted ones make inputs and judge outputs, the baseline's run the reference, the candidate's the
submission. The parent imports neither torch nor a submission; it commands the groups, observes and decides. This module
starts and ends them; op.calls commands them, op.check and op.measure decide.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from harness.core.checkout import Checkout
from harness.core.decode import part
from harness.core.errors import UsageError
from harness.core.files import new_folder, remove
from harness.core.machine_records import Peaks
from harness.core.records import Bound, Case, EvalReport, Measured, Outcome, Profile, Submission, Verdicts, Warning
from harness.judging import warnings
from harness.kinds import staging
from harness.kinds.checkers import CHECKERS
from harness.kinds.kind import Kind, OpponentFailed, Order, Phase, Plan, Progress, Session, SubmissionFailed
from harness.kinds.op import check as op_check
from harness.kinds.op import measure as op_measure
from harness.kinds.op.calls import empty_samples_us
from harness.kinds.op.groups import JUDGING, MAKING
from harness.kinds.op.launches import Launching, stage
from harness.kinds.op.peaks import CaseLimits
from harness.kinds.op.plan import OpPlan, make_plan
from harness.kinds.op.watch import MachineWatch
from harness.kinds.phases import conditions
from harness.machine import hardware
from harness.nodes import start
from harness.nodes.agent import has_own_network
from harness.problems import shape_file
from harness.problems.problem import Problem
from harness.problems.reference_copy import is_reference
from harness.process import compile_cache
from harness.ranks import wire
from harness.ranks.launch import START_S, Launch, log_name
from harness.ranks.zygotes import OTHERS


class OpSession(Launching):
    """The groups of one evaluation, from start to end."""

    def __init__(self, plan: OpPlan, progress: Progress) -> None:
        super().__init__(plan, progress)
        self.empty_call_samples_us: dict[str, tuple[float, ...]] = {}
        self.limits: CaseLimits | None = None  # where the problem says what a call costs, once the device is known
        self.shortened: set[int] = set()  # the cases with fewer samples, since making or judging takes long
        self.judges_s = {MAKING: 0.0, JUDGING: 0.0}  # in all phases so far

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        began, plan = time.monotonic(), self.plan
        self.progress.phase("start")
        self.watch = MachineWatch(plan)
        with (  # who is killed while it waits for nodes leaves no folder
            start.joined(plan.nodes, has_own_network(plan.confined, plan.device), self.progress.note) as nodes,
            _staged(plan, self.files, self.place) as staged,
        ):
            self.launch = replace(staged, nodes=nodes)
            with contextlib.ExitStack() as self.launched:
                self.start(self.zygotes)
                self.count_s("start", time.monotonic() - began)
                try:
                    yield
                finally:
                    self.watch.close()
                    self.calls.forget()
                    self.keep_logs()
                    self.lacking = tuple(self.ranks.lacking)
                    began = time.monotonic()
                    if self.zygotes is not None:
                        self.ranks.end(keep_zygotes=True)
            self.count_s("end", time.monotonic() - began)

    def files(self, role: wire.Role) -> dict[str, bytes]:
        return staging.files_of(self.plan.problem, _entry(self.plan, role))

    # ---- before the first case

    def prepare(self) -> None:
        """Compiles and imports what runs, measures an empty call on every clock, and finds the device's peaks."""
        with self.guarded():
            self._prepare()

    def _prepare(self) -> None:
        calls = self.calls
        groups = [calls.trusted, *calls.baselines("open")]  # that still have no process group
        with self._timed("reference", START_S):  # before anything untrusted runs: peaks are kept, for everybody
            trusted = calls.trusted.ask(wire.ImportKernel(), wire.Imported, calls.deadline)[0]
            self.device_model = trusted.device
            if self.stepping is not None and self.plan.mode != "test":
                self.empty_call_samples_us["device"] = self.stepping.measure_empty()
            if self.plan.problem.cost_of is not None:
                self.limits = CaseLimits(self.plan, self.device_model, self.watch.load_per_core)
                if self.limits.peaks is None:
                    calls.open(groups.pop(0))
                    self.progress.phase("peaks of this machine")
                    self.limits.measure(calls)
        compiles = {role: compile_cache.compiles(entry) for role in OTHERS if (entry := _entry(self.plan, role))}
        if compiling := [group for group in calls.both("compile") if compiles.get(group.role)]:
            try:
                with self._timed("compile", compile_cache.COMPILE_S):
                    self.has_run = True
                    for group in compiling:
                        group.ask(wire.Do(what="compile"), wire.Imported, calls.deadline)
            finally:
                if printed := self.ranks.logs().get(log_name("candidate", 0)):
                    self.logs["compile"] = printed  # by compilers
        with self._timed("import", min(START_S, self.plan.import_s or START_S)):
            for group in calls.both("import"):
                self.has_run = self.has_run or _entry(self.plan, group.role) is not None
                group.ask(wire.ImportKernel(settings=trusted.settings), wire.Imported, calls.deadline)
            calls.open(*groups)
        calls.freeze(calls.baseline, calls.candidate)
        if self.plan.mode != "test":  # beside which others may run, while nothing is timed
            with self._timed("clock", START_S):
                for clock in self.plan.clocks[1:] if self.stepping else self.plan.clocks:
                    self.empty_call_samples_us[clock] = empty_samples_us(calls, clock)

    @contextlib.contextmanager
    def phase(self, phase: Phase) -> Iterator[None]:
        self.phase_now = phase
        with self._timed(phase.name, phase.limit_s):
            yield

    def close(self) -> None:
        """Closes the process groups of submissions, which one may have left unable to close."""
        with self.guarded():
            calls = self.calls
            for group in calls.in_order("close", self.checked):
                group.ask(wire.Do(what="close_group"), wire.Done, calls.deadline)
            groups = (calls.trusted, calls.baseline, calls.candidate)
            self.peak_memory_bytes = {group.role: calls.peak_of(group) for group in groups}
            calls.freeze(calls.baseline, calls.candidate)  # the answer says whether one ran when it was frozen before
            self.ranks.check_frozen()

    def checked_case(self, case: Case) -> Verdicts | None:
        """Submission and, where it will be timed, reference get a new process group: old connections are faster."""
        calls = self.calls
        calls.open(*(calls.both if case.is_timed else calls.in_order)("open", calls.at))
        if case.is_timed and self.plan.is_brief:  # its timed calls are judged
            return None
        return op_check.check(calls, case, probe_all=self.checked == 1)

    def measured_case(self, case: Case) -> Measured:
        return self.sampled(case, self.plan.is_brief, self.progress.case_left)

    def measure_again(self, case: Case) -> Measured:
        """Samples of the ranked clock."""
        self.begin(case)
        self.goes_on("measure")
        with self.as_planned(), self.guarded():
            return self.for_planned(self.sampled(case, True, self.progress.case_left))

    def sampled(self, case: Case, again: bool = False, tell: op_measure.Tell = op_measure.untold) -> Measured:
        """Measures the case; if the result exceeds the limit, measures the machine's peaks again and repeats it. It
        does no harm that the submission has run by then: it could only make peaks low, and the best ones count. If the
        reference alone does, the limit is known to be wrong, but nothing has to be repeated."""

        measurement = op_measure.CaseMeasurement(self.calls, case, self.stepping, self.watch.timing, tell)
        least, peaks = self.least(case), self.peaks
        try:
            found = measurement.measured(least, peaks, again)
        except (SubmissionFailed, OpponentFailed) as failed:
            if not self._measured_again(failed.outcome):
                raise
            return measurement.measured(self.least(case), self.peaks, again)
        if held := op_measure.beyond(found, least, peaks, is_baseline=True):
            self._measured_again(held, is_reference=True)
        return found

    def _measured_again(self, failure: Outcome, is_reference: bool = False) -> bool:
        """Measures this machine's peaks again, if this is reason to; returns whether it was."""
        if self.limits is None or not self.limits.doubted_by(failure, is_reference):
            return False
        self.progress.note("measures this machine's peaks again")
        self.limits.measure(self.calls)
        return True

    def least(self, case: Case) -> Bound | None:
        """The time below which a measurement cannot be."""
        return self.bound(case)

    def profile(self, case: Case) -> Profile:
        """One call of every rank under torch's profiler."""
        self.goes_on("profile")
        with self.guarded():
            return op_measure.profile(self.calls, case, self.launch.workdirs("candidate"))

    @property
    def peaks(self) -> Peaks | None:
        """The device's; None before they are known, and where they bound nothing."""
        return self.limits.peaks if self.limits else None

    def bound(self, case: Case) -> Bound | None:
        """The roofline of a benchmark; None where peaks or costs are not known."""
        if self.peaks is None or not case.is_timed:
            return None
        return hardware.limit(self.plan.problem.cost(case), self.peaks)

    def logs_of(self, case: Case) -> tuple[str, ...]:
        """The candidate ranks', which run all cases."""
        return tuple(log_name("candidate", rank) for rank in range(self.plan.world_size))

    def completed(self, report: EvalReport) -> EvalReport:
        report, sampling = super().completed(report), self.watch.sampling
        making_s, judging_s, use = self.judges_s[MAKING], self.judges_s[JUDGING], self.watch.cpu_use
        return replace(
            report,
            empty_call_samples_us=self.empty_call_samples_us,
            peaks=self.peaks,
            machine_state=self.watch.state,
            gpu_sampling=sampling,
            cpu_use=use,
            warnings=(
                *warnings.of_sampling(sampling),
                *warnings.of_cpu_use(use),
                *warnings.of_logs(self.logs),
                *_spread(self.plan),
                *warnings.of_judges(len(self.shortened), making_s, judging_s, use),
                *report.warnings,
            ),
        )

    @contextlib.contextmanager
    def _timed(self, name: str, seconds: float) -> Iterator[None]:
        self.progress.phase(name)
        self.calls.begin(seconds)
        try:
            with self.spending(name):
                yield
        finally:
            if not self.plan.is_control:
                self.shortened |= self.calls.shortened
                for what in self.judges_s:
                    self.judges_s[what] += self.calls.phase.spent_s(what)


class OpKind(Kind):
    """Operators of the checkout: problems of reference/ and shapes/, on one rank or several."""

    session_type: ClassVar[type[Session]] = OpSession
    checkers: tuple[str, ...] = ("strict",)
    takes_tools = True
    is_pooled = True

    def claims(self, place: Path) -> bool:
        """A folder reference/<name>/ of a checkout."""
        return place.parent.name == "reference" and any((place / file).is_file() for file in shape_file.FOLDER_FILES)

    def read(self, place: Path, checkout: Checkout) -> Problem:
        """The problem whose reference folder that is. Raises BadFileError where its files are bad."""
        return shape_file.find(place.name, Checkout(place.resolve().parent.parent))

    def plan(self, order: Order) -> OpPlan:
        """Our ranks' plan. Raises UsageError where the ranks cannot fit on this machine."""
        setting = order.setting
        if setting.nodes > 1 and order.mode == "profile":
            raise UsageError(f"--nodes {setting.nodes}: traces are read on one machine; profile there")
        cuda_is_cpu, notes = conditions(setting, order.submission)
        plan = make_plan(order, cuda_is_cpu, notes)
        if order.opponent is None and self.is_reference(order.submission, setting.problem):
            plan = replace(plan, is_reference=True, notes=(*notes, Warning(code="reference")))
        return plan

    def is_reference(self, submission: Submission, problem: Problem) -> bool:
        """Whether the submission calls the reference or has its text."""
        text = problem.staged().get("reference.py", b"").decode(errors="replace")
        return is_reference(submission.source, text)


def _spread(plan: Plan) -> tuple[Warning, ...]:
    """Warnings that shapes are split over another number of ranks than the suite's, or ranks over several nodes."""
    meant = {case.world_size for case in plan.problem.suite(plan.suite.name).benchmarks}
    found: list[Warning] = []
    if meant != {plan.world_size}:
        found.append(
            Warning(code="split", values={"suite": plan.suite.name, "meant": max(meant), "ranks": plan.world_size})
        )
    if plan.nodes > 1:
        found.append(Warning(code="nodes", values={"nodes": plan.nodes}))
    return tuple(found)


@contextlib.contextmanager
def _staged(plan: OpPlan, files: Callable[[wire.Role], dict[str, bytes]], place: Path | None) -> Iterator[Launch]:
    """A folder for each rank with the problem's files, as GPU MODE stages them, in `place` or a temporary folder."""
    if place is not None:
        place.mkdir()
    judges_baseline = plan.opponent is not None or CHECKERS[plan.checker].judges_baseline
    top = place or new_folder("kernel-eval-")
    with contextlib.ExitStack() as held:
        held.callback(remove, top)
        launch = part(
            plan,
            Launch,
            folder=top,
            nodes=(),
            caches=_caches(plan),
            # The judges' and the opponent's files too.
            hidden=staging.hidden(plan.problem.root, top),
            judges=(*plan.hidden, *plan.problem.read_by_judges()),
            judge=CHECKERS[plan.problem.checker].trusted,
            judged=("candidate", "baseline") if judges_baseline else ("candidate",),
        )
        for cache in launch.caches.values():
            held.enter_context(compile_cache.held(cache))
        stage(launch, files)
        yield launch


def _entry(plan: OpPlan, role: wire.Role) -> Submission | None:
    """The submission that ranks of that role run, if any."""
    return {"candidate": None if plan.is_control else plan.submission, "baseline": plan.opponent}.get(role)


def _caches(plan: OpPlan) -> dict[wire.Role, Path]:
    if plan.fresh_caches:
        return {}  # each group's is in its own folder then
    entries: dict[wire.Role, Submission | None] = {role: _entry(plan, role) for role in OTHERS}
    names = {role: entry.sha256 if entry else plan.problem.cache_name for role, entry in entries.items()}
    folders = {role: compile_cache.folder(plan.problem.root, name) for role, name in names.items()}
    return {role: folder for role, folder in folders.items() if folder is not None}
