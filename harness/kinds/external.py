"""A problem folder's own evaluator, run as KernelBot's runner runs it, and its word as a report of ours.

Knows the runner's side of the format (after gpu-mode/kernelbot src/libkernelbot/run_eval.py, read 2026-11): the staged
folder, the cases file, POPCORN_FD, POPCORN_SEED, POPCORN_GPUS, the keys that come back, exit codes, timeouts, the three
runs that a ranked evaluation is. The evaluator is a child process with children of its own. The submission runs in
them, unconfined, beside what times and judges it: nothing that is told is checked here beyond its form.

Differs from the runner where that would lose a result: the pipe is read while the child runs, so that no amount of
text blocks it; a timeout ends all its processes; and what passes has passed in every case, not only by `check: pass`.
"""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, Protocol, get_args

from harness.core.files import remove
from harness.core.records import (
    BadFileError,
    Case,
    CaseResult,
    Crashed,
    EvalReport,
    Failure,
    Mode,
    NotRun,
    Outcome,
    Params,
    Passed,
    Submission,
    TimedOut,
    Told,
    UsageError,
    Wrong,
    new_run_id,
)
from harness.gpumode.folder import TaskProblem, cases_text
from harness.gpumode.result_lines import number, parse, profile_text
from harness.machine import host
from harness.machine.gpus import gpu_names
from harness.problems.problem import Suite
from harness.process import compile_cache, cuda_shim_site, sandbox
from harness.process.child import Ended, run_child, search_path, signal_name

Phase = Literal["test", "benchmark", "leaderboard", "profile"]
PHASES: dict[Mode, tuple[Phase, ...]] = {
    "test": ("test",),
    "benchmark": ("benchmark",),
    "leaderboard": ("test", "benchmark", "leaderboard"),
    "profile": ("profile",),
}
SUITE = "theirs"  # what such a run is recorded under, and so ranked apart from ours
COMPILE_S = 600.0
TAIL_CHARS = 4000  # of it, in an outcome
EXITS = {110: "a CUDA call failed", 111: "it was given no POPCORN_FD", 112: "it says that the submission is wrong"}
NOTE = (
    "judged and timed by the folder's own eval.py, in processes that also run the submission and are not confined: "
    "its word is taken, and such runs are ranked apart"
)


class Progress(Protocol):
    """Who is told how far it is."""

    def phase(self, name: str) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Order:
    """What is to be evaluated. `suite` has the timeouts; `seed` is the secret, None for the one in task.yml, if any."""

    problem: TaskProblem
    suite: Suite
    submission: Submission
    mode: Mode
    device: str
    world_size: int
    author: str
    seed: int | None = None
    cuda_is_cpu: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Ran:
    """One run of eval.py. `code` is None where its time was up. `told` are its result lines, the last of a key."""

    code: int | None
    told: dict[str, str]
    stdout: str
    stderr: str


def told_by(ended: Ended) -> Ran:
    """The run with its result lines read."""
    return Ran(code=ended.code, told=parse(ended.result), stdout=ended.stdout, stderr=ended.stderr)


def evaluate(order: Order, progress: Progress) -> EvalReport:
    """Runs eval.py in the modes that make up the one asked for, up to the first that fails. What the submission does
    wrong is in the report. Raises BadFileError for cases that eval.py does not take, UsageError where it knows no such
    mode or wants CUDA and there is none."""
    return _Evaluation(order, progress).run()


class _Evaluation:
    def __init__(self, order: Order, progress: Progress) -> None:
        self.order, self.progress = order, progress
        self.started = datetime.now(UTC)
        self.phases_s: dict[str, float] = {}
        self.logs: dict[str, str] = {}
        task = order.problem.task
        # Where the last shape ranks, KernelBot runs no other.
        timed = task.benchmarks[-1:] if task.ranking_by == "last" else task.benchmarks
        self.cases = {phase: self._placed(task.tests if phase == "test" else timed) for phase in get_args(Phase)}
        self.seed = task.seed if order.seed is None else order.seed

    def run(self) -> EvalReport:
        folder = Path(tempfile.mkdtemp(prefix="kernel-eval-"))
        cache = compile_cache.folder(self.order.problem.root, self.order.submission.sha256) or folder / "cache"
        cache.mkdir(exist_ok=True)
        outcomes: dict[str, list[Outcome]] = {}
        try:
            with compile_cache.held(cache):
                environ = self._environ(folder, cache)
                if compile_cache.compiles(self.order.submission):
                    self._compile(folder, environ)
                for phase in PHASES[self.order.mode]:
                    outcomes[phase] = self._phase(phase, folder, environ)
                    if any(isinstance(outcome, get_args(Failure)) for outcome in outcomes[phase]):
                        break
        finally:
            remove(folder)
        return self._report(outcomes)

    def _compile(self, folder: Path, environ: Mapping[str, str]) -> None:
        """As KernelBot's: the submission is run once alone, and what its import compiles is there for the rest."""
        began = time.monotonic()
        self.progress.phase("compile")
        self._stage(folder)
        name = self.order.problem.entries[0]
        alone = {**environ, "POPCORN_SEED": "1"}
        ran = run_child([sys.executable, name], _stage_folder(folder), alone, COMPILE_S)
        self.logs["compile"] = ran.stdout + ran.stderr
        self.phases_s["compile"] = time.monotonic() - began

    def _phase(self, phase: Phase, folder: Path, environ: Mapping[str, str]) -> list[Outcome]:
        began = time.monotonic()
        self.progress.phase(phase)
        self._stage(folder)
        cases = folder / "cases.txt"
        cases.write_text(cases_text(self.cases[phase]), encoding="utf-8")
        main, suite = self.order.problem.task.config.main, self.order.suite
        limits = {"test": suite.test_timeout_s, "leaderboard": suite.ranked_timeout_s}
        limit_s = limits.get(phase, suite.benchmark_timeout_s)
        command = [sys.executable, main, phase, str(cases)]
        ran = told_by(run_child(command, _stage_folder(folder), environ, limit_s))
        self.phases_s[phase] = time.monotonic() - began
        texts = {"stdout": ran.stdout, "stderr": ran.stderr}
        self.logs |= {f"{phase} {name}": text for name, text in texts.items() if text}
        for index in range(len(self.cases[phase])):
            if report := ran.told.get(f"benchmark.{index}.report"):
                self.logs[f"profile {index}"] = profile_text(report)
        self._check(ran, phase)
        return outcomes_of(phase, len(self.cases[phase]), ran, limit_s)

    def _check(self, ran: Ran, phase: Phase) -> None:
        """Raises HarnessError for what is not the submission's fault."""
        order = self.order
        said = ran.stderr.strip()[-TAIL_CHARS:]
        if ran.code not in (0, 112):
            order.problem.check_failure(ran.stderr, order.device, order.cuda_is_cpu)
        if ran.code == 113:
            raise BadFileError(f"{order.problem.name}: its eval.py does not take its cases (exit 113): {said}")
        if ran.code == 2 and not ran.told:
            raise UsageError(f"{order.problem.name}: its eval.py does not know the mode {phase} (exit 2): {said}")

    def _stage(self, folder: Path) -> None:
        problem = self.order.problem
        files = problem.staged() | problem.staged_submission(self.order.submission.source)
        for module in self.order.submission.modules:
            files[module.name.replace(".", "/") + ".py"] = module.source.encode()
        for name, data in files.items():
            path = _stage_folder(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            # A submission may have put a pipe, a link or a folder there.
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            path.unlink(missing_ok=True)
            path.write_bytes(data)

    def _environ(self, folder: Path, cache: Path) -> dict[str, str]:
        """The user's, without what a submission has no business to know."""
        order = self.order
        environ = sandbox.environment(os.environ) | {name: str(cache / sub) for name, sub in sandbox.CACHES.items()}
        environ["PATH"] = search_path()
        if self.seed is not None:
            environ["POPCORN_SEED"] = str(self.seed)
        if order.problem.task.multi_gpu:
            environ["POPCORN_GPUS"] = str(host.gpus().count or order.world_size)
        if order.cuda_is_cpu:
            hook = folder / "hook"
            hook.mkdir()
            shutil.copy(cuda_shim_site.__file__, hook / "sitecustomize.py")
            environ[cuda_shim_site.VARIABLE] = str(cuda_shim_site.SHIM)
            environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(hook), environ.get("PYTHONPATH")]))
        return environ

    def _placed(self, cases: tuple[Params, ...]) -> tuple[Params, ...]:
        """On as many ranks as will run."""
        ranks: Params = {"world_size": self.order.world_size}
        return tuple(case | ranks if "world_size" in case else case for case in cases)

    def _report(self, outcomes: Mapping[str, Sequence[Outcome]]) -> EvalReport:
        order = self.order
        results: list[CaseResult] = []
        if order.mode in ("test", "leaderboard"):
            results += self._results("test", outcomes.get("test"))
        if order.mode != "test":
            last = next((phase for phase in ("leaderboard", "benchmark", "profile") if phase in outcomes), None)
            results += self._results("benchmark", outcomes[last] if last else None)
        model = (gpu_names() or ("",))[0] if order.device != "cpu" else ""
        return EvalReport(
            run_id=new_run_id(self.started),
            started_at=self.started.isoformat(timespec="seconds"),
            problem=order.problem.name,
            submission=order.submission,
            author=order.author,
            device=order.device,
            world_size=order.world_size,
            suite=SUITE,
            mode=order.mode,
            ranking_by=order.problem.ranking_by,
            results=tuple(results),
            empty_call_samples_us={},
            peaks=None,
            environment=host.environment(model, order.world_size),
            phases_s=self.phases_s,
            secret_seed=self.seed or 0,
            warnings=(NOTE, *order.notes),
            logs=self.logs,
            gate="theirs",
            confined=False,
        )

    def _results(self, phase: Phase, outcomes: Sequence[Outcome] | None) -> list[CaseResult]:
        suite, ranks = self.order.suite, self.order.world_size
        cases: Sequence[Case] = suite.tests if phase == "test" else suite.benchmarks[-len(self.cases[phase]) :]
        if self.order.mode == "profile":
            cases = [replace(case, kind="profile") for case in cases]
        found = outcomes or [NotRun() for _ in cases]
        return [
            CaseResult(case=replace(case, world_size=ranks), outcome=outcome)
            for case, outcome in zip(cases, found, strict=True)
        ]


def _stage_folder(folder: Path) -> Path:
    return folder / "staged"


def outcomes_of(phase: Phase, count: int, ran: Ran, limit_s: float) -> list[Outcome]:
    """What became of each of `count` cases in one run. Where that did not pass, one of them at least has failed."""
    outcomes = [_outcome(phase, index, ran.told) for index in range(count)]
    done = ran.code == 0 and ran.told.get("check") == "pass" and not any(isinstance(one, NotRun) for one in outcomes)
    if not done and not any(isinstance(one, get_args(Failure)) for one in outcomes):
        unfinished = (index for index, one in enumerate(outcomes) if isinstance(one, NotRun))
        outcomes[next(unfinished, count - 1)] = _ended(phase, ran, limit_s)
    return outcomes


def _outcome(phase: Phase, index: int, told: Mapping[str, str]) -> Outcome:
    key = f"{'test' if phase == 'test' else 'benchmark'}.{index}"
    status = told.get(f"{key}.status")
    if status == "fail":
        return Wrong(message=told.get(f"{key}.error") or "eval.py says that it fails, and not why")
    if phase == "test":
        return Passed() if status == "pass" else NotRun()
    if phase == "profile":
        return Passed() if f"{key}.report" in told else NotRun()
    values = {name: number(told.get(f"{key}.{name}")) for name in ("runs", "mean", "std", "err", "best", "worst")}
    mean = values["mean"]
    if mean is None or mean <= 0:
        return NotRun()
    return Told(
        runs=int(values["runs"] or 1),
        mean_us=mean / 1000,
        std_us=(values["std"] or 0.0) / 1000,
        err_us=(values["err"] or 0.0) / 1000,
        best_us=(values["best"] or mean) / 1000,
        worst_us=(values["worst"] or mean) / 1000,
    )


def _ended(phase: Phase, ran: Ran, limit_s: float) -> Wrong | Crashed | TimedOut:
    """How a run ended that neither passed nor says which case failed."""
    if ran.code is None:
        return TimedOut(message=f"eval.py {phase} had not finished after {limit_s:g} s", stacks=())
    if ran.code == 0:
        return Wrong(message="eval.py ended without the line `check: pass`, or without a result of every case")
    if ran.code == 112:
        return Wrong(message=f"eval.py exited with 112: {EXITS[112]}")
    name = f"was killed by {signal_name(-ran.code)}" if ran.code < 0 else f"exited with code {ran.code}"
    why = f": {EXITS[ran.code]}" if ran.code in EXITS else ""
    return Crashed(rank=0, message=f"eval.py {name}{why}", log_tail=ran.stderr[-TAIL_CHARS:])
