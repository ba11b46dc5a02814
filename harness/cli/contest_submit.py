"""The verb `contest submit`: what a member submits is entered, evaluated, and recorded on the board and in the log."""

from dataclasses import replace
from pathlib import Path

from harness.board import judgements, report_json
from harness.board.entries import Board
from harness.cli import options
from harness.cli.contest_orders import SubmitOrder
from harness.cli.contest_verbs import HERE, World, actor, runnable_contest
from harness.cli.result_files import tell
from harness.contest import acts, admission, rules
from harness.contest.acts import Contest
from harness.contest.state import ContestEntry
from harness.core.checkout import Checkout
from harness.core.decode import part
from harness.core.errors import Exit, HarnessError, UsageError
from harness.core.records import EvalReport
from harness.evaluation import recorded
from harness.judging import verdict
from harness.kinds import registry, settings
from harness.kinds.kind import Order, Setting
from harness.kinds.settings import Asked
from harness.machine import host
from harness.problems.problem import Problem
from harness.problems.submission import directives
from harness.problems.submission import read_submission as read_file
from harness.report.console import new_console
from harness.report.evaluation import document_of
from harness.report.progress import ProgressLine
from harness.report.summary import OnBoard


def submit(order: SubmitOrder, checkout: Checkout, world: World = HERE) -> Exit:
    """Evaluate a submission and enter it.

    Checks the rules, evaluates as `eval` does, and records the result on the board and in the log. By another engine,
    the rules are checked here and now, and what waits in its queue is in time."""
    found = runnable_contest(order.contest, checkout)
    member = actor(order.member, found, world)
    if order.entered is not None:
        return _evaluated(order, found, found.state().entry(order.entered), checkout, world)
    name = order.problem or _problem_named(order.file, found, checkout)
    listed = found.rules.problem(name)
    found.at(world.now()).check_submission(member, name, order.team)
    problem = rules.problem_of(listed, found.file, folders=False, checkout=checkout)
    if order.jobs == options.HERE:
        _setting(order, found, problem, checkout)  # what cannot be evaluated here is refused before it is entered
    submission = registry.read_submission(problem, order.file, checkout)
    new = acts.NewEntry(member=member, problem=name, file=submission.name, sha256=submission.sha256, team=order.team)
    entry = acts.submit(found, new, world.now())
    try:
        if order.jobs == options.HERE:
            return _evaluated(order, found, entry, checkout, world)
        code = world.elsewhere(order.jobs, _command(order, entry), checkout)
        _give_up(found, entry, f"its job ended with exit code {code} and without a result", counts=False, world=world)
        return next((one for one in Exit if one == code), Exit.ERROR)
    except HarnessError as error:
        _give_up(found, entry, str(error), counts=False, world=world)
        raise
    except (KeyboardInterrupt, BrokenPipeError):  # counted: its progress was seen
        _give_up(found, entry, "interrupted", counts=True, world=world)
        raise
    except (OSError, MemoryError) as error:  # the machine has no more to give
        _give_up(found, entry, host.refusal(error), counts=False, world=world)
        raise


def _setting(order: SubmitOrder, found: Contest, problem: Problem, checkout: Checkout) -> Setting:
    asked = part(found.rules.setting, Asked, problem="", launches=None, confined=order.confined)
    return settings.setting(asked, checkout, problem)


def _evaluated(order: SubmitOrder, found: Contest, entry: ContestEntry, checkout: Checkout, world: World) -> Exit:
    """Evaluates what was entered, and writes what it comes to. Raises UsageError for another file than that."""
    listed = found.rules.problem(entry.problem)
    problem = rules.problem_of(listed, found.file, folders=False, checkout=checkout)
    setting = _setting(order, found, problem, checkout)
    submission = registry.read_submission(problem, order.file, checkout)
    if submission.sha256 != entry.sha256 or entry.state != "submitted":
        raise UsageError(f"{order.file} is not what waits as entry {entry.number}: it has changed; submit it")
    with ProgressLine(new_console(stderr=True), silent=order.quiet) as progress:
        asked = Order(setting=setting, submission=submission, mode="leaderboard", author=entry.team)
        ran = recorded.evaluated(asked, checkout, record=True, progress=progress)
    version = judgements.problem_version(setting.problem, setting.suite, setting.device)
    entry = acts.settle(found, acts.outcome(entry.number, ran.report, version), world.now(), entry.member)
    _show_submitted(order, found, entry, ran.report, ran.standing)
    if ran.unrecorded is not None:
        raise ran.unrecorded
    return verdict.exit_code(ran.report)


def _command(order: SubmitOrder, entry: ContestEntry) -> list[str]:
    """The command that evaluates what was entered."""
    words = ["contest", "submit", order.contest, str(order.file), f"--entered={entry.number}"]
    words += [f"--json={order.json.name}"] if order.json else []
    return words + [word for word, is_set in (("--unconfined", not order.confined), ("-q", order.quiet)) if is_set]


def _give_up(found: Contest, entry: ContestEntry, why: str, counts: bool, world: World) -> None:
    """The entry has no result, unless it was written before what went wrong."""
    if found.state().entry(entry.number).state == "submitted":
        acts.settle(found, replace(acts.not_run(entry.number, why), counts=counts), world.now(), entry.member)


def _problem_named(file: Path, found: Contest, checkout: Checkout) -> str:
    """The problem that the file's first lines name, as the contest or the checkout calls it. UsageError where they name
    none, BadSubmissionError for no Python."""
    submission = read_file(file, checkout.root)
    name, problems = directives(submission.source, submission.name).leaderboard, found.rules.problems
    if name is None:
        first = problems[0].name
        raise UsageError(
            f"{file}: for which problem? --problem {first}, or begin it with a line `#!POPCORN leaderboard {first}`"
        )
    if name in [listed.name for listed in problems]:
        return name
    named = [one for one in problems if rules.problem_of(one, found.file, False, checkout).is_named(name)]
    return named[0].name if named else name


def _show_submitted(
    order: SubmitOrder, found: Contest, entry: ContestEntry, report: EvalReport, board: Board | None
) -> None:
    most = found.rules.quota.per_day
    used = admission.used_today(found.state(), entry.team, entry.submitted_at)
    quota = f"; {used} of {most} submissions of {entry.submitted_at:%Y-%m-%d} used" if most else ""
    line = f"{entry.number} of team {entry.team}: {entry.state}{quota}"
    more = {"entry": entry.number, "team": entry.team, "state": entry.state}
    document = document_of(report, OnBoard(board=board, entry=line))
    tell(order, document, json=lambda: report_json.to_json(report, None) | more)
