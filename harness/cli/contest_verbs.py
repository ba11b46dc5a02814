"""The verbs behind `contest`, each a function from what was asked for to an exit code.

The time, the ids of members and the login come from a World, so that tests play a contest of weeks in seconds.
"""

import importlib
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.text import Text

from harness.board import judgements, leaderboard, reports
from harness.board.entries import Board, Entry, Judged
from harness.cli import contest_orders as orders
from harness.cli import options
from harness.cli.result_files import tell
from harness.cli.verify import check_launches, launch_lines
from harness.contest import acts, rules, standings, statistics
from harness.contest.acts import Contest
from harness.contest.lifecycle import EvaluationHeld, Reproduced, transition
from harness.contest.state import ContestEntry
from harness.contest.times import shown_time
from harness.core.accounts import account
from harness.core.checkout import Checkout
from harness.core.decode import did_you_mean, encode
from harness.core.errors import Exit, HarnessError, UsageError
from harness.core.records import EvalReport
from harness.core.unseen import keep_unseen
from harness.evaluation import verify
from harness.evaluation.verify import Decision, Ready
from harness.report import contest_page, contest_stats, contest_view, decision
from harness.report.console import new_console
from harness.report.render import terminal


def _run_elsewhere(engine: str, command: Sequence[str], checkout: Checkout) -> int:
    """See harness.cli.elsewhere, which only those need who have a cluster."""
    return int(importlib.import_module("harness.cli.elsewhere").run(engine, command, checkout))


@dataclass(frozen=True, kw_only=True)
class World:
    """What a contest takes from outside: the time, the secret part of a new member's id, who is logged in, and how a
    command of ours runs by an engine: its exit code."""

    now: Callable[[], datetime]
    new_secret: Callable[[], str]
    login: Callable[[], str]
    elsewhere: Callable[[str, Sequence[str], Checkout], int] = _run_elsewhere


HERE = World(now=lambda: datetime.now(UTC), new_secret=lambda: secrets.token_urlsafe(16), login=account)


# ---- which contest ---------------------------------------------------------------------------------------------------
def contest_of(name: str, checkout: Checkout) -> Contest:
    """The contest of that file, or of that name in the checkout's folder. UsageError where there is none."""
    path, folder = Path(name), checkout.root / acts.FOLDER
    if not path.is_file():
        known = sorted(one.stem for one in folder.glob("*.yaml"))
        if name not in known:
            hint = did_you_mean(name, known) or (f" (known: {', '.join(known)})" if known else "")
            if path.is_dir():
                raise UsageError(f"{name}: a folder; name the contest's file in it, which ends in .yaml")
            raise UsageError(f"no contest '{name}': no such file, and none in {acts.FOLDER}/{hint}")
        path = folder / f"{name}.yaml"
    return acts.opened(path)


def runnable_contest(name: str, checkout: Checkout) -> Contest:
    """The contest, whose log no submission that is run from now on can see."""
    found = contest_of(name, checkout)
    keep_unseen(found.log.path, checkout)
    return found


def actor(named: str | None, found: Contest, world: World) -> str:
    """Who does it, as the log has it: who is logged in, or whom an organiser names."""
    login = world.login()
    found.at(world.now()).check_named(login, named or login)
    return named or login


# ---- to look at ------------------------------------------------------------------------------------------------------
def show_list(order: orders.ListOrder, checkout: Checkout, world: World = HERE) -> Exit:
    """The contests that there are."""
    files = order.files or sorted((checkout.root / acts.FOLDER).glob("*.yaml"))
    if not files:
        raise UsageError(f"there is no contest in {acts.FOLDER}/; name its file, or put it there (docs/contest.md)")
    found = [acts.opened(file) for file in files]
    for one in found:
        rules.check(one.rules, one.file, checkout)
    now = world.now()
    document = contest_view.contests_document(found, now)
    return tell(order, document, json=lambda: contest_view.contests_json(found, now))


def show(order: orders.ShowOrder, checkout: Checkout, world: World = HERE) -> Exit:
    """A contest's rules and teams, one entry's history, or the whole audit log."""
    found = contest_of(order.contest, checkout)
    rules.check(found.rules, found.file, checkout)
    if order.entry is not None or order.log:
        _check_insight(order, found, world)
    if order.entry is not None:
        document = contest_view.entry_document(found, order.entry)
    elif order.log:
        document = contest_view.log_document(found)
    else:
        document = contest_view.contest_document(found, world.now())
    return tell(order, document, json=lambda: contest_view.contest_json(found, world.now()))


def _check_insight(order: orders.ShowOrder, found: Contest, world: World) -> None:
    """Raises UsageError where results that are private or frozen now would be shown to somebody who is neither an
    organiser nor of the entry's team."""
    now, who = world.now(), actor(order.by, found, world)
    admission = found.at(now)
    own = admission.state.team_of(who)
    if order.entry is not None and own is not None and admission.state.entry(order.entry).team == own.name:
        return
    if found.rules.is_hidden(now) or standings.frozen_since(found.rules, admission.state, now) is not None:
        admission.check_organiser(who)


def show_standings(order: orders.StandingsOrder, checkout: Checkout, world: World = HERE) -> Exit:
    """Who stands where."""
    found, now = contest_of(order.contest, checkout), world.now()
    if order.problem is not None:
        found.rules.problem(order.problem)
    view = standings.full if _is_organiser(order, found, world) else standings.public
    shown = view(found.rules, found.log.records(), leaderboard.load(checkout.leaderboard), now)
    document = contest_view.standings_document(found, shown, order.problem)
    return tell(order, document, json=lambda: contest_view.standings_json(found, shown, order.problem))


def show_stats(order: orders.StatsOrder, checkout: Checkout, world: World = HERE) -> Exit:
    """Submissions, best results and failures over time."""
    found, now = contest_of(order.contest, checkout), world.now()
    view = statistics.full if _is_organiser(order, found, world) else statistics.public
    shown = view(found.rules, found.log.records(), now)
    if order.page is not None:
        board = leaderboard.load(checkout.leaderboard)
        text = contest_page.html(contest_page.data(found, board, now, is_full=order.full))
        options.write_out(order.page, text.encode(), option="--page")
    return tell(order, contest_stats.document_of(shown), json=lambda: encode(shown))


def _is_organiser(order: orders.StandingsOrder | orders.StatsOrder, found: Contest, world: World) -> bool:
    """Whether the full view was asked for, by somebody who may see it; UsageError for somebody else."""
    if order.full:
        found.at(world.now()).check_organiser(actor(order.by, found, world))
    return order.full


# ---- teams -----------------------------------------------------------------------------------------------------------
def register(order: orders.RegisterOrder, checkout: Checkout, world: World = HERE) -> Exit:
    """Register a team, or further members of one."""
    found = contest_of(order.contest, checkout)
    rules.check(found.rules, found.file, checkout)
    by = actor(order.by, found, world)
    found.at(world.now()).check_registrar(order.team, tuple(order.members), by)
    ids = acts.register(found, order.team, tuple(order.members), world.now(), by, world.new_secret)
    team = found.state().teams[order.team]
    print(f"team {team.name}: {', '.join(team.members)}")
    print("ids for popcorn-cli, shown this once (cli_id in ~/.popcorn.yaml):")
    for member, text in ids.items():
        print(f"  {member:<12}  {text}")
    return Exit.OK


def withdraw(order: orders.WithdrawOrder, checkout: Checkout, world: World = HERE) -> Exit:
    """Take an entry of one's own team back."""
    found = contest_of(order.contest, checkout)
    return _told(acts.withdraw(found, order.entry, world.now(), actor(order.member, found, world)))


# ---- organisers ------------------------------------------------------------------------------------------------------
def freeze(order: orders.ContestOrder, checkout: Checkout, world: World = HERE) -> Exit:
    """Keep the public standings as they are now."""
    found, now = contest_of(order.contest, checkout), world.now()
    acts.freeze(found, now, actor(order.by, found, world), frozen=True)
    print(f"{found.key}: frozen; the public sees the standings of {shown_time(now)}")
    return Exit.OK


def unfreeze(order: orders.ContestOrder, checkout: Checkout, world: World = HERE) -> Exit:
    """Let the public standings follow again."""
    found = contest_of(order.contest, checkout)
    acts.freeze(found, world.now(), actor(order.by, found, world), frozen=False)
    print(f"{found.key}: unfrozen; the public sees the standings as they are")
    return Exit.OK


def review(order: orders.ReviewOrder, checkout: Checkout, world: World = HERE) -> Exit:
    """Say that an organiser has read a reproduced entry's source: it is verified then."""
    found = contest_of(order.contest, checkout)
    return _told(acts.review(found, order.entry, world.now(), actor(order.by, found, world), order.note))


def award(order: orders.AwardOrder, checkout: Checkout, world: World = HERE) -> Exit:
    """Give a verified entry an award."""
    found, board = contest_of(order.contest, checkout), leaderboard.load(checkout.leaderboard)
    return _told(acts.award(found, order.entry, order.award, board, world.now(), actor(order.by, found, world)))


def disqualify(order: orders.DecideOrder, checkout: Checkout, world: World = HERE) -> Exit:
    """Take an entry out, for a reason."""
    found = contest_of(order.contest, checkout)
    return _told(acts.disqualify(found, order.entry, order.why, world.now(), actor(order.by, found, world)))


def reinstate(order: orders.DecideOrder, checkout: Checkout, world: World = HERE) -> Exit:
    """Take a disqualification back, for a reason."""
    found = contest_of(order.contest, checkout)
    return _told(acts.reinstate(found, order.entry, order.why, world.now(), actor(order.by, found, world)))


def _told(entry: ContestEntry) -> Exit:
    print(contest_view.entry_line(entry))
    return Exit.OK


def verify_top(order: orders.VerifyTopOrder, checkout: Checkout, world: World = HERE) -> Exit:
    """Run the leading entries of a problem again: do they reproduce what they claim.

    Those that are not reproduced yet, by evaluation.verify. Exits with the worst decision's code. An entry of which
    nothing can be said now keeps none of the others from it."""
    found = runnable_contest(order.contest, checkout)
    found.at(world.now()).check_organiser(actor(order.by, found, world))
    found.rules.problem(order.problem)
    check_launches(order.launches or found.rules.reproduce.launches)
    chosen = _leading(order, found, checkout, world)
    if not chosen:
        print(f"{order.problem}: every leading entry is reproduced; `contest review` is next")
    codes: list[Exit] = []
    for entry in chosen:
        try:
            codes.append(verify.EXITS[_verified(order, found, entry, checkout, world)])
        except HarnessError as error:
            if len(chosen) == 1:
                raise
            print(f"{_called(entry)}: not decided: {error}")
            codes.append(error.exit_code)
    return Exit.INVALID if Exit.INVALID in codes else max(codes, default=Exit.OK)


def _leading(order: orders.VerifyTopOrder, found: Contest, checkout: Checkout, world: World) -> list[ContestEntry]:
    """The entries to run again: the one that was named, or the first of the problem that are only ranked yet."""
    if order.entry is not None:
        entry = found.state().entry(order.entry)
        if entry.problem != order.problem:
            raise UsageError(f"entry {entry.number} is of {entry.problem}, not of {order.problem}")
        transition(entry.state, "reproduced", entry.number)
        return [entry]
    top = order.top or found.rules.reproduce.top
    board = leaderboard.load(checkout.leaderboard)
    shown = standings.full(found.rules, found.log.records(), board, world.now())
    leading = [
        one.entry for problem in shown.problems if problem.problem == order.problem for one in problem.teams[:top]
    ]
    if not leading:
        raise UsageError(
            f"no entry of {order.problem} has a place, so there is nothing to verify: `contest show` has all"
        )
    return [entry for entry in leading if entry.state == "ranked"]


def _verified(
    order: orders.VerifyTopOrder, found: Contest, entry: ContestEntry, checkout: Checkout, world: World
) -> verify.Word:
    count = order.launches or found.rules.reproduce.launches
    listed = found.rules.problem(entry.problem)
    problem = rules.problem_of(listed, found.file, folders=False, checkout=checkout)
    where = str(problem.folder) if problem.is_upstream else problem.name
    one = _claimed(entry, checkout)
    ready = verify.prepared(one, where, found.rules.setting.seconds, order.confined, checkout)
    said = _called(entry)
    done = verify.launches(ready, count, checkout, launch_lines(said, count, order.quiet))
    decided = verify.decision_of(one, done, count)

    def on_board(board: Board) -> Board:  # where the entry still stands there
        still = next((each for each in board.judged if each.run_id == one.run_id), None)
        return verify.applied(board, still, decided, done, ready.version) if still is not None else board

    try:
        if event := _event_of(entry, ready, decided, done):
            acts.settle(found, event, world.now(), actor(order.by, found, world))
        leaderboard.change(checkout.leaderboard, on_board)
    finally:  # what was measured is shown all the same, where the team has withdrawn the entry meanwhile, say
        console = new_console()
        console.print(Text(said, style="bold"))
        terminal.show(decision.document_of(one, decided, done), console, order.quiet)
    return decided.word


def _called(entry: ContestEntry) -> str:
    return f"entry {entry.number} of team {entry.team}"


def _claimed(entry: ContestEntry, checkout: Checkout) -> Judged:
    """What the entry claims: its evaluation, or that of the run that was held."""
    if entry.evaluation is not None:
        return entry.evaluation
    assert entry.hold is not None
    held = judgements.judged(reports.find(entry.hold.run_id, checkout.root))
    if held is None:
        raise UsageError(f"entry {entry.number}: its run {entry.hold.run_id} has no result to reproduce")
    return held


def _event_of(
    entry: ContestEntry, ready: Ready, decided: Decision, done: list[EvalReport]
) -> EvaluationHeld | Reproduced | None:
    """The decision as the contest's log has it; None where nothing was decided."""
    one = ready.one
    alone = Board(entries=(one,)) if isinstance(one, Entry) else Board(held=(one,))
    after = verify.applied(alone, one, decided, done, ready.version)
    if decided.word == "held":
        evidence, run_id = after.held[0].evidence, done[-1].run_id
        return EvaluationHeld(entry=entry.number, check=decided.check, evidence=evidence, run_id=run_id)
    if decided.word == "verified":
        (reached,) = after.entries
        assert reached.verified is not None
        evaluation = None if entry.evaluation is not None else acts.slim(reached)
        return Reproduced(entry=entry.number, verified=reached.verified, evaluation=evaluation)
    return None
