"""What `compare` found, on a terminal and as JSON."""

import math
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.core.decode import encode
from harness.core.metric_words import words_of
from harness.core.stats import median
from harness.core.words import clean_line, count_text
from harness.evaluation.compare import SCHEMA, Comparison, Ratio, Side, Word, digits_text, ratio_text, rule, shown
from harness.judging.warnings import text_of

STYLES: dict[Word, str] = {"BETTER": "bold green", "WORSE": "bold red", "SAME": "bold", "AMBIGUOUS": "bold yellow"}


# ---- how it is shown -------------------------------------------------------------------------------------------------
def show(found: Comparison, console: Console) -> None:
    """Prints the comparison; its last line is the summary."""
    for label, side in (("A", found.a), ("B", found.b)):
        head = found.problem if label == "A" else " " * len(found.problem)
        run = f", run {side.run_id}" if side.run_id else ""
        console.print(Text.assemble((head, "bold"), f"  {label}  {clean_line(side.name + run)}"), soft_wrap=True)
    words = words_of(found.metric)
    how = words.in_turn if found.how == "paired" else words.apart
    where = f"{count_text(found.world_size, 'rank')} on {found.device}, suite {clean_line(found.suite)}"
    console.print(Text(f"{where}, {how}\n"))
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
    summary, words = found.summary, words_of(found.metric)
    word = shown(summary.word, words)
    rest = summary_text(found).removeprefix(f"B is {word}")
    last = Text.assemble(("summary  ", "bold"), "B is ", (word, STYLES[summary.word]), rest)
    console.print(last, highlight=False, soft_wrap=True)


def summary_text(found: Comparison) -> str:
    """The word for B over all cases, and the ratio that it follows from."""
    summary, words = found.summary, words_of(found.metric)
    over = f", geometric mean over {len(found.rows)} {words.case}s" if len(found.rows) > 1 else ""
    interval = interval_text(summary.ci)
    return f"B is {shown(summary.word, words)}  A / B is {ratio_text(summary)} (95 % interval {interval}){over}"


def table_of(found: Comparison) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The names of the columns, > before those aligned right, and a row of cells for each case."""
    words, unit = words_of(found.metric), found.metric.unit
    columns = (words.case, f">A {unit}", f">B {unit}", ">A / B", ">95 % interval", "B is")
    rows: list[tuple[str, ...]] = [
        (
            clean_line(row.label),
            words.value(median(row.a)),
            words.value(median(row.b)),
            ratio_text(one),
            interval_text(one.ci),
            shown(one.word, words),
        )
        for row, one in zip(found.rows, found.ratios, strict=True)
    ]
    return columns, rows


def _table(found: Comparison) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    columns, rows = table_of(found)
    for name in columns:
        right = name.startswith(">")
        table.add_column(name.removeprefix(">"), justify="right" if right else "left", no_wrap=name != columns[0])
    for label, *cells in rows:
        table.add_row(Text(label), *cells)
    return table


def _legend(found: Comparison) -> list[str]:
    words = words_of(found.metric)
    judged = words.judged if found.how == "paired" else ""
    lines = [f"{words.compared} {judged}".rstrip(), rule(found.margin, words)]
    if len(found.rows) > 1:
        lines.append(f"The summary is of the geometric mean; a {words.case}'s word is not corrected for their number.")
    if found.how == "unpaired":
        noise = f" Intervals include that launches of one source differ by {found.noise.sd:.0%}." if found.noise else ""
        lines.append(f"A / B is the ratio of {words.ratio}s, each over its own run's reference.{noise}")
    elif found.summary.word == "AMBIGUOUS":
        lines.append(f"Longer measurements narrow an interval: {words.more_samples}.")
    return lines


def to_json(comparisons: Sequence[Comparison], code: int) -> dict[str, Any]:
    """What --json writes, with all samples: nothing else keeps them."""
    return {"schema": SCHEMA, "exit_code": code, "comparisons": [_json(one) for one in comparisons]}


def _json(found: Comparison) -> dict[str, Any]:
    words, unit = words_of(found.metric), found.metric.unit

    def told(one: Ratio) -> dict[str, Any]:
        between = list(one.ci) if one.ci else None
        return {"ratio": one.value, "ratio_ci": between, "word": shown(one.word, words)}

    def side(one: Side) -> dict[str, Any]:
        return {"path": one.name, "sha256": one.sha256, "run_id": one.run_id}

    return {
        "problem": found.problem,
        "suite": found.suite,
        "device": found.device,
        "world_size": found.world_size,
        "how": found.how,
        "margin": found.margin,
        "rule": rule(found.margin, words),
        "metric": encode(found.metric),
        "a": side(found.a),
        "b": side(found.b),
        "cases": [
            {
                "params": dict(row.params),
                "drift": math.exp(row.drift),
                f"a_{unit}": median(row.a),
                f"b_{unit}": median(row.b),
                **told(one),
                f"a_samples_{unit}": list(row.a),
                f"b_samples_{unit}": list(row.b),
            }
            for row, one in zip(found.rows, found.ratios, strict=True)
        ],
        "summary": told(found.summary),
        "drift": math.exp(found.drift),
        "machines_apart": math.exp(found.apart),
        "warnings": [text_of(one, "A") for one in found.warnings],
    }


def interval_text(ci: tuple[float, float] | None) -> str:
    """`1.02 to 1.07`."""
    return f"{digits_text(ci[0])} to {digits_text(ci[1])}" if ci else "-"
