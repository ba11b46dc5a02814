"""The verb `compare`: is B as good as A? Two files measured in turn in one run, or two recorded runs.

What is compared is log(A / B) of the metric that ranks: the time on the wall clock, or the cost of a solver's answers.
(Where more is better it is log(B / A): above 0 is good for B in any case.) Its 95 % interval is Student's t over the
medians of blocks, since neighbours in time resemble each other and a median does not follow an outlier:

- files: samples come in pairs on the same input, in turn, so a block's value is the median of its log ratios;
- runs (compare_runs.py): samples of two runs have nothing in common, but each run timed the reference in turn with its
  file. What is compared is B's speedup / A's speedup: two differences by pairs, with Welch's interval. The interval has
  twice the variance of what launches of one source differ by (board.places.noise_of) added, and is 25 % wider on either
  side where the runs are not known to be of one machine. Where the reference differs between the runs by more than the
  files seem to, the word is AMBIGUOUS: the machine was another one by more than is claimed.

Exactly one word applies to an interval (`word`); readers see the metric's own for BETTER and WORSE (core.metrics).
docs/statistics.md says how often one is wrong. Over several shapes the summary is the geometric mean of their ratios;
its interval takes every shape's into account, and its word follows by the same rule.

Knows nothing of processes beyond `evaluate`. What a submission said is shown as plain text.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from harness.core.decode import part
from harness.core.errors import BadSubmissionError, Exit, HarnessError
from harness.core.metrics import UNITS, Metric, Unit
from harness.core.records import EvalReport, Failure, Params, Series, Submission, Warning
from harness.core.stats import CONFIDENCE, LaunchNoise, ratios_of, values_of
from harness.core.words import clean, clean_line
from harness.evaluation.evaluate import evaluate
from harness.judging import verdict
from harness.judging.scoring import SCORINGS
from harness.kinds.kind import OpponentFailed, Plan, Progress

# Of compare's --json. 1: first. 2: of recorded runs `ratio` is of the speedups, and `drift` is the references' ratio.
# Later in 2: `metric`; values of metrics other than times have keys of their unit (`a_cost`); `drift` of each case, and
# `machines_apart`, the factor by which two machines may differ (1 for one).
SCHEMA = 2
MARGIN = 0.02  # room for what favours one group of ranks for a whole run; --margin moves it
SHOWN_LINES = 24
Word = Literal["BETTER", "WORSE", "SAME", "AMBIGUOUS"]
# What --fail-if takes, and the word that each stands for: any metric's words mean the same.
FAIL_IF: dict[str, Word] = {
    **{unit.better: "BETTER" for unit in UNITS.values()},
    **{unit.worse: "WORSE" for unit in UNITS.values()},
    "same": "SAME",
    "ambiguous": "AMBIGUOUS",
}


# ---- the rule --------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class Difference:
    """An estimate of log(A / B), its variance, and how many degrees of freedom that is known with; 0
    where nothing shows how far the estimate may be off."""

    log: float
    variance: float
    freedom: float


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """A / B, above 1 where B is better, and the word for B."""

    value: float
    ci: tuple[float, float] | None  # None where fewer than two blocks of samples were taken
    word: Word


def paired(a_us: Sequence[float], b_us: Sequence[float], size: int) -> Difference:
    """The difference by samples in turn on the same inputs, in blocks of `size`, not a shorter last one of several."""
    logs = [math.log(a) - math.log(b) for a, b in zip(a_us, b_us, strict=True)]
    return _of_blocks(_blocks(logs, size))


def by_references(a: Series, b: Series) -> Difference:
    """The difference of two runs' series, each against its own reference: log(B's speedup / A's speedup)."""
    of_a, of_b = (against_baseline(series) for series in (a, b))
    return _sum([replace(of_a, log=-of_a.log), of_b])


def against_baseline(series: Series) -> Difference:
    """By how much a series' own samples are better than its baseline's."""
    found = paired(series.baseline, series.own, series.block)
    return replace(found, log=series.metric.sign * found.log)


def unpaired(a_us: Sequence[float], b_us: Sequence[float], size: int) -> Difference:
    """The difference by samples of two runs, in blocks of `size`."""
    a, b = (_of_blocks(_blocks([math.log(time) for time in times_us], size)) for times_us in (a_us, b_us))
    return _sum([a, replace(b, log=-b.log)])


def mean(differences: Sequence[Difference]) -> Difference:
    """The mean of independent differences: the logarithm of the geometric mean of their ratios."""
    total, count = _sum(differences), len(differences)
    return replace(total, log=total.log / count, variance=total.variance / count**2)


def ratio(difference: Difference, margin: float, apart: float = 0.0) -> Ratio:
    """The ratio with its interval and its word; without an interval the word is AMBIGUOUS. `apart` is by how much
    log(A / B) may be off beside what samples show."""
    from scipy.special import stdtrit  # a third of a second, which other verbs need not wait for

    value = math.exp(difference.log)
    if difference.freedom <= 0:
        return Ratio(value=value, ci=None, word="AMBIGUOUS")
    half = float(stdtrit(difference.freedom, (1 + CONFIDENCE) / 2)) * math.sqrt(difference.variance) + apart
    low, high = difference.log - half, difference.log + half
    return Ratio(
        value=value,
        ci=(math.exp(max(low, -700.0)), math.exp(min(high, 700.0))),  # beyond it overflows
        word=word(low, high, margin),
    )


def word(low: float, high: float, margin: float) -> Word:
    """The word for an interval of log(A / B), `low` <= `high`; exactly one applies."""
    edge = math.log1p(margin)
    if low > edge:
        return "BETTER"
    if high < -edge:
        return "WORSE"
    return "SAME" if -edge <= low and high <= edge else "AMBIGUOUS"


def shown(word: Word, words: Unit) -> str:
    """What a word is called for that metric."""
    return {"BETTER": words.better.upper(), "WORSE": words.worse.upper()}.get(word, word)


def rule(margin: float, words: Unit) -> str:
    """The rule in two sentences."""
    edge, better, worse = f"{1 + margin:.4g}", shown("BETTER", words), shown("WORSE", words)
    return (
        f"B is {better} when the whole 95 % interval of A / B lies above {edge}, {worse} when it lies below "
        f"1 / {edge}, SAME when it lies between them, AMBIGUOUS when it crosses an edge. Where A and B differ by no "
        f"more than {100 * margin:.4g} %, {better} or {worse} is said in less than 5 % of comparisons."
    )


def _blocks(values: Sequence[float], size: int) -> list[float]:
    """The median of each block."""
    size = min(size, len(values))
    return [statistics.median(values[at : at + size]) for at in range(0, len(values) - size + 1, size)]


def _of_blocks(values: Sequence[float]) -> Difference:
    count = len(values)
    variance = statistics.variance(values) / count if count > 1 else 0.0
    return Difference(log=statistics.fmean(values), variance=variance, freedom=count - 1.0)


def _sum(parts: Sequence[Difference]) -> Difference:
    """The sum of independent differences; degrees of freedom by Welch and Satterthwaite."""
    log, variance = math.fsum(part.log for part in parts), math.fsum(part.variance for part in parts)
    freedoms = [part.freedom for part in parts]
    if min(freedoms) <= 0 or variance == 0:
        return Difference(log=log, variance=variance, freedom=min(freedoms))
    shares = math.fsum((part.variance / variance) ** 2 / part.freedom for part in parts)
    return Difference(log=log, variance=variance, freedom=1 / shares)


# ---- what is compared ------------------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class Side:
    """A or B: a file, and the run where it is one that was recorded."""

    name: str
    sha256: str
    run_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class CaseRow:
    """One case: samples of both sides in the metric's unit and the difference that they show. `drift` is log(A's
    reference / B's reference): by how much the machine itself was another in the other run."""

    label: str
    params: Params
    a: tuple[float, ...]
    b: tuple[float, ...]
    difference: Difference
    drift: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """B against A, by the metric that ranks. `how` their samples were taken: in turn in one run (paired), or in a run
    each (unpaired). Of recorded runs, `noise` is what launches differ by, which is one effect in all rows, and `apart`
    the logarithm of the factor that two machines may differ by (0 where there is one)."""

    metric: Metric
    how: Literal["paired", "unpaired"]
    problem: str
    suite: str
    device: str
    world_size: int
    margin: float
    a: Side
    b: Side
    rows: tuple[CaseRow, ...]
    warnings: tuple[Warning, ...]
    noise: LaunchNoise | None = None
    apart: float = 0.0
    launches: tuple[float, ...] = ()  # log(A / B) in each, the mean over rows

    @property
    def ratios(self) -> tuple[Ratio, ...]:
        """Each row's. AMBIGUOUS where the machine differed by more than the files seem to, in that row."""
        return tuple(self._judged(row.difference, row.drift) for row in self.rows)

    @property
    def summary(self) -> Ratio:
        """The geometric mean of the rows' ratios. AMBIGUOUS where the machine differed by more than the files."""
        return self._judged(mean([row.difference for row in self.rows]), self._moved)

    @property
    def drift(self) -> float:
        """log(A's reference / B's reference), the mean over rows."""
        return statistics.fmean(row.drift for row in self.rows)

    @property
    def is_drift(self) -> bool:
        """Whether the machine differed by more than the files seem to, over all rows."""
        return self._is_drift(mean([row.difference for row in self.rows]), self._moved)

    def is_failed(self, fail_if: Sequence[str]) -> bool:
        """Whether `fail_if` (keys of FAIL_IF) names the summary's word, and it is not by the machine's drift."""
        return self.summary.word in {FAIL_IF[word] for word in fail_if} and not self.is_drift

    @property
    def _moved(self) -> float:
        """By how much rows drifted; rows that drifted in opposite directions do not cancel."""
        return statistics.fmean(abs(row.drift) for row in self.rows)

    def _judged(self, difference: Difference, drift: float) -> Ratio:
        noise = self.noise  # of a launch, of which nothing is known but how much it may be
        launches = [Difference(log=0.0, variance=noise.sd**2, freedom=noise.freedom)] * 2 if noise else []
        found = ratio(_sum([difference, *launches]), self.margin, self.apart)
        return replace(found, word="AMBIGUOUS") if self._is_drift(difference, drift) else found

    def _is_drift(self, difference: Difference, drift: float) -> bool:
        return abs(drift) > max(math.log1p(self.margin), abs(difference.log))


class SideFailed(BadSubmissionError):
    """A or B is wrong, was held, or did not end; `outcome` says how."""

    def __init__(self, text: str, outcome: Failure) -> None:
        super().__init__(text)
        self.outcome = outcome


class SideTimedOut(SideFailed):
    """A or B had not finished at its deadline."""

    exit_code = Exit.TIMED_OUT


def live(plan: Plan, margin: float, progress: Progress) -> Comparison:
    """Times the plan's submission, B, against its opponent, A. What either returns is judged alike, in tests and in
    timed calls. Raises what `_failed` makes where one of them does not pass."""
    a, b = plan.opponent, plan.submission
    assert a is not None, "B is timed against A"
    try:
        report = evaluate(plan, progress)
    except OpponentFailed as failure:
        raise _failed("A", a.name, failure.case, failure.outcome) from None
    _passed("B", report)
    rows = [
        CaseRow(
            label=result.case.title,
            params=result.case.params,
            a=measured.ranked.baseline,
            b=measured.ranked.own,
            difference=against_baseline(measured.ranked),
        )
        for result, measured in verdict.measured_cases(report)
    ]
    return part(
        report,
        Comparison,
        metric=metric_of(report),
        how="paired",
        margin=margin,
        a=part(a, Side),
        b=part(b, Side),
        rows=tuple(rows),
        warnings=(*report.warnings, *same_text(a, b), *part_of_score(report)),
        launches=tuple(values_of([ratios_of(measured.ranked) for _, measured in verdict.measured_cases(report)])),
    )


def exit_code(comparisons: Sequence[Comparison], fail_if: Sequence[str]) -> int:
    """Exit.FAIL_IF where `fail_if` (keys of FAIL_IF) names a summary's word that is not by the machine's drift."""
    return Exit.FAIL_IF if any(one.is_failed(fail_if) for one in comparisons) else Exit.OK


def metric_of(run: EvalReport) -> Metric:
    """The metric that ranks its cases."""
    return verdict.measured_cases(run)[0][1].ranked.metric


def same_text(a: Submission, b: Submission) -> tuple[Warning, ...]:
    return (Warning(code="same_text"),) if a.sha256 == b.sha256 else ()


def part_of_score(run: EvalReport) -> tuple[Warning, ...]:
    """The warning that the score which ranks has further factors than what is compared."""
    _, measured = verdict.measured_cases(run)[0]
    scoring = SCORINGS[run.ranking_by]
    if not scoring.factors(measured):
        return ()
    return (Warning(code="part_of_score", values={"unit": measured.ranked.metric.unit, "score": scoring.words}),)


def _passed(label: str, report: EvalReport) -> None:
    if verdict.status(report) == "pass":
        return
    failure = verdict.first_failure(report)
    if failure is None or not isinstance(failure.outcome, Failure):
        raise HarnessError(
            f"the run of {label} ended before every shape was run; `python -m harness eval` of it says why"
        )
    where = f"{failure.case.kind} {failure.case.title}"
    raise _failed(label, report.submission.name, where, failure.outcome)


def _failed(label: str, name: str, where: str, outcome: Failure) -> HarnessError:
    """The error that says which side failed, where and how, with the exit code of that failure."""
    left = verdict.left(outcome)
    lines = clean(left[0] if left else "").splitlines()[-SHOWN_LINES:]
    text = f"{label} ({clean_line(name)}) fails, so nothing is compared: {clean_line(where)}: "
    text += f"{verdict.word(outcome)}: {clean_line(verdict.message(outcome))}"
    text += "".join(f"\n  | {line}" for line in lines)
    text += f"\nNext: `python -m harness check` or `eval` of {label} alone says more."
    errors: dict[Exit, type[SideFailed]] = {Exit.TIMED_OUT: SideTimedOut, Exit.INVALID: SideFailed}
    return errors[verdict.OUTCOMES[outcome.type].exit](text, outcome)


def ratio_text(one: Ratio) -> str:
    """`1.234x`."""
    return f"{digits_text(one.value)}x"


def digits_text(value: float) -> str:
    """To four of them, those that are 0 too."""
    return f"{value:#.4g}".removesuffix(".")
