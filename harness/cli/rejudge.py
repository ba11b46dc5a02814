"""Judge entries again after a change of a problem, shape or check. Shows what would change. Only --apply
changes the leaderboard, and keeps the old judgements."""

from dataclasses import dataclass, replace

from harness.board import judgements, leaderboard, places, runs
from harness.board.entries import Board, Judged
from harness.cli import options, result_files
from harness.cli.declare import option
from harness.cli.verify import chosen, outside_sandbox
from harness.core.checkout import Checkout
from harness.core.errors import Exit, HarnessError, UsageError
from harness.core.stats import LaunchNoise
from harness.evaluation import verify
from harness.evaluation.rejudge import Left, Rejudged, Row, applied, rejudged
from harness.kinds import settings
from harness.kinds.registry import find
from harness.report.console import new_console
from harness.report.progress import ProgressLine
from harness.report.rejudged import document_of, to_json


@dataclass(frozen=True, kw_only=True)
class RejudgeOrder(options.ByEngine, result_files.WithFiles, options.Sandboxed, options.Timed):
    problem: str | None = options.problem("only entries of this problem; a name or a problem folder's path")
    entries: tuple[str, ...] = option(
        (), "only this entry, named as for `verify`; may be repeated", "--entry", metavar="E"
    )
    stale: bool = option(False, "only entries judged under another version of their problem, or an unknown one")
    rerun: bool = option(False, "run each entry again, even where its report would suffice")
    apply: bool = option(False, "change the leaderboard (default: show what would change)")


def selected(found: Board, order: RejudgeOrder, checkout: Checkout) -> list[Judged]:
    """The entries that are meant, in the board's order; UsageError where there is none."""
    name = find(order.problem, checkout).name if order.problem else None
    if order.entries:
        named = [chosen(found, text, order.problem, checkout) for text in order.entries]
        return list({id(one): one for one in named}.values())
    meant = [one for one in found.judged if name in (None, one.problem)]
    if not meant:
        raise UsageError(f"no entry{f' of {name}' if name else ''} is on the leaderboard: there is nothing to judge")
    return meant


def run(order: RejudgeOrder, checkout: Checkout) -> Exit:
    """`rejudge`: judges again and shows the difference; only with `apply` is the board changed, in one step."""
    settings.check_seconds("--seconds", order.seconds)
    path = checkout.leaderboard
    found = leaderboard.load(path)
    meant = selected(found, order, checkout)
    if order.apply:
        leaderboard.check_writable(path)
    rows: list[Row] = []
    for one in meant:
        row = _again(one, order, places.noise_of(found, one.problem, one.machine_class, one.device), checkout)
        if row is None:
            continue
        if order.apply and isinstance(row, Rejudged):
            for report in row.runs:
                runs.store(report, checkout.root)
        rows.append(row)
    changes = [row for row in rows if isinstance(row, Rejudged) and row.new != row.old]
    try:
        if order.apply and changes:
            leaderboard.change(path, lambda now: applied(now, changes))
    finally:  # what was found is shown all the same
        document = document_of(rows, changes, order.apply)
        result_files.tell(order, document, json=lambda: to_json(rows, order.apply))
    return Exit.OK


def _again(one: Judged, order: RejudgeOrder, noise: LaunchNoise, checkout: Checkout) -> Row | None:
    """The entry judged again, or why it could not be; None where it is not meant."""
    try:
        setting = replace(verify.setting_for(one, order.problem, order.seconds, checkout), confined=order.confined)
        version = judgements.problem_version(setting.problem, setting.suite, setting.device)
    except UsageError as error:  # no such problem, suite or split any more
        if order.entries:
            raise
        return Left(old=one, why=str(error))
    if order.stale and one.problem_version == version:
        return None
    try:
        with ProgressLine(new_console(stderr=True)) as progress:
            row = rejudged(one, setting, order.rerun, checkout, progress, noise)
    except HarnessError as error:  # not on this machine, or not now: what the others are worth is not lost
        return Left(old=one, why=str(error))
    return replace(row, why=row.why + outside_sandbox(one, row.runs if isinstance(row, Rejudged) else ()))
