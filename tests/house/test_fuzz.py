"""Decoders of what a submission or a user wrote: whatever it is, it is decoded or refused as declared, at once.

A few thousand inputs here; `make fuzz` tries a million. What those found is below, a test each, or beside the other
tests of its decoder.
"""

import importlib
import json
import subprocess
import sys
import warnings
from pathlib import Path

import fuzzing
import pytest
from fuzzing import TARGETS, Target

from harness.cli import popcorn
from harness.core.checkout import ROOT, Checkout
from harness.core.errors import BadFileError
from harness.gpumode import folder, result_lines
from harness.machine import peaks_cache
from harness.problems.submission import read_submission

INPUTS = 5000  # in all


@pytest.mark.parametrize("target", TARGETS, ids=[target.name for target in TARGETS])
def test_anything_is_decoded_or_refused_as_declared(target: Target) -> None:
    """A finding is had again with `python bench/fuzz.py --target NAME --show NUMBER`."""
    for sample in target.samples():
        target.call(sample)  # else nearly everything would be refused for one reason
    warnings.simplefilter("ignore")  # Python's, of what a submission might look like
    count = INPUTS * target.share // sum(one.share for one in TARGETS)
    assert fuzzing.search(target, 0, count) == []


def test_inputs_follow_from_their_number_alone() -> None:
    """And are neither all alike nor all refused."""
    for target in TARGETS:
        first = [data for _, data in fuzzing.inputs(target, 0, 20)]
        assert [data for _, data in fuzzing.inputs(target, 10, 10)] == first[10:]
        assert len(set(first)) > 10, target.name


def never_ending(data: bytes) -> None:
    while data:
        pass


@pytest.mark.parametrize(
    ("call", "error"),
    [(never_ending, "took more than 0.1 s"), (lambda data: data[10**6], "IndexError: index out of range")],
)
def test_what_hangs_or_raises_what_was_not_declared_is_found(
    call: object, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fuzzing, "DEADLINE_S", 0.1)
    target = Target("broken", lambda: [b"x"], "bytes", call, (ValueError,))  # type: ignore[arg-type]
    (found, *_) = fuzzing.search(target, 7, 1)
    assert (found.number, found.error[: len(error)]) == (7, error)


def test_the_program_says_what_it_tried(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    one = ["bench/fuzz.py", "--target", "directives"]
    monkeypatch.syspath_prepend(ROOT / "bench")
    monkeypatch.setattr(sys, "argv", [*one, "--inputs", "300", "--jobs", "1"])
    with pytest.raises(SystemExit) as ended:
        importlib.import_module("fuzz").main()
    assert ended.value.code == 0
    assert "300 inputs in" in capsys.readouterr().out
    command = [sys.executable, *one, "--show", "3"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert "decoded, or refused as declared" in shown.stderr


# ---- what was found ------------------------------------------------------------------------------------------------


def test_a_staged_reference_that_is_nested_too_deeply_is_a_bad_file() -> None:
    lines = result_lines.parse_cases(fuzzing.CASES)
    for text in ("(" * 199 + ")" * 199, "x = " + "-" * 100_000 + "1", "x" + "[0" * 3000):
        with pytest.raises(BadFileError):
            popcorn.recognise(lines, text, Checkout.here())


def test_a_task_whose_file_cannot_be_a_files_name_is_a_bad_file(tmp_path: Path) -> None:
    for name in ("9" * 5000, "a\0b"):
        (tmp_path / "task.yml").write_text(fuzzing.TASK.replace("source: reference.py", f"source: {json.dumps(name)}"))
        with pytest.raises(BadFileError, match=r"\$\.files\[1\]\.source: there is no file"):
            folder.read(tmp_path, Checkout(tmp_path))


def test_an_import_of_what_cannot_be_a_files_name_is_no_local_module(tmp_path: Path) -> None:
    path = tmp_path / "submissions" / "a2a" / "submission.py"
    path.parent.mkdir(parents=True)
    path.write_text(f"import {'x' * 5000}\n")
    assert read_submission(path, tmp_path).modules == ()


@pytest.mark.parametrize("rate", ["0.0", "-1.0", "NaN", '"1"'])
def test_remembered_peaks_that_cannot_be_are_measured_again(rate: str, tmp_path: Path) -> None:
    """A bound over a rate of 0 would end the evaluation that reads it."""
    path = tmp_path / "peaks.json"
    path.write_text(fuzzing.PEAKS)
    assert peaks_cache.load(path) is not None
    path.write_text(fuzzing.PEAKS.replace("1000000000000.0", rate, 1))
    assert peaks_cache.load(path) is None
