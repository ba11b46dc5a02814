"""What an audit found, as lines and as a document."""

from collections.abc import Sequence

from harness.kinds.benchmarks.audit import Audit
from harness.report.document import Document, Table, UntrustedText, Words, prose

COLUMNS = "problem", "own tolerance takes", "our verdict takes", "weak problem"
CHEATS = (
    "zeros, constant (the mean of an earlier result), stale (an earlier input's result) and input (a copy of an input "
    "that has the result's shape) compute nothing; bf16, fp16 and fp8 are the reference on inputs, parameters and "
    "results rounded to that type, where it is narrower than the problem's."
)


def words(audit: Audit) -> str:
    """One problem in a line: `an input passes as the result; own tolerance: input, bf16; strict: none`."""
    if audit.skipped:
        return f"skipped: {audit.skipped}"
    strict = "refuses the problem" if audit.refused else _names(audit.strict)
    weak = f"weak problem: {audit.weakness}; " if audit.weakness else ""
    return f"{weak}own tolerance: {_names(audit.own)}; strict: {strict}"


def document_of(audits: Sequence[Audit], command: str, where: str, date: str) -> Document:
    return Document(
        blocks=(
            prose(UntrustedText(f"{command}, {date}, on {where}.")),
            prose(CHEATS),
            Table(COLUMNS, [_row(one) for one in audits]),
        ),
        summary=prose(*_summary(audits), whole=True),
    )


def _summary(audits: Sequence[Audit]) -> list[Words]:
    tried = [one for one in audits if not one.skipped]
    weak = [one for one in tried if one.weakness]
    narrow = [one for one in tried if {"bf16", "fp16", "fp8"} & set(one.own)]
    strict = [one for one in tried if one.strict]
    return [
        f"problems   {len(audits)}, {len(tried)} tried, {len(audits) - len(tried)} skipped",
        f"weak       {len(weak)} take a result that computes nothing, by their own tolerance",
        f"precision  {len(narrow)} take a narrower type, by their own tolerance",
        f"strict     {len(strict)} of them do by our verdict; {sum(one.refused for one in tried)} are refused",
        *(UntrustedText(f"weak problem: {one.problem}: {one.weakness}") for one in weak),
    ]


def _row(audit: Audit) -> tuple[Words, ...]:
    if audit.skipped:
        return UntrustedText(audit.problem), UntrustedText(f"skipped: {audit.skipped}"), "", ""
    name = f"{audit.problem} ({audit.smaller})" if audit.smaller else audit.problem
    strict = "refused" if audit.refused else _names(audit.strict)
    return UntrustedText(name), _names(audit.own), strict, UntrustedText(audit.weakness)


def _names(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
