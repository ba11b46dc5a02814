"""Run an entry's source again: does it reproduce what it claims? Runs its stored source in independent
launches, each a whole evaluation, and drops the fastest and the slowest. An entry that is not reproduced is held (exit
112); where launches differ too much, nothing is decided (exit 1)."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from rich.text import Text

from harness.board import leaderboard, runs
from harness.board.entries import Board, Judged
from harness.cli import options, result_files
from harness.cli.declare import argument, option
from harness.core.checkout import Checkout
from harness.core.errors import Exit, UsageError
from harness.core.records import EvalReport
from harness.core.words import clean_line
from harness.evaluation.verify import EXITS, LAUNCHES, LEAST_LAUNCHES, applied, decision_of, launches, prepared
from harness.kinds import settings
from harness.kinds.kind import Progress
from harness.kinds.registry import find
from harness.machine import host
from harness.report.console import new_console
from harness.report.decision import document_of, to_json
from harness.report.progress import ProgressLine


@dataclass(frozen=True, kw_only=True)
class VerifyOrder(options.ByEngine, result_files.WithFiles, options.Sandboxed, options.Timed):
    problem: str | None = options.problem("only entries of this problem; a name or a problem folder's path")
    entry: str = argument(
        "the entry's run id or its beginning (`board` shows them), or its file's name", metavar="ENTRY"
    )
    launches: int = option(LAUNCHES, f"3 or more (default: {LAUNCHES})")
    quiet: bool = options.quiet("the decision, on one line")


def chosen(found: Board, text: str, problem: str | None, checkout: Checkout) -> Judged:
    """The entry that is meant: one of this machine, whose source and run are kept, if there are several."""

    def has_source(one: Judged) -> bool:
        return runs.has_source(one.sha256, one.file, checkout.root, one.run_id)

    def has_run(one: Judged) -> bool:
        return (checkout.runs / one.run_id).is_dir()

    here = host.environment("", 0).machine_class  # a CPU's, which does not depend on the rank count
    return leaderboard.find(found, text, find(problem, checkout).name if problem else None, here, (has_source, has_run))


def run(order: VerifyOrder, checkout: Checkout) -> Exit:
    check_launches(order.launches)
    settings.check_seconds("--seconds", order.seconds)
    path = checkout.leaderboard
    found = leaderboard.load(path)
    one = chosen(found, order.entry, order.problem, checkout)
    ready = prepared(one, order.problem, order.seconds, order.confined, checkout)
    leaderboard.check_writable(path)

    progress = launch_lines(f"{one.file}, {one.run_id}", order.launches, order.quiet)
    reports = launches(ready, order.launches, checkout, progress)
    decision = decision_of(one, reports, order.launches)
    decision = replace(decision, why=decision.why + outside_sandbox(one, reports))
    try:
        leaderboard.change(path, lambda now: applied(now, one, decision, reports, ready.version))
    finally:  # what was measured is shown all the same
        document = document_of(one, decision, reports)
        result_files.tell(order, document, json=lambda: to_json(one, decision, reports))
    return EXITS[decision.word]


def check_launches(count: int) -> None:
    """Raises UsageError for fewer than decide anything."""
    if count < LEAST_LAUNCHES:
        raise UsageError(f"--launches {count}: at least {LEAST_LAUNCHES} are needed, as two are dropped")


def launch_lines(what: str, count: int, quiet: bool) -> Callable[[int], AbstractContextManager[Progress]]:
    """The progress of each of `count` launches of `what` on standard error, for verify.launches."""

    @contextlib.contextmanager
    def progress(number: int) -> Iterator[Progress]:
        if not quiet:
            new_console(stderr=True).print(Text(clean_line(f"launch {number} of {count}: {what}")), soft_wrap=True)
        with ProgressLine(new_console(stderr=True), silent=quiet) as line:
            yield line

    return progress


def outside_sandbox(one: Judged, reports: Sequence[EvalReport]) -> str:
    """What is said, behind a decision, of runs outside the sandbox."""
    told = [] if one.confined else ["the entry was evaluated outside the sandbox"]
    if count := sum(not report.confined for report in reports):
        told.append(f"{count} of {len(reports)} launches ran outside the sandbox")
    return "".join(f"; {text}" for text in told)
