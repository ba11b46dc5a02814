"""What an audit found, as lines and as a page of Markdown."""

from collections.abc import Sequence

from harness.kinds.benchmarks.audit import Audit

CHEATS = """- **zeros**, **constant** (the mean of an earlier result), **stale** (an earlier input's result), **input**
  (a copy of an input that has the result's shape): none computes anything.
- **bf16**, **fp16**, **fp8**: the reference on inputs, parameters and results rounded to that type, where it is
  narrower than the problem's."""


def words(audit: Audit) -> str:
    """One problem in a line: `an input passes as the result; own tolerance: input, bf16; strict: none`."""
    if audit.skipped:
        return f"skipped: {audit.skipped}"
    strict = "refuses the problem" if audit.refused else _names(audit.strict)
    weak = f"weak problem: {audit.weakness}; " if audit.weakness else ""
    return f"{weak}own tolerance: {_names(audit.own)}; strict: {strict}"


def summary(audits: Sequence[Audit]) -> str:
    """How many problems are weak, in lines."""
    tried = [one for one in audits if not one.skipped]
    weak = [one for one in tried if one.weakness]
    narrow = [one for one in tried if {"bf16", "fp16", "fp8"} & set(one.own)]
    strict = [one for one in tried if one.strict]
    lines = [
        f"problems   {len(audits)}, {len(tried)} tried, {len(audits) - len(tried)} skipped",
        f"weak       {len(weak)} take a result that computes nothing, by their own tolerance",
        f"precision  {len(narrow)} take a narrower type, by their own tolerance",
        f"strict     {len(strict)} of them do by our verdict; {sum(one.refused for one in tried)} are refused",
    ]
    return "\n".join([*lines, *(f"weak problem: {one.problem}: {one.weakness}" for one in weak)])


def markdown(audits: Sequence[Audit], command: str, machine: str, date: str) -> str:
    """The page: what was run, the counts, and a row for each problem."""
    rows = [
        "| problem | own tolerance takes | our verdict takes | weak problem |",
        "| --- | --- | --- | --- |",
        *(_row(one) for one in audits),
    ]
    return "\n".join(
        [
            f"`{command}`, {date}, on {machine}.",
            "",
            "```",
            summary(audits).partition("\nweak problem")[0],
            "```",
            "",
            CHEATS,
            "",
            *rows,
            "",
        ]
    )


def _row(audit: Audit) -> str:
    if audit.skipped:
        return f"| {_cell(audit.problem)} | skipped: {_cell(audit.skipped)} | | |"
    smaller = f" ({_cell(audit.smaller)})" if audit.smaller else ""
    strict = "refused" if audit.refused else _names(audit.strict)
    return f"| {_cell(audit.problem)}{smaller} | {_names(audit.own)} | {strict} | {audit.weakness} |"


def _names(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
