"""The verb `rejudge`: what are entries worth by today's problem and checks?

Judges a set of entries again after a problem, its shapes, a check or a peak has changed, shows the difference, and
changes the board only with --apply, all of it in one step. The old judgement goes into the entry's history with the
reason. Without --apply nothing is written anywhere.

An entry that was judged under today's problem version is judged from its report: score, speedup and bound are computed
anew from the samples of then, by today's ranking rule, costs and hardware table. Every other one is run again from its
stored source, once (--rerun: all are). What is not right any more is held, with that as its evidence.
"""

import argparse
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Console
from rich.text import Text

from harness import archive, board, hardware, options, reports, run, verdict, verify
from harness.board import Board, Entry, HeldEntry, Judged
from harness.board_view import short_file
from harness.decode import encode
from harness.options import Setting
from harness.problem import ROOT, Problem
from harness.records import BadFileError, Case, EvalReport, Exit, HarnessError, Timed, UsageError
from harness.reports import Report, ReportCase
from harness.stats import Interval, geomean, geomean_speedup, median, score_s
from harness.taskfolder import find
from harness.text import clean_line, plain_table

JSON_SCHEMA = 1  # of --json; 1: first


@dataclass(frozen=True, kw_only=True)
class Rejudged:
    """`old` was judged again as `new`, for the reason `why`, in those `runs` where it was run again."""

    old: Judged
    new: Judged
    why: str
    runs: tuple[EvalReport, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Left:
    """`old` could not be judged again, and why."""

    old: Judged
    why: str


Row = Rejudged | Left


# ---- which ----------------------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `rejudge`."""
    parser.add_argument("--problem", metavar="P", help="only this problem's entries; a problem folder's path")
    parser.add_argument(
        "--entry", action="append", metavar="E", help="only this one, as `verify` names them; may be repeated"
    )
    parser.add_argument(
        "--stale",
        action="store_true",
        help="only those judged under another version of their problem, or an unknown one",
    )
    parser.add_argument("--rerun", action="store_true", help="run each again, even where its report would do")
    parser.add_argument("--apply", action="store_true", help="change the leaderboard (default: show what would change)")
    options.add_seconds(parser)
    parser.add_argument("--json", metavar="FILE", help=options.JSON_HELP)


def selected(found: Board, asked: argparse.Namespace) -> list[Judged]:
    """The entries that are meant, in the board's order; UsageError where there is none."""
    name = find(asked.problem).name if asked.problem else None
    if asked.entry:
        return list(
            {id(one): one for text in asked.entry for one in [verify.chosen(found, text, asked.problem)]}.values()
        )
    everything: list[Judged] = [*found.entries, *found.held]
    chosen = [one for one in everything if name in (None, one.problem)]
    if not chosen:
        raise UsageError(f"no entry{f' of {name}' if name else ''} is on the leaderboard: there is nothing to judge")
    return chosen


# ---- again -----------------------------------------------------------------------------------------------------------


def rejudged(one: Judged, setting: Setting, asked: argparse.Namespace) -> Row:
    """The entry judged anew, from its report where that suffices, else run again."""
    version = board.problem_version(setting.problem, setting.suite)
    stale = one.problem_version != version
    if isinstance(one, Entry) and not stale and not asked.rerun:
        with contextlib.suppress(UsageError, BadFileError):  # gone, or not readable any more
            new = from_report(one, reports.find(one.run_id, ROOT), setting.problem)
            return Rejudged(old=one, new=new, why="judged again from its report")
    if isinstance(one, HeldEntry) and one.check == "verify" and not stale:
        return Left(old=one, why="held by `verify`, which alone can release it")
    try:
        verify.check_machine(one)
        submission = archive.load_source(one.sha256, one.file, ROOT, one.run_id)
    except (UsageError, archive.SourceError) as error:
        return Left(old=one, why=str(error))
    Console(stderr=True).print(Text(clean_line(f"{one.file}, {one.run_id}")), soft_wrap=True)
    found = [verify.launch(one, setting, submission)]
    if verify.held_by_chance(found[0]):  # twice is no chance
        found.append(verify.launch(one, setting, submission))
    why = f"rejudged: {_change(one, version)}"
    return Rejudged(old=one, new=_judged(one, found, version), why=why, runs=tuple(found))


def from_report(one: Entry, report: Report, problem: Problem) -> Judged:
    """The entry as its report makes it by today's rules. Raises UsageError where the report is not the entry's."""
    if (report.run_id, report.submission.sha256) != (one.run_id, one.sha256) or not report.timed:
        raise UsageError(f"the report of {one.run_id} is not of this entry; run it again")
    timeds = [_timed(case, report.block_of(case)) for case in report.timed]
    fractions = []
    for case in report.timed:
        bound = _bound(case, report, problem)
        if bound is None:
            continue
        time_us = median(case.roofline_samples_us)
        if time_us < bound[0]:
            evidence = f"{time_us:.2f} us are less than the bound of {bound[0]:.2f} us ({bound[1]}), by its report"
            return board.held(one, "roofline", evidence, (one.run_id,))
        fractions.append(bound[0] / time_us)
    speedup = geomean_speedup(timeds)
    interval = speedup.interval
    made = replace(
        one,
        score_s=score_s(timeds, problem.ranking_by),
        geomean_speedup=speedup.value,
        geomean_speedup_ci=(interval.low, interval.high) if isinstance(interval, Interval) else None,
        roofline_fraction=geomean(fractions) if len(fractions) == len(timeds) else None,
    )
    if board.round_off(made) == one:
        return one
    return replace(made, verified=None, history=(), holds=())  # what was is the board's to keep


def _judged(one: Judged, found: Sequence[EvalReport], version: str) -> Judged:
    """What the last of these evaluations is worth. What failed keeps what it claimed, and is held."""
    judged = board.judged(found[-1], version)
    if isinstance(judged, Entry):
        return judged
    failed = verdict.first_failure(found[-1])
    assert failed is not None, "a leaderboard run that is no entry has failed"
    decision = verify.not_passed(failed, len(found), len(found))
    check = "rejudge" if decision.check == "verify" else decision.check
    return board.held(one, check, decision.why, tuple(report.run_id for report in found), version)


def _change(one: Judged, version: str) -> str:
    if one.problem_version is None:
        return f"its problem version was not recorded, now {version}"
    if one.problem_version == version:
        return "run again"
    return f"problem version {one.problem_version} became {version}"


def _timed(case: ReportCase, block: int) -> Timed:
    wall = case.clocks["wall"]
    return Timed(samples_us=wall.samples_us, ref_samples_us=wall.ref_samples_us, block=block)


def _bound(case: ReportCase, report: Report, problem: Problem) -> tuple[float, str] | None:
    """The case's bound by today's cost and hardware table; a machine that the table does not know keeps the peaks that
    were measured on it. None where the problem has no cost, or the report no peaks."""
    model = report.environment.machine_class.partition("x ")[2] if report.environment else ""
    peaks = (hardware.match(model) if report.device != "cpu" else None) or report.peaks
    if peaks is None or problem.cost_of is None:
        return None
    cost = problem.cost(Case(kind=case.kind, params=case.params, seed=0, world_size=case.world_size))
    return hardware.bound(cost, peaks)


# ---- the verb --------------------------------------------------------------------------------------------------------


def run_verb(asked: argparse.Namespace) -> Exit:
    """`rejudge`: judges again, shows the difference, applies it if asked to."""
    options.check_json(asked)
    options.check_seconds("--seconds", asked.seconds)
    path = run.LEADERBOARD
    found = board.load(path)
    chosen = selected(found, asked)
    if asked.apply:
        board.check_writable(path)
    rows: list[Row] = []
    for one in chosen:
        try:
            setting = verify.setting_for(one, asked.problem, asked.seconds)
            version = board.problem_version(setting.problem, setting.suite)
        except UsageError as error:  # no such problem, suite or split any more
            if asked.entry:
                raise
            rows.append(Left(old=one, why=str(error)))
            continue
        if asked.stale and one.problem_version == version:
            continue
        try:
            row = rejudged(one, setting, asked)
        except HarnessError as error:  # not on this machine, or not now: what the others are worth is not lost
            row = Left(old=one, why=str(error))
        if asked.apply and isinstance(row, Rejudged):
            for report in row.runs:
                archive.store(report, ROOT)
        rows.append(row)
    changes = [row for row in rows if isinstance(row, Rejudged) and row.new != row.old]
    try:
        if asked.apply and changes:
            board.change(path, lambda now: applied(now, changes))
    finally:  # what was found is shown all the same
        out, asked.json = asked.json, None  # it gets the whole result now, which an error must not replace
        if out != options.STDOUT:
            show(rows, changes, asked.apply, Console())
        if out:
            options.write_json(out, to_json(rows, asked.apply))
    return Exit.OK


def applied(found: Board, changes: Sequence[Rejudged]) -> Board:
    """The board with all changes. Raises HarnessError, and so changes nothing, where one of the entries was changed
    meanwhile."""
    for row in changes:
        found = board.replaced(found, row.old, row.new, row.why)
    return found


def to_json(rows: Sequence[Row], apply: bool) -> dict[str, Any]:
    """The object that --json writes: old and new judgement of each entry, or why it was left."""
    return {
        "schema": JSON_SCHEMA,
        "applied": apply,
        "entries": [
            {
                "old": {"status": row.old.status} | encode(row.old),
                "new": {"status": row.new.status} | encode(row.new) if isinstance(row, Rejudged) else None,
                "why": row.why,
            }
            for row in rows
        ],
    }


def show(rows: Sequence[Row], changes: Sequence[Rejudged], apply: bool, console: Console) -> None:
    """Prints a row an entry with its score and status then and now, why, and what became of it."""
    if not rows:
        console.print("Every entry was judged under today's problem: nothing is stale.")
        return
    table = plain_table("problem", "entry", ">score", "status", ">now", "status")
    for row in rows:
        old = row.old
        name = f"{short_file(old)} by {old.author}"
        now = ("-", "left") if isinstance(row, Left) else (_score(row.new), _status(row.new, row.old))
        cells = (old.problem, name, _score(old), old.status, *now)
        table.add_row(*(Text(clean_line(cell)) for cell in cells))
    console.print(table)
    console.print()
    for row in rows:
        said = row.why
        if isinstance(row, Rejudged) and isinstance(row.new, HeldEntry):
            said = f"{row.new.check}: {row.new.evidence}"
        console.print(Text(clean_line(f"{row.old.run_id}: {said}")), soft_wrap=True)
    count = f"{len(changes)} of {len(rows)} entries"
    if not changes:
        console.print("\nNothing changes.")
    elif apply:
        console.print(f"\nApplied: {count} changed in leaderboard.yaml; the old judgements are in their history.")
    else:
        console.print(f"\n{count} would change; --apply judges them again and changes leaderboard.yaml.")


def _score(one: Judged) -> str:
    return "-" if one.score_s is None else f"{one.score_s * 1e3:.4g} ms"


def _status(new: Judged, old: Judged) -> str:
    return "unchanged" if new == old else new.status
