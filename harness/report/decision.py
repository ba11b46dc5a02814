"""What `verify` decided, on a terminal and as JSON."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.board import entries
from harness.board.entries import Judged
from harness.core.decode import encode
from harness.core.records import EvalReport
from harness.core.words import clean_line
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
    console.print(Text(clean_line(f"{entries.described(one)}\n")), soft_wrap=True)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for name in ("launch", "score", "speedup", "95 % interval"):
        table.add_column(name, justify="left" if name == "launch" else "right", no_wrap=True)
    for report in reports:
        figures = report.figures
        if figures is None or figures.ratio is None:
            table.add_row(report.run_id, "-", "-", "does not pass")
            continue
        table.add_row(report.run_id, *_cells(figures.score.value, figures.ratio.value, figures.ratio.ci))
    if decision.score and decision.ratio:
        mean = decision.ratio
        table.add_row("Olympic mean", *_cells(decision.score.value, mean.value, mean.ci), style="bold")
    if claim := claim_of(one):
        table.add_row("the entry's claim", *_cells(claim.score, claim.ratio, claim.ci))
    console.print(table)
    console.print()
    show_decision(decision, console)
    if decision.word == "undecided":
        console.print("The leaderboard is as it was.")


def show_decision(decision: Decision, console: Console) -> None:
    """Prints the decision alone."""
    style = {"verified": "bold green", "held": "bold red", "undecided": "bold yellow"}[decision.word]
    check = f" ({decision.check})" if decision.word == "held" and decision.check != "verify" else ""
    line = Text.assemble((f"{decision.word}{check}", style), ": ", clean_line(decision.why))
    console.print(line, soft_wrap=True)


def _cells(score: float, speedup: float, ci: tuple[float, float] | None) -> tuple[str, str, str]:
    return f"{score * 1e3:.4g} ms", f"{speedup:.4g}x", f"{ci[0]:.4g} to {ci[1]:.4g}" if ci else "-"
