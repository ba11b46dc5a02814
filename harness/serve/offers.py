"""What the server offers: the checkout's problems and those of folders, competitions and contests, as leaderboards, and
the command that evaluates a submission to each. Runs nothing."""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from harness.contest import rules
from harness.core.checkout import Checkout
from harness.core.errors import HarnessError, UsageError
from harness.core.records import Mode, Submission
from harness.engine.registry import LOCAL
from harness.gpumode.task_folder import task_of, unfit
from harness.judging.scoring import SCORINGS
from harness.kinds import settings
from harness.kinds.kind import Order, Setting
from harness.kinds.registry import find as find_problem
from harness.kinds.registry import kind_of
from harness.kinds.settings import Asked
from harness.problems.problem import Problem, folded
from harness.problems.shape_file import problem_names
from harness.serve.store import Row
from harness.serve.worker import Command, Files

NSIGHT = "ncu"  # the tool of `eval --tool` whose profiles current clients ask for
NO_SUBMISSION = Submission(path="", name="", source="", sha256="")  # whether a problem can be evaluated here at all


def _said(why: str) -> None:
    print(f"not served: {why}", file=sys.stderr)


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """How the server was started. `token` is the file with what requests must show; `asked` holds for every submission,
    but for its problem and file; `gpus` are names that clients may ask for beside this machine's own. `folders` are
    problem folders of KernelBot, and `competitions` its competition files, that are offered beside the checkout's
    problems. `contests` are files of contests, whose problems are offered under their rules; `organiser_token` is the
    file with the token of their organisers."""

    asked: Asked
    host: str = "127.0.0.1"
    port: int = 8000
    token: Path | None = None
    gpus: tuple[str, ...] = ()
    folders: tuple[Path, ...] = ()
    competitions: tuple[Path, ...] = ()
    contests: tuple[Path, ...] = ()
    organiser_token: Path | None = None
    engine: str = LOCAL


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A problem that is to be served under the leaderboard's name. `argument` is what `eval` knows it by: its name, or
    its folder. `asked` are the server's options, as far as they fit the problem."""

    name: str
    argument: str
    problem: Problem
    asked: Asked
    closes: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Leaderboard:
    """A problem as clients see it. `task` is its task.yml, `deadline_s` what one evaluation of it may take. After
    `closes`, ISO 8601, entries are late; None if there is no such moment. `score_unit` and `more_is_better` are of its
    scores, which clients take for seconds whatever they are. `lang` is that of a submission; `unprofiled` says why no
    Nsight Compute profile can be taken, empty where it can."""

    id: int
    name: str
    problem: str
    description: str
    gpus: tuple[str, ...]
    task: dict[str, Any]
    deadline_s: float
    closes: str | None = None
    score_unit: str = "s"
    more_is_better: bool = False
    lang: Literal["py", "cu"] = "py"
    unprofiled: str = ""


def offered(
    options: ServeOptions,
    checkout: Checkout,
    refuse: Callable[[str], None] = _said,
    created: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Offer, ...]:
    """The checkout's problems, then those of the folders and competitions, then the `created` ones, folders by name. A
    problem that cannot be read is left out, and `refuse` is told why; without it standard error is. So is a created one
    that is offered otherwise. Raises UsageError where two have one name, BadFileError for a bad competition file, and
    the first problem's error where there is no other."""
    offers: dict[str, Offer] = {}
    refused: list[HarnessError] = []

    def read(find: Callable[[], Problem]) -> Problem | None:
        try:
            return find()
        except HarnessError as error:
            refused.append(error)
            return None

    def add(
        problem: Problem, argument: str, name: str, closes: datetime | None = None, asked: Asked = options.asked
    ) -> None:
        other = offers.get(folded(name))
        if other is not None and other.problem.folder != problem.folder:
            raise UsageError(
                f"{argument} and {other.argument} are both called {name}; leave one out, or give them names of "
                "their own in a competition file (--competition)"
            )
        fitting = _fitting(asked, problem)
        offers[folded(name)] = Offer(name=name, argument=argument, problem=problem, asked=fitting, closes=closes)

    for argument in (*problem_names(checkout), *(str(folder.resolve()) for folder in options.folders)):
        if (problem := read(partial(find_problem, argument, checkout))) is not None:
            add(problem, argument, problem.leaderboard)
    for file in (*options.competitions, *options.contests):
        competition = rules.read(file)
        own = {name: value for name, value in vars(competition.setting).items() if value is not None}
        for listed in competition.problems:
            problem = read(partial(rules.problem_of, listed, file, folders=False, checkout=checkout))
            if problem is None:
                continue
            if file in options.contests:  # under its rules only, not as the checkout's problem too
                for name in [name for name, offer in offers.items() if offer.problem.folder == problem.folder]:
                    del offers[name]
            argument = str(problem.folder) if problem.is_upstream else problem.name
            add(problem, argument, listed.name, competition.closes(listed), replace(options.asked, **own))
    for name, place in created.items():
        if (problem := read(partial(free_problem, name, place, checkout, offers.values()))) is not None:
            add(problem, place, name)
    if not offers:
        raise refused[0] if refused else UsageError("there is no problem to serve; `problems` lists them")
    for why in refused:
        refuse(str(why))
    by_folder = Counter(offer.problem.name for offer in offers.values())
    if twice := [name for name, count in by_folder.items() if count > 1]:
        raise UsageError(f"{twice[0]} is offered under two names; leave out --problem, or the competition")
    return tuple(offers.values())


def free_problem(name: str, place: str, checkout: Checkout, offers: Iterable[Offer]) -> Problem:
    """The problem at that place. Raises UsageError if it, or another one under that name, is offered already."""
    problem = find_problem(place, checkout)
    for offer in offers:
        if offer.problem.name == problem.name or folded(offer.name) == folded(name):
            raise UsageError(f"{problem.folder} cannot be offered as {name}: {offer.argument} is, as {offer.name}")
    return problem


def _fitting(asked: Asked, problem: Problem) -> Asked:
    """The options without those that a problem folder has no choice of: it has one suite, and often one rank."""
    if not problem.is_upstream:
        return asked
    return replace(asked, suite=None, ranks=asked.ranks if problem.multi_gpu else None)


def leaderboards(
    offers: Sequence[Offer], options: ServeOptions, checkout: Checkout, refuse: Callable[[str], None] = _said
) -> tuple[Leaderboard, ...]:
    """The problems that can be evaluated with these options; `refuse` hears of others. UsageError if none."""
    found, refused = [], []
    for number, offer in enumerate(offers, start=1):
        try:
            setting = settings.setting(replace(offer.asked, problem=offer.argument), checkout, offer.problem)
            if setting.problem.only_theirs:  # by an evaluator that may need a compiler
                kind_of(setting).plan(_order(setting, "test"))
        except HarnessError as error:
            refused.append(error)
            continue
        gpu = "CPU" if setting.device == "cpu" else f"{setting.device.upper()}x{setting.world_size}"
        scoring = SCORINGS[setting.problem.ranking_by]
        found.append(
            Leaderboard(
                id=number,
                name=offer.name,
                problem=setting.problem.name,
                description=setting.problem.description,
                gpus=tuple(dict.fromkeys((gpu, *options.gpus))),
                task={} if unfit(setting.problem) else task_of(setting.problem, setting.suite),
                deadline_s=settings.longest_s(setting),
                closes=offer.closes.isoformat() if offer.closes else None,
                score_unit=scoring.unit,
                more_is_better=scoring.better == "more",
                lang=setting.problem.lang,
                unprofiled=_unprofiled(setting),
            )
        )
    if not found:
        raise refused[0]
    for why in refused:
        refuse(str(why))
    return tuple(found)


def _order(setting: Setting, mode: Mode) -> Order:
    return Order(setting=setting, submission=NO_SUBMISSION, mode=mode, author="")


def _unprofiled(setting: Setting) -> str:
    """Why Nsight Compute cannot profile the problem here; empty where it can."""
    profiled = replace(setting, tool=NSIGHT)
    try:
        kind_of(profiled).plan(_order(profiled, "profile"))
    except HarnessError as error:
        return str(error).partition(";")[0].removeprefix(f"--tool {NSIGHT}: ")
    return ""


def eval_command(offers: Sequence[Offer]) -> Command:
    """The command that evaluates a submission: `eval`, with the server's own options as far as they fit its problem."""
    by_problem = {offer.problem.name: offer for offer in offers}

    def command(row: Row, files: Files) -> Sequence[str]:
        offer = by_problem.get(row.problem)  # None: queued by a server that had other problems; `eval` says so
        words = [sys.executable, "-m", "harness", "eval", offer.argument if offer else row.problem, str(files.source)]
        given = {
            "mode": row.mode,
            "author": row.team or row.user,
            "tool": row.tool,
            "benchmark": row.benchmark,
            "launch-count": row.launch_count,
            "json": files.report,
            "events": files.events,
        }
        if offer:
            given |= {name: getattr(offer.asked, name) for name in ("suite", "ranks", "device", "seconds")}
        words += [f"--{name}={value}" for name, value in given.items() if value is not None]
        return words + (["--unconfined"] if offer and not offer.asked.confined else [])

    return command
