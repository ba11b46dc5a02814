"""One evaluation, from plan to report: three groups of ranks, their commands, what became of every case.

The parent trusts neither timing nor output of a candidate rank: inputs come from trusted ranks, outputs go back to
them as bytes, reference and submission are timed in turn on the same inputs, and every output that is timed is
verified. Nothing here imports torch or a submission.
"""

import contextlib
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

from harness.core.files import remove
from harness.core.records import (
    Case,
    CaseResult,
    Clock,
    Crashed,
    EvalReport,
    Failure,
    HarnessError,
    Held,
    NotRun,
    Outcome,
    Passed,
    Peaks,
    Profile,
    Raised,
    Submission,
    Timed,
    TimedOut,
    Verdict,
    Verdicts,
    Wrong,
    new_run_id,
)
from harness.core.stats import median, roofline_samples_us
from harness.judging import warnings
from harness.kinds.plan import PHASES, Phase, Plan
from harness.machine import doctor, hardware, host, peaks_cache
from harness.machine.readings import Gpus
from harness.machine.sampler import GpuSampler
from harness.machine.sampler import warnings as warnings_of
from harness.problems.kind import OpponentFailed, Progress
from harness.problems.problem import Problem
from harness.process import compile_cache
from harness.ranks import clocks, credibility, trace, wire
from harness.ranks.group import ROLES, Group, Launch, RankFailure, Ranks, free_port

EMPTY_CALLS = 30
START_S = 120.0  # for what comes before the first case, and after the last
COMPILE_S = 600.0  # for what a submission compiles when it is imported
PROBE_S = (0.02, 0.3)  # at least and at most, how long a probe keeps a rank out of a call
# Of each input and output of a block, at most, on one device: boxes may have twice the room, and as much outgrown.
INPUT_COPIES, OUTPUT_COPIES = 1 + 4 + 2, 4 + 4  # made, in its box, loaded on either side; in the boxes of either side
CACHE_PAIRS = 5  # inputs that are called on twice, after a benchmark was timed
NO_OUTPUT = wire.Output(kind="None", dtype="", shape=(), device="", offset=0, nbytes=0, note="nothing returned")


StartRanks = Callable[[Launch], contextlib.AbstractContextManager[Ranks]]


def evaluate(plan: Plan, progress: Progress, start_ranks: StartRanks = Ranks) -> EvalReport:
    """Carries out the plan. What the submission does wrong is in the report; HarnessError is raised for the rest."""
    return Evaluation(plan, progress).run(start_ranks)


class Evaluation:
    """The state of one evaluation: what has become of each case so far, the clock of the phase that runs."""

    def __init__(self, plan: Plan, progress: Progress) -> None:
        self.plan, self.progress = plan, progress
        self.started = datetime.now(UTC)
        self.phases_s: dict[str, float] = {}
        self.deadline = 0.0
        profiled = [replace(case, kind="profile") for case in plan.suite.benchmarks]
        kinds = {"test": plan.suite.tests, "benchmark": plan.suite.benchmarks, "profile": profiled}
        self.cases: list[Case] = [case for phase in PHASES[plan.mode] for case in kinds[phase]]
        self.outcomes: list[Outcome] = [NotRun() for _ in self.cases]
        self.verdicts: list[Verdicts | None] = [None for _ in self.cases]
        self.profiles: list[Profile | None] = [None for _ in self.cases]
        self.opened = 0
        self.inputs_timed = 0
        self.made: list[wire.InputsMade] = []
        self.keys: list[int] = []  # of these inputs
        self.taken = 0  # outputs judged, of those taken since these inputs were made
        self.probed = False
        self.ahead = 0  # calls in its process group by which the candidate is ahead, until both are timed
        self.at = 0  # the case that runs, or that would be next
        self.device_model = ""
        self.machine_state: tuple[str, ...] = ()
        self.sampler: GpuSampler | None = None
        self.empty_call_samples_us: dict[Clock, tuple[float, ...]] = {}
        self.peaks: Peaks | None = None
        self.logs: dict[str, str] = {}
        self.compile_log = ""  # what compilers printed at the submission's import
        self.read_logs: Callable[[], dict[str, str]]
        self.lacking: tuple[str, ...] = ()
        self.launch: Launch
        self.trusted: Group
        self.baseline: Group
        self.candidate: Group

    def run(self, start_ranks: StartRanks) -> EvalReport:
        plan = self.plan
        began = time.monotonic()
        self.progress.phase("start")
        # Before any rank runs, which would be seen as somebody else's work.
        found = doctor.read(with_smoke=False)
        self.machine_state = doctor.short(doctor.doctor(found))
        if plan.device != "cpu":
            used = found.gpus.visible[: plan.world_size] if isinstance(found.gpus, Gpus) else None
            self.sampler = GpuSampler(used)
        with _staged(plan) as self.launch:
            with start_ranks(self.launch) as ranks:
                self.trusted, self.baseline, self.candidate = ranks.trusted, ranks.baseline, ranks.candidate
                self.read_logs = ranks.logs
                self.phases_s["start"] = time.monotonic() - began
                try:
                    self._phases()
                except RankFailure as failure:
                    if not self.launch.folder.is_dir():
                        raise HarnessError(
                            f"{self.launch.folder} was removed while ranks ran in it; evaluate again, and keep what "
                            "cleans up there away from it (TMPDIR names another place)"
                        ) from None
                    if failure.role == "baseline" and plan.opponent is not None:
                        raise OpponentFailed(self.cases[self.at].label, failure.outcome) from None
                    who = plan.submission.name if failure.role == "candidate" else ""
                    plan.problem.check_failure(failure.outcome.message, plan.device, plan.cuda_is_cpu, who)
                    if failure.role != "candidate" and not isinstance(failure.outcome, TimedOut):
                        raise HarnessError(_trusted_failure(failure.outcome)) from None
                    self.outcomes[self.at] = failure.outcome
                finally:
                    if self.sampler:
                        self.sampler.close()
                    self.logs = ranks.logs() | ({"compile": self.compile_log} if self.compile_log else {})
                    self.lacking = tuple(ranks.lacking)
                    began = time.monotonic()
            self.phases_s["end"] = time.monotonic() - began
        return self._report()

    # ---- phases ------------------------------------------------------------------------------------------------

    def _phases(self) -> None:
        kernels = ((self.baseline, self.plan.opponent), (self.candidate, self.plan.submission))
        if compiling := [group for group, kernel in kernels if kernel and compile_cache.compiles(kernel)]:
            try:
                with self._phase("compile", COMPILE_S):
                    for group in compiling:
                        group.ask(wire.CompileKernel(), wire.Imported, self.deadline)
            finally:
                self.compile_log = self.read_logs().get("candidate rank 0", "")
        with self._phase("import", START_S):
            self.device_model = self.trusted.ask(wire.ImportKernel(), wire.Imported, self.deadline)[0].device
            for group in (self.baseline, self.candidate):
                group.ask(wire.ImportKernel(), wire.Imported, self.deadline)
            self._open(self.trusted, self.baseline)
        with self._phase("clock", START_S):
            for clock in self.plan.clocks:
                self.empty_call_samples_us[clock] = tuple(map(clocks.SAMPLE_US[clock], self._empty_calls(clock)))
            self.peaks = self._find_peaks() if self.plan.problem.cost_of is not None else None
        for phase in PHASES[self.plan.mode]:
            with self._phase(phase, self.plan.phase_s(phase)):
                self._run_cases(phase)
            if self._failed():
                return

    def _failed(self) -> bool:
        return any(isinstance(outcome, get_args(Failure)) for outcome in self.outcomes)

    def _run_cases(self, phase: Phase) -> None:
        """Checks all cases of the phase; times or profiles as well until one fails, since nothing is ranked then."""
        more = {"test": None, "benchmark": self._time, "profile": self._profile}[phase]
        indices = [index for index, case in enumerate(self.cases) if case.kind == phase]
        for number, self.at in enumerate(indices):
            case = self.cases[self.at]
            self.progress.case(case.label, number, len(indices))
            # The reference is timed in a process group as new as the submission's: connections that have carried
            # much are faster than new ones.
            self._open(*([self.candidate, self.baseline] if phase == "benchmark" else [self.candidate]))
            self.outcomes[self.at] = self._check(case)
            if more and not self._failed() and isinstance(self.outcomes[self.at], Passed):
                self.outcomes[self.at] = more(case)
        self.candidate.ask(wire.CloseGroup(), wire.Done, self.deadline)

    def _open(self, *groups: Group) -> None:
        """Give each group's ranks a new process group, in place of what they have; all groups at the same time."""
        self.ahead = 0
        for group in groups:
            self.opened += 1
            group.send(wire.CloseGroup())
            group.send(wire.OpenGroup(number=self.opened, free_port=free_port()))
        for group in groups:
            group.gather(wire.Done, self.deadline)
            group.gather(wire.Done, self.deadline)

    def _call(
        self, group: Group, indices: Sequence[int], clock: Clock, keys: Sequence[int] = ()
    ) -> list[list[wire.CallSample]]:
        return group.call(indices, clock, self.deadline, clocks.LEAD_S if clock == "device" else 0.0, keys)

    def _empty_calls(self, clock: Clock) -> list[list[wire.CallSample]]:
        """As a case's calls are taken: in a burst, or one by one; the first, which warm up, are not among them."""
        if self.plan.budget.burst and clock != "device":
            return self._call(self.baseline, [-1] * (clocks.WARM_CALLS + EMPTY_CALLS), clock)[clocks.WARM_CALLS :]
        return [self._call(self.baseline, [-1], clock)[0] for _ in range(EMPTY_CALLS + 1)][1:]

    def _make(self, case: Case, inputs: Sequence[wire.InputSpec]) -> None:
        """Trusted ranks make these inputs. Nobody else gets them before a call needs them."""
        command = wire.MakeInputs(params=case.params, inputs=tuple(inputs))
        self.made = self.trusted.ask(command, wire.InputsMade, self.deadline)
        self.keys = [spec.key for spec in inputs]
        self.taken = 0

    def _load(self, group: Group, indices: Sequence[int]) -> None:
        """The group gets these inputs, and loses those that it had."""
        commands = [
            wire.LoadInputs(
                inputs=tuple(rank.inputs[index] for index in indices),
                boxes=rank.boxes,
                output_limit=rank.output_limit,
            )
            for rank in self.made
        ]
        group.ask(commands, wire.Done, self.deadline)

    def _turn(self, group: Group, indices: Sequence[int], clock: Clock = "wall") -> clocks.Turn:
        """Calls on these inputs, which the group gets just before. What a candidate returns is taken at once; and as
        much after the baseline's calls, so that what comes next finds the machine in the same state."""
        began_ns = time.monotonic_ns()
        self._load(group, indices)
        keys = [self.keys[index] for index in indices if self.keys[index]]
        called = self._call(group, range(len(indices)), clock, keys)
        self.ahead += len(indices) if group is self.candidate else -len(indices)
        ended_ns = time.monotonic_ns()
        self._take(group, called)
        if self.plan.device != "cpu":
            # What it still had to do when its rank replied is done by now, or the outputs are wrong.
            ended_ns = time.monotonic_ns()
        return clocks.Turn(began_ns=began_ns, ended_ns=ended_ns, called=tuple(map(tuple, called)))

    def _take(self, group: Group, called: Sequence[Sequence[wire.CallSample]]) -> None:
        judged = group is self.candidate
        outputs = [tuple(call.output or NO_OUTPUT for call in calls) for calls in zip(*called, strict=True)]
        commands = [wire.TakeOutputs(outputs=each, judged=judged) for each in outputs]
        self.trusted.ask(commands, wire.Done, self.deadline)

    def _verify(self, *indices: int, published: bool = False) -> list[Verdicts]:
        """What the trusted ranks say of the next outputs taken, as ones of these inputs; a verdict passes when it does
        on every rank."""
        for index in indices:  # all at once: they need not wait for us between two
            self.trusted.send(wire.Verify(index=index, taken=self.taken, published=published))
            self.taken += 1
        each = [self.trusted.gather(wire.Verified, self.deadline) for _ in indices]
        return [
            Verdicts(
                strict=_over_ranks([rank.verdicts.strict for rank in ranks]),
                gpumode=_over_ranks([rank.verdicts.gpumode for rank in ranks]),
            )
            for ranks in each
        ]

    def _check(self, case: Case) -> Outcome:
        """One call on the case's published input and one on a fresh hardened one, both verified; then the probe."""
        fresh = wire.InputSpec(seed=self.plan.seed("check", self.at), hardened=True)
        self._make(case, [wire.InputSpec(seed=case.seed, hardened=False), fresh])
        turns = [self._turn(self.candidate, [index]) for index in range(2)]
        [as_published], [hardened] = self._verify(0, published=True), self._verify(1)
        strict = as_published.strict if not as_published.strict.passed else hardened.strict
        self.verdicts[self.at] = Verdicts(strict=strict, gpumode=as_published.gpumode)
        if not strict.passed:
            return Wrong(message=strict.message)
        return self._probe(case, 4e-6 * clocks.wall_us(turns[1].called[0]))

    def _probe(self, case: Case, hold_s: float) -> Outcome:
        """Calls that one rank enters late: nobody who needs its data may finish before. Each rank in turn in an
        evaluation's first case; later one a case, which nobody can foresee."""
        ranks = range(self.plan.world_size)
        late_ranks = ranks if not self.probed else [self.plan.seed("late", self.at) % self.plan.world_size]
        self.probed = True
        hold_s = min(max(hold_s, PROBE_S[0]), PROBE_S[1])
        for late in late_ranks:
            needed_by = {rank for rank in ranks if late in self.plan.problem.depends_on(case, rank)}
            if not needed_by:
                continue
            seed = self.plan.seed("probe", self.at, late)
            self._make(case, [wire.InputSpec(seed=seed, hardened=True)])
            self._load(self.candidate, [0])
            called, finished = self.candidate.call_late(late, 0, hold_s, self.deadline)
            self.ahead += 1
            self._take(self.candidate, [called])
            if early := needed_by.intersection(finished):
                return Held(
                    check="communication",
                    evidence=f"rank {late} was kept out of a call for {hold_s * 1000:.0f} ms, and rank {min(early)}, "
                    "whose result depends on its data, finished meanwhile",
                )
            [verdicts] = self._verify(0)
            if not verdicts.strict.passed:
                return Wrong(message=f"a call that rank {late} entered late: {verdicts.strict.message}")
        return Passed()

    def _time(self, case: Case) -> Outcome:
        """The benchmark's samples, unless something about them cannot be. What a busy machine may look like is looked
        at twice, and counts when it is seen twice: the second time with samples of its own."""
        for _ in range(2):
            own, ref = clocks.Side(), clocks.Side()
            series = self._measure(case, own, ref)
            if not isinstance(series, clocks.Series):
                return series
            if not (doubt := credibility.unaccounted(own, ref) or credibility.too_short(series)):
                break
        else:
            return Held(check="clock", evidence=doubt)
        if (doubt := self._kept(case)) and (doubt := self._kept(case)):
            return Held(check="cache", evidence=doubt)
        return self._believed(case, series.timed())

    def _measure(self, case: Case, own_side: clocks.Side, ref_side: clocks.Side) -> clocks.Series | Wrong | Held:
        """Samples of reference and submission in turn, on fresh inputs, until they suffice; every output verified."""
        plan = self.plan
        self._make(case, self._fresh(1))
        budget = self._budget()
        series = clocks.Series(plan.clocks, budget.block)
        # Warm-up: first touches of this shape are not what is ranked; and for as many calls as checked the submission,
        # since on CPU ranks each of the first dozen in a process group is faster than the one before.
        while self.ahead > 0:
            self._turn(self.baseline, [0])
        for clock in plan.clocks:
            self._turn(self.baseline, [0], clock)
            self._turn(self.candidate, [0], clock)
        # From here on, since a warm-up may take seconds: collectives connect the ranks of a new group one to one.
        before_us, began = self._busy_us(), time.monotonic()
        with self._sampling():
            while not clocks.enough(budget, series, time.monotonic() - began):
                for clock in clocks.due(plan.clocks, series.count("wall") // budget.block):
                    turns = clocks.turns(budget, clock, series.count(clock))
                    # Of several that are handed out together, none can be read before it is its turn.
                    masked = any(len(indices) > 1 for _, indices in turns)
                    self._make(case, self._fresh(1 + max(index for _, indices in turns for index in indices), masked))
                    own: dict[int, Sequence[wire.CallSample]] = {}
                    ref: dict[int, Sequence[wire.CallSample]] = {}
                    for reference, indices in turns:
                        turn = self._turn(self.baseline if reference else self.candidate, indices, clock)
                        if not reference and (doubt := credibility.impossible(turn, clock)):
                            return Held(check="clock", evidence=doubt)
                        (ref if reference else own).update(zip(indices, turn.called, strict=True))
                        if clock == "wall":
                            (ref_side if reference else own_side).turns.append(turn)
                    series.add(clock, *(list(calls.values())[-budget.block :] for calls in (own, ref)))
                    for verdicts in self._verify(*own):
                        if not verdicts.strict.passed:
                            return Wrong(message=f"a timed call ({clock} clock): {verdicts.strict.message}")
        own_side.busy_us, ref_side.busy_us = (b - a for a, b in zip(before_us, self._busy_us(), strict=True))
        return series

    def _budget(self) -> clocks.Budget:
        """The plan's, with smaller blocks where devices have no memory for such as the input that was just made."""
        budget = self.plan.budget
        room = min(
            rank.spare_bytes // (INPUT_COPIES * rank.inputs[0].nbytes + OUTPUT_COPIES * rank.output_limit)
            for rank in self.made
        )
        return replace(budget, block=max(1, min(budget.block, room - clocks.WARM_CALLS)))

    @contextlib.contextmanager
    def _sampling(self) -> Iterator[None]:
        """While GPUs are timed, their clocks are sampled."""
        if self.sampler:
            self.sampler.start()
        try:
            yield
        finally:
            if self.sampler:
                self.sampler.stop()

    def _busy_us(self) -> tuple[float, float]:
        """CPU time so far of candidate and baseline; nan where it says little, since a device does the work."""
        return (
            (self.candidate.busy_us(), self.baseline.busy_us()) if self.plan.device == "cpu" else (math.nan, math.nan)
        )

    def _kept(self, case: Case) -> str:
        """Why the submission seems to keep results for inputs that come again, or "". No timed input does; who keeps
        results all the same has prepared for something else than its work."""
        clock: Clock = "device" if "device" in self.plan.clocks else "wall"
        self._make(case, self._fresh(2 * CACHE_PAIRS))  # as many, for the room that their outputs need
        self._load(self.candidate, range(CACHE_PAIRS))
        return credibility.kept(
            self._call(self.candidate, [index // 2 for index in range(2 * CACHE_PAIRS)], clock), clock
        )

    def _profile(self, case: Case) -> Outcome:
        """A warm-up and one more call under the profiler, verified too; the ranks' traces become one."""
        self._make(case, self._fresh(2))
        self.candidate.ask(wire.StartProfile(), wire.Done, self.deadline)
        for index in range(2):
            self._turn(self.candidate, [index])
        self.candidate.ask(wire.StopProfile(), wire.Done, self.deadline)
        _, profiled = self._verify(0, 1)  # the warm-up's is taken first
        if not profiled.strict.passed:
            return Wrong(message=f"profiled call: {profiled.strict.message}")
        traces: list[trace.RankTrace] = []
        for rank in range(self.plan.world_size):
            try:
                traces.append(trace.parse(trace.read(self.launch.workdir("candidate", rank) / trace.FILE)))
            except trace.TraceError as error:
                return Crashed(rank=rank, message=f"its trace {error}", log_tail="")
        self.profiles[self.at] = Profile(
            ranks=tuple(trace.profile(rank, found) for rank, found in enumerate(traces)),
            trace_json=trace.merge(traces, f"{self.plan.problem.name}: {case.label}"),
        )
        return Passed()

    def _fresh(self, count: int, masked: bool = False) -> list[wire.InputSpec]:
        """That many inputs that no call has seen."""
        self.inputs_timed += count
        numbers = [self.inputs_timed - index for index in range(count)]
        keys = [self.plan.key(number) if masked else 0 for number in numbers]
        seeds = [self.plan.seed("timed", number) for number in numbers]
        return [wire.InputSpec(seed=seed, hardened=True, key=key) for seed, key in zip(seeds, keys, strict=True)]

    def _believed(self, case: Case, timed: Timed) -> Timed | Held:
        """Nothing is faster than what the machine can do."""
        bound = self._bound(case)
        time_us = median(roofline_samples_us(timed))
        if bound is None or time_us >= bound[0]:
            return timed
        return Held(
            check="roofline",
            evidence=f"{time_us:.2f} us are less than the bound of {bound[0]:.2f} us "
            f"({bound[1]}, {self.peaks.source if self.peaks else ''})",
        )

    def _bound(self, case: Case) -> tuple[float, hardware.Term] | None:
        return None if self.peaks is None else hardware.bound(self.plan.problem.cost(case), self.peaks)

    def _find_peaks(self) -> Peaks:
        """The device's rates by the table, or else this machine's: measured once by trusted ranks, then remembered."""
        plan = self.plan
        if (listed := hardware.match(self.device_model)) is not None:
            return listed
        cache = peaks_cache.path(plan.problem.root, self.device_model or plan.device, plan.world_size)
        if (known := peaks_cache.load(cache)) is not None:
            return known
        self.progress.phase("peaks (once on this machine)")
        measured = self.trusted.ask(wire.MeasurePeaks(), wire.PeaksMeasured, self.deadline)
        peaks = Peaks(
            flops_per_s=median([rank.flops_per_s for rank in measured]),
            hbm_bytes_per_s=median([rank.memory_bytes_per_s for rank in measured]),
            link_bytes_per_s=median([rank.link_bytes_per_s for rank in measured]),
            source=f"measured on this machine, {self.started:%Y-%m-%d}",
        )
        peaks_cache.store(cache, peaks)
        return peaks

    def _split(self) -> tuple[str, ...]:
        """That the suite's shapes are split over another number of ranks than it is for."""
        plan = self.plan
        meant = {case.world_size for case in self.plan.problem.suite(plan.suite.name).benchmarks}
        if meant == {plan.world_size}:
            return ()
        return (
            f"suite {plan.suite.name} is for {max(meant)} ranks and was split over {plan.world_size}: its times do not "
            f"compare with those of {max(meant)} ranks",
        )

    @contextlib.contextmanager
    def _phase(self, name: str, seconds: float) -> Iterator[None]:
        self.progress.phase(name)
        began = time.monotonic()
        self.deadline = began + seconds
        try:
            yield
        finally:
            self.phases_s[name] = time.monotonic() - began

    def _report(self) -> EvalReport:
        plan = self.plan
        sampling = self.sampler.record if self.sampler else None
        results = []
        for case, outcome, verdicts, profile in zip(
            self.cases, self.outcomes, self.verdicts, self.profiles, strict=True
        ):
            bound = self._bound(case) if case.kind == "benchmark" else None
            results.append(
                CaseResult(
                    case=case,
                    outcome=outcome,
                    verdicts=verdicts,
                    bound_us=bound[0] if bound else None,
                    bound_by=bound[1] if bound else None,
                    profile=profile,
                )
            )
        return EvalReport(
            run_id=new_run_id(self.started),
            started_at=self.started.isoformat(timespec="seconds"),
            problem=plan.problem.name,
            submission=plan.submission,
            author=plan.author,
            device=plan.device,
            world_size=plan.world_size,
            suite=plan.suite.name,
            mode=plan.mode,
            ranking_by=plan.problem.ranking_by,
            results=tuple(results),
            empty_call_samples_us=self.empty_call_samples_us,
            peaks=self.peaks,
            environment=host.environment(self.device_model, plan.world_size),
            phases_s=self.phases_s,
            secret_seed=plan.secret,
            warnings=warnings.warnings(results, self.empty_call_samples_us.get("wall", ()))
            + (warnings_of(sampling) if sampling else ())
            + self.lacking
            + self._split()
            + plan.notes,
            machine_state=self.machine_state,
            gpu_sampling=sampling,
            logs=self.logs,
            gate=plan.problem.gate,
            confined=plan.confined,
        )


@contextlib.contextmanager
def _staged(plan: Plan) -> Iterator[Launch]:
    """A folder for each rank with the problem's files side by side, as GPU MODE stages them; gone afterwards."""
    top = Path(tempfile.mkdtemp(prefix="kernel-eval-"))
    held = contextlib.ExitStack()
    try:
        launch = Launch(
            world_size=plan.world_size,
            device=plan.device,
            threads=plan.threads,
            cores=plan.cores,
            spin=plan.spin,
            flush_bytes=plan.flush_bytes,
            folder=top,
            caches=_caches(plan),
            gate=plan.problem.gate,
            cuda_is_cpu=plan.cuda_is_cpu,
            confined=plan.confined,
        )
        for cache in launch.caches.values():
            held.enter_context(compile_cache.held(cache))
        files = plan.problem.staged()
        entries = {"candidate": plan.submission, "baseline": plan.opponent}
        for role in ROLES:
            entry = entries.get(role)
            staged = files | _files_of(plan.problem, entry) if entry else files
            for rank in range(plan.world_size):
                for name, data in staged.items():
                    path = launch.workdir(role, rank) / name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(data)
        yield launch
    finally:
        held.close()
        remove(top)


def _files_of(problem: Problem, submission: Submission) -> dict[str, bytes]:
    files = problem.staged_submission(submission.source)
    if submission.modules:
        files["common/__init__.py"] = b""  # without it any installed package `common` would come first
    for module in submission.modules:
        files[module.name.replace(".", "/") + ".py"] = module.source.encode()
    return files


def _caches(plan: Plan) -> dict[wire.Role, Path]:
    baseline = plan.opponent.sha256 if plan.opponent else plan.problem.cache_name
    names: dict[wire.Role, str] = {"baseline": baseline, "candidate": plan.submission.sha256}
    folders = {role: compile_cache.folder(plan.problem.root, name) for role, name in names.items()}
    return {role: folder for role, folder in folders.items() if folder is not None}


def _over_ranks(verdicts: Sequence[Verdict]) -> Verdict:
    wrong = [f"rank {rank}: {verdict.message}" for rank, verdict in enumerate(verdicts) if not verdict.passed]
    if not wrong:
        return Verdict(passed=True)
    more = f" (and {len(wrong) - 1} more ranks)" if len(wrong) > 1 else ""
    return Verdict(passed=False, message=wrong[0] + more)


def _trusted_failure(outcome: Raised | Crashed) -> str:
    details = outcome.traceback if isinstance(outcome, Raised) else outcome.log_tail
    return (
        f"reference rank {outcome.rank} failed, so nothing can be said of the submission: {outcome.message}\n"
        f"{details}\nNext: `python -m harness doctor --smoke` says whether ranks can run and talk here; "
        "fewer ranks (--ranks) need less memory."
    )
