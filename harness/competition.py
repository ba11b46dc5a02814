"""The verb `competition`: the problems of a KernelBot competition file, listed or evaluated as a whole.

Knows such a file (`name`, `deadline`, `description`, `problems` with `directory`, `name`, `deadline`, `gpus`) and of an
evaluation only what run.evaluated returns. A problem whose name is one of this checkout's is evaluated as that, under
its strict gate; any other is the folder that the file names, and with --folders all are.

Deadlines are read as KernelBot reads them: a date alone is its first second; they are taken to be UTC, which the file
does not say. A deadline refuses nothing here. An evaluation after it is marked late.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from harness import board, machine, options, render, run, verdict
from harness.board import Board, Entry, Place
from harness.decode import DecodeError, did_you_mean
from harness.options import Setting
from harness.problem import ROOT, Problem, read_yaml
from harness.records import EvalReport, Exit, HarnessError, Submission, UsageError
from harness.report_json import error_json, to_json
from harness.stats import geomean
from harness.submission import directives, read_submission
from harness.taskfolder import find
from harness.text import clean, clean_line, plain_table, seconds_text

FORMATS = ("%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S")


@dataclass(frozen=True, kw_only=True)
class Listed:
    """A problem of a competition. `directory` is relative to the competition's file, `name` the leaderboard's."""

    directory: str
    name: str
    deadline: str = ""
    gpus: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        closing(self.deadline)


@dataclass(frozen=True, kw_only=True)
class Competition:
    """A competition's file. A problem may close before the whole does, which ends with `deadline`; an empty text is no
    deadline."""

    name: str
    problems: tuple[Listed, ...]
    deadline: str = ""
    description: str = ""

    def __post_init__(self) -> None:
        closing(self.deadline)
        names = [listed.name for listed in self.problems]
        if not names:
            raise DecodeError(".problems", "the list is empty; name at least one problem")
        if repeated := [name for index, name in enumerate(names) if name in names[:index]]:
            raise DecodeError(".problems", f"'{repeated[0]}' is there twice; every problem needs a name of its own")

    def closes(self, listed: Listed) -> datetime | None:
        """When the problem closes: at its own deadline, or with the whole."""
        return closing(listed.deadline) or closing(self.deadline)


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """One problem's part. `error` is why there is no report."""

    listed: Listed
    closes: datetime | None
    submission: str
    report: EvalReport | None = None
    place: Place | None = None
    error: HarnessError | None = None

    @property
    def late(self) -> bool:
        """Whether it began after the deadline."""
        return self.report is not None and is_late(self.report.started_at, self.closes)

    @property
    def exit_code(self) -> Exit:
        """What `eval` of this problem alone would exit with."""
        if self.error is not None:
            return self.error.exit_code
        assert self.report is not None
        return verdict.exit_code(self.report)


def read(path: Path) -> Competition:
    """The competition file; BadFileError with the place where it does not fit."""
    return read_yaml(Competition, path, path.resolve().parent, prepare=_with_texts)


def closing(deadline: str) -> datetime | None:
    """The moment that a deadline's text means, in UTC; None for an empty one. DecodeError for any other text."""
    if not deadline.strip():
        return None
    for form in FORMATS:
        try:
            return datetime.strptime(deadline.strip(), form).replace(tzinfo=UTC)
        except ValueError:
            continue
    raise DecodeError(".deadline", f"expected YYYY-MM-DD or YYYY-MM-DD HH:MM, found {deadline!r}")


def is_late(moment: str, closes: datetime | None) -> bool:
    """Whether an ISO 8601 moment lies behind the deadline."""
    return closes is not None and datetime.fromisoformat(moment) > closes


def problem_of(listed: Listed, file: Path, folders: bool) -> Problem:
    """What the problem is here: the checkout's own of that name, or the folder. Raises UsageError or BadFileError where
    it is neither, or is broken."""
    folder = file.resolve().parent / listed.directory
    if not folders:
        try:
            return find(listed.name)
        except UsageError:  # no problem of this checkout has that name
            if not folder.is_dir():
                raise
    return find(str(folder))


# ---- the command line ------------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `competition`."""
    parser.add_argument("competition", type=Path, help="a KernelBot competition file, such as amd_distributed.yaml")
    parser.add_argument(
        "files",
        nargs="*",
        type=Path,
        metavar="SUBMISSION",
        help="each for the problem that its `#!POPCORN leaderboard` line names; default: each problem's own",
    )
    parser.add_argument("--list", action="store_true", help="only show problems, deadlines and who leads here")
    parser.add_argument(
        "--only", metavar="NAME", action="append", default=[], help="only this problem; may be repeated"
    )
    parser.add_argument(
        "--folders",
        action="store_true",
        help="evaluate the file's folders, also where this checkout has a problem of that name",
    )
    options.add_setting(parser, cpu_suite="cpu")
    options.add_seconds(parser)
    options.add_recording(parser)


def run_verb(asked: argparse.Namespace) -> Exit:
    """Lists the problems, or evaluates them one after the other: one that fails does not keep the others from being
    evaluated. Exits with the first failure's code."""
    options.check_json(asked)
    competition = read(asked.competition)
    chosen = _chosen(competition, asked.only)
    files = _assigned([read_submission(file, ROOT) for file in asked.files], chosen)
    console = Console(stderr=asked.json == options.STDOUT)
    if asked.list:
        show_list(competition, chosen, board.load(run.LEADERBOARD), console)
        if asked.json:
            options.write_json(asked.json, competition_json(competition, []))
        return Exit.OK
    done = []
    for listed in chosen:
        console.rule(clean_line(listed.name), align="left")
        one = _evaluated(asked, competition, listed, files.get(listed.name), console)
        if one.error is not None:
            console.print(f"error: {clean(str(one.error))}", markup=False, highlight=False)
        console.print()
        done.append(one)
    show(competition, done, console)
    if asked.json:
        options.write_json(asked.json, competition_json(competition, done))
    return next((one.exit_code for one in done if one.exit_code != Exit.OK), Exit.OK)


def _chosen(competition: Competition, only: Sequence[str]) -> list[Listed]:
    names = [listed.name for listed in competition.problems]
    if unknown := [name for name in only if name not in names]:
        raise UsageError(
            f"--only {unknown[0]}: no such problem in it{did_you_mean(unknown[0], names)} (known: {', '.join(names)})"
        )
    return [listed for listed in competition.problems if not only or listed.name in only]


def _assigned(submissions: Sequence[Submission], chosen: Sequence[Listed]) -> dict[str, Submission]:
    """The submissions by the name of the problem that each is for."""
    names = [listed.name for listed in chosen]
    assigned: dict[str, Submission] = {}
    for submission in submissions:
        name = directives(submission.source, submission.name).leaderboard
        if name is None:
            raise UsageError(
                f"{submission.name}: for which problem? Begin it with a line `#!POPCORN leaderboard {names[0]}`"
            )
        if name not in names:
            raise UsageError(
                f"{submission.name}: its leaderboard '{name}' is not evaluated here{did_you_mean(name, names)} "
                f"(these are: {', '.join(names)})"
            )
        if name in assigned:
            raise UsageError(f"{submission.name} and {assigned[name].name} are both for {name}; give one of them")
        assigned[name] = submission
    return assigned


def _evaluated(
    asked: argparse.Namespace, competition: Competition, listed: Listed, submission: Submission | None, console: Console
) -> Evaluated:
    closes, name = competition.closes(listed), submission.name if submission else ""
    try:
        problem = problem_of(listed, asked.competition, asked.folders)
        setting: Setting = options.setting(asked, problem)
        submission = submission or read_submission(problem.default_submission(), ROOT)
        name = submission.name
        author = asked.author or machine.login()
        ran = run.evaluated(setting, submission, "leaderboard", author, record=not asked.no_record)
    except HarnessError as error:
        return Evaluated(listed=listed, closes=closes, submission=name, error=error)
    render.show(ran.report, ran.standing, ran.place, console)
    return Evaluated(
        listed=listed, closes=closes, submission=name, report=ran.report, place=ran.place, error=ran.unrecorded
    )


# ---- how it is shown -------------------------------------------------------------------------------------------------


def show_list(
    competition: Competition,
    chosen: Sequence[Listed],
    found: Board,
    console: Console,
    now: datetime | None = None,
) -> None:
    """The problems with their deadlines, and which entry of the local leaderboard has the greatest speedup."""
    now = now or datetime.now(UTC)
    _headline(competition, console)
    table = plain_table("problem", "gpus", "closes (UTC)", "state", "best here", "when")
    for listed in chosen:
        closes = competition.closes(listed)
        state = "" if closes is None else "closed" if now > closes else _in(closes, now)
        entry = _best(found, listed)
        best = f"{entry.geomean_speedup:.2f}x {entry.author}, {entry.suite}" if entry else "none"
        late = "late" if entry and is_late(entry.date, closes) else ""
        row = [listed.name, " ".join(listed.gpus), f"{closes:%Y-%m-%d %H:%M}" if closes else "never", state, best, late]
        table.add_row(*map(clean_line, row))
    console.print(table)


def show(competition: Competition, done: Sequence[Evaluated], console: Console) -> None:
    """The summary over the problems; the last lines say how many passed and how much faster they are."""
    _headline(competition, console)
    table = plain_table("problem", "submission", "verdict", ">score", ">speedup", "place", "when")
    speedups = []
    for one in done:
        figures = verdict.figures(one.report) if one.report else None
        status = verdict.status(one.report) if one.report else "error"
        score, speedup = "", ""
        if figures is not None:
            score, speedup = seconds_text(figures.score_s), f"{figures.geomean_speedup.value:.2f}x"
            speedups.append(figures.geomean_speedup.value)
        place = f"{one.place.place} of {one.place.of}" if one.place else ""
        row = [one.listed.name, one.submission, status, score, speedup, place, "late" if one.late else ""]
        table.add_row(*map(clean_line, row))
    console.print(table)
    console.print()
    passed = sum(one.exit_code == Exit.OK for one in done)
    late = sum(one.late for one in done)
    faster = (
        f"{geomean(speedups):.2f}x the references, geometric mean over {len(speedups)} problems" if speedups else ""
    )
    console.print(f"verdict  {passed} of {len(done)} problems passed" + (f", {late} late" if late else ""))
    console.print(f"speedup  {faster or 'none: nothing was timed'}")


def competition_json(competition: Competition, done: Sequence[Evaluated]) -> dict[str, Any]:
    """The competition and, where it was evaluated, each problem's report as `eval --json` has it."""
    by_name = {one.listed.name: one for one in done}
    problems = []
    for listed in competition.problems:
        closes, one = competition.closes(listed), by_name.get(listed.name)
        report = None
        if one is not None:
            error = {"error": str(one.error)} if one.error else {}  # of a report: why it is not recorded
            report = to_json(one.report, one.place) | error if one.report else error_json(str(one.error), one.exit_code)
        problems.append(
            {
                "name": listed.name,
                "directory": listed.directory,
                "gpus": list(listed.gpus),
                "deadline": closes.isoformat() if closes else None,
                "late": one.late if one else None,
                "report": report,
            }
        )
    return {"schema": 1, "name": competition.name, "description": competition.description, "problems": problems}


def _headline(competition: Competition, console: Console) -> None:
    closes = closing(competition.deadline)
    ends = f", ends {closes:%Y-%m-%d %H:%M} UTC" if closes else ""
    console.print(clean_line(competition.name + ends), markup=False, highlight=False)
    if competition.description:
        console.print(clean(competition.description.strip()), markup=False, highlight=False)
    console.print()


def _best(found: Board, listed: Listed) -> Entry | None:
    """The entry of that leaderboard name with the greatest speedup over its reference: scores of different suites and
    machines do not compare."""
    try:
        name = find(listed.name).name
    except HarnessError:
        return None
    entries = [entry for entry in found.entries if entry.problem == name and entry.geomean_speedup is not None]
    return max(entries, key=lambda entry: entry.geomean_speedup or 0.0, default=None)


def _in(closes: datetime, now: datetime) -> str:
    left = closes - now
    return f"in {left.days} days" if left.days > 1 else f"in {left.total_seconds() / 3600:.0f} hours"


def _with_texts(value: object) -> object:
    """A deadline without quotes is a date to YAML; here it is the text that it was."""
    if isinstance(value, datetime):
        return value.strftime(FORMATS[-1])
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, dict):
        return {key: _with_texts(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_texts(item) for item in value]
    return value
