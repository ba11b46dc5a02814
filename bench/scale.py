"""How the queue of `serve` stands a contest on a cluster (docs/scale.md).

    python3 bench/scale.py simulate                           10,000 submissions over 64 nodes, in played time
    python3 bench/scale.py simulate --nodes 8 --submissions 500
    python3 bench/scale.py serve --engine slurm               500 submissions of 20 teams over HTTP, as Slurm's jobs
    python3 bench/scale.py serve --engine local               the same on this machine without a cluster
    python3 bench/scale.py serve --engine slurm --real        each evaluates a2a's reference on CPU ranks

`simulate` runs the server's queue and worker over an engine that plays jobs: their lengths are drawn, and the clock
jumps from one event to the next. What a decision costs is real time. `serve` plays a cluster on this machine, as
`make test-slurm` does, and sends the submissions of members of a contest; without --real an evaluation is a shell
script of a few milliseconds. Both end with 1 where a submission was lost or evaluated twice.
"""

import argparse
import os
import random
import sys
import tempfile
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import mean, median

import httpx
from copied import copied
from figures import ROOT, Figures, add_data_argument

sys.path.insert(0, str(ROOT / "tests"))

import contests
import serving
import slurm_cluster

from harness.board import reports
from harness.core.checkout import Checkout
from harness.core.errors import Exit
from harness.engine.base import RESULT, Engine, Exited, Job, JobDone, Lost, Running, State, Ticket
from harness.engine.registry import ENGINES, LOCAL
from harness.engine.slurm import SlurmEngine, SlurmSettings
from harness.kinds.settings import Asked
from harness.machine.host import environment
from harness.serve.offers import ServeOptions, eval_command, offered
from harness.serve.server import make_server, make_service
from harness.serve.store import INTERRUPTED, NewSubmission, QueueFullError, QueueLimits, Row, Store
from harness.serve.users import User
from harness.serve.worker import QueueWorker, engine_of

START = datetime(2027, 1, 11, 9, tzinfo=UTC)
MEDIAN_S, SPREAD = 100.0, 0.5  # of an evaluation's length, log-normal
LIMITS = QueueLimits()  # of `serve`
FLOOD = "flood"  # the team that sends half of all
LOSSES = 0.002  # share of jobs whose node dies
PLAYED = f'{{"exit_code": {int(Exit.ERROR)}, "error": "played"}}'
CONTEST = """\
name: class
deadline: 2027-01-29 18:00
opens: 2027-01-11 09:00
registration: {opens: 2027-01-04 09:00, closes: 2027-01-15 18:00}
teams: {members: 1}
problems: [{directory: a2a, name: a2a}]
"""


# ---- simulated -------------------------------------------------------------------------------------------------------
class PlayedEngine:
    """An Engine of so many nodes: a job ends when its time has come, or is lost before."""

    outlived = True

    def __init__(self, at_once: int, folder: Path, now: Callable[[], float], draw: random.Random) -> None:
        self.at_once, self._folder, self._now, self._draw = at_once, folder, now, draw
        self.ends: dict[str, tuple[float, bool]] = {}  # of the jobs that were not discarded
        self.started: list[str] = []
        self.busy_s = 0.0
        (folder / RESULT).write_text(PLAYED)
        (folder / "out.txt").write_text("")

    def submit(self, job: Job) -> Ticket:
        length_s = self._draw.lognormvariate(0.0, SPREAD) * MEDIAN_S
        is_lost = self._draw.random() < LOSSES
        self.ends[job.id] = (self._now() + length_s * (self._draw.random() if is_lost else 1.0), is_lost)
        self.busy_s += self.ends[job.id][0] - self._now()
        self.started.append(job.id)
        assert len(self.ends) <= self.at_once
        return job.ticket

    def poll(self, ticket: Ticket) -> State:
        end_s, is_lost = self.ends[ticket.id]
        if self._now() < end_s:
            return Running()
        return Lost(why="its node died") if is_lost else JobDone(end=Exited(code=1), has_result=True)

    def cancel(self, ticket: Ticket) -> None:
        raise AssertionError("nothing is deleted here")

    def fetch(self, ticket: Ticket, into: Path) -> Path:
        return self._folder

    def printed(self, ticket: Ticket, name: str, start: int) -> bytes:
        return b""

    def discard(self, ticket: Ticket) -> None:
        self.ends.pop(ticket.id, None)

    def tickets(self) -> Sequence[Ticket]:
        return [Ticket(id=name) for name in self.ends]


@dataclass(frozen=True)
class Scenario:
    """Who submits when: `arrivals` are seconds and teams."""

    name: str
    arrivals: tuple[tuple[float, str], ...]


def scenarios(count: int, teams: int, nodes: int, draw: random.Random) -> list[Scenario]:
    """A long steady stream, everybody at once, and one team that sends half of all at the start."""
    names = [f"team{number:03}" for number in range(teams)]
    all_s = count * MEDIAN_S * 1.133 / nodes  # 1.133: mean of the lengths over their median
    steady = sorted((draw.uniform(0, all_s / 0.8), draw.choice(names)) for _ in range(count))
    at_once = [(0.0, names[index % teams]) for index in range(count)]
    draw.shuffle(at_once)
    flood = [(0.0, FLOOD)] * (count // 2)
    others = [(draw.uniform(0, all_s * 0.8), names[index % teams]) for index in range(count - len(flood))]
    return [
        Scenario("steady, 80 % of capacity", tuple(steady)),
        Scenario("all at once", tuple(at_once)),
        Scenario("one team sends half at once", tuple(sorted(flood + others))),
    ]


@dataclass
class Played:
    """What came of a scenario, in played seconds; `costs_s` in real ones."""

    waits_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))  # by team
    choices_s: list[float] = field(default_factory=list)  # of the next submission
    rounds_s: list[float] = field(default_factory=list)  # of the worker, all in
    took_s: float = 0.0
    busy: float = 0.0
    jobs: int = 0
    lost: int = 0
    twice: int = 0


class Clients:
    """Those who submit. `serve` takes 20 submissions of a user and 1,000 in all; what it refuses is sent again as soon
    as there is room, by one team after the other. `sent_s` is when a submission was sent first, by its number."""

    def __init__(self, store: Store, users: dict[str, User]) -> None:
        self._store, self._users = store, users
        self._refused: dict[str, deque[float]] = {}
        self.sent_s: dict[int, float] = {}

    def send(self, at_s: float, team: str) -> None:
        if team not in self._refused:
            try:
                self._add(team, at_s)
                return
            except QueueFullError:
                pass
        self._refused.setdefault(team, deque()).append(at_s)

    def send_refused(self) -> None:
        for team in list(self._refused):
            waiting = self._refused.pop(team)
            try:
                self._add(team, waiting[0])
                waiting.popleft()
            except QueueFullError as error:
                if not error.of_user:  # it stays the first
                    self._refused = {team: waiting} | self._refused
                    return
            if waiting:
                self._refused[team] = waiting  # behind the others

    def _add(self, team: str, at_s: float) -> None:
        row = self._store.add(self._users[team], asked(team, f"{len(self.sent_s) + 1}.py"), LIMITS)
        self.sent_s[row.id] = at_s


def play(scenario: Scenario, nodes: int, folder: Path, seed: int) -> Played:
    """The scenario, from the first submission until all are done."""
    clock = [0.0]
    folder.mkdir()

    def iso() -> str:
        return (START + timedelta(seconds=clock[0])).isoformat(timespec="milliseconds")

    store = Store(folder / "queue.sqlite3", iso)
    engine = PlayedEngine(nodes, folder, lambda: clock[0], random.Random(seed))
    worker = QueueWorker(
        store, engine, folder, lambda row, files: ("played",), lambda row: 900.0, clock=lambda: clock[0]
    )
    users = {team: store.users.register(f"{team}:id", team) for _, team in scenario.arrivals}
    played, claim = Played(), store.claim

    def timed_claim(may_run: Callable[[Row], bool]) -> Row | None:
        began_s = time.perf_counter()
        row = claim(may_run)
        played.choices_s.append(time.perf_counter() - began_s)
        return row

    store.claim = timed_claim  # type: ignore[method-assign,assignment]
    todo = list(reversed(scenario.arrivals))
    clients = Clients(store, users)
    while todo or engine.ends:
        clock[0] = min([end_s for end_s, _ in engine.ends.values()] + [at_s for at_s, _ in todo[-1:]])
        while todo and todo[-1][0] <= clock[0]:
            clients.send(*todo.pop())
        clients.send_refused()
        worker.wake()
        began_s = time.perf_counter()
        worker.look()
        played.rounds_s.append(time.perf_counter() - began_s)
    rows = [row for row in map(store.get, clients.sent_s) if row is not None]
    for row in rows:
        assert row.started_at is not None
        started_s = (datetime.fromisoformat(row.started_at) - START).total_seconds()
        played.waits_s[row.team or ""].append(started_s - clients.sent_s[row.id])
    played.took_s, played.busy = clock[0], engine.busy_s / (clock[0] * nodes)
    played.jobs = len(engine.started)
    played.lost = len(scenario.arrivals) - sum(row.error in ("played", INTERRUPTED) for row in rows)
    played.twice = len(engine.started) - len(set(engine.started))
    store.close()
    return played


def asked(team: str, name: str) -> NewSubmission:
    return NewSubmission(
        problem="a2a",
        leaderboard="a2a",
        gpu="GPU",
        mode="leaderboard",
        file_name=name,
        code="",
        contest="class",
        team=team,
    )


def simulate(options: argparse.Namespace) -> int:
    draw = random.Random(options.seed)
    found = []
    with tempfile.TemporaryDirectory(prefix="scale-", dir=options.folder) as name:
        for number, scenario in enumerate(scenarios(options.submissions, options.teams, options.nodes, draw), start=1):
            if options.only not in (None, number):
                continue
            played = play(scenario, options.nodes, Path(name, str(number)), options.seed + number)
            found.append((scenario, played))
            print(f"{scenario.name}: {played.jobs} jobs", file=sys.stderr, flush=True)
    figures = Figures("The queue on a cluster, simulated", environment("", 1).machine_class)
    figures.table(
        (
            "scenario",
            "submissions of",
            "done after h",
            "nodes busy %",
            "wait p50 s",
            "p99 s",
            "longest s",
            "unevenness",
        ),
        [
            (scenario.name, who, played.took_s / 3600, 100 * played.busy, *spread(flat(waits_s)), ratio(waits_s))
            for scenario, played in found
            for who, waits_s in parts(played.waits_s)
        ],
        after="Unevenness: the longest mean wait of a team over the shortest.",
        decimals=2,
    )
    names = ("p50 ms", "p99 ms", "longest ms")
    figures.table(
        (
            "scenario",
            *(f"{what}, {name}" for what in ("choice", "round") for name in names),
            "a submission, ms",
        ),
        [
            (
                scenario.name,
                *(1e3 * value for value in (*spread(played.choices_s), *spread(played.rounds_s))),
                1e3 * sum(played.rounds_s) / len(scenario.arrivals),
            )
            for scenario, played in found
        ],
        after=f"{options.submissions} submissions of {options.teams} teams over {options.nodes} nodes, evaluations of "
        f"{MEDIAN_S:.0f} s (median); {LOSSES:.1%} of jobs lost and run once more; lost submissions "
        f"{sum(played.lost for _, played in found)}, jobs started twice {sum(played.twice for _, played in found)}.",
        decimals=2,
    )
    figures.write(options.data)
    return 1 if any(played.lost or played.twice for _, played in found) else 0


def flat(waits_s: dict[str, list[float]]) -> list[float]:
    return [value for values in waits_s.values() for value in values]


def spread(values: Sequence[float]) -> tuple[float, float, float]:
    """Median, 99th percentile, largest."""
    return median(values), sorted(values)[int(0.99 * (len(values) - 1))], max(values)


def parts(waits_s: dict[str, list[float]]) -> list[tuple[str, dict[str, list[float]]]]:
    """The teams that are alike, and the one that is not, where there is one."""
    alike = {team: values for team, values in waits_s.items() if team != FLOOD}
    one = {team: values for team, values in waits_s.items() if team == FLOOD}
    return [("the other teams", alike), ("that team", one)] if one else [("all teams", alike)]


def ratio(waits_s: dict[str, list[float]]) -> float | str:
    """Of the longest to the shortest mean wait of a team."""
    means = [mean(values) for values in waits_s.values()]
    return max(means) / min(means) if len(means) > 1 and min(means) > 0 else "-"


# ---- through serve ---------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Served:
    """What came of submissions over HTTP. `evaluations` counts those that were begun, by what each leaves."""

    rows: tuple[Row, ...]
    asked: int
    sent_s: float
    took_s: float
    evaluations: int

    @property
    def waits_s(self) -> dict[str, list[float]]:
        """From submission to start, by team, of those that are done."""
        found: dict[str, list[float]] = defaultdict(list)
        for row in self.rows:
            if row.done and row.started_at is not None:
                found[row.team or ""].append(seconds(row.started_at) - seconds(row.submitted_at))
        return found


def seconds(iso: str) -> float:
    return datetime.fromisoformat(iso).timestamp()


def through_serve(options: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="scale-", dir=options.folder) as name:
        checkout = copied(Path(name, "checkout"))
        if options.engine == LOCAL:
            folder = checkout.runs / "serve"
            return told(options, served(options, checkout, engine_of(LOCAL, folder, checkout.root)))
        if why := slurm_cluster.missing():
            sys.exit(why)
        nodes = [f"n{number}" for number in range(1, options.nodes + 1)]
        cluster = slurm_cluster.Cluster(Path(name, "slurm"), nodes, cores=1)
        try:
            cluster.start()
            os.environ.update({key: cluster.environ[key] for key in ("SLURM_CONF", "PATH")})
            settings = SlurmSettings(engine="slurm", jobs_at_once=options.nodes, exclusive=True)
            engine = SlurmEngine(Path(name, "jobs"), checkout.root, dict(os.environ), settings)
            return told(options, served(options, checkout, engine))
        finally:
            cluster.stop()


def served(options: argparse.Namespace, checkout: Checkout, engine: Engine) -> Served:
    teams = [f"team{number:02}" for number in range(options.teams)]
    contest = contests.contest(checkout.root, CONTEST)
    ids = {team: contests.register(contest, team, f"m{team}")[f"m{team}"] for team in teams}
    setting = Asked(problem="", suite="quick", device="cpu", ranks=2, seconds=0.05)
    asked = ServeOptions(asked=setting, contests=(contest.file,), engine=options.engine)
    folder = checkout.runs / "serve"
    serving.prepare(folder)
    command = eval_command(offered(asked, checkout)) if options.real else serving.script(folder)
    service = make_service(asked, folder, command, checkout, engine, clock=lambda: contests.OPEN)
    service.limits = QueueLimits(of_user=options.submissions)
    server, socket = make_server(service, "127.0.0.1", 0, None)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [socket]}, daemon=True)
    thread.start()
    serving.until(lambda: server.started)
    url, began_s = f"http://127.0.0.1:{socket.getsockname()[1]}", time.monotonic()
    share = options.submissions // options.teams
    source = "from reference import ref_kernel as custom_kernel\n" if options.real else serving.SOURCE

    def send(team: str) -> None:
        headers = {"X-Popcorn-Cli-Id": ids[team]}
        with httpx.Client(base_url=url, headers=headers, timeout=120, trust_env=False) as client:
            for index in range(share):
                file = {"file": (f"{index}.py", f"{source}# {team} {index}\n".encode())}
                client.post("/submission/a2a/CPU/leaderboard", files=file).raise_for_status()

    with ThreadPoolExecutor(options.teams) as pool:
        list(pool.map(send, teams))
    sent_s = time.monotonic() - began_s
    numbers = range(1, share * options.teams + 1)

    def found() -> tuple[Row, ...]:
        return tuple(row for row in map(service.store.get, numbers) if row is not None)

    while time.monotonic() - began_s < options.limit_s and not all(row.done for row in found()):
        time.sleep(0.5)
    took_s = time.monotonic() - began_s
    rows = found()
    server.should_exit = True
    thread.join(60)
    service.store.close()
    if options.real:
        evaluations = sum((one / reports.FILE).exists() for one in checkout.runs.iterdir())
    else:
        evaluations = len(serving.numbers(folder / "ran"))
    return Served(rows=rows, asked=len(numbers), sent_s=sent_s, took_s=took_s, evaluations=evaluations)


def told(options: argparse.Namespace, found: Served) -> int:
    done = [row for row in found.rows if row.done]
    waits_s, figures = found.waits_s, Figures("Submissions through serve", environment("", 1).machine_class)
    lost, running = found.asked - len(found.rows), sum(row.state == "running" for row in found.rows)
    twice = found.evaluations - len(done) - running
    longest = {team: max(values) for team, values in waits_s.items()}
    uneven = ratio(waits_s)
    counts = [len(values) for values in waits_s.values()]
    figures.table(
        ("engine", "accepted in s", "evaluated", "passed", "in s", "a second", "wait p50 s", "p99 s", "longest s"),
        [
            (
                f"{options.engine}, {options.nodes} nodes" if options.engine != LOCAL else LOCAL,
                found.sent_s,
                len(done),
                sum(row.state == "succeeded" for row in done),
                found.took_s,
                len(done) / found.took_s,
                *spread(flat(waits_s)),
            )
        ],
        after=f"{found.asked} submissions of {options.teams} teams; {lost} lost, {max(0, twice)} evaluated twice, "
        f"{sum(row.attempt - 1 for row in done)} run once more; evaluated of a team: {min(counts)} to {max(counts)}; "
        f"longest wait of a team: {min(longest.values()):.1f} to {max(longest.values()):.1f} s; teams' mean wait, "
        f"longest / shortest: {uneven if isinstance(uneven, str) else f'{uneven:.2f}'}.",
        decimals=2,
    )
    figures.write(options.data)
    return 1 if lost or twice > 0 else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    for name, run, submissions, teams, nodes in (
        ("simulate", simulate, 10_000, 100, 64),
        ("serve", through_serve, 500, 20, 4),
    ):
        verb = verbs.add_parser(name)
        verb.set_defaults(run=run)
        verb.add_argument("--submissions", type=int, default=submissions)
        verb.add_argument("--teams", type=int, default=teams)
        verb.add_argument("--nodes", type=int, default=nodes)
        verb.add_argument("--folder", type=Path, help="for the queue's file (default: the system's temporary folder)")
        add_data_argument(verb)
        if run is simulate:
            verb.add_argument("--seed", type=int, default=1)
            verb.add_argument(
                "--only", type=int, choices=(1, 2, 3), help="one scenario: steady, all at once, one floods"
            )
        else:
            verb.add_argument("--engine", choices=tuple(ENGINES), default="slurm")
            verb.add_argument(
                "--real",
                action="store_true",
                help="evaluate a2a's reference; otherwise a script answers at once",
            )
            verb.add_argument("--limit-s", type=float, default=600.0, help="what is not done by then is not counted")
    options = parser.parse_args()
    return int(options.run(options))


if __name__ == "__main__":
    sys.exit(main())
