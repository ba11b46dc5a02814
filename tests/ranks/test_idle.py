"""Ranks that are waited for and do nothing at all, which a population gives up before their deadline."""

import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from harness.core.processes import state
from harness.ranks.failure import RankFailure
from harness.ranks.idle import Idleness
from harness.ranks.watch import RanksWatch
from tests.waiting import until

WORK = {
    "sleeps": "import time\nprint(flush=True)\ntime.sleep(60)",
    "computes": "print(flush=True)\nwhile True: pass",
    "waits for one that computes": "import subprocess, sys\n"
    "subprocess.run([sys.executable, '-c', 'print(flush=True)\\nwhile True: pass'])",
}


@pytest.fixture
def pid(request: pytest.FixtureRequest) -> Iterator[int]:
    """A process that does that, in a group of its own."""
    with subprocess.Popen([sys.executable, "-c", WORK[request.param]], stdout=-1, process_group=0) as process:
        assert process.stdout is not None
        process.stdout.readline()
        until(lambda: request.param != "sleeps" or state(process.pid) == "S")  # a busy machine lets it get there late
        yield process.pid
        subprocess.run(["kill", "-9", "--", f"-{process.pid}"], check=True)


@pytest.mark.parametrize(("pid", "is_idle"), list(zip(WORK, (True, False, False), strict=True)), indirect=["pid"])
def test_only_a_rank_none_of_whose_processes_does_anything_is_idle(pid: int, is_idle: bool) -> None:
    now = 0.0
    idleness, ranks = Idleness(lambda: now), [SimpleNamespace(pid=pid)]
    found = []
    for now in (0.5, 1.0, 2.0, 2.5, 5.0):  # noqa: B007  # read by the clock
        found.append(idleness.seconds(ranks))  # type: ignore[arg-type]
    assert found == ([0.0, 0.0, 1.0, 0.0, 4.0] if is_idle else [0.0] * 5)
    ranks[0].pid = 0  # not started yet
    for now in (8.0, 12.0):  # noqa: B007
        assert idleness.seconds(ranks) == 0.0  # type: ignore[arg-type]
    ranks[0].pid = pid
    idleness.begin()
    now = 13.5
    assert idleness.seconds(ranks) == 0.0  # type: ignore[arg-type]


@pytest.mark.parametrize("role", ["candidate", "baseline"])
@pytest.mark.parametrize("idle_s", [None, 3.0])
def test_only_an_idle_candidate_is_given_up_and_where_that_is_asked_for(role: Any, idle_s: float | None) -> None:
    log = SimpleNamespace(total_bytes=0, text=lambda mark=0: "where it is")
    rank = Mock(role=role, rank=0, pid=1, gone="", inbox=[], log=log)
    nothing = dict.fromkeys(("check_zygotes", "freeze", "thaw", "show_stacks", "poll"), lambda *_: None)
    processes: Any = SimpleNamespace(ranks={role: [rank]}, all_ranks=lambda: [rank], idle_s=idle_s, **nothing)
    watch = RanksWatch(processes, role)
    watch._idleness = SimpleNamespace(seconds=lambda ranks: 3.5)  # type: ignore[assignment]
    watch.check_all(float("inf"), [])  # nobody is waited for
    if role == "baseline" or idle_s is None:
        watch.check_all(float("inf"), [rank])  # type: ignore[list-item]
        return
    with pytest.raises(RankFailure) as failed:
        watch.check_all(float("inf"), [rank])  # type: ignore[list-item]
    assert failed.value.outcome.message == "rank 0 timed out: its processes did nothing at all for 3 s"
