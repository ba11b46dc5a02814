"""The engine that submits to Slurm, against a real one (slurm_cluster.py), and node.py by itself."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import slurm_cluster
import waiting
from serving import SOURCE, served, submit
from slurm_cluster import Cluster
from waiting import in_time, is_gone

from harness.board import leaderboard
from harness.cli import options
from harness.core.errors import BadFileError, Exit
from harness.engine import node, registry, slurm
from harness.engine.base import (
    ERR,
    OUT,
    Cancelled,
    EngineError,
    Exited,
    Job,
    JobDone,
    Lost,
    NotInstalledError,
    Overdue,
    Running,
    State,
    Ticket,
    UnavailableError,
    Waiting,
)
from harness.engine.slurm import SlurmEngine, SlurmSettings, _Seen, _without_end

WAIT_S = 60.0
SETTINGS = SlurmSettings(engine="slurm")


# ---- node.py, as a cluster would start it ----------------------------------------------------------------------------


def ordered(folder: Path, script: str, deadline_s: float = 30.0) -> Path:
    """The folder of a job whose command that is."""
    folder.mkdir()
    order = {
        "command": ["sh", "-c", script],
        "deadline_s": deadline_s,
        "cwd": str(folder),
        "environ": dict(os.environ),
        "out": OUT,
        "err": ERR,
    }
    (folder / node.ORDER).write_text(json.dumps(order))
    return folder


def started(folder: Path) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-I", "-S", node.__file__, str(folder)], stderr=subprocess.PIPE)


def end_of(folder: Path) -> object:
    return json.loads((folder / node.END).read_text())


def test_a_node_tells_how_the_command_ended(tmp_path: Path) -> None:
    folder = ordered(tmp_path / "job", "echo out; echo err >&2; exit 7")
    assert started(folder).wait(120) == 0
    assert end_of(folder) == {"type": "exited", "code": 7}
    assert (folder / OUT).read_text() == "out\n"
    assert (folder / ERR).read_text() == "err\n"


def test_a_node_runs_a_job_once(tmp_path: Path) -> None:
    """A cluster may start a job again that was on a node which came back."""
    folder = ordered(tmp_path / "job", "echo run >> runs")
    assert started(folder).wait(120) == 0
    again = started(folder)
    assert b"never run twice" in again.communicate(timeout=120)[1]
    assert again.returncode == 1
    assert (folder / "runs").read_text() == "run\n"


def test_a_node_ends_a_command_at_its_deadline_with_all_that_it_left(tmp_path: Path) -> None:
    script = "setsid sh -c 'sleep 100; :' & echo $! > child; sleep 100"

    def check(deadline_s: float) -> None:
        folder = ordered(tmp_path / str(deadline_s), script, deadline_s)
        assert started(folder).wait(60) == 0
        assert end_of(folder) == {"type": "overdue"}
        assert (folder / "child").exists(), "it was not begun in that time"
        waiting.until(lambda: is_gone(int((folder / "child").read_text())))

    in_time(check, 0.5, 8.0)


def test_a_node_that_is_asked_to_end_tells_that(tmp_path: Path) -> None:
    folder = ordered(tmp_path / "job", "sleep 100")
    process = started(folder)
    waiting.until((folder / ERR).exists)
    process.terminate()
    assert process.wait(60) == 0
    assert end_of(folder) == {"type": "exited", "code": -signal.SIGTERM}


def test_a_job_that_was_given_up_ends(tmp_path: Path) -> None:
    """Slurm may take a node for dead that is not: what runs there must not record beside its second try."""
    folder = ordered(tmp_path / "job", f"sleep 100; touch {tmp_path}/recorded")
    process = started(folder)
    waiting.until((folder / ERR).exists)
    shutil.rmtree(folder)
    assert process.wait(60) == 0
    assert not (tmp_path / "recorded").exists()


def test_a_command_that_is_not_there_is_named(tmp_path: Path) -> None:
    folder = ordered(tmp_path / "job", "")
    order = json.loads((folder / node.ORDER).read_text()) | {"command": ["/no/such/program"]}
    (folder / node.ORDER).write_text(json.dumps(order))
    assert started(folder).wait(120) == 0
    assert end_of(folder) == {"type": "failed", "why": "/no/such/program: No such file or directory"}


# ---- a full disk -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of 64 KiB there."""
    folder.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        pytest.skip(f"no file system can be mounted here, which root could: {ran.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> None:
    with contextlib.suppress(OSError), (folder / "fill").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1024))


def test_a_command_that_fills_the_disk_has_its_end_all_the_same(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        folder = ordered(disk / "job", "cat /dev/zero > zeros; exit 9")
        assert started(folder).wait(120) == 0
        assert end_of(folder) == {"type": "exited", "code": 9}


def test_a_job_does_not_begin_where_its_disk_is_full(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        folder = ordered(disk / "job", "echo run > /dev/null")
        fill(disk)
        process = started(folder)
        assert b"No space left on device" in process.communicate(timeout=120)[1]
        assert process.returncode == node.NO_ROOM
        assert not (folder / node.STARTED).exists()
        (disk / "fill").unlink()
        assert started(folder).wait(120) == 0
        assert end_of(folder) == {"type": "exited", "code": 0}


def test_a_job_that_has_no_room_may_be_submitted_later(tmp_path: Path) -> None:
    with small_disk(tmp_path / "jobs") as disk:
        fill(disk)
        engine = SlurmEngine(disk, tmp_path, {}, SETTINGS)
        with pytest.raises(UnavailableError, match="No space left on device; free space there"):
            engine.submit(Job(id="one", command=("true",), deadline_s=10))
        assert engine.tickets() == []


@pytest.mark.parametrize(
    ("state", "code", "nodes", "has_begun", "found"),
    [
        ("CANCELLED", 0, "n1", False, Lost),  # slurmd has no room for its script
        ("CANCELLED", 0, "", False, JobDone),  # by scancel, while it waited
        ("CANCELLED", 0, "n1", True, JobDone),
        ("FAILED", node.NO_ROOM, "n1", False, Lost),
        ("FAILED", node.NO_ROOM, "n1", True, JobDone),  # the command's own
        ("FAILED", 127, "n1", False, JobDone),  # no Python there
        ("FAILED", -9, "n1", True, Lost),
        ("NODE_FAIL", 0, "n1", True, Lost),
        ("TIMEOUT", 0, "n1", True, JobDone),
    ],
)
def test_slurms_last_word(state: str, code: int, nodes: str, has_begun: bool, found: type) -> None:
    assert isinstance(_without_end(_Seen("7", state, nodes, code), has_begun), found)


# ---- Slurm's commands, played ---


REFUSED = "echo 'Unable to contact slurm controller' >&2; exit 1"
UP = "echo 'Slurmctld(primary) at host is UP'"


class Played:
    """Slurm's commands as scripts of the shell's, and an engine that calls them; `says` sets what one does."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.jobs = folder / "bin", folder / "jobs"
        self.folder.mkdir()
        self.says("sbatch", "echo 7")
        self.says("squeue", "true")
        self.says("scancel", "true")
        self.says("scontrol", f"[ $1 = ping ] && {UP} || exit 1")
        self.engine = SlurmEngine(self.jobs, folder, {}, SETTINGS)

    def says(self, command: str, script: str) -> None:
        (self.folder / command).write_text(f"#!/bin/sh\n{script}\n")
        (self.folder / command).chmod(0o755)

    def submit(self) -> Ticket:
        return self.engine.submit(Job(id="one", command=("true",), deadline_s=10))

    def name(self) -> str:
        return f"{self.engine._prefix}one"


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Played:
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    for limit in ("LOOK_S", "SETTLE_S"):
        monkeypatch.setattr(slurm, limit, 0.0)
    return Played(tmp_path)


def test_a_job_is_not_lost_while_slurm_is_silent_about_it(played: Played) -> None:
    """Whether it was silent from the start, or the job was submitted since."""
    played.says("squeue", REFUSED)
    ticket = played.submit()
    assert isinstance(played.engine.poll(ticket), Waiting)
    (played.jobs / "one" / node.STARTED).touch()
    assert isinstance(played.engine.poll(ticket), Running)
    later = SlurmEngine(played.jobs, played.jobs, {}, SETTINGS)
    assert isinstance(later.poll(ticket), Running)
    played.says("squeue", "true")
    played.says("scontrol", REFUSED)
    assert isinstance(later.poll(ticket), Running)
    played.says("scontrol", f"[ $1 = ping ] && {UP} || exit 1")
    assert isinstance(later.poll(ticket), Lost)


def test_a_job_that_squeue_lacks_and_scontrol_has_is_not_lost(played: Played) -> None:
    ticket = played.submit()
    for state, found in (("RUNNING", Waiting), ("PENDING", Waiting), ("NODE_FAIL", Lost)):
        played.says("scontrol", f"echo JobId=7 JobState={state} NodeList=n1 ExitCode=0:0")
        assert isinstance(played.engine.poll(ticket), found)


def test_the_end_of_a_job_that_slurm_saw_end_may_be_seen_late(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nodes' file system is one over a network."""
    ticket = played.submit()
    played.says("scontrol", "echo JobId=7 JobState=COMPLETED NodeList=n1 ExitCode=0:0")
    (played.jobs / "one" / node.STARTED).touch()
    assert isinstance(played.engine.poll(ticket), Running)
    (played.jobs / "one" / node.END).write_text(json.dumps({"type": "exited", "code": 3}))
    assert played.engine.poll(ticket) == JobDone(end=Exited(code=3), has_result=False)
    (played.jobs / "one" / node.END).unlink()
    monkeypatch.setattr(slurm, "LATE_S", 0.0)
    assert isinstance(played.engine.poll(ticket), Lost)


@pytest.mark.parametrize(
    ("printed", "number"),
    [
        ("12;main", "12"),
        ("Welcome to the cluster, 5 nodes are up\n12;main", "12"),
        ("Submitted batch job 12 on cluster main", "12"),
        ("quota: 80 %", ""),
    ],
)
def test_a_jobs_number_is_found_in_whatever_sbatch_prints(played: Played, printed: str, number: str) -> None:
    """Where it is not, the job is known by its name all the same."""
    played.says("sbatch", f"echo '{printed}'")
    played.says("squeue", f"echo '{played.name()}|12|PENDING|'")
    ticket = played.submit()
    assert played.engine.number(ticket) == number
    assert isinstance(played.engine.poll(ticket), Waiting)


def test_names_of_other_jobs_may_have_any_bytes(played: Played) -> None:
    ticket = played.submit()
    played.says("squeue", rf"printf 'm\374ll|6|RUNNING|n1\n{played.name()}|7|PENDING|\n'")
    assert isinstance(played.engine.poll(ticket), Waiting)


def test_a_job_that_cannot_be_cancelled_is_named(played: Played) -> None:
    ticket = played.submit()
    played.says("squeue", f"echo '{played.name()}|7|RUNNING|n1'")
    played.says("scancel", REFUSED)
    with pytest.raises(EngineError, match=r"^job 7 may still run, `scancel` it later: scancel refused: [^;]*$"):
        played.engine.discard(ticket)


# ---- what is asked for -----------------------------------------------------------------------------------------------


def test_the_command_for_the_other_machine_is_the_same_without_its_engine() -> None:
    command = ["eval", "a2a", "--engine", "slurm", "--ranks", "2", "--engine=slurm", "--engine", "slurm"]
    assert options.without_engine(command) == ["eval", "a2a", "--ranks", "2"]
    assert set(options.ENGINES) == set(registry.ENGINES)
    assert options.HERE == registry.LOCAL


def test_a_mistake_in_engine_yaml_is_named(tmp_path: Path) -> None:
    for text, said in (
        ("engine: slurm\npartitoin: gpu\n", "partitoin"),
        ("engine: pbs\n", "engine"),
        ("engine: slurm\ntime_limit_min: 0\n", "expected at least 1"),
        ("engine: slurm\njobs_at_once: 0\n", "jobs_at_once: 0: expected at least 1"),
        ("engine: slurm\ngpus_per_node: many\n", "gpus_per_node"),
    ):
        (tmp_path / registry.FILE).write_text(text)
        with pytest.raises(BadFileError, match=said):
            registry.slurm_settings(tmp_path)
    (tmp_path / registry.FILE).write_text("engine: slurm\npartition: gpu\ngpus_per_node: 8\nexclusive: true\n")
    assert registry.slurm_settings(tmp_path).sbatch() == ["--partition=gpu", "--gpus-per-node=8", "--exclusive"]


def test_where_slurm_is_not_installed_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    engine = SlurmEngine(tmp_path / "jobs", tmp_path, {}, SETTINGS)
    with pytest.raises(NotInstalledError, match="sbatch: not installed here") as raised:
        engine.submit(Job(id="one", command=("true",), deadline_s=10))
    assert raised.value.exit_code == Exit.USAGE
    assert engine.tickets() == []


# ---- a real one ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if why := slurm_cluster.missing():
        pytest.skip(why)
    made = Cluster(tmp_path_factory.mktemp("slurm"), nodes=("n1", "n2"), cores=2)
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture
def engine(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlurmEngine:
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, cluster.environ[name])
    return SlurmEngine(tmp_path / "jobs", tmp_path, dict(os.environ), SETTINGS)


def job(name: str, script: str, deadline_s: float = 60.0) -> Job:
    return Job(id=name, command=("sh", "-c", script), deadline_s=deadline_s)


def until(engine: SlurmEngine, name: str, found: Callable[[State], bool]) -> State:
    """The job's first state of that kind."""
    deadline = time.monotonic() + WAIT_S
    while not found(state := engine.poll(job(name, "").ticket)):
        assert time.monotonic() < deadline, state
        time.sleep(0.1)
    return state


def end(engine: SlurmEngine, name: str) -> State:
    return until(engine, name, lambda state: isinstance(state, JobDone | Lost))


def runs(state: State) -> bool:
    return isinstance(state, Running)


def commanded(checkout: Path, cluster: Cluster, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "harness", *arguments],
        cwd=checkout,
        env=cluster.environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.slurm
@pytest.mark.xdist_group("slurm")
class TestCluster:
    """One after the other: some of these take a node or the controller away."""

    def test_jobs_end_as_they_end_and_leave_their_files(self, engine: SlurmEngine, tmp_path: Path) -> None:
        script = "echo 1 > {job}/events.jsonl; echo '{\"a\": 1}' > {job}/result.json; exit 3"
        for name in ("a", "b", "c"):
            engine.submit(job(name, script))
        for name in ("a", "b", "c"):
            assert end(engine, name) == JobDone(end=Exited(code=3), has_result=True)
        folder = engine.fetch(job("a", "").ticket, tmp_path)
        assert json.loads((folder / "result.json").read_text()) == {"a": 1}
        engine.discard(job("a", "").ticket)
        assert [ticket.id for ticket in engine.tickets()] == ["b", "c"]

    def test_a_job_waits_where_there_is_no_room_and_can_be_cancelled(self, engine: SlurmEngine) -> None:
        wide = SlurmEngine(engine._folder, engine._cwd, dict(os.environ), SlurmSettings(engine="slurm", exclusive=True))
        for name in ("first", "second", "third"):
            wide.submit(job(name, "sleep 100"))
        for name in ("first", "second"):
            until(wide, name, runs)
        assert until(wide, "third", lambda state: True) == Waiting()
        for name in ("third", "first", "second"):
            wide.cancel(job(name, "").ticket)
            assert end(wide, name) == JobDone(end=Cancelled(), has_result=False)

    def test_a_job_that_somebody_else_cancels_is_done_not_lost(self, engine: SlurmEngine, cluster: Cluster) -> None:
        ticket = engine.submit(job("one", "sleep 100"))
        waiting.until((engine._folder / "one" / node.STARTED).exists, WAIT_S)
        cluster.asked("scancel", engine.number(ticket))
        assert end(engine, "one") == JobDone(end=Exited(code=-signal.SIGTERM), has_result=False)

    def test_a_deadline_is_kept_to_the_second(self, engine: SlurmEngine) -> None:
        engine.submit(job("late", "sleep 100", deadline_s=1.0))
        assert end(engine, "late") == JobDone(end=Overdue(), has_result=False)

    def test_a_refusal_of_slurms_is_told_and_leaves_nothing(self, engine: SlurmEngine) -> None:
        picky = SlurmEngine(engine._folder, engine._cwd, {}, SlurmSettings(engine="slurm", partition="none"))
        with pytest.raises(EngineError, match=r"sbatch refused: .*partition"):
            picky.submit(job("one", "true"))
        assert picky.tickets() == []

    def test_two_users_of_one_cluster_do_not_meet(self, engine: SlurmEngine, tmp_path: Path) -> None:
        other = SlurmEngine(tmp_path / "others", tmp_path, dict(os.environ), SETTINGS)
        for one, code in ((engine, 4), (other, 5)):
            one.submit(job("same", f"sleep 1; exit {code}"))
        other.cancel(job("same", "").ticket)
        assert end(engine, "same") == JobDone(end=Exited(code=4), has_result=False)

    def test_an_engine_that_is_started_again_finds_its_jobs(self, engine: SlurmEngine) -> None:
        engine.submit(job("one", "sleep 2; exit 6"))
        again = SlurmEngine(engine._folder, engine._cwd, dict(os.environ), SETTINGS)
        assert [ticket.id for ticket in again.tickets()] == ["one"]
        assert end(again, "one") == JobDone(end=Exited(code=6), has_result=False)

    def test_a_controller_that_is_started_again_loses_no_job(self, engine: SlurmEngine, cluster: Cluster) -> None:
        engine.submit(job("one", "sleep 4; exit 8"))
        until(engine, "one", runs)
        cluster.stop_controller()
        assert isinstance(engine.poll(job("one", "").ticket), Running), "the last known state stands"
        cluster.start_controller()
        assert end(engine, "one") == JobDone(end=Exited(code=8), has_result=False)

    def test_a_job_whose_node_dies_is_lost(self, engine: SlurmEngine, cluster: Cluster) -> None:
        ticket = engine.submit(job("one", "sleep 100"))
        until(engine, "one", runs)
        node_name = cluster.asked("squeue", "--noheader", f"--job={engine.number(ticket)}", "--format=%N").strip()
        cluster.kill(node_name)
        state = end(engine, "one")
        assert isinstance(state, Lost)
        assert "NODE_FAIL" in state.why
        cluster.start_node(node_name)

    def test_a_node_whose_spool_folder_is_full_loses_no_job(self, engine: SlurmEngine, cluster: Cluster) -> None:
        """Slurm cancels the job there, and nobody asked it to; on another node it runs."""
        idle = ("sinfo", "--noheader", "--Node", "--states=idle", "--format=%N")
        waiting.until(lambda: cluster.asked(*idle).split() != [], WAIT_S)
        full = cluster.asked(*idle).split()[0]
        first = SlurmSettings(engine="slurm", options=(f"--nodelist={full}",))
        unlucky = SlurmEngine(engine._folder, engine._cwd, dict(os.environ), first)
        with small_disk(cluster.folder / f"spool-{full}") as disk:
            fill(disk)
            unlucky.submit(job("one-1", "exit 3"))
            state = end(unlucky, "one-1")
        assert isinstance(state, Lost)
        assert "could not start job" in state.why
        cluster.kill(full)
        cluster.start_node(full)
        cluster.asked("scontrol", "update", f"NodeName={full}", "State=RESUME")
        engine.submit(job("one-2", "exit 3"))
        assert end(engine, "one-2") == JobDone(end=Exited(code=3), has_result=False)

    def test_an_evaluation_there_is_recorded_as_one_here(self, checkout: Path, cluster: Cluster) -> None:
        """The same command, told where to run: the same exit code, text and entry."""
        command = ["eval", "a2a", "--ranks", "2", "--suite", "quick", "--seconds", "0.05", "--author"]
        for author, where in (("here", ()), ("there", ("--engine", "slurm"))):
            ran = commanded(checkout, cluster, *command, author, *where)
            assert ran.returncode == 0, ran.stdout + ran.stderr
            assert "\nverdict  pass" in ran.stdout
            assert "benchmark" in ran.stderr, "progress is shown while it runs"
        here, there = leaderboard.load(checkout / "leaderboard.yaml").entries
        assert {here.author, there.author} == {"here", "there"}
        assert (here.sha256, here.machine, here.suite) == (there.sha256, there.machine, there.suite)
        wrong = commanded(checkout, cluster, "check", "a2a", "no/such.py", "--engine", "slurm")
        assert wrong.returncode == Exit.USAGE
        assert "no/such.py" in wrong.stderr

    def test_ranks_of_one_evaluation_run_on_both_nodes(self, checkout: Path, cluster: Cluster) -> None:
        """srun starts an agent on each; 16 ranks of the shipped submission, which falls back to collectives there."""
        (checkout / registry.FILE).write_text("engine: slurm\nnodes: 2\n")
        command = ["check", "a2a", "--ranks", "16", "--nodes", "2", "--suite", "nodes", "--engine", "slurm"]
        ran = commanded(checkout, cluster, *command)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        refused = commanded(checkout, cluster, *command, "--nodes", "4")
        assert refused.returncode == Exit.USAGE
        assert "this Slurm job has 2 nodes" in refused.stderr

    def test_submissions_to_a_server_are_jobs(self, engine: SlurmEngine, tmp_path: Path) -> None:
        """What popcorn-cli sends: evaluated on two nodes at once, each told to its submitter once, also where the
        server is started again meanwhile."""

        def two_at_once() -> SlurmEngine:
            settings = SlurmSettings(engine="slurm", jobs_at_once=2, exclusive=True)
            return SlurmEngine(engine._folder, engine._cwd, dict(os.environ), settings)

        sources = (f"{SOURCE}# seconds\n", f"{SOURCE}# seconds, wrong\n# wrong\n", SOURCE)
        with (
            served(tmp_path / "queue", engine=two_at_once()) as first,
            first.client({"X-Popcorn-Cli-Id": "ada:1"}) as ada,
        ):
            ids = [submit(ada, source, name=f"{index}.py") for index, source in enumerate(sources)]
            waiting.until(lambda: [row.id for row in first.service.store.running()] == ids[:2], WAIT_S)
            waiting.until(lambda: first.begun() != [], WAIT_S)
        with served(tmp_path / "queue", engine=two_at_once()) as second:
            store = second.service.store
            waiting.until(lambda: all(store.get(one).done for one in ids), WAIT_S)
            assert [store.get(one).state for one in ids] == ["succeeded", "failed", "succeeded"]
            assert sorted(second.begun()) == ids
            assert {store.get(one).attempt for one in ids} == {1}
            waiting.until(lambda: engine.tickets() == [])  # nothing of a job is kept once its outcome is
