"""Results of MLPerf Training, read from folders and scored.

A published result is a folder with a log a run, `result_*.txt`, and perhaps `scaling.json` with its scaling factor. A
submitter's whole tree (`results/<system>/<benchmark>/result_0.txt`) is as many results as there are such folders. Runs
of this harness have their logs beside their report, `mllog-<whose>-case-<case>-run-<run>.log`: a result each side and
case.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.core.checkout import shown
from harness.core.decode import DecodeError, as_bad_file, decode
from harness.core.errors import BadFileError, UsageError, os_error_as
from harness.core.files import read_text
from harness.core.mllog import parse
from harness.core.olympic import LEAST_RUNS
from harness.judging.mlperf import LoggedRun, ReferenceRuns, ScoredResult, result_of, run_of

LOGS, SCALING = "result_*.txt", "scaling.json"
OWN_LOGS = "mllog-*-run-*.log"
COUNTS: dict[str, Literal["samples", "epochs"]] = {  # the names under which MLPerf's files have a reference's runs
    "samples to converge": "samples",
    "Epochs to converge": "epochs",
}


@dataclass(frozen=True, kw_only=True)
class _Scaling:
    """The content of scaling.json."""

    scaling_factor: float

    def __post_init__(self) -> None:
        if self.scaling_factor < 1:
            raise ValueError("scaling_factor is below 1; it only ever makes a score worse")


@dataclass(frozen=True, kw_only=True)
class Scored:
    """One result: of all runs in a folder, or of those whose logs are called `name` and a number."""

    folder: Path
    name: str
    result: ScoredResult


def score(folder: Path, reference: Path | None = None) -> list[Scored]:
    """The results in and below a folder. `reference` is a file of reference convergence points, as MLPerf publishes
    them (rcps_<benchmark>.json). Raises UsageError where there is no log, BadFileError for a bad file."""
    if folder.is_file():
        raise UsageError(f"{folder}: a file; name the folder that it is in")
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder; name one that has {LOGS} in it or below it")
    logs: dict[tuple[Path, str], list[Path]] = {}
    for path in (path for pattern in (LOGS, OWN_LOGS) for path in folder.rglob(pattern)):
        name = path.stem.rpartition("-run-")[0] if path.match(OWN_LOGS) else ""
        logs.setdefault((path.parent, name), []).append(path)
    if not logs:
        raise UsageError(f"{folder}: no {LOGS} in it or below it; those are MLPerf's logs, one a run")
    references = read_reference(reference) if reference else None
    return [_scored(*key, files, references) for key, files in sorted(logs.items())]


def _scored(folder: Path, name: str, logs: Sequence[Path], references: Sequence[ReferenceRuns] | None) -> Scored:
    runs = [_run(path) for path in sorted(logs, key=_number)]
    published = _published(folder / SCALING)
    try:
        return Scored(folder=folder, name=name, result=result_of(runs, published, references))
    except BadFileError as error:
        raise BadFileError(f"{shown(folder)}: {error}") from None


def _number(path: Path) -> tuple[int, str]:
    """A key that sorts result_10 behind result_9."""
    digits = re.findall(r"\d+", path.stem)
    return (int(digits[-1]) if digits else 0, path.name)


def _run(path: Path) -> LoggedRun:
    text = _text(path)
    try:
        return run_of(parse(text), path.name)
    except DecodeError as error:
        raise BadFileError(f"{shown(path)}: {error}; take the log as its run wrote it") from None
    except BadFileError as error:
        raise BadFileError(f"{shown(path.parent)}: {error}") from None


def _published(path: Path) -> float | None:
    if not path.exists():
        return None
    with as_bad_file(shown(path)):
        return decode(_Scaling, _loaded(path)).scaling_factor


def read_reference(path: Path) -> list[ReferenceRuns]:
    """MLPerf's reference convergence points. Raises BadFileError where the file is none."""
    content = _loaded(path)
    if not isinstance(content, dict):
        raise BadFileError(f"{shown(path)}: expected a mapping of records, as MLPerf's rcps_<benchmark>.json has")
    return [_reference(record, f"{shown(path)}: $.{name}") for name, record in content.items()]


def _reference(record: object, where: str) -> ReferenceRuns:
    record = record if isinstance(record, dict) else {}
    key = next((key for key in COUNTS if key in record), None)
    if key is None:
        raise BadFileError(f"{where}: expected one of the keys {', '.join(map(repr, COUNTS))}")
    with as_bad_file(where):
        reference = ReferenceRuns(
            benchmark=decode(str, record.get("Benchmark"), "Benchmark"),
            batch=decode(int, record.get("BS"), "BS"),
            unit=COUNTS[key],
            runs=decode(tuple[float, ...], record[key], key),
        )
    if len(reference.runs) < LEAST_RUNS or min(reference.runs) <= 0:
        raise BadFileError(f"{where}: {key}: expected at least {LEAST_RUNS} numbers above 0")
    return reference


def _loaded(path: Path) -> object:
    try:
        return json.loads(_text(path))
    except (ValueError, RecursionError) as error:
        raise BadFileError(f"{shown(path)}: not JSON: {error}") from None


def _text(path: Path) -> str:
    with os_error_as(BadFileError, f"{shown(path)}: cannot be read", "take the file as it was published"):
        return read_text(path)
