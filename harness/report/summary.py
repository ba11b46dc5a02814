"""The three lines that matter alone, for people: the verdict, the speedup (a solver's ratio) and the place on the
leaderboard."""

from dataclasses import dataclass

from harness.board.entries import Board, HeldEntry, short_file
from harness.board.judgements import doubted, group_of
from harness.board.places import By, Place, Ranked, is_open, noise_of, one_launch, ranking
from harness.core.records import Estimate, EvalReport, Outcome, TimedOut
from harness.core.words import count_text, cut_line, make_text, times_text
from harness.judging import verdict, warnings
from harness.judging.figures import ASKED, POWER, Resolution, unit_of_results
from harness.kinds.settings import MOST_LAUNCHES
from harness.report.document import Facts, Styled, UntrustedText
from harness.report.failures import stood

KIND_WORDS = {"test": "test", "benchmark": "benchmark", "profile": "profiled shape", "drawn": "drawn shape"}
WHY_CHARS = 160  # of the reason in the verdict
LAUNCHES = "`--launches 4` measures in fresh processes as often"
QUICK = "suite quick is to see whether a submission works; leave --suite out to time it"


@dataclass(frozen=True, kw_only=True)
class OnBoard:
    """What became of a run beside its report: `place` on the `board`, by speedup or score, None for one that was not
    recorded. `entry` says what became of it in a contest, instead of the place; `met` how it did beside another entry.
    """

    board: Board | None = None
    place: Place | None = None
    by: By = "speedup"
    entry: str = ""
    met: str = ""


NOT_RECORDED = OnBoard()


def summary_of(report: EvalReport, standing: OnBoard) -> Facts:
    """The three lines."""
    rows, entry, met = _rows(report, standing), standing.entry, standing.met
    style = "bold green" if verdict.status(report) == "pass" else "bold red"
    return Facts(
        (
            ("verdict", Styled(UntrustedText(verdict_text(report)), style)),
            (unit_of_results(report.results).ratio, UntrustedText(_ratio(report, standing.board, rows))),
            ("entry", UntrustedText(entry)) if entry else ("place", UntrustedText(_place(report, standing, rows))),
            *([("beside", UntrustedText(met))] if met else []),
        ),
        whole=True,
    )


def _rows(report: EvalReport, standing: OnBoard) -> tuple[Ranked, ...]:
    """The entries that this evaluation is ranked with, best first by what its place comes from."""
    if standing.board is None or report.environment is None:
        return ()
    return ranking(standing.board, group_of(report), standing.by)


def _own(report: EvalReport, rows: tuple[Ranked, ...]) -> Ranked | None:
    of = (report.run_id, report.submission.sha256)
    return next((row for row in rows if (row.entry.run_id, row.entry.sha256) == of), None)


def verdict_text(report: EvalReport) -> str:
    status, code = verdict.status(report), int(verdict.exit_code(report))
    failed = verdict.first_failure(report)
    if failed is not None:
        what = verdict.word(failed.outcome)
        return f"fail: {what} in {failed.case.kind} {failed.case.title}{_why(failed.outcome)} (exit {code})"
    if status == "error":
        return f"error: ended before every shape was run (exit {code})"
    kinds = [result.case.kind for result in report.results]
    counts = [count_text(kinds.count(kind), KIND_WORDS[kind]) for kind in KIND_WORDS if kind in kinds]
    return f"pass: right in {' and '.join(counts)} on {count_text(report.world_size, 'rank')}"


def _why(outcome: Outcome) -> str:
    """The reason in a few words, for the line that --quiet prints alone too."""
    said = verdict.OUTCOMES[outcome.type].short.format_map(vars(outcome))
    where = stood(outcome) if isinstance(outcome, TimedOut) else said
    return f": {cut_line(where, WHY_CHARS)}" if where else ""


def resolution_text(found: Resolution) -> str:
    text = f"{found.difference:.1%} between two evaluations like this one ({POWER:.0%} power at 5 %)"
    if found.difference <= ASKED:
        return text
    launches = f"`--launches {found.launches}`, or " if found.launches <= MOST_LAUNCHES else ""
    return f"{text}; for {ASKED:.0%} {launches}`settle`, which times two files in turn"


def untold_text(report: EvalReport, board: Board | None) -> str:
    """What would tell whether it is better than the reference, where one launch does not; "" where it does, where they
    are the same code, and where a warning says what to do first. Longer measurements do not help where only what
    launches differ by keeps 1 in the interval."""
    ratio = report.figures.ratio if report.figures else None
    if ratio is None or ratio.launches > 1 or report.is_reference or warnings.doubts(report.warnings):
        return ""
    samples, shown = ratio.ci, shown_ratio(report, ratio, board).ci
    if samples is None or shown is None or not shown[0] <= 1 <= shown[1]:
        return ""
    unit = unit_of_results(report.results)
    has_launches = unit.head == "us"  # trainings and models have one
    more = LAUNCHES if has_launches and not samples[0] <= 1 <= samples[1] else unit.more
    next_step = QUICK if report.suite == "quick" else more
    return f"no difference from the reference, since 1x is in the interval; {next_step}"


def drawn_text(report: EvalReport) -> str:
    """The ratio on drawn shapes and on the benchmarks near them; "" where none were drawn."""
    found = report.figures
    if found is None or found.drawn is None or found.near_drawn is None:
        return ""
    drawn = [(one, one.figures) for one in report.results if one.case.kind == "drawn"]
    at = [f"{times_text(its.ratio.value)} at {one.case.label}" for one, its in drawn if its and its.ratio]
    return f"published shapes {times_text(found.near_drawn)}, drawn shapes {times_text(found.drawn)}: {'; '.join(at)}"


def _ratio(report: EvalReport, board: Board | None, rows: tuple[Ranked, ...]) -> str:
    if verdict.status(report) != "pass":
        return "none: only a run that passes has one"
    if report.figures is None:
        return f"none: mode {report.mode} times nothing"
    if (ratio := report.figures.ratio) is None:
        return "none: of the reference nothing was measured"
    shown = shown_ratio(report, ratio, board)
    text = f"{times_text(ratio.value)} the reference ({_interval(shown, unit_of_results(report.results).more)})"
    own = _own(report, rows)
    if own is not None and own.launches > ratio.launches and own.ratio is not None and own.ratio.ci is not None:
        low, high = own.ratio.ci
        text += f"; over {own.launches} launches {times_text(own.ratio.value)} ({low:.4g} to {high:.4g})"
    doubts = warnings.doubts(report.warnings)
    return f"{text}; doubtful: {doubts}" if doubts else text


def shown_ratio(report: EvalReport, ratio: Estimate, board: Board | None) -> Estimate:
    """With what launches differ by; one launch does not know that, and has what is known of evaluations."""
    machine_class = report.environment.machine_class if report.environment else ""
    noise = noise_of(board or Board(), report.problem, machine_class, report.device)
    return ratio if ratio.launches > 1 else one_launch(ratio, noise)


def _interval(ratio: Estimate, more: str) -> str:
    """The interval, or why there is none and how to get `more` samples."""
    return launches_interval(ratio) or f"no interval: {ratio.why}; {more}"


def launches_interval(ratio: Estimate) -> str:
    """The interval of a ratio that is shown, or "" where there is none."""
    if ratio.ci is None:
        return ""
    over = f"{ratio.launches} launches" if ratio.launches > 1 else "launches"
    return "95 % interval over {} {:.4g} to {:.4g}".format(over, *ratio.ci)


def _place(report: EvalReport, standing: OnBoard, rows: tuple[Ranked, ...]) -> str:
    board, place = standing.board, standing.place
    if place is None:
        held = next((one for one in board.held if one.run_id == report.run_id), None) if board else None
        if board is not None and held is not None:
            return _beside(board, held)
        return "none: a failed run is never ranked" if verdict.status(report) == "fail" else "none: not recorded"
    own = _own(report, rows)
    text = f"{place.text} of {place.of} on the local leaderboard"
    if place.settled:
        text += f", settled {place.settled[:10]}"
    if place.place > 1 and rows:
        text += _behind(report, own, rows[0])
    if board is not None and own is not None and (doubt := doubted(board, own.entry)):
        again = f"`python -m harness verify {own.entry.run_id}` settles it"
        text += f"; the same source was held on {doubt.date[:10]} ({doubt.check}): {again}"
    if place.last > place.place and own is not None and own.by == "score":
        text += f", shared with {count_text(place.last - place.place, 'other')}"
    if own is not None and own.copy_of is not None:
        text += f"; a copy of {own.copy_of.author}'s {own.copy_of.file} of {own.copy_of.date[:10]}"
    if own is not None and is_open(own, rows):
        text += f"; not resolved: {make_text('settle', report.problem)} runs the entries head to head"
    return text


def _behind(report: EvalReport, own: Ranked | None, first: Ranked) -> str:
    whose = f"{first.entry.author}'s {short_file(first.entry)}"
    ratio = own.ratio if own else report.figures.ratio if report.figures else None
    if first.by == "speedup" and first.ratio is not None and ratio is not None:
        gap, figure = first.ratio.value / ratio.value, times_text(first.ratio.value)
    elif report.figures is not None:
        times = (own or report.figures).score.value / first.score.value
        gap, figure = times if first.score.better == "less" else 1 / times, first.score.text
    else:
        return f"; first: {first.score.text}, {whose}"
    return f", {times_text(gap)} behind the first: {figure}, {whose}"


def _beside(board: Board, held: HeldEntry) -> str:
    """Where a held evaluation stands, and what became of the same file's entry."""
    text = f"none: held ({held.check}), shown beside the board; `python -m harness verify {held.run_id}` runs it again"
    earlier = next((entry for entry in board.entries if entry.identity == held.identity), None)
    return text + (f"; this file's entry of {earlier.date[:10]} stays as it is" if earlier else "")
