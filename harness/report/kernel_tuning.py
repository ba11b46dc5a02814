"""What `tune-kernel` found, as a table for people."""

from collections.abc import Mapping

from rich.console import Console

from harness.core.records import param_text
from harness.core.words import clean, plain_table
from harness.tuning.records import CaseFound, Result


def show(found: Result, short: Mapping[str, str], console: Console) -> None:
    """A line a case: the best row, what it takes, what it was predicted to take, and how the search went; then the rows
    that failed."""
    table = plain_table("shape", "row", ">us", ">predicted", ">measured", ">pruned", ">of", "ended")
    for case in found.cases:
        table.add_row(*_cells(case, short))
    console.print(f"{clean(found.gpu)}\n")
    console.print(table)
    for case in found.cases:
        for text in case.failed:
            console.print(f"failed  {clean(text)}", highlight=False)


def _cells(case: CaseFound, short: Mapping[str, str]) -> tuple[str, ...]:
    label = "  ".join(f"{short.get(name, name)} {param_text(value)}" for name, value in case.params.items())
    blocks = "none is right" if case.best is None else clean(", ".join(map(str, case.best[2:-1])))
    us = "-" if case.best_us is None else f"{case.best_us:.1f}"
    predicted = "-" if case.predicted_us is None else f"{case.predicted_us:.1f}"
    counts = (case.measured, case.pruned, case.candidates)
    return (label, blocks, us, predicted, *map(str, counts), case.ended)
