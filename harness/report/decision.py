"""What `verify` decided, as a document and as JSON."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from harness.board import entries
from harness.board.entries import Entry, Judged
from harness.core.decode import encode
from harness.core.metrics import Unit, unit_of
from harness.core.records import EvalReport, Score
from harness.core.words import interval_text, or_dash
from harness.evaluation.verify import EXITS, JSON_SCHEMA, Decision, claim_of
from harness.judging import verdict
from harness.judging.figures import unit_of_results
from harness.report.document import Block, Document, Prose, Styled, Table, UntrustedText, Words, prose


def to_json(one: Judged, decision: Decision, reports: Sequence[EvalReport]) -> dict[str, Any]:
    """The object that --json writes: the entry as it was, the decision, a row a launch; the runs have the rest."""
    rows = []
    for report in reports:
        figures = report.figures
        rows.append(
            {
                "run_id": report.run_id,
                "status": verdict.status(report),
                "score": encode(figures.score) if figures else None,
                "ratio": encode(figures.ratio) if figures else None,
            }
        )
    return {
        "schema": JSON_SCHEMA,
        "entry": encode(one),
        "decision": encode(decision),
        "launches": rows,
        "exit_code": int(EXITS[decision.word]),
    }


def document_of(one: Judged, decision: Decision, reports: Sequence[EvalReport]) -> Document:
    return Document(blocks=launch_blocks(one, decision, reports), summary=_word(decision))


def launch_blocks(one: Judged, decision: Decision, reports: Sequence[EvalReport]) -> tuple[Block, ...]:
    rows: list[list[Words]] = []
    styles = {}
    for report in reports:
        figures = report.figures
        if figures is None or figures.ratio is None:
            told = "-" if figures is None else figures.score.text
            rows.append([report.run_id, told, "-", "does not pass" if figures is None else "no reference"])
            continue
        rows.append([report.run_id, *_cells(figures.score, figures.ratio.value, figures.ratio.ci)])
    of_launches = [report.figures.score for report in reports if report.figures is not None]
    if decision.score and decision.ratio and of_launches:
        score, mean = replace(of_launches[0], value=decision.score.value), decision.ratio
        styles[len(rows)] = "bold"
        rows.append(["Olympic mean", *_cells(score, mean.value, mean.ci)])
    if claim := claim_of(one):
        rows.append(["the entry's claim", *_cells(claim.score, claim.ratio, claim.ci)])
    names = ("=launch", ">score", f">{_unit(one, reports).ratio}", ">95 % interval")
    return (prose(UntrustedText(entries.described(one)), whole=True), Table(names, rows, styles=styles))


def _word(decision: Decision) -> Prose:
    style = {"verified": "bold green", "held": "bold red", "undecided": "bold yellow"}[decision.word]
    check = f" ({decision.check})" if decision.word == "held" and decision.check != "verify" else ""
    said = (Styled(f"{decision.word}{check}", style), ": ", UntrustedText(decision.why))
    return prose(said, *(["The leaderboard is as it was."] if decision.word == "undecided" else []), whole=True)


def _unit(one: Judged, reports: Sequence[EvalReport]) -> Unit:
    """That of the metric that the entry, or else its launches, were ranked by."""
    if isinstance(one, Entry) and one.cases:
        return unit_of(one.cases[0].unit)
    return unit_of_results([result for report in reports for result in report.results])


def _cells(score: Score, ratio: float, ci: tuple[float, float] | None) -> tuple[str, str, str]:
    return score.text, f"{ratio:.4g}x", or_dash(interval_text, ci)
