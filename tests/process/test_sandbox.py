"""What a confined process can still do and what not, and what is left of an environment."""

import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from forks import Forks

from harness.core.checkout import ROOT
from harness.process import sandbox, seccomp

IMPORTS = """\
import ctypes, os, pathlib, platform, resource, signal, socket, subprocess, sys, tempfile, threading
from harness.process import seccomp
from harness.process.sandbox import Sandbox

def call(name, *arguments):
    found = next(call for call in seccomp.ALWAYS if call.name == name)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(seccomp.MACHINES[platform.machine()].number(found), *arguments) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
"""
# Enters, then does `attempt`; what did not work is printed.
CONFINED = """\
folder, parent = pathlib.Path(sys.argv[1]), os.getppid()
hidden = (folder / "checkout",)
print(*Sandbox(folder=folder / "own", cache=folder / "cache", device=sys.argv[2], hidden=hidden).enter(), sep="\\n")
try:
    {attempt}
except OSError as error:
    print(error.strerror)
"""
Confined = Callable[[str, str], str]
needs_landlock = pytest.mark.skipif(sandbox.landlock_abi() < 6, reason="this kernel's Landlock has no scopes")
needs_namespaces = pytest.mark.skipif(not sandbox.has_namespaces(), reason="no namespaces are permitted here")


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with Forks(IMPORTS) as made:
        yield made


@pytest.fixture
def confined(forks: Forks, tmp_path: Path) -> Confined:
    """confined(attempt, device): what the attempt printed, or the error it met."""
    return lambda attempt, device: forks.printed(CONFINED.format(attempt=attempt), str(tmp_path), device).strip()


@needs_landlock
@pytest.mark.parametrize(
    "attempt",
    [
        "(folder / 'other').write_text('')",
        "(folder / 'old').unlink()",
        "(folder / 'old').open('r+')",
        "os.truncate(folder / 'old', 0)",
        "(folder / 'old').rename(folder / 'own' / 'old')",
        "os.link(folder / 'old', folder / 'own' / 'old')",
        "os.kill(parent, 0)",
        "os.open(f'/proc/{parent}/mem', os.O_RDONLY)",
        "os.readlink(f'/proc/{parent}/fd/0')",
        "resource.prlimit(parent, resource.RLIMIT_CPU, (0, 0))",
        "os.sched_setaffinity(parent, {0})",
        "os.sched_setscheduler(parent, os.SCHED_IDLE, os.sched_param(0))",
        "os.setpriority(os.PRIO_PROCESS, parent, 19)",
        "os.setpriority(os.PRIO_USER, 0, 19)",
        "signal.pidfd_send_signal(os.pidfd_open(parent), 0)",
        "open('/proc/sys/kernel/core_pattern', 'r+')",
        "call('unshare', 0x40000000)",
        "call('unshare', 0x10000000)",
        "call('setns', os.open('/proc/self/ns/net', os.O_RDONLY))",
        "call('clone', 0x10000000 | signal.SIGCHLD)",
        "call('io_uring_setup', 1)",
        "call('perf_event_open', 0)",
        "call('bpf', 0)",
        "call('keyctl', 0)",
        "call('add_key', 0)",
        "call('request_key', 0)",
        pytest.param("socket.create_connection(('192.0.2.1', 443), timeout=5)", marks=needs_namespaces),
    ],
)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_confined_process_changes_nothing_outside(
    tmp_path: Path, confined: Confined, attempt: str, device: str
) -> None:
    (tmp_path / "old").write_text("kept")
    said = confined(attempt, device)
    assert said in (
        "Permission denied",
        "Operation not permitted",
        "Network is unreachable",
        "Invalid cross-device link",
        "Read-only file system",
        "No such process",
        "No such file or directory",
        "Function not implemented",
    )
    assert (tmp_path / "old").read_text() == "kept"


@pytest.mark.parametrize(
    "attempt",
    [
        "(folder / 'own' / 'new').write_text('')",
        "(folder / 'own' / 'a').mkdir(); (folder / 'own' / 'a').rename(folder / 'own' / 'tmp' / 'b')",
        "(pathlib.Path(os.environ['TRITON_CACHE_DIR']) / 'kernel').write_text('')",
        "pathlib.Path('/dev/null').write_text('x')",
        "pathlib.Path('/dev/shm/confined').write_text('x'); os.unlink('/dev/shm/confined')",
        "assert (folder / 'old').read_text() == 'kept'",
        "import tempfile; tempfile.TemporaryFile().write(b'x')",
        "import subprocess; subprocess.run(['true'], check=True)",
        "a, b = socket.socketpair(); a.send(b'x')",
        "os.sched_setaffinity(0, os.sched_getaffinity(0)); os.setpriority(os.PRIO_PROCESS, 0, 1)",
        "resource.setrlimit(resource.RLIMIT_CORE, resource.getrlimit(resource.RLIMIT_CORE))",
        "thread = threading.Thread(target=print); thread.start(); thread.join()",
        "os.kill(os.getpid(), 0); pathlib.Path('/proc/self/status').read_text()",
    ],
)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_confined_process_can_do_its_work(tmp_path: Path, confined: Confined, attempt: str, device: str) -> None:
    (tmp_path / "old").write_text("kept")
    said = confined(attempt, device)
    assert "denied" not in said
    assert "not permitted" not in said or "namespaces" in said


@needs_namespaces
def test_a_confined_process_on_cpus_sees_no_other(confined: Confined) -> None:
    said = confined("print(os.getpid(), [name for name in os.listdir('/proc') if name.isdigit()])", "cpu")
    assert said == "1 ['1']"


@needs_namespaces
def test_a_thread_may_choose_its_cores_by_its_own_number_where_others_cannot_be_named(confined: Confined) -> None:
    """As pthread_setaffinity_np does."""
    assert confined("os.sched_setaffinity(threading.get_native_id(), {0})", "cpu") == ""


def test_a_filter_names_the_same_calls_on_every_machine() -> None:
    """`struct sock_filter` has 8 bytes, and no jump leads out of the program."""
    calls = seccomp.ALWAYS + seccomp.OF_THREADS + seccomp.OF_DESCRIPTORS
    for machine in seccomp.MACHINES.values():
        words = list(struct.iter_unpack("HBBI", seccomp.program(machine, calls)))
        assert {machine.number(call) for call in calls} <= {value for code, _, _, value in words}
        assert all(at + max(yes, no) < len(words) - 1 for at, (_, yes, no, _) in enumerate(words) if yes or no)


@needs_namespaces
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_of_a_checkout_only_what_is_imported_is_there(tmp_path: Path, device: str) -> None:
    """Other entries, runs and the board are hidden; virtual environments and this group's folders stay."""
    checkout = tmp_path / "checkout"
    for name in (
        "submissions/a2a/other.py",
        "runs/x/report.json",
        "leaderboard.yaml",
        "site/installed.py",
        "lib/far.py",
        "deep/from_outside.py",
    ):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text("x = 1")
    (checkout / "linked").symlink_to("lib")
    (tmp_path / "outside").symlink_to(checkout / "deep")
    (checkout / "shared").symlink_to(tmp_path / "packages")  # as a .venv that several checkouts share
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "in_and_out.py").write_text("x = 1")
    (tmp_path / "door").symlink_to(checkout)
    (checkout / "own").mkdir()
    code = (
        "import os, pathlib, sys\n"
        "from harness.process.sandbox import Sandbox\n"
        "root = pathlib.Path(sys.argv[1])\n"
        "sys.path += [str(root / 'site'), str(root / 'linked'), str(root.parent / 'outside')]\n"
        "sys.path += [str(root.parent / 'door' / 'shared')]\n"
        "os.chdir(root)\n"
        "Sandbox(folder=root / 'own', cache=root / '.cache/a', device=sys.argv[2], hidden=(root,)).enter()\n"
        "import far, from_outside, in_and_out, installed\n"
        "(root / 'own' / 'new').write_text('')\n"
        "print(*sorted(os.listdir('.')))\n"
    )
    command = [sys.executable, "-c", code, str(checkout), device]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == [".cache", "deep", "lib", "linked", "own", "shared", "site"]
    assert (checkout / "own" / "new").exists()
    assert (checkout / "leaderboard.yaml").exists()


@needs_namespaces
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_hidden_file_is_empty_whatever_is_added_to_it(tmp_path: Path, device: str) -> None:
    """One that is not within reach hides nothing and costs no layer."""
    log, gone = tmp_path / "contest.log.jsonl", tmp_path / "gone" / "other.jsonl"
    log.write_text("secret")
    code = (
        "import pathlib, sys\n"
        "from harness.process.sandbox import Sandbox\n"
        "log, own, gone = map(pathlib.Path, sys.argv[1:4])\n"
        "print(Sandbox(folder=own, cache=own / 'cache', device=sys.argv[4], hidden=(log, gone)).enter())\n"
        "print(log.read_bytes())\n"
        "log.write_text('mine')\n"
        "print(log.read_bytes())\n"
    )
    own = tmp_path / "own"
    own.mkdir()
    command = [sys.executable, "-c", code, str(log), str(own), str(gone), device]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-2:] == ["b''", "b''"], ran.stdout
    assert "not permitted here" not in ran.stdout
    assert log.read_text() == "secret"


def test_what_the_kernel_does_not_give_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(confines: sandbox.Sandbox) -> str:
        return "landlock: this kernel has none"

    def refused(confines: sandbox.Sandbox) -> str:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(sandbox, "LAYERS", (missing, refused))
    monkeypatch.setattr(sandbox.tempfile, "tempdir", sandbox.tempfile.tempdir)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    box = sandbox.Sandbox(folder=tmp_path, cache=tmp_path, device="cpu")
    assert box.enter() == ("landlock: this kernel has none", "refused: Operation not permitted")


def test_secrets_leave_the_environment_and_settings_stay() -> None:
    kept = {"PATH": "/bin", "NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "LC_ALL": "C"}
    gone = {
        "AWS_SECRET_ACCESS_KEY": "x",
        "NVIDIA_API_KEY": "x",
        "HF_TOKEN": "x",
        "PGPASSWORD": "x",
        "SSH_AUTH_SOCK": "x",
    }
    assert sandbox.environment(kept | gone) == kept


def test_drivers_may_name_their_threads(confined: Confined) -> None:
    assert confined("pathlib.Path('/proc/self/comm').write_text('x')", "cuda") == ""


def test_machines_with_amd_gpus_are_not_confined_yet_and_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "LAYERS", (lambda box: pytest.fail("a layer was entered"),))
    monkeypatch.setattr("os.environ", dict(os.environ))
    monkeypatch.setattr("tempfile.tempdir", None)
    box = sandbox.Sandbox(folder=tmp_path, cache=tmp_path, device="rocm")
    (warning,) = box.enter()
    assert "left out, since it has not been tried yet with AMD's GPUs" in warning
