"""The records of leaderboard.yaml: entries, held entries, their history, and the rules that each record keeps.

Knows neither the file nor how an evaluation becomes an entry.
"""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from harness.core.decode import DecodeError
from harness.core.limits import Count, FromZero, Interval95, Limited, Positive, Printable, at_least
from harness.core.machine_records import Peaks
from harness.core.records import Bound, Params, Score
from harness.core.stats import standard_error
from harness.core.words import count_text

EVIDENCE_CHARS = 500  # of what a check saw, as the file keeps it; the run's report has all of it
Group = tuple[str, str, str, int]  # problem, suite, machine class, world size: what is ranked together
Identity = tuple[Group, str, str]


@dataclass(frozen=True, kw_only=True)
class Versions:
    python: str
    torch: str
    triton: str | None
    harness: str


@dataclass(frozen=True, kw_only=True)
class Earlier(Limited):
    """An earlier judgement of the same file, and why it is history. `ratio_error` is the standard error of log(ratio),
    over that evaluation's `launches` or by its only one's samples; `launch_sd` as an entry's."""

    date: str
    run_id: str
    sha256: str
    score: Positive
    ratio: Positive | None
    status: Literal["ranked", "verified"] = "ranked"
    problem_version: str | None = None
    why: Printable = "evaluated again"
    ratio_error: FromZero | None = None
    machine: str | None = None
    code: str | None = None
    launches: Count = 1
    launch_sd: FromZero | None = None

    @property
    def log_error(self) -> float | None:
        return self.ratio_error


@dataclass(frozen=True, kw_only=True)
class Hold(Limited):
    """A held evaluation of the same file that does not stand any more, and why."""

    date: str
    run_id: str
    sha256: str
    check: Printable
    evidence: Printable
    problem_version: str | None
    why: Printable


@dataclass(frozen=True, kw_only=True)
class Verification(Limited):
    """`launches` evaluations of the stored source, the runs `run_ids`, reproduced what the entry claims. Both figures
    are Olympic means with their 95 % intervals over launches (harness.evaluation.verify)."""

    date: str
    launches: Count
    run_ids: tuple[str, ...]
    score: Positive
    score_ci: Interval95
    ratio: Positive
    ratio_ci: Interval95
    confined: bool = True  # False: a launch ran outside the sandbox


@dataclass(frozen=True, kw_only=True)
class InGroup(Limited):
    """What it is ranked, or was timed, within."""

    problem: Printable
    suite: Printable
    machine_class: Printable
    world_size: Count

    @property
    def group(self) -> Group:
        return (self.problem, self.suite, self.machine_class, self.world_size)


@dataclass(frozen=True, kw_only=True)
class OfFile(InGroup):
    """Whose file it is. `machine` is the anonymous id of the machine that it ran on (host.machine_id), `code` what its
    source has in common with its copies (problems.same_code); null where that is not known."""

    device: str
    author: Printable
    file: Printable
    sha256: str
    confined: bool = True  # False: it ran outside the sandbox
    machine: str | None = None
    code: str | None = None

    @property
    def identity(self) -> Identity:
        """Two evaluations with the same identity are the same entry."""
        return (self.group, self.author, self.file)


@dataclass(frozen=True, kw_only=True)
class EntrySeries:
    """One metric of a case, in its unit: median and quartiles of the submission and of the baseline. A side without
    samples is null. `empty` is the median of empty calls, the resolution. `least` is the least possible value of this
    metric, if the case's bound belongs to another metric."""

    metric: str
    unit: str
    low: float | None
    value: float | None
    high: float | None
    baseline_low: float | None
    baseline: float | None
    baseline_high: float | None
    empty: float | None
    least: float | None = None


@dataclass(frozen=True, kw_only=True)
class EntryCase(Limited):
    """One case of an entry: medians of either side in the metric's unit, the ratio to the baseline and the fraction of
    the bound with their 95 % intervals; null where they are not known. `samples` is the number of timed calls. The
    bound and the fraction are of the metric `bounded`, which on GPUs is the device clock, not the one that ranks.
    `series` begins with the metric that ranks. Entries of older harnesses lack what has a default."""

    label: Printable
    params: Params
    metric: str
    unit: str
    value: Positive
    baseline: Positive | None
    ratio: Positive | None
    ratio_ci: tuple[float, float] | None
    fraction: Positive | None
    fraction_ci: tuple[float, float] | None
    samples: int | None = None
    bounded: str = ""
    bound: Bound | None = None
    series: tuple[EntrySeries, ...] = ()
    rank_ends_us: tuple[float, ...] = ()
    best: float | None = None  # the best value known from elsewhere, for scores that are relative to others
    own_kernels: float | None = None  # the part of its time in its own kernels, a claim


@dataclass(frozen=True, kw_only=True)
class Entry(OfFile):
    """One file's latest evaluation. `score` is the contest's own. `ratio` is how many times as good as the reference
    the submission is, `fraction` which part of the bound it reaches: geometric means over the cases, with their 95 %
    intervals (null where there were too few samples for one). The ratio is null where no reference was
    measured, the fraction where no bound is known. `peaks` are those behind the bounds, `phases_s` how long each phase
    of the evaluation took. `cases`, `peaks` and `phases_s` are empty where an older harness recorded the entry, and so
    is `problem_version` null, which is what it was judged under. `holds`: held evaluations of this file in the past.
    The interval of the ratio is over `launches`; that of a single one does not cover what launches differ by, which is
    `launch_sd`, the standard deviation of log(ratio) between them."""

    score: Score
    ratio: Positive | None
    ratio_ci: Interval95 | None
    launches: Count = 1
    launch_sd: FromZero | None = None
    fraction: Positive | None
    fraction_ci: Interval95 | None = None
    date: str  # ISO 8601, UTC
    run_id: str
    versions: Versions
    problem_version: str | None = None
    verified: Verification | None = None
    cases: tuple[EntryCase, ...] = ()
    peaks: Peaks | None = None
    phases_s: dict[str, float] = field(default_factory=dict)
    history: tuple[Earlier, ...] = ()
    holds: tuple[Hold, ...] = ()

    @property
    def log_error(self) -> float | None:
        """The standard error of log(ratio) by its interval; None where there is none."""
        return standard_error(self.ratio_ci) if self.ratio_ci else None

    @property
    def status(self) -> Literal["ranked", "verified"]:
        return "verified" if self.verified else "ranked"


@dataclass(frozen=True, kw_only=True)
class HeldEntry(OfFile):
    """A result that is right but not believed: the check that stopped it, and its evidence, in the runs `run_ids`.
    `run_id` is the evaluation that claimed; its figures are null where it ended before it had them."""

    check: Printable
    evidence: Printable
    score: Score | None
    ratio: Positive | None
    date: str  # ISO 8601, UTC: of the evaluation that claimed
    run_id: str
    run_ids: tuple[str, ...]
    versions: Versions
    problem_version: str | None = None
    history: tuple[Earlier, ...] = ()
    holds: tuple[Hold, ...] = ()

    @property
    def status(self) -> Literal["held"]:
        return "held"


Judged = Entry | HeldEntry


def is_same_code(one: OfFile | Earlier, other: OfFile | Earlier) -> bool:
    """Whether two records are of one source, or of copies of each other."""
    return one.sha256 == other.sha256 or (one.code is not None and one.code == other.code)


@dataclass(frozen=True, kw_only=True)
class SettledFile(Limited):
    """A file of a settlement: `ratio` is how many times as fast as the slowest of them it is."""

    author: Printable
    file: Printable
    sha256: str
    ratio: Positive


@dataclass(frozen=True, kw_only=True)
class Settlement(InGroup):
    """Files of one group that were timed against each other, fastest first (harness.evaluation.settle). Two of them are
    in order where their ratios differ by more than `resolves`, a fraction; all such orders hold together with 95 %.

    `looks` counts how often an order of these files was looked for, `squares` is the sum of the squared log ratios of
    all launches: with both the settlement can be continued. Those of older harnesses lack the sum, and were looked at
    three times in 16 rounds. One that is not `both_judged` is void: in its launches nobody judged what the file in the
    baseline's place returned."""

    machine: str | None
    date: str  # ISO 8601, UTC
    rounds: Count
    resolves: Positive
    problem_version: str
    files: tuple[SettledFile, ...]
    looks: Count = 3
    squares: FromZero | None = None
    confined: bool = True  # False: it was timed outside the sandbox
    both_judged: bool = False


@dataclass(frozen=True, kw_only=True)
class MeasuredNoise(Limited):
    """The measured noise between launches of one source on a machine class (bench/launches.py): `sd` is the standard
    deviation of log(ratio) over `launches` launches, beside what their own samples explain. `levels` are the means of
    log(ratio) of the sessions in which the source `sha256` was measured, the latest last."""

    problem: Printable
    machine_class: Printable
    machine: str | None
    date: str
    launches: Annotated[int, at_least(2)]
    sd: Positive
    sha256: str | None = None
    levels: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Board:
    """All entries, in the file's order: by group, then by score, which is not the order of places; and what is held, by
    group, author and file. Beside them the latest settlements, and what launches were measured to differ by."""

    entries: tuple[Entry, ...] = ()
    held: tuple[HeldEntry, ...] = ()
    settlements: tuple[Settlement, ...] = ()
    launch_noise: tuple[MeasuredNoise, ...] = ()

    def __post_init__(self) -> None:
        parts: tuple[tuple[str, tuple[Judged, ...]], ...] = (("entries", self.entries), ("held", self.held))
        for name, records in parts:
            first: dict[Identity, int] = {}
            for index, one in enumerate(records):
                if (same := first.setdefault(one.identity, index)) != index:
                    raise DecodeError(
                        f".{name}[{index}]", f"the same author, file and group as $.{name}[{same}]; delete one of them"
                    )

    @property
    def judged(self) -> tuple[Judged, ...]:
        return (*self.entries, *self.held)


@dataclass(frozen=True, kw_only=True)
class Standing:
    """The part of an entry's state that only a checkout knows: whether its source can be had there, and whether it was
    judged under another version of the problem than is there (False also where the version was not recorded)."""

    reproducible: bool
    stale: bool


def described(one: Judged) -> str:
    name = f"{one.run_id}  {one.problem}, suite {one.suite}, {count_text(one.world_size, 'rank')}, {one.machine_class}"
    return f"{name}: {one.file} by {one.author}, {one.status}"


def order(entry: Entry) -> tuple[Group, float, str, str]:
    """The key that sorts entries: the group, then the score, the best first."""
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


def short_file(entry: Judged) -> str:
    return entry.file.removeprefix(f"submissions/{entry.problem}/")
