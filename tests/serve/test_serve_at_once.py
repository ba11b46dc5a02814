"""Several evaluations at once, as on a cluster: fair, each once, and taken up by the next server."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from fake_engine import FakeEngine, Play
from serving import GEMM, GPU, MINE, SOURCE, prepare, service
from waiting import until

from harness.engine.base import (
    ERR,
    OUT,
    RESULT,
    Exited,
    Job,
    JobDone,
    Lost,
    Overdue,
    Running,
    State,
    Ticket,
    UnavailableError,
    Waiting,
)
from harness.serve.service import Service
from harness.serve.store import NewSubmission, QueueLimits, Row
from harness.serve.worker import WAITS

PASSED = JobDone(end=Exited(code=0), has_result=True)
LONG = (*[Running()] * 3, PASSED)


def cluster(folder: Path, states: Callable[[str], Sequence[State]], at_once: int = 3) -> FakeEngine:
    """An engine of several nodes, whose jobs have the states of their names."""
    prepare(folder)
    text = (folder / "leaderboard.json").read_text()

    def play(job: Job) -> Play:
        return Play(states=tuple(states(job.id)), written={RESULT: text, OUT: "", ERR: "no luck\n"})

    return FakeEngine(folder / "fake", play, at_once=at_once, outlived=True)


def queue(server: Service, team: str | None, count: int, name: str = "") -> list[int]:
    """Submissions of a team, or of a user, each in a file of its own or all in that of the name."""
    user = server.store.users.register(MINE["X-Popcorn-Cli-Id"], "login")
    rows = []
    for index in range(count):
        asked = NewSubmission(problem="gemm_rs", leaderboard=GEMM, gpu=GPU, mode="leaderboard", code=SOURCE, team=team,
                      file_name=name or f"{index}.py", contest="class" if team else None)  # fmt: skip
        rows.append(server.store.add(user, asked, QueueLimits(of_user=1000)).id)
    server.worker.wake()
    return rows


def drain(server: Service, seen: Callable[[list[Row]], None] = lambda running: None) -> None:
    """All that waits, with a look at what runs after each round."""
    while server.worker.look():
        seen(server.store.running())


def names(engine: FakeEngine) -> list[int]:
    return [int(job.id.partition("-")[0]) for job in engine.submitted]


def test_as_many_run_as_the_engine_takes_and_teams_take_turns(tmp_path: Path) -> None:
    engine = cluster(tmp_path, lambda name: LONG)
    server = service(tmp_path, engine=engine)
    owls = queue(server, "owls", 6)
    cats = queue(server, "cats", 2)
    counts = []
    drain(server, lambda running: counts.append(len(running)))
    assert max(counts) == 3
    assert counts.count(3) > len(counts) / 2, "no place is left empty while somebody waits"
    assert names(engine) == [owls[0], cats[0], owls[1], cats[1], *owls[2:]]
    assert {row.state for row in map(server.store.get, owls + cats) if row} == {"succeeded"}
    assert engine.tickets() == []
    server.store.close()


def test_files_of_one_name_follow_each_other(tmp_path: Path) -> None:
    """They lie in one place, and each replaces the entry of the one before."""
    engine = cluster(tmp_path, lambda name: LONG)
    server = service(tmp_path, engine=engine)
    same, other = queue(server, "owls", 3, "mine.py"), queue(server, "owls", 1, "other.py")
    seen: list[list[int]] = []
    drain(server, lambda running: seen.append([row.id for row in running]))
    assert all(len(set(ids) & set(same)) <= 1 for ids in seen)
    assert seen[0] == [same[0], *other], "what may run is not kept by what may not"
    assert names(engine) == [same[0], *other, *same[1:]]
    server.store.close()


def test_each_job_has_its_own_state_and_end(tmp_path: Path) -> None:
    """One waits for a node, one is deleted, one is lost and runs once more."""
    lost = (Running(), Lost(why="the node died"))
    states = {"1-1": (Waiting(), *LONG), "2-1": [Running()] * 9, "3-1": lost, "3-2": LONG}
    engine = cluster(tmp_path, lambda name: states[name])
    server = service(tmp_path, engine=engine)
    first, second, third = queue(server, "owls", 3)
    server.worker.look()
    server.worker.look()
    assert [server.worker.progress(one) for one in (first, second)] == [WAITS, "start"]
    assert server.store.delete(second)
    server.worker._running[second].looked_s = -1.0  # it is looked at a few times a second only
    drain(server)
    assert [ticket.id for ticket in engine.cancelled] == ["2-1"]
    assert [job.id for job in engine.submitted] == ["1-1", "2-1", "3-1", "3-2"]
    found = [server.store.get(one) for one in (first, third)]
    assert [row.state for row in found if row] == ["succeeded"] * 2
    assert engine.tickets() == []
    server.store.close()


@pytest.mark.parametrize("in_order", [True, False])
def test_the_next_server_takes_up_what_runs(tmp_path: Path, in_order: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster's jobs run on, whether the server was stopped or killed; none runs twice, nor what timed out."""
    monkeypatch.setattr("harness.serve.worker.POLL_S", 60.0)  # so that no job ends before the server does
    late = (*LONG[:-1], JobDone(end=Overdue(), has_result=False))
    engine = cluster(tmp_path, lambda name: {"2-1": [Waiting(), *LONG], "3-1": late}.get(name, LONG))
    server = service(tmp_path, engine=engine)
    ids = queue(server, "owls", 5)
    if in_order:
        server.worker.start()
        until(lambda: len(engine.submitted) == 3)
        server.worker.stop()
        assert not server.worker.is_alive()
    else:
        server.worker.look()
    assert [row.id for row in server.store.running()] == ids[:3]
    server.store.close()
    again = service(tmp_path, engine=engine)
    again.worker.recover()
    assert again.worker.look()
    drain(again)
    assert [job.id for job in engine.submitted] == [f"{one}-1" for one in ids]
    passed = "succeeded"
    assert [row.state for row in map(again.store.get, ids) if row] == [passed, passed, "timed_out", passed, passed]
    assert engine.cancelled == []
    again.store.close()


def test_a_cluster_that_takes_no_jobs_now_costs_no_submission(tmp_path: Path) -> None:
    """A controller that is restarted, a full disk: they keep their places, and what runs is watched on."""
    engine = cluster(tmp_path, lambda name: LONG)
    working, takes = engine.submit, [True, False, False]

    def picky(job: Job) -> Ticket:
        if takes and not takes.pop(0):
            raise UnavailableError("sbatch refused: Unable to contact slurm controller")
        return working(job)

    engine.submit = picky  # type: ignore[method-assign]
    server = service(tmp_path, engine=engine)
    ids = queue(server, "owls", 3)
    for _ in range(2):
        with pytest.raises(UnavailableError):
            server.worker.look()
        server.worker.recover()
    assert [row.id for row in server.store.running()] == ids[:1]
    drain(server)
    rows = [server.store.get(one) for one in ids]
    assert [(row.state, row.attempt) for row in rows if row] == [("succeeded", 1)] * 3
    server.store.close()


def test_a_job_that_cannot_be_asked_about_keeps_no_other(tmp_path: Path) -> None:
    engine = cluster(tmp_path, lambda name: LONG)
    server = service(tmp_path, engine=engine)
    first, second = queue(server, "owls", 2)
    server.worker.look()
    poll = engine.poll

    def silent(ticket: Ticket) -> State:
        if ticket == engine.submitted[0].ticket:
            raise OSError("Slurm has not answered for 15 min")
        return poll(ticket)

    engine.poll = silent  # type: ignore[method-assign]
    for _ in range(5):
        with pytest.raises(OSError, match="15 min"):
            server.worker.look()
    row = server.store.get(second)
    assert row is not None
    assert row.state == "succeeded"
    engine.poll = poll  # type: ignore[method-assign]
    drain(server)
    row = server.store.get(first)
    assert row is not None
    assert (row.state, row.attempt) == ("succeeded", 1)
    server.store.close()
