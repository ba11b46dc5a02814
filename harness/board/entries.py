"""The records of leaderboard.yaml: entries, held entries, their history, and the rules that each record keeps.

Knows neither the file nor how an evaluation becomes an entry.
"""

from dataclasses import dataclass, field, replace
from typing import Any, Literal, overload

from harness.core.decode import DecodeError
from harness.core.machine_records import Peaks
from harness.core.records import Bound, Params, Score

DIGITS = 6  # significant digits that are kept; timing repeats to two or three
EVIDENCE_CHARS = 500  # of what a check saw, as the file keeps it; the run's report has all of it
Group = tuple[str, str, str, int]  # problem, suite, machine class, world size: what is ranked together
Identity = tuple[Group, str, str]


@dataclass(frozen=True, kw_only=True)
class Versions:
    """What an entry was measured with."""

    python: str
    torch: str
    triton: str | None
    harness: str


@dataclass(frozen=True, kw_only=True)
class Earlier:
    """What an earlier judgement of the same file said, and why it is history."""

    date: str
    run_id: str
    sha256: str
    score: float
    ratio: float | None
    status: Literal["ranked", "verified"] = "ranked"
    problem_version: str | None = None
    why: str = "evaluated again"

    def __post_init__(self) -> None:
        _check_positive(self, "score", "ratio")
        check_printable(self, "why")


@dataclass(frozen=True, kw_only=True)
class Hold:
    """A held evaluation of the same file that does not stand any more, and why."""

    date: str
    run_id: str
    sha256: str
    check: str
    evidence: str
    problem_version: str | None
    why: str

    def __post_init__(self) -> None:
        check_printable(self, "check", "evidence", "why")


@dataclass(frozen=True, kw_only=True)
class Verified:
    """`launches` evaluations of the stored source, the runs `run_ids`, reproduced what the entry claims. Both figures
    are Olympic means with their 95 % intervals over launches (harness.evaluation.verify)."""

    date: str
    launches: int
    run_ids: tuple[str, ...]
    score: float
    score_ci: tuple[float, float]
    ratio: float
    ratio_ci: tuple[float, float]
    confined: bool = True  # False: a launch ran outside the sandbox

    def __post_init__(self) -> None:
        _check_positive(self, "launches", "score", "ratio")
        _check_interval(self, "score_ci", "ratio_ci")


@dataclass(frozen=True, kw_only=True)
class OfFile:
    """Whose file it is, and what it is ranked within."""

    problem: str
    suite: str
    machine_class: str
    world_size: int
    device: str
    author: str
    file: str
    sha256: str
    confined: bool = True  # False: it ran outside the sandbox

    def __post_init__(self) -> None:
        _check_positive(self, "world_size")
        check_printable(self, "problem", "suite", "machine_class", "author", "file")

    @property
    def group(self) -> Group:
        """What it is ranked within."""
        return (self.problem, self.suite, self.machine_class, self.world_size)

    @property
    def identity(self) -> Identity:
        """What makes two evaluations the same entry."""
        return (self.group, self.author, self.file)


@dataclass(frozen=True, kw_only=True)
class EntrySeries:
    """One metric of a case in its unit: median and quartiles of the submission and of the baseline, null where a side
    has no samples; `empty` is the median of empty calls, below which nothing is resolved."""

    metric: str
    unit: str
    low: float | None
    value: float | None
    high: float | None
    baseline_low: float | None
    baseline: float | None
    baseline_high: float | None
    empty: float | None


@dataclass(frozen=True, kw_only=True)
class EntryCase:
    """One case of an entry: medians of either side in the metric's unit, the ratio to the baseline and the fraction of
    the bound with their 95 % intervals; null where they are not known. `samples` is the number of timed calls. The
    bound and the fraction are of the metric `bounded`, which on GPUs is the device clock, not the one that ranks.
    `series` begins with the metric that ranks. Entries of older harnesses lack what has a default."""

    label: str
    params: Params
    metric: str
    unit: str
    value: float
    baseline: float | None
    ratio: float | None
    ratio_ci: tuple[float, float] | None
    fraction: float | None
    fraction_ci: tuple[float, float] | None
    samples: int | None = None
    bounded: str = ""
    bound: Bound | None = None
    series: tuple[EntrySeries, ...] = ()
    rank_ends_us: tuple[float, ...] = ()
    best: float | None = None  # the best value known from elsewhere, for scores that are relative to others

    def __post_init__(self) -> None:
        check_printable(self, "label")
        _check_positive(self, "value", "baseline", "ratio", "fraction")


@dataclass(frozen=True, kw_only=True)
class Entry(OfFile):
    """One file's latest evaluation. `score` is the contest's own, and ranks. `ratio` is how many times as good as the
    reference the submission is, `fraction` which part of the bound it reaches: geometric means over the cases, with
    their 95 % intervals (null where there were too few samples for one). The ratio is null where no reference was
    measured, the fraction where no bound is known. `peaks` are those behind the bounds, `phases_s` how long each phase
    of the evaluation took. `cases`, `peaks` and `phases_s` are empty where an older harness recorded the entry, and so
    is `problem_version` null, which is what it was judged under. `holds`: held evaluations of this file in the past."""

    score: Score
    ratio: float | None
    ratio_ci: tuple[float, float] | None
    fraction: float | None
    fraction_ci: tuple[float, float] | None = None
    date: str  # ISO 8601, UTC
    run_id: str
    versions: Versions
    problem_version: str | None = None
    verified: Verified | None = None
    cases: tuple[EntryCase, ...] = ()
    peaks: Peaks | None = None
    phases_s: dict[str, float] = field(default_factory=dict)
    history: tuple[Earlier, ...] = ()
    holds: tuple[Hold, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_positive(self, "ratio", "fraction")
        for name in ("ratio_ci", "fraction_ci"):
            if getattr(self, name):
                _check_interval(self, name)

    @property
    def status(self) -> Literal["ranked", "verified"]:
        """One word for how far it is believed."""
        return "verified" if self.verified else "ranked"


@dataclass(frozen=True, kw_only=True)
class HeldEntry(OfFile):
    """What is right but not believed: `check` is what stopped it and `evidence` what it saw, in the runs `run_ids`.
    `run_id` is the evaluation that claimed; its figures are null where it ended before it had them."""

    check: str
    evidence: str
    score: Score | None
    ratio: float | None
    date: str  # ISO 8601, UTC: of the evaluation that claimed
    run_id: str
    run_ids: tuple[str, ...]
    versions: Versions
    problem_version: str | None = None
    history: tuple[Earlier, ...] = ()
    holds: tuple[Hold, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_printable(self, "check", "evidence")
        _check_positive(self, "ratio")

    @property
    def status(self) -> Literal["held"]:
        """The word beside those of an Entry."""
        return "held"


Judged = Entry | HeldEntry


@dataclass(frozen=True, kw_only=True)
class Board:
    """All entries, in the file's order: by group, then by score; and what is held, by group, author and file."""

    entries: tuple[Entry, ...] = ()
    held: tuple[HeldEntry, ...] = ()

    def __post_init__(self) -> None:
        parts: tuple[tuple[str, tuple[Judged, ...]], ...] = (("entries", self.entries), ("held", self.held))
        for name, records in parts:
            first: dict[Identity, int] = {}
            for index, one in enumerate(records):
                if (same := first.setdefault(one.identity, index)) != index:
                    raise DecodeError(
                        f".{name}[{index}]",
                        f"the same author, file and group as $.{name}[{same}]; delete one of them",
                    )


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What only a checkout knows of an entry: whether its source can be had there, and whether it was judged under
    another version of the problem than is there (False also where the version was not recorded)."""

    reproducible: bool
    stale: bool


def described(one: Judged) -> str:
    """The record in a line."""
    name = f"{one.run_id}  {one.problem}, suite {one.suite}, {one.world_size} ranks, {one.machine_class}"
    return f"{name}: {one.file} by {one.author}, {one.status}"


def order(entry: Entry) -> tuple[Group, float, str, str]:
    """What entries are sorted by: the group, then the score, the best first."""
    return (
        entry.group,
        entry.score.value if entry.score.better == "less" else -entry.score.value,
        entry.author,
        entry.file,
    )


def printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)


def one_line(text: str) -> str:
    """A text from anywhere as the file keeps it: printable, on one line, of at most EVIDENCE_CHARS."""
    line = printable(" ".join(text.split()))
    return line if len(line) <= EVIDENCE_CHARS else line[: EVIDENCE_CHARS - 3] + "..."


def rounded(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")


def round_off(one: Judged) -> Judged:
    """The record with the digits that leaderboard.yaml keeps: what is written is what is read."""
    score = replace(one.score, value=rounded(one.score.value, DIGITS)) if one.score else None
    if isinstance(one, HeldEntry):
        return replace(one, score=score, ratio=_short(one.ratio))
    found = one.verified
    if found:
        found = replace(
            found,
            score=rounded(found.score, DIGITS),
            score_ci=_shorts(found.score_ci),
            ratio=rounded(found.ratio, DIGITS),
            ratio_ci=_shorts(found.ratio_ci),
        )
    assert score is not None
    return replace(
        one,
        score=score,
        ratio=_short(one.ratio),
        ratio_ci=_shorts(one.ratio_ci),
        fraction=_short(one.fraction),
        fraction_ci=_shorts(one.fraction_ci),
        verified=found,
        cases=tuple(_short_case(case) for case in one.cases),
        phases_s={name: rounded(value, DIGITS) for name, value in one.phases_s.items()},
    )


def _short_case(case: EntryCase) -> EntryCase:
    return replace(
        case,
        value=rounded(case.value, DIGITS),
        baseline=_short(case.baseline),
        ratio=_short(case.ratio),
        ratio_ci=_shorts(case.ratio_ci),
        fraction=_short(case.fraction),
        fraction_ci=_shorts(case.fraction_ci),
        bound=replace(case.bound, value=rounded(case.bound.value, DIGITS)) if case.bound else None,
        series=tuple(_short_series(one) for one in case.series),
        rank_ends_us=tuple(rounded(value, DIGITS) for value in case.rank_ends_us),
        best=_short(case.best),
    )


def _short_series(one: EntrySeries) -> EntrySeries:
    names = ("low", "value", "high", "baseline_low", "baseline", "baseline_high", "empty")
    shortened: dict[str, Any] = {name: _short(getattr(one, name)) for name in names}
    return replace(one, **shortened)


def same_figures(one: Entry, other: Entry) -> bool:
    """Whether two entries say the same to the digits that are kept. Figures that an older harness did not record are
    not compared."""
    a, b = round_off(one), round_off(other)
    assert isinstance(a, Entry)
    assert isinstance(b, Entry)
    if a.cases and b.cases:
        return _without_details(a) == _without_details(b)
    return _recorded_before(a) == _recorded_before(b)


def _without_details(entry: Entry) -> Entry:
    cases = (
        replace(case, samples=None, bounded="", bound=None, series=(), rank_ends_us=(), best=None)
        for case in entry.cases
    )
    score = replace(entry.score, value=1.0) if entry.score.relative_by else entry.score  # others move it
    return replace(entry, score=score, cases=tuple(cases), peaks=None, phases_s={})


def _recorded_before(entry: Entry) -> Entry:
    return replace(_without_details(entry), cases=(), fraction_ci=None)


def _short(value: float | None) -> float | None:
    return None if value is None else rounded(value, DIGITS)


@overload
def _shorts(values: tuple[float, float]) -> tuple[float, float]: ...
@overload
def _shorts(values: None) -> None: ...
def _shorts(values: tuple[float, float] | None) -> tuple[float, float] | None:
    return (rounded(values[0], DIGITS), rounded(values[1], DIGITS)) if values else None


def _check_positive(record: object, *names: str) -> None:
    for name in names:
        if (value := getattr(record, name)) is not None and value <= 0:
            raise DecodeError(f".{name}", f"expected a number above 0, found {getattr(record, name)}")


def check_printable(record: object, *names: str) -> None:
    for name in names:
        if not getattr(record, name).isprintable():  # such a text would not come back from YAML as it was
            raise DecodeError(f".{name}", f"expected printable characters, found {getattr(record, name)!r}")


def _check_interval(record: object, *names: str) -> None:
    for name in names:
        low, high = getattr(record, name)
        if not 0 < low <= high:
            raise DecodeError(f".{name}", "expected [low, high], both above 0")


def short_file(entry: Judged) -> str:
    """The file as it is shown beside its problem: without that problem's folder."""
    return entry.file.removeprefix(f"submissions/{entry.problem}/")
