"""What `tune-kernel` found, as tables for people, and as lines for tuning.py."""

from collections.abc import Mapping

from rich.console import Console

from harness.core.records import param_text
from harness.core.words import clean, plain_table
from harness.tuning.records import CaseFound, TuneResult
from harness.tuning.table import line_of


def show(found: TuneResult, short: Mapping[str, str], console: Console) -> None:
    """A line a case: the best row, what it takes, what it was predicted to take, and how the search went; then the best
    rows of each case beside the reference, the best row as a line for tuning.py, and the rows that failed."""
    table = plain_table("shape", "row", ">us", ">predicted", ">measured", ">pruned", ">of", "ended")
    for case in found.cases:
        table.add_row(*_cells(case, short))
    console.print(f"{clean(found.gpu)}\n")
    console.print(table)
    finalists = plain_table("shape", ">times the reference", ">us", "row, measured in turn with the others")
    for case in found.cases:
        for number, one in enumerate(case.finalists):
            ratio = "-" if case.reference_us is None else f"{case.reference_us / one.us:.3f}"
            finalists.add_row("" if number else _label(case, short), ratio, f"{one.us:.1f}", _blocks(one.row))
        if case.finalists and case.reference_us is not None:
            finalists.add_row("", "1.000", f"{case.reference_us:.1f}", "the reference")
    if finalists.rows:
        console.print()
        console.print(finalists)
        console.print("\nFor tuning.py:\n")
        for case in found.cases:
            if case.best is not None:
                console.print(clean(line_of(case.best, None).rstrip()), highlight=False, soft_wrap=True)
    for case in found.cases:
        for text in case.failed:
            console.print(f"failed  {clean(text)}", highlight=False)


def _label(case: CaseFound, short: Mapping[str, str]) -> str:
    return "  ".join(f"{short.get(name, name)} {param_text(value)}" for name, value in case.params.items())


def _blocks(row: tuple[object, ...]) -> str:
    """A row without its chip, its shape and how it was found."""
    return clean(", ".join(map(str, row[2:-1])))


def _cells(case: CaseFound, short: Mapping[str, str]) -> tuple[str, ...]:
    blocks = "none is right" if case.best is None else _blocks(case.best)
    us = "-" if case.best_us is None else f"{case.best_us:.1f}"
    predicted = "-" if case.predicted_us is None else f"{case.predicted_us:.1f}"
    counts = (case.measured, case.pruned, case.candidates)
    return (_label(case, short), blocks, us, predicted, *map(str, counts), case.ended)
