"""Progress as typed events: what a program that follows an evaluation reads is what the evaluation reported."""

import json
from collections.abc import Callable
from io import BytesIO, StringIO
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from harness.core.events import CaseBegan, Event, PhaseBegan, event_of
from harness.core.json_file import line_of
from harness.report.progress import Both, ProgressLine, event_log

SECONDS = st.floats(0, 1e6, allow_nan=False)
PHASES = st.builds(PhaseBegan, at_s=SECONDS, name=st.text())
CASES = st.integers(1, 100).flatmap(
    lambda count: st.builds(
        CaseBegan, at_s=SECONDS, label=st.text(), index=st.integers(0, count - 1), count=st.just(count)
    )
)


@given(PHASES | CASES)
def test_an_event_is_one_line_and_comes_back_as_it_was(event: Event) -> None:
    line = line_of(event)
    assert line.count("\n") == 1
    assert line.endswith("\n")
    assert event_of(line) == event


@pytest.mark.parametrize(
    "line",
    [
        "",
        "[  3.1 s] test, about 20 s left",
        "{}",
        "7",
        "[" * 100_000,
        '{"type": "phase_began", "at_s": 0.1}',
        '{"type": "phase_began", "at_s": "0.1", "name": "test"}',
        '{"type": "phase_began", "at_s": NaN, "name": "test"}',
        '{"type": "phase_began", "at_s": 0.1, "name": "test", "more": 1}',
        '{"type": "phase_ended", "at_s": 0.1, "name": "test"}',
        '{"type": "case_began", "at_s": 0.1, "label": "m 64", "index": 3, "count": 3}',
        '{"type": "case_began", "at_s": 0.1, "label": "m 64", "index": 0, "count"',
    ],
)
def test_malformed_lines_are_ignored(line: str) -> None:
    assert event_of(line) is None


def test_people_and_programs_are_told_the_same() -> None:
    text, lines, now = StringIO(), BytesIO(), 10.0
    shown = ProgressLine(Console(file=text, width=80), clock=lambda: now)
    progress = Both(shown, event_log(lines, clock=lambda: now))
    now = 10.2
    progress.phase("test")
    now = 11.0
    progress.case("m 64  bias true", 1, 3)
    progress.note("a line for people")
    assert text.getvalue() == "[  0.2 s] test\n[  1.0 s]   2/3  m 64  bias true\na line for people\n"
    assert [event_of(line) for line in lines.getvalue().decode().splitlines()] == [
        PhaseBegan(at_s=0.2, name="test"),
        CaseBegan(at_s=1.0, label="m 64  bias true", index=1, count=3),
    ]


def test_a_reader_that_is_gone_does_not_end_the_evaluation(tmp_path: Path) -> None:
    with open("/dev/full", "wb", buffering=0) as full:
        event_log(full).phase("test")


def test_eval_writes_events_and_says_where_it_cannot(
    harness: Callable[..., CompletedProcess[str]], tmp_path: Path
) -> None:
    file = tmp_path / "events.jsonl"
    asked = ("eval", "a2a", "--suite", "quick", "--ranks", "2", "--mode", "test", "--device", "cpu", "--quiet")
    done = harness(*asked, "--events", str(file))
    assert done.returncode == 0, done.stderr
    found = [event_of(line) for line in file.read_text().splitlines()]
    assert None not in found
    assert [one.name for one in found if isinstance(one, PhaseBegan)][-1] == "test"
    cases = [one for one in found if isinstance(one, CaseBegan)]
    assert [(one.index, one.count) for one in cases] == [(index, len(cases)) for index in range(len(cases))]
    assert json.loads(file.read_text().splitlines()[0])["type"] == "phase_began"
    refused = harness(*asked, "--events", str(tmp_path))
    assert refused.returncode == 2
    assert f"--events {tmp_path}: cannot be written: Is a directory; name another file" in refused.stderr
