"""Whatever happens around an evaluation (faults.py has the table), it ends in bounded time and says why, nothing that
was recorded is lost, nothing is left behind, and the next one works.

The faults of a group happen in one copy of the checkout, one after the other, so that each run is the next one of the
run before it; groups may run side by side. What only a person can mend (rights, an edited leaderboard) is mended in
between.
"""

import contextlib
import errno
import fcntl
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import Mock

import pytest
from conftest import COMMAND, copy_checkout, heed_signals, in_use
from faults import FAULTS, MARK, MINE, NOTHING, NOTHING_PLAYED, Fault
from launches import add_tiny
from waiting import until

from harness.board import leaderboard, reports
from harness.cli import popcorn
from harness.core.checkout import ROOT, Checkout
from harness.core.errors import BadFileError, Exit
from harness.core.processes import descendants
from harness.process import sandbox

GROUPS = [pytest.mark.xdist_group(f"faults-{number}") for number in range(4)]
# What the parent has to say is for people; only ranks, and those who start them, show where they went wrong.
OWN_FRAME = re.compile(r'^  File "[^"]*/harness/(?!zygote|rank|sandbox)\w+\.py"', re.MULTILINE)


@dataclass(frozen=True)
class Ended:
    """How a run ended: `seconds` until it and all that it had started was gone, or had to be ended: `left`."""

    code: int
    told: str
    seconds: float
    left: list[str]


class Run:
    """A run in the checkout with a fault injected; its temporary folder is in `folder`."""

    def __init__(self, fault: Fault, checkout: Path, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.fault, self.mark = fault, folder / "reached"
        self.temporary = Path(tempfile.mkdtemp(prefix="fault-"))  # pytest's have too long names for sockets
        self.before = set(descendants(os.getpid()))
        self.read, write = os.pipe()  # no file: some faults keep files from growing
        fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 1 << 20)
        os.set_blocking(self.read, False)
        unread, broken = os.pipe()
        os.close(unread)
        full = os.open("/dev/full", os.O_WRONLY)
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            [*COMMAND, "faults", fault.name, *fault.run],
            cwd=checkout,
            env=os.environ | {"TMPDIR": str(self.temporary), "COLUMNS": "200", "NO_COLOR": "1", MARK: str(self.mark)},
            stdin=subprocess.DEVNULL,
            stdout={"stdout": broken, "full stdout": full}.get(fault.broken, write),
            stderr=broken if fault.broken == "stderr" else write,
            preexec_fn=heed_signals,
        )
        for fd in (write, broken, full):
            os.close(fd)

    def end(self) -> Ended:
        """Waits for it, and for what it leaves to end by itself, as long as the fault may take; ends the rest."""
        last = self.began + self.fault.seconds
        while (alive := self._alive()) and time.monotonic() < last:
            time.sleep(0.02)
        seconds = time.monotonic() - self.began
        left = [Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ") for pid in alive]
        while alive := self._alive():
            for pid in alive:
                os.kill(pid, signal.SIGKILL)
        with open(self.read, encoding="utf-8", errors="replace") as told:
            return Ended(code=self.process.wait(), told=told.read(), seconds=seconds, left=left)

    def _alive(self) -> list[int]:
        self.process.poll()
        alive = []
        for pid in set(descendants(os.getpid())) - self.before:
            with contextlib.suppress(ChildProcessError):  # not ours, or not ended
                if pid != self.process.pid and os.waitpid(pid, os.WNOHANG)[0]:
                    continue
            alive.append(pid)
        return alive


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """With something to lose: an entry and its run. What a run leaves behind becomes a child of this process."""
    folder = copy_checkout(tmp_path_factory.mktemp("faults") / "checkout")
    add_tiny(folder, "a2a")
    shutil.copy(folder / "submissions/a2a/reference.py", folder / MINE)
    sandbox.prctl(sandbox.PR_SET_CHILD_SUBREAPER, 1)
    yield folder
    sandbox.prctl(sandbox.PR_SET_CHILD_SUBREAPER, 0)


def mend(checkout: Path, leaderboard: bytes | None) -> None:
    """What a person would have to mend: rights, what stands in the way, and a spoilt leaderboard, given what it was."""
    for path in (checkout, *(checkout / name for name in ("runs", ".cache", ".cache/compiled", "leaderboard.yaml"))):
        if path.exists():
            path.chmod(path.stat().st_mode | 0o600)
    if (away := checkout / "runs.away").exists():
        (checkout / "runs").unlink()
        away.rename(checkout / "runs")
    path = checkout / "leaderboard.yaml"
    if leaderboard is not None:
        path.rmdir() if path.is_dir() else path.unlink()
        path.write_bytes(leaderboard)
    shutil.copy(checkout / "submissions/a2a/reference.py", checkout / MINE)


def recorded(checkout: Path) -> set[str]:
    """The ids of all runs that the leaderboard knows."""
    entries = leaderboard.load(checkout / "leaderboard.yaml").entries
    return {run.run_id for entry in entries for run in (entry, *entry.history)}


def shared_memory() -> set[str]:
    """But for semaphores, which the harness has none of: other programs make and drop them all the time."""
    return {name for name in os.listdir("/dev/shm") if not name.startswith("sem.")}


def stored(checkout: Path) -> dict[str, str]:
    return {path.parent.name: path.read_text() for path in (checkout / "runs").glob("*/report.json")}


def marks(number: int, fault: Fault) -> list[pytest.MarkDecorator]:
    return [GROUPS[number % len(GROUPS)], *([pytest.mark.slow] if fault.is_slow else [])]


@pytest.mark.parametrize("fault", [pytest.param(one, id=one.name, marks=marks(n, one)) for n, one in enumerate(FAULTS)])
def test_a_fault_ends_as_the_table_says(fault: Fault, checkout: Path, tmp_path: Path) -> None:
    """In time, with its message, nothing lost, nothing left."""
    if fault.needs and not fault.needs[0]():
        pytest.skip(fault.needs[1])
    if not (checkout / "leaderboard.yaml").exists():
        assert Run(NOTHING_PLAYED, checkout, tmp_path / "first").end().code == Exit.OK
    shm, entries, runs = shared_memory(), recorded(checkout), stored(checkout)
    leaderboard = (checkout / "leaderboard.yaml").read_bytes()
    run = Run(fault, checkout, tmp_path / "run")
    try:
        found = run.end()
        assert run.mark.exists(), f"the fault was not injected: {found}"
        assert found.left == [], found
        assert found.code == fault.exit_code, found.told
        assert re.search(fault.says, found.told), found.told
        assert not OWN_FRAME.search(found.told), found.told
        assert os.listdir(run.temporary) == []
        until(lambda: all(name in shm or in_use(name) for name in shared_memory()))  # another test's may be new too
        if fault.exit_code == Exit.BAD_FILE:
            with pytest.raises(BadFileError):
                recorded(checkout)
        else:
            new = recorded(checkout) - entries
            assert recorded(checkout) >= entries
            assert len(new) in fault.recorded
            assert all(reports.find(one, checkout).figures for one in new), "an entry without its run"
            assert all((checkout / "runs" / one / "submission.py").read_text() for one in new), "or without its source"
        if not (checkout / "runs").is_file():
            assert stored(checkout).items() >= runs.items()
    finally:
        mend(checkout, leaderboard if fault.exit_code == Exit.BAD_FILE else None)


@GROUPS[0]
def test_two_evaluations_of_one_file_that_end_at_once_are_both_recorded(checkout: Path, tmp_path: Path) -> None:
    before = recorded(checkout)
    ends = [run.end() for run in [Run(NOTHING_PLAYED, checkout, tmp_path / name) for name in ("one", "other")]]
    assert [(one.code, one.left) for one in ends] == [(Exit.OK, [])] * 2, ends
    assert recorded(checkout) >= before
    assert len(recorded(checkout)) == len(before) + 2
    assert stored(checkout).keys() >= recorded(checkout)


@GROUPS[0]
def test_after_all_of_them_an_evaluation_is_recorded_and_no_scraps_are_left(checkout: Path, tmp_path: Path) -> None:
    before = recorded(checkout)
    found = Run(NOTHING, checkout, tmp_path).end()
    assert (found.code, found.left) == (Exit.OK, []), found.told
    assert len(recorded(checkout)) == len(before) + 1
    assert list(checkout.glob(".*.tmp")) == []
    assert stored(checkout).keys() >= recorded(checkout)


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device", "/tmp/x"), MemoryError()])
def test_kernelbot_gets_a_result_when_the_machine_has_no_more_to_give(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cases").write_text("world_size: 8; m: 64; n: 2880; k: 2880; has_bias: True; seed: 1\n")
    shutil.copy(ROOT / "reference/gemm_rs/reference.py", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(popcorn, "_evaluated", Mock(side_effect=error))
    pairs, code = popcorn.run(popcorn.PopcornOrder(mode="test", cases=Path("cases")), {}, Checkout.here())
    found = dict(pairs)
    assert (found["check"], found["test.0.status"], code) == ("fail", "fail", Exit.ERROR)
    assert re.search("/tmp/x: No space left on device; make room there|no memory left", found["test.0.error"])
