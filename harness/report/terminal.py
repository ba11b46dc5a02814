"""A report as people read it, on a terminal or in a log.

Knows how things look; decides nothing (verdict does) and computes no figure of its own (judging.figures does) beside
medians. What a submission wrote (messages, tracebacks, logs, its own path) is shown as plain text without control
characters, and more than a line of it only behind a `|`, so that it can neither style a terminal nor pass for our
words.

Everything reads at 80 columns and without colour: no boxes, no symbol outside ASCII of our own but for bars, which
are drawn where there is room, in ASCII where the console's encoding has no more. On a console that is no terminal, rich
leaves colours out, and so it does where NO_COLOR is set. Where there is little room, columns are left out.
"""

from collections.abc import Sequence

from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from harness.board.entries import Board
from harness.board.places import By, Place
from harness.board.runs import FOLDER
from harness.core.machine_records import Peaks
from harness.core.metric_words import MetricWords, words_of_results
from harness.core.records import (
    CaseResult,
    EvalFigures,
    EvalReport,
    Measured,
    NotRun,
    Passed,
    Profile,
)
from harness.core.stats import median
from harness.core.words import (
    case_label,
    clean,
    clean_line,
    count_text,
    cut_line,
    excerpt,
    letters_text,
    percent_text,
    plain_table,
    print_all,
    rate_text,
    score_text,
    times_text,
    us_text,
)
from harness.judging import verdict
from harness.judging.figures import means, resolution
from harness.judging.scoring import SCORINGS
from harness.judging.warnings import text_of
from harness.kinds.checkers import CHECKERS
from harness.process.ncu import PERCENTS
from harness.report import metrics
from harness.report.bars import ASCII, UNICODE, Axis, Marks, mean_of
from harness.report.bars import Times as BarTimes
from harness.report.bars import axis as bar_axis
from harness.report.bars import parts as bar_parts
from harness.report.clocks import HOST_COLUMN, HOST_LEGEND, clock_texts, clocks_table, host_cell
from harness.report.curves import curve_table, has_curves
from harness.report.failures import all_logs, log_heading, show_failure
from harness.report.memory import memory_table
from harness.report.summary import resolution_text, show_summary
from harness.report.traffic import traffic_words

PROFILE_LEGEND = (
    "Self us leaves out what an operator called; share is of the rank's call, which is slower under the profiler; "
    "threads and streams that work at once share that time. "
    "In no operator: Python, and waiting while no other thread has an operator. "
    "The traces open in https://ui.perfetto.dev and in chrome://tracing."
)
KERNELS_LEGEND = (
    "us is the time of all runs of a kernel in one call; percentages are of the device's peak, means over these runs. "
    "The report opens in the tool's own viewer (ncu-ui for .ncu-rep)."
)
NUMBERS_CHARS = 36  # columns beside an operator's name
KERNEL_CHARS = 26  # columns beside a kernel's name and its percentages
TOP_OPS = 5  # kernels or operators that are shown a rank; --json has more
TIMES = ("shape", "ref", "own", "ratio", "limit", "fraction", "further", "n")  # metric_words has what they are called
LEFT_OUT = ("n", "further", "limit", "ref", "fraction", "own")  # in this order, where there is no room
SHAPE_CHARS = 12  # what a shape is folded to, at least
BAR_CHARS = (20, 40)  # columns of a bar, at least and at most


# ---- the report ------------------------------------------------------------------------------------------------
def show(
    report: EvalReport,
    board: Board | None,
    place: Place | None,
    console: Console,
    verbose: bool = False,
    entry: str = "",
    by: By = "speedup",
) -> None:
    """Prints the result; its last three lines are the verdict, the speedup and the place on the leaderboard.

    `place` is None for a run that was not recorded; `board` is what it is on, `by` what it comes from. `verbose` adds
    the clocks, the machine, phases and rank 0's log. `entry` is what became of it in a contest, instead of the place.
    """
    print_all(console, Text.assemble((report.problem, "bold"), f"  {clean_line(report.submission.name)}"))
    details = f"{count_text(report.world_size, 'rank')} on {report.device}, suite {report.suite}, mode {report.mode}"
    print_all(console, Text(clean_line(f"by {report.author}, {details}")), Text())
    benchmarks = [result for result in report.results if result.case.kind == "benchmark"]
    if benchmarks and not all(isinstance(result.outcome, NotRun) for result in benchmarks):
        table = _times(report, benchmarks, console)
        print_all(console, table, Text(), Text(_legend(benchmarks, table, console), style="dim"))
        if has_curves(benchmarks):
            print_all(console, Text(), curve_table(benchmarks, console))
        if memory := memory_table(benchmarks):
            print_all(console, Text(), memory)
        if cases := metrics.measured_in(report):
            print_all(console, Text(), metrics.metrics_table(cases), Text(), Text(metrics.LEGEND, style="dim"))
            print_all(console, Text(), metrics.points_table(report, cases))
            if verbose and (kernels := metrics.kernels_table(cases)):
                print_all(console, Text(), kernels)
        if report.peaks and verbose:
            print_all(console, Text(_peaks(report.peaks), style="dim"))
        if len(report.empty_call_samples_us) > 1 and verbose:
            print_all(console, Text(), clocks_table(report, benchmarks))
        print_all(console, Text())
    for result in report.results:
        if result.profile is not None:
            _show_profile(report, result, result.profile, console, verbose)
    for result in report.results:
        if verdict.case_status(result) == "fail":
            show_failure(report, result, console, _logs_at(report, board))
    ran = [result for result in report.results if result.logs]
    if verbose and ran and (log := excerpt(report.printed(ran[-1]))):
        print_all(console, Text("\n".join([f"{log_heading(report)}:", *(f"  | {line}" for line in log)])))
        print_all(console, Text(f"{all_logs(report)}: {_logs_at(report, board)}"), Text())
    print_all(console, _facts(report, verbose, board is not None or bool(entry)), Text())
    show_summary(report, board, place, console, entry, by)


def _logs_at(report: EvalReport, board: Board | None) -> str:
    """Where the logs of all ranks are: `board` is None for a run that was not recorded."""
    return f"{FOLDER}/{report.run_id}/" if board is not None else "--json FILE keeps them"


def _times(report: EvalReport, benchmarks: Sequence[CaseResult], console: Console) -> Table:
    """A row a benchmark, with what there is room for: fewer columns where it is narrow, bars where it is wide."""
    words = words_of_results(benchmarks)
    rows = [times_row(result, words) for result in benchmarks]
    bars = {index: _bar_times(result) for index, result in enumerate(benchmarks) if is_sampled(result)}
    if len(bars) == len(benchmarks) > 1 and (mean := mean_row(benchmarks, report.figures, words)) is not None:
        bars[len(rows)] = mean_of(list(bars.values()))
        rows.append(mean)
    shown = _columns_that_fit(rows, words, console.width)
    is_wide = len(shown) == len(TIMES)
    if all(result.bound is None for result in benchmarks):
        shown -= {TIMES.index("limit"), TIMES.index("fraction")}
    table = plain_table(*(name for index, name in enumerate(words.columns) if index in shown))
    hosts = [host_cell(result) for result in benchmarks] if is_wide else []
    if any(hosts):
        table.add_column(HOST_COLUMN, justify="right", no_wrap=True)
    axis = None
    if bars and is_wide and not any(hosts):
        room = console.width - 2 - Measurement.get(console, console.options, _filled(rows, words)).maximum
        if room >= BAR_CHARS[0]:
            axis = bar_axis(list(bars.values()), min(room, BAR_CHARS[1]))
            table.add_column(Text(_axis_name(axis, words)), no_wrap=True)
    for index, row in enumerate(rows):
        cells: list[RenderableType] = [cell for column, cell in enumerate(row) if column in shown]
        if any(hosts):
            cells.append(hosts[index] if index < len(hosts) else "")
        if axis:
            cells.append(_bar(bars[index], axis, console) if index in bars else "")
        table.add_row(*cells, style="bold" if index == len(benchmarks) else "")
    return table


def is_sampled(result: CaseResult) -> bool:
    """Whether there are samples of either side."""
    return isinstance(result.outcome, Measured) and bool(result.outcome.ranked.baseline)


def times_row(result: CaseResult, words: MetricWords) -> list[Text]:
    """A benchmark's cells, one for each of the words' columns."""
    bound = words.value(result.bound.value) if result.bound is not None else "-"
    label = Text(case_label(result))
    if (figures := result.figures) is not None:
        cells = (
            words.value(figures.baseline) if figures.baseline is not None else "-",
            words.value(figures.value),
            times_text(figures.ratio.value) if figures.ratio else "-",
            bound,
            percent_text(figures.fraction.value) if figures.fraction else "-",
            words.further(figures, result.bound),
            str(len(result.outcome.ranked.own) or "-") if isinstance(result.outcome, Measured) else "-",
        )
        return [label, *map(Text, cells)]
    word = "ok, untimed" if isinstance(result.outcome, Passed) else result.outcome.type.replace("_", " ")
    shown = Text(word, style="red" if _failed(result) else "")
    return [label, Text("-"), shown, *map(Text, ("-", bound, "-", "-", "-"))]


def mean_row(results: Sequence[CaseResult], whole: EvalFigures | None, words: MetricWords) -> list[Text] | None:
    """The figures of the whole, and the geometric means over its shapes; None where not all were measured."""
    mean = means(results)
    if mean is None or whole is None or whole.ratio is None:
        return None
    cells = (
        "geometric mean",
        words.value(mean.baseline),
        words.value(mean.value),
        times_text(whole.ratio.value),
        words.value(mean.bound) if mean.bound is not None else "-",
        percent_text(whole.fraction.value) if whole.fraction else "-",
        "",
        "",
    )
    return list(map(Text, cells))


def _columns_that_fit(rows: Sequence[Sequence[Text]], words: MetricWords, width: int) -> set[int]:
    """Which of TIMES there is room for beside a shape that is folded, if need be; what says least goes first."""
    names = enumerate(words.columns)
    widths = [max(len(name) - 1, *(row[index].cell_len for row in rows)) for index, name in names]
    widths[0] = min(widths[0], SHAPE_CHARS)
    shown = set(range(len(TIMES)))
    for name in LEFT_OUT:
        if sum(widths[index] + 2 for index in shown) - 2 > width:
            shown.discard(TIMES.index(name))
    return shown


def _filled(rows: Sequence[Sequence[Text]], words: MetricWords) -> Table:
    table = plain_table(*words.columns)
    for row in rows:
        table.add_row(*row)
    return table


def _bar_times(result: CaseResult) -> BarTimes:
    """Of the series that the bound is of; of a case with samples of either side. Where more is better, the times that
    rates stand for."""
    assert isinstance(result.outcome, Measured)
    one = result.outcome.against_bound
    power = one.metric.sign
    bound = result.bound.value**power if result.bound else None
    return BarTimes(own=median(one.own) ** power, ref=median(one.baseline) ** power, bound=bound)


def _bar(times: BarTimes, axis: Axis, console: Console) -> Text:
    marks = _marks(console)
    styles = {"limit": "red", "line": "cyan", "own": "bold cyan", "both": "bold cyan"}
    parts = bar_parts(times, axis)
    return Text.assemble(*((marks[part], styles.get(part, "")) for part in parts))


def _axis_name(axis: Axis, words: MetricWords) -> str:
    what = words.limit if axis.of_bound else words.better
    most = f"{axis.most:,.1f}" if axis.most < 9.95 else f"{axis.most:,.0f}"
    return f"1x to {most}x the {what}"


def _marks(console: Console) -> Marks:
    """Those that the console's encoding has."""
    try:
        "".join(UNICODE.values()).encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return UNICODE


def _legend(benchmarks: Sequence[CaseResult], table: Table, console: Console) -> str:
    """What the table's letters, columns and marks stand for."""
    letters = letters_text(result.case for result in benchmarks)
    shown = {str(column.header) for column in table.columns}
    measured = [result.outcome for result in benchmarks if isinstance(result.outcome, Measured)]
    words = words_of_results(benchmarks)
    by_device = any(one.bounded == "device" for one in measured)
    on_clock = " on the device clock" if by_device else ""
    is_told = any(one.ranked.summary for one in measured)
    said = words.legend | ({"time us": "Times are the means that eval.py tells"} if is_told else {})
    untold = ("speedup", "spread") if is_told else ()
    always = words.columns[TIMES.index("own")].removeprefix(">")
    parts = [text for name, text in said.items() if name == always or (name in shown and name not in untold)]
    parts = [text + on_clock if text.startswith("limit %") else text for text in parts]
    lines = [letters] if letters else []
    if by_device and any(one.ranked.metric.name == "device" for one in measured):
        parts[0] += " on the device clock"
    if HOST_COLUMN in shown:
        parts.append(HOST_LEGEND)
    lines.append(f"{'; '.join(parts)}.")
    if len(shown - {HOST_COLUMN}) > len({name.removeprefix(">") for name in words.columns} & shown):
        marks = _marks(console)
        limit = f"{marks['limit']} {words.limit}, " if all(result.bound is not None for result in benchmarks) else ""
        told = f"{limit}{marks['own']} submission, {marks['ref']} reference, {marks['both']} both"
        lines.append(f"Bars, on a log axis{on_clock}: {told}; left is {words.better}.")
    return "\n".join(lines)


def _peaks(peaks: Peaks) -> str:
    rates = [
        f"{rate_text(peaks.flops_per_s)}FLOP/s",
        f"{rate_text(peaks.hbm_bytes_per_s)}B/s memory",
    ]
    if peaks.link_bytes_per_s:  # one rank has none
        rates.append(f"{rate_text(peaks.link_bytes_per_s)}B/s links")
    return f"Limit by a rank's peaks, {clean_line(peaks.source)}:\n{', '.join(rates)}."


def _show_profile(report: EvalReport, result: CaseResult, profile: Profile, console: Console, verbose: bool) -> None:
    """Where the trace lies, and what took most of each rank's call."""
    print_all(console, Text(case_label(result), style="bold"))
    over_ranks = _operators if verbose else _operators_over_ranks
    if not profile.ranks:  # a folder's own evaluator tells a text
        print_all(console, Text(clean(profile.text)), Text())
        return
    print_all(console, _kernels(profile, console) if profile.kernels else over_ranks(profile, console))
    blind = [str(rank.rank) for rank in profile.ranks if rank.of == "host"]
    if report.device != "cpu" and blind:
        text = f"The profiler saw no kernel on rank {', '.join(blind)}: shown is what the host did."
        print_all(console, Text(text, style="yellow"))
    for path in profile.reports:
        console.print(Text(f"report  {clean_line(path)}"), soft_wrap=True)
    if profile.trace is not None:
        console.print(Text(f"trace  {clean_line(profile.trace)}"), soft_wrap=True)
    last = max(index for index, other in enumerate(report.results) if other.profile is not None)
    if result is report.results[last]:
        print_all(console, Text(), Text(KERNELS_LEGEND if profile.kernels else PROFILE_LEGEND, style="dim"))
    print_all(console, Text())


def _operators_over_ranks(profile: Profile, console: Console) -> Table:
    """What took most of the call: least, median and most over the ranks. A rank that does not list it has 0."""
    table = plain_table(">share least", ">median", ">most", ">self us", "kernel or operator")
    calls_us = [rank.call_us for rank in profile.ranks]
    table.add_row(*map(us_text, (min(calls_us), median(calls_us), max(calls_us))), "", "the call, in us")
    rows = []
    for name in dict.fromkeys(op.name for rank in profile.ranks for op in rank.top):
        found = [next((op for op in rank.top if op.name == name), None) for rank in profile.ranks]
        shares = [op.share if op else 0.0 for op in found]
        rows.append((median(shares), name, shares, median([op.self_us if op else 0.0 for op in found])))
    for middle, name, shares, self_us in sorted(rows, key=lambda row: (-row[0], -max(row[2])))[:TOP_OPS]:
        cells = map(percent_text, (min(shares), middle, max(shares)))
        table.add_row(*cells, us_text(self_us), Text(cut_line(name, console.width - NUMBERS_CHARS - 4)))
    return table


def _operators(profile: Profile, console: Console) -> Table:
    """What took most of each rank's call."""
    table = plain_table(">rank", "kernel or operator", ">calls", ">self us", ">share")
    for rank in profile.ranks:
        table.add_row(str(rank.rank), "the call", "1", us_text(rank.call_us), percent_text(1))
        for op in rank.top[:TOP_OPS]:
            name = Text(cut_line(op.name, console.width - NUMBERS_CHARS))
            table.add_row("", name, str(op.calls), us_text(op.self_us), percent_text(op.share))
    return table


def _kernels(profile: Profile, console: Console) -> Table:
    """What the vendor's tool says of each kernel; columns that it does not tell are left out."""
    names = [name for name in PERCENTS if any(name in one.percents for one in profile.kernels)]
    table = plain_table(">rank", f"kernel, by {profile.tool}", ">runs", ">us", *(f">{name}" for name in names))
    room = max(SHAPE_CHARS, console.width - KERNEL_CHARS - sum(max(len(name), 6) + 2 for name in names))
    for one in profile.kernels:
        cells = (percent_text(one.percents[name] / 100) if name in one.percents else "-" for name in names)
        name = Text(cut_line(one.name, room))
        table.add_row(str(one.rank), name, str(one.calls), us_text(one.time_us), *cells)
    return table


def _facts(report: EvalReport, verbose: bool, is_recorded: bool) -> RenderableType:
    """What is said beside the answer: little, or with `verbose` all."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    if verbose:
        for kind in ("profile",) if report.mode == "profile" else ("test", "benchmark"):
            grid.add_row(f"{kind}s", _tally(report, kind))
        grid.add_row("verdicts", _verdicts(report))
    if (figures := report.figures) is not None:
        score, rule = figures.score, SCORINGS[report.ranking_by]
        exact = f" ({score.value:.6g} {score.unit})" if score.unit == "s" else ""
        grid.add_row("score", f"{score_text(score)}{exact} as {rule.contest} scores: {rule.words}")
        if figures.fraction is not None and verbose:
            grid.add_row("limit", f"{percent_text(figures.fraction.value)} of it, geometric mean over shapes")
    if (told := resolution(report)) is not None:
        grid.add_row("resolves", resolution_text(told))
    if traffic := traffic_words(report.results):
        grid.add_row("communication shown", traffic)
    if verbose:
        _add_provenance(grid, report)
    elif is_recorded:
        grid.add_row("run", report.run_id)
    for warning in report.warnings:
        grid.add_row(Text("warning", style="yellow"), Text(clean(text_of(warning))))
    if report.machine_state:
        found = ", ".join(one.check for one in report.machine_state)
        grid.add_row(Text("doctor", style="yellow"), Text(clean_line(f"`python -m harness doctor` warns of: {found}")))
    return grid


def _add_provenance(grid: Table, report: EvalReport) -> None:
    """The clock, the machine, memory and phases."""
    for text in clock_texts(report):
        grid.add_row("clock", text)
    if note := CHECKERS[report.checker].note:
        grid.add_row("checker", note)
    if report.environment:
        env = report.environment
        versions = f"Python {env.python}, torch {env.torch}" + (f", triton {env.triton}" if env.triton else "")
        grid.add_row(
            "machine", Text(clean_line(f"{env.machine_class}, {env.memory_bytes / 2**30:.1f} GiB; {versions}"))
        )
    if report.peak_memory_bytes:
        told = ", ".join(f"{name} {count / 2**30:.2f}" for name, count in report.peak_memory_bytes.items())
        grid.add_row("memory", f"GiB of a rank at most: {told}")
    phases = ", ".join(f"{name} {seconds:.1f}" for name, seconds in report.phases_s.items())
    grid.add_row("run", Text(f"{report.run_id}, {sum(report.phases_s.values()):.1f} s: {phases}"))


def _tally(report: EvalReport, kind: str) -> str:
    outcomes = [result.outcome for result in report.results if result.case.kind == kind]
    kinds = (Measured, Passed, NotRun)
    timed, passed, not_run = (sum(isinstance(one, what) for one in outcomes) for what in kinds)
    if not outcomes:
        return f"none in mode {report.mode}"
    failed = len(outcomes) - timed - passed - not_run
    parts = [f"{timed + passed}/{len(outcomes)} passed"]
    parts += [f"{timed} timed"] if timed else []
    parts += [f"{failed} failed"] if failed else []
    parts += [f"{not_run} not run"] if not_run else []
    return ", ".join(parts)


def _verdicts(report: EvalReport) -> str:
    found = [result.verdicts for result in report.results if result.verdicts is not None]
    return CHECKERS[report.checker].tally(found)


def _failed(result: CaseResult) -> bool:
    return verdict.case_status(result) == "fail"
