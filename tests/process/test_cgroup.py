"""Limits that the kernel keeps, where a cgroup can be made; what is counted where none can."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest
from waiting import until

from harness.process import cgroup, usage
from harness.process.confined import requests

MOST = cgroup.Most(cores=(min(os.sched_getaffinity(0)),), memory_bytes=128 << 20, tasks=8)


@pytest.fixture
def made() -> cgroup.Cgroup:
    group = cgroup.make(MOST)
    if set(group.kept) != {cgroup.CORES, cgroup.MEMORY, cgroup.TASKS}:
        group.end()
        pytest.skip(f"this machine lets us make a cgroup with {', '.join(group.kept) or 'no controller'} alone")
    return group


def inside(group: cgroup.Cgroup, text: str) -> subprocess.CompletedProcess[str]:
    head = f"import os, sys\nsys.path.insert(0, {str(Path.cwd())!r})\nfrom harness.process import cgroup\n"
    source = f"{head}cgroup.join({group.places!r})\n{textwrap.dedent(text)}"
    return subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=300)


def test_cores_memory_and_processes_are_limited(made: cgroup.Cgroup) -> None:
    ran = inside(made, "os.sched_setaffinity(0, range(os.cpu_count()))\nprint(os.sched_getaffinity(0))")
    assert ran.stdout == f"{ {*MOST.cores} }\n"
    ran = inside(made, "file = os.memfd_create('x')\nfor _ in range(32): os.write(file, bytes(1 << 20))\nprint(1)")
    assert (ran.stdout, made.hit()) == ("1\n", set())
    ran = inside(made, "file = os.memfd_create('x')\nwhile True: os.write(file, bytes(1 << 20))")
    assert (ran.returncode, made.hit()) == (-9, {cgroup.MEMORY})
    ran = inside(made, "while os.fork(): pass\nimport time; time.sleep(0.2)")
    assert "BlockingIOError" in ran.stderr
    assert made.hit() == {cgroup.MEMORY, cgroup.TASKS}
    made.end()
    assert not any(Path(place).exists() for place in made.places)


def test_memory_that_nobody_has_mapped_is_in_use(made: cgroup.Cgroup) -> None:
    file = os.memfd_create("x")
    inside(made, f"os.write(os.open('/proc/{os.getpid()}/fd/{file}', os.O_WRONLY), bytes(32 << 20))")
    assert 32 << 20 <= (made.used_bytes() or 0) < 48 << 20
    os.close(file)
    made.end()


def test_whoever_is_still_in_a_group_ends_with_it(made: cgroup.Cgroup) -> None:
    inside(
        made,
        """
        if os.fork() == 0:
            os.setsid()
            nowhere = os.open("/dev/null", os.O_RDWR)
            os.dup2(nowhere, 1), os.dup2(nowhere, 2)
            os.execvp("sleep", ["sleep", "600"])
        """,
    )
    [pid] = {int(line) for place in made.places for line in (Path(place) / "cgroup.procs").read_text().split()}
    assert psutil.pid_exists(pid)
    made.end()
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    assert not any(Path(place).exists() for place in made.places)


def test_version_2_is_used_as_far_as_the_groups_above_pass_it_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A played file system: this machine may have no version 2 with controllers. Below a group with processes that
    passes controllers on, none can be joined, and only threads below a threaded one (tried on Linux 6.1)."""
    own = tmp_path / "user.slice" / "session.scope"
    own.mkdir(parents=True)
    (tmp_path / "user.slice" / cgroup.CHILDREN).write_text("memory pids")
    (own / cgroup.CHILDREN).touch()
    (own / cgroup.TYPE).write_text("domain\n")
    monkeypatch.setattr(cgroup, "_own_groups", lambda: [(tmp_path, own, ())])
    group = cgroup.make(MOST)
    [place] = map(Path, group.places)
    assert group.kept == (cgroup.MEMORY, cgroup.TASKS)
    assert place.parent == tmp_path / "user.slice"
    assert {path.name: path.read_text() for path in place.iterdir()} == {
        "memory.max": str(MOST.memory_bytes),
        "memory.swap.max": "0",
        "pids.max": "8",
    }
    (place / "memory.stat").write_text("anon 5\nfile 9\nshmem 7\n")
    (place / "memory.events").write_text("oom 1\noom_kill 1\n")
    assert (group.used_bytes(), group.hit()) == (12, {cgroup.MEMORY})
    assert (own / cgroup.CHILDREN).read_text() == ""
    (tmp_path / "user.slice" / cgroup.TYPE).write_text("domain threaded\n")
    assert cgroup.make(MOST) == cgroup.Cgroup()


def test_what_nobody_permits_is_a_request_and_said_to_be_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "_own_groups", list)
    assert cgroup.make(MOST) == cgroup.Cgroup()
    [line] = requests((), is_filtered=True)
    assert line.startswith("limits: memory and processes were only a request, since no cgroup can be made here")
    [line] = requests((), is_filtered=False)
    assert line.startswith("limits: cores and memory and processes were only")
    assert requests((cgroup.CORES, cgroup.MEMORY, cgroup.TASKS), is_filtered=False) == ()


def test_files_of_memory_count_once_whether_they_are_mapped_or_not() -> None:
    text = """
        import mmap, os
        file = os.memfd_create("x")
        os.write(file, bytes(64 << 20))
        if {mapped}:
            mmap.mmap(file, 64 << 20).read()
        os.fork()
        os.write(1, b"%d" % os.getpid() + bytes([10]))
        input()
    """
    for mapped in (False, True):
        source = textwrap.dedent(text).format(mapped=mapped)
        child = subprocess.Popen(
            [sys.executable, "-c", source], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        pids = [int(child.stdout.readline()) for _ in range(2)]
        assert 64 << 20 < usage.memory(pids) < 100 << 20
        assert [usage.tasks(pid) for pid in pids] == [1, 1]
        child.communicate("\n\n")
        until(lambda pids=pids: usage.memory(pids) == 0)
