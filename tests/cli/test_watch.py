"""`check --watch` checks again when a file is saved, sleeps in between, and ends with Ctrl-C."""

import os
from pathlib import Path

import pytest

from harness.cli import check, main
from harness.cli.watch import LOOK_S, watch
from harness.core.checkout import ROOT, Checkout
from harness.core.errors import BadSubmissionError, UsageError
from harness.kinds.settings import Asked


class Clock:
    """Sleeps take no time; each does the next of `script`, and then it is interrupted."""

    def __init__(self, *script: object) -> None:
        self.script = list(script)
        self.slept: list[float] = []

    def __call__(self, seconds: float) -> None:
        self.slept.append(seconds)
        if not self.script:
            raise KeyboardInterrupt
        step = self.script.pop(0)
        if callable(step):
            step()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text("1")
    return path


def test_it_runs_at_once_and_after_each_save_and_not_in_between(file: Path) -> None:
    done: list[str] = []
    clock = Clock(None, None, lambda: file.write_text("22"), None, None, lambda: file.write_text("333"), None)
    with pytest.raises(KeyboardInterrupt):
        watch(lambda: done.append(file.read_text()), lambda: [file], clock)
    assert done == ["1", "22", "333"]
    assert clock.slept.count(LOOK_S) >= 5
    assert LOOK_S >= 0.2, "looks seldom enough to take no time of a core"


def test_a_save_during_the_check_counts(file: Path) -> None:
    done: list[str] = []

    def checked() -> None:
        done.append(file.read_text())
        if len(done) == 1:
            file.write_text("saved meanwhile")

    with pytest.raises(KeyboardInterrupt):
        watch(checked, lambda: [file], Clock(None))
    assert done == ["1", "saved meanwhile"]


def test_a_file_that_is_replaced_is_waited_for(file: Path) -> None:
    """An editor removes it, and renames another to its name, of the same size and date."""
    done: list[str] = []
    new = file.with_name("new")
    new.write_text("2")
    os.utime(new, ns=(file.stat().st_atime_ns, file.stat().st_mtime_ns))
    clock = Clock(file.unlink, None, None, lambda: new.rename(file), None)
    with pytest.raises(KeyboardInterrupt):
        watch(lambda: done.append(file.read_text()), lambda: [file], clock)
    assert done == ["1", "2"]


def test_a_bad_submission_is_said_and_the_next_save_is_checked(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def checked() -> None:
        raise BadSubmissionError(f"mine.py:1: no {file.read_text()}")

    with pytest.raises(KeyboardInterrupt):
        watch(checked, lambda: [file], Clock(lambda: file.write_text("sense"), None))
    told = capsys.readouterr().err
    assert "error: mine.py:1: no 1\n" in told
    assert "error: mine.py:1: no sense\n" in told


def test_what_was_asked_for_wrongly_ends_it(file: Path) -> None:
    def refused() -> None:
        raise UsageError("--ranks 7")

    with pytest.raises(UsageError):
        watch(refused, lambda: [file], Clock())


def test_the_files_that_a_submission_needs_are_watched_too() -> None:
    found = check.watched(Asked(problem="gemm_rs"), Checkout.here())
    names = [str(path.relative_to(ROOT)) for path in found]
    assert names[0] == "submissions/gemm_rs/submission.py"
    assert "submissions/common/heap.py" in names


def test_half_a_file_is_watched_alone(tmp_path: Path) -> None:
    half = tmp_path / "half.py"
    half.write_text("def custom_kernel(")
    assert check.watched(Asked(problem="gemm_rs", file=half), Checkout.here()) == [half]


def test_results_of_every_check_cannot_be_standard_output() -> None:
    command = main.parse(["check", "gemm_rs", "--watch", "--json", "-"])
    with pytest.raises(UsageError, match="name a file in place of -"):
        command.carry_out(Checkout.here())
