"""What the harness reads of the machine that other tests do not see."""

import os
from pathlib import Path

import pytest

from harness.machine import host


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0,1", 2),
        ("-1", 0),
        ("", 0),
        ("1,-1,0", 1),
        ("7", 0),
        (" 3 ", 1),
        ("GPU-8f2e,GPU-71aa", 2),
        ("0,0,0,0,0", 4),
        ("0,\u00b2", 1),
    ],
)
def test_hidden_gpus_are_not_counted(text: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "listdir", lambda path: ["null", "nvidiactl", *(f"nvidia{number}" for number in range(4))])
    monkeypatch.setattr(host, "installed", lambda package: "2.13.0")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", text)
    assert host.gpus().count == count


def test_a_machine_has_a_stable_id_that_tells_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "machine-id"
    file.write_text("0123456789abcdef0123456789abcdef\n")
    monkeypatch.setattr(host, "MACHINE_IDS", (str(tmp_path / "none"), str(file)))
    first = host.machine_id()
    assert (len(first), first, "01234567" in first) == (12, host.machine_id(), False)
    file.write_text("1123456789abcdef0123456789abcdef\n")
    assert host.machine_id() != first
    file.write_text("")
    assert host.machine_id() == ""
