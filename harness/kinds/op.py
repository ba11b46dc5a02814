"""Operators, on one rank or on several: reference and submission run on ranks of ours, under our clocks.

Three groups of ranks: trusted ones make inputs and judge outputs, the baseline's run the reference, the candidate's the
submission. The parent imports neither torch nor a submission; it commands the groups, observes and decides. This module
starts and ends them; kinds.op_calls commands them, op_check and op_measure decide.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from harness.core.checkout import Checkout
from harness.core.errors import UsageError
from harness.core.machine_records import Peaks
from harness.core.records import (
    Bound,
    Case,
    CheckerName,
    Failure,
    Measured,
    Passed,
    Profile,
    Submission,
    Warning,
)
from harness.judging import warnings
from harness.kinds import op_check, op_measure, staging
from harness.kinds.conditions import conditions
from harness.kinds.kind import Account, Checked, Order, Plan, Progress, Session
from harness.kinds.op_calls import Calls
from harness.kinds.op_control import Guarded
from harness.kinds.op_deadline import JUDGING, MAKING
from harness.kinds.op_limits import Limits
from harness.kinds.op_staging import entry_of, staged_folder
from harness.kinds.op_stepped import Stepping
from harness.kinds.op_watch import Watch
from harness.kinds.plan import OpPlan, make_plan
from harness.machine import hardware, host
from harness.nodes import start
from harness.nodes.agent import has_own_network
from harness.problems import shape_file
from harness.problems.problem import Problem
from harness.problems.submission import read_submission
from harness.process import compile_cache
from harness.ranks import clocks, wire
from harness.ranks.group import Group
from harness.ranks.hearing import log_name
from harness.ranks.launch import START_S, Ranks
from harness.ranks.zygotes import OTHERS

T = TypeVar("T")


class OpKind:
    """The checkout's own problems."""

    checkers: tuple[CheckerName, ...] = ("strict",)
    takes_tools = True

    def claims(self, place: Path) -> bool:
        """A folder reference/<name>/ of a checkout."""
        return place.parent.name == "reference" and any((place / file).is_file() for file in shape_file.FOLDER_FILES)

    def read(self, place: Path, checkout: Checkout) -> Problem:
        """The problem whose reference folder that is. Raises BadFileError where its files are bad."""
        return shape_file.find(place.name, Checkout(place.resolve().parent.parent))

    def submission(self, path: Path | None, problem: Problem, checkout: Checkout) -> Submission:
        """A file, with its local modules."""
        return read_submission(path or problem.default_submission(), checkout.root, problem.lang)

    def plan(self, order: Order) -> Plan:
        """Our ranks' plan. Raises UsageError where the ranks cannot fit on this machine."""
        setting = order.setting
        if setting.nodes > 1 and order.mode == "profile":
            raise UsageError(f"--nodes {setting.nodes}: traces are read on one machine; profile there")
        cuda_is_cpu, notes = conditions(setting, order.submission)
        return make_plan(
            setting.problem,
            setting.suite,
            order.submission,
            order.mode,
            setting.device,
            setting.world_size,
            order.author,
            opponent=order.opponent,
            cuda_is_cpu=cuda_is_cpu,
            confined=setting.confined,
            notes=notes,
            nodes=setting.nodes,
        )

    @contextlib.contextmanager
    def session(self, plan: Plan, progress: Progress) -> Iterator[Session]:
        """Starts the groups in a staged folder; every rank has ended when the `with` does."""
        assert isinstance(plan, OpPlan)
        session = OpSession(plan, progress)
        with session.running():
            yield session


@dataclass(frozen=True, kw_only=True)
class Known:
    """What a session has found of ranks that outlive it: torch's settings, the device, its peaks, empty calls, how many
    process groups were opened, and where stepped calls stand."""

    settings: dict[str, str]
    device_model: str
    empty_call_samples_us: dict[str, tuple[float, ...]]
    limits: Limits | None
    opened: int
    stepping: Stepping | None


class OpSession(Guarded):
    """The groups of one evaluation, from start to end. `known`: trusted and baseline ranks have served an earlier
    session, so that only candidate ranks have still to be prepared (kinds.op_pool)."""

    def __init__(self, plan: OpPlan, progress: Progress) -> None:
        super().__init__(plan, progress)
        self.device_model = ""
        self.empty_call_samples_us: dict[str, tuple[float, ...]] = {}
        self.limits: Limits | None = None  # where the problem says what a call costs, once the device is known
        self.peak_memory_bytes: dict[str, int] = {}  # of a rank of each group
        self.logs: dict[str, str] = {}
        self.lacking: tuple[str, ...] = ()
        self.watch: Watch
        self.known: Known | None = None
        self.settings: dict[str, str] = {}
        self.stepping: Stepping | None = None  # where the device's clock ranks

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Ranks run within."""
        began, plan = time.monotonic(), self.plan
        self.progress.phase("start")
        self.watch = Watch(plan)
        with (
            staged_folder(plan, self.files) as staged,
            start.joined(plan.nodes, has_own_network(plan.confined, plan.device), self.progress.note) as nodes,
        ):
            self.launch = replace(staged, nodes=nodes)
            with Ranks(self.launch) as self.ranks:
                self.command()
                self.phases_s["start"] = time.monotonic() - began
                try:
                    yield
                finally:
                    self.watch.close()
                    self.logs = self.ranks.logs() | self.logs
                    self.lacking = tuple(self.ranks.lacking)
                    began = time.monotonic()
            self.phases_s["end"] = time.monotonic() - began

    def command(self) -> None:
        """Takes command of the ranks, which have started."""
        self.calls = Calls(self.plan, self.ranks)
        self.calls.links = self.watch.links
        if self.known is not None:
            self.calls.go_on(self.known.opened)
        if self.plan.is_stepped:
            before = self.known.stepping if self.known else None
            self.stepping = before.again(self.calls) if before else Stepping(self.calls)

    def files(self, role: wire.Role) -> dict[str, bytes]:
        """What is staged for a rank of that role, by name."""
        problem, entry = self.plan.problem, entry_of(self.plan, role)
        return problem.staged() | (staging.files_of(problem, entry) if entry else {})

    # ---- before the first case

    def prepare(self) -> Passed | Failure:
        """Compiles and imports what runs, measures an empty call on every clock, and finds the device's peaks."""
        return self.guarded(self._prepare)

    def _prepare(self) -> Passed:
        calls = self.calls
        if self.known is not None:
            self.settings, self.device_model, self.limits = (
                self.known.settings,
                self.known.device_model,
                self.known.limits,
            )
            self.empty_call_samples_us = dict(self.known.empty_call_samples_us)
            self._import(calls.candidate)
            calls.freeze(calls.baseline, calls.candidate)
            return Passed()
        groups = [calls.trusted, calls.baseline]  # that still have no process group
        with self._timed("reference", START_S):  # before anything untrusted runs: peaks are kept, for everybody
            trusted = calls.trusted.ask(wire.ImportKernel(), wire.Imported, calls.deadline)[0]
            self.device_model = trusted.device
            if self.stepping is not None:
                self.empty_call_samples_us["device"] = self.stepping.measure_empty()
            if self.plan.problem.cost_of is not None:
                self.limits = Limits(self.plan, self.device_model, self.watch.load_per_core)
                if self.limits.peaks is None:
                    calls.open(groups.pop(0))
                    self.progress.phase("peaks of this machine")
                    self.limits.measure(calls)
        self.settings = trusted.settings
        self._import(calls.baseline, calls.candidate, opened=groups)
        calls.freeze(calls.baseline, calls.candidate)
        with self._timed("clock", START_S):
            for clock in self.plan.clocks[1:] if self.stepping else self.plan.clocks:
                empty = calls.empty_calls(clock)
                self.empty_call_samples_us[clock] = tuple(map(clocks.SAMPLE_US[clock], empty))
        return Passed()

    def _import(self, *groups: Group, opened: Sequence[Group] = ()) -> None:
        """Has these groups compile and import what they run. The `opened` ones then get process groups."""
        calls = self.calls
        by_role = {"baseline": calls.baseline, "candidate": calls.candidate}
        runs = [(by_role[role], entry) for role in OTHERS if (entry := entry_of(self.plan, role)) is not None]
        running = [group for group, _ in runs if group in groups]
        if compiling := [group for group, entry in runs if group in groups and compile_cache.compiles(entry)]:
            try:
                with self._timed("compile", compile_cache.COMPILE_S):
                    self.has_run = True
                    for group in compiling:
                        group.ask(wire.CompileKernel(), wire.Imported, calls.deadline)
            finally:
                if printed := self.ranks.logs().get(log_name("candidate", 0)):
                    self.logs["compile"] = printed  # by compilers
        with self._timed("import", min(START_S, self.plan.import_s or START_S)):
            for group in groups:
                self.has_run = self.has_run or group in running
                group.ask(wire.ImportKernel(settings=self.settings), wire.Imported, calls.deadline)
            calls.open(*opened)

    def close(self) -> Passed | Failure:
        """Closes the candidate's process group, which a submission may have left unable to close."""

        def work() -> Passed:
            calls = self.calls
            calls.candidate.ask(wire.CloseGroup(), wire.Done, calls.deadline)
            self.peak_memory_bytes = calls.peaks_of_all()
            calls.freeze(calls.baseline, calls.candidate)  # the answer says whether one ran when it was frozen before
            self.ranks.check_frozen(calls.deadline)
            return Passed()

        return self.guarded(work)

    def check(self, case: Case) -> Checked:
        """The submission gets a new process group, and so does the reference where the case will be timed: connections
        that have carried much are faster than new ones."""

        def work() -> Checked:
            calls = self.calls
            self.begin(case)
            calls.open(*([calls.candidate, calls.baseline] if case.kind == "benchmark" else [calls.candidate]))
            return op_check.check(calls, case, probe_all=self.checked == 1)

        found = self.guarded(work)
        return found if isinstance(found, Checked) else Checked(outcome=found)

    def measure(self, case: Case) -> Measured | Failure:
        """Samples of every clock, every output verified."""
        self.goes_on("measure")
        return self._within_limits(
            lambda: op_measure.measure(self.calls, self.stepping, case, self.bound(case), self.peaks, self.watch.timing)
        )

    def _within_limits(self, measure: Callable[[], Measured | Failure]) -> Measured | Failure:
        """What that measures; once more with peaks that are measured again, where it makes these doubtful. That a
        submission has run by then is no danger, since it could only make them low too, and the best ones count."""
        found, limits = self.guarded(measure), self.limits
        if limits is None or not limits.doubted_by(found):
            return found
        self.progress.note("measures this machine's peaks again")
        peaks = self.guarded(lambda: limits.measure(self.calls))
        return self.guarded(measure) if isinstance(peaks, Peaks) else peaks

    def profile(self, case: Case) -> Profile | Failure:
        """One call of every rank under torch's profiler."""
        self.goes_on("profile")
        workdirs = [self.launch.workdir("candidate", rank) for rank in range(self.plan.world_size)]
        return self.guarded(lambda: op_measure.profile(self.calls, case, workdirs))

    @property
    def peaks(self) -> Peaks | None:
        """The device's; None before they are known, and where they bound nothing."""
        return self.limits.peaks if self.limits else None

    def bound(self, case: Case) -> Bound | None:
        """The roofline of a benchmark; None where peaks or costs are not known."""
        if self.peaks is None or case.kind != "benchmark":
            return None
        return hardware.limit(self.plan.problem.cost(case), self.peaks)

    def logs_of(self, case: Case) -> tuple[str, ...]:
        """The candidate ranks', which run all cases."""
        return tuple(log_name("candidate", rank) for rank in range(self.plan.world_size))

    def account(self) -> Account:
        """What else was found."""
        plan = self.plan
        lacking = tuple(Warning(code="sandbox", values={"text": text}) for text in self.lacking)
        return Account(
            phases_s=self.phases_s,
            environment=host.environment(self.device_model, plan.world_size, plan.nodes),
            device_model=self.device_model,
            empty_call_samples_us=self.empty_call_samples_us,
            peaks=self.peaks,
            machine_state=self.watch.state,
            gpu_sampling=self.watch.sampling,
            peak_memory_bytes=self.peak_memory_bytes,
            warnings=(*warnings.of_sampling(self.watch.sampling), *lacking, *_spread(plan), *_shortened(self.calls)),
            logs=self.logs,
        )


def _spread(plan: Plan) -> tuple[Warning, ...]:
    """That the suite's shapes are split over another number of ranks than it is for, or ranks over several nodes."""
    meant = {case.world_size for case in plan.problem.suite(plan.suite.name).benchmarks}
    found: list[Warning] = []
    if meant != {plan.world_size}:
        found.append(
            Warning(code="split", values={"suite": plan.suite.name, "meant": max(meant), "ranks": plan.world_size})
        )
    if plan.nodes > 1:
        found.append(Warning(code="nodes", values={"nodes": plan.nodes}))
    return tuple(found)


def _shortened(calls: Calls) -> tuple[Warning, ...]:
    """That cases have fewer samples than usual, and what took the time, in the last phase: that of the benchmarks."""
    if not calls.shortened:
        return ()
    took_s = {"making": calls.phase.spent_s(MAKING), "judging": calls.phase.spent_s(JUDGING)}
    return (Warning(code="slow_judging", values={"count": len(calls.shortened), **took_s}),)
