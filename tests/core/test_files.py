"""Files that somebody else may have put there: harness/core/files.py."""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from harness.core import files
from tests.waiting import until


def test_a_folder_is_removed_though_a_dying_process_still_writes_into_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, removals = tmp_path / "run", []

    def late(path: Path, ignore_errors: bool) -> None:
        shutil_rmtree(path, ignore_errors=ignore_errors)
        removals.append(path)
        if len(removals) == 1:
            folder.mkdir()
            (folder / "late").touch()

    shutil_rmtree = shutil.rmtree
    monkeypatch.setattr(shutil, "rmtree", late)
    (folder / "rank0").mkdir(parents=True)
    files.remove(folder)
    assert not folder.exists()
    assert len(removals) == 2


@pytest.mark.parametrize("place", ["None", "Path('named')"])
@pytest.mark.parametrize("is_killed", [True, False])
def test_a_scratch_folder_does_not_outlive_its_process(
    is_killed: bool, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("named").mkdir()
    program = "from pathlib import Path\nfrom harness.core.files import scratch\n"
    program += f"with scratch('s-', {place}) as one: print(one.absolute(), flush=True); input()"
    environ = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(files.__file__).partition("/harness/")[0]}
    with subprocess.Popen([sys.executable, "-c", program], env=environ, stdin=-1, stdout=-1) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        folder = Path(process.stdout.readline().decode().strip())
        assert folder.parent == (tmp_path if place == "None" else tmp_path / "named")
        (folder / "kept").mkdir()
        if is_killed:
            process.kill()
        process.stdin.close()
    until(lambda: not folder.exists())


def test_what_cannot_be_removed_holds_nobody_up_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "rmtree", lambda path, ignore_errors: None)
    monkeypatch.setattr(files.subprocess, "run", lambda command, **named: None)
    monkeypatch.setattr(files, "DYING_S", 0.1)
    files.remove(tmp_path)
    assert tmp_path.exists()


def test_folders_nested_deeper_than_calls_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A submission makes them in no time, and may take away the right to open them. Trying again would be in vain."""
    monkeypatch.setattr(files.time, "sleep", Mock(side_effect=AssertionError("it tried again")))
    run = tmp_path / "run"
    run.mkdir()
    parent = fd = os.open(run, os.O_DIRECTORY)
    for _ in range(2000):
        os.mkdir("deeper", dir_fd=parent)
        fd = os.open("deeper", os.O_DIRECTORY, dir_fd=parent)
        os.close(parent)
        parent = fd
    os.close(fd)
    (run / "deeper").chmod(0)
    files.remove(run)
    assert not run.exists()


def test_who_may_write_the_folder_may_take_the_lock(tmp_path: Path) -> None:
    """A lock had its maker's umask: with 022, members of the group that may write log and board were refused."""
    lock = tmp_path / ".board.lock"
    before = os.umask(0o022)
    try:
        for folder_mode, lock_mode in ((0o755, 0o644), (0o775, 0o664), (0o755, 0o664)):
            tmp_path.chmod(folder_mode)
            with files.locked(lock, wait_s=1):
                assert stat.S_IMODE(lock.stat().st_mode) == lock_mode
    finally:
        os.umask(before)


def test_a_file_that_is_replaced_stays_its_groups(tmp_path: Path) -> None:
    path = tmp_path / "board.yaml"
    path.touch(0o660)
    groups = {*os.getgroups(), 12345} if os.geteuid() == 0 else set(os.getgroups())
    other = next(iter(groups - {path.stat().st_gid}), None)
    if other is None:
        pytest.skip("the user is in one group alone")
    os.chown(path, -1, other)
    files.replace_file(path, b"new", mode=0o600)
    assert path.stat().st_gid == other


def test_a_full_disk_is_named() -> None:
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        files.write_files(Path("/dev"), {"full": b"data"})


def test_a_temporary_folder_has_an_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where TMPDIR=. is set, mkdtemp of Python 3.11 answers with a relative one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", ".")
    assert files.new_folder("made-").parent == tmp_path
    with files.scratch("scratch-") as folder:
        assert folder.parent == tmp_path
