"""The queue over ends and restarts of its server: nothing is lost, nothing is evaluated twice that has a result."""

import errno
import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from conftest import COMMAND
from fake_engine import FakeEngine, Play
from serving import MINE, SOURCE, numbers, outcome, prepare, served, service, submit
from waiting import until

from harness.core.errors import BadFileError, Exit, HarnessError, UsageError
from harness.core.events import CaseBegan, PhaseBegan
from harness.core.json_file import line_of
from harness.core.processes import descendants
from harness.engine.base import ERR, OUT, RESULT, Exited, Job, JobDone, Lost, Overdue, Running, State, Ticket, Waiting
from harness.serve.server import only_server
from harness.serve.store import ATTEMPTS, INTERRUPTED, AttemptEnded, NewSubmission, QueueLimits, Store
from harness.serve.tables import VERSION

ASKED = NewSubmission(
    problem="gemm_rs", leaderboard="amd-gemm-rs", gpu="CPU", mode="test", file_name="a.py", code=SOURCE
)

PASSED = JobDone(end=Exited(code=0), has_result=True)
EVENTS = (
    line_of(PhaseBegan(at_s=0.1, name="test")),
    line_of(CaseBegan(at_s=0.2, label="m 64  n 2880", index=0, count=3)),
)


@contextmanager
def process(folder: Path) -> Iterator[tuple["subprocess.Popen[str]", int, httpx.Client]]:
    """A server that can be killed, its pid, and a client of it. The Popen ends as the server does."""
    started = subprocess.Popen([*COMMAND, "serving", str(folder)], stdout=subprocess.PIPE, text=True)
    pid = 0
    try:
        assert started.stdout is not None
        number, _, opened, _ = (started.stdout.readline() for _ in range(4))
        pid = int(number)
        with httpx.Client(base_url=opened.split()[1], headers=MINE, timeout=60, trust_env=False) as client:
            yield started, pid, client
    finally:
        if started.poll() is None:
            os.kill(pid or started.pid, signal.SIGTERM)
        started.wait(120)


def gone(pids: list[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


# ---- the whole server ------------------------------------------------------------------------------------------------


def test_killed_in_the_middle_it_goes_on_where_it_was(tmp_path: Path) -> None:
    """kill -9: the evaluation that ran ends with the server and is run once more; what waited has its turn."""
    with process(tmp_path) as (server, pid, client):
        done = submit(client)
        outcome(client, done)
        middle = submit(client, SOURCE + "# sleeps at first\n")
        later = [submit(client, name=f"{index}.py") for index in range(3)]
        until(lambda: numbers(tmp_path / "ran").count(middle) == 1)
        below = descendants(pid)
        assert below
        os.kill(pid, signal.SIGKILL)
        server.wait(120)
        until(lambda: gone(below))
    with process(tmp_path) as (_, _, client):
        assert client.get(f"/user/submissions/{done}").json()["job"]["status"] == "succeeded"
        assert [outcome(client, number)["job"]["status"] for number in (middle, *later)] == ["succeeded"] * 4
    assert numbers(tmp_path / "ran") == [done, middle, middle, *later]
    assert numbers(tmp_path / "ended") == [done, middle, *later]


def abandoned(folder: Path, attempts: int) -> int:
    """A queue whose server has died that often while its one submission ran; the submission's number."""
    store = Store(folder / "queue.sqlite3")
    row = store.add(store.users.register(MINE["X-Popcorn-Cli-Id"], "login"), ASKED, QueueLimits())
    for attempt in range(1, attempts + 1):
        assert store.claim() is not None
        if attempt < attempts:
            store.recover(row.id, attempt)
    store.close()
    return row.id


def left(folder: Path, number: int, result: str) -> None:
    """The result that the first attempt of that submission left."""
    job = folder / "work" / f"{number}-1"
    job.mkdir(parents=True)
    (job / "result.json").write_text(result)


def test_what_was_interrupted_twice_has_failed(tmp_path: Path) -> None:
    number = abandoned(tmp_path, ATTEMPTS)
    with served(tmp_path) as found, found.client(MINE) as client:
        job = outcome(client, number)["job"]
        assert (job["status"], job["error"]) == ("failed", INTERRUPTED)
        assert outcome(client, submit(client))["job"]["status"] == "succeeded"
    assert number not in numbers(tmp_path / "ran")


@pytest.mark.parametrize("whole", [True, False])
def test_a_result_that_was_written_before_the_server_died_is_taken(tmp_path: Path, whole: bool) -> None:
    """The evaluation had come to its end, and was recorded: it is not run again. Half a result is none."""
    prepare(tmp_path)
    number = abandoned(tmp_path, 1)
    text = (tmp_path / "test.json").read_text()
    left(tmp_path, number, text if whole else text[: len(text) // 2])
    with served(tmp_path) as found, found.client(MINE) as client:
        ended = outcome(client, number)
        assert (ended["job"]["status"], ended["runs"][0]["passed"]) == ("succeeded", True)
    assert numbers(tmp_path / "ran") == ([] if whole else [number])
    assert list((tmp_path / "work").iterdir()) == []


def test_ended_in_order_it_keeps_the_place_of_what_ran(tmp_path: Path) -> None:
    """A stop is no fault of the submission: it is begun anew as often as the server is stopped."""
    for number in (signal.SIGTERM, signal.SIGINT):
        with process(tmp_path) as (server, pid, client):
            if not client.get("/user/submissions").json():
                submit(client, SOURCE + "# sleeps\n")
                submit(client)
            until(lambda: client.get("/live/queue").json()["running"] != [])
            assert client.get("/live/queue").json()["waiting_count"] == 1
            below = descendants(pid)
            os.kill(pid, number)
            assert server.wait(60) == 0
            until(lambda below=below: gone(below))
    assert set(numbers(tmp_path / "ran")) == {1}


def test_two_servers_do_not_share_a_queue(tmp_path: Path) -> None:
    with (
        only_server(tmp_path),
        pytest.raises(UsageError, match="another server works on the queue"),
        only_server(tmp_path),
    ):
        pass
    with only_server(tmp_path):  # it is free again
        pass


# ---- one evaluation --------------------------------------------------------------------------------------------------


def played(folder: Path, *states: State, result: str | None = None) -> FakeEngine:
    """An engine whose jobs have these states. They leave `result`, or the one of the submission's mode."""
    prepare(folder)

    def play(job: Job) -> Play:
        mode = job.command[-2]
        written = {RESULT: result or (folder / f"{mode}.json").read_text(), OUT: "", ERR: "no luck\n"}
        return Play(states=states, written=written)

    return FakeEngine(folder / "fake", play)


def names(engine: FakeEngine) -> list[str]:
    return [job.id for job in engine.submitted]


def test_one_evaluation_at_a_time_in_order(tmp_path: Path) -> None:
    engine = played(tmp_path, Waiting(), Running())
    with served(tmp_path, engine=engine) as found, found.client(MINE) as client:
        submitted = [submit(client) for _ in range(3)]
        for at, number in enumerate(submitted):
            told = f"/user/submissions/{number}"
            until(lambda told=told: client.get(told).json()["job"]["status"] == "running")
            assert len(client.get("/live/queue").json()["running"]) == 1
            assert names(engine) == [f"{number}-1" for number in submitted[: at + 1]]
            engine.ends(engine.submitted[-1].ticket, PASSED)
            outcome(client, number)
        assert engine.tickets() == []


def test_a_poll_tells_place_and_progress(tmp_path: Path) -> None:
    engine = played(tmp_path, Waiting(), Running(events=(*EVENTS, "no event")))
    with served(tmp_path, engine=engine) as found, found.client(MINE) as client:
        first, second = submit(client), submit(client)
        told = f"/user/submissions/{first}"
        until(lambda: client.get(told).json()["job"]["progress"] == "test 1/3 m 64 n 2880")
        assert client.get(told).json()["job"]["status"] == "running"
        queue = client.get(f"/user/submissions/{second}").json()["queue"]
        assert queue == queue | {"stage": "queued", "position": 2, "jobs_ahead": 1}
        (running,) = client.get("/live/queue").json()["running"]
        assert running["progress"] == "test 1/3 m 64 n 2880"
        client.delete(told)
        until(lambda: client.get(f"/user/submissions/{second}").json()["job"]["status"] == "running")
        assert engine.cancelled == [Ticket(id=f"{first}-1")]
        client.delete(f"/user/submissions/{second}")


def test_a_job_that_its_engine_lost_is_run_once_more(tmp_path: Path) -> None:
    engine = played(tmp_path, Running(), Lost(why="the machine died"))
    with served(tmp_path, engine=engine) as found, found.client(MINE) as client:
        number = submit(client)
        job = outcome(client, number)["job"]
        assert (job["status"], job["error"]) == ("failed", INTERRUPTED)
    assert names(engine) == [f"{number}-1", f"{number}-2"]
    assert engine.tickets() == []


def test_a_job_whose_submission_was_deleted_is_ended_before_the_next_begins(tmp_path: Path) -> None:
    """It outlived the server under which it was submitted."""
    engine = played(tmp_path, Running(), Running())
    left_running = engine.submit(Job(id="9-1", command=("eval", "test", ""), deadline_s=9.0))
    engine._script = played(tmp_path, PASSED)._script
    with served(tmp_path, engine=engine) as found, found.client(MINE) as client:
        assert outcome(client, submit(client))["job"]["status"] == "succeeded"
    assert engine.cancelled == [left_running]
    assert engine.tickets() == []


def test_a_store_that_fails_for_a_moment_costs_no_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job runs on meanwhile, and its result is taken."""
    monkeypatch.setattr("harness.serve.worker.IDLE_S", 0.1)
    monkeypatch.setattr("harness.serve.worker.WANTED_S", 0.0)
    engine = played(tmp_path, *[Running()] * 5, PASSED)
    with served(tmp_path, engine=engine) as found, found.client(MINE) as client:
        store, failed = found.service.store, []
        runs_on = store.runs_on

        def fails_once(id_: int, attempt: int) -> bool:
            if not failed:
                failed.append(id_)
                raise sqlite3.OperationalError("disk I/O error")
            return runs_on(id_, attempt)

        monkeypatch.setattr(store, "runs_on", fails_once)
        number = submit(client)
        assert outcome(client, number)["job"]["status"] == "succeeded"
    assert failed == [number]
    assert names(engine) == [f"{number}-1"]


def test_an_evaluation_without_a_result_has_failed_with_its_last_line(tmp_path: Path) -> None:
    engine = played(tmp_path, JobDone(end=Exited(code=-9), has_result=False))
    with served(tmp_path, engine=engine) as found, found.client(MINE) as client:
        job = outcome(client, submit(client))["job"]
        assert (job["status"], job["error"]) == (
            "failed", "the evaluation ended with exit code -9 and without a result: no luck"
        )  # fmt: skip


def test_an_engine_that_cannot_start_a_job_fails_its_submission_only(tmp_path: Path) -> None:
    """A full disk, say."""
    engine = played(tmp_path, PASSED)
    with served(tmp_path, engine=engine) as found, found.client(MINE) as client:
        working, engine._script = engine._script, full_disk
        job = outcome(client, submit(client))["job"]
        assert (job["status"], job["error"]) == (
            "failed", "the server could not run it: OSError: [Errno 28] No space left on device"
        )  # fmt: skip
        engine._script = working
        assert outcome(client, submit(client))["job"]["status"] == "succeeded"


def full_disk(job: Job) -> Play:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_what_is_deleted_while_it_runs_is_ended(tmp_path: Path) -> None:
    before = descendants(os.getpid())
    with served(tmp_path) as found, found.client(MINE) as client:
        number = submit(client, SOURCE + "# sleeps\n")
        until(lambda: found.begun() == [number])
        below = [pid for pid in descendants(os.getpid()) if pid not in before]
        client.delete(f"/user/submissions/{number}")
        until(lambda: gone(below))
        assert outcome(client, submit(client))["job"]["status"] == "succeeded"


def test_what_takes_too_long_is_ended_however_it_resists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.engine.local.END_S", 0.5)
    before = descendants(os.getpid())
    with served(tmp_path, deadline_s=600.0) as found, found.client(MINE) as client:
        number = submit(client, SOURCE + "# stubborn\n")
        told = f"/user/submissions/{number}"
        until(lambda: client.get(told).json()["job"]["progress"] == "test 1/3 m 64 n 2880")
        later = SimpleNamespace(monotonic=lambda: time.monotonic() + 600.0, sleep=time.sleep)
        monkeypatch.setattr("harness.engine.local.time", later)
        late = outcome(client, number)
        assert late["job"]["status"] == "timed_out"
        assert late["job"]["error"] == "timed out after 600 s, at test 1/3 m 64 n 2880"
        until(lambda: set(descendants(os.getpid())) <= set(before))
        assert outcome(client, submit(client))["job"]["status"] == "succeeded"


@pytest.mark.parametrize("has_result", [True, False])
def test_what_had_its_result_before_it_was_ended_has_it(tmp_path: Path, has_result: bool) -> None:
    engine = played(tmp_path, Running(), JobDone(end=Overdue(), has_result=has_result))
    with served(tmp_path, deadline_s=1.0, engine=engine) as found, found.client(MINE) as client:
        assert outcome(client, submit(client))["job"]["status"] == ("succeeded" if has_result else "timed_out")


def test_a_result_that_is_none_fails_its_submission_only(tmp_path: Path) -> None:
    engine, others = played(tmp_path, PASSED, result='{"exit_code": 0}'), played(tmp_path / "others", PASSED)
    with served(tmp_path, engine=engine) as found, found.client(MINE) as client:
        job = outcome(client, submit(client))["job"]
        assert job["status"] == "failed"
        assert job["error"].startswith(
            "the server could not run it: DecodeError: $.schema: expected 1 or 2, found None"
        )
        engine._script = others._script
        assert outcome(client, submit(client))["job"]["status"] == "succeeded"


@pytest.mark.parametrize("name", ["server.lock", "work", "queue.sqlite3-wal", "sources"])
def test_no_submitters_name_stands_in_the_way_of_others(name: str, tmp_path: Path) -> None:
    theirs = {"X-Popcorn-Cli-Id": f"{name}:x"}
    with (
        served(tmp_path, engine=played(tmp_path, PASSED)) as found,
        found.client(theirs) as other,
        found.client(MINE) as mine,
    ):
        for client in (other, mine):
            assert outcome(client, submit(client))["job"]["status"] == "succeeded"


def test_what_an_interrupted_evaluation_left_cannot_stop_the_queue(tmp_path: Path) -> None:
    """A result of another form: it is run once more."""
    prepare(tmp_path)
    number = abandoned(tmp_path, 1)
    left(tmp_path, number, '{"schema": 1, "cases": 5}')
    with served(tmp_path) as found, found.client(MINE) as client:
        assert outcome(client, number)["job"]["status"] == "succeeded"
    assert numbers(tmp_path / "ran") == [number]


# ---- the store -------------------------------------------------------------------------------------------------------


def test_an_attempt_that_was_given_up_cannot_write_a_result(tmp_path: Path) -> None:
    store = Store(tmp_path / "q")
    store.add(store.users.register("ada:1", "login"), ASKED, QueueLimits())
    first = store.claim()
    assert first is not None
    store.recover(first.id, first.attempt)
    second = store.claim()
    assert second is not None
    assert (second.id, second.attempt) == (first.id, 2)
    assert store.claim() is None
    assert not store.finish(first.id, first.attempt, AttemptEnded(state="failed"))
    assert store.finish(second.id, second.attempt, AttemptEnded(state="succeeded", passed=True))
    assert not store.finish(second.id, second.attempt, AttemptEnded(state="failed")), "one result, once"
    found = store.get(first.id)
    assert found is not None
    assert found.state == "succeeded"
    store.close()


def test_a_queue_that_cannot_be_read_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "queue.sqlite3"
    path.write_bytes(b"no database, but somebody's file" * 100)
    with pytest.raises(BadFileError, match="move the file away"):
        Store(path)
    assert path.read_bytes().startswith(b"no database")
    prepare(tmp_path / "other")
    store = service(tmp_path / "other").store
    store._db.execute("PRAGMA user_version = 99")
    store.close()
    with pytest.raises(BadFileError, match=f"version 99, expected {VERSION}"):
        Store(tmp_path / "other" / "queue.sqlite3")


def test_a_queue_that_is_damaged_anywhere_is_refused_before_anything_is_served(tmp_path: Path) -> None:
    """Its first page was whole, and the server ended with a traceback."""
    path = tmp_path / "queue.sqlite3"
    Store(path).close()
    whole = path.read_bytes()
    for page in range(1, len(whole) // 4096):
        path.write_bytes(whole[: 4096 * page] + b"\xa5" * 4096 + whole[4096 * (page + 1) :])
        with pytest.raises(BadFileError, match="cannot be read as a queue"):
            Store(path)
    path.write_bytes(whole)
    Store(path).close()


def test_where_the_machine_fails_nobody_is_told_to_move_the_queue_away(tmp_path: Path) -> None:
    """It is not damaged; a full disk is told so, too."""
    path = tmp_path / "queue.sqlite3"
    Store(path).close()
    (tmp_path / "queue.sqlite3-wal").mkdir()
    with pytest.raises(HarnessError, match=r"cannot be opened now .*; the queue is left as it is") as refused:
        Store(path)
    assert refused.value.exit_code == Exit.ERROR


def test_a_queue_of_the_version_before_is_taken_over(tmp_path: Path) -> None:
    """Nobody is banned there, and nothing closed or created."""
    store = Store(tmp_path / "q")
    store.add(store.users.register("ada:1", "login"), ASKED, QueueLimits())
    tables = "DROP TABLE closed; DROP TABLE created;"
    before = f"ALTER TABLE users DROP COLUMN banned_at; {tables} PRAGMA user_version = 4;"
    store._db.executescript(before)
    store.close()
    store = Store(tmp_path / "q")
    row = store.claim()
    assert row is not None
    assert row.user == "ada"
    assert (store.boards.closed(), store.boards.created()) == (frozenset(), {})
    known = store.users.named("ada")
    assert known is not None
    assert not known.is_banned
    store.close()


def test_sources_are_for_the_checkouts_owner_only(tmp_path: Path) -> None:
    Store(tmp_path / "queue.sqlite3").close()
    assert (tmp_path / "queue.sqlite3").stat().st_mode & 0o077 == 0


def test_points_are_ranked_with_the_most_first_and_times_with_the_least(tmp_path: Path) -> None:
    store = Store(tmp_path / "q")
    for user, score in (("ada:1", 1.5), ("bob:2", 2.5)):
        store.add(store.users.register(user, "login"), ASKED, QueueLimits())
        row = store.claim()
        assert row is not None
        store.finish(row.id, row.attempt, AttemptEnded(state="succeeded", passed=True, score_s=score))
    assert [row.user for row in store.ranked("amd-gemm-rs", "CPU")] == ["ada", "bob"]
    assert [row.user for row in store.ranked("amd-gemm-rs", "CPU", more_is_better=True)] == ["bob", "ada"]
    store.close()
    [board] = [one for one in service(tmp_path / "s").catalogue.leaderboards if one.name == "iopddl"]
    assert (board.score_unit, board.more_is_better) == ("points", True)
