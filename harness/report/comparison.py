"""What `compare` found, on a terminal and as JSON."""

import math
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.core.stats import median
from harness.core.words import clean_line, us_text
from harness.evaluation.compare import SCHEMA, Comparison, Ratio, Side, digits_text, ratio_text, rule
from harness.judging.warnings import text_of


# ---- how it is shown -------------------------------------------------------------------------------------------------
def show(found: Comparison, console: Console) -> None:
    """Prints the comparison; its last line is the summary."""
    for label, side in (("A", found.a), ("B", found.b)):
        head = found.problem if label == "A" else " " * len(found.problem)
        run = f", run {side.run_id}" if side.run_id else ""
        console.print(Text.assemble((head, "bold"), f"  {label}  {clean_line(side.name + run)}"), soft_wrap=True)
    how = "timed in turn on the same inputs" if found.how == "paired" else "timed in a run each, another time"
    console.print(Text(f"{found.world_size} ranks on {found.device}, suite {clean_line(found.suite)}, {how}\n"))
    console.print(_table(found), highlight=False)
    console.print()
    for line in _legend(found):
        console.print(Text(line, style="dim"), highlight=False)
    for warning in found.warnings:
        console.print(
            Text.assemble(("warning  ", "yellow"), clean_line(text_of(warning, "A"))), highlight=False, soft_wrap=True
        )
    console.print()
    show_summary(found, console)


def show_summary(found: Comparison, console: Console) -> None:
    """Prints the last line alone."""
    styles = {"FASTER": "bold green", "SLOWER": "bold red", "SAME": "bold", "AMBIGUOUS": "bold yellow"}
    word = found.summary.word
    rest = summary_text(found).removeprefix(f"B is {word}")
    last = Text.assemble(("summary  ", "bold"), "B is ", (word, styles[word]), rest)
    console.print(last, highlight=False, soft_wrap=True)


def summary_text(found: Comparison) -> str:
    """The word for B over all shapes, and the ratio that it follows from."""
    summary = found.summary
    over = f", geometric mean over {len(found.rows)} shapes" if len(found.rows) > 1 else ""
    return f"B is {summary.word}  A / B is {ratio_text(summary)} (95 % interval {interval_text(summary.ci)}){over}"


def _table(found: Comparison) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for name in ("shape", ">A us", ">B us", ">A / B", ">95 % interval", "B is"):
        right = name.startswith(">")
        table.add_column(name.removeprefix(">"), justify="right" if right else "left", no_wrap=name != "shape")
    for row, one in zip(found.rows, found.ratios, strict=True):
        cells = (
            us_text(median(row.a_us)),
            us_text(median(row.b_us)),
            ratio_text(one),
            interval_text(one.ci),
            one.word,
        )
        table.add_row(Text(clean_line(row.label)), *cells)
    return table


def _legend(found: Comparison) -> list[str]:
    judged = "A's outputs were judged in its tests only, B's in every call. " if found.how == "paired" else ""
    how = f"Times are medians (wall clock), A / B is by pairs of calls in blocks. {judged}".rstrip()
    lines = [how, rule(found.margin)]
    if len(found.rows) > 1:
        lines.append("The summary is of the geometric mean; a shape's word is not corrected for their number.")
    if found.how == "unpaired":
        noise = f" Intervals include that launches of one source differ by {found.noise.sd:.0%}." if found.noise else ""
        lines.append(f"A / B is the ratio of speedups, each over its own run's reference.{noise}")
    elif found.summary.word == "AMBIGUOUS":
        lines.append("Longer measurements narrow an interval: --seconds says how long a shape is timed.")
    return lines


def to_json(comparisons: Sequence[Comparison], code: int) -> dict[str, Any]:
    """What --json writes, with all samples: nothing else keeps them."""
    return {"schema": SCHEMA, "exit_code": code, "comparisons": [_json(one) for one in comparisons]}


def _json(found: Comparison) -> dict[str, Any]:
    def told(one: Ratio) -> dict[str, Any]:
        between = list(one.ci) if one.ci else None
        return {"ratio": one.value, "ratio_ci": between, "word": one.word}

    def side(one: Side) -> dict[str, Any]:
        return {"path": one.name, "sha256": one.sha256, "run_id": one.run_id}

    return {
        "problem": found.problem,
        "suite": found.suite,
        "device": found.device,
        "world_size": found.world_size,
        "how": found.how,
        "margin": found.margin,
        "rule": rule(found.margin),
        "a": side(found.a),
        "b": side(found.b),
        "cases": [
            {
                "params": dict(row.params),
                "a_us": median(row.a_us),
                "b_us": median(row.b_us),
                **told(one),
                "a_samples_us": list(row.a_us),
                "b_samples_us": list(row.b_us),
            }
            for row, one in zip(found.rows, found.ratios, strict=True)
        ],
        "summary": told(found.summary),
        "drift": math.exp(found.drift),
        "warnings": [text_of(one, "A") for one in found.warnings],
    }


def interval_text(ci: tuple[float, float] | None) -> str:
    """`1.02 to 1.07`."""
    return f"{digits_text(ci[0])} to {digits_text(ci[1])}" if ci else "-"
