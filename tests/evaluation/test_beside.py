"""An entry beside the best other one of its board: launches head to head right after its evaluation."""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import submission_of
from factories import entry

from harness.board import leaderboard
from harness.board.entries import Entry
from harness.core.checkout import Checkout
from harness.core.errors import HarnessError
from harness.core.records import EvalReport, Measured
from harness.evaluation import beside, meetings
from harness.evaluation.settle import Contenders
from harness.judging import verdict
from harness.kinds.kind import Progress

SLOW = """
import time
from reference import ref_kernel

def custom_kernel(data):
    time.sleep(0.02)
    return ref_kernel(data)
"""
FAST = "from reference import ref_kernel\n\ndef custom_kernel(data):\n    return ref_kernel(data)\n"
VERSION = "f" * 16


@contextlib.contextmanager
def shown(*numbers: int) -> Iterator[Progress]:
    yield Progress()


def entries() -> tuple[Entry, Entry]:
    """The leader and another one."""
    leader, own = (
        replace(
            entry(author=author, sha256=author * 64, ratio=ratio, ratio_ci=(ratio * 0.99, ratio * 1.01), run_id=author),
            problem_version=VERSION,
        )
        for author, ratio in (("a", 2.0), ("b", 1.9))
    )
    return leader, own


def meet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logs: Callable[[int], float], until: float | None = None
) -> tuple[beside.Beside, list[int]]:
    """`logs(launch)` is log(the leader's time / own time)."""
    leader, own = entries()
    board = leaderboard.change(tmp_path / "leaderboard.yaml", lambda now: replace(now, entries=(leader, own)))
    asked: list[int] = []

    def launches(meeting: Contenders, number: int, one: int, other: int, count: int, progress: object) -> Any:
        asked.append(count)
        return tuple(-logs(number + at) for at in range(count))  # of the first, the leader

    monkeypatch.setattr(meetings, "launches", launches)
    setting: Any = type("Setting", (), {"device": "cuda", "confined": True})()
    meeting = Contenders(setting=setting, version=VERSION, entries=(leader, own), sources=(), left_out=())
    return beside.met(meeting, board, shown, Checkout(tmp_path), until), asked


def test_an_entry_that_is_faster_is_ahead_of_the_leader_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, asked = meet(tmp_path, monkeypatch, lambda launch: 0.10 + 0.001 * launch)
    assert asked == [4]
    assert found.text.startswith("10.8% faster than the leader, ")
    assert "4 launches head to head" in found.text
    [kept] = leaderboard.load(tmp_path / "leaderboard.yaml").settlements
    assert [file.author for file in kept.files] == ["b", "a"]


def test_entries_that_differ_by_less_than_launches_do_are_a_tie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, _ = meet(tmp_path, monkeypatch, lambda launch: 0.004 * (-1) ** launch)
    assert "a tie" in found.text
    assert found.text.startswith("within ")


def test_with_a_difference_to_be_told_launches_go_on_until_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, few = meet(tmp_path, monkeypatch, lambda launch: 0.004 * (-1) ** launch, until=0.2)
    _, many = meet(tmp_path, monkeypatch, lambda launch: 0.004 * (-1) ** launch, until=0.002)
    assert sum(few) < sum(many) <= beside.MOST_LAUNCHES


def test_ten_minutes_are_the_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(beside.time, "monotonic", lambda: now.__setitem__(0, now[0] + 100.0) or now[0])
    found, asked = meet(tmp_path, monkeypatch, lambda launch: 0.02 * (-1) ** launch, until=0.001)
    assert sum(asked) < beside.MOST_LAUNCHES
    assert found.launches > 0


def test_two_files_change_roles_from_launch_to_launch_and_their_ratio_does_not(
    evaluated: Callable[..., EvalReport],
) -> None:
    report = evaluated(SLOW, mode="benchmark", launches=3, opponent=submission_of(FAST), benchmarks=1)
    cases = verdict.measured_cases(report)
    assert cases, report.results
    for _, one in cases:
        assert isinstance(one, Measured)
        assert len(one.ranked.launches) == 3
        ends = list(itertools.accumulate(one.ranked.launches))
        for begin, end in zip([0, *ends], ends, strict=False):
            own_us, other_us = (min(side[begin:end]) for side in (one.ranked.own, one.ranked.baseline))
            assert own_us > 15_000 > other_us, "the slow one is the slow one in every launch"


def test_whoever_fails_is_named_in_any_role(evaluated: Callable[..., EvalReport]) -> None:
    later = FAST.replace("    return", "    import os\n    assert '/2/' not in os.getcwd(), 'later'\n    return")
    with pytest.raises(HarnessError, match="later"):
        evaluated(FAST, mode="benchmark", launches=2, opponent=submission_of(later), benchmarks=1)
    report = evaluated(later, mode="benchmark", launches=2, opponent=submission_of(FAST), benchmarks=1)
    failed = verdict.first_failure(report)
    assert failed is not None
    assert "later" in failed.outcome.message
