"""What can go wrong around an evaluation, a row a fault, and how each one has to end; test_faults.py goes through them.

As a program, `python tests/preloaded.py faults NAME ARGUMENT...` is `python -m harness ARGUMENT...` with that fault
injected: the row's function is called in the evaluation's own process when its moment comes.
"""

import contextlib
import ctypes
import errno
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import prefork

from harness.core.records import Passed
from harness.process import sandbox

# before: nothing has begun. plan: what was asked for is known, and nothing started. spawn: the process that ranks are
# forked from is there. start: the first rank was forked. import, clock, test, benchmark: the phase's first commands are
# out. end: all is told to end. store, show: what was measured is about to be recorded, to be printed.
Moment = Literal["before", "plan", "spawn", "start", "import", "clock", "test", "benchmark", "end", "store", "show"]
Does = Callable[[Any], None]  # gets the evaluation's harness.ranks.launch.Ranks; None before and after it

MINE = "submissions/a2a/mine.py"
CHECK = ("check", "a2a", MINE, "--ranks", "2", "--suite", "tiny")
EVAL = ("eval", "a2a", MINE, "--ranks", "2", "--suite", "tiny", "--seconds", "0.02", "--author", "tester")
PLAYED = ("eval", "gemm_rs", "--author", "tester")  # nothing is started; a report is played
HASTY = (*CHECK, "--timeout", "2")
MARK = "FAULT_INJECTED"  # the variable that names a file, which is there once the moment has come
MOST_S = 120.0
BOARD_SCRATCH = ".leaderboard.yaml.tmp"

INTERRUPTED, KILLED = 130, -signal.SIGKILL


def nothing(ranks: Any) -> None:
    """That the moment comes is all."""


@dataclass(frozen=True)
class Fault:
    """`says` is a pattern of what is printed, `seconds` how long all of it may take, processes that it leaves to end
    by themselves included; `needs` a condition without which this machine cannot play it, and why."""

    name: str
    at: Moment
    does: Does
    exit_code: int
    says: str = ""
    run: tuple[str, ...] = CHECK
    seconds: float = MOST_S
    needs: tuple[Callable[[], bool], str] | None = None
    broken: str = ""  # the stream that nobody reads, or that has no room: stdout, stderr or "full stdout"

    @property
    def is_played(self) -> bool:
        return self.run[: len(PLAYED)] == PLAYED

    @property
    def is_slow(self) -> bool:
        """Whether it differs from others in the moment alone, and is not the first, middle or last of them."""
        return self.name.startswith("kill -9") and self.at in ("start", "import", "benchmark")

    @property
    def recorded(self) -> tuple[int, ...]:
        """How many entries there may be more afterwards."""
        if self.run[0] != "eval":
            return (0,)
        if self.at == "show":
            return (1,)
        return (0, 1) if self.at == "store" and self.exit_code in (KILLED, INTERRUPTED) else (int(self.exit_code == 0),)


# ---- what is done ------------------------------------------------------------------------------------------------


def send(number: int, to: str) -> Does:
    """A signal to the parent, the zygote, the cell that candidate ranks are forked from, or a rank ("trusted 1")."""

    def does(ranks: Any) -> None:
        role, _, rank = to.partition(" ")
        if rank:
            while not (pid := ranks.ranks[role][int(rank)].pid):
                ranks.poll(0.1)
        else:
            pids = {"parent": os.getpid, "zygote": lambda: ranks.zygotes.processes[0].pid, "cell": lambda: _cell(ranks)}
            pid = pids[role]()
        with contextlib.suppress(ProcessLookupError):  # at the end it may be gone already
            os.kill(pid, number)

    return does


def kill(*each: str) -> Does:
    return both(*(send(signal.SIGKILL, to) for to in each))


def kill_unheard(to: str) -> Does:
    """A rank, before the parent has heard that it has started, however late the signal gets to it."""
    role, _, rank = to.partition(" ")

    def mute(ranks: Any) -> None:
        member = ranks.ranks[role][int(rank)]
        ranks.selector.unregister(member.sock)
        member.inbox.clear()

    return both(mute, kill(to))


def both(*each: Does) -> Does:
    def does(ranks: Any) -> None:
        for one in each:
            one(ranks)

    return does


def stop(to: str) -> Does:
    return send(signal.SIGSTOP, to)


def impatient(ranks: Any) -> None:
    """The parent waits half a second for its zygote in the place of FROZEN_S."""
    from harness.ranks import launch

    launch.FROZEN_S = 0.5


def keep_stopped(rank: int) -> Does:
    """A candidate rank, again and again: the parent lets its group go on whenever it is on turn."""

    def does(ranks: Any) -> None:
        member = ranks.ranks["candidate"][rank]

        def again() -> None:
            with contextlib.suppress(ProcessLookupError):
                while not member.gone:
                    os.kill(member.pid, signal.SIGSTOP)
                    time.sleep(0.001)

        threading.Thread(target=again, daemon=True).start()

    return does


def freeze_candidates(ranks: Any) -> None:
    """They have stopped, and go on only if the zygote lets them."""
    ranks.freeze("candidate")
    ranks.wait_frozen()


def order_often(ranks: Any) -> None:
    """The candidates' cell has orders that it has not read."""
    for _ in range(20):
        ranks.freeze("candidate")
        ranks.thaw("candidate")


def _cell(ranks: Any) -> int:
    stat = Path(f"/proc/{ranks.ranks['candidate'][1].pid}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])


def pause(ranks: Any) -> None:
    """The parent is stopped for a second, as by Ctrl-Z and `fg`."""
    goes_on = f"until grep -q ') T' /proc/{os.getpid()}/stat; do sleep 0.1; done; sleep 1; kill -CONT {os.getpid()}"
    os.posix_spawn("/bin/sh", ["sh", "-c", goes_on], os.environ)
    os.kill(os.getpid(), signal.SIGSTOP)


def interrupt_twice(ranks: Any) -> None:
    """The second Ctrl-C comes while the first one's work is done."""
    real = ranks.poll

    def poll(timeout_s: float) -> None:
        ranks.poll = real
        os.kill(os.getpid(), signal.SIGINT)

    ranks.poll = poll
    os.kill(os.getpid(), signal.SIGINT)


def limit(what: int, most: int) -> Does:
    return lambda ranks: resource.setrlimit(what, (most, most))


def out_of_memory(ranks: Any) -> None:
    """The parent may not have one page more, and asks for some."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize(),) * 2)
    bytearray(1 << 30)


def close(*fds: int) -> Does:
    def does(ranks: Any) -> None:
        for fd in fds:
            os.close(fd)
            setattr(sys, ("stdin", "stdout", "stderr")[fd], None)  # as Python has it that was started so

    return does


def write(file: str, text: str) -> Does:
    def does(ranks: Any) -> None:
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).write_text(text)

    return does


def cut_off(file: str) -> Does:
    """The file ends where a mapping has just begun."""
    return lambda ranks: os.truncate(file, Path(file).read_bytes().rindex(b"{") + 1)


def put(file: str, make: Callable[[str], object]) -> Does:
    """Something else is where the file was."""

    def does(ranks: Any) -> None:
        if os.path.isdir(file):
            os.rename(file, f"{file}.away")
        else:
            Path(file).unlink(missing_ok=True)
        make(file)

    return does


def each_peaks(text: str) -> Does:
    def does(ranks: Any) -> None:
        for file in Path(".cache").glob("peaks-*.json"):
            file.write_text(text)

    return does


def unwritable(*paths: str) -> Does:
    """Taken from whoever it is, root too: without its capabilities it has to ask as anybody."""

    def does(ranks: Any) -> None:
        for path in paths:
            os.chmod(path, os.stat(path).st_mode & ~0o222)
        sandbox._capabilities(None)  # type: ignore[arg-type]

    return does


def full(folder: str) -> Does:
    """A disk of a few pages lies over the folder, and is full."""

    def does(ranks: Any) -> None:
        target = Path(os.path.expandvars(folder))
        tempfile.gettempdir()  # it is chosen while there was room
        uid, gid, libc = os.getuid(), os.getgid(), ctypes.CDLL(None, use_errno=True)
        if libc.unshare(sandbox.CLONE_NEWNS) != 0:
            assert libc.unshare(sandbox.CLONE_NEWNS | sandbox.CLONE_NEWUSER) == 0
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
            Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
        assert libc.mount(b"none", b"/", None, sandbox.MS_REC | sandbox.MS_PRIVATE, None) == 0
        assert libc.mount(b"tmpfs", os.fsencode(target), b"tmpfs", 0, b"size=64k,mode=1777") == 0
        with contextlib.suppress(OSError), open(target / "filling", "wb", buffering=0) as filling:
            while True:
                filling.write(bytes(4096))

    return does


def no_larger_files(ranks: Any) -> None:
    """A disk quota: no file grows."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def step_clock(seconds: float) -> Does:
    """The wall clock jumps."""

    def does(ranks: Any) -> None:
        real, real_ns = time.time, time.time_ns
        time.time = lambda: real() + seconds
        time.time_ns = lambda: real_ns() + int(seconds * 1e9)

    return does


def lose_folder(ranks: Any) -> None:
    while ranks.launch.folder.exists():  # ranks go on writing there
        shutil.rmtree(ranks.launch.folder, ignore_errors=True)


def leave_folder(ranks: Any) -> None:
    """The working folder is gone."""
    gone = Path(os.environ["TMPDIR"]) / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()


def unset(*names: str) -> Does:
    def does(ranks: Any) -> None:
        for name in names:
            del os.environ[name]

    return does


def hold_lock(ranks: Any) -> None:
    """Somebody else is writing, and goes on doing so for a moment."""
    code = (
        "import fcntl, time; f = open('.leaderboard.lock', 'w'); fcntl.flock(f, 2); print(1, flush=True); time.sleep(1)"
    )
    other = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert other.stdout is not None
    other.stdout.readline()


def power_cut(step: Literal["write", "sync", "rename", "told"]) -> Does:
    """The lights go out before this step of writing the leaderboard: what was not synced is lost, then the process."""

    def does(ranks: Any) -> None:
        durable = {path.stat().st_ino for path in Path().rglob("*")}
        real_fsync, real_replace, real_open = os.fsync, os.replace, os.open

        def cut() -> None:
            for path in (*Path().glob("*"), *Path("runs").rglob("*")):
                if path.is_file() and path.stat().st_ino not in durable:
                    path.chmod(0o600)
                    os.truncate(path, 0)
            os.kill(os.getpid(), signal.SIGKILL)

        def opened(path: Any, *arguments: Any, **named: Any) -> int:
            if step == "write" and os.fspath(path).endswith(BOARD_SCRATCH):
                cut()
            return real_open(path, *arguments, **named)

        def synced(fd: int) -> None:
            name = os.readlink(f"/proc/self/fd/{fd}")
            if step == "sync" and name.endswith(BOARD_SCRATCH):
                cut()
            if step == "told" and name == os.getcwd():
                cut()
            real_fsync(fd)
            durable.add(os.fstat(fd).st_ino)

        def renamed(source: Any, target: Any, **named: Any) -> None:
            if step == "rename" and str(target).endswith("leaderboard.yaml"):
                cut()
            real_replace(source, target, **named)

        os.fsync, os.replace, os.open = synced, renamed, opened

    return does


def at_board(does: Callable[[], None]) -> Does:
    """When the leaderboard's new text is to be synced."""

    def later(ranks: Any) -> None:
        real = os.fsync

        def synced(fd: int) -> None:
            if os.readlink(f"/proc/self/fd/{fd}").endswith(BOARD_SCRATCH):
                does()
            real(fd)

        os.fsync = synced

    return later


def no_room() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def touch(file: str) -> None:
    Path(file).touch()


# ---- the table ---------------------------------------------------------------------------------------------------

MOUNTS = (sandbox.has_namespaces, "no namespace of mounts is permitted here")
ZERO_RATES = '{"flops_per_s": 0.0, "hbm_bytes_per_s": 0.0, "link_bytes_per_s": 0.0, "source": "a disk error"}'
ZERO_PEAKS = f'{{"peaks": {ZERO_RATES}, "count": 1, "first": "2026-05-01", "last": "2026-05-01", "load": 0.0}}'
NOT_STARTED = "error: the ranks could not be started: "
KILLED_BY = r"was killed by SIGKILL \(often the kernel's answer to running out of memory\)"
REFUSED = f"error: {KILLED_BY}" + r" \((a judge \(trusted|the reference \(baseline) rank 1\)\): a2a does not run here"
# The control run passes, since nobody kills its judges.
HELD = rf"broke its judge.*(a judge \(trusted|the reference \(baseline) rank 1\) failed: {KILLED_BY}"
CANDIDATE = "candidate|rank 1"
WITH_ZYGOTE = "ended with the process that ranks are forked from"
CRASHED = "verdict  .*rank 1 was killed by SIGKILL|crashed"
STOPPED = "interrupted: every rank is ended"
BOARD = "error: leaderboard.yaml"
UNWRITABLE = BOARD + ".*--no-record"

FAULTS = [
    # the parent
    Fault("kill -9 of the parent, spawn", "spawn", kill("parent"), KILLED),
    Fault("kill -9 of the parent, start", "start", kill("parent"), KILLED),
    Fault("kill -9 of the parent, import", "import", kill("parent"), KILLED),
    Fault("kill -9 of the parent, test", "test", kill("parent"), KILLED),
    Fault("kill -9 of the parent, benchmark", "benchmark", kill("parent"), KILLED, run=EVAL),
    Fault("kill -9 of the parent, end", "end", kill("parent"), KILLED),
    Fault("the parent is stopped and goes on, test", "test", pause, 0),
    Fault("SIGINT, spawn", "spawn", send(signal.SIGINT, "parent"), INTERRUPTED, STOPPED),
    Fault("SIGHUP, start", "start", send(signal.SIGHUP, "parent"), INTERRUPTED, STOPPED),
    Fault("SIGTERM, import", "import", send(signal.SIGTERM, "parent"), INTERRUPTED, STOPPED),
    Fault("SIGINT, test", "test", send(signal.SIGINT, "parent"), INTERRUPTED, STOPPED),
    Fault("SIGTERM, benchmark", "benchmark", send(signal.SIGTERM, "parent"), INTERRUPTED, STOPPED, run=EVAL),
    Fault("SIGINT, end", "end", send(signal.SIGINT, "parent"), INTERRUPTED, STOPPED),
    Fault("SIGINT twice", "test", interrupt_twice, INTERRUPTED, STOPPED),
    # the processes below it
    Fault("kill -9 of the zygote, spawn", "spawn", kill("zygote"), 1, NOT_STARTED + WITH_ZYGOTE),
    Fault("kill -9 of the zygote, start", "start", kill("zygote"), 1, NOT_STARTED + WITH_ZYGOTE),
    Fault("kill -9 of the zygote, import", "import", kill("zygote"), 1, WITH_ZYGOTE),
    Fault("kill -9 of the zygote, test", "test", kill("zygote"), 1, WITH_ZYGOTE),
    Fault("kill -9 of the zygote, benchmark", "benchmark", kill("zygote"), 1, WITH_ZYGOTE, run=EVAL),
    Fault("kill -9 of the zygote, end", "end", kill("zygote"), 0),
    Fault("kill -9 of the candidates' cell, test", "test", kill("cell"), 112, "SIGKILL"),
    Fault("kill -9 of a cell with orders, test", "test", both(stop("cell"), order_often, kill("cell")), 112, "SIGKILL"),
    Fault(
        "the zygote is stopped, test",
        "test",
        both(impatient, stop("zygote")),
        1,
        "forked from did not answer",
        run=HASTY,  # where a rank has to answer first, it ends with the phase's deadline
    ),
    Fault(
        "the zygote is stopped while it keeps candidates stopped, test",
        "test",
        both(freeze_candidates, stop("zygote")),
        1,
        "forked from did not answer",
        run=HASTY,
    ),
    Fault("kill -9 of a trusted rank, start", "start", kill_unheard("trusted 0"), 1, NOT_STARTED + "was killed"),
    Fault("kill -9 of a trusted rank, import", "import", kill("trusted 1"), 2, REFUSED),
    Fault("kill -9 of a trusted rank, test", "test", kill("trusted 1"), 112, HELD),
    Fault("kill -9 of a trusted rank, benchmark", "benchmark", kill("trusted 1"), 112, HELD, run=EVAL),
    Fault("a trusted rank is stopped, test", "test", stop("trusted 1"), 1, "trusted rank 1 timed out", run=HASTY),
    Fault("kill -9 of a baseline rank, start", "start", kill_unheard("baseline 0"), 1, NOT_STARTED + "was killed"),
    Fault("kill -9 of a baseline rank, import", "import", kill("baseline 1"), 2, REFUSED),
    Fault("kill -9 of a baseline rank, test", "test", kill("baseline 1"), 112, HELD),
    Fault("kill -9 of a baseline rank, benchmark", "benchmark", kill("baseline 1"), 112, HELD, run=EVAL),
    Fault("kill -9 of a candidate rank, start", "start", kill_unheard("candidate 0"), 1, NOT_STARTED + "was killed"),
    Fault("kill -9 of a candidate rank, import", "import", kill("candidate 1"), 112, CRASHED),
    Fault("kill -9 of a candidate rank, test", "test", kill("candidate 1"), 112, CRASHED),
    Fault("kill -9 of a candidate rank, benchmark", "benchmark", kill("candidate 1"), 112, CRASHED, run=EVAL),
    Fault("kill -9 of a rank of each kind, end", "end", kill("trusted 1", "baseline 1", "candidate 1"), 0),
    Fault("a candidate rank is stopped, test", "test", keep_stopped(1), 114, "1 timed out", run=HASTY),
    # memory, descriptors, clocks, streams
    Fault("the parent is out of memory, test", "test", out_of_memory, 1, "error: .*memory"),
    Fault("no memory to start ranks in", "before", limit(resource.RLIMIT_AS, 400 << 20), 1, "error: "),
    Fault("31 open files", "before", limit(resource.RLIMIT_NOFILE, 31), 2, "error: .*ulimit -n"),
    Fault("the clock goes back a year, test", "test", step_clock(-3.2e7), 0, "pass"),
    Fault("no standard input, output or errors", "before", close(0, 1, 2), 0),
    Fault("nobody reads the output", "show", nothing, 1, run=PLAYED, broken="stdout"),
    Fault("nobody reads the errors", "before", nothing, 1, broken="stderr"),
    Fault("no room for the output", "show", nothing, 1, "error: ", run=PLAYED, broken="full stdout"),
    Fault("no HOME, no name", "before", unset("HOME"), 0, "pass"),
    Fault("the working folder is gone", "before", leave_folder, 1, "error: the working folder is gone"),
    # files
    Fault(
        "the run's folder is removed, clock", "clock", lose_folder, 1, "error: .*removed", run=(*EVAL, "--timeout", "2")
    ),
    Fault("the submission is changed, start", "start", write(MINE, "1 / 0"), 0, "pass"),
    Fault("full temporary folder", "before", full("$TMPDIR"), 1, "error: .*No space left", needs=MOUNTS),
    Fault("full /dev/shm", "before", full("/dev/shm"), 0, "pass", needs=MOUNTS),
    Fault("no file may grow", "before", no_larger_files, 1, "error: No usable temporary directory"),
    Fault("full disk below runs/", "store", full("runs"), 1, "runs/.*No space left", run=PLAYED, needs=MOUNTS),
    Fault("no file may grow any more", "store", no_larger_files, 1, "File too large", run=PLAYED),
    Fault("full disk at the leaderboard", "store", at_board(no_room), 1, BOARD + ".*No space", run=PLAYED),
    Fault("unwritable leaderboard", "before", unwritable("leaderboard.yaml"), 2, UNWRITABLE, run=PLAYED),
    Fault("unwritable runs/", "before", unwritable("runs"), 2, "error: runs/ cannot be written", run=PLAYED),
    Fault("read-only checkout, eval", "before", unwritable("."), 2, UNWRITABLE, run=PLAYED),
    Fault("read-only checkout, check", "before", unwritable(".", ".cache", ".cache/compiled"), 0, "pass"),
    Fault("somebody else holds the lock", "store", hold_lock, 0, "pass", run=PLAYED),
    Fault("the leaderboard is no YAML", "before", write("leaderboard.yaml", "}{"), 113, BOARD, run=PLAYED),
    Fault("half a leaderboard", "before", cut_off("leaderboard.yaml"), 113, BOARD, run=PLAYED),
    Fault("half a leaderboard by the end", "store", cut_off("leaderboard.yaml"), 113, BOARD, run=PLAYED),
    Fault("the leaderboard is a pipe", "before", put("leaderboard.yaml", os.mkfifo), 113, BOARD, run=PLAYED),
    Fault("the leaderboard is a folder", "before", put("leaderboard.yaml", os.mkdir), 113, BOARD, run=PLAYED),
    Fault("runs/ is a file", "store", put("runs", touch), 1, "error: .*runs/", run=PLAYED),
    Fault("a report is half written", "before", write("runs/x/report.json", '{"schema": 1, "ca'), 0, run=("history",)),
    Fault("the peaks cache is zero", "plan", each_peaks(ZERO_PEAKS), 0, "pass", run=EVAL),
    Fault("both caches are garbage", "plan", both(put(".cache/compiled", touch), each_peaks("\0\1")), 0, "pass"),
    Fault("SIGTERM at the leaderboard", "store", at_board(terminate), INTERRUPTED, STOPPED, run=PLAYED),
    Fault("SIGTERM when it is recorded", "show", send(signal.SIGTERM, "parent"), INTERRUPTED, STOPPED, run=PLAYED),
    Fault("power cut, leaderboard not begun", "store", power_cut("write"), KILLED, run=PLAYED),
    Fault("power cut, leaderboard not synced", "store", power_cut("sync"), KILLED, run=PLAYED),
    Fault("power cut, leaderboard not renamed", "store", power_cut("rename"), KILLED, run=PLAYED),
    Fault("power cut, leaderboard renamed", "store", power_cut("told"), KILLED, run=PLAYED),
]

NOTHING = Fault("nothing", "plan", nothing, 0, run=EVAL, seconds=60)
NOTHING_PLAYED = Fault("nothing, played", "before", nothing, 0, run=PLAYED)


# ---- the program -------------------------------------------------------------------------------------------------


def main(name: str, arguments: Sequence[str]) -> None:
    from harness.cli import eval as verb
    from harness.cli import main as cli
    from harness.evaluation import recorded
    from harness.ranks import launch, witness, zygotes
    from harness.report.progress import ProgressLine

    fault = next(fault for fault in (*FAULTS, NOTHING, NOTHING_PLAYED) if fault.name == name)
    # those are about how it starts, but for what is done to the checkout
    is_real = fault.at in ("before", "spawn") and not fault.name.startswith("read-only checkout")
    zygotes.subprocess = subprocess if is_real else prefork.SUBPROCESS
    phase, fired = "before", False

    def reached(moment: str, ranks: Any = None) -> None:
        nonlocal fired
        if moment == fault.at and not fired:
            fired = True
            Path(os.environ[MARK]).touch()
            fault.does(ranks)

    real_phase, real_poll, real_end = ProgressLine.phase, launch.Ranks.poll, launch.Ranks.end
    real_evaluate, real_tell = recorded.evaluate, verb.result_files.tell

    def begin(self: Any, name: str) -> None:
        nonlocal phase
        phase = name
        real_phase(self, name)

    def poll(self: Any, timeout_s: float) -> None:
        if phase == "start":
            reached("spawn", self)
            if self.by_pid:
                reached("start", self)
        else:
            reached(phase, self)
        real_poll(self, timeout_s)

    def end(self: Any, keep_zygotes: bool = False) -> None:
        nonlocal phase
        phase = "end"
        real_end(self, keep_zygotes)

    def evaluate(plan: Any, progress: Any) -> Any:
        reached("plan")
        found = played() if fault.is_played else real_evaluate(plan, progress)
        reached("store")
        return found

    def tell(*given: Any, **named: Any) -> None:
        reached("show")
        real_tell(*given, **named)

    ProgressLine.phase, launch.Ranks.poll, launch.Ranks.end = begin, poll, end  # type: ignore[method-assign]
    recorded.evaluate, verb.result_files.tell = evaluate, tell
    # On a machine that does other work too, honest calls can look as if they had worked outside their clock.
    witness.EachCall.doubt = lambda self, baseline, is_baseline=False: ""  # type: ignore[method-assign]
    reached("before")
    cli.main(arguments)


def played() -> Any:
    """The report of an evaluation that nobody made, under an id of its own, with few samples: judged at once."""
    import factories

    found = factories.results([Passed()], [factories.timed(samples=4, block=4)])
    submission = replace(factories.report(found).submission, source="def custom_kernel(data): ...\n")
    return factories.report(found, submission=submission, run_id=f"{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid():06x}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
