"""The verb `bundle`: makes, checks and runs again what somebody needs to audit a result."""

import argparse
import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.board import bundle_check, bundle_make, bundles, leaderboard, reports
from harness.board.bundles import MANIFEST
from harness.board.entries import Board
from harness.cli import options, result_files
from harness.cli.result_files import JsonFile
from harness.cli.verify import check_launches, chosen, launch_lines
from harness.core.checkout import Checkout, shown
from harness.core.errors import Exit, UsageError
from harness.core.records import EvalReport
from harness.evaluation import reproduce as again
from harness.evaluation.verify import EXITS, LAUNCHES, decision_of, launches
from harness.kinds import settings
from harness.report import bundles as view
from harness.report.console import new_console
from harness.report.render import terminal

DESCRIPTION = """Make, check and reproduce bundles. A bundle is a result as one archive or folder that somebody else can
audit and run again: source, report with every sample, problem version, system description, software, command, logs and
seeds, each held by its sha256."""
SUB_VERBS = {
    "make": "write a result as a bundle",
    "check": "is every part of a bundle there and unaltered, and do its figures follow from its samples?",
    "reproduce": "run a bundle's source again here: does the claim lie within the noise?",
}


@dataclass(frozen=True, kw_only=True)
class MakeOptions:
    """Which result, into which file or folder (None: build/bundle-<run id>.tar.gz), with which fields added."""

    entry: str
    problem: str | None
    out: Path | None
    system: Path | None
    json: JsonFile | None


@dataclass(frozen=True, kw_only=True)
class ReproduceOptions:
    """Which bundle is run again, how often and how long."""

    bundle: Path
    problem: str | None
    launches: int
    seconds: float | None
    confined: bool
    quiet: bool
    json: JsonFile | None


def renamed(arguments: Sequence[str]) -> list[str]:
    """`bundle PROBLEM [FILE]` of older harnesses as `merge PROBLEM [FILE]`, which it is called now. A word that is
    nearly a verb of `bundle` is meant as one."""
    at = list(arguments).index("bundle")
    following = arguments[at + 1 :]
    is_new = not following or following[0] in ("-h", "--help") or difflib.get_close_matches(following[0], SUB_VERBS)
    return list(arguments) if is_new else [*arguments[:at], "merge", *following]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verbs of `bundle`, each with its arguments."""
    commands = parser.add_subparsers(title="verbs", required=True, metavar="VERB", dest="sub_verb")
    of = {name: commands.add_parser(name, help=text, description=_sentence(text)) for name, text in SUB_VERBS.items()}
    make, check, reproduce = of.values()
    make.add_argument("entry", metavar="ENTRY", help="a run id or its beginning, or an entry's file")
    make.add_argument("--problem", metavar="PROBLEM", help="only entries of this problem")
    make.add_argument(
        "-o",
        "--out",
        type=Path,
        metavar="OUT",
        help="an archive (.tar.gz) or a new folder (default: build/bundle-<run id>.tar.gz)",
    )
    make.add_argument(
        "--system",
        type=Path,
        metavar="FILE",
        help="JSON with fields of MLPerf's system description that the machine does not tell, such as cooling",
    )
    for command in (check, reproduce):
        command.add_argument("bundle", type=Path, metavar="BUNDLE", help="the archive or the folder")
    reproduce.add_argument("--problem", metavar="PROBLEM", help="where its problem lies, if in a folder of its own")
    reproduce.add_argument(
        "--launches", type=int, default=LAUNCHES, metavar="N", help=f"3 or more (default: {LAUNCHES})"
    )
    options.add_seconds(reproduce)
    options.add_unconfined(reproduce)
    for command in (make, check, reproduce):
        result_files.add_json(command)
    options.add_quiet(reproduce, "the decision, on one line")


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + ("" if text.endswith("?") else ".")


def run(namespace: argparse.Namespace, checkout: Checkout) -> Exit:
    """`bundle make`, `check` or `reproduce`."""
    if namespace.sub_verb == "make":
        return make(
            MakeOptions(
                entry=namespace.entry,
                problem=namespace.problem,
                out=namespace.out,
                system=namespace.system,
                json=namespace.json,
            ),
            checkout,
        )
    if namespace.sub_verb == "check":
        return check(namespace.bundle, namespace.json, checkout)
    return reproduce(
        ReproduceOptions(
            bundle=namespace.bundle,
            problem=namespace.problem,
            launches=namespace.launches,
            seconds=namespace.seconds,
            confined=namespace.confined,
            quiet=namespace.quiet,
            json=namespace.json,
        ),
        checkout,
    )


def make(order: MakeOptions, checkout: Checkout) -> Exit:
    """Writes the bundle of an entry or a run."""
    given = bundle_make.read_fields(order.system) if order.system else {}
    board = leaderboard.load(checkout.leaderboard)
    made = bundle_make.make(_recorded(order, board, checkout), board, given, checkout)
    name = f"bundle-{made.run_id}"
    out = order.out or checkout.build / f"{name}.tar.gz"
    bundles.write(made.files, name, out)
    if order.json:
        order.json.write(view.made_json(made, str(out), made.files[MANIFEST]))
    if not (order.json and order.json.is_stdout):
        terminal.show(view.made_document(made, shown(out), made.files[MANIFEST]), new_console())
    return Exit.OK


def _recorded(order: MakeOptions, board: Board, checkout: Checkout) -> EvalReport:
    """The report of the entry that is meant, or else of the run. Raises UsageError where neither is there."""
    try:
        run_id = chosen(board, order.entry, order.problem, checkout).run_id
    except UsageError:
        recorded = sorted(path.parent.name for path in checkout.runs.glob(f"*/{reports.FILE}"))
        if len(found := [name for name in recorded if order.entry and name.startswith(order.entry)]) != 1:
            raise
        run_id = found[0]
    try:
        return reports.find(run_id, checkout.root)
    except UsageError:
        raise UsageError(
            f"the report of {run_id} is not kept: runs/{run_id}/ is missing, and a bundle needs its samples and logs; "
            "evaluate the file again, and bundle that run"
        ) from None


def check(bundle: Path, json: JsonFile | None, checkout: Checkout) -> Exit:
    """Looks at every part; Exit.BAD_FILE where one is missing or altered."""
    found = bundle_check.check(bundles.read(bundle), checkout)
    if json:
        json.write(view.checked_json(found))
    if not (json and json.is_stdout):
        terminal.show(view.checked_document(found), new_console())
    return Exit.OK if found.is_whole else Exit.BAD_FILE


def reproduce(order: ReproduceOptions, checkout: Checkout) -> Exit:
    """Runs the source again, and says whether the claim lies within the noise. The board stays as it is."""
    check_launches(order.launches)
    settings.check_seconds("--seconds", order.seconds)
    found = bundle_check.check(bundles.read(order.bundle), checkout)
    ready = again.prepared(found, order.problem, order.seconds, order.confined, checkout)
    progress = launch_lines(f"{ready.one.file}, {ready.one.run_id}", order.launches, order.quiet)
    ran = launches(ready, order.launches, checkout, progress)
    decision = decision_of(ready.one, ran, order.launches)
    if order.json:
        order.json.write(view.reproduced_json(found, ready, decision, ran))
    if not (order.json and order.json.is_stdout):
        terminal.show(view.reproduced_document(ready, decision, ran), new_console(), order.quiet)
    return EXITS[decision.word]
