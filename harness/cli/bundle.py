"""Make, check and reproduce bundles. A bundle is a result as one archive or folder that somebody else can
audit and run again: source, report with every sample, problem version, system description, software, command, logs and
seeds, each held by its sha256."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.board import bundle_check, bundle_make, bundles, leaderboard, reports
from harness.board.bundles import MANIFEST
from harness.board.entries import Board
from harness.cli import options, result_files
from harness.cli.declare import argument, option
from harness.cli.verify import check_launches, chosen, launch_lines
from harness.core.checkout import Checkout, shown
from harness.core.decode import encode
from harness.core.errors import Exit, UsageError
from harness.core.records import EvalReport
from harness.evaluation import reproduce as again
from harness.evaluation.verify import EXITS, LAUNCHES, decision_of, launches
from harness.kinds import settings
from harness.report import bundles as view
from harness.report.decision import to_json


@dataclass(frozen=True, kw_only=True)
class MakeOrder(result_files.WithFiles):
    entry: str = argument("a run id or its beginning, or an entry's file", metavar="ENTRY")
    problem: str | None = option(None, "only entries of this problem", metavar="PROBLEM")
    out: Path | None = options.out(
        "an archive (.tar.gz) or a new folder (default: build/bundle-<run id>.tar.gz)", metavar="OUT"
    )
    system: Path | None = option(
        None, "JSON with fields of MLPerf's system description that the machine does not tell, such as cooling"
    )


@dataclass(frozen=True, kw_only=True)
class BundleCheckOrder(result_files.WithFiles):
    bundle: Path = argument("the archive or the folder", metavar="BUNDLE")


@dataclass(frozen=True, kw_only=True)
class ReproduceOrder(result_files.WithFiles, options.Sandboxed, options.Timed):
    bundle: Path = argument("the archive or the folder", metavar="BUNDLE")
    problem: str | None = option(None, "where its problem lies, if in a folder of its own", metavar="PROBLEM")
    launches: int = option(LAUNCHES, f"3 or more (default: {LAUNCHES})")
    quiet: bool = options.quiet("the decision, on one line")


def renamed(arguments: Sequence[str]) -> list[str]:
    """`bundle PROBLEM [FILE]` of older harnesses as `merge PROBLEM [FILE]`, which it is called now. A word that is
    nearly a verb of `bundle` is meant as one."""
    at = list(arguments).index("bundle")
    following = arguments[at + 1 :]
    is_new = not following or following[0] in ("-h", "--help") or difflib.get_close_matches(following[0], SUB_VERBS)
    return list(arguments) if is_new else [*arguments[:at], "merge", *following]


def make(order: MakeOrder, checkout: Checkout) -> Exit:
    """Write a result as a bundle."""
    given = bundle_make.read_fields(order.system) if order.system else {}
    board = leaderboard.load(checkout.leaderboard)
    made = bundle_make.make(_recorded(order, board, checkout), board, given, checkout)
    name = f"bundle-{made.run_id}"
    out = order.out or checkout.build / f"{name}.tar.gz"
    bundles.write(made.files, name, out)
    manifest = made.files[MANIFEST]
    return result_files.tell(
        order,
        view.made_document(made, shown(out), manifest),
        json=lambda: view.made_json(made, str(out), manifest),
    )


def _recorded(order: MakeOrder, board: Board, checkout: Checkout) -> EvalReport:
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


def check(order: BundleCheckOrder, checkout: Checkout) -> Exit:
    """Is every part of a bundle there and unaltered, and do its figures follow from its samples?

    Exit.BAD_FILE where one is missing or altered."""
    found = bundle_check.check(bundles.read(order.bundle), checkout)
    parts = {"sha256": found.sha256, "whole": found.is_whole, "findings": found.findings, "manifest": found.manifest}
    code = Exit.OK if found.is_whole else Exit.BAD_FILE
    document = view.checked_document(found)
    return result_files.tell(order, document, code, json=lambda: {"schema": view.JSON_SCHEMA} | encode(parts))


def reproduce(order: ReproduceOrder, checkout: Checkout) -> Exit:
    """Run a bundle's source again here: does the claim lie within the noise?

    The board stays as it is."""
    check_launches(order.launches)
    settings.check_seconds("--seconds", order.seconds)
    found = bundle_check.check(bundles.read(order.bundle), checkout)
    ready = again.prepared(found, order.problem, order.seconds, order.confined, checkout)
    progress = launch_lines(f"{ready.one.file}, {ready.one.run_id}", order.launches, order.quiet)
    ran = launches(ready, order.launches, checkout, progress)
    decision = decision_of(ready.one, ran, order.launches)
    document = view.reproduced_document(ready, decision, ran)
    more = {"bundle_sha256": found.sha256, "word": view.WORDS[decision.word]}
    return result_files.tell(
        order, document, EXITS[decision.word], json=lambda: to_json(ready.one, decision, ran) | more
    )


SUB_VERBS = {"make": make, "check": check, "reproduce": reproduce}
