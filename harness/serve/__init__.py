"""The verb `serve`: a server on this machine that popcorn-cli can submit to, and the boards as a live page.

Knows what the server is made of and what it may be asked to do; the parts are guard (what every request must pass), api
(GPU MODE's routes), store (the queue in runs/serve/), worker (evaluations, one at a time, in processes of their own),
results (theirs out of ours) and live (the page). FastAPI and uvicorn come with the extra `serve`.
"""

import argparse
import fcntl
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core.checkout import ROOT
from harness.core.records import Exit, HarnessError, UsageError
from harness.kinds import settings
from harness.kinds.op import COMPILE_S
from harness.machine import host
from harness.problems.shape_file import problem_names
from harness.serve.guard import LOOPBACK_NAMES, TOKEN_VARIABLE, Guard, is_loopback
from harness.serve.store import Limits, Row, Store

if TYPE_CHECKING:
    import socket

    import uvicorn

    from harness.serve.api import Leaderboard, Service
    from harness.serve.worker import Command

FOLDER = ROOT / "runs" / "serve"
TOKEN_CHARS = 16  # at least
START_S = 120.0  # of an evaluation's time beside its phases and compiling: to start ranks, to end
NEEDED = ("fastapi", "uvicorn", "python_multipart")
INSTALL = "`.venv/bin/python -m pip install -e '.[serve]'`"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb `serve`."""
    parser.add_argument("--host", default="127.0.0.1", help="address to answer on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8000, help="default: 8000; 0 takes a free one")
    parser.add_argument(
        "--token",
        type=Path,
        metavar="FILE",
        help=f"the file with what requests must show; or set {TOKEN_VARIABLE}. Another address than this machine's "
        "own needs one",
    )
    parser.add_argument("--suite", metavar="S", help="as for `eval`, for every submission, as the next three")
    parser.add_argument("--ranks", type=int, metavar="N")
    parser.add_argument("--device", choices=settings.DEVICES)
    parser.add_argument("--seconds", type=float)
    parser.add_argument(
        "--gpu",
        action="append",
        default=[],
        metavar="NAME",
        help="a GPU's name that clients may ask for beside this machine's own (MI300x8); it is run here all the same",
    )
    parser.set_defaults(cpu_suite="cpu", timeout=None)


def run(asked: argparse.Namespace) -> Exit:
    """`serve`: answers until it is told to end."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f"`serve` needs {' and '.join(missing)}, which is not installed: {INSTALL}")
    if not 0 <= asked.port <= 65535:
        raise UsageError(f"--port {asked.port}: ports are 0 to 65535")
    token = read_token(asked.token, os.environ)
    if token is None and not is_loopback(asked.host):
        raise UsageError(
            f"--host {asked.host}: other machines could reach it, so requests must show a token: --token FILE, or "
            f"{TOKEN_VARIABLE}"
        )
    with only_server(FOLDER):
        answer(make_service(asked, FOLDER, eval_command(asked)), asked.host, asked.port, token)
    return Exit.OK


def answer(service: "Service", host: str, port: int, token: str | None) -> None:
    """Answers requests until a signal ends it; prints where, once it does."""
    try:
        server, socket = make_server(service, host, port, token)
    except UsageError:
        service.store.close()
        raise
    url = f"http://{f'[{host}]' if ':' in host else host}:{socket.getsockname()[1]}"
    print(", ".join(one.name for one in service.leaderboards))
    print(f"open    {url}/\nsubmit  POPCORN_API_URL={url} popcorn-cli submit FILE", flush=True)
    try:
        server.run(sockets=[socket])
    except KeyboardInterrupt:  # uvicorn raises the signal again after it has ended in order
        pass
    finally:
        service.store.close()


def make_server(service: "Service", host: str, port: int, token: str | None) -> "tuple[uvicorn.Server, socket.socket]":
    """A server that is to be run, and the socket that it listens on. Raises UsageError where it cannot listen."""
    import uvicorn

    from harness.serve.api import make_app

    names = LOOPBACK_NAMES | {host.lower()} if is_loopback(host) else None
    config = uvicorn.Config(
        Guard(make_app(service), token, names),
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


def make_service(asked: argparse.Namespace, folder: Path, command: "Command") -> "Service":
    """The parts of a server over the queue in `folder`."""
    from harness.serve.api import Service
    from harness.serve.live import Live
    from harness.serve.worker import Worker

    leaderboards = _leaderboards(asked)
    by_problem = {one.problem: one for one in leaderboards}

    def deadline_s(row: Row) -> float:
        return by_problem[row.problem].deadline_s if row.problem in by_problem else START_S

    store = Store(folder / "queue.sqlite3")
    worker = Worker(store, folder, command, deadline_s)
    return Service(
        store=store,
        worker=worker,
        live=Live(store, worker, ROOT),
        leaderboards=leaderboards,
        find=_finder(leaderboards),
        login=host.login(),
        limits=Limits(),
    )


def eval_command(asked: argparse.Namespace) -> "Command":
    """How a submission is evaluated: by `eval`, with what the server was started with."""
    settings = [
        f"--{name}={value}"
        for name in ("suite", "ranks", "device", "seconds")
        if (value := getattr(asked, name)) is not None
    ]

    def command(row: Row, source: Path, report: Path) -> Sequence[str]:
        words = [sys.executable, "-m", "harness", "eval", row.problem, str(source)]
        return [*words, f"--mode={row.mode}", f"--author={row.user}", f"--json={report}", *settings]

    return command


def read_token(file: Path | None, environ: "os._Environ[str] | dict[str, str]") -> str | None:
    """The token, of the file or the environment; None where there is none. Raises UsageError for one that is none."""
    where = f"--token {file}" if file else TOKEN_VARIABLE
    try:
        text = file.read_text(encoding="utf-8") if file else environ.get(TOKEN_VARIABLE, "")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{where}: cannot be read: {getattr(error, 'strerror', error)}") from None
    token = text.strip()
    if not token and not file:
        return None
    if len(token) < TOKEN_CHARS or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError(
            f"{where}: expected a word of {TOKEN_CHARS} or more ASCII characters; "
            "`python -c 'import secrets; print(secrets.token_urlsafe())'` makes one"
        )
    return token


@contextmanager
def only_server(folder: Path) -> Iterator[None]:
    """Holds the queue. Raises UsageError where another server does."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # what is in it is its submitters'
        fd = os.open(folder / "server.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise HarnessError(f"{folder} cannot be written: {error.strerror}; make room or check rights there") from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise UsageError(f"another server works on the queue in {folder}; end it first") from None
    finally:
        os.close(fd)


def _leaderboards(asked: argparse.Namespace) -> "tuple[Leaderboard, ...]":
    """Every problem that can be evaluated as asked. Raises the first problem's UsageError where none can."""
    from harness.serve.api import Leaderboard

    found, refused = [], []
    for number, name in enumerate(problem_names(), start=1):
        try:
            setting = settings.setting(argparse.Namespace(**vars(asked) | {"problem": name}))
        except HarnessError as error:
            refused.append(error)
            continue
        gpu = "CPU" if setting.device == "cpu" else f"{setting.device.upper()}x{setting.world_size}"
        suite = setting.suite
        limits_s = suite.test_timeout_s + max(suite.benchmark_timeout_s, suite.ranked_timeout_s)
        found.append(
            Leaderboard(
                id=number,
                name=setting.problem.leaderboard,
                problem=setting.problem.name,
                description=setting.problem.description,
                gpus=tuple(dict.fromkeys((gpu, *asked.gpu))),
                task=_task(setting),
                deadline_s=START_S + COMPILE_S + limits_s,
            )
        )
    if not found:
        raise refused[0] if refused else UsageError("there is no problem to serve; `problems` lists them")
    for why in refused:
        print(f"left out: {why}", file=sys.stderr)
    return tuple(found)


def _task(setting: settings.Setting) -> dict[str, Any]:
    """The problem under the keys of task.yml, with the cases that will run."""
    suite = setting.suite
    files = {name: data.decode() for name, data in setting.problem.staged().items()}

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

    def folded(name: str) -> str:
        return name.lower().replace("-", "_")

    known = {folded(name): one for one in leaderboards for name in (one.problem, one.name)}
    return lambda name: known.get(folded(name))
