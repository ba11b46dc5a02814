"""Records as people and programs read them: the report as a table or JSON, the leaderboard, progress while it runs.

Knows how things look; decides nothing (verdict does) and computes no figure of its own beside medians. What a
submission wrote (messages, tracebacks, logs, its own path) is shown as plain text without control characters, and
more than a line of it only behind a `|`, so that it can neither style a terminal nor pass for our words.

Everything reads at 80 columns and without colour: no boxes, no symbol outside ASCII of our own. On a console that is
no terminal, rich leaves colours out, and so it does where NO_COLOR is set.
"""

import csv
import io
import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from harness import verdict
from harness.board import Board, Entry, Place, groups, ranked
from harness.decode import encode
from harness.records import (
    REPORT_SCHEMA,
    CaseResult,
    ClockSamples,
    Crashed,
    EvalReport,
    Exit,
    Held,
    NotRun,
    Outcome,
    Passed,
    Peaks,
    Profile,
    Raised,
    Timed,
    TimedOut,
    Verdicts,
    Wrong,
)
from harness.stats import Interval, clocks, geomean, median, roofline_fraction, roofline_samples_us, speedup, spread

Format = Literal["table", "markdown", "csv", "json"]

SHORT = {  # parameters whose full names would fill a line; `show` says what they stand for
    "num_experts": "E",
    "experts_per_token": "k",
    "hidden_dim": "H",
    "max_num_tokens": "T",
    "has_bias": "bias",
}
RANKINGS = {
    "geom": "geometric mean of the means",
    "mean": "mean of the means",
    "last": "mean of the last shape",
}
NEXT = {  # what to try after each failure
    "wrong": "`python -m harness check {problem} {path}` runs the tests alone, in seconds.",
    "raised": "The traceback is of the first rank that failed; others may only have waited for it.",
    "crashed": "Killed by signal 9 is mostly out of memory: try fewer ranks (--ranks) or smaller shapes (--suite).",
    "timed_out": "Mostly, one rank waits for what another never sends: compare where they stand. --timeout gives more.",
    "held": "Right, but faster than this machine can be. Is work left over from, or for, another call?",
}
PROFILE_LEGEND = (
    "Self us leaves out what an operator called; share is of the rank's call, which is slower under the profiler. "
    "In no operator: Python, and waiting for other threads. "
    "The traces open in https://ui.perfetto.dev and in chrome://tracing."
)
KIND_WORDS = {"test": "test", "benchmark": "benchmark", "profile": "profiled shape"}
NUMBERS_CHARS = 36  # columns beside an operator's name
TOP_OPS = 5  # kernels or operators that are shown a rank; --json has more
SPINNER = "|/-\\"
EXCERPT_LINES = 24
LINE_CHARS = 400
WIDE = 110  # columns from which on the leaderboard shows intervals too

ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")


# ---- JSON ------------------------------------------------------------------------------------------------------


def to_json(report: EvalReport, place: Place | None = None) -> dict[str, Any]:
    """The report as `--json` and report.json have it; the figures are null unless every benchmark was timed."""
    figures = verdict.figures(report)
    interval = figures.geomean_speedup.interval if figures else None
    submission = {"path": report.submission.name, "sha256": report.submission.sha256, "author": report.author}
    values = {
        "run_id": report.run_id,
        "started_at": report.started_at,
        "problem": report.problem,
        "submission": submission,
        "device": report.device,
        "world_size": report.world_size,
        "suite": report.suite,
        "mode": report.mode,
        "status": verdict.status(report),
        "exit_code": int(verdict.exit_code(report)),
        "cases": [_case_json(result) for result in report.results],
        "geomean_speedup": figures.geomean_speedup.value if figures else None,
        "geomean_speedup_ci": [interval.low, interval.high] if isinstance(interval, Interval) else None,
        "roofline_fraction": figures.roofline_fraction if figures else None,
        "score_s": figures.score_s if figures else None,
        "ranking_by": report.ranking_by,
        "place": encode(place),
        "clock": "wall",
        "empty_call_us": median(wall) if (wall := report.empty_call_samples_us.get("wall")) else None,
        "empty_call_samples_us": {clock: list(samples) for clock, samples in report.empty_call_samples_us.items()},
        "warnings": list(report.warnings),
        "machine_state": list(report.machine_state),
        "gpu_sampling": encode(report.gpu_sampling),
        "environment": encode(report.environment),
        "peaks": encode(report.peaks),
        "phases_s": dict(report.phases_s),
        "secret_seed": report.secret_seed,
        "logs": dict(report.logs),
    }
    return _report_json(values)


def error_json(
    message: str,
    exit_code: Exit,
    *,
    problem: str | None = None,
    path: str | None = None,
    author: str | None = None,
    device: str | None = None,
    world_size: int | None = None,
    suite: str | None = None,
    mode: str | None = None,
) -> dict[str, Any]:
    """The same object for an evaluation that ended before there was a report: what is not known is null."""
    return _report_json(
        {
            "problem": problem,
            "submission": {"path": path, "sha256": None, "author": author},
            "device": device,
            "world_size": world_size,
            "suite": suite,
            "mode": mode,
            "status": "error",
            "exit_code": int(exit_code),
            "error": message,
        }
    )


def _report_json(values: Mapping[str, Any]) -> dict[str, Any]:
    """All keys in their order, with what stands there when it is not known."""
    unknown: dict[str, Any] = {
        "schema": REPORT_SCHEMA,
        "run_id": None,
        "started_at": None,
        "problem": None,
        "submission": None,
        "device": None,
        "world_size": None,
        "suite": None,
        "mode": None,
        "status": None,
        "exit_code": None,
        "error": None,
        "cases": [],
        "geomean_speedup": None,
        "geomean_speedup_ci": None,
        "roofline_fraction": None,
        "score_s": None,
        "ranking_by": None,
        "place": None,
        "clock": "wall",
        "empty_call_us": None,
        "empty_call_samples_us": {},
        "machine_state": [],
        "gpu_sampling": None,
        "warnings": [],
        "environment": None,
        "peaks": None,
        "phases_s": {},
        "secret_seed": None,
        "logs": {},
    }
    assert values.keys() <= unknown.keys()
    return unknown | dict(values)


def _case_json(result: CaseResult) -> dict[str, Any]:
    outcome, timed = result.outcome, result.outcome if isinstance(result.outcome, Timed) else None
    return {
        "kind": result.case.kind,
        "params": dict(result.case.params),
        "seed": result.case.seed,
        "world_size": result.case.world_size,
        "status": verdict.case_status(result),
        "outcome": outcome.type,
        "error": _message(outcome) or None,
        "verdicts": {name: _verdict_word(result.verdicts, name) for name in ("strict", "gpumode")},
        "verdict_messages": {name: _verdict_message(result.verdicts, name) for name in ("strict", "gpumode")},
        "samples_us": list(timed.samples_us) if timed else [],
        "ref_samples_us": list(timed.ref_samples_us) if timed else [],
        "block": timed.block if timed else None,
        "clocks": {one.clock: _clock_json(one) for one in clocks(timed)} if timed else {},
        "rank_ends_us": list(timed.rank_ends_us) if timed else [],
        "ref_us": median(timed.ref_samples_us) if timed else None,
        "time_us": median(timed.samples_us) if timed else None,
        "spread": spread(timed.samples_us) if timed else None,
        "speedup": speedup(timed) if timed else None,
        "bound_us": result.bound_us,
        "bound_by": result.bound_by,
        "published_us": result.case.published_us,
        "roofline_fraction": roofline_fraction(timed, result.bound_us) if timed and result.bound_us else None,
        "rank": outcome.rank if isinstance(outcome, Raised | Crashed) else None,
        "traceback": outcome.traceback if isinstance(outcome, Raised) else None,
        "stacks": list(outcome.stacks) if isinstance(outcome, TimedOut) else None,
        "log_tail": outcome.log_tail if isinstance(outcome, Crashed) else None,
        "trace": result.profile.trace if result.profile else None,
        "profile": encode(result.profile.ranks) if result.profile else [],
    }


def _clock_json(one: ClockSamples) -> dict[str, Any]:
    ref_us, time_us = median(one.ref_samples_us), median(one.samples_us)
    return {
        "ref_us": ref_us,
        "time_us": time_us,
        "speedup": ref_us / time_us,
        "spread": spread(one.samples_us),
        "samples_us": list(one.samples_us),
        "ref_samples_us": list(one.ref_samples_us),
    }


def _verdict_word(verdicts: Verdicts | None, name: str) -> str | None:
    return None if verdicts is None else "pass" if getattr(verdicts, name).passed else "fail"


def _verdict_message(verdicts: Verdicts | None, name: str) -> str | None:
    return None if verdicts is None else str(getattr(verdicts, name).message) or None


# ---- the report ------------------------------------------------------------------------------------------------


def show(report: EvalReport, board: Board | None, place: Place | None, console: Console) -> None:
    """Prints the whole result; its last three lines are the verdict, the speedup and the place on the leaderboard.

    `place` is None for a run that was not recorded; `board` is what the place is on.
    """
    _print(console, Text.assemble((report.problem, "bold"), f"  {clean_line(report.submission.name)}"))
    details = f"{_count(report.world_size, 'rank')} on {report.device}, suite {report.suite}, mode {report.mode}"
    _print(console, Text(clean_line(f"by {report.author}, {details}")), Text())
    benchmarks = [result for result in report.results if result.case.kind == "benchmark"]
    if benchmarks and not all(isinstance(result.outcome, NotRun) for result in benchmarks):
        _print(console, _times(benchmarks), Text(), Text(_legend(benchmarks), style="dim"))
        if report.peaks:
            _print(console, Text(_peaks(report.peaks), style="dim"))
        if len(report.empty_call_samples_us) > 1:
            _print(console, Text(), _clocks(report, benchmarks))
        _print(console, Text())
    for result in report.results:
        if result.profile is not None:
            _show_profile(report, result, result.profile, console)
    for result in report.results:
        if verdict.case_status(result) == "fail":
            _show_failure(report, result, console)
    _print(console, _facts(report), Text())
    style = "bold green" if verdict.status(report) == "pass" else "bold red"
    for label, text in (
        ("verdict", _verdict(report)),
        ("speedup", _speedup(report)),
        ("place", _place(board, place, report)),
    ):
        line = Text.assemble((f"{label:<9}", "bold"), (clean_line(text), style if label == "verdict" else ""))
        console.print(line, soft_wrap=True)


def case_label(result: CaseResult) -> str:
    """The shape in short: `m 512 n 512 k 1536 bias`; a switch that is off is left out."""
    words = []
    for name, value in result.case.params.items():
        if value is not False:
            words.append(SHORT.get(name, name) if value is True else f"{SHORT.get(name, name)} {value}")
    return clean_line(" ".join(words)) or "the only shape"


def _times(benchmarks: Sequence[CaseResult]) -> Table:
    table = _table("shape", *(f">{name}" for name in ("ref us", "time us", "speedup", "bound us", "roof", "spread")))
    for result in benchmarks:
        bound = _us(result.bound_us) if result.bound_us is not None else "-"
        if isinstance(result.outcome, Timed):
            own, ref = result.outcome.samples_us, result.outcome.ref_samples_us
            reached = _percent(roofline_fraction(result.outcome, result.bound_us)) if result.bound_us else "-"
            cells = (_us(median(ref)), _us(median(own)), _times_as_fast(speedup(result.outcome)))
            table.add_row(Text(case_label(result)), *cells, bound, reached, _percent(spread(own)))
        else:
            word = "ok, untimed" if isinstance(result.outcome, Passed) else result.outcome.type.replace("_", " ")
            shown = Text(word, style="red" if _failed(result) else "")
            table.add_row(Text(case_label(result)), "-", shown, "-", bound, "-", "-")
    timeds = [result.outcome for result in benchmarks if isinstance(result.outcome, Timed)]
    if len(timeds) == len(benchmarks) > 1:
        refs = geomean([median(timed.ref_samples_us) for timed in timeds])
        owns = geomean([median(timed.samples_us) for timed in timeds])
        bounds = [result.bound_us for result in benchmarks if result.bound_us is not None]
        bound_us = geomean(bounds) if len(bounds) == len(benchmarks) else None
        rooflines = geomean([median(roofline_samples_us(timed)) for timed in timeds])
        ends = (_us(bound_us), _percent(bound_us / rooflines)) if bound_us else ("-", "-")
        table.add_row("geometric mean", _us(refs), _us(owns), _times_as_fast(refs / owns), *ends, "", style="bold")
    return table


def _legend(benchmarks: Sequence[CaseResult]) -> str:
    names = dict.fromkeys(name for result in benchmarks for name in result.case.params)
    shorts = ", ".join(f"{SHORT[name]} {name}" for name in names if name in SHORT and len(SHORT[name]) == 1)
    timeds = [result.outcome for result in benchmarks if isinstance(result.outcome, Timed)]
    by_device = any(other.clock == "device" for timed in timeds for other in timed.others)
    roof = "bound / time on the device clock" if by_device else "bound / time"
    text = f"Times are medians; spread is the interquartile range; roof is {roof}."
    return f"{shorts}\n{text}" if shorts else text


def _clocks(report: EvalReport, benchmarks: Sequence[CaseResult]) -> Table:
    """Reference and submission on every clock side by side, and what an empty call reads: the resolution."""
    names = list(report.empty_call_samples_us)
    table = _table("reference us -> submission us", *(f">{name}" for name in names))
    for result in benchmarks:
        if isinstance(result.outcome, Timed):
            by_name = {one.clock: one for one in clocks(result.outcome)}
            cells = [
                f"{_us(median(by_name[name].ref_samples_us))} -> {_us(median(by_name[name].samples_us))}"
                for name in names
            ]
            table.add_row(Text(case_label(result)), *cells)
    table.add_row("an empty call", *(_us(median(report.empty_call_samples_us[name])) for name in names))
    return table


def _peaks(peaks: Peaks) -> str:
    rates = [
        f"{_rate(peaks.flops_per_s)}FLOP/s",
        f"{_rate(peaks.hbm_bytes_per_s)}B/s memory",
        f"{_rate(peaks.link_bytes_per_s)}B/s links",
    ]
    return f"Bound by a rank's peaks, {clean_line(peaks.source)}:\n{', '.join(rates)}."


def _show_profile(report: EvalReport, result: CaseResult, profile: Profile, console: Console) -> None:
    """Where the trace lies, and what took most of each rank's call."""
    _print(console, Text(case_label(result), style="bold"))
    table = _table(">rank", "kernel or operator", ">calls", ">self us", ">share")
    for rank in profile.ranks:
        table.add_row(str(rank.rank), "the call", "1", _us(rank.call_us), _percent(1))
        for op in rank.top[:TOP_OPS]:
            name = Text(_cut(op.name, console.width - NUMBERS_CHARS))
            table.add_row("", name, str(op.calls), _us(op.self_us), _percent(op.share))
    _print(console, table)
    blind = [str(rank.rank) for rank in profile.ranks if rank.of == "host"]
    if report.device != "cpu" and blind:
        text = f"The profiler saw no kernel on rank {', '.join(blind)}: shown is what the host did."
        _print(console, Text(text, style="yellow"))
    if profile.trace is not None:
        console.print(Text(f"trace  {clean_line(profile.trace)}"), soft_wrap=True)
    last = max(index for index, other in enumerate(report.results) if other.profile is not None)
    if result is report.results[last]:
        _print(console, Text(), Text(PROFILE_LEGEND, style="dim"))
    _print(console, Text())


def _show_failure(report: EvalReport, result: CaseResult, console: Console) -> None:
    """What happened and where; the failure that decides the verdict in full, others in a line."""
    outcome = result.outcome
    where = f" on rank {outcome.rank}" if isinstance(outcome, Raised | Crashed) else ""
    title = f"{result.case.kind} {case_label(result)}: {outcome.type.replace('_', ' ')}{where}"
    console.print(Text(title, style="bold red"), soft_wrap=True)
    first, *more = _excerpt(_message(outcome), 1) or [""]
    console.print(Text("\n".join([f"  {first}", *(f"  | {line}" for line in more)])), soft_wrap=True)
    if result is verdict.first_failure(report):
        for heading, text in _evidence(report, outcome):
            console.print(Text(f"  {heading}:"), soft_wrap=True)
            console.print(Text("\n".join(f"  | {line}" for line in text), style="dim"), soft_wrap=True)
        path = clean_line(report.submission.name)
        advice = NEXT[outcome.type].format(problem=report.problem, path=path)
        _print(console, Padding(Text(f"Next: {advice}"), (0, 0, 0, 2), expand=False))
    console.print()


def _evidence(report: EvalReport, outcome: Outcome) -> list[tuple[str, list[str]]]:
    """Headings with the lines that a failure left behind."""
    shown: list[tuple[str, list[str]]] = []
    if isinstance(outcome, Raised):
        shown.append((f"traceback of rank {outcome.rank}", _excerpt(outcome.traceback, EXCERPT_LINES // 3)))
    if isinstance(outcome, Raised | Crashed):
        log = (
            outcome.log_tail if isinstance(outcome, Crashed) else report.logs.get(f"candidate rank {outcome.rank}", "")
        )
        shown.append((f"the end of rank {outcome.rank}'s log", _excerpt(log)))
    if isinstance(outcome, TimedOut):
        alike: dict[str, list[int]] = {}
        for rank, stack in enumerate(outcome.stacks):
            alike.setdefault(re.sub(r"0x[0-9a-f]+", "0x...", clean(stack)), []).append(rank)
        for stack, ranks in alike.items():
            who = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"
            shown.append((f"where {who} stood", _excerpt(stack, EXCERPT_LINES * 2 // 3)))
    return [(heading, lines) for heading, lines in shown if lines]


def _facts(report: EvalReport) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column()
    for kind in ("profile",) if report.mode == "profile" else ("test", "benchmark"):
        grid.add_row(f"{kind}s", _tally(report, kind))
    grid.add_row("verdicts", _verdicts(report.results))
    if figures := verdict.figures(report):
        score = (
            f"{_seconds(figures.score_s)} ({figures.score_s:.6g} s) as GPU MODE scores: {RANKINGS[report.ranking_by]}"
        )
        grid.add_row("score", score)
        if figures.roofline_fraction is not None:
            grid.add_row("roofline", f"{_percent(figures.roofline_fraction)} of the bound, geometric mean over shapes")
    if wall := report.empty_call_samples_us.get("wall"):
        empty = f"an empty call reads {_us(median(wall))} us"
        grid.add_row("clock", f"wall: first start to last end over ranks; {empty}")
    if report.environment:
        env = report.environment
        versions = f"Python {env.python}, torch {env.torch}" + (f", triton {env.triton}" if env.triton else "")
        grid.add_row(
            "machine", Text(clean_line(f"{env.machine_class}, {env.memory_bytes / 2**30:.1f} GiB; {versions}"))
        )
    phases = ", ".join(f"{name} {seconds:.1f}" for name, seconds in report.phases_s.items())
    grid.add_row("run", Text(f"{report.run_id}, {sum(report.phases_s.values()):.1f} s: {phases}"))
    for warning in report.warnings:
        grid.add_row(Text("warning", style="yellow"), Text(clean(warning)))
    if report.machine_state:
        found = ", ".join(line.split(":")[1].strip() for line in report.machine_state)
        grid.add_row(Text("doctor", style="yellow"), Text(clean_line(f"`python -m harness doctor` warns of: {found}")))
    return grid


def _tally(report: EvalReport, kind: str) -> str:
    outcomes = [result.outcome for result in report.results if result.case.kind == kind]
    timed, passed, not_run = (sum(isinstance(one, what) for one in outcomes) for what in (Timed, Passed, NotRun))
    if not outcomes:
        return f"none in mode {report.mode}"
    failed = len(outcomes) - timed - passed - not_run
    parts = [f"{timed + passed}/{len(outcomes)} passed"]
    parts += [f"{timed} timed"] if timed else []
    parts += [f"{failed} failed"] if failed else []
    parts += [f"{not_run} not run"] if not_run else []
    return ", ".join(parts)


def _verdicts(results: Iterable[CaseResult]) -> str:
    found = [result.verdicts for result in results if result.verdicts is not None]
    if not found:
        return "none: no output was judged"
    strict, gpumode = (sum(getattr(one, name).passed for one in found) for name in ("strict", "gpumode"))
    return f"strict (the gate) {strict}/{len(found)}, gpumode (published tolerance) {gpumode}/{len(found)}"


def _verdict(report: EvalReport) -> str:
    status, code = verdict.status(report), int(verdict.exit_code(report))
    failed = verdict.first_failure(report)
    if failed is not None:
        return f"fail: {failed.outcome.type.replace('_', ' ')} in {failed.case.kind} {case_label(failed)} (exit {code})"
    if status == "error":
        return f"error: ended before every shape was run (exit {code})"
    kinds = [result.case.kind for result in report.results]
    counts = [_count(kinds.count(kind), KIND_WORDS[kind]) for kind in KIND_WORDS if kind in kinds]
    return f"pass: right in {' and '.join(counts)} on {_count(report.world_size, 'rank')}"


def _speedup(report: EvalReport) -> str:
    if verdict.status(report) != "pass":
        return "none: only a run that passes has one"
    if (figures := verdict.figures(report)) is None:
        return f"none: mode {report.mode} times nothing"
    found = figures.geomean_speedup
    if isinstance(found.interval, Interval):
        interval = f"95 % interval {found.interval.low:.4g} to {found.interval.high:.4g}"
    else:
        interval = f"no interval: {found.interval.reason}"
    return f"{_times_as_fast(found.value)} the reference ({interval})"


def _place(board: Board | None, place: Place | None, report: EvalReport) -> str:
    if place is None:
        return "none: a failed run is never ranked" if verdict.status(report) == "fail" else "none: not recorded"
    text = f"{place.place} of {place.of} on the local leaderboard"
    if place.shared:
        text += f", shared with {_count(place.shared, 'other')}"
    if place.place > 1 and board is not None and report.environment is not None:
        group = (report.problem, report.suite, report.environment.machine_class, report.world_size)
        first = next((entry for _, entry in ranked(board, group)), None)
        text += f"; first: {_seconds(first.score_s)}, {first.author}'s {_short_file(first)}" if first else ""
    return text


def _message(outcome: Outcome) -> str:
    if isinstance(outcome, Held):
        return f"{outcome.check}: {outcome.evidence}"
    return outcome.message if isinstance(outcome, Wrong | Raised | Crashed | TimedOut) else ""


def _failed(result: CaseResult) -> bool:
    return verdict.case_status(result) == "fail"


# ---- progress --------------------------------------------------------------------------------------------------


class Progress:
    """Says how far an evaluation is: one live line on a terminal, a short line a phase and case elsewhere, or
    nothing where `silent`. For use in a `with`; the live line is gone afterwards, whatever happened."""

    def __init__(self, console: Console, silent: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self._console, self._silent, self._clock = console, silent, clock
        self._began = self._phase_began = clock()
        self._phase = self._case = ""
        self._live: Live | None = None

    def __enter__(self) -> "Progress":
        if self._console.is_terminal and not self._silent:
            self._live = Live(self, console=self._console, transient=True, refresh_per_second=8)
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._live:
            self._live.stop()

    def phase(self, name: str) -> None:
        """Another phase begins."""
        self._phase, self._case, self._phase_began = name, "", self._clock()
        self._line(f"[{self._clock() - self._began:5.1f} s] {name}")

    def case(self, label: str, index: int, count: int) -> None:
        """The case `index` (from 0) of the phase's `count` begins."""
        case = f"{index + 1}/{count}  {clean_line(label)}"
        if case != self._case:
            self._case = case
            self._line(f"[{self._clock() - self._began:5.1f} s]   {case}")

    def note(self, text: str) -> None:
        """Something worth a line of its own that stays."""
        if not self._silent:
            self._console.print(Text(clean(text)), soft_wrap=True)

    def __rich__(self) -> RenderableType:
        now = self._clock()
        times = f"{now - self._phase_began:.0f} s, {now - self._began:.0f} s in all"
        text = f"{SPINNER[int(8 * now) % len(SPINNER)]} {self._phase}  {times}  {self._case}"
        return Text(clean_line(text), no_wrap=True, overflow="crop")

    def _line(self, text: str) -> None:
        if self._live is None and not self._silent:
            self._console.print(Text(text), soft_wrap=True)


# ---- leaderboard and problems ------------------------------------------------------------------------------------


def show_board(board: Board, console: Console, problem: str | None = None, form: Format = "table") -> None:
    """Prints the leaderboard, or one problem's part of it; every format but the table is made for programs."""
    if form == "table":
        _print(console, board_table(board, problem, wide=console.width >= WIDE))
    else:
        console.out(BOARD_TEXTS[form](board, problem), end="", highlight=False)


def board_table(board: Board, problem: str | None = None, wide: bool = True) -> RenderableType:
    """A table a group: what is ranked together stands together. `wide` adds the interval and the time of day."""
    parts: list[RenderableType] = []
    for group in groups(board):
        name, suite, machine_class, world_size = group
        if problem not in (None, name):
            continue
        title = f"  suite {suite}, {_count(world_size, 'rank')}, {machine_class}"
        interval = [">95 % interval"] if wide else []
        table = _table(">place", ">score", ">speedup", *interval, ">roof", "author", "file", "date")
        for place, entry in ranked(board, group):
            ci = entry.geomean_speedup_ci
            roof = _percent(entry.roofline_fraction) if entry.roofline_fraction is not None else "-"
            between = [f"{ci[0]:.4g} to {ci[1]:.4g}" if ci else "-"] if wide else []
            figures = (str(place), _seconds(entry.score_s), _times_as_fast(entry.geomean_speedup), *between, roof)
            names = (Text(clean_line(text)) for text in (entry.author, _short_file(entry), _date(entry, wide)))
            table.add_row(*figures, *names)
        parts += [Text.assemble((clean_line(name), "bold"), clean_line(title)), table, Text()]
    if not parts:
        what = f"of {problem} " if problem else ""
        return Text(f"No evaluation {what}is recorded yet: `make eval PROBLEM={problem or 'a2a'}` makes the first.")
    return Group(*parts[:-1])


def board_json(board: Board, problem: str | None = None) -> str:
    """A list of entries as leaderboard.yaml has them, each with its place."""
    return json.dumps([{"place": place, **encode(entry)} for place, entry in _rows(board, problem)], indent=2) + "\n"


def board_csv(board: Board, problem: str | None = None) -> str:
    """An entry a line under a line of names; without the history."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = ["problem", "suite", "machine_class", "world_size", "place", "author", "file", "score_s"]
    columns += ["geomean_speedup", "low", "high", "roofline_fraction", "device", "date", "run_id", "sha256"]
    writer.writerow(columns)
    for place, entry in _rows(board, problem):
        low, high = entry.geomean_speedup_ci or ("", "")
        more = {"place": place, "low": low, "high": high}
        writer.writerow([more[name] if name in more else getattr(entry, name) for name in columns])
    return text.getvalue()


def board_markdown(board: Board, problem: str | None = None) -> str:
    """A table a group, as GitHub shows it."""
    lines: list[str] = []
    for group in groups(board):
        if problem not in (None, group[0]):
            continue
        name, suite, machine_class, world_size = group
        lines += [_cell(f"### {name}: suite {suite}, {_count(world_size, 'rank')}, {machine_class}"), ""]
        lines += ["| place | score | speedup | 95 % interval | roofline | author | file | date |"]
        lines += ["| ---: | ---: | ---: | ---: | ---: | --- | --- | --- |"]
        for place, entry in ranked(board, group):
            ci = entry.geomean_speedup_ci
            cells = [
                str(place),
                _seconds(entry.score_s),
                _times_as_fast(entry.geomean_speedup),
                f"{ci[0]:.4g} to {ci[1]:.4g}" if ci else "-",
                _percent(entry.roofline_fraction) if entry.roofline_fraction is not None else "-",
                *map(_cell, (entry.author, _short_file(entry), _date(entry, wide=False))),
            ]
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


BOARD_TEXTS: dict[str, Callable[[Board, str | None], str]] = {
    "markdown": board_markdown,
    "csv": board_csv,
    "json": board_json,
}


def problems_table(problems: Sequence[tuple[str, str, str, Sequence[str]]]) -> RenderableType:
    """What there is: (name, GPU MODE's name, description, suites) each."""
    table = _table("problem", "at GPU MODE", "suites", "what it is")
    for name, leaderboard, description, suites in problems:
        table.add_row(*(Text(clean_line(text)) for text in (name, leaderboard, ", ".join(suites), description)))
    return table


def _rows(board: Board, problem: str | None) -> list[tuple[int, Entry]]:
    return [row for group in groups(board) if problem in (None, group[0]) for row in ranked(board, group)]


def _short_file(entry: Entry) -> str:
    return entry.file.removeprefix(f"submissions/{entry.problem}/")


def _date(entry: Entry, wide: bool) -> str:
    return entry.date[:16].replace("T", " ") if wide else entry.date[:10]


def _cell(text: str) -> str:
    return clean_line(text).replace("|", "\\|")


# ---- text and numbers ----------------------------------------------------------------------------------------------


def clean(text: str) -> str:
    """Text from anywhere, safe to print: without escape sequences, control characters and what changes the
    direction of writing; line ends of all kinds become \\n."""
    text = ESCAPES.sub("", text).replace("\r\n", "\n").replace("\r", "\n").expandtabs(8)
    return "".join(char for char in text if char == "\n" or char.isprintable())


def clean_line(text: str) -> str:
    """The same on one line."""
    return clean(text).replace("\n", " ")


def _excerpt(text: str, head: int = 0) -> list[str]:
    """The last EXCERPT_LINES of a text, or its first `head` and its last lines, none of them very long."""
    lines = [line if len(line) <= LINE_CHARS else line[: LINE_CHARS - 3] + "..." for line in clean(text).splitlines()]
    if len(lines) <= EXCERPT_LINES:
        return lines
    left_out = f"({len(lines) - EXCERPT_LINES} lines left out; --json FILE keeps them)"
    return [*lines[:head], left_out, *lines[len(lines) - EXCERPT_LINES + head :]]


def _cut(text: str, chars: int) -> str:
    """The text on one line of at most that many characters."""
    line = clean_line(text)
    return line if len(line) <= chars else line[: max(0, chars - 3)] + "..."


def _print(console: Console, *parts: RenderableType) -> None:
    for part in parts:
        console.print(part, highlight=False)


def _table(*columns: str) -> Table:
    """A table without lines; a column whose name starts with > is set to the right and never broken."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for column in columns:
        number = column.startswith(">")
        table.add_column(
            column.removeprefix(">"), justify="right" if number else "left", no_wrap=number, overflow="fold"
        )
    return table


def _us(value_us: float) -> str:
    """Microseconds to about three digits: 9.87, 98.7, 987, 98,765."""
    return f"{value_us:.2f}" if value_us < 9.995 else f"{value_us:.1f}" if value_us < 99.95 else f"{value_us:,.0f}"


def _seconds(value_s: float) -> str:
    for unit, scale in (("us", 1e-6), ("ms", 1e-3)):
        if value_s < scale * 1e3:
            return f"{value_s / scale:.4g} {unit}"
    return f"{value_s:.4g} s"


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.1f}%" if fraction >= 0.001 else f"{100 * fraction:.2g}%"


def _times_as_fast(value: float) -> str:
    return f"{_us(value)}x"


def _rate(value: float) -> str:
    for unit, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value:.3g} "


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
