"""What each verb behind `contest` is asked for: a record a verb."""

from argparse import SUPPRESS
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from harness.cli import options, result_files
from harness.cli.declare import argument, option
from harness.contest.acts import FOLDER

ContestName = Annotated[str, argument(f"the contest's file, or the name of one in {FOLDER}/", metavar="CONTEST")]
By = Annotated[
    str | None,
    option("who does this, for the audit log (default: your login; an organiser may name another)", metavar="NAME"),
]
Member = Annotated[
    str | None, option("who submits or withdraws (default: your login; an organiser may name another)", metavar="NAME")
]
EntryNumber = Annotated[int, argument("the entry's number", metavar="ENTRY")]
ItsProblem = Annotated[
    str | None, option("its problem, by its name in the contest (submit: default as its first lines say)", metavar="P")
]
TheProblem = Annotated[str, argument("its name in the contest", metavar="PROBLEM")]
Full = Annotated[bool, option("for organisers: as it is now, also while it is frozen or private")]
Quiet = Annotated[bool, options.quiet("the last lines")]


@dataclass(frozen=True, kw_only=True)
class ListOrder:
    """`list`: contests' files; those of the checkout where there are none."""

    files: Annotated[tuple[Path, ...], argument(f"contests' files (default: those in {FOLDER}/)")] = ()
    json: result_files.Json = None


@dataclass(frozen=True, kw_only=True)
class ContestOrder:
    """Of one contest, by its file or its name: `freeze`, `unfreeze`."""

    contest: ContestName
    by: By = None


@dataclass(frozen=True, kw_only=True)
class ShowOrder(ContestOrder):
    """`show`: all of it, one entry, or the audit log."""

    entry: Annotated[int | None, argument("only this entry, by its number", metavar="ENTRY")] = None
    log: Annotated[bool, option("show who did what when")] = False
    json: result_files.Json = None


@dataclass(frozen=True, kw_only=True)
class StandingsOrder(ContestOrder):
    """`standings`: as the public sees them, or in full; of one problem, or of all."""

    problem: ItsProblem = None
    full: Full = False
    json: result_files.Json = None


@dataclass(frozen=True, kw_only=True)
class StatsOrder(ContestOrder):
    """`stats`: as the public sees them, or in full; also as a page."""

    full: Full = False
    page: Annotated[Path | None, option("write standings and charts as one HTML file too")] = None
    json: result_files.Json = None


@dataclass(frozen=True, kw_only=True)
class RegisterOrder(ContestOrder):
    """`register`."""

    team: Annotated[str, argument("the team's name", metavar="TEAM")]
    members: Annotated[tuple[str, ...], argument("the members' names, as they submit under", metavar="MEMBER")]


@dataclass(frozen=True, kw_only=True)
class SubmitOrder:
    """`submit`. `jobs` names the engine that evaluates; `entered` is the number of what an engine's job evaluates."""

    contest: ContestName
    file: Annotated[Path, argument("the submission")]
    problem: ItsProblem = None
    member: Member = None
    team: Annotated[str | None, option("the member's team, to be told if it is another", metavar="TEAM")] = None
    confined: options.Confined = True
    quiet: Quiet = False
    json: result_files.Json = None
    jobs: Annotated[  # main's `engine` is where a whole command runs
        str,
        option(
            "where it is evaluated: here (the default), or as a job of the cluster that engine.yaml describes",
            "--engine",
            choices=options.ENGINES,
        ),
    ] = options.HERE
    entered: Annotated[int | None, option(SUPPRESS)] = None


@dataclass(frozen=True, kw_only=True)
class WithdrawOrder:
    """`withdraw`."""

    contest: ContestName
    entry: EntryNumber
    member: Member = None


@dataclass(frozen=True, kw_only=True)
class VerifyTopOrder(ContestOrder):
    """`verify-top`: the leading entries of a problem, or one entry."""

    problem: TheProblem
    top: Annotated[int | None, option("how many (default: as its file says)")] = None
    entry: Annotated[int | None, option("only this entry, which may also be a held one", metavar="ENTRY")] = None
    launches: Annotated[int | None, option("3 or more (default: as its file says)")] = None
    confined: options.Confined = True
    quiet: Quiet = False
    engine: options.Engine = options.HERE


@dataclass(frozen=True, kw_only=True)
class ContestSettleOrder(ContestOrder):
    """`settle`: the leading teams' best sources of a problem."""

    problem: TheProblem
    top: Annotated[int | None, option("how many teams (default: as `settle`)")] = None
    confined: options.Confined = True
    quiet: Quiet = False
    engine: options.Engine = options.HERE


@dataclass(frozen=True, kw_only=True)
class EntryOrder(ContestOrder):
    """Of one entry, by its number."""

    entry: EntryNumber


@dataclass(frozen=True, kw_only=True)
class ReviewOrder(EntryOrder):
    """`review`, with a note for the audit log."""

    note: Annotated[str, option("for the audit log", metavar="TEXT")] = ""


@dataclass(frozen=True, kw_only=True)
class AwardOrder(EntryOrder):
    """`award`, by the award's name."""

    award: Annotated[str, argument("the award's name in the contest's file", metavar="AWARD")]


@dataclass(frozen=True, kw_only=True)
class DecideOrder(EntryOrder):
    """`disqualify` and `reinstate`, for a reason."""

    why: Annotated[str, option("the reason, for the team", metavar="TEXT")]
