"""A contest through `serve`: members by their ids, fair turns, what the public may see, and nothing lost or twice."""

import itertools
import json
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from contests import END, FILE, MINUTE, OPEN, contest, fast, register
from factories import ENVIRONMENT, FAILURES, failed_test
from fake_engine import FakeEngine, Play
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from waiting import until

from harness.board import judgements, leaderboard, report_json, runs
from harness.board.entries import Board, SettledFile, Settlement
from harness.board.judgements import judged
from harness.contest import acts
from harness.contest.lifecycle import EvaluationHeld
from harness.core.checkout import ROOT, Checkout
from harness.core.decode import part
from harness.engine.base import RESULT, Exited, Job, JobDone
from harness.evaluation.evaluate import new_run_id
from harness.kinds.settings import Asked
from harness.problems.submission import digest
from harness.serve import ServeOptions
from harness.serve.api import make_app
from harness.serve.guard import Guard
from harness.serve.server import make_service
from harness.serve.service import Service
from harness.serve.store import AttemptEnded, NewSubmission, QueueLimits, Store
from harness.serve.tables import turns
from harness.serve.users import User

TOKEN, ORGANISERS = "everybody's-token-here", "the-organisers-token"
COUNT = itertools.count()


class Clock:
    def __init__(self) -> None:
        self.now = OPEN

    def __call__(self) -> datetime:
        return self.now


class Server:
    """A server over a checkout in a folder, whose evaluations are played: each is so much faster as its text says."""

    def __init__(self, folder: Path, text: str) -> None:
        self.root, self.clock = folder, Clock()
        for name in ("reference", "shapes"):
            shutil.copytree(ROOT / name, folder / name)
        self.contest = contest(folder, text)
        self.ids = {}
        for team, members in {"owls": ("ada", "ben"), "cats": ("cy",)}.items():
            self.ids |= register(self.contest, team, *members)
        self.service: Service
        self.jobs: list[Job] = []
        self.start()

    def start(self) -> None:
        file = self.contest.file
        options = ServeOptions(asked=Asked(problem="", suite="quick", device="cpu"), contests=(file,))
        engine = FakeEngine(self.root / f"engine-{next(COUNT)}", self.play)
        folder = self.root / "runs" / "serve"
        self.service = make_service(
            options,
            folder,
            lambda row, files: (str(files.source), f"--author={row.team or row.user}", row.problem, row.mode),
            Checkout(self.root),
            engine,
            clock=self.clock,
        )

    def play(self, job: Job) -> Play:
        self.jobs.append(job)
        source = Path(job.command[0]).read_text()
        name = f"sources/{Path(job.command[0]).name}"
        report = fast(float(source.split()[2]))
        made = replace(report.submission, name=name, source=source, sha256=digest(source, ()))
        author = job.command[1].partition("=")[2]
        report = replace(report, run_id=new_run_id(datetime.now(UTC)), author=author, submission=made, suite="quick",
                         environment=ENVIRONMENT, mode=job.command[3])  # fmt: skip
        runs.store(report, self.root)
        if report.mode == "leaderboard":
            one = judged(report)
            assert one is not None
            leaderboard.record(Checkout(self.root).leaderboard, one)
        text = json.dumps(report_json.to_json(report))
        return Play(states=(JobDone(end=Exited(code=0), has_result=True),), written={RESULT: text})

    def client(self) -> TestClient:
        return TestClient(Guard(make_app(self.service), TOKEN, None, ORGANISERS))

    def entries(self) -> dict[int, str]:
        return {one.number: one.state for one in acts.opened(self.contest.file).state().entries.values()}


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Callable[..., tuple[Server, TestClient]]]:
    clients = []

    def make(text: str = FILE) -> tuple[Server, TestClient]:
        server = Server(tmp_path, text)
        client = server.client()
        client.__enter__()
        client.headers["Authorization"] = f"Bearer {TOKEN}"
        clients.append((server, client))
        return server, client

    yield make
    for server, client in clients:
        client.__exit__(None, None, None)
        server.service.store.close()


def post(client: TestClient, secret: str, speedup: float, mode: str = "leaderboard", problem: str = "gemm_rs") -> Any:
    source = f"SPEEDUP = {speedup}\ndef custom_kernel(data): ...\n"
    return client.post(
        f"/submission/{problem}/CPU/{mode}",
        files={"file": ("mine.py", source.encode())},
        headers={"X-Popcorn-Cli-Id": secret},
    )


def entered(server: Server, client: TestClient, member: str, speedup: float) -> int:
    """Submits, and waits until the result is in the log; the queue's number."""
    answer = post(client, server.ids[member], speedup)
    assert answer.status_code == 202, answer.text
    until(lambda: "submitted" not in server.entries().values())
    return int(answer.json()["details"]["id"])


def organiser(client: TestClient, path: str) -> Any:
    return client.get(path, headers={"Authorization": f"Bearer {ORGANISERS}"})


# ---- members and rules -----------------------------------------------------------------------------------------------
def test_a_members_submission_is_an_entry_of_the_team(served: Callable[..., tuple[Server, TestClient]]) -> None:
    server, client = served()
    entered(server, client, "ada", 2.0)
    assert server.entries() == {1: "ranked"}
    assert server.jobs[0].command[1:] == ("--author=owls", "gemm_rs", "leaderboard")
    one = server.contest.state().entry(1)
    assert (one.team, one.member, one.via, one.file) == ("owls", "ada", "serve", "mine.py")
    assert one.evaluation is not None
    assert one.evaluation.problem_version is not None
    (shown,) = client.get("/contests/class/data").json()["standings"]["problems"][0]["teams"]
    assert (shown["place"], shown["team"], shown["entry"]) == ("1", "owls", 1)
    assert client.get("/contests").json()["contests"][0]["entries"] == 1


def test_what_a_rule_forbids_is_answered_403_with_the_rule_and_the_time(
    served: Callable[..., tuple[Server, TestClient]],
) -> None:
    server, client = served()

    def refused(secret: str, **more: Any) -> str:
        answer = post(client, secret, 2.0, **more)
        assert answer.status_code == 403, answer.text
        return str(answer.json()["detail"])

    assert "belongs to no member; `contest register` gives one out (rule `teams`; it is 2027" in refused("zoe:x")
    assert "too early: ag_gemm opens at 2027-01-18" in refused(server.ids["ada"], problem="ag_gemm")
    server.clock.now = END + timedelta(seconds=1)
    assert "too late: gemm_rs closed at 2027-01-29 18:00 UTC (rule `deadline`" in refused(server.ids["ada"])
    assert "too late" in refused(server.ids["ada"], mode="test")
    server.clock.now = OPEN
    for member in ("ada", "ben", "ada"):
        assert post(client, server.ids[member], 2.0).status_code == 202
    assert "team owls has used its 3 submissions of 2027-01-11" in refused(server.ids["ben"])
    assert post(client, server.ids["ben"], 2.0, mode="test").status_code == 202, "a test is no entry"
    assert len(server.entries()) == 3


def test_nobody_takes_a_members_name(served: Callable[..., tuple[Server, TestClient]]) -> None:
    """Not on the other leaderboards either, where an unknown id is registered under the name in it."""
    _, client = served()
    answer = post(client, "Ada:not hers", 2.0, mode="test", problem="amd-all2all")
    assert answer.status_code == 401
    assert "the name 'ada' is a member's of class, with another id" in answer.json()["detail"]
    assert post(client, "zoe:her own", 2.0, mode="test", problem="amd-all2all").status_code == 202


def test_a_submission_deleted_before_its_turn_is_withdrawn(tmp_path: Path) -> None:
    server = Server(tmp_path, FILE)
    client = TestClient(make_app(server.service))  # whose worker does not run
    number = post(client, server.ids["ada"], 2.0).json()["details"]["id"]
    answer = client.delete(f"/user/submissions/{number}", headers={"X-Popcorn-Cli-Id": server.ids["ada"]})
    assert answer.status_code == 200
    assert server.entries() == {1: "withdrawn"}
    server.service.store.close()


# ---- nothing lost, nothing twice -------------------------------------------------------------------------------------
def test_a_server_that_died_at_any_point_settles_each_entry_once(tmp_path: Path) -> None:
    server = Server(tmp_path, FILE)
    service = server.service
    client = TestClient(make_app(service))
    assert post(client, server.ids["ada"], 2.0).status_code == 202
    assert post(client, server.ids["cy"], 3.0).status_code == 202
    assert service.worker.look()
    row = service.store.claim()  # before the worker does, which dies
    assert row is not None
    assert not service.worker.look()  # the first is evaluated and settled
    new = acts.NewEntry(member="ben", problem="gemm_rs", file="mine.py", sha256="5e" * 32, via="serve")
    acts.submit(server.contest, new, OPEN)  # died before it was queued
    service.store.close()  # died while that one ran
    assert server.entries() == {1: "ranked", 2: "submitted", 3: "submitted"}
    server.start()
    server.service.worker.recover()
    while server.service.worker.look():
        pass
    assert server.entries() == {1: "ranked", 2: "ranked", 3: "failed"}
    failed = server.contest.state().entry(3)
    assert failed.failure is not None
    assert (failed.failure.kind, failed.failure.counts) == ("not_run", False)
    server.service.contests.settle(server.service.store)
    kinds = Counter(record.event.type for record in server.contest.log.records())
    assert kinds["ranked"] == 2, "no outcome is written twice"
    server.service.store.close()


def test_a_full_queue_costs_no_submission_of_the_day(tmp_path: Path) -> None:
    server = Server(tmp_path, FILE)
    server.service.limits = QueueLimits(of_user=0)
    answer = post(TestClient(make_app(server.service)), server.ids["ada"], 2.0)
    assert answer.status_code == 429
    one = server.contest.state().entry(1)
    assert (one.state, one.counts) == ("failed", False)
    server.service.store.close()


def test_a_full_disk_is_told_and_costs_no_submission_of_the_day(tmp_path: Path) -> None:
    server = Server(tmp_path, FILE.replace("quota: {per_day: 3}", "quota: {per_day: 200}"))
    server.service.limits = QueueLimits(of_user=200)
    client, db = TestClient(make_app(server.service)), server.service.store._db
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    db.execute(f"PRAGMA max_page_count = {pages}")
    for _ in range(100):  # sources, until there is no page left
        if (answer := post(client, server.ids["ada"], 2.0)).status_code != 202:
            break
    assert (answer.status_code, answer.headers["Retry-After"].isdigit()) == (503, True)
    assert "the queue cannot be written now (database or disk is full); try again later" in answer.json()["detail"]
    *_, one = server.contest.state().entries.values()
    assert (one.state, one.counts) == ("failed", False)
    db.execute(f"PRAGMA max_page_count = {pages + 1000}")
    assert post(client, server.ids["ada"], 2.0).status_code == 202
    server.service.store.close()


def test_a_damaged_log_is_told_and_does_not_stop_the_queue(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server = Server(tmp_path, FILE)
    assert post(TestClient(make_app(server.service)), server.ids["ada"], 2.0).status_code == 202
    path = server.contest.log.path
    whole = path.read_text()
    path.write_text(whole + "scribbled\n")
    while server.service.worker.look():
        pass
    assert "class: " in capsys.readouterr().err
    path.write_text(whole)  # restored from a copy
    server.service.contests.settle(server.service.store)
    assert server.entries() == {1: "ranked"}
    server.service.store.close()


# ---- what the public may see -----------------------------------------------------------------------------------------
def public_texts(client: TestClient) -> str:
    paths = ("/", "/live/boards", "/live/queue", "/submissions/gemm_rs/CPU", "/contests/class", "/contests/class/data")
    return "\n".join(client.get(path).text for path in paths)


def test_a_private_contest_shows_nothing_of_its_entries_until_its_end(
    served: Callable[..., tuple[Server, TestClient]],
) -> None:
    server, client = served(FILE.replace("freeze: 2027-01-28 18:00", "private: true"))
    number = entered(server, client, "ada", 2.0)
    run_id = server.contest.state().entry(1).evaluation.run_id  # type: ignore[union-attr]
    texts = public_texts(client)
    assert run_id not in texts
    assert "mine.py" not in texts
    assert client.get("/submissions/gemm_rs/CPU").json() == []
    assert client.get("/submission_count/gemm_rs/CPU").json() == {"count": 0}
    hidden = client.get("/contests/class/data").json()
    assert hidden["standings"]["is_hidden"]
    assert [one["teams"] for one in hidden["standings"]["problems"]] == [[], []]
    assert hidden["statistics"]["best"] == []
    own = client.get(f"/user/submissions/{number}", headers={"X-Popcorn-Cli-Id": server.ids["ada"]}).json()
    assert own["runs"][0]["passed"], "the member's own"
    assert (
        organiser(client, "/contests/class/full/data").json()["standings"]["problems"][0]["teams"][0]["team"] == "owls"
    )
    server.clock.now = END + MINUTE
    assert run_id in public_texts(client)
    assert len(client.get("/submissions/gemm_rs/CPU").json()) == 1


def test_from_the_freeze_on_the_public_sees_no_later_result(served: Callable[..., tuple[Server, TestClient]]) -> None:
    server, client = served()
    entered(server, client, "ada", 2.0)
    server.clock.now = datetime(2027, 1, 28, 18, 1, tzinfo=UTC)
    entered(server, client, "cy", 3.0)
    before, later = (one.evaluation.run_id for one in server.contest.state().entries.values() if one.evaluation)
    texts = public_texts(client)
    assert before in texts
    assert later not in texts
    teams = client.get("/contests/class/data").json()["standings"]["problems"][0]["teams"]
    assert [row["team"] for row in teams] == ["owls"]
    teams = organiser(client, "/contests/class/full/data").json()["standings"]["problems"][0]["teams"]
    assert [row["team"] for row in teams] == ["cats", "owls"]
    acts.freeze(server.contest, server.clock.now + MINUTE, "grace", frozen=False)
    server.clock.now += 2 * MINUTE
    assert later in public_texts(client)


def test_from_the_freeze_on_the_public_sees_no_later_try_of_a_file(
    served: Callable[..., tuple[Server, TestClient]],
) -> None:
    server, client = served()
    server.service.store._now = lambda: server.clock.now.isoformat(timespec="microseconds")
    entered(server, client, "ada", 2.0)
    server.clock.now = datetime(2027, 1, 28, 18, 1, tzinfo=UTC)
    assert post(client, server.ids["ada"], 3.0, mode="benchmark").status_code == 202
    until(lambda: all(row.done for row in server.service.store.listed(None, None)))
    later, before = (str(row.run_id) for row in server.service.store.listed(None, None))
    texts = public_texts(client)
    assert before in texts
    assert later not in texts
    acts.freeze(server.contest, server.clock.now + MINUTE, "grace", frozen=False)
    server.clock.now += 2 * MINUTE
    assert later in public_texts(client)


FROZEN = datetime(2027, 1, 28, 18, 1, tzinfo=UTC)


def public_entry(client: TestClient) -> Any:
    """What the public sees of the only entry of the only board: its figures, its cases' and its history."""
    (board,) = client.get("/live/boards").json()["page"]["boards"]
    (shown,) = board["entries"]
    figures = [(case["figures"]["value"], case["figures"]["ratio"]) for case in shown["cases"]]
    entry = {name: shown["entry"][name] for name in ("run_id", "file", "score", "ratio", "ratio_ci", "verified")}
    return {"entry": entry, "cases": figures} | {name: shown[name] for name in ("place", "history")}


def test_from_the_freeze_on_the_public_sees_a_file_as_it_was_before(
    served: Callable[..., tuple[Server, TestClient]],
) -> None:
    """Also where it has been evaluated again, with another source or the same, and where it is held by now."""
    server, client = served()
    entered(server, client, "ada", 2.0)
    was = public_entry(client)
    server.clock.now = FROZEN
    assert public_entry(client) == was
    for speedup in (3.0, 2.0):
        entered(server, client, "ada", speedup)
        for one in leaderboard.load(Checkout(server.root).leaderboard).entries:
            assert one.run_id != was["entry"]["run_id"]
        assert public_entry(client) == was
    path = Checkout(server.root).leaderboard
    board = leaderboard.load(path)
    (standing,) = board.entries
    held = judgements.held(standing, "verify", "launches did not reproduce it", (standing.run_id,))
    leaderboard.change(path, lambda now: judgements.replaced(now, standing, held, "verify did not reproduce it"))
    event = EvaluationHeld(entry=3, check="verify", evidence="slower", run_id="20270128T190000-000001")
    acts.settle(server.contest, event, server.clock.now, "grace")
    assert public_entry(client) == was
    acts.freeze(server.contest, server.clock.now + MINUTE, "grace", frozen=False)
    server.clock.now += 2 * MINUTE
    page = client.get("/live/boards").json()["page"]
    assert (page["boards"], len(page["held"])) == ([], 1)


def test_from_the_freeze_on_the_public_sees_no_failure_and_no_launch_from_the_command_line(
    served: Callable[..., tuple[Server, TestClient]],
) -> None:
    """No queue knows of these. Launches of an entry that decide nothing are not even in the log."""
    server, client = served()
    entered(server, client, "ada", 2.0)
    (standing,) = leaderboard.load(Checkout(server.root).leaderboard).entries
    server.clock.now = FROZEN
    failed = replace(failed_test(FAILURES[0]), run_id="20270128T180000-00000f", author="owls", suite="quick",
                     environment=ENVIRONMENT)  # fmt: skip
    failed = replace(failed, submission=replace(failed.submission, name=standing.file))
    launch = replace(fast(2.0), run_id="20270128T180200-00000e", author="owls", suite="quick", environment=ENVIRONMENT,
                     started_at=FROZEN.isoformat())  # fmt: skip
    launch = replace(launch, submission=replace(launch.submission, name=standing.file, sha256=standing.sha256))
    for one in (failed, launch):
        runs.store(one, server.root)
    new = acts.NewEntry(member="ada", problem="gemm_rs", file=standing.file, sha256=failed.submission.sha256)
    entry = acts.submit(server.contest, new, FROZEN)
    acts.settle(server.contest, acts.outcome(entry.number, failed, None), FROZEN, "ada")
    assert [run["run_id"] for run in public_entry(client)["history"]] == [standing.run_id]
    acts.freeze(server.contest, server.clock.now + MINUTE, "grace", frozen=False)
    server.clock.now += 2 * MINUTE
    ids = {run["run_id"] for run in public_entry(client)["history"]}
    assert ids == {standing.run_id, failed.run_id, launch.run_id}


def test_from_the_freeze_on_the_public_sees_the_best_from_before_of_who_has_become_better(
    served: Callable[..., tuple[Server, TestClient]],
) -> None:
    server, client = served()
    server.service.store._now = lambda: server.clock.now.isoformat(timespec="microseconds")
    first = entered(server, client, "ada", 2.0)
    server.clock.now = datetime(2027, 1, 28, 18, 1, tzinfo=UTC)
    second = entered(server, client, "ada", 3.0)
    until(lambda: all(row.done for row in server.service.store.listed(None, None)))
    assert [row["submission_id"] for row in client.get("/submissions/gemm_rs/CPU").json()] == [first]
    acts.freeze(server.contest, server.clock.now + MINUTE, "grace", frozen=False)
    server.clock.now += 2 * MINUTE
    assert [row["submission_id"] for row in client.get("/submissions/gemm_rs/CPU").json()] == [second]


def test_from_the_freeze_on_the_public_sees_no_later_settlement(
    served: Callable[..., tuple[Server, TestClient]],
) -> None:
    server, client = served()
    entered(server, client, "ada", 2.0)
    entered(server, client, "cy", 2.1)
    server.clock.now = datetime(2027, 1, 28, 18, 2, tzinfo=UTC)

    def settled(board: Board) -> Board:
        first = board.entries[0]
        files = tuple(
            SettledFile(author=one.author, file=one.file, sha256=one.sha256, ratio=ratio)
            for one, ratio in zip(board.entries, (1.5, 1.0), strict=True)
        )
        when = datetime(2027, 1, 28, 18, 1, tzinfo=UTC).isoformat()
        one = part(first, Settlement, date=when, rounds=16, resolves=0.01, problem_version="v1", files=files,
                   both_judged=True)  # fmt: skip
        entries = tuple(replace(entry, problem_version="v1") for entry in board.entries)
        return replace(board, entries=entries, settlements=(one,))

    leaderboard.change(Checkout(server.root).leaderboard, settled)
    assert "settled 2027-01-28" not in client.get("/").text
    acts.freeze(server.contest, server.clock.now + MINUTE, "grace", frozen=False)
    server.clock.now += 2 * MINUTE
    assert "settled 2027-01-28" in client.get("/").text


def test_the_full_page_needs_the_organisers_token(served: Callable[..., tuple[Server, TestClient]]) -> None:
    _, client = served()
    for path in ("/contests/class/full", "/contests/class/full/data"):
        refused = client.get(path)
        assert refused.status_code == 401
        assert "organisers" in refused.headers["www-authenticate"]
        assert organiser(client, path).status_code == 200
    assert client.get("/contests/class", headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert client.get("/contests/klass").status_code == 404
    assert "For organisers" in organiser(client, "/contests/class/full").text


# ---- fair turns ------------------------------------------------------------------------------------------------------
@given(
    owners=st.lists(st.sampled_from("abcde"), max_size=40),
    running=st.sets(st.sampled_from("abcde"), max_size=2),
    served_at=st.dictionaries(st.sampled_from("abcde"), st.sampled_from(["2027-01", "2027-02", "2027-03"])),
)
def test_turns_are_fair(owners: list[str], running: set[str], served_at: dict[str, str]) -> None:
    """Nobody waits for a second submission of anybody else, each owner's come in order, and none is lost."""
    waiting = list(enumerate(owners))
    order = turns(waiting, dict.fromkeys(running, 1), served_at)
    assert sorted(order) == [number for number, _ in waiting]
    owner_of = dict(waiting)
    for owner in set(owners):
        assert [one for one in order if owner_of[one] == owner] == [one for one, name in waiting if name == owner]
        names = [owner_of[number] for number in order]
        before = Counter(names[: names.index(owner)])
        most = 2 if owner in running else 1
        assert all(count <= most for count in before.values())
    firsts = list(dict.fromkeys(owner_of[one] for one in order))
    idle = [name for name in firsts if name not in running]
    assert idle == sorted(idle, key=lambda name: (served_at.get(name, ""), owners.index(name)))


def queued(store: Store, team: str | None, user: User) -> int:
    contest_name = "class" if team else None
    asked = NewSubmission(problem="p", leaderboard="p", gpu="CPU", mode="leaderboard", file_name="a.py", code="",
                          team=team, contest=contest_name)  # fmt: skip
    return store.add(user, asked, QueueLimits(of_user=1000)).id


def test_a_team_with_running_work_waits_behind_others(tmp_path: Path) -> None:
    store = Store(tmp_path / "queue.sqlite3")
    user = store.users.register("ada:secret", "ada")
    owls = [queued(store, "owls", user) for _ in range(3)]
    first = store.claim()
    cats = queued(store, "cats", user)
    alone = queued(store, None, user)
    assert first is not None
    assert first.id == owls[0]
    assert [row.id for row in store.running()] == [owls[0]]
    waiting, count = store.waiting(9)
    assert [row.id for row in waiting] == [cats, alone, owls[1], owls[2]]
    assert [store.ahead(row) for row in waiting] == [1, 2, 3, 4]
    assert count == 4
    assert [row.id for row in iter(store.claim, None)] == [cats, alone, owls[1], owls[2]]
    store.close()


def test_500_submissions_of_20_teams_are_each_evaluated_once_and_fairly(tmp_path: Path) -> None:
    """All queued at once, a team after the other: without turns the last team would wait for 475 evaluations."""
    store = Store(tmp_path / "queue.sqlite3")
    store._db.execute("PRAGMA synchronous = OFF")  # for the test's time alone
    user = store.users.register("ada:secret", "ada")
    for team in range(20):
        for _ in range(25):
            queued(store, f"team-{team:02}", user)
    order = []
    for _ in range(100):
        row = store.claim()
        assert row is not None
        order.append((row.id, row.team))
        assert store.finish(row.id, row.attempt, AttemptEnded(state="succeeded", passed=True))
    assert len({number for number, _ in order}) == 100
    for begin in range(0, 100, 20):
        assert len({team for _, team in order[begin : begin + 20]}) == 20, "each team once a round"
    store.close()


NOT_6 = "DROP TABLE created;"
NOT_5 = "ALTER TABLE users DROP COLUMN banned_at; DROP TABLE closed;"
NOT_4 = "ALTER TABLE submissions DROP COLUMN launch_count;"
NOT_3 = "ALTER TABLE submissions DROP COLUMN tool; ALTER TABLE submissions DROP COLUMN benchmark;"
NOT_2 = (
    "DROP INDEX submissions_by_team; ALTER TABLE submissions DROP COLUMN contest;"
    "ALTER TABLE submissions DROP COLUMN team; ALTER TABLE submissions DROP COLUMN entry;"
)


@pytest.mark.parametrize(
    ("version", "without"),
    [
        (1, NOT_6 + NOT_5 + NOT_4 + NOT_3 + NOT_2),
        (2, NOT_6 + NOT_5 + NOT_4 + NOT_3),
        (3, NOT_6 + NOT_5 + NOT_4),
        (4, NOT_6 + NOT_5),
        (5, NOT_6),
    ],
)
def test_a_queue_of_an_earlier_version_is_taken_over(version: int, without: str, tmp_path: Path) -> None:
    path = tmp_path / "queue.sqlite3"
    store = Store(path)
    number = queued(store, None, store.users.register("ada:secret", "ada"))
    store.close()
    db = sqlite3.connect(path)
    db.executescript(f"{without} PRAGMA user_version = {version};")
    db.close()
    store = Store(path)
    row = store.claim()
    assert row is not None
    assert (row.id, row.team, row.tool) == (number, None, None)
    store.close()
