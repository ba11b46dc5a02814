"""The rules of a contest, as its file has them: which problems, from when until when, for whom, how many submissions.

The file is a superset of KernelBot's competition file (`name`, `deadline`, `description`, `problems` with `directory`,
`name`, `deadline`, `gpus`): every further key has a default, with which it rules nothing. A problem whose name this
checkout has is evaluated as the checkout's, by its strict checker; any other is the folder that the file names. With
--folders all problems are such folders.

Times are read as KernelBot reads them: a date alone means its first second. All are UTC. A deadline refuses nothing
in the verb `competition`, which marks later evaluations as late; the verb `contest` refuses them (admission.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated

from harness.board.places import By, Place
from harness.contest.times import FORMATS, closing, is_late
from harness.core.checkout import Checkout, shown
from harness.core.decode import DecodeError, did_you_mean
from harness.core.errors import BadFileError, Exit, HarnessError, UsageError
from harness.core.limits import Limited, Positive, at_least, one_of
from harness.core.records import Case, EvalReport, Params, param_text
from harness.core.yaml_file import read_yaml
from harness.judging import verdict
from harness.kinds.registry import find
from harness.kinds.settings import DEVICES
from harness.problems.problem import Problem

RANKED_BY: By = "score"  # as KernelBot ranks a competition


# ---- rules that KernelBot's file does not have -----------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class Window:
    """From when until when; an empty text leaves that side open."""

    opens: str = ""
    closes: str = ""

    def __post_init__(self) -> None:
        opens, closes = self.moments
        if opens and closes and opens >= closes:
            raise DecodeError(".closes", "expected a time after `opens`")

    @property
    def moments(self) -> tuple[datetime | None, datetime | None]:
        """When it opens and closes; None for a side that is open."""
        return closing(self.opens, ".opens"), closing(self.closes, ".closes")


@dataclass(frozen=True, kw_only=True)
class TeamRules(Limited):
    """How many members a team may have, and the only people who may register, where that list is not empty."""

    members: Annotated[int, at_least(1)] = 3
    participants: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Quota(Limited):
    """Submissions of a team on one day (UTC), over all problems; None: any number."""

    per_day: Annotated[int, at_least(1, next_="; leave it out for no limit")] | None = None


@dataclass(frozen=True, kw_only=True)
class Target(Limited):
    """A goal on the shapes that have all parameters of `shape` (on every shape where it is empty): a median of at most
    `time_us`, at least `speedup` times the reference, at least the fraction `limit` of the limit."""

    shape: Params = field(default_factory=dict)
    time_us: Positive | None = None
    speedup: Positive | None = None
    limit: Positive | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.time_us, self.speedup, self.limit) == (None, None, None):
            raise DecodeError("", "a target needs one of time_us, speedup and limit")


@dataclass(frozen=True, kw_only=True)
class AwardRule(Limited):
    """An award for the entry in this place of a problem, of any problem where `problem` is empty. `targets`: the entry
    must have reached the problem's targets. `shared`: entries that the measurements do not tell apart all get it;
    otherwise nobody gets it until they are told apart."""

    name: str
    place: Annotated[int, at_least(1)] = 1
    problem: str = ""
    targets: bool = True
    shared: bool = True


@dataclass(frozen=True, kw_only=True)
class ReproduceRules(Limited):
    """How an entry is reproduced: `launches` evaluations of its source, of the `top` entries of a problem."""

    launches: Annotated[int, at_least(3, ", as two are dropped")] = 5
    top: Annotated[int, at_least(1)] = 3


@dataclass(frozen=True, kw_only=True)
class ContestSetting(Limited):
    """Options of all evaluations; None leaves the choice to the problem and the machine."""

    suite: str | None = None
    ranks: Annotated[int, at_least(1)] | None = None
    device: Annotated[str, one_of(DEVICES)] | None = None
    seconds: Positive | None = None


# ---- the file --------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class Listed:
    """A problem of a competition. `directory` is relative to the competition's file, `name` the leaderboard's. Its
    submission window goes from `opens` to `deadline`."""

    directory: str
    name: str
    deadline: str = ""
    gpus: tuple[str, ...] = ()
    opens: str = ""
    targets: tuple[Target, ...] = ()

    def __post_init__(self) -> None:
        opens, closes = closing(self.opens, ".opens"), closing(self.deadline)
        if opens and closes and opens >= closes:
            raise DecodeError(".deadline", "expected a time after `opens`")


@dataclass(frozen=True, kw_only=True)
class Competition:
    """A competition's file. A problem may open and close at times of its own; where it has none, the whole's `opens`
    and `deadline` count. An empty text is no such time. `freeze`: from then on the public standings stay as they are.
    `private`: until the end, nobody but a team and the organisers sees what the team submitted and reached.
    `organisers` are those who may act as one on the command line; empty: the owner of the contest's file."""

    name: str
    problems: tuple[Listed, ...]
    deadline: str = ""
    description: str = ""
    opens: str = ""
    registration: Window = Window()
    teams: TeamRules = TeamRules()
    quota: Quota = Quota()
    freeze: str = ""
    private: bool = False
    setting: ContestSetting = ContestSetting()
    reproduce: ReproduceRules = ReproduceRules()
    awards: tuple[AwardRule, ...] = ()
    organisers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        closing(self.deadline)
        closing(self.opens, ".opens")
        closing(self.freeze, ".freeze")
        names = [listed.name for listed in self.problems]
        if not names:
            raise DecodeError(".problems", "the list is empty; name at least one problem")
        if repeated := [name for index, name in enumerate(names) if name in names[:index]]:
            raise DecodeError(".problems", f"'{repeated[0]}' appears twice; give every problem a name of its own")
        for index, listed in enumerate(self.problems):
            opens, closes = self.opening(listed), self.closes(listed)
            if opens and closes and opens >= closes:
                raise DecodeError(f".problems[{index}]", "it closes before it opens, by the contest's own times")
        awards = [award.name for award in self.awards]
        for index, award in enumerate(self.awards):
            if award.name in awards[:index]:
                raise DecodeError(f".awards[{index}].name", f"'{award.name}' appears twice")
            if award.problem and award.problem not in names:
                raise DecodeError(
                    f".awards[{index}].problem",
                    f"no problem '{award.problem}'{did_you_mean(award.problem, names)} (known: {', '.join(names)})",
                )
        if self.private and self.ends is None:
            raise DecodeError(".private", "what is private until the end needs an end: give a `deadline`")

    def closes(self, listed: Listed) -> datetime | None:
        """When the problem closes: at its own deadline, or else at the competition's."""
        return closing(listed.deadline) or closing(self.deadline)

    def opening(self, listed: Listed) -> datetime | None:
        """When the problem opens: at its own time, or else at the competition's."""
        return closing(listed.opens, ".opens") or closing(self.opens, ".opens")

    @property
    def ends(self) -> datetime | None:
        """When the last problem closes; None if one never does."""
        found = [self.closes(listed) for listed in self.problems]
        known = [one for one in found if one is not None]
        return max(known) if len(known) == len(found) else None

    def is_over(self, now: datetime) -> bool:
        """Whether all problems are closed."""
        return self.ends is not None and now > self.ends

    def is_hidden(self, now: datetime) -> bool:
        return self.private and not self.is_over(now)

    def problem(self, name: str) -> Listed:
        """The problem of that name; UsageError where there is none."""
        names = [listed.name for listed in self.problems]
        if name not in names:
            raise UsageError(f"no problem '{name}' in {self.name}{did_you_mean(name, names)} ({', '.join(names)})")
        return self.problems[names.index(name)]


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """The evaluation of one problem. `error` says why there is no report."""

    listed: Listed
    closes: datetime | None
    submission: str
    report: EvalReport | None = None
    place: Place | None = None
    error: HarnessError | None = None

    @property
    def late(self) -> bool:
        """Whether the evaluation began after the deadline."""
        return self.report is not None and is_late(self.report.started_at, self.closes)

    @property
    def exit_code(self) -> Exit:
        if self.error is not None:
            return self.error.exit_code
        assert self.report is not None
        return verdict.exit_code(self.report)


def read(path: Path) -> Competition:
    """The competition file; UsageError where there is none, BadFileError with the place where it does not fit."""
    if not path.exists():
        raise UsageError(f"{path.absolute()}: no such file; name the file of a contest or a competition")
    return read_yaml(Competition, path, path.resolve().parent, prepare=_with_texts)


def check(found: Competition, file: Path, checkout: Checkout) -> None:
    """Raises BadFileError, with the place in the file, where a problem is not there or lacks the setting's suite, where
    its cases cannot run on the setting's ranks, or where a target is of a shape that no benchmark has: what every
    submission would fail at."""
    for index, listed in enumerate(found.problems):
        place, setting = f"$.problems[{index}]", found.setting
        try:
            problem = problem_of(listed, file, False, checkout)
            suites = list(problem.suites.values())
            if setting.suite is not None:
                place = "$.setting.suite"
                suites = [problem.suite(setting.suite)]
                place = "$.setting.ranks"
                if setting.ranks is not None:
                    problem.with_world_size(suites[0], setting.ranks)
            for number, target in enumerate(listed.targets):
                place = f"$.problems[{index}].targets[{number}].shape"
                _check_target(target, [case for suite in suites for case in suite.benchmarks])
        except UsageError as error:
            raise BadFileError(f"{shown(file)}: {place}: {error}") from None


def _check_target(target: Target, benchmarks: Sequence[Case]) -> None:
    if any(target.shape.items() <= case.params.items() for case in benchmarks):
        return
    wanted, first = (
        ", ".join(f"{name}: {param_text(value)}" for name, value in shape.items())
        for shape in (target.shape, benchmarks[0].params)
    )
    raise UsageError(f"no benchmark has {{{wanted}}}, so no entry could reach the target; one has {{{first}}}")


def problem_of(listed: Listed, file: Path, folders: bool, checkout: Checkout) -> Problem:
    """The checkout's problem, or else the folder that the file names. UsageError or BadFileError."""
    folder = file.resolve().parent / listed.directory
    if not folders:
        try:
            return find(listed.name, checkout)
        except UsageError:  # no problem of this checkout has that name
            if not folder.is_dir():
                raise
    return find(str(folder), checkout)


def _with_texts(value: object) -> object:
    """The value with dates as texts: YAML takes a deadline without quotes for a date."""
    if isinstance(value, datetime):  # with a zone, where the file has one
        try:
            return (value.astimezone(UTC) if value.tzinfo else value).strftime(FORMATS[-1])
        except OverflowError:  # before the year 1, or after 9999
            return value.isoformat()  # which is refused with its place
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, dict):
        return {key: _with_texts(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_texts(item) for item in value]
    return value
