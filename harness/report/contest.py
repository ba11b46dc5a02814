"""A competition's problems and results as documents and as JSON."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from harness.board.entries import Board, Entry
from harness.board.places import groups, ranking
from harness.board.report_json import error_json, to_json
from harness.contest.rules import RANKED_BY, Competition, Evaluated, Listed
from harness.contest.times import closing, is_late
from harness.core.checkout import Checkout
from harness.core.errors import Exit, HarnessError
from harness.core.metrics import ratio_name
from harness.core.stats import geomean
from harness.core.words import count_text, speedup_text
from harness.judging import verdict
from harness.kinds.registry import find
from harness.report.document import Block, Document, Facts, Heading, Styled, Table, UntrustedText, Words, prose


# ---- how it is shown -------------------------------------------------------------------------------------------------
def list_document(competition: Competition, chosen: Sequence[Listed], found: Board, checkout: Checkout) -> Document:
    """The problems with their deadlines, and who leads each of their boards here."""
    now = datetime.now(UTC)
    rows: list[list[Words]] = []
    for listed in chosen:
        closes = competition.closes(listed)
        state = "" if closes is None else "closed" if now > closes else _in(closes, now)
        of_problem = [listed.name, " ".join(listed.gpus), f"{closes:%Y-%m-%d %H:%M}" if closes else "never", state]
        for entry in _leaders(found, listed, checkout) or [None]:
            leads = ["none", ""]
            if entry:
                late = "late" if is_late(entry.date, closes) else ""
                where = f"suite {entry.suite}, {entry.machine_class}"
                leads = [f"{speedup_text(entry.ratio)} {entry.author}, {where}", late]
            rows.append([UntrustedText(cell) for cell in (*of_problem, *leads)])
            of_problem = [""] * len(of_problem)  # its further boards
    columns = ("problem", "gpus", "closes (UTC)", "state", "leads here", "when")
    return Document(blocks=(*_headline(competition), Table(columns, rows)))


def document_of(competition: Competition, done: Sequence[Evaluated]) -> Document:
    """The summary over the problems; the last lines say how many passed and how much faster they are."""
    ratio = ratio_name(
        result.figures.metric.unit for one in done if one.report for result in one.report.results if result.figures
    )
    rows: list[list[Words]] = []
    speedups = []
    for one in done:
        figures = one.report.figures if one.report else None
        status = verdict.status(one.report) if one.report else "error"
        score, speedup = "", ""
        if figures is not None:
            score = figures.score.text
            speedup = f"{figures.ratio.value:.2f}x" if figures.ratio else ""
            speedups += [figures.ratio.value] if figures.ratio else []
        place = f"{one.place.text} of {one.place.of}" if one.place else ""
        names = (UntrustedText(one.listed.name), UntrustedText(one.submission))
        rows.append([*names, status, score, speedup, place, "late" if one.late else ""])
    passed = sum(one.exit_code == Exit.OK for one in done)
    late = sum(one.late for one in done)
    faster = "none: nothing was timed"
    if speedups:
        faster = f"{geomean(speedups):.2f}x the references, geometric mean over {count_text(len(speedups), 'problem')}"
    tally = f"{passed} of {len(done)} problems passed" + (f", {late} late" if late else "")
    columns = ("problem", "submission", "verdict", ">score", f">{ratio}", "place", "when")
    summary = Facts((("verdict", tally), (ratio, faster)), whole=True)
    return Document(blocks=(*_headline(competition), Table(columns, rows)), summary=summary)


def competition_json(competition: Competition, done: Sequence[Evaluated]) -> dict[str, Any]:
    """The competition and, where it was evaluated, each problem's report as `eval --json` has it."""
    by_name = {one.listed.name: one for one in done}
    problems = []
    for listed in competition.problems:
        closes, one = competition.closes(listed), by_name.get(listed.name)
        report = None
        if one is not None:
            error = {"error": str(one.error)} if one.error else {}  # of a report: why it is not recorded
            report = to_json(one.report, one.place) | error if one.report else error_json(str(one.error), one.exit_code)
        problems.append(
            {
                "name": listed.name,
                "directory": listed.directory,
                "gpus": list(listed.gpus),
                "deadline": closes.isoformat() if closes else None,
                "late": one.late if one else None,
                "report": report,
            }
        )
    return {"schema": 1, "name": competition.name, "description": competition.description, "problems": problems}


def _headline(competition: Competition) -> list[Block]:
    closes = closing(competition.deadline)
    ends = f", ends {closes:%Y-%m-%d %H:%M} UTC" if closes else ""
    blocks: list[Block] = [Heading((Styled(UntrustedText(competition.name), ""), Styled(ends, "")))]
    if competition.description:
        blocks.append(prose(*map(UntrustedText, competition.description.strip().splitlines())))
    return blocks


def _leaders(found: Board, listed: Listed, checkout: Checkout) -> list[Entry | None]:
    """The first entry of each board of that leaderboard name, by score, as the competition ranks."""
    try:
        name = find(listed.name, checkout).name
    except HarnessError:
        return []
    return [ranking(found, group, RANKED_BY)[0].entry for group in groups(found) if group[0] == name]


def _in(closes: datetime, now: datetime) -> str:
    left = closes - now
    return f"in {left.days} days" if left.days > 1 else f"in {left.total_seconds() / 3600:.0f} hours"
