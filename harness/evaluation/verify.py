"""The verb `verify`: does an entry's stored source reproduce what the entry claims?

Runs it in N independent launches, each a whole evaluation with ranks, inputs, secret and compile caches of its own,
under today's checks: a file finds nothing of an earlier launch. docs/statistics.md has the rule and how often it errs.
What is behind it:

- The speedup decides, since reference and submission were timed in turn in it, so that a machine that is slower today
  is in both. Where the score is slower than recorded though the speedup is there, so was the reference; the decision
  says by how much. A score that is relative to others' results says nothing of the machine. Points that are a product
  of ratios to the reference (llama's) have to reproduce too, since they rank and have further factors than the speedup.
  Of a solver, the speedup is the ratio of costs; its launches differ by their seeds too.
- The allowance is a prediction interval for one more launch, which is what the entry was. The entry's own interval
  would not do by itself: it is of calls within one launch, and launches differ by more. It is 5 % at least, as launches
  of an hour differ less than those of a week, and 25 % at most, as noise must not excuse everything. One-sided, because
  an entry that claims less than it can do takes nobody's place.
- A launch that does not pass holds the entry at once. The checks of BY_CHANCE hold an honest launch now and then on a
  busy machine: they compare times, or tell of a broken judge, which the machine may have ended. So it takes two of
  them; a claim that needs a cheat needs it in most launches.
- A launch that ends with an error says nothing of the submission, and whoever could cause one each time would never be
  held. So it is made again with the reference as the submission. If that passes, it counts as held for a broken judge;
  if not, the machine is to blame, and nothing is decided.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

from harness.board import judgements, runs
from harness.board.entries import Board, Entry, Judged, Verification, one_line
from harness.core.checkout import Checkout
from harness.core.errors import Exit, HarnessError, UsageError
from harness.core.olympic import LEAST_RUNS, olympic_mean
from harness.core.records import EvalReport, Held, Score, Submission
from harness.core.stats import student_t
from harness.core.words import clean_line, count_text
from harness.evaluation.evaluate import broken, evaluate
from harness.judging import verdict
from harness.kinds.gpu_only import GpuOnlyError
from harness.kinds.kind import BROKE_ITS_JUDGE, Order, Progress, Setting
from harness.kinds.registry import find, plan_of
from harness.machine import host
from harness.problems.problem import Problem
from harness.problems.skeleton import submission_text
from harness.problems.submission import digest

LAUNCHES, LEAST_LAUNCHES = 5, LEAST_RUNS
CONFIDENCE = 0.975  # one-sided; two-sided it is the 95 % of every interval here
LEAST_ALLOWANCE = math.log(1.05)
MOST_ALLOWANCE = math.log(1.25)
LONGER = "longer ones (--seconds; in a contest, `seconds` of its setting)"
Z95 = 1.96  # half of a 95 % interval in standard errors
BY_CHANCE = ("clock", "cache", BROKE_ITS_JUDGE)  # checks that a busy machine may cause
JSON_SCHEMA = 1  # of --json; 1: first
Word = Literal["verified", "held", "undecided"]
SEVERITY: tuple[Word, ...] = ("verified", "undecided", "held")
EXITS: dict[Word, Exit] = {"verified": Exit.OK, "held": Exit.INVALID, "undecided": Exit.ERROR}


@dataclass(frozen=True, kw_only=True)
class EntryClaim:
    """What an entry says of itself; `ci` is its own 95 % interval of the ratio."""

    score: Score
    ratio: float
    ci: tuple[float, float] | None


@dataclass(frozen=True, kw_only=True)
class Mean:
    """The Olympic mean over launches with its 95 % interval."""

    value: float
    ci: tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What the launches say of the claim, in a word and in a sentence. `check` names who holds it; the figures are
    None where a launch did not pass. `allowance` is the part of the claim that noise may take."""

    word: Word
    why: str
    check: str = "verify"
    score: Mean | None = None
    ratio: Mean | None = None
    allowance: float | None = None


# ---- the rule --------------------------------------------------------------------------------------------------------
def decide(claim: EntryClaim | None, scores: Sequence[float], speedups: Sequence[float]) -> Decision:
    """The rule, over launches that all passed; without a claim (a held evaluation had no figures) they suffice."""
    count = len(speedups)
    logs = [math.log(value) for value in speedups]
    spread, kept = statistics.stdev(logs), count - 2
    t = student_t(CONFIDENCE, count - 1)
    speedup = _mean(math.exp(olympic_mean(logs)), t * spread / math.sqrt(kept))
    score_spread = statistics.stdev([math.log(value) for value in scores])
    score = _mean(olympic_mean(scores), t * score_spread / math.sqrt(kept))
    if claim is None:
        why = f"{count} launches passed every check"
        return Decision(word="verified", why=why, score=score, ratio=speedup)
    own = math.log(claim.ci[1] / claim.ci[0]) / 2 / Z95 if claim.ci else 0.0
    deciding = of_speedup = _gap(claim.ratio, speedup.value, logs, own)
    reached = f"{speedup.value:.4g}x the reference (95 % interval {speedup.ci[0]:.4g} to {speedup.ci[1]:.4g})"
    why = of_speedup.sentence(count, reached, f"{claim.ratio:.4g}x")
    if claim.score.better == "more" and not claim.score.relative_by:  # points made of ratios to the reference, too
        of_score = _gap(claim.score.value, score.value, [math.log(value) for value in scores], own)
        reached = f"{score.value:.4g} {claim.score.unit} ({score.ci[0]:.4g} to {score.ci[1]:.4g})"
        why += f"; {of_score.sentence(count, reached, claim.score.text)}"
        deciding = max(of_speedup, of_score, key=lambda gap: SEVERITY.index(gap.word))
    why += _drift(claim, score, of_speedup.excess)
    return Decision(word=deciding.word, why=why, score=score, ratio=speedup, allowance=-math.expm1(-deciding.allowed))


@dataclass(frozen=True, kw_only=True)
class _Gap:
    """By how much a claim exceeds the mean of launches (`excess`), and how much of that noise explains; logarithms."""

    excess: float
    noise: float

    @property
    def allowed(self) -> float:
        return min(max(self.noise, LEAST_ALLOWANCE), MOST_ALLOWANCE)

    @property
    def word(self) -> Word:
        if self.excess <= self.allowed:
            return "verified"
        return "undecided" if self.noise > MOST_ALLOWANCE and self.excess <= self.noise else "held"

    def sentence(self, count: int, reached: str, claimed: str) -> str:
        """What `count` launches reach, beside what was claimed."""
        ending = {
            "verified": f"; up to {-math.expm1(-self.allowed):.0%} less would be noise",
            "held": f"; noise explains {-math.expm1(-self.allowed):.0%}",
            "undecided": f"; noise alone would explain {-math.expm1(-self.noise):.0%} here: let the machine rest, or "
            f"take more --launches or {LONGER}",
        }[self.word]
        return f"{count} launches reach {reached}, {_less(self.excess)} than the entry's claim of {claimed}{ending}"


def _gap(claimed: float, mean: float, logs: Sequence[float], own: float) -> _Gap:
    """Of launches with these logarithms; `own` is the standard error of the claim's."""
    spread = statistics.stdev(logs)
    noise = student_t(CONFIDENCE, len(logs) - 1) * math.sqrt(max(spread, own) ** 2 + spread**2 / (len(logs) - 2))
    return _Gap(excess=math.log(claimed / mean), noise=noise)


def not_passed(report: EvalReport, number: int, count: int) -> Decision:
    """What a launch that did not pass says: the check that held it, or that it failed."""
    result, where = verdict.first_failure(report), f"launch {number} of {count}"
    assert result is not None, "a leaderboard run without figures has failed"
    if isinstance(result.outcome, Held):
        return Decision(word="held", why=f"{where}: {result.outcome.evidence}", check=result.outcome.check)
    kind = f"{verdict.word(result.outcome)} in {result.case.kind} {result.case.title}"
    return Decision(word="held", why=f"{where} does not pass: {kind}: {verdict.message(result.outcome)}")


def _mean(value: float, half: float) -> Mean:
    return Mean(value=value, ci=(value * math.exp(-half), value * math.exp(half)))


def _less(excess: float) -> str:
    return f"{-math.expm1(-excess):.0%} less" if excess > 0 else f"{math.expm1(abs(excess)):.0%} more"


def _drift(claim: EntryClaim, score: Mean, excess: float) -> str:
    """What a score that is a time says too: by how much the machine, as the reference shows it, was another."""
    if claim.score.unit != "s":
        return ""
    drift = math.log(score.value / claim.score.value) - excess
    if abs(drift) < LEAST_ALLOWANCE:
        return ""
    slower = f"{math.expm1(abs(drift)):.0%} {'slower' if drift > 0 else 'faster'}"
    return f"; the machine, reference included, was about {slower} than then"


# ---- launches --------------------------------------------------------------------------------------------------------
def check_machine(one: Judged) -> None:
    """Raises UsageError where this machine cannot run what the entry was measured on. Which model a GPU is, is known
    only in a launch: `launch` looks."""
    gpus, there = host.gpus(), measured_on(one)
    if one.device != "cpu" and (one.device != gpus.device or gpus.count < one.world_size):
        raise UsageError(f"{there}; this machine has {gpus.told}: run it there")
    here = host.environment("", one.world_size).machine_class
    if one.device == "cpu" and here != one.machine_class:
        raise UsageError(f"{there}; this one is {here}, and figures of two machines do not compare: run it there")


def measured_on(one: Judged) -> str:
    """Where the entry was measured, as the beginning of an error."""
    ranks = count_text(one.world_size, "rank")
    return f"{one.run_id} was measured on {one.machine_class} (--device {one.device}, {ranks})"


def setting_for(one: Judged, problem: str | None, seconds: float | None, checkout: Checkout) -> Setting:
    """Where and on which shapes the entry was evaluated, as they are today, with fresh compile caches. `problem` is
    where its problem lies, where its name does not say that.

    Raises UsageError where there is no such problem, suite or split any more.
    """
    if isinstance(one, Entry) and one.ratio is None:
        raise UsageError(
            f"{one.run_id} is what a problem folder's own eval.py told, without a reference beside it: there is no "
            "speedup to reproduce; evaluate it with our clocks (--eval ours)"
        )
    try:
        found = find(problem or one.problem, checkout)
    except UsageError as error:
        hint = "" if problem else "; one in a folder of its own is named with --problem FOLDER"
        raise UsageError(f"{error}{hint}") from None
    suite = found.with_world_size(found.suite(one.suite), one.world_size)
    if seconds is not None:
        suite = replace(suite, benchmark_s=seconds)
    return Setting(
        problem=found,
        suite=suite,
        device=one.device,
        world_size=one.world_size,
        is_cpu_asked=one.device == "cpu",
        fresh_caches=True,
    )


def launch(one: Judged, setting: Setting, submission: Submission, progress: Progress) -> EvalReport:
    """One whole evaluation of the entry's source, under the entry's author; held where it ends with an error and the
    reference in its place passes. Raises UsageError where it turns out to have run on another machine, HarnessError
    where nothing can be said of the submission."""
    order = Order(setting=setting, submission=submission, mode="leaderboard", author=one.author)
    plan = plan_of(order)
    try:
        report = evaluate(plan, progress)
    except HarnessError as ended:
        if isinstance(ended, GpuOnlyError) and ended.may_run:
            raise
        error = ended
    else:
        here = report.environment.machine_class if report.environment else one.machine_class
        if here != one.machine_class:
            raise UsageError(f"{one.run_id} was measured on {one.machine_class}, this is {here}: run it there")
        if verdict.status(report) != "error":
            return report
        error = HarnessError(
            "a launch ended before every shape was run, so nothing was changed; `python -m harness doctor` says what "
            "is wrong with the machine"
        )
    progress.note(clean_line(str(error)))
    progress.note("repeats the launch with the reference as the submission, to see whose failure it is")
    if not reference_passes(order, progress):
        raise error
    why = f"its evaluation ended with an error, and that of the reference passes: {error}"
    return broken(plan, one_line(why))


def plain(problem: Problem) -> Submission:
    """A submission that is right: it calls the reference, say. Raises BadFileError where the problem has none."""
    source = submission_text(problem)
    return Submission(path="reference.py", name="reference.py", source=source, sha256=digest(source, ()))


def reference_passes(order: Order, progress: Progress) -> bool:
    """Whether that evaluation passes here and now with the reference as the submission."""
    try:
        report = evaluate(plan_of(replace(order, submission=plain(order.setting.problem))), progress)
    except HarnessError:
        return False
    return verdict.status(report) == "pass"


@dataclass(frozen=True, kw_only=True)
class Ready:
    """An entry that is to be run again: on what, which source, and the version of the problem."""

    one: Judged
    setting: Setting
    submission: Submission
    version: str


def prepared(one: Judged, problem: str | None, seconds: float | None, confined: bool, checkout: Checkout) -> Ready:
    """What the entry's launches need. Raises UsageError if they cannot run here, SourceError without the source."""
    check_machine(one)
    setting = replace(setting_for(one, problem, seconds, checkout), confined=confined)
    version = judgements.problem_version(setting.problem, setting.suite, setting.device)
    if one.problem_version not in (None, version):
        raise UsageError(
            f"{one.run_id} was judged under another version of {one.problem} than this checkout's: "
            f"`python -m harness rejudge --entry {one.run_id} --apply` first"
        )
    submission = runs.load_source(one.sha256, one.file, checkout.root, one.run_id)
    return Ready(one=one, setting=setting, submission=submission, version=version)


def launches(
    ready: Ready, count: int, checkout: Checkout, progress: Callable[[int], AbstractContextManager[Progress]]
) -> list[EvalReport]:
    """`count` launches that passed, or as many as it takes to know that the entry is held. Each is stored in runs/.
    `progress` gets the number of the launch, from 1."""
    reports: list[EvalReport] = []
    while sum(report.figures is not None for report in reports) < count:
        with progress(len(reports) + 1) as one:
            report = launch(ready.one, ready.setting, ready.submission, one)
        runs.store(report, checkout.root)
        reports.append(report)
        if deciding(reports) is not None:
            break  # what holds the entry is known
    return reports


def claim_of(one: Judged) -> EntryClaim | None:
    """What the entry claims; None for a held evaluation that ended before it had figures."""
    if one.score is None or one.ratio is None:
        return None
    ci = one.ratio_ci if isinstance(one, Entry) else None
    return EntryClaim(score=one.score, ratio=one.ratio, ci=ci)


def decision_of(one: Judged, reports: Sequence[EvalReport], count: int) -> Decision:
    """What the launches say: one that did not pass, unless chance explains it, else the rule over those that did."""
    if (number := deciding(reports)) is not None:
        return not_passed(reports[number - 1], number, count)
    figures = [report.figures for report in reports if report.figures is not None]
    ratios = [each.ratio.value for each in figures if each.ratio is not None]
    if len(ratios) < len(figures):
        return Decision(
            word="undecided",
            why=f"{len(figures) - len(ratios)} of {len(figures)} launches have no figures of the reference, so there "
            f"is no ratio to compare: let the machine rest, or take {LONGER}",
        )
    decision = decide(claim_of(one), [each.score.value for each in figures], ratios)
    if len(figures) == len(reports):
        return decision
    check = next(held_by_chance(report) for report in reports if held_by_chance(report))
    return replace(decision, why=f"{decision.why}; one launch more was held ({check}), which a busy machine can cause")


def deciding(reports: Sequence[EvalReport]) -> int | None:
    """The number, from 1, of the launch that holds the entry by itself: the first that did not pass, or the second that
    chance might have held. None where there is none yet."""
    by_chance = 0
    for number, report in enumerate(reports, start=1):
        if report.figures is None:
            by_chance += 1
            if not held_by_chance(report) or by_chance > 1:
                return number
    return None


def held_by_chance(report: EvalReport) -> str:
    """The check that held the launch, if a busy machine may have caused that, or ""."""
    failed = verdict.first_failure(report)
    outcome = failed.outcome if failed else None
    return outcome.check if isinstance(outcome, Held) and outcome.check in BY_CHANCE else ""


def applied(found: Board, one: Judged, decision: Decision, reports: Sequence[EvalReport], version: str) -> Board:
    """The board after that decision. A held evaluation that is verified becomes an entry with the figures of the launch
    in the middle. Raises HarnessError where the entry was changed meanwhile."""
    run_ids = tuple(report.run_id for report in reports)
    if decision.word == "undecided":
        return found
    if decision.word == "held":
        return judgements.replaced(
            found,
            one,
            judgements.held(one, decision.check, decision.why, run_ids, version),
            "verify did not reproduce it",
        )
    assert decision.score is not None
    assert decision.ratio is not None
    verified = Verification(
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        launches=sum(report.figures is not None for report in reports),
        run_ids=run_ids,
        score=decision.score.value,
        score_ci=decision.score.ci,
        ratio=decision.ratio.value,
        ratio_ci=decision.ratio.ci,
        confined=all(report.confined for report in reports),
    )
    why = f"verified: {decision.why}"
    if isinstance(one, Entry):
        return judgements.confirmed(found, one, verified, why, version)
    entries = [entry for report in reports if (entry := judgements.entry_of(report, version)) is not None]
    middle = sorted(entries, key=lambda entry: entry.score.value)[len(entries) // 2]
    return judgements.replaced(found, one, replace(middle, verified=verified), why)
