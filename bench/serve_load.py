"""How `serve` stands a crowd: clients that submit all at once and then ask until everything is done.

    python3 bench/serve_load.py                                  50 clients, 500 submissions
    python3 bench/serve_load.py --clients 10 --submissions 100

The server is a process of its own; its evaluations are a shell script's of a few milliseconds (tests/serving.py), so
that what is measured is the server: its queue, a process an evaluation, its answers. Prints requests per second and how
long answers took (--data keeps them). Ends with 1 where a submission was lost, was evaluated twice or has no result.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from figures import ROOT, Figures, add_data_argument

from harness.machine.host import environment

SOURCE = "def custom_kernel(data): ...\n"
PAUSE_S = 0.25  # of a client, between two questions
PATH = "/submission/amd-gemm-rs/CPU/leaderboard"


@dataclass
class Load:
    """What the clients saw: how long each kind of request took, and which submission became what."""

    took_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    states: dict[int, str] = field(default_factory=dict)


async def client(url: str, number: int, count: int, load: Load) -> None:
    headers = {"X-Popcorn-Cli-Id": f"client{number}:{number}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=120, trust_env=False) as http:

        async def timed(kind: str, method: str, path: str, **more: object) -> httpx.Response:
            began_s = time.perf_counter()
            answer = await http.request(method, path, **more)  # type: ignore[arg-type]
            load.took_s[kind].append(time.perf_counter() - began_s)
            answer.raise_for_status()
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
    add_data_argument(parser)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="serve-load-") as name:
        folder = Path(name)
        command = [sys.executable, str(ROOT / "tests" / "serving.py"), name]
        variables = {**os.environ, "PYTHONPATH": str(ROOT)}
        server = subprocess.Popen(command, cwd=ROOT, env=variables, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            _, opened, _ = (server.stdout.readline() for _ in range(3))
            load, seconds = asyncio.run(crowd(opened.split()[1], asked.clients, asked.submissions))
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
        ("request", "requests", "p50 ms", "p99 ms", "max ms"),
        [
            (
                kind,
                len(took_s),
                *(1e3 * value for value in (percentile(took_s, 50), percentile(took_s, 99), max(took_s))),
            )
            for kind, took_s in load.took_s.items()
        ],
        after=f"{asked.clients} clients, {asked.submissions} submissions, evaluations of some ms: all done after "
        f"{seconds:.1f} s, {requests / seconds:.0f} requests and {asked.submissions / seconds:.1f} evaluations a "
        f"second; {lost} without a result, {never} never evaluated, {twice} evaluated twice.",
    )
    figures.write(asked.data)
    return 1 if lost or never or twice else 0


if __name__ == "__main__":
    sys.exit(main())
