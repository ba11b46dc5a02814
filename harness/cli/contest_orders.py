"""What each verb behind `contest` was asked for, a record a verb, by the names of its arguments."""

from dataclasses import dataclass
from pathlib import Path

from harness.cli.result_files import JsonFile


@dataclass(frozen=True, kw_only=True)
class List:
    """`list`: contests' files; those of the checkout where there are none."""

    files: list[Path]
    json: JsonFile | None


@dataclass(frozen=True, kw_only=True)
class OfContest:
    """Of one contest, by its file or its name. `by` is who acts, None for the login: `freeze`, `unfreeze`."""

    contest: str
    by: str | None


@dataclass(frozen=True, kw_only=True)
class Show(OfContest):
    """`show`: all of it, one entry, or the audit log."""

    entry: int | None
    log: bool
    json: JsonFile | None


@dataclass(frozen=True, kw_only=True)
class Standings(OfContest):
    """`standings`: as the public sees them, or in full; of one problem, or of all."""

    problem: str | None
    full: bool
    json: JsonFile | None


@dataclass(frozen=True, kw_only=True)
class Stats(OfContest):
    """`stats`: as the public sees them, or in full; also as a page."""

    full: bool
    page: Path | None
    json: JsonFile | None


@dataclass(frozen=True, kw_only=True)
class Register(OfContest):
    """`register`."""

    team: str
    members: list[str]


@dataclass(frozen=True, kw_only=True)
class Submit:
    """`submit`. `jobs` names the engine that evaluates; `entered` is the number of what an engine's job evaluates."""

    contest: str
    file: Path
    problem: str | None
    member: str | None
    team: str | None
    confined: bool
    quiet: bool
    json: JsonFile | None
    jobs: str
    entered: int | None


@dataclass(frozen=True, kw_only=True)
class Withdraw:
    """`withdraw`."""

    contest: str
    entry: int
    member: str | None


@dataclass(frozen=True, kw_only=True)
class VerifyTop(OfContest):
    """`verify-top`: the leading entries of a problem, or one entry. None: as the contest's file says."""

    problem: str
    top: int | None
    entry: int | None
    launches: int | None
    confined: bool
    quiet: bool


@dataclass(frozen=True, kw_only=True)
class Settle(OfContest):
    """`settle`: the leading teams' best sources of a problem; `top` of None: as many as `settle` takes by itself."""

    problem: str
    top: int | None
    confined: bool
    quiet: bool


@dataclass(frozen=True, kw_only=True)
class OfEntry(OfContest):
    """Of one entry, by its number."""

    entry: int


@dataclass(frozen=True, kw_only=True)
class Review(OfEntry):
    """`review`, with a note for the audit log."""

    note: str


@dataclass(frozen=True, kw_only=True)
class Award(OfEntry):
    """`award`, by the award's name."""

    award: str


@dataclass(frozen=True, kw_only=True)
class Decide(OfEntry):
    """`disqualify` and `reinstate`, for a reason."""

    why: str
