"""Judges one candidate after the other on ranks that are kept, and says what each comes to.

A candidate's stages: `check`, on CPU ranks before any GPU; `test`, the suite's tests beside those of other candidates;
`screen`, these tests and what shows in little time how fast it is; `time`, the latter alone, where it passed the tests;
`full`, all of the suite. `full` is what `eval` does, on kept ranks.
"""

import contextlib
from dataclasses import dataclass, replace
from typing import Literal

from harness.agents.made import refused, result_of
from harness.agents.result import Conditions, Result
from harness.agents.reward import Function
from harness.board import leaderboard
from harness.board.entries import Board
from harness.core import accounts
from harness.core.checkout import Checkout
from harness.core.errors import BadFileError, HarnessError, UsageError
from harness.core.records import EvalReport, Mode, Submission
from harness.evaluation.controls import Controls
from harness.evaluation.evaluate import evaluate
from harness.judging import verdict
from harness.kinds.kind import Order, Progress, SessionPool, Setting
from harness.kinds.registry import kind_of, plan_of, pool_of
from harness.kinds.settings import Asked, setting
from harness.problems.skeleton import submission_text
from harness.problems.submission import digest

Stage = Literal["check", "test", "screen", "time", "full"]
QUICK = "quick"  # the suite of tiny shapes, which most problems have
# How long a candidate's tests and its import may take: so many times what the reference's take, but not less than this.
TIMES_REFERENCE, LEAST_S, IMPORT_S = 50.0, 10.0, 40.0
SCREEN_S = 0.25  # a shape is screened: launches of one source differ by more than so many samples do
# After which a candidate is given up whose processes only sleep. On a GPU they may sleep while it works.
IDLE_S, IDLE_ON_GPU_S = 3.0, 6.0


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The terms by which all candidates of a population are judged. `asked` names problem, suite, device and ranks;
    `patient`: candidates may hang for as long as a single evaluation lets them."""

    asked: Asked
    mode: Mode = "leaderboard"
    author: str = ""
    reward: Function = "log2_speedup"
    lower: bool = False
    patient: bool = False


class Judge:
    """Judges candidates, in a context that ends the processes it keeps. Raises HarnessError at its start where the
    terms cannot be met here, for example because the reference fails."""

    def __init__(self, terms: Terms, checkout: Checkout, progress: Progress | None = None) -> None:
        self.terms, self.checkout, self.progress = terms, checkout, progress or Progress()
        self.setting = setting(terms.asked, checkout)
        self.screening = screening_of(self.setting)
        self.board = _board(checkout)
        made = self.setting
        self.conditions = Conditions(
            problem=made.problem.name,
            suite=made.suite.name,
            device=made.device,
            ranks=made.world_size,
            function=terms.reward,
            lower=terms.lower,
        )
        self._open = contextlib.ExitStack()
        self._pools: dict[Stage, SessionPool] = {}
        self._settings: dict[Stage, Setting] = {}
        self._limits_s: dict[Stage, float] = {}  # of tests, by the stage whose pool they run on
        self._controls = Controls()

    def __enter__(self) -> "Judge":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the processes that are kept; they start again when they are needed."""
        self._pools.clear()
        self._controls = Controls()
        self._open.close()

    @property
    def is_pooled(self) -> bool:
        """Whether candidates run on processes that are kept, and have tests of their own."""
        return kind_of(self.setting).is_pooled and bool(self.setting.suite.tests)

    def judge(self, submission: Submission, stage: Stage = "full") -> Result:
        """The candidate's result in that stage; an error that is not its fault is a result too."""
        try:
            return self.judge_or_raise(submission, stage)
        except HarnessError as error:
            return refused(error, self.conditions, submission)

    def refuse(self, error: HarnessError, submission: Submission) -> Result:
        """The result of a candidate that cannot be run."""
        return refused(error, replace(self.conditions, suite="", device="", ranks=0), submission)

    def judge_or_raise(self, submission: Submission, stage: Stage = "full") -> Result:
        """The candidate's result. An error that is not its fault is raised after a second try."""
        try:
            return self._judged(submission, stage)
        except (UsageError, BadFileError):
            raise
        except HarnessError:
            self.close()
        try:
            return self._judged(submission, stage)
        except HarnessError:
            self.close()
            raise

    def prepare(self) -> None:
        """Finds this machine's peaks and the time limits, if need be. Raises HarnessError where the reference fails."""
        self._setting("full")

    def report(self, submission: Submission, stage: Stage = "full") -> EvalReport:
        """The report of the candidate's evaluation. Raises HarnessError for what is not the submission's fault."""
        mode: Mode = "test" if stage in ("check", "test") else self.terms.mode
        made, author = self._setting(stage), self.terms.author or accounts.login()
        order = Order(setting=made, submission=submission, mode=mode, author=author)
        return evaluate(plan_of(order), self.progress, self._pool(stage, made), self._controls)

    def _judged(self, submission: Submission, stage: Stage) -> Result:
        report = self.report(submission, stage)
        is_final = stage == "full" and self.terms.mode == "leaderboard"
        return result_of(report, self.terms.reward, self.terms.lower, is_final=is_final, board=self.board)

    def _pool(self, stage: Stage, made: Setting) -> SessionPool:
        where = _where(stage)
        if where not in self._pools:
            self._pools[where] = self._open.enter_context(pool_of(made))
        return self._pools[where]

    def _setting(self, stage: Stage) -> Setting:
        if stage not in self._settings:
            made = self.setting
            if stage == "check":
                made = setting(replace(self.terms.asked, device="cpu", suite=None, cpu_suite=QUICK), self.checkout)
            elif stage in ("screen", "time"):
                made = self.screening or made
            if not self.terms.patient:
                made = self._impatient(made, stage)
            if stage == "test":
                made = replace(made, suite=replace(made.suite, test_timeout_s=min(made.suite.test_timeout_s, LEAST_S)))
            elif stage == "time":
                made = replace(made, suite=replace(made.suite, tests=()))
            self._settings[stage] = made
        return self._settings[stage]

    def _impatient(self, made: Setting, stage: Stage) -> Setting:
        """The setting with limits by the reference's time. HarnessError where the reference fails."""
        idle_s = IDLE_S if made.device == "cpu" else IDLE_ON_GPU_S
        made = replace(made, import_s=IMPORT_S, idle_s=idle_s)
        where = _where(stage)
        if stage != "test" and where not in self._limits_s:
            self._limits_s[where] = min(self._limit_s(made, stage) for _ in range(2))  # the first is from a cold disk
        limit_s = self._limits_s.get(where, made.suite.test_timeout_s)
        return replace(made, suite=replace(made.suite, test_timeout_s=min(made.suite.test_timeout_s, limit_s)))

    def _limit_s(self, made: Setting, stage: Stage) -> float:
        """The time limit of the tests, derived from the reference's time."""
        submission = _reference(made)
        if submission is None:
            return made.suite.test_timeout_s
        order = Order(setting=made, submission=submission, mode="test", author="")
        report = evaluate(plan_of(order), self.progress, self._pool(stage, made))
        if (failed := verdict.first_failure(report)) is not None:
            raise HarnessError(
                f"the reference of {made.problem.name} fails here: {verdict.message(failed.outcome)}; evaluate it "
                "alone to see why"
            )
        return max(LEAST_S, TIMES_REFERENCE * report.phases_s.get("test", made.suite.test_timeout_s))


def _where(stage: Stage) -> Stage:
    """The stage whose ranks serve this one: those of one device serve all but `check`."""
    return "check" if stage == "check" else "full"


def screening_of(made: Setting) -> Setting | None:
    """The suite with less time for each of its shapes, where these take the time that they are given: tiny shapes show
    what a call costs its host, and not which kernel is fast on large ones. Elsewhere its tests with the quick shapes as
    benchmarks. None where that would be no less."""
    if kind_of(made).is_pooled:
        brief = replace(made.suite, benchmark_s=SCREEN_S, drawn=0)
        return replace(made, suite=brief, is_brief=True) if made.suite.benchmark_s > 2 * SCREEN_S else None
    if made.suite.name == QUICK or QUICK not in made.problem.suites:
        return None
    quick = made.problem.with_world_size(made.problem.suite(QUICK), made.world_size)
    quick = replace(  # limits too: what an evaluation by itself has the time to compile has it here
        quick,
        tests=made.suite.tests,
        benchmark_s=min(quick.benchmark_s, SCREEN_S),
        test_timeout_s=made.suite.test_timeout_s,
        ranked_timeout_s=max(quick.ranked_timeout_s, made.suite.ranked_timeout_s),
        benchmark_timeout_s=max(quick.benchmark_timeout_s, made.suite.benchmark_timeout_s),
    )
    return replace(made, suite=quick)


def _reference(made: Setting) -> Submission | None:
    """The submission that is or calls the reference, where a problem's first submission does."""
    try:
        text = submission_text(made.problem)
    except HarnessError:
        return None
    found = Submission(path="reference.py", name="the reference", source=text, sha256=digest(text, ()))
    return found if "ref_kernel" in text or kind_of(made).is_reference(found, made.problem) else None


def _board(checkout: Checkout) -> Board:
    """The board with the launch noise measured here; without one, the usual noise."""
    try:
        return leaderboard.load(checkout.leaderboard)
    except HarnessError:
        return Board()
