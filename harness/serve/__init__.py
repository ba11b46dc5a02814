"""The verb `serve`: a server on this machine that popcorn-cli can submit to, and the boards as a live page.

Knows what the server is made of and what it may be asked to do; the parts are guard (what every request must pass), api
(GPU MODE's routes), store (the queue in runs/serve/), worker (evaluations, as jobs of an engine),
results (theirs out of ours) and live (the page). FastAPI and uvicorn come with the extra `serve`.
"""

import importlib.util
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.board import judgements
from harness.contest import rules
from harness.core.checkout import Checkout
from harness.core.errors import HarnessError, UsageError
from harness.core.files import LockedError, locked
from harness.engine.registry import LOCAL
from harness.judging.checkers import CHECKERS
from harness.judging.scoring import SCORINGS
from harness.kinds import settings
from harness.kinds.kind import Setting
from harness.kinds.registry import find as find_problem
from harness.kinds.settings import Asked
from harness.machine import host
from harness.problems.problem import Problem, folded
from harness.problems.shape_file import problem_names
from harness.process import compile_cache
from harness.ranks.launch import START_S
from harness.serve.contests import Contests
from harness.serve.contests import opened as opened_contests
from harness.serve.guard import LOOPBACK_NAMES, ORGANISER_VARIABLE, TOKEN_VARIABLE, Guard, is_loopback
from harness.serve.queue_file import FILE
from harness.serve.store import Limits, Row, Store

if TYPE_CHECKING:
    import socket

    import uvicorn

    from harness.engine.base import Engine
    from harness.serve.service import Leaderboard, Service
    from harness.serve.worker import Command, Files

TOKEN_CHARS = 16  # at least
NEEDED = ("fastapi", "uvicorn", "python_multipart")
INSTALL = "`.venv/bin/python -m pip install -e '.[serve]'`"


@dataclass(frozen=True, kw_only=True)
class Options:
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


def run_server(options: Options, checkout: Checkout) -> None:
    """Answers until a signal ends it. Raises UsageError for options that cannot be followed."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f"`serve` needs {' and '.join(missing)}, which is not installed: {INSTALL}")
    if not 0 <= options.port <= 65535:
        raise UsageError(f"--port {options.port}: ports are 0 to 65535")
    token = read_token(options.token, os.environ)
    organiser_token = read_token(options.organiser_token, os.environ, "--organiser-token", ORGANISER_VARIABLE)
    if token is None and not is_loopback(options.host):
        raise UsageError(
            f"--host {options.host}: other machines could reach it, so requests must show a token: --token FILE, or "
            f"{TOKEN_VARIABLE}"
        )
    folder = checkout.runs / "serve"
    with only_server(folder):
        offers = offered(options, checkout)
        service = make_service(options, folder, eval_command(offers), checkout, offers=offers)
        service.contests.settle(service.store)
        answer(service, options.host, options.port, token, organiser_token)


def answer(service: "Service", host: str, port: int, token: str | None, organiser_token: str | None = None) -> None:
    """Answers requests until a signal ends it; prints its address as soon as it listens."""
    try:
        server, socket = make_server(service, host, port, token, organiser_token)
    except UsageError:
        service.store.close()
        raise
    url = f"http://{f'[{host}]' if ':' in host else host}:{socket.getsockname()[1]}"
    print(", ".join(one.name for one in service.leaderboards))
    for contest in service.contests.all:
        print(f"contest {url}/contests/{contest.key}")
    print(f"open    {url}/\nsubmit  POPCORN_API_URL={url} popcorn-cli submit FILE", flush=True)
    try:
        server.run(sockets=[socket])
    except KeyboardInterrupt:  # uvicorn raises the signal again after it has ended in order
        pass
    finally:
        service.store.close()


def make_server(
    service: "Service", host: str, port: int, token: str | None, organiser_token: str | None = None
) -> "tuple[uvicorn.Server, socket.socket]":
    """A server that is ready to run, and the socket that it listens on. Raises UsageError where it cannot listen."""
    import uvicorn

    from harness.serve.api import make_app

    names = LOOPBACK_NAMES | {host.lower()} if is_loopback(host) else None
    config = uvicorn.Config(
        Guard(make_app(service), token, names, organiser_token),
        host=host,
        port=port,
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=5,
        limit_concurrency=512,
    )
    try:
        bound = config.bind_socket()
        bound.listen(config.backlog)  # whoever reads the address may ask at once, and waits for the rest
    except SystemExit:
        raise UsageError(f"--port {port}: cannot be bound on {host}; choose another") from None
    server = uvicorn.Server(config)
    service.stopping = lambda: bool(server.should_exit)
    return server, bound


def make_service(
    options: Options,
    folder: Path,
    command: "Command",
    checkout: Checkout,
    engine: "Engine | None" = None,
    offers: "Sequence[Offer] | None" = None,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> "Service":
    """The parts of a server over the queue in `folder`; without an engine, it is the one that the options name. Without
    offers, they are what the options say. Contests' rules are held against `clock`, in UTC."""
    from harness.serve.live import Live
    from harness.serve.service import Service
    from harness.serve.worker import Worker, engine_of

    offers = offered(options, checkout) if offers is None else offers
    leaderboards = _leaderboards(offers, options, checkout)
    by_problem = {one.problem: one for one in leaderboards}

    def deadline_s(row: Row) -> float:
        return by_problem[row.problem].deadline_s if row.problem in by_problem else START_S

    def version_of(problem: str) -> str | None:
        offer = next((one for one in offers if one.problem.name == problem), None)
        if offer is None:
            return None
        setting = settings.setting(replace(offer.asked, problem=offer.argument), checkout, offer.problem)
        return judgements.problem_version(setting.problem, setting.suite)

    store = Store(folder / FILE)
    contests = Contests(opened_contests(options.contests), checkout, clock, version_of)
    worker = Worker(
        store,
        engine or engine_of(options.engine, folder, checkout.root),
        folder,
        command,
        deadline_s,
        lambda: contests.settle(store),
    )
    return Service(
        store=store,
        worker=worker,
        live=Live(store, worker, checkout, contests, {one.problem: one.score_unit for one in leaderboards}),
        contests=contests,
        leaderboards=leaderboards,
        find=_finder(leaderboards),
        login=host.login(),
        limits=Limits(),
    )


def eval_command(offers: "Sequence[Offer]") -> "Command":
    """The command that evaluates a submission: `eval`, with the server's own options as far as they fit its problem."""
    by_problem = {offer.problem.name: offer for offer in offers}

    def command(row: Row, files: "Files") -> Sequence[str]:
        offer = by_problem.get(row.problem)  # None: queued by a server that had other problems; `eval` says so
        words = [sys.executable, "-m", "harness", "eval", offer.argument if offer else row.problem, str(files.source)]
        written = [f"--json={files.report}", f"--events={files.events}"]
        return [
            *words,
            f"--mode={row.mode}",
            f"--author={row.team or row.user}",
            *written,
            *(_settings(offer) if offer else []),
        ]

    return command


def _settings(offer: Offer) -> list[str]:
    asked = offer.asked
    given = {"suite": asked.suite, "ranks": asked.ranks, "device": asked.device, "seconds": asked.seconds}
    words = [f"--{name}={value}" for name, value in given.items() if value is not None]
    return words + ([] if asked.confined else ["--unconfined"])


def read_token(
    file: Path | None,
    environ: "os._Environ[str] | dict[str, str]",
    option: str = "--token",
    variable: str = TOKEN_VARIABLE,
) -> str | None:
    """The token, from the file or the environment; None where neither has one. Raises UsageError for a bad one."""
    where = f"{option} {file}" if file else variable
    try:
        text = file.read_text(encoding="utf-8") if file else environ.get(variable, "")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{where}: cannot be read: {getattr(error, 'strerror', error)}") from None
    token = text.strip()
    if not token and not file:
        return None
    if len(token) < TOKEN_CHARS or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError(
            f"{where}: expected a token of {TOKEN_CHARS} or more ASCII characters without spaces; "
            "`python -c 'import secrets; print(secrets.token_urlsafe())'` makes one"
        )
    return token


@contextmanager
def only_server(folder: Path) -> Iterator[None]:
    """Holds the queue. Raises UsageError where another server does."""
    with ExitStack() as stack:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # its submitters' files are in it
            stack.enter_context(locked(folder / "server.lock", wait_s=0))
        except LockedError:
            raise UsageError(f"another server works on the queue in {folder}; end it first") from None
        except OSError as error:
            raise HarnessError(
                f"{folder} cannot be written: {error.strerror}; free disk space or check its permissions"
            ) from None
        yield


def offered(options: Options, checkout: Checkout) -> "tuple[Offer, ...]":
    """The checkout's problems, then those of the folders and competitions. A problem that cannot be read is left out
    with a line on standard error. Raises UsageError where two have one name, BadFileError for a bad competition file,
    and the first problem's error where there is no other."""
    offers: dict[str, Offer] = {}
    refused: list[HarnessError] = []

    def add(
        argument: str, name: str | None = None, closes: datetime | None = None, asked: Asked = options.asked
    ) -> None:
        try:
            problem = find_problem(argument, checkout)
            problem.check_runnable()
        except HarnessError as error:
            refused.append(error)
            return
        offer = Offer(
            name=name or problem.leaderboard,
            argument=argument,
            problem=problem,
            asked=_fitting(asked, problem),
            closes=closes,
        )
        other = offers.get(folded(offer.name))
        if other is not None and other.problem.folder != problem.folder:
            raise UsageError(
                f"{argument} and {other.argument} are both called {offer.name}; leave one out, or give them names of "
                "their own in a competition file (--competition)"
            )
        offers[folded(offer.name)] = offer

    for known in problem_names(checkout):
        add(known)
    for folder in options.folders:
        add(str(folder.resolve()))
    for file in (*options.competitions, *options.contests):
        competition = rules.read(file)
        given = competition.setting
        own = {name: value for name, value in vars(given).items() if value is not None}
        for listed in competition.problems:
            try:
                problem = rules.problem_of(listed, file, folders=False, checkout=checkout)
            except HarnessError as error:
                refused.append(error)
                continue
            argument = str(problem.folder) if problem.is_upstream else problem.name
            if file in options.contests:  # under its rules only, not as the checkout's problem too
                for name in [name for name, offer in offers.items() if offer.problem.folder == problem.folder]:
                    del offers[name]
            add(argument, listed.name, competition.closes(listed), replace(options.asked, **own))
    if not offers:
        raise refused[0] if refused else UsageError("there is no problem to serve; `problems` lists them")
    for why in refused:
        print(f"not served: {why}", file=sys.stderr)
    by_folder = Counter(offer.problem.name for offer in offers.values())
    if twice := [name for name, count in by_folder.items() if count > 1]:
        raise UsageError(f"{twice[0]} is offered under two names; leave out --problem, or the competition")
    return tuple(offers.values())


def _fitting(asked: Asked, problem: Problem) -> Asked:
    """The options without those that a problem folder has no choice of: it has one suite, and often one rank."""
    if not problem.is_upstream:
        return asked
    return replace(asked, suite=None, ranks=asked.ranks if problem.multi_gpu else None)


def _leaderboards(offers: "Sequence[Offer]", options: Options, checkout: Checkout) -> "tuple[Leaderboard, ...]":
    """The problems that can be evaluated with these options. Raises the first problem's UsageError where none can."""
    from harness.serve.service import Leaderboard

    found, refused = [], []
    for number, offer in enumerate(offers, start=1):
        try:
            setting = settings.setting(replace(offer.asked, problem=offer.argument), checkout, offer.problem)
        except HarnessError as error:
            refused.append(error)
            continue
        gpu = "CPU" if setting.device == "cpu" else f"{setting.device.upper()}x{setting.world_size}"
        suite = setting.suite
        scoring = SCORINGS[setting.problem.ranking_by]
        limits_s = suite.test_timeout_s + max(suite.benchmark_timeout_s, suite.ranked_timeout_s)
        limits_s *= CHECKERS[setting.problem.checker].longest
        found.append(
            Leaderboard(
                id=number,
                name=offer.name,
                problem=setting.problem.name,
                description=setting.problem.description,
                gpus=tuple(dict.fromkeys((gpu, *options.gpus))),
                task=_task(setting),
                deadline_s=START_S + compile_cache.COMPILE_S + limits_s,
                closes=offer.closes.isoformat() if offer.closes else None,
                score_unit=scoring.unit,
                more_is_better=scoring.better == "more",
            )
        )
    if not found:
        raise refused[0]
    for why in refused:
        print(f"not served: {why}", file=sys.stderr)
    return tuple(found)


def _task(setting: Setting) -> dict[str, Any]:
    """The problem under the keys of task.yml, with the cases that will run."""
    suite = setting.suite
    files = {name: data.decode(errors="replace") for name, data in setting.problem.staged().items()}

    def cases(of: Sequence[Any]) -> list[dict[str, Any]]:
        return [{"world_size": case.world_size, **case.params, "seed": case.seed} for case in of]

    return {
        "lang": "py",
        "files": {"submission.py": "@SUBMISSION@", **files},
        "config": {"main": "eval.py"},
        "libraries": [],
        "tests": cases(suite.tests),
        "benchmarks": cases(suite.benchmarks),
        "test_timeout": suite.test_timeout_s,
        "benchmark_timeout": suite.benchmark_timeout_s,
        "ranked_timeout": suite.ranked_timeout_s,
        "ranking_by": setting.problem.ranking_by,
        "seed": None,
        "multi_gpu": setting.problem.multi_gpu,
    }


def _finder(leaderboards: "Sequence[Leaderboard]") -> "Callable[[str], Leaderboard | None]":
    """By either name; case and `-` for `_` do not matter."""

    known = {folded(name): one for one in leaderboards for name in (one.problem, one.name)}
    return lambda name: known.get(folded(name))
