"""The verb `contest`: registration, submissions, standings and awards of a contest. Its own verbs stand behind it."""

import argparse
import secrets
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.cli import contest_orders as orders
from harness.cli import contest_settle, contest_submit, contest_verbs, options, result_files
from harness.cli.contest_verbs import World
from harness.contest.acts import FOLDER
from harness.core.accounts import account
from harness.core.checkout import Checkout
from harness.core.errors import Exit

DESCRIPTION = """Run a contest: teams register and submit within its rules, organisers freeze, verify, award and
disqualify. A contest is a yaml file (docs/contest.md), with its audit log beside it; KernelBot's competition files are
contests too. All times are UTC."""


@dataclass(frozen=True, kw_only=True)
class SubVerb:
    """A verb behind `contest`: its line of help, what it takes, the record of what was asked for, and what carries that
    out."""

    help: str
    arguments: tuple[str, ...]
    order: type[Any]
    run: Callable[[Any, Checkout, World], Exit]


VERBS = {
    "list": SubVerb(
        help="the contests that there are", arguments=("files", "json"), order=orders.List, run=contest_verbs.show_list
    ),
    "show": SubVerb(
        help="a contest's rules and teams, one entry's history, or the whole audit log",
        arguments=("contest", "maybe-entry", "log", "by", "json"),
        order=orders.Show,
        run=contest_verbs.show,
    ),
    "register": SubVerb(
        help="register a team, or further members of one",
        arguments=("contest", "team", "members", "by"),
        order=orders.Register,
        run=contest_verbs.register,
    ),
    "submit": SubVerb(
        help="evaluate a submission and enter it",
        arguments=("contest", "file", "problem", "member", "of-team", "unconfined", "quiet", "json", "jobs", "entered"),
        order=orders.Submit,
        run=contest_submit.submit,
    ),
    "withdraw": SubVerb(
        help="take an entry of one's own team back",
        arguments=("contest", "entry", "member"),
        order=orders.Withdraw,
        run=contest_verbs.withdraw,
    ),
    "standings": SubVerb(
        help="who stands where",
        arguments=("contest", "problem", "full", "by", "json"),
        order=orders.Standings,
        run=contest_verbs.show_standings,
    ),
    "stats": SubVerb(
        help="submissions, best results and failures over time",
        arguments=("contest", "full", "by", "json", "page"),
        order=orders.Stats,
        run=contest_verbs.show_stats,
    ),
    "freeze": SubVerb(
        help="keep the public standings as they are now",
        arguments=("contest", "by"),
        order=orders.OfContest,
        run=contest_verbs.freeze,
    ),
    "unfreeze": SubVerb(
        help="let the public standings follow again",
        arguments=("contest", "by"),
        order=orders.OfContest,
        run=contest_verbs.unfreeze,
    ),
    "verify-top": SubVerb(
        help="run the leading entries of a problem again: do they reproduce what they claim",
        arguments=("contest", "the-problem", "top", "entries", "launches", "unconfined", "by", "quiet", "engine"),
        order=orders.VerifyTop,
        run=contest_verbs.verify_top,
    ),
    "settle": SubVerb(
        help="run the best sources of a problem's leading teams head to head, for places that they share",
        arguments=("contest", "the-problem", "meeting", "unconfined", "by", "quiet", "engine"),
        order=orders.Settle,
        run=contest_settle.settle,
    ),
    "review": SubVerb(
        help="say that an organiser has read a reproduced entry's source: it is verified then",
        arguments=("contest", "entry", "note", "by"),
        order=orders.Review,
        run=contest_verbs.review,
    ),
    "award": SubVerb(
        help="give a verified entry an award",
        arguments=("contest", "entry", "award", "by"),
        order=orders.Award,
        run=contest_verbs.award,
    ),
    "disqualify": SubVerb(
        help="take an entry out, for a reason",
        arguments=("contest", "entry", "why", "by"),
        order=orders.Decide,
        run=contest_verbs.disqualify,
    ),
    "reinstate": SubVerb(
        help="take a disqualification back, for a reason",
        arguments=("contest", "entry", "why", "by"),
        order=orders.Decide,
        run=contest_verbs.reinstate,
    ),
}
ARGUMENTS: dict[str, Callable[[argparse.ArgumentParser], object]] = {
    "contest": lambda parser: parser.add_argument(
        "contest", metavar="CONTEST", help=f"the contest's file, or the name of one in {FOLDER}/"
    ),
    "files": lambda parser: parser.add_argument(
        "files", nargs="*", type=Path, metavar="FILE", help=f"contests' files (default: those in {FOLDER}/)"
    ),
    "maybe-entry": lambda parser: parser.add_argument(
        "entry", nargs="?", type=int, metavar="ENTRY", help="only this entry, by its number"
    ),
    "entry": lambda parser: parser.add_argument("entry", type=int, metavar="ENTRY", help="the entry's number"),
    "log": lambda parser: parser.add_argument("--log", action="store_true", help="show who did what when"),
    "team": lambda parser: parser.add_argument("team", metavar="TEAM", help="the team's name"),
    "members": lambda parser: parser.add_argument(
        "members", nargs="+", metavar="MEMBER", help="the members' names, as they submit under"
    ),
    "file": lambda parser: parser.add_argument("file", type=Path, metavar="FILE", help="the submission"),
    "problem": lambda parser: parser.add_argument(
        "--problem",
        metavar="P",
        help="its problem, by its name in the contest (submit: default as its first lines say)",
    ),
    "the-problem": lambda parser: parser.add_argument("problem", metavar="PROBLEM", help="its name in the contest"),
    "member": lambda parser: parser.add_argument(
        "--member", metavar="NAME", help="who submits or withdraws (default: your login; an organiser may name another)"
    ),
    "of-team": lambda parser: parser.add_argument(
        "--team", metavar="TEAM", help="the member's team, to be told if it is another"
    ),
    "by": lambda parser: parser.add_argument(
        "--by",
        metavar="NAME",
        help="who does this, for the audit log (default: your login; an organiser may name another)",
    ),
    "full": lambda parser: parser.add_argument(
        "--full", action="store_true", help="for organisers: as it is now, also while it is frozen or private"
    ),
    "top": lambda parser: parser.add_argument(
        "--top", type=int, metavar="N", help="how many (default: as its file says)"
    ),
    "meeting": lambda parser: parser.add_argument(
        "--top", type=int, metavar="N", help="how many teams (default: as `settle`)"
    ),
    "entries": lambda parser: parser.add_argument(
        "--entry", type=int, metavar="ENTRY", help="only this entry, which may also be a held one"
    ),
    "launches": lambda parser: parser.add_argument(
        "--launches", type=int, metavar="N", help="3 or more (default: as its file says)"
    ),
    "note": lambda parser: parser.add_argument("--note", default="", metavar="TEXT", help="for the audit log"),
    "award": lambda parser: parser.add_argument(
        "award", metavar="AWARD", help="the award's name in the contest's file"
    ),
    "why": lambda parser: parser.add_argument("--why", required=True, metavar="TEXT", help="the reason, for the team"),
    "page": lambda parser: parser.add_argument(
        "--page", type=Path, metavar="FILE", help="write standings and charts as one HTML file too"
    ),
    "unconfined": options.add_unconfined,
    "engine": options.add_engine,
    "jobs": lambda parser: parser.add_argument(
        "--engine",
        dest="jobs",  # main's `engine` is where a whole command runs
        default=options.HERE,
        choices=options.ENGINES,
        help="where it is evaluated: here (the default), or as a job of the cluster that engine.yaml describes",
    ),
    "entered": lambda parser: parser.add_argument("--entered", type=int, help=argparse.SUPPRESS),  # by that job
    "quiet": lambda parser: options.add_quiet(parser, "the last lines"),
    "json": result_files.add_json,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verbs of `contest`, each with its arguments."""
    commands = parser.add_subparsers(title="verbs", required=True, metavar="VERB", dest="sub_verb")
    for name, verb in VERBS.items():
        command = commands.add_parser(name, help=verb.help, description=verb.help[0].upper() + verb.help[1:] + ".")
        for argument in verb.arguments:
            ARGUMENTS[argument](command)


def run(namespace: argparse.Namespace, checkout: Checkout) -> Exit:
    """`contest VERB ...`: by this machine's clock."""
    world = World(now=lambda: datetime.now(UTC), new_secret=lambda: secrets.token_urlsafe(16), login=account())
    return carry_out(namespace, checkout, world)


def carry_out(namespace: argparse.Namespace, checkout: Checkout, world: World) -> Exit:
    """The verb that was named, in a world with that clock."""
    given = vars(namespace)
    verb = VERBS[namespace.sub_verb]
    return verb.run(verb.order(**{field.name: given[field.name] for field in fields(verb.order)}), checkout, world)
