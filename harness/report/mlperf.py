"""Scored results of MLPerf Training, as a document and as JSON."""

from collections.abc import Sequence
from typing import Any

from harness.core.checkout import shown
from harness.core.decode import encode
from harness.evaluation.mlperf import Scored
from harness.judging.mlperf import ScoredResult
from harness.report.document import Document, Facts, Heading, Table, UntrustedText, Words

JSON_SCHEMA = 1  # of --json; 1: first
COLUMNS = ("=run", ">minutes", ">samples", ">quality", ">seed", "")


def document_of(found: Sequence[Scored]) -> Document:
    return Document(
        blocks=tuple(
            Document(
                blocks=(
                    Heading(UntrustedText(_title(one))),
                    Table(COLUMNS, _rows(one.result)),
                    Facts(_sums(one.result)),
                )
            )
            for one in found
        )
    )


def to_json(found: Sequence[Scored]) -> dict[str, Any]:
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
    return f"{named}: {shown(one.folder / one.name)}"


def _rows(result: ScoredResult) -> list[list[Words]]:
    dropped = _dropped(result)
    return [
        [
            UntrustedText(run.file),
            _minutes(run.seconds),
            "-" if run.samples is None else f"{run.samples:,.10g}",
            "-" if run.quality is None else f"{run.quality:.4f}",
            "-" if run.seed is None else str(run.seed),
            dropped.get(run.file, ""),
        ]
        for run in result.runs
    ]


def _dropped(result: ScoredResult) -> dict[str, str]:
    """Which runs the mean leaves out, by file."""
    if result.mean_s is None:
        return {run.file: "did not converge" for run in result.runs if not run.converged}
    ordered = sorted(result.runs, key=lambda run: (not run.converged, run.seconds))
    slowest = "slowest, left out" if ordered[-1].converged else "did not converge: counts as the slowest, left out"
    return {ordered[0].file: "fastest, left out", ordered[-1].file: slowest}


def _sums(result: ScoredResult) -> tuple[tuple[Words, Words], ...]:
    rows: list[tuple[Words, Words]] = []
    if result.mean_s is not None and result.score_s is not None:
        count = len(result.runs)
        rows += [
            ("Olympic mean", f"{_minutes(result.mean_s)} min over {count} runs, of which {count - 2} count"),
            ("scaling factor", (f"{result.factor:.6f} (", UntrustedText(result.factor_from), ")")),
            ("score", f"{result.score_s / 60:.3f} min"),
        ]
    return (*rows, *(("refused", UntrustedText(why)) for why in result.refused))


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.4f}"
