"""What `verify` decided, on a terminal and as JSON."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.board import entries
from harness.board.entries import Entry, Judged
from harness.core.decode import encode
from harness.core.metric_words import MetricWords, words_of_results, words_of_unit
from harness.core.records import EvalReport, Score
from harness.core.words import clean_line, score_text
from harness.evaluation.verify import EXITS, JSON_SCHEMA, Decision, claim_of
from harness.judging import verdict


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


def show(one: Judged, decision: Decision, reports: Sequence[EvalReport], console: Console) -> None:
    """Prints a row a launch, the Olympic mean, what the entry claims, and the decision."""
    show_launches(one, decision, reports, console)
    show_decision(decision, console)
    if decision.word == "undecided":
        console.print("The leaderboard is as it was.")


def show_launches(one: Judged, decision: Decision, reports: Sequence[EvalReport], console: Console) -> None:
    """Prints a row a launch, the Olympic mean, and what the entry claims."""
    console.print(Text(clean_line(f"{entries.described(one)}\n")), soft_wrap=True)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for name in ("launch", "score", _words(one, reports).ratio, "95 % interval"):
        table.add_column(name, justify="left" if name == "launch" else "right", no_wrap=True)
    for report in reports:
        figures = report.figures
        if figures is None or figures.ratio is None:
            told = "-" if figures is None else score_text(figures.score)
            table.add_row(report.run_id, told, "-", "does not pass" if figures is None else "no reference")
            continue
        table.add_row(report.run_id, *_cells(figures.score, figures.ratio.value, figures.ratio.ci))
    of_launches = [report.figures.score for report in reports if report.figures is not None]
    if decision.score and decision.ratio and of_launches:
        score, mean = replace(of_launches[0], value=decision.score.value), decision.ratio
        table.add_row("Olympic mean", *_cells(score, mean.value, mean.ci), style="bold")
    if claim := claim_of(one):
        table.add_row("the entry's claim", *_cells(claim.score, claim.ratio, claim.ci))
    console.print(table)
    console.print()


def show_decision(decision: Decision, console: Console) -> None:
    """Prints the decision alone."""
    style = {"verified": "bold green", "held": "bold red", "undecided": "bold yellow"}[decision.word]
    check = f" ({decision.check})" if decision.word == "held" and decision.check != "verify" else ""
    line = Text.assemble((f"{decision.word}{check}", style), ": ", clean_line(decision.why))
    console.print(line, soft_wrap=True)


def _words(one: Judged, reports: Sequence[EvalReport]) -> MetricWords:
    """Those of the metric that the entry, or else its launches, were ranked by."""
    if isinstance(one, Entry) and one.cases:
        return words_of_unit(one.cases[0].unit)
    return words_of_results([result for report in reports for result in report.results])


def _cells(score: Score, ratio: float, ci: tuple[float, float] | None) -> tuple[str, str, str]:
    return score_text(score), f"{ratio:.4g}x", f"{ci[0]:.4g} to {ci[1]:.4g}" if ci else "-"
