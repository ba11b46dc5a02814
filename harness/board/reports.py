"""Recorded runs, read back: runs/<run id>/report.json, for whatever shows more than one of them.

Knows the part of a report that is shown (`--json` has the same keys, see report_json), and where reports lie. Reads
that part strictly; other keys are left alone, since reports gain keys without a new schema. A report is somebody's
file: texts in it are as untrusted as the submission that they speak of.
"""

import dataclasses
import functools
import json
import os
import statistics
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from harness.board.runs import FOLDER
from harness.core import words
from harness.core.checkout import shown
from harness.core.decode import DecodeError, decode, did_you_mean
from harness.core.files import read_text
from harness.core.records import (
    REPORT_SCHEMA,
    BadFileError,
    Case,
    CaseResult,
    Kind,
    NotRun,
    Params,
    Peaks,
    Told,
    UsageError,
)
from harness.core.stats import median
from harness.problems.shape_file import short_names
from harness.ranks.clocks import block

FILE = "report.json"


@dataclass(frozen=True, kw_only=True)
class Times:
    """One side's times of a case: the median and the quartiles, which are the median where there is one sample."""

    low_us: float
    median_us: float
    high_us: float


@dataclass(frozen=True, kw_only=True)
class Samples:
    """One clock's samples of a case, in us, in pairs; there is at least one."""

    samples_us: tuple[float, ...]
    ref_samples_us: tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ("samples_us", "ref_samples_us"):
            if not getattr(self, name) or min(getattr(self, name)) <= 0:
                raise DecodeError(f".{name}", "expected times above 0, at least one")
        if len(self.samples_us) != len(self.ref_samples_us):
            counts = f"{len(self.samples_us)} and {len(self.ref_samples_us)}"
            raise DecodeError(".ref_samples_us", f"expected as many as samples_us, found {counts}")


@dataclass(frozen=True, kw_only=True)
class ReportCase:
    """A case and what became of it. `clocks` is empty unless it was timed; `wall`, which ranks, is always among them
    then. `block`: so many samples in a row were taken together. `rank_ends_us`: when each rank had finished, after the
    first had started."""

    kind: Kind
    params: Params
    world_size: int
    outcome: str
    error: str | None = None
    clocks: dict[str, Samples]
    block: int | None = None
    rank_ends_us: tuple[float, ...]
    bound_us: float | None
    bound_by: Literal["flops", "hbm", "link"] | None
    published_us: float | None = None
    told: Told | None = None  # by a problem folder's own evaluator, which tells no samples
    short: dict[str, str] | None = None  # the parameters' short names; older reports do not tell

    def __post_init__(self) -> None:
        if self.clocks and "wall" not in self.clocks:
            raise DecodeError(".clocks", "the key 'wall' is missing")
        if self.bound_us is not None and self.bound_us <= 0:
            raise DecodeError(".bound_us", f"expected a time above 0, found {self.bound_us}")
        if self.block is not None and self.block < 1:
            raise DecodeError(".block", f"expected at least 1, found {self.block}")

    @property
    def roofline_samples_us(self) -> tuple[float, ...]:
        """The samples that rooflines are held against, by the rule of stats.roofline_samples_us; of a timed case."""
        return self.clocks.get("device", self.clocks["wall"]).samples_us

    @property
    def case(self) -> Case:
        """The case alone, without its seed."""
        return Case(
            kind=self.kind, params=self.params, seed=0, world_size=self.world_size, short=dict(self.short or {})
        )

    @property
    def label(self) -> str:
        """The shape in short, as `eval` prints it."""
        return words.case_label(CaseResult(case=self.case, outcome=NotRun()))


@dataclass(frozen=True, kw_only=True)
class ReportSubmission:
    """Whose file it was."""

    path: str
    sha256: str
    author: str


@dataclass(frozen=True, kw_only=True)
class ReportEnvironment:
    """The machine and the software."""

    machine_class: str
    python: str
    torch: str
    triton: str | None


@dataclass(frozen=True, kw_only=True)
class Report:
    """What is shown of one evaluation. The figures are None unless it passed and every benchmark was timed."""

    run_id: str
    started_at: str  # ISO 8601, UTC
    problem: str
    submission: ReportSubmission
    device: str
    world_size: int
    suite: str
    mode: str
    status: Literal["pass", "fail", "error"]
    cases: tuple[ReportCase, ...]
    geomean_speedup: float | None
    geomean_speedup_ci: tuple[float, float] | None
    roofline_fraction: float | None
    score_s: float | None
    empty_call_samples_us: dict[str, tuple[float, ...]]
    environment: ReportEnvironment | None
    peaks: Peaks | None
    phases_s: dict[str, float]
    warnings: tuple[str, ...] = ()
    machine_state: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        try:
            datetime.fromisoformat(self.started_at)
        except ValueError:
            raise DecodeError(".started_at", f"expected a date and time, found {self.started_at!r}") from None
        for name in ("score_s", "geomean_speedup"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise DecodeError(f".{name}", f"expected a number above 0, found {value}")

    @property
    def timed(self) -> tuple[ReportCase, ...]:
        """The cases that were timed."""
        return tuple(case for case in self.cases if case.clocks)

    def block_of(self, case: ReportCase) -> int:
        """How many of its samples in a row were taken together; reports of older versions do not tell."""
        return case.block or block(self.device)


def times(samples_us: Sequence[float]) -> Times:
    """Median and quartiles."""
    middle = median(samples_us)
    low, high = middle, middle
    if len(samples_us) > 1:
        low, _, high = statistics.quantiles(samples_us, n=4, method="inclusive")
    return Times(low_us=low, median_us=middle, high_us=high)


def load(path: Path) -> Report:
    """The report in the file. Raises BadFileError, which names the place in it, for one that cannot be read."""
    try:
        found = json.loads(read_text(path))
        schema = found.get("schema") if isinstance(found, dict) else None
        if schema != REPORT_SCHEMA:
            raise DecodeError("$.schema", f"expected {REPORT_SCHEMA}, found {schema!r}; is it another harness's?")
        return _with_short_names(decode(Report, _known(Report, found)))
    except FileNotFoundError:
        raise BadFileError(
            f"{shown(path)}: no such file; `python -m harness history` lists the runs that there are"
        ) from None
    except OSError as error:
        raise BadFileError(f"{shown(path)}: cannot be read: {error.strerror}; check its rights") from None
    except RecursionError:
        raise BadFileError(f"{shown(path)}: nested too deeply; is it a report that `eval` wrote?") from None
    except ValueError as error:  # DecodeError; not JSON; not UTF-8
        raise BadFileError(f"{shown(path)}: {error}") from None


def _with_short_names(report: Report) -> Report:
    """The report with the short names that its problem's shape file has now, where it was written before reports had
    them."""
    if all(case.short is not None for case in report.cases):
        return report
    names = _short_names_now(report.problem)
    return dataclasses.replace(
        report, cases=tuple(dataclasses.replace(case, short=case.short or names) for case in report.cases)
    )


_short_names_now = functools.cache(short_names)  # once a problem, however many reports there are


def load_all(root: Path) -> tuple[tuple[Report, ...], tuple[str, ...]]:
    """Every report below root/runs by time, and a message for each one that cannot be read: one broken file must not
    hide the others. A run that was recorded has its report in the folder of its id; another place is not believed."""
    reports, unreadable = [], []
    for path in sorted((root / FOLDER).glob(f"*/{FILE}")):
        try:
            report = load(path)
            if report.run_id != path.parent.name:
                raise BadFileError(f"{shown(path, root)}: $.run_id: expected '{path.parent.name}', as its folder says")
            reports.append(report)
        except BadFileError as error:
            unreadable.append(str(error))
    return tuple(sorted(reports, key=lambda report: (report.started_at, report.run_id))), tuple(unreadable)


def find(run: str, root: Path) -> Report:
    """The run of that id, or of that beginning of one, or of that folder or report file.

    Raises UsageError where there is none or more than one, BadFileError where it cannot be read.
    """
    path = Path(run)
    if os.path.isfile(path / FILE):  # False, not an error, for a name that is too long
        return load(path / FILE)
    if os.path.isfile(path):
        return load(path)
    runs = sorted(path.parent.name for path in (root / FOLDER).glob(f"*/{FILE}"))
    found = [name for name in runs if name == run] or [name for name in runs if run and name.startswith(run)]
    if len(found) == 1:
        return load(root / FOLDER / found[0] / FILE)
    if found:
        raise UsageError(f"'{run}' begins {len(found)} run ids ({found[0]} ... {found[-1]}); give more of it")
    latest = f"; the latest is {runs[-1]}" if runs else "; `make eval PROBLEM=a2a` makes the first"
    raise UsageError(f"no run '{run}' in {FOLDER}/{did_you_mean(run, runs) or latest}")


def _known(kind: Any, value: object) -> object:
    """`value` without the keys that `kind` has no field for, at any depth; what does not fit is left for decode."""
    origin, args = get_origin(kind), get_args(kind)
    if dataclasses.is_dataclass(kind) and isinstance(value, Mapping):
        hints = get_type_hints(kind)
        return {key: _known(hints[key], item) for key, item in value.items() if key in hints}
    if origin is dict and isinstance(value, Mapping):
        return {key: _known(args[1], item) for key, item in value.items()}
    if origin is tuple and isinstance(value, list):
        return [_known(args[0], item) for item in value]
    if origin in (Union, types.UnionType):
        return _known(args[0], value)  # every union of a report is `kind or null`
    return value
