"""Scored results of MLPerf Training: on a terminal, as Markdown and as JSON."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from harness.core.checkout import shown
from harness.core.decode import encode
from harness.core.words import clean_line, literal, plain_table, print_all
from harness.evaluation.mlperf import Scored
from harness.judging.mlperf import LoggedRun, Result
from harness.report.markdown import table_lines

JSON_SCHEMA = 1  # of --json; 1: first
COLUMNS = ("run", ">minutes", ">samples", ">quality", ">seed", "")


def show(found: Sequence[Scored], console: Console) -> None:
    """Prints a table of runs and the score of each result."""
    for number, one in enumerate(found):
        table = plain_table("=run", *COLUMNS[1:])
        for cells in _rows(one.result):
            table.add_row(*map(Text, cells))
        lines = [Text(line) for line in _sums(one.result)]
        print_all(console, *([""] if number else []), Text(_title(one)), "", table, "", *lines)


def to_markdown(found: Sequence[Scored]) -> str:
    """The same as Markdown."""
    lines: list[str] = []
    for one in found:
        lines += [f"### {literal(_title(one))}", "", *table_lines(COLUMNS, _rows(one.result)), ""]
        lines += [*(f"- {literal(line)}" for line in _sums(one.result)), ""]
    return "\n".join(lines)


def to_json(found: Sequence[Scored]) -> dict[str, Any]:
    """The object that --json writes; times in seconds."""
    results = [
        {
            "folder": str(one.folder),
            "name": one.name,
            **encode(one.result),
            "score_s": one.result.score_s,
            "valid": not one.result.refused,
        }
        for one in found
    ]
    return {"schema": JSON_SCHEMA, "results": results}


def _title(one: Scored) -> str:
    first = one.result.runs[0]
    what = [first.benchmark, first.platform, first.org, first.division]
    named = ", ".join(word for word in what if word) or "unnamed"
    return clean_line(f"{named}: {shown(one.folder / one.name)}")


def _rows(result: Result) -> list[list[str]]:
    dropped = _dropped(result)
    return [
        [
            clean_line(run.file),
            _minutes(run.seconds),
            "-" if run.samples is None else f"{run.samples:,.10g}",
            "-" if run.quality is None else f"{run.quality:.4f}",
            "-" if run.seed is None else str(run.seed),
            dropped.get(run.file, ""),
        ]
        for run in result.runs
    ]


def _dropped(result: Result) -> dict[str, str]:
    """Which runs the mean leaves out, by file."""
    if result.mean_s is None:
        return {run.file: "did not converge" for run in result.runs if not run.converged}
    ordered = sorted(result.runs, key=_rank)
    slowest = "slowest, left out" if ordered[-1].converged else "did not converge: counts as the slowest, left out"
    return {ordered[0].file: "fastest, left out", ordered[-1].file: slowest}


def _rank(run: LoggedRun) -> tuple[bool, float]:
    return (not run.converged, run.seconds)


def _sums(result: Result) -> list[str]:
    """The mean, the factor, the score, and why MLPerf would refuse the result."""
    lines = []
    if result.mean_s is not None and result.score_s is not None:
        lines += [
            f"Olympic mean    {_minutes(result.mean_s)} min over {len(result.runs)} runs, of which "
            f"{len(result.runs) - 2} count",
            f"scaling factor  {result.factor:.6f} ({result.factor_from})",
            f"score           {result.score_s / 60:.3f} min",
        ]
    return lines + [clean_line(f"refused         {why}") for why in result.refused]


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.4f}"
