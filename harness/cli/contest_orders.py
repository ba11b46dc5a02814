"""What each verb behind `contest` is asked for: a record a verb."""

from argparse import SUPPRESS
from dataclasses import dataclass
from pathlib import Path

from harness.cli.declare import REQUIRED, argument, option
from harness.cli.options import ENGINES, HERE, ByEngine, Sandboxed, quiet
from harness.cli.result_files import WithFiles
from harness.contest.acts import FOLDER

CONTEST = f"the contest's file, or the name of one in {FOLDER}/"
PROBLEM = "its problem, by its name in the contest (submit: default as its first lines say)"


@dataclass(frozen=True, kw_only=True)
class ListOrder(WithFiles):
    """`list`: contests' files; those of the checkout where there are none."""

    files: tuple[Path, ...] = argument(f"contests' files (default: those in {FOLDER}/)", default=())


@dataclass(frozen=True, kw_only=True)
class ContestOrder:
    """Of one contest, by its file or its name: `freeze`, `unfreeze`."""

    contest: str = argument(CONTEST, metavar="CONTEST")
    by: str | None = option(
        None, "who does this, for the audit log (default: your login; an organiser may name another)", metavar="NAME"
    )


@dataclass(frozen=True, kw_only=True)
class MemberOrder:
    contest: str = argument(CONTEST, metavar="CONTEST")
    member: str | None = option(
        None, "who submits or withdraws (default: your login; an organiser may name another)", metavar="NAME"
    )


@dataclass(frozen=True, kw_only=True)
class ViewOrder(WithFiles, ContestOrder):
    full: bool = option(False, "for organisers: as it is now, also while it is frozen or private")


@dataclass(frozen=True, kw_only=True)
class ShowOrder(WithFiles, ContestOrder):
    entry: int | None = argument("only this entry, by its number", metavar="ENTRY", default=None)
    log: bool = option(False, "show who did what when")


@dataclass(frozen=True, kw_only=True)
class StandingsOrder(ViewOrder):
    problem: str | None = option(None, PROBLEM, metavar="P")


@dataclass(frozen=True, kw_only=True)
class StatsOrder(ViewOrder):
    page: Path | None = option(None, "write standings and charts as one HTML file too")


@dataclass(frozen=True, kw_only=True)
class RegisterOrder(ContestOrder):
    team: str = argument("the team's name", metavar="TEAM")
    members: tuple[str, ...] = argument("the members' names, as they submit under", metavar="MEMBER")


@dataclass(frozen=True, kw_only=True)
class SubmitOrder(WithFiles, Sandboxed, MemberOrder):
    """`submit`. `jobs` names the engine that evaluates; `entered` is the number of what an engine's job evaluates."""

    file: Path = argument("the submission")
    problem: str | None = option(None, PROBLEM, metavar="P")
    team: str | None = option(None, "the member's team, to be told if it is another", metavar="TEAM")
    quiet: bool = quiet("the last lines")
    jobs: str = option(  # main's `engine` is where a whole command runs
        HERE,
        "where it is evaluated: here (the default), or as a job of the cluster that engine.yaml describes",
        "--engine",
        choices=ENGINES,
    )
    entered: int | None = option(None, SUPPRESS)


@dataclass(frozen=True, kw_only=True)
class WithdrawOrder(MemberOrder):
    entry: int = argument("the entry's number", metavar="ENTRY")


@dataclass(frozen=True, kw_only=True)
class ProblemOrder(ByEngine, Sandboxed, ContestOrder):
    """What runs the leading entries of a problem again."""

    problem: str = argument("its name in the contest", metavar="PROBLEM")
    quiet: bool = quiet("the last lines")


@dataclass(frozen=True, kw_only=True)
class VerifyTopOrder(ProblemOrder):
    top: int | None = option(None, "how many (default: as its file says)")
    entry: int | None = option(None, "only this entry, which may also be a held one", metavar="ENTRY")
    launches: int | None = option(None, "3 or more (default: as its file says)")


@dataclass(frozen=True, kw_only=True)
class ContestSettleOrder(ProblemOrder):
    top: int | None = option(None, "how many teams (default: as `settle`)")


@dataclass(frozen=True, kw_only=True)
class EntryOrder(ContestOrder):
    entry: int = argument("the entry's number", metavar="ENTRY")


@dataclass(frozen=True, kw_only=True)
class ReviewOrder(EntryOrder):
    note: str = option("", "for the audit log", metavar="TEXT")


@dataclass(frozen=True, kw_only=True)
class AwardOrder(EntryOrder):
    award: str = argument("the award's name in the contest's file", metavar="AWARD")


@dataclass(frozen=True, kw_only=True)
class DecideOrder(EntryOrder):
    """`disqualify` and `reinstate`, for a reason."""

    why: str = option(REQUIRED, "the reason, for the team", metavar="TEXT")
