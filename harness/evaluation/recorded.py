"""One evaluation as a user asks for it: evaluated, then recorded in runs/ and on the board."""

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from harness.board import entries, judgements, leaderboard, places, runs
from harness.board.entries import Board
from harness.board.places import Place
from harness.core.checkout import Checkout
from harness.core.records import EvalReport, HarnessError, Mode, Submission, UsageError
from harness.gpumode.folder import TaskProblem
from harness.kinds import external, settings
from harness.kinds.op import evaluate
from harness.kinds.plan import make_plan
from harness.kinds.settings import Setting
from harness.report.progress import ProgressLine


@dataclass(frozen=True, kw_only=True)
class Ran:
    """An evaluation and what became of it: its place where it was recorded as an entry, on which board, and why it
    could not be recorded where that is so."""

    report: EvalReport
    standing: Board | None
    place: Place | None
    unrecorded: HarnessError | None


def evaluated(
    setting: Setting,
    submission: Submission,
    mode: Mode,
    author: str,
    checkout: Checkout,
    *,
    record: bool,
    traces: Path | None = None,
    quiet: bool = False,
) -> Ran:
    """Evaluates and, if asked to, records. Whether it could be recorded is known before anything runs; what goes wrong
    with it afterwards does not take away what was measured. Raises HarnessError where nothing could be measured."""
    earlier = leaderboard.load(checkout.leaderboard) if record else None
    version = judgements.problem_version(setting.problem, setting.suite) if record else None
    if record:
        leaderboard.check_writable(checkout.leaderboard)
    with ProgressLine(Console(stderr=True), silent=quiet) as progress:
        report = _report(setting, submission, mode, author, progress)
    place = None
    try:
        if mode == "profile":
            report = runs.store_traces(report, traces or checkout.runs / report.run_id)
        if record:
            runs.store(report, checkout.root)
            if mode == "leaderboard" and (judged := judgements.judged(report, version)) is not None:
                earlier = leaderboard.record(checkout.leaderboard, judged)
                place = places.place_of(earlier, judged) if isinstance(judged, entries.Entry) else None
    except HarnessError as error:
        return Ran(report=report, standing=earlier, place=None, unrecorded=error)
    return Ran(report=report, standing=earlier, place=place, unrecorded=None)


def _report(setting: Setting, submission: Submission, mode: Mode, author: str, progress: ProgressLine) -> EvalReport:
    problem = setting.problem
    cuda_is_cpu, notes = settings.conditions(setting, submission)
    if setting.evaluator == "theirs":
        if not isinstance(problem, TaskProblem):
            raise UsageError(f"--eval theirs: {problem.name} is no problem folder with an eval.py; leave it out")
        order = external.Order(
            problem=problem,
            suite=setting.suite,
            submission=submission,
            mode=mode,
            device=setting.device,
            world_size=setting.world_size,
            author=author,
            seed=setting.seed,
            cuda_is_cpu=cuda_is_cpu,
            notes=notes,
        )
        return external.evaluate(order, progress)
    plan = make_plan(
        problem,
        setting.suite,
        submission,
        mode,
        setting.device,
        setting.world_size,
        author,
        cuda_is_cpu=cuda_is_cpu,
        confined=setting.confined,
        notes=notes,
    )
    progress.expect(plan)
    return evaluate(plan, progress)
