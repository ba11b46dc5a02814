"""What `tune-kernel` found: tables for people, and lines for tuning.py."""

from collections.abc import Mapping

from harness.core.records import param_text
from harness.report.document import Block, Document, Table, UntrustedText, Words, prose
from harness.tuning.records import CaseFound, TuneResult
from harness.tuning.table import line_of


def document_of(found: TuneResult, short: Mapping[str, str]) -> Document:
    """A line a case: the best row, what it takes, what it was predicted to take, and how the search went; then the best
    rows of each case beside the reference, the best row as a line for tuning.py, and the rows that failed."""
    columns = ("shape", "row", ">us", ">predicted", ">measured", ">pruned", ">of", "ended")
    blocks: list[Block] = [
        prose(UntrustedText(found.gpu)),
        Table(columns, [_cells(case, short) for case in found.cases]),
    ]
    finalists: list[list[Words]] = []
    for case in found.cases:
        for number, one in enumerate(case.finalists):
            ratio = "-" if case.reference_us is None else f"{case.reference_us / one.us:.3f}"
            label = "" if number else UntrustedText(_label(case, short))
            finalists.append([label, ratio, f"{one.us:.1f}", UntrustedText(_blocks(one.row))])
        if case.finalists and case.reference_us is not None:
            finalists.append(["", "1.000", f"{case.reference_us:.1f}", "the reference"])
    if finalists:
        names = ("shape", ">times the reference", ">us", "row, measured in turn with the others")
        best = (UntrustedText(line_of(case.best, None).rstrip()) for case in found.cases if case.best is not None)
        blocks += [Table(names, finalists), prose("For tuning.py:"), prose(*best, whole=True)]
    if failed := [UntrustedText(f"failed  {text}") for case in found.cases for text in case.failed]:
        blocks.append(prose(*failed))
    return Document(blocks=tuple(blocks))


def _label(case: CaseFound, short: Mapping[str, str]) -> str:
    return "  ".join(f"{short.get(name, name)} {param_text(value)}" for name, value in case.params.items())


def _blocks(row: tuple[object, ...]) -> str:
    """A row without its chip, its shape and how it was found."""
    return ", ".join(map(str, row[2:-1]))


def _cells(case: CaseFound, short: Mapping[str, str]) -> list[Words]:
    blocks = "none is right" if case.best is None else _blocks(case.best)
    us = "-" if case.best_us is None else f"{case.best_us:.1f}"
    predicted = "-" if case.predicted_us is None else f"{case.predicted_us:.1f}"
    counts = map(str, (case.measured, case.pruned, case.candidates))
    return [UntrustedText(_label(case, short)), UntrustedText(blocks), us, predicted, *counts, case.ended]
