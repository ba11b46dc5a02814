"""The server: its parts put together over one queue, bound to an address, and run until a signal ends it."""

import importlib.util
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from harness.core import accounts
from harness.core.checkout import Checkout
from harness.core.errors import HarnessError, UsageError, os_error_as
from harness.core.files import LockedError, locked
from harness.core.unseen import keep_unseen
from harness.engine.base import Engine
from harness.serve.catalogue import Catalogue
from harness.serve.contests import Contests
from harness.serve.contests import opened as opened_contests
from harness.serve.guard import LOOPBACK_NAMES, ORGANISER_VARIABLE, TOKEN_VARIABLE, Guard, is_loopback, read_token
from harness.serve.live import Live
from harness.serve.offers import ServeOptions
from harness.serve.queue_file import FILE
from harness.serve.service import Service
from harness.serve.store import QueueLimits, Store
from harness.serve.worker import Command, QueueWorker, engine_of

if TYPE_CHECKING:
    import socket

    import uvicorn

NEEDED = ("fastapi", "uvicorn", "python_multipart")
INSTALL = "`.venv/bin/python -m pip install -e '.[serve]'`"


def run_server(options: ServeOptions, checkout: Checkout) -> None:
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
        service = make_service(options, folder, None, checkout)
        service.contests.settle(service.store)
        answer(service, options.host, options.port, token, organiser_token)


def answer(service: Service, host: str, port: int, token: str | None, organiser_token: str | None = None) -> None:
    """Answers requests until a signal ends it; prints its address as soon as it listens."""
    try:
        server, socket = make_server(service, host, port, token, organiser_token)
    except UsageError:
        service.store.close()
        raise
    url = f"http://{f'[{host}]' if ':' in host else host}:{socket.getsockname()[1]}"
    print(", ".join(one.name for one in service.catalogue.leaderboards))
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
    service: Service, host: str, port: int, token: str | None, organiser_token: str | None = None
) -> "tuple[uvicorn.Server, socket.socket]":
    """A server that is ready to run, and the socket that it listens on. Raises UsageError where it cannot listen."""
    import uvicorn

    from harness.serve.api import make_app
    from harness.serve.connections import BACKLOG, Connection

    names = LOOPBACK_NAMES | {host.lower()} if is_loopback(host) else None
    config = uvicorn.Config(
        Guard(make_app(service), token, names, organiser_token),
        host=host,
        port=port,
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=5,
        http=Connection,
        ws="none",
        backlog=BACKLOG,
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
    options: ServeOptions,
    folder: Path,
    command: Command | None,
    checkout: Checkout,
    engine: Engine | None = None,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Service:
    """The parts of a server over the queue in `folder`. Without a command, submissions are evaluated by `eval`; without
    an engine, it is the one that the options name. Contests' rules are held against `clock`, in UTC."""
    store = Store(folder / FILE)
    catalogue = Catalogue(options, checkout, store.boards)
    contests = Contests(opened_contests(options.contests), checkout, clock, catalogue.version_of)
    for contest in contests.all:
        keep_unseen(contest.log.path, checkout)
    worker = QueueWorker(
        store,
        engine or engine_of(options.engine, folder, checkout.root),
        folder,
        command or catalogue.command,
        catalogue.deadline_s,
        lambda: contests.settle(store),
    )
    return Service(
        store=store,
        worker=worker,
        live=Live(store, worker, checkout, contests, catalogue.unit),
        contests=contests,
        catalogue=catalogue,
        login=accounts.login(),
        limits=QueueLimits(),
    )


@contextmanager
def only_server(folder: Path) -> Iterator[None]:
    """Holds the queue. Raises UsageError where another server does."""
    with ExitStack() as stack:
        try:
            with os_error_as(HarnessError, f"{folder} cannot be written", "free disk space or check its permissions"):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # its submitters' files are in it
                stack.enter_context(locked(folder / "server.lock", wait_s=0))
        except LockedError:
            raise UsageError(f"another server works on the queue in {folder}; end it first") from None
        yield
