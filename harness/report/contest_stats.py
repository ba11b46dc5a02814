"""A contest's statistics as a document. As JSON they are the record itself."""

from collections.abc import Iterator

from harness.contest.statistics import Best, Statistics
from harness.contest.times import read_moment, shown_time
from harness.core.metrics import unit_of
from harness.core.words import count_text, times_text
from harness.report.document import Block, Document, Heading, Styled, Table, UntrustedText, Words, cells, prose

BAR_CHARS = 40  # of the longest bar


def document_of(found: Statistics) -> Document:
    return Document(blocks=tuple(_blocks(found)))


def _blocks(found: Statistics) -> Iterator[Block]:
    at = f", {shown_time(read_moment(found.at).replace(microsecond=0))}"
    if found.frozen_at:
        at += f", frozen: as of {shown_time(read_moment(found.frozen_at).replace(microsecond=0))}"
    yield Heading((UntrustedText(found.contest), Styled(at, "")))
    states = ", ".join(f"{count} {name}" for name, count in found.states.items())
    counts = f"{count_text(found.teams, 'team')}, {count_text(found.submissions, 'submission')}"
    yield prose(f"{counts}: {states}" if states else counts)
    if found.days:
        most = max(day.submitted for day in found.days)
        bars = ("#" * max(1, round(BAR_CHARS * day.submitted / most)) for day in found.days)
        rows = [
            (day.day, *map(str, (day.submitted, day.passed, day.failed, day.held)), bar)
            for day, bar in zip(found.days, bars, strict=True)
        ]
        yield Table(("day (UTC)", ">submitted", ">passed", ">failed", ">held", ""), rows)
    if found.is_hidden:
        yield prose("Figures are private until the contest ends; organisers see them with --full.")
        return
    if found.best:
        columns = ("best so far: problem", "when", "team", ">entry", ">speedup", ">from the limit")
        yield Table(columns, list(map(_best, found.best)))
    if any(one.submissions for one in found.first_valid):
        last = float("inf")
        ordered = sorted(found.first_valid, key=lambda one: (one.problem, last if one.seconds is None else one.seconds))
        afters = ("none yet" if one.seconds is None else duration_text(one.seconds) for one in ordered)
        valid = [
            cells(one.problem, one.team, after, str(one.submissions))
            for one, after in zip(ordered, afters, strict=True)
        ]
        yield Table(("first valid: problem", "team", ">after", ">submissions"), valid)
    if found.failures:
        kinds = [cells(one.problem, one.kind.replace("_", " "), str(one.count)) for one in found.failures]
        yield Table(("failures: problem", "kind", ">count"), kinds)
    if found.shapes:
        names = (
            "shapes: problem", "shape", "unit", ">n", ">least", ">quartile", ">median", ">quartile", ">most", ">best"
        )  # fmt: skip
        shapes = []
        for one in found.shapes:
            values = (one.low, one.first_quartile, one.median, one.third_quartile, one.high)
            texts = map(unit_of(one.unit).value, values)
            speedup = times_text(one.speedup) if one.speedup else "-"
            shapes.append(cells(one.problem, one.shape, one.unit, str(one.count), *texts, speedup))
        yield Table(names, shapes)


def _best(one: Best) -> list[Words]:
    distance = times_text(1 / one.of_limit) if one.of_limit else "-"
    when = shown_time(read_moment(one.at).replace(second=0, microsecond=0))
    return cells(one.problem, when, one.team, str(one.entry), times_text(one.speedup), distance)


def duration_text(seconds: float) -> str:
    """`2 d 03:20`, or `03:20`: days, hours and minutes."""
    days, rest = divmod(int(seconds) // 60, 24 * 60)
    clock = f"{rest // 60:02}:{rest % 60:02}"
    return f"{days} d {clock}" if days else clock
