"""Runs a problem folder's own evaluator as KernelBot's runner does.

Knows the runner's side of the format (after gpu-mode/kernelbot src/libkernelbot/run_eval.py, read 2026-11): the staged
folder, the cases file, POPCORN_FD, POPCORN_SEED, POPCORN_GPUS, timeouts, the three runs that a ranked evaluation is.
The evaluator is a child process with children of its own. The submission runs in them, unconfined, beside what times
and judges it: nothing that is told is checked here beyond its form.

Differs from the runner where that would lose a result: the pipe is read while the child runs, so that no amount of
text blocks it, and a timeout ends all its processes.
"""

import contextlib
import functools
import os
import shutil
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.core.errors import UsageError
from harness.core.files import remove, write_files
from harness.core.records import Case, Crashed, Measured, Mode, NotRun, Outcome, Params, Passed, Profile
from harness.core.words import cut_line
from harness.gpumode.folder import TaskProblem, cases_text
from harness.gpumode.result_lines import parse
from harness.kinds import staging
from harness.kinds.external.evaluator_run import EvalMode, EvaluatorRun
from harness.kinds.external.programs import LANGUAGES, EvaluatorProgram
from harness.kinds.external.validation import validated
from harness.kinds.gpu_only import refuse_gpu_only
from harness.kinds.kind import Phase, Plan, Progress, SubmissionFailed
from harness.machine import host
from harness.process import compile_cache, cuda_shim_site
from harness.process.child import Ended, run_child

# What eval.py is run in for a phase of each of our modes.
RUNS: dict[tuple[Mode, str], tuple[EvalMode, ...]] = {
    ("test", "test"): ("test",),
    ("benchmark", "benchmark"): ("benchmark",),
    ("leaderboard", "test"): ("test",),
    ("leaderboard", "benchmark"): ("benchmark", "leaderboard"),
    ("profile", "profile"): ("profile",),
}
REASON_CHARS = 300


@dataclass(frozen=True, kw_only=True)
class StandIn:
    """A submission in the place of one that failed. A folder that fails with it too does not run here."""

    source: str
    words: str


REFERENCE = StandIn(
    source="from reference import ref_kernel as custom_kernel\n",
    words="the folder's own reference as the submission",
)
# Where a folder has no ref_kernel. Nothing can be taken from it, so what fails as before has not come to it.
NOTHING = StandIn(
    source="def __getattr__(name):\n    raise RuntimeError('this submission has nothing')\n",
    words="a submission that has nothing",
)


@dataclass(frozen=True, kw_only=True)
class ExternalPlan(Plan):
    """`evaluator_seed` is None where the evaluator has no secret; with `cuda_is_cpu`, "cuda" means the CPU to it."""

    problem: TaskProblem
    cuda_is_cpu: bool = False

    @property
    def suite_name(self) -> str:
        """Such runs are ranked apart."""
        return "theirs"


class ExternalSession(staging.StagedSession):
    """The runs of eval.py. A phase of ours is one run or several, made when it is opened."""

    plan: ExternalPlan

    def __init__(self, plan: ExternalPlan, progress: Progress) -> None:
        super().__init__(plan, progress)
        self.due: deque[tuple[Outcome, EvaluatorRun]] = deque()  # of the phase's cases that are not checked yet
        self.outcome: Outcome  # of the case that was checked last, and the run that told it
        self.run: EvaluatorRun
        self.logged: dict[str, tuple[str, ...]] = {}  # the log of each phase's last run, by the phase's name
        self.program: EvaluatorProgram

    # ---- the staged folder

    @property
    def _staged(self) -> Path:
        return self.folder / "staged"

    def _stage(self, files: Mapping[str, bytes]) -> None:
        for path in map(self._staged.joinpath, files):  # a submission may have put a pipe, a link or a folder there
            if path.is_dir() and not path.is_symlink():
                remove(path)
            path.unlink(missing_ok=True)
        write_files(self._staged, files)
        for name in files:
            (self._staged / name).chmod(0o755)  # it may be a program

    def _files(self) -> dict[str, bytes]:
        return staging.files_of(self.plan.problem, self.plan.submission)

    @functools.cached_property
    def environ(self) -> dict[str, str]:
        """The user's variables, without what a submission has no business to know."""
        plan, environ = self.plan, staging.environ_of(self.cache)
        if plan.evaluator_seed is not None:
            environ["POPCORN_SEED"] = str(plan.evaluator_seed)
        if plan.problem.task.multi_gpu:
            environ["POPCORN_GPUS"] = str(host.gpus().count or plan.world_size)
        if plan.cuda_is_cpu:
            hook = self.folder / "hook"
            hook.mkdir()
            shutil.copy(cuda_shim_site.__file__, hook / "sitecustomize.py")
            environ[cuda_shim_site.VARIABLE] = str(cuda_shim_site.SHIM)
            environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(hook), environ.get("PYTHONPATH")]))
        return environ

    def prepare(self) -> None:
        """Compiles the program, or what the submission compiles at its import."""
        files, problem = self._files(), self.plan.problem
        self._stage(files)
        self.program = LANGUAGES[problem.lang].build(problem, files, self.plan.submission, self._compile)
        for name in files.keys() - self.program.files.keys():  # sources of what was compiled
            (self._staged / name).unlink(missing_ok=True)

    def _compile(self, command: list[str]) -> Ended:
        self.progress.phase("compile")
        environ = {**self.environ, "POPCORN_SEED": "1"}
        with self.spending("compile"):
            ended = run_child(command, self._staged, environ, compile_cache.COMPILE_S)
        self.logs["compile"] = f"{' '.join(command)}\n{ended.stdout}{ended.stderr}"
        return ended

    # ---- the cases

    @contextlib.contextmanager
    def phase(self, phase: Phase) -> Iterator[None]:
        """Runs eval.py in the modes that stand for the phase, up to the first run that fails."""
        self._run_all(phase)
        yield

    def _run_all(self, phase: Phase) -> None:
        task, ranks = self.plan.problem.task, {"world_size": self.plan.world_size}
        theirs = task.tests if phase.name == "test" else task.benchmarks[-len(phase.cases) :]
        cases = [{**case, **ranks} if "world_size" in case else case for case in theirs]
        for mode in RUNS[self.plan.mode, phase.name]:
            self.due.clear()
            shapes = {f"{mode} {index}": [case] for index, case in enumerate(cases)}  # each is profiled by its own run
            for label, each in shapes.items() if mode == "profile" else [(mode, cases)]:
                self.progress.phase(mode)
                with self.spending(mode):
                    run = self._run(mode, each, self.program.files)
                texts = (("stdout", run.stdout), ("stderr", run.stderr))  # the submission prints to either
                printed = {f"{label} {name}": text for name, text in texts if text}
                self.logs |= printed
                self.logged[phase.name] = tuple(printed)[-1:]
                self.due += [(outcome, run) for outcome in run.outcomes]
                if run.failure:
                    self._check_blame(run, each)
                    return
            if mode == "leaderboard" and task.validation:
                self.progress.phase("validation")
                self._stage(self._files())
                self.notes.append(validated(self.plan.problem, self._staged, self.environ))

    def check(self, case: Case) -> None:
        """eval.py's word on the next case."""
        if not self.due:  # the run before has failed
            raise SubmissionFailed(NotRun())
        self.outcome, self.run = self.due.popleft()
        if not isinstance(self.outcome, Measured | Passed):
            raise SubmissionFailed(self.outcome)

    def measure(self, case: Case) -> Measured:
        """The times that eval.py tells of the case that was just checked."""
        assert isinstance(self.outcome, Measured), "a case that is right was timed"
        return self.outcome

    def profile(self, case: Case) -> Profile:
        return Profile(ranks=(), trace_json="", text=self.run.profile)

    def logs_of(self, case: Case) -> tuple[str, ...]:
        """The log of the run that the case was last part of, which eval.py and the submission share."""
        return self.logged.get(case.kind, ())

    # ---- one run

    def _run(self, mode: EvalMode, cases: Sequence[Params], files: Mapping[str, bytes]) -> EvaluatorRun:
        self._stage(files)
        file = self.folder / "cases.txt"
        file.write_text(cases_text(cases), encoding="utf-8")
        suite, command = self.plan.suite, self.program.command
        limits = {"test": suite.test_timeout_s, "leaderboard": suite.ranked_timeout_s}
        limit_s = limits.get(mode, suite.benchmark_timeout_s)
        ended = run_child([*command, mode, str(file)], self._staged, self.environ, limit_s)
        return EvaluatorRun(
            mode=mode,
            count=len(cases),
            limit_s=limit_s,
            code=ended.code,
            told=parse(ended.result),
            stdout=ended.stdout,
            stderr=ended.stderr,
            name=Path(command[-1]).name,
        )

    def _check_blame(self, run: EvaluatorRun, cases: Sequence[Params]) -> None:
        """Raises UsageError or BadFileError where the machine or the folder is to blame that a run failed: it fails as
        well with another submission, or it was not asked as it wants."""
        plan, problem = self.plan, self.plan.problem
        if plan.device == "cpu":
            refuse_gpu_only(plan.submission, run.stderr, run.last_line)
        if problem.lang == "py":
            stand_in = NOTHING if problem.missing else REFERENCE
            self.progress.note(f"eval.py failed: runs it again with {stand_in.words}")
            files = {**self.program.files, **problem.staged_submission(stand_in.source)}
            control = self._run(run.mode, cases, files)
            if control.failure and (stand_in is REFERENCE or control.ended_as(run)):
                control.check_asked(problem.name)
                is_raised = isinstance(control.failure, Crashed) and control.last_line
                reason = cut_line(control.last_line if is_raised else control.failure.message, REASON_CHARS).rstrip(".")
                advice = f". Next: {advice}" if (advice := problem.advice(plan.device, plan.cuda_is_cpu)) else ""
                log = staging.kept(problem, f"{control.stdout}\n{control.stderr}")
                raise UsageError(
                    f"{reason}: {problem.name} does not run here; {control.name} fails so with "
                    f"{stand_in.words}{advice}{log}"
                )
            if stand_in is REFERENCE:
                return
        run.check_asked(problem.name)
