"""Runs a problem folder's own evaluator as KernelBot's runner does, and turns its result lines into a report.

Knows the runner's side of the format (after gpu-mode/kernelbot src/libkernelbot/run_eval.py, read 2026-11): the staged
folder, the cases file, POPCORN_FD, POPCORN_SEED, POPCORN_GPUS, the keys that come back, exit codes, timeouts, the three
runs that a ranked evaluation is. The evaluator is a child process with children of its own. The submission runs in
them, unconfined, beside what times and judges it: nothing that is told is checked here beyond its form.

Differs from the runner where that would lose a result: the pipe is read while the child runs, so that no amount of
text blocks it; a timeout ends all its processes; and what passes has passed in every case, not only by `check: pass`.
"""

import contextlib
import functools
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from harness.core.errors import BadFileError, UsageError
from harness.core.metrics import THEIRS
from harness.core.records import (
    Case,
    Crashed,
    Failure,
    Measured,
    Mode,
    NotRun,
    Outcome,
    Params,
    Passed,
    Profile,
    Series,
    TimedOut,
    Warning,
    Wrong,
)
from harness.core.summary import Summary
from harness.core.words import TAIL_CHARS, cut_line
from harness.gpumode.folder import TaskProblem, cases_text
from harness.gpumode.result_lines import number, parse, profile_text
from harness.kinds import staging
from harness.kinds.external.programs import LANGUAGES, EvaluatorProgram
from harness.kinds.external.validation import validated
from harness.kinds.gpu_only import refuse_gpu_only
from harness.kinds.kind import Kind, Order, Phase, Plan, Progress, SubmissionFailed
from harness.kinds.phases import conditions, planned
from harness.machine import host
from harness.process import compile_cache, cuda_shim_site
from harness.process.child import end_text, run_child

EvalMode = Literal["test", "benchmark", "leaderboard", "profile"]
# What eval.py is run in for a phase of each of our modes.
RUNS: dict[tuple[Mode, str], tuple[EvalMode, ...]] = {
    ("test", "test"): ("test",),
    ("benchmark", "benchmark"): ("benchmark",),
    ("leaderboard", "test"): ("test",),
    ("leaderboard", "benchmark"): ("benchmark", "leaderboard"),
    ("profile", "profile"): ("profile",),
}
SUITE = "theirs"  # what such a run is recorded under, and so ranked apart from ours
CONTROL = "from reference import ref_kernel as custom_kernel\n"  # the submission of a control run
# The same where a folder has no ref_kernel: nothing can be taken from it, so what fails as before has not come to it.
NOTHING = "def __getattr__(name):\n    raise RuntimeError('this submission has nothing')\n"
WHOSE = {CONTROL: "the folder's own reference as the submission", NOTHING: "a submission that has nothing"}
REASON_CHARS = 300
UNDER_NCU = "its eval.py profiles only under ncu: --tool ncu"  # where its profile has no text
EXITS = {110: "a CUDA call failed", 111: "it was given no POPCORN_FD", 112: "it says that the submission is wrong"}


@dataclass(frozen=True, kw_only=True)
class ExternalPlan(Plan):
    """`evaluator_seed` is None where the evaluator has no secret; with `cuda_is_cpu`, "cuda" means the CPU to it."""

    cuda_is_cpu: bool = False

    @property
    def task_problem(self) -> TaskProblem:
        """The problem, which is a folder."""
        assert isinstance(self.problem, TaskProblem)
        return self.problem

    @property
    def suite_name(self) -> str:
        """Such runs are ranked apart."""
        return SUITE


@dataclass(frozen=True, kw_only=True)
class EvaluatorRun:
    """One run of eval.py or the program `name`. `code` is None if its time was up. `told`: the last line of a key."""

    code: int | None
    told: dict[str, str]
    stdout: str
    stderr: str
    name: str = "eval.py"


def check_codes(ran: EvaluatorRun, mode: EvalMode, name: str) -> None:
    """Raises BadFileError or UsageError where eval.py says by its exit code that it was not asked as it wants."""
    said = ran.stderr.strip()[-TAIL_CHARS:]
    if ran.code == 113:
        raise BadFileError(f"{name}: its eval.py does not take its cases (exit 113): {said}")
    if ran.code == 2 and not ran.told:
        raise UsageError(f"{name}: its eval.py does not know the mode {mode} (exit 2): {said}")


class ExternalSession(staging.StagedSession):
    """The runs of eval.py. A phase of ours is one run or several, made when the first of its cases is asked for."""

    plan: ExternalPlan

    def __init__(self, plan: ExternalPlan, progress: Progress) -> None:
        super().__init__(plan, progress)
        self.outcomes: list[Outcome] = []  # of the phase's cases, once it has run
        self.profiles: list[str] = []  # of those that were profiled
        self.at = 0
        self.logged: dict[str, str] = {}  # the log of each phase's last run, by the phase's name
        self.program: EvaluatorProgram

    def prepare(self) -> None:
        """Compiles the program, or what the submission compiles at its import."""
        problem, submission = self.plan.task_problem, self.plan.submission
        language = LANGUAGES[problem.lang]
        began = time.monotonic()
        if compiles := language.compiles(submission):
            self.progress.phase("compile")
        files = self._files()
        alone = {**self.environ, "POPCORN_SEED": "1"}
        self._stage(files)
        built = language.build(
            problem, files, submission, lambda command: run_child(command, self._staged, alone, compile_cache.COMPILE_S)
        )
        if compiles:
            self.logs["compile"] = built.log
            self.phases_s["compile"] = time.monotonic() - began
        if not isinstance(built.program, EvaluatorProgram):
            raise SubmissionFailed(built.program)
        self.program = built.program
        for name in files.keys() - self.program.files.keys():  # sources of what was compiled
            (self._staged / name).unlink(missing_ok=True)

    @contextlib.contextmanager
    def phase(self, phase: Phase) -> Iterator[None]:
        """Runs eval.py in the modes that stand for the phase, up to the first that fails."""
        self.at = 0
        for mode in RUNS[self.plan.mode, phase.name]:
            self.outcomes = []
            for label, cases in self._runs(mode, phase):
                self.outcomes += self._run(mode, label, cases)
                printed = [f"{label} {name}" for name in ("stderr", "stdout")]  # the submission prints to either
                self.logged[phase.name] = next((name for name in printed if name in self.logs), "")
                if any(isinstance(outcome, get_args(Failure)) for outcome in self.outcomes):
                    self.outcomes += [NotRun()] * (len(phase.cases) - len(self.outcomes))
                    yield
                    return
            if mode == "leaderboard" and self.plan.task_problem.task.validation:
                self.progress.phase("validation")
                self._stage(self._files())
                self.notes.append(validated(self.plan.task_problem, self._staged, self.environ))
        yield

    def _runs(self, mode: EvalMode, phase: Phase) -> list[tuple[str, tuple[Params, ...]]]:
        """The runs of eval.py in a mode: each one's name among the logs, and cases. Each profiled shape has its own."""
        cases = self._placed(phase)
        if mode == "profile":
            return [(f"profile {index}", (case,)) for index, case in enumerate(cases)]
        return [(mode, cases)]

    def check(self, case: Case) -> None:
        """eval.py's word on the next case."""
        outcome = self.outcomes[self.at]
        self.at += 1
        if not isinstance(outcome, Measured | Passed):
            raise SubmissionFailed(outcome)

    def measure(self, case: Case) -> Measured:
        """The times that eval.py tells of the case that was just checked."""
        outcome = self.outcomes[self.at - 1]
        assert isinstance(outcome, Measured), "a case that is right was timed"
        return outcome

    def profile(self, case: Case) -> Profile:
        return Profile(ranks=(), trace_json="", text=self.profiles[self.at - 1])

    def logs_of(self, case: Case) -> tuple[str, ...]:
        """The log of the run that the case was last part of, which eval.py and the submission share."""
        name = self.logged.get(case.kind)
        return (name,) if name else ()

    def _run(self, mode: EvalMode, label: str, placed: tuple[Params, ...]) -> list[Outcome]:
        """One run of eval.py, and what became of each of its cases. Where one has failed, the run is made again with
        the folder's ref_kernel as the submission: if that fails too, the folder or the machine is to blame."""
        self.progress.phase(mode)
        with self.spending(mode):
            ran = self._ran(mode, placed, self.program.files)
        texts = {"stdout": ran.stdout, "stderr": ran.stderr}
        self.logs |= {f"{label} {name}": text for name, text in texts.items() if text}
        if mode == "profile":
            self.profiles.append(profile_text(ran.told.get("benchmark.0.report", "")) or UNDER_NCU)
        outcomes = outcomes_of(mode, len(placed), ran, self._limit_s(mode))
        problem = self.plan.task_problem
        if not any(isinstance(one, get_args(Failure)) for one in outcomes):
            return outcomes
        if self.plan.device == "cpu":
            refuse_gpu_only(self.plan.submission, ran.stderr, ran.stderr.strip().rpartition("\n")[2])
        if problem.lang == "py":
            text = NOTHING if problem.missing else CONTROL
            self.progress.note(f"eval.py failed: runs it again with {WHOSE[text]}")
            control = self._ran(mode, placed, {**self.program.files, **problem.staged_submission(text)})
            again = outcomes_of(mode, len(placed), control, self._limit_s(mode))
            found = next((one for one in again if isinstance(one, get_args(Failure))), None)
            if found is not None and (not problem.missing or _how(control) == _how(ran)):
                check_codes(control, mode, self.plan.problem.name)
                raise self._refused(control, found, WHOSE[text])
            if not problem.missing:
                return outcomes
        check_codes(ran, mode, self.plan.problem.name)
        return outcomes

    def _limit_s(self, mode: EvalMode) -> float:
        suite = self.plan.suite
        limits = {"test": suite.test_timeout_s, "leaderboard": suite.ranked_timeout_s}
        return limits.get(mode, suite.benchmark_timeout_s)

    def _ran(self, mode: EvalMode, placed: tuple[Params, ...], files: Mapping[str, bytes]) -> EvaluatorRun:
        self._stage(files)
        cases = self.folder / "cases.txt"
        cases.write_text(cases_text(placed), encoding="utf-8")
        command = [*self.program.command, mode, str(cases)]
        ended = run_child(command, self._staged, self.environ, self._limit_s(mode))
        name, told = Path(self.program.command[-1]).name, parse(ended.result)
        return EvaluatorRun(code=ended.code, told=told, stdout=ended.stdout, stderr=ended.stderr, name=name)

    def _refused(self, ran: EvaluatorRun, outcome: Outcome, control: str) -> UsageError:
        """The error that says why the folder does not run here, beginning with the reason."""
        plan = self.plan
        last = ran.stderr.strip().rpartition("\n")[2]  # of a traceback: the exception
        said = last if isinstance(outcome, Crashed) and last else getattr(outcome, "message", "")
        reason = cut_line(said, REASON_CHARS).rstrip(".")
        advice = plan.problem.advice(plan.device, plan.cuda_is_cpu)
        log = staging.kept(plan.problem, f"{ran.stdout}\n{ran.stderr}")
        return UsageError(
            f"{reason}: {plan.problem.name} does not run here; {ran.name} fails so with "
            f"{control}{f'. Next: {advice}' if advice else ''}{log}"
        )

    @property
    def _staged(self) -> Path:
        return self.folder / "staged"

    def _files(self) -> dict[str, bytes]:
        return staging.files_of(self.plan.problem, self.plan.submission)

    def _stage(self, files: Mapping[str, bytes]) -> None:
        for name, data in files.items():
            path = self._staged / name
            path.parent.mkdir(parents=True, exist_ok=True)
            # A submission may have put a pipe, a link or a folder there.
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            path.unlink(missing_ok=True)
            path.write_bytes(data)
            path.chmod(0o755)  # it may be a program

    @functools.cached_property
    def environ(self) -> dict[str, str]:
        """The user's variables, without what a submission has no business to know."""
        order = self.plan
        environ = staging.environ_of(self.cache)
        if order.evaluator_seed is not None:
            environ["POPCORN_SEED"] = str(order.evaluator_seed)
        if order.task_problem.task.multi_gpu:
            environ["POPCORN_GPUS"] = str(host.gpus().count or order.world_size)
        if order.cuda_is_cpu:
            hook = self.folder / "hook"
            hook.mkdir()
            shutil.copy(cuda_shim_site.__file__, hook / "sitecustomize.py")
            environ[cuda_shim_site.VARIABLE] = str(cuda_shim_site.SHIM)
            environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(hook), environ.get("PYTHONPATH")]))
        return environ

    def _placed(self, phase: Phase) -> tuple[Params, ...]:
        """The phase's cases as task.yml has them, on as many ranks as will run."""
        task, ranks = self.plan.task_problem.task, {"world_size": self.plan.world_size}
        cases = task.tests if phase.name == "test" else task.benchmarks[-len(phase.cases) :]
        return tuple({**case, **ranks} if "world_size" in case else case for case in cases)


class ExternalKind(Kind):
    """A problem folder's own eval.py, asked for by `--eval theirs`; no folder is of this kind by itself."""

    session_type = ExternalSession

    def plan(self, order: Order) -> Plan:
        """The runs of eval.py that make up the mode. Raises UsageError for a problem without an eval.py."""
        setting = order.setting
        problem = setting.problem
        if not isinstance(problem, TaskProblem):
            raise UsageError(f"--eval theirs: {problem.name} is no problem folder with an eval.py; leave it out")
        LANGUAGES[problem.lang].check(problem, setting.is_cpu_asked)
        cuda_is_cpu, notes = conditions(setting, order.submission)
        task = problem.task
        # Where the last shape ranks, KernelBot runs no other.
        kept = 1 if task.ranking_by == "last" else len(task.benchmarks)
        suite = replace(setting.suite, benchmarks=setting.suite.benchmarks[-kept:])
        placed = problem.with_world_size(suite, setting.world_size)
        seed = task.seed if setting.evaluator_seed is None else setting.evaluator_seed
        return planned(
            ExternalPlan,
            order,
            kind="external",
            suite=placed,
            checker="theirs",
            secret=seed or 0,
            opponent=None,
            confined=False,
            nodes=1,
            notes=(Warning(code="theirs"), *notes),
            evaluator_seed=seed,
            cuda_is_cpu=cuda_is_cpu,
        )


def _how(ran: EvaluatorRun) -> tuple[int | None, Mapping[str, str], str]:
    """How a run ended: its exit code, the result lines, and the last line of its errors."""
    return ran.code, ran.told, ran.stderr.strip().rpartition("\n")[2]


def outcomes_of(phase: EvalMode, count: int, ran: EvaluatorRun, limit_s: float) -> list[Outcome]:
    """The outcome of each of `count` cases of one run. If the run did not pass, at least one of them has failed."""
    outcomes = [_outcome(phase, index, ran.told) for index in range(count)]
    done = ran.code == 0 and ran.told.get("check") == "pass" and not any(isinstance(one, NotRun) for one in outcomes)
    if not done and not any(isinstance(one, get_args(Failure)) for one in outcomes):
        unfinished = (index for index, one in enumerate(outcomes) if isinstance(one, NotRun))
        outcomes[next(unfinished, count - 1)] = _ended(phase, ran, limit_s)
    return outcomes


def _outcome(phase: EvalMode, index: int, told: Mapping[str, str]) -> Outcome:
    key = f"{'test' if phase == 'test' else 'benchmark'}.{index}"
    status = told.get(f"{key}.status")
    if status == "fail":
        return Wrong(message=told.get(f"{key}.error") or "eval.py says that it fails, and not why")
    if phase == "test":
        return Passed() if status == "pass" else NotRun()
    if phase == "profile":  # some evaluators say nothing of a case that is right
        return Passed()
    values = {name: number(told.get(f"{key}.{name}")) for name in ("runs", "mean", "std", "err", "best", "worst")}
    mean = values["mean"]
    if mean is None or mean <= 0:
        return NotRun()
    summary = Summary(
        runs=int(values["runs"] or 1),
        mean=mean / 1000,
        std=(values["std"] or 0.0) / 1000,
        err=(values["err"] or 0.0) / 1000,
        best=(values["best"] or mean) / 1000,
        worst=(values["worst"] or mean) / 1000,
    )
    return Measured(series=(Series(metric=THEIRS, own=(), summary=summary),))


def _ended(phase: EvalMode, ran: EvaluatorRun, limit_s: float) -> Wrong | Crashed | TimedOut:
    """How a run ended that neither passed nor says which case failed."""
    error = ran.told.get("error", "")
    if ran.code in (0, 112) and error:
        return Wrong(message=f"{ran.name}: {error}")
    if ran.code is None:
        return TimedOut(message=f"{ran.name} {phase} had not finished after {limit_s:g} s", stacks=())
    if ran.code == 0 and ran.told.get("check") == "fail":
        return Wrong(message=f"{ran.name} ended with the line `check: fail`, and does not say why")
    if ran.code == 0:
        return Wrong(message=f"{ran.name} ended without the line `check: pass`, or without a result of every case")
    if ran.code == 112:
        return Wrong(message=f"{ran.name} exited with 112: {EXITS[112]}")
    why = f": {error or EXITS[ran.code]}" if error or ran.code in EXITS else ""
    return Crashed(rank=0, message=f"{ran.name} {end_text(ran.code)}{why}", log_tail=ran.stderr[-TAIL_CHARS:])
