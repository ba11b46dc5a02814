"""Engines: what every engine does with a job, and what the local one does with its processes."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_engine import FakeEngine, Play
from waiting import is_gone, until

from harness.cli import elsewhere
from harness.core.checkout import ROOT, Checkout
from harness.core.processes import descendants
from harness.engine import registry
from harness.engine.base import (
    ERR,
    FOLDER,
    OUT,
    RESULT,
    Cancelled,
    Engine,
    EngineError,
    Exited,
    Job,
    JobDone,
    Lost,
    Overdue,
    Running,
    State,
    Ticket,
    Unwatched,
    Waiting,
)
from harness.engine.local import LocalEngine

RESULT_LINE = 'echo \'{"a": 1}\' > "$0/result.json"; '
ENGINE_PROGRAM = """
import sys, time
from pathlib import Path
from harness.engine.base import Job
from harness.engine.local import LocalEngine
engine = LocalEngine(Path(sys.argv[1]), Path.cwd(), {"PATH": "/usr/bin:/bin"})
engine.submit(Job(id="1-1", command=("/bin/sh", "-c", sys.argv[2], "{job}"), deadline_s=60.0))
print("submitted", flush=True)
time.sleep(60)
"""


def shell(script: str, name: str = "1-1", deadline_s: float = 30.0) -> Job:
    """A job that runs the script, in which $0 is the job's folder."""
    return Job(id=name, command=("/bin/sh", "-c", script, FOLDER), deadline_s=deadline_s)


def local(folder: Path) -> LocalEngine:
    return LocalEngine(folder, ROOT, {"PATH": os.environ["PATH"], "MARK": "seen"})


def finished(engine: Engine, ticket: Ticket) -> State:
    """The state in which the job does not wait or run any more."""
    until(lambda: not isinstance(engine.poll(ticket), Waiting | Running))
    return engine.poll(ticket)


@pytest.fixture
def no_process_left() -> Iterator[None]:
    before = descendants(os.getpid())
    yield
    until(lambda: set(descendants(os.getpid())) <= set(before))


pytestmark = pytest.mark.usefixtures("no_process_left")


# ---- every engine ----------------------------------------------------------------------------------------------------


def fake(folder: Path) -> FakeEngine:
    """Plays what the shell scripts below do."""

    def play(job: Job) -> Play:
        if "sleep" in job.command[2]:
            return Play(states=(Waiting(), Running(), Running(events=("one", "two"))))
        return Play(states=(Running(), JobDone(end=Exited(code=3), has_result=True)), written={RESULT: '{"a": 1}'})

    return FakeEngine(folder, play)


@pytest.fixture(params=[local, fake], ids=["local", "fake"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Engine:
    made: Engine = request.param(tmp_path / "jobs")
    return made


def test_a_job_ends_with_its_exit_code_and_its_result(engine: Engine, tmp_path: Path) -> None:
    ticket = engine.submit(shell(RESULT_LINE + "exit 3"))
    assert ticket == Ticket(id="1-1")
    assert finished(engine, ticket) == JobDone(end=Exited(code=3), has_result=True)
    assert (engine.fetch(ticket, tmp_path / "into") / RESULT).read_text().strip() == '{"a": 1}'
    assert list(engine.tickets()) == [ticket]
    engine.discard(ticket)
    assert list(engine.tickets()) == []
    assert isinstance(engine.poll(ticket), Lost)


def test_events_are_read_while_the_job_runs_and_a_cancelled_job_is_done(engine: Engine, tmp_path: Path) -> None:
    ticket = engine.submit(shell('printf "one\\ntwo\\nhal" > "$0/events.jsonl"; exec sleep 60'))
    until(lambda: engine.poll(ticket) == Running(events=("one", "two")))
    with pytest.raises(EngineError, match="not done"):
        engine.fetch(ticket, tmp_path / "into")
    engine.cancel(ticket)
    assert engine.poll(ticket) == JobDone(end=Cancelled(), has_result=False)
    engine.cancel(ticket)  # nothing is left to cancel
    engine.discard(ticket)


def test_a_name_is_taken_until_its_job_is_discarded(engine: Engine) -> None:
    ticket = engine.submit(shell("exit 3"))
    with pytest.raises(EngineError, match="there is a job of this name already"):
        engine.submit(shell("exit 3"))
    finished(engine, ticket)
    engine.discard(ticket)
    engine.discard(engine.submit(shell("exit 3")))


def test_an_unknown_job_is_lost(engine: Engine, tmp_path: Path) -> None:
    unknown = Ticket(id="9-9")
    assert engine.poll(unknown) == Lost(why="there is no such job")
    engine.cancel(unknown)
    engine.discard(unknown)
    with pytest.raises(EngineError):
        engine.fetch(unknown, tmp_path)


@pytest.mark.parametrize("name", ["", "..", "a/b", "-x", "a" * 65, "a\n"])
def test_a_name_is_a_plain_file_name(engine: Engine, name: str) -> None:
    with pytest.raises(ValueError, match="letters"):
        engine.submit(shell("exit", name=name))
    assert list(engine.tickets()) == []


# ---- processes of this machine ---------------------------------------------------------------------------------------


def test_a_job_has_the_engines_environment_and_folder_and_its_output_is_kept(tmp_path: Path) -> None:
    engine = local(tmp_path)
    ticket = engine.submit(shell('echo "$MARK $HOME $PWD"; echo out of luck >&2; kill -9 $$'))
    assert finished(engine, ticket) == JobDone(end=Exited(code=-9), has_result=False)
    folder = engine.fetch(ticket, tmp_path / "into")
    assert (folder / OUT).read_text() == f"seen  {ROOT}\n"
    assert (folder / ERR).read_text() == "out of luck\n"


def test_what_a_job_leaves_of_its_group_is_ended_with_it(tmp_path: Path) -> None:
    engine = local(tmp_path)
    ticket = engine.submit(shell("sleep 60 & sleep 60 & exit 0"))
    assert finished(engine, ticket) == JobDone(end=Exited(code=0), has_result=False)


@pytest.mark.parametrize("written", [True, False])
def test_at_its_deadline_a_job_is_ended_however_it_resists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: bool
) -> None:
    """Whole process trees, sessions of their own included; a result that was there before stays."""
    monkeypatch.setattr("harness.engine.local.END_S", 0.3)
    engine, folder = local(tmp_path), tmp_path / "1-1"
    deaf = 'trap "" TERM; touch "$0"; sleep 60; sleep 60'
    stubborn = f"""setsid sh -c '{deaf}' "$0/other" & exec sh -c '{deaf}' "$0/own" """
    ticket = engine.submit(shell((RESULT_LINE if written else "") + stubborn))
    until(lambda: (folder / "other").exists() and (folder / "own").exists())
    late = SimpleNamespace(monotonic=lambda: time.monotonic() + 30.0, sleep=time.sleep)
    monkeypatch.setattr("harness.engine.local.time", late)
    assert finished(engine, ticket) == JobDone(end=Overdue(), has_result=written)


def test_the_orphans_of_a_job_that_ends_when_asked_are_ended(tmp_path: Path) -> None:
    engine = local(tmp_path)
    ticket = engine.submit(shell('setsid sleep 60 & echo "$!" > "$0/pid"; wait'))
    pid = tmp_path / "1-1" / "pid"
    until(lambda: pid.exists() and pid.read_text().strip() != "")
    engine.cancel(ticket)
    until(lambda: is_gone(int(pid.read_text())))


@pytest.mark.parametrize("text", ["", "{", "7", "[]", '{"a": 1', "[" * 100_000])
def test_an_unfinished_result_is_none(tmp_path: Path, text: str) -> None:
    engine = local(tmp_path)
    ticket = engine.submit(shell("exit 0"))
    (tmp_path / "1-1" / RESULT).write_text(text)
    assert finished(engine, ticket) == JobDone(end=Exited(code=0), has_result=False)


def test_a_job_that_cannot_be_started_leaves_nothing(tmp_path: Path) -> None:
    engine = LocalEngine(tmp_path / "jobs", tmp_path / "no such folder", {})
    with pytest.raises(FileNotFoundError):
        engine.submit(shell("exit 0"))
    assert list(engine.tickets()) == []


# ---- an engine that dies ---------------------------------------------------------------------------------------------


def abandoned(folder: Path, script: str, ready: Callable[[], bool]) -> None:
    """Kills an engine's process while its job runs."""
    words = [sys.executable, "-c", ENGINE_PROGRAM, str(folder), script]
    with subprocess.Popen(words, cwd=ROOT, env={**os.environ, "PYTHONPATH": "."}, stdout=subprocess.PIPE) as process:
        until(ready)
        process.kill()


@pytest.mark.parametrize("written", [True, False])
def test_a_job_ends_with_its_engine_and_a_later_one_knows_what_it_left(tmp_path: Path, written: bool) -> None:
    script = (RESULT_LINE if written else "") + 'touch "$0/began"; exec sleep 60'
    abandoned(tmp_path, script, (tmp_path / "1-1" / "began").exists)
    later = local(tmp_path)
    assert list(later.tickets()) == [Ticket(id="1-1")]
    state = finished(later, Ticket(id="1-1"))
    if written:
        assert state == JobDone(end=Unwatched(), has_result=True)
    else:
        assert state == Lost(why="its process is gone and left no result")
    later.discard(Ticket(id="1-1"))
    assert list(tmp_path.iterdir()) == []


def test_a_job_that_outlives_its_engine_is_recognised_and_can_be_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.engine.local.END_S", 0.3)
    script = 'trap "" TERM; echo news > "$0/events.jsonl"; while :; do sleep 0.1; done'
    news = tmp_path / "1-1" / "events.jsonl"
    abandoned(tmp_path, script, lambda: news.exists() and news.read_text() == "news\n")
    later, ticket = local(tmp_path), Ticket(id="1-1")
    assert later.poll(ticket) == Running(events=("news",))
    number = int((tmp_path / "1-1" / "lock").read_text())
    assert not is_gone(number)
    later.cancel(ticket)
    assert isinstance(later.poll(ticket), Lost)
    until(lambda: is_gone(number))


def test_a_character_whose_bytes_come_one_after_the_other_is_shown_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pieces = [b"caf\xc3", b"\xa9 \xff \xc3"]

    class Slow(FakeEngine):
        def poll(self, ticket: Ticket) -> State:
            with (self._of(ticket) / OUT).open("ab") as out:
                out.write(pieces.pop(0))
            return super().poll(ticket)

    states = (Running(), JobDone(end=Exited(code=0), has_result=False))
    engine = Slow(tmp_path / "jobs", lambda job: Play(states=states))
    monkeypatch.setattr(registry, "make", lambda *arguments: engine)
    assert elsewhere.run("slurm", ["check"], Checkout(tmp_path)) == 0
    assert capsys.readouterr().out == "caf\u00e9 \ufffd \ufffd"
