"""A contest's statistics on a terminal. As JSON they are the record itself."""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from harness.contest.statistics import Best, Statistics
from harness.contest.times import read_moment, shown_time
from harness.core.words import clean_line, count_text, plain_table, times_text, us_text

BAR_CHARS = 40  # of the longest bar


def show_statistics(found: Statistics, console: Console) -> None:
    """A table a question: when, how good, how long until the first, what failed, how they spread."""
    at = shown_time(read_moment(found.at).replace(microsecond=0))
    frozen = ""
    if found.frozen_at:
        frozen = f", frozen: as of {shown_time(read_moment(found.frozen_at).replace(microsecond=0))}"
    console.print(Text.assemble((clean_line(found.contest), "bold"), f", {at}{frozen}"))
    states = ", ".join(f"{count} {name}" for name, count in found.states.items())
    console.print(
        f"{count_text(found.teams, 'team')}, {count_text(found.submissions, 'submission')}"
        + (f": {states}" if states else ""),
        highlight=False,
    )
    _days(found, console)
    if found.is_hidden:
        console.print("\nFigures are private until the contest ends; organisers see them with --full.")
        return
    _best(found.best, console)
    _first_valid(found, console)
    if found.failures:
        table = plain_table("failures: problem", "kind", ">count")
        for failure in found.failures:
            table.add_row(*_cells(failure.problem, failure.kind.replace("_", " "), str(failure.count)))
        _print(table, console)
    if found.shapes:
        table = plain_table(
            "shapes: problem", "shape", "unit", ">n", ">least", ">quartile", ">median", ">quartile", ">most", ">best"
        )
        for one in found.shapes:
            values = (one.low, one.first_quartile, one.median, one.third_quartile, one.high)
            speedup = times_text(one.speedup) if one.speedup else "-"
            table.add_row(
                *_cells(
                    one.problem, one.shape, one.unit, str(one.count), *(us_text(value) for value in values), speedup
                )
            )
        _print(table, console)


def _days(found: Statistics, console: Console) -> None:
    if not found.days:
        return
    most = max(day.submitted for day in found.days)
    table = plain_table("day (UTC)", ">submitted", ">passed", ">failed", ">held", "")
    for day in found.days:
        bar = "#" * max(1, round(BAR_CHARS * day.submitted / most))
        table.add_row(day.day, str(day.submitted), str(day.passed), str(day.failed), str(day.held), bar)
    _print(table, console)


def _best(best: Sequence[Best], console: Console) -> None:
    if not best:
        return
    table = plain_table("best so far: problem", "when", "team", ">entry", ">speedup", ">from the limit")
    for one in best:
        distance = times_text(1 / one.of_limit) if one.of_limit else "-"
        when = shown_time(read_moment(one.at).replace(second=0, microsecond=0))
        table.add_row(*_cells(one.problem, when, one.team, str(one.entry), times_text(one.speedup), distance))
    _print(table, console)


def _first_valid(found: Statistics, console: Console) -> None:
    tried = [one for one in found.first_valid if one.submissions]
    if not tried:
        return
    table = plain_table("first valid: problem", "team", ">after", ">submissions")
    slowest = float("inf")
    for one in sorted(
        found.first_valid, key=lambda one: (one.problem, slowest if one.seconds is None else one.seconds)
    ):
        after = "none yet" if one.seconds is None else duration_text(one.seconds)
        table.add_row(*_cells(one.problem, one.team, after, str(one.submissions)))
    _print(table, console)


def duration_text(seconds: float) -> str:
    """`2 d 03:20`, or `03:20`: days, hours and minutes."""
    days, rest = divmod(int(seconds) // 60, 24 * 60)
    clock = f"{rest // 60:02}:{rest % 60:02}"
    return f"{days} d {clock}" if days else clock


def _cells(*texts: str) -> list[Text]:
    return [Text(clean_line(text)) for text in texts]


def _print(table: object, console: Console) -> None:
    console.print()
    console.print(table)
