"""What an evaluation came to, as a document.

Decides nothing (verdict does) and computes no figure of its own (judging.figures does) beside medians.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from harness.board.runs import FOLDER
from harness.core.errors import Exit
from harness.core.metrics import CLOCKS, HOST, Unit
from harness.core.records import Case, CaseResult, EvalFigures, EvalReport, Measured, NotRun, Passed
from harness.core.stats import median
from harness.core.words import clean, count_text, or_dash, percent_text, rate_text, times_text, us_text
from harness.judging import verdict
from harness.judging.figures import means, resolution, series_figures, unit_of_results
from harness.judging.scoring import SCORINGS
from harness.judging.warnings import text_of
from harness.kinds.checkers import CHECKERS
from harness.report.bars import Times, mean_of
from harness.report.curves import curve_table
from harness.report.document import (
    Bars,
    Block,
    Column,
    Document,
    EvidenceBlock,
    Facts,
    Heading,
    Styled,
    Table,
    TestCase,
    UntrustedText,
    Words,
    plain,
    prose,
)
from harness.report.failures import all_logs, evidence, failure, log_heading
from harness.report.profiles import profile_blocks
from harness.report.summary import (
    NOT_RECORDED,
    OnBoard,
    drawn_text,
    resolution_text,
    summary_of,
    untold_text,
    verdict_text,
)
from harness.report.traffic import traffic_words

COLUMNS = ("case", "ref", "own", "ratio", "limit", "fraction", "further", "n")  # core.metrics has what they are called
DROPPED = ("n", "further", "limit", "ref", "fraction", "own")  # in this order, where there is no room
CLOCK_TEXTS = {
    "device": "device: from the word that lets the devices go to the last one's that it is done; empty calls differ by "
    "{} us",
    "wall": "wall: first start to last end over ranks; an empty call reads {} us",
    "gpumode": "gpumode: as GPU MODE's evaluator times; an empty call reads {} us",
}
RATIOS = "ratio is how many times as good as the reference in the same run"
Cases = Sequence[tuple[CaseResult, Measured]]


# ---- the document ----------------------------------------------------------------------------------------------------
def document_of(report: EvalReport, standing: OnBoard = NOT_RECORDED, verbose: bool = False) -> Document:
    """The report; its summary is the verdict, the speedup and the place on the leaderboard. `verbose` adds the clocks,
    the machine, phases and rank 0's log."""
    where = f", {count_text(report.world_size, 'rank')} on {report.device}, suite "
    by_whom = ("by ", UntrustedText(report.author), where, UntrustedText(report.suite), f", mode {report.mode}")
    blocks: list[Block] = [
        Heading((UntrustedText(report.problem), Styled(("  ", UntrustedText(report.submission.name)), ""))),
        prose(by_whom),
        *_measured(report, verbose),
        *(block for result in report.results for block in profile_blocks(report, result, verbose)),
    ]
    logs_at = f"{FOLDER}/{report.run_id}/" if standing.board is not None else "--json FILE keeps them"
    for result in report.results:
        if verdict.case_status(result) == "fail":
            blocks += failure(report, result, logs_at)
    ran = [result for result in report.results if result.logs]
    if verbose and ran and report.printed(ran[-1]).strip():
        blocks += [
            prose(f"{log_heading(report)}:"),
            EvidenceBlock("", report.printed(ran[-1])),
            prose(f"{all_logs(report)}: {logs_at}", close=True),
        ]
    summary = summary_of(report, standing)
    return Document(
        blocks=(*blocks, *_facts(report, standing, verbose)),
        summary=summary,
        cases=tuple(_test_cases(report)),
        said=(
            *(f"{plain(name)} {plain(words)}" for name, words in summary.rows),
            *(f"warning: {text_of(one)}" for one in report.warnings),
        ),
        properties={
            "run_id": report.run_id,
            "submission": report.submission.name,
            "sha256": report.submission.sha256,
            "machine": report.environment.machine_class if report.environment else "",
        },
        started_at=report.started_at,
    )


def error_document(message: str, code: Exit) -> Document:
    first, _, rest = clean(message).partition("\n")
    kind = f"exit {int(code)}"
    case = TestCase(suite="kernel-eval", name="run", ending="error", kind=kind, message=first, text=rest)
    return Document(blocks=(Heading(f"error ({kind})"), EvidenceBlock("", message)), cases=(case,))


def _measured(report: EvalReport, verbose: bool) -> Iterator[Block]:
    benchmarks = [result for result in report.results if result.case.kind == "benchmark"]
    if not benchmarks or all(isinstance(result.outcome, NotRun) for result in benchmarks):
        return
    yield times_table(report, benchmarks)
    yield from curve_table(benchmarks)
    yield from further_table(benchmarks, verbose)
    if cases := [(one, found) for one, found in verdict.measured_cases(report) if _factors(report, found)]:
        yield points_table(report, cases)
        kernels = [(case.case.title, *row) for case, found in cases for row in found.kernels.items()]
        if verbose and kernels:
            rows = [(percent_text(part), UntrustedText(name), UntrustedText(label)) for label, name, part in kernels]
            yield Table((">of the time", "kernel or operator", "prompt"), rows)
    if report.peaks and verbose:
        peaks = report.peaks
        rates = [f"{rate_text(peaks.flops_per_s)}FLOP/s", f"{rate_text(peaks.hbm_bytes_per_s)}B/s memory"]
        if peaks.link_bytes_per_s:  # one rank has none
            rates.append(f"{rate_text(peaks.link_bytes_per_s)}B/s links")
        limit = ("Limit by a rank's peaks, ", UntrustedText(peaks.source), ":")
        yield prose(limit, f"{', '.join(rates)}.", style="dim")


# ---- tables ----------------------------------------------------------------------------------------------------------
def times_table(report: EvalReport, benchmarks: Sequence[CaseResult]) -> Table:
    """A row a benchmark, and their means; bars where there is room."""
    unit = unit_of_results(benchmarks)
    rows = [times_row(result, unit) for result in benchmarks]
    bars = {
        index: _bar_times(result)
        for index, result in enumerate(benchmarks)
        if isinstance(result.outcome, Measured) and result.outcome.ranked.baseline
    }
    styles = {}
    if len(benchmarks) > 1 and (mean := mean_row(benchmarks, report.figures, unit)) is not None:
        if len(bars) == len(benchmarks):
            bars[len(rows)] = mean_of(list(bars.values()))
        styles[len(rows)] = "bold"
        rows.append(mean)
    hidden = {"limit", "fraction"} if all(result.bound is None for result in benchmarks) else set()
    shown = [index for index, name in enumerate(COLUMNS) if name not in hidden]
    columns = [
        Column(name=unit.columns[index], right=index > 0, drop=1 + DROPPED.index(name) if name in DROPPED else 0)
        for index, name in enumerate(COLUMNS)
    ]
    measured = [result.outcome for result in benchmarks if isinstance(result.outcome, Measured)]
    on_clock = " on the device clock" if any(one.bounded == "device" for one in measured) else ""
    return Table(
        [columns[index] for index in shown],
        [[row[index] for index in shown] for row in rows],
        styles=styles,
        legend=_legend(unit, measured, on_clock),
        letters=letters_text(result.case for result in benchmarks),
        bars=Bars(rows=bars, limit=unit.limit, better=unit.better, note=on_clock) if bars else None,
    )


def times_row(result: CaseResult, unit: Unit) -> list[Words]:
    """A benchmark's cells, one for each of COLUMNS."""
    bound = unit.value(result.bound.value) if result.bound is not None else "-"
    label = UntrustedText(result.case.title)
    if (figures := result.figures) is not None:
        gap = "-" if result.bound is None else f"{math.log10(figures.value / result.bound.value):.3f}"
        spread = or_dash(percent_text, figures.spread)
        return [
            label,
            or_dash(unit.value, figures.baseline),
            unit.value(figures.value),
            times_text(figures.ratio.value) if figures.ratio else "-",
            bound,
            percent_text(figures.fraction.value) if figures.fraction else "-",
            gap if unit.has_gap else spread,
            str(len(result.outcome.ranked.own) or "-") if isinstance(result.outcome, Measured) else "-",
        ]
    word = "ok, untimed" if isinstance(result.outcome, Passed) else verdict.word(result.outcome)
    shown = Styled(word, "red" if verdict.case_status(result) == "fail" else "")
    return [label, "-", shown, "-", bound, "-", "-", "-"]


def mean_row(results: Sequence[CaseResult], whole: EvalFigures | None, unit: Unit) -> list[Words] | None:
    """The figures of the whole, and the geometric means over its shapes; None where not all were measured."""
    mean = means(results)
    if mean is None or whole is None or whole.ratio is None:
        return None
    return [
        "geometric mean",
        unit.value(mean.baseline),
        unit.value(mean.value),
        times_text(whole.ratio.value),
        or_dash(unit.value, mean.bound),
        percent_text(whole.fraction.value) if whole.fraction else "-",
        "",
        "",
    ]


def _bar_times(result: CaseResult) -> Times:
    """The times of the series that is held against the bound, or those that its rates stand for."""
    assert isinstance(result.outcome, Measured)
    one = result.outcome.against_bound
    power = one.metric.sign
    bound = result.bound.value**power if result.bound else None
    return Times(own=median(one.own) ** power, ref=median(one.baseline) ** power, bound=bound)


def _legend(unit: Unit, measured: Sequence[Measured], on_clock: str) -> list[tuple[str, str]]:
    is_told = any(one.ranked.summary for one in measured)
    by_device = on_clock if any(one.ranked.metric.name == "device" for one in measured) else ""
    what = "the means that eval.py tells" if is_told else unit.medians
    _, _, own, ratio, _, fraction, further, count = unit.columns
    noun = own.removesuffix(f" {unit.head}")
    is_more = any(one.ranked.metric.better == "more" for one in measured)
    part = f"{noun} / {unit.limit}" if is_more else f"{unit.limit} / {noun}"
    proved = f"{unit.limit} is proved, " if unit.has_gap else ""
    said = [("", f"{unit.values} are {what}{by_device}")]
    if not is_told:
        spread = f"gap is log10({noun} / {unit.limit})" if unit.has_gap else "spread is the interquartile range"
        said += [(ratio, f"{ratio} is {unit.paired}"), (further, spread)]
    return [*said, (count, f"n is the number of {unit.counted}"), (fraction, f"{proved}{fraction} is {part}{on_clock}")]


def letters_text(cases: Iterable[Case]) -> str:
    """What one-letter names in these cases' titles stand for: `E num_experts, k experts_per_token`."""
    pairs = dict.fromkeys((case.short[name], name) for case in cases for name in case.params if name in case.short)
    return ", ".join(f"{short} {name}" for short, name in pairs if len(short) == 1)


def further_table(results: Sequence[CaseResult], verbose: bool = True) -> Iterator[Table]:
    """Every metric beside the one that ranks: both sides' medians, their ratio, and the limit where there is one. Other
    clocks are for `verbose`. No table where nothing else was measured."""
    measured = [(one, one.outcome) for one in results if isinstance(one.outcome, Measured)]
    hidden = () if verbose else CLOCKS
    metrics = {one.metric.name: one.metric for _, found in measured for one in found.series[1:]}
    rows: list[list[Words]] = []
    for name, metric in metrics.items():
        for result, found in measured if name not in hidden else ():
            if (figures := series_figures(found, name)) is None:
                continue
            is_late = metric == HOST and result.figures is not None and figures.value > result.figures.value
            unit = metric.words
            rows.append(
                [
                    UntrustedText(metric.label),
                    UntrustedText(result.case.title),
                    or_dash(unit.text, figures.baseline),
                    unit.text(figures.value) + ("*" if is_late else ""),
                    or_dash(times_text, figures.ratio),
                    or_dash(unit.text, figures.bound),
                    or_dash(percent_text, figures.fraction),
                ]
            )
    notes = [one.note for one in metrics.values() if one.note and one.name not in hidden]
    if rows:
        columns = ("also measured", unit_of_results(results).case, ">ref", ">own", ">ratio", ">limit", ">limit %")
        yield Table(columns, rows, legend=[*(("", note) for note in notes), ("ratio", RATIOS)])


def _factors(report: EvalReport, measured: Measured) -> dict[str, float]:
    return SCORINGS[report.ranking_by].factors(measured)


def points_table(report: EvalReport, cases: Cases) -> Table:
    """What each case's value is the product of. The share of own kernels, a claim, is no factor."""
    scoring = SCORINGS[report.ranking_by]
    names = _factors(report, cases[0][1])
    rows: list[list[Words]] = []
    for result, measured in cases:
        factors = _factors(report, measured).values()
        cells = [f"{'x ' if index else ''}{factor:.4g}" for index, factor in enumerate(factors)]
        claimed = or_dash(percent_text, measured.own_kernels)
        rows.append([f"{scoring.case(measured):.4g} =", *cells, claimed, UntrustedText(result.case.title)])
    return Table((f">{scoring.unit}", *(f">{name}" for name in names), ">claims own kernels", "prompt"), rows)


# ---- what is said beside the answer ----------------------------------------------------------------------------------
def _facts(report: EvalReport, standing: OnBoard, verbose: bool) -> Iterator[Facts]:
    rows: list[tuple[Words, Words]] = []
    if verbose:
        kinds = ("profile",) if report.mode == "profile" else ("test", "benchmark")
        rows += [(f"{kind}s", _tally(report, kind)) for kind in kinds]
        found = [result.verdicts for result in report.results if result.verdicts is not None]
        rows.append(("verdicts", CHECKERS[report.checker].tally(found)))
    if (figures := report.figures) is not None:
        score, rule = figures.score, SCORINGS[report.ranking_by]
        exact = f" ({score.value:.6g} {score.unit})" if score.unit == "s" else ""
        rows.append(("score", f"{score.text}{exact} as {rule.contest} scores: {rule.words}"))
        if figures.fraction is not None and verbose:
            rows.append(("limit", f"{percent_text(figures.fraction.value)} of it, geometric mean over shapes"))
        if drawn := drawn_text(report):
            rows.append(("drawn", drawn))
    if (told := resolution(report)) is not None:
        rows.append(("resolves", resolution_text(told)))
    elif untold := untold_text(report, standing.board):
        rows.append(("resolves", untold))
    if traffic := traffic_words(report.results):
        rows.append(("communication shown", UntrustedText(traffic)))
    if verbose:
        rows += _provenance(report)
    elif standing.board is not None or standing.entry:
        rows.append(("run", UntrustedText(report.run_id)))
    rows += [(Styled("warning", "yellow"), UntrustedText(text_of(warning))) for warning in report.warnings]
    if report.machine_state:
        checks = ", ".join(one.check for one in report.machine_state)
        rows.append((Styled("doctor", "yellow"), ("`python -m harness doctor` warns of: ", UntrustedText(checks))))
    if rows:
        yield Facts(tuple(rows))


def _provenance(report: EvalReport) -> Iterator[tuple[Words, Words]]:
    for name, text in CLOCK_TEXTS.items():
        if samples := report.empty_call_samples_us.get(name):
            yield "clock", text.format(us_text(median(samples)))
    if note := CHECKERS[report.checker].note:
        yield "checker", note
    if report.environment:
        env = report.environment
        versions = f"Python {env.python}, torch {env.torch}" + (f", triton {env.triton}" if env.triton else "")
        yield "machine", UntrustedText(f"{env.machine_class}, {env.memory_bytes / 2**30:.1f} GiB; {versions}")
    if report.peak_memory_bytes:
        told = ", ".join(f"{name} {count / 2**30:.2f}" for name, count in report.peak_memory_bytes.items())
        yield "memory", f"GiB of a rank at most: {told}"
    phases = ", ".join(f"{name} {seconds:.1f}" for name, seconds in report.phases_s.items())
    yield "run", UntrustedText(f"{report.run_id}, {sum(report.phases_s.values()):.1f} s: {phases}")


def _tally(report: EvalReport, kind: str) -> str:
    counts = Counter(result.outcome.type for result in report.results if result.case.kind == kind)
    if not counts:
        return f"none in mode {report.mode}"
    timed, right, not_run = counts["measured"], counts["measured"] + counts["passed"], counts["not_run"]
    more = {"timed": timed, "failed": counts.total() - right - not_run, "not run": not_run}
    parts = [f"{right}/{counts.total()} passed", *(f"{count} {what}" for what, count in more.items() if count)]
    return ", ".join(parts)


# ---- test cases ------------------------------------------------------------------------------------------------------
def _test_cases(report: EvalReport) -> Iterator[TestCase]:
    for result in report.results:
        suite = f"{report.problem}.{report.suite}.{result.case.kind}"
        outcome, figures = result.outcome, result.figures
        parts = evidence(report, result) if result is verdict.first_failure(report) else []
        said, seconds = [], None
        if figures is not None:
            unit = figures.metric.words
            said = [unit.text(figures.value)]
            said += [f"{times_text(figures.ratio.value)} the reference"] if figures.ratio else []
            said += [f"{percent_text(figures.fraction.value)} of the {unit.limit}"] if figures.fraction else []
            seconds = figures.value / 1e6 if figures.metric.unit == "us" else None
        ended = isinstance(outcome, NotRun)
        yield TestCase(
            suite=suite,
            name=result.case.title,
            ending=verdict.OUTCOMES[outcome.type].ending,
            kind=outcome.type,
            message="an earlier failure ended the evaluation" if ended else verdict.message(outcome),
            text="\n".join(f"{plain(one.heading)}:\n" + "\n".join(one.lines) for one in parts),
            said=", ".join(said),
            seconds=seconds,
        )
    if verdict.status(report) == "error":
        suite = f"{report.problem}.{report.suite}.evaluation"
        message = f"verdict {verdict_text(report)}"
        yield TestCase(suite=suite, name="verdict", ending="error", kind="error", message=message)
