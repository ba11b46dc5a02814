"""How `serve` stands a crowd: clients that submit all at once and then ask until everything is done.

    python3 bench/serve_load.py                                  50 clients, 500 submissions
    python3 bench/serve_load.py --clients 10 --submissions 100
    python3 bench/serve_load.py --slow 1000                      beside 1,000 slow clients

The server is a process of its own; its evaluations are a shell script's of a few milliseconds (tests/serving.py), so
that what is measured is the server: its queue, a process an evaluation, its answers. Prints requests per second and how
long answers took (--data keeps them). Ends with 1 where a submission was lost, was evaluated twice or has no result.

Slow clients (--slow) each hold one connection: they say nothing, or half of their headers or of a body, add a byte to
these every second, or ask for much and take nothing. A slow client whose connection is ended opens another one. They
speak to loopback alone, and end when the crowd is done.
"""

import argparse
import asyncio
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import httpx
from figures import ROOT, Figures, add_data_argument

from harness.machine.host import environment

SOURCE = "def custom_kernel(data): ...\n"
WARM_S = 15.0  # that slow clients have before the crowd comes: longer than headers may take
PAUSE_S = 0.25  # of a client, between two questions
PATH = "/submission/amd-gemm-rs/CPU/leaderboard"
GREEDY, GREEDY_S = "takes nothing", 40.0
LINES = b"%s HTTP/1.1\r\nHost: localhost\r\n"
FORM = b"X-Popcorn-Cli-Id: eve:1\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: 900000\r\n\r\n"
BODY = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.py"\r\n\r\n'
MANNERS = (  # of slow clients: a name, how they begin, and what they add every second
    ("says nothing", b"", b""),
    ("half of its headers", LINES % b"GET /", b""),
    ("headers by the byte", LINES % b"GET /" + b"X-Slow: ", b"a"),
    ("half of a body", LINES % (b"POST " + PATH.encode()) + FORM + BODY, b""),
    ("a body by the byte", LINES % (b"POST " + PATH.encode()) + FORM + BODY, b"a"),
    (GREEDY, (LINES % b"GET /openapi.json" + b"\r\n") * 200, b""),
)


@dataclass
class Load:
    """What the clients saw: how long each kind of request took until it was answered, how often one was refused or
    broken off and sent again, and which submission became what."""

    took_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    refused: Counter[str] = field(default_factory=Counter)
    states: dict[int, str] = field(default_factory=dict)


async def client(url: str, number: int, count: int, load: Load) -> None:
    headers = {"X-Popcorn-Cli-Id": f"client{number}:{number}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=120, trust_env=False) as http:

        async def timed(kind: str, method: str, path: str, **more: object) -> httpx.Response:
            began_s = time.perf_counter()
            while True:
                try:
                    answer = await http.request(method, path, **more)  # type: ignore[arg-type]
                    answer.raise_for_status()
                except httpx.HTTPError:
                    load.refused[kind] += 1
                    await asyncio.sleep(PAUSE_S)
                else:
                    load.took_s[kind].append(time.perf_counter() - began_s)
                    return answer

        waiting = []
        for index in range(count):
            file = {"file": (f"{index}.py", SOURCE.encode())}
            answer = await timed("submit", "POST", PATH, files=file)
            waiting.append(int(answer.json()["details"]["id"]))
        while waiting:
            await asyncio.sleep(PAUSE_S)
            found = (await timed("poll", "GET", f"/user/submissions/{waiting[0]}")).json()
            if found["done"]:
                load.states[waiting.pop(0)] = found["job"]["status"]


async def slow_client(port: int, number: int, ends: Counter[str]) -> None:
    """Keeps the server waiting in the manner that its number says, again and again."""
    manner, begins, more = MANNERS[number % len(MANNERS)]
    while True:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        dripping = asyncio.create_task(drip(writer, more))
        try:
            writer.write(begins)
            line = await reader.readline()
            if manner == GREEDY:
                await asyncio.sleep(GREEDY_S)
            ends[f"{manner}: {line.decode().split(' ')[1] if line else 'no answer'}"] += 1
        except OSError:
            ends[f"{manner}: no answer"] += 1
        finally:
            dripping.cancel()
            writer.close()
        await asyncio.sleep(1)


async def drip(writer: asyncio.StreamWriter, more: bytes) -> None:
    while more:
        await asyncio.sleep(1)
        writer.write(more)


def slow_clients(port: int, count: int, told: Connection) -> None:
    """A process of its own, until `told` says that it is enough; says then how connections ended."""
    ends: Counter[str] = Counter()

    async def all_of_them() -> None:
        tasks = [asyncio.create_task(slow_client(port, number, ends)) for number in range(count)]
        await asyncio.get_running_loop().run_in_executor(None, told.recv)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(all_of_them())
    told.send(ends)


async def crowd(url: str, clients: int, submissions: int) -> tuple[Load, float]:
    load, began_s = Load(), time.perf_counter()
    shares = [submissions // clients + (number < submissions % clients) for number in range(clients)]
    await asyncio.gather(*(client(url, number, share, load) for number, share in enumerate(shares)))
    return load, time.perf_counter() - began_s


def percentile(values: list[float], percent: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * percent / 100))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--submissions", type=int, default=500)
    parser.add_argument("--slow", type=int, default=0, help="slow clients beside them")
    add_data_argument(parser)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="serve-load-") as name:
        folder = Path(name)
        command = [sys.executable, str(ROOT / "tests" / "serving.py"), name]
        variables = {**os.environ, "PYTHONPATH": str(ROOT)}
        server = subprocess.Popen(command, cwd=ROOT, env=variables, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            _, _, opened = (server.stdout.readline() for _ in range(3))
            url = opened.split()[1]
            ours, theirs = multiprocessing.Pipe()
            port = int(url.rstrip("/").rpartition(":")[2])
            slow = multiprocessing.Process(target=slow_clients, args=(port, asked.slow, theirs), daemon=True)
            slow.start()
            time.sleep(WARM_S if asked.slow else 0)
            load, seconds = asyncio.run(crowd(url, asked.clients, asked.submissions))
            ours.send("enough")
            ends: Counter[str] = ours.recv()
            slow.join()
        finally:
            server.terminate()
            server.wait(30)
        ran = Counter(int(line) for line in (folder / "ran").read_text().split())
    lost = asked.submissions - sum(state == "succeeded" for state in load.states.values())
    twice = sum(count > 1 for count in ran.values())
    never = asked.submissions - len(ran)
    requests = sum(map(len, load.took_s.values()))
    figures = Figures("Load on the service", environment("", 1).machine_class)
    figures.table(
        ("request", "answered", "refused", "p50 ms", "p99 ms", "max ms"),
        [
            (
                kind,
                len(took_s),
                load.refused[kind],
                *(1e3 * value for value in (percentile(took_s, 50), percentile(took_s, 99), max(took_s))),
            )
            for kind, took_s in load.took_s.items()
        ],
        after=f"{asked.clients} clients, {asked.submissions} submissions, evaluations of some ms: all done after "
        f"{seconds:.1f} s, {requests / seconds:.0f} requests and {asked.submissions / seconds:.1f} evaluations a "
        f"second; {lost} without a result, {never} never evaluated, {twice} evaluated twice.",
    )
    if asked.slow:
        figures.table(
            ("a connection that", "answer", "ended so"),
            [(*how.split(": "), count) for how, count in sorted(ends.items())],
            after=f"{asked.slow} slow clients on one address. Connections that were open at the end do not count.",
        )
    figures.write(asked.data)
    return 1 if lost or never or twice else 0


if __name__ == "__main__":
    sys.exit(main())
