"""A server over a queue of its own, whose evaluations are a shell script's: what they do, the submission's text says.

As a program (`serving.py FOLDER`) it is a server in a process of its own, to be killed: it prints its pid. `ran` in
the folder has a line for each evaluation that was begun, `ended` one for each that came to its end.
"""

import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import httpx
from factories import TIMED_OUT, TIMES, WRONG_OUTCOME, failed_test, report, results
from waiting import until

from harness.board import report_json
from harness.core.checkout import Checkout
from harness.core.records import Passed
from harness.engine.base import Engine
from harness.kinds.settings import Asked
from harness.serve.offers import ServeOptions
from harness.serve.server import answer, make_server, make_service, only_server
from harness.serve.service import Service
from harness.serve.store import QueueLimits, Row
from harness.serve.worker import Command, Files

OPTIONS = ServeOptions(asked=Asked(problem="", suite="quick", device="cpu"), gpus=("MI300x8",))
GEMM, GPU = "amd-gemm-rs", "CPU"
SOURCE = "def custom_kernel(data): ...\n"
MINE = {"X-Popcorn-Cli-Id": "ada:a secret"}
BOBS = {"X-Popcorn-Cli-Id": "bob:another"}

# $1 the submission's number, $2 its file, $3 where the result goes, $4 the folder, $5 the mode, $6 where events go
SCRIPT = r"""
echo "$1" >> "$4/ran"
echo '{"type": "phase_began", "at_s": 0.1, "name": "test"}' >> "$6"
echo 'no event' >> "$6"
echo '{"type": "case_began", "at_s": 0.2, "label": "m 64  n 2880", "index": 0, "count": 3}' >> "$6"
echo "printed by the evaluation"
result=$5
if grep -q '# sleeps at first' "$2" && [ "$(grep -c "^$1\$" "$4/ran")" -gt 1 ]; then :
elif grep -q '# sleeps' "$2"; then exec sleep 60; fi
if grep -q '# waits' "$2"; then while [ ! -e "$4/go" ]; do sleep 0.05; done; fi
if grep -q '# a moment' "$2"; then sleep 0.3; fi
if grep -q '# seconds' "$2"; then sleep 4; fi
if grep -q '# stubborn' "$2"; then trap '' TERM; sleep 60; sleep 60; fi
if grep -q '# crashes' "$2"; then echo "out of luck" >&2; exit 7; fi
if grep -q '# wrong' "$2"; then result=wrong; fi
if grep -q '# hangs' "$2"; then result=hangs; fi
cp "$4/$result.json" "$3.part" && mv "$3.part" "$3"
echo "$1" >> "$4/ended"
"""


def prepare(folder: Path) -> None:
    """What the script needs there."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "evaluate.sh").write_text(SCRIPT)
    tests = report(results([Passed()] * 3, []), mode="test")
    timed = report(results([], TIMES), mode="benchmark")
    made = {"leaderboard": report(), "test": tests, "benchmark": timed, "profile": tests}
    for name, one in (made | {"wrong": failed_test(WRONG_OUTCOME), "hangs": failed_test(TIMED_OUT)}).items():
        (folder / f"{name}.json").write_text(json.dumps(report_json.to_json(one)))


def script(folder: Path) -> Command:
    """The script as the evaluation of every submission."""

    def command(row: Row, files: Files) -> Sequence[str]:
        words = [row.id, files.source, files.report, folder, row.mode, files.events]
        return ["/bin/sh", str(folder / "evaluate.sh"), *map(str, words)]

    return command


def service(
    folder: Path,
    limits: QueueLimits = QueueLimits(),  # noqa: B008
    deadline_s: float = 30.0,
    engine: Engine | None = None,
    options: ServeOptions = OPTIONS,
) -> Service:
    """A server's parts over the queue in `folder`, evaluating by the script, or by what `engine` plays."""
    prepare(folder)
    made = make_service(options, folder, script(folder), Checkout.here(), engine)
    made.limits = limits
    made.worker._deadline_s = lambda row: deadline_s
    return made


@dataclass
class Served:
    """A running server."""

    url: str
    folder: Path
    service: Service

    def client(self, headers: dict[str, str] | None = None) -> httpx.Client:
        return httpx.Client(base_url=self.url, headers=headers, timeout=60, trust_env=False)

    def begun(self) -> list[int]:
        return numbers(self.folder / "ran")


@contextlib.contextmanager
def served(folder: Path, token: str | None = None, organisers: str | None = None, **settings: Any) -> Iterator[Served]:
    """A server in a thread of this process, on a port of its own."""
    made = service(folder, **settings)
    server, socket = make_server(made, "127.0.0.1", 0, token, organisers)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [socket]}, daemon=True)
    thread.start()
    try:
        until(lambda: server.started)
        yield Served(url=f"http://127.0.0.1:{socket.getsockname()[1]}", folder=folder, service=made)
    finally:
        server.should_exit = True
        thread.join(60)
        socket.close()
        made.store.close()
        assert not thread.is_alive()


def submit(client: httpx.Client, source: str = SOURCE, mode: str = "leaderboard", name: str = "mine.py") -> int:
    """Queues a submission; its number."""
    answer = client.post(f"/submission/{GEMM}/{GPU}/{mode}", files={"file": (name, source.encode())})
    assert answer.status_code == 202, answer.text
    return int(answer.json()["details"]["id"])


def outcome(client: httpx.Client, number: int, seconds: float = 60) -> dict[str, Any]:
    """What became of it."""
    found: dict[str, Any] = {}

    def done() -> bool:
        found.update(client.get(f"/user/submissions/{number}").json())
        return bool(found["done"])

    until(done, seconds)
    return found


def numbers(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def interrupt(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, interrupt)  # as the command line does
    folder = Path(sys.argv[1])
    print(os.getpid())
    with only_server(folder):
        answer(service(folder), "127.0.0.1", 0, None)
