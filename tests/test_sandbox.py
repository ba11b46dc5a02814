"""What a confined process can still do and what not, and what is left of an environment."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.core.checkout import ROOT
from harness.process import sandbox

# Enters, then does `attempt`; what did not work is printed.
CONFINED = """\
import os, pathlib, socket, sys
from harness.process.sandbox import Sandbox
folder = pathlib.Path(sys.argv[1])
print(*Sandbox(folder=folder / "own", cache=folder / "cache", device=sys.argv[2]).enter(), sep="\\n")
try:
    {attempt}
except OSError as error:
    print(error.strerror)
"""
needs_landlock = pytest.mark.skipif(sandbox.landlock_abi() < 6, reason="this kernel's Landlock has no scopes")
needs_namespaces = pytest.mark.skipif(not sandbox.has_namespaces(), reason="no namespaces are permitted here")


def confined(folder: Path, attempt: str, device: str) -> str:
    """What the attempt printed, or the error it met."""
    code = CONFINED.format(attempt=attempt)
    command = [sys.executable, "-c", code, str(folder), device]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


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
        "os.kill(os.getppid(), 0)",
        "os.open(f'/proc/{os.getppid()}/mem', os.O_RDONLY)",
        "os.readlink(f'/proc/{os.getppid()}/fd/0')",
        "open('/proc/sys/kernel/core_pattern', 'r+')",
        pytest.param("socket.create_connection(('192.0.2.1', 443), timeout=5)", marks=needs_namespaces),
    ],
)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_confined_process_changes_nothing_outside(tmp_path: Path, attempt: str, device: str) -> None:
    (tmp_path / "old").write_text("kept")
    said = confined(tmp_path, attempt, device)
    assert said in (
        "Permission denied",
        "Operation not permitted",
        "Network is unreachable",
        "Invalid cross-device link",
        "Read-only file system",
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
    ],
)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_confined_process_can_do_its_work(tmp_path: Path, attempt: str, device: str) -> None:
    (tmp_path / "old").write_text("kept")
    said = confined(tmp_path, attempt, device)
    assert "denied" not in said
    assert "not permitted" not in said or "namespaces" in said


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


def test_drivers_may_name_their_threads(tmp_path: Path) -> None:
    assert confined(tmp_path, "pathlib.Path('/proc/self/comm').write_text('x')", "cuda") == ""


def test_machines_with_amd_gpus_are_not_confined_yet_and_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "LAYERS", (lambda box: pytest.fail("a layer was entered"),))
    monkeypatch.setattr("os.environ", dict(os.environ))
    monkeypatch.setattr("tempfile.tempdir", None)
    box = sandbox.Sandbox(folder=tmp_path, cache=tmp_path, device="rocm")
    (warning,) = box.enter()
    assert "left out, since it has not been tried yet with AMD's GPUs" in warning
