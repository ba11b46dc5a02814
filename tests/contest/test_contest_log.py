"""The audit log: lines that are only added, whoever dies while it writes, and a state that is what they fold to."""

import json
import multiprocessing
from pathlib import Path

import pytest
from contests import DAY, MINUTE, OPEN, REGISTRATION, contest, ranked, register, submit
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.contest import acts
from harness.contest.lifecycle import Disqualified, EvaluationFailed, Frozen, Withdrawn
from harness.contest.log import ContestLog, Record
from harness.contest.state import fold
from harness.core.errors import BadFileError, HarnessError


def filled(folder: Path) -> Path:
    """A log with two teams and three entries."""
    found = contest(folder)
    register(found, "owls", "ada", "bob")
    register(found, "cats", "cy")
    ranked(found, "ada", 2.0)
    ranked(found, "cy", 1.5, OPEN + MINUTE)
    submit(found, "bob", OPEN + DAY)
    return found.log.path


def test_the_state_is_what_the_log_folds_to(tmp_path: Path) -> None:
    path = filled(tmp_path)
    records = ContestLog(path).records()
    assert [record.n for record in records] == list(range(1, 8))
    assert [record.by for record in records][:3] == ["ada", "cy", "ada"]
    state = fold(records)
    assert {name: sorted(team.members) for name, team in state.teams.items()} == {
        "owls": ["ada", "bob"],
        "cats": ["cy"],
    }
    assert [(one.team, one.state) for one in state.entries.values()] == [
        ("owls", "ranked"),
        ("cats", "ranked"),
        ("owls", "submitted"),
    ]
    assert fold(records, OPEN).entries.keys() == {1}
    assert fold(records, OPEN).entry(1).state == "submitted", "as it was at that time"
    assert "secret-of-this-test" not in path.read_text(), "ids are not kept"


def test_a_log_cut_off_anywhere_loses_no_whole_record_and_says_so(tmp_path: Path) -> None:
    """Whatever byte the writer died at: the whole lines stand, and the next record follows them."""
    path = filled(tmp_path)
    data, known = path.read_bytes(), ContestLog(path).records()
    ends = [at + 1 for at, byte in enumerate(data) if byte == ord("\n")]
    for cut in [*range(ends[4], ends[5] + 1, 97), *(end + extra for end in ends[1:-1] for extra in (-1, 0, 1))]:
        path.write_bytes(data[:cut])
        whole = [record for record, end in zip(known, ends, strict=True) if end - 1 <= cut]  # the line end may lack
        log = ContestLog(path)
        assert list(log.records()) == whole
        is_torn = cut not in ends and cut + 1 not in ends
        assert ("cut off" in log.torn) == is_torn
        after = log.add(lambda records: [Frozen()], OPEN + DAY, "grace")
        assert list(after[: len(whole)]) == whole
        assert isinstance(after[-1].event, Frozen)
        assert len(after) == len(whole) + 1 + is_torn, "a line that was cut off is recorded as such"
        assert ContestLog(path).records() == after
        assert not ContestLog(path).torn
        assert path.read_bytes()[:cut] == data[:cut], "nothing is ever taken away"


def test_a_writer_that_dies_while_it_marks_a_cut_off_line_is_marked_too(tmp_path: Path) -> None:
    path = filled(tmp_path)
    whole = len(ContestLog(path).records())
    with path.open("ab") as file:
        file.write(b'{"n":8,"at":"20\n{"n":8,"a')
    assert len(ContestLog(path).records()) == whole
    ContestLog(path).add(lambda records: [Frozen()], OPEN + DAY, "grace")
    assert len(ContestLog(path).records()) == whole + 2


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda lines: [*lines[:2], *lines[3:]], r"line 3: record 4 follows record 2: lines were removed"),
        (lambda lines: [*lines[:2], lines[2].replace("submitted", "sold"), *lines[3:]], r"line 3: \$\.event\.type"),
        (lambda lines: [lines[0], "", *lines[1:]], r"line 2: not JSON"),
        (lambda lines: [*lines[:-1], lines[-1][:20]], r"line 7: not JSON"),
        (lambda lines: [lines[1], lines[0], *lines[2:]], r"line 1: record 2 follows record 0"),
    ],
)
def test_an_edited_log_is_refused_with_its_line(damage: object, told: str, tmp_path: Path) -> None:
    path = filled(tmp_path)
    path.write_text("\n".join(damage(path.read_text().splitlines())) + "\n")  # type: ignore[operator]
    with pytest.raises(BadFileError, match=told):
        ContestLog(path).records()


def test_a_record_that_cannot_follow_is_refused(tmp_path: Path) -> None:
    path = filled(tmp_path)
    log = ContestLog(path)
    log.add(lambda records: [Withdrawn(entry=1), Disqualified(entry=1, why="late")], OPEN, "grace")
    with pytest.raises(BadFileError, match=r"record 9 of the audit log \(disqualified\): .* it is over already"):
        fold(log.records())


def test_what_the_decision_raises_leaves_the_log_as_it_is(tmp_path: Path) -> None:
    path = filled(tmp_path)
    before = path.read_bytes()

    def refuse(records: tuple[Record, ...]) -> list[Frozen]:
        raise HarnessError("no")

    with pytest.raises(HarnessError):
        ContestLog(path).add(refuse, OPEN, "grace")
    assert path.read_bytes() == before


def test_a_full_disk_leaves_whole_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = filled(tmp_path)
    before = path.read_bytes()
    real = __import__("os").write
    calls = iter([10])

    def full(fd: int, data: bytes) -> int:
        if (most := next(calls, None)) is None:
            raise OSError(28, "No space left on device")
        return int(real(fd, data[:most]))

    monkeypatch.setattr("harness.contest.log.os.write", full)
    with pytest.raises(HarnessError, match="was not written: No space left on device"):
        ContestLog(path).add(lambda records: [Frozen()], OPEN, "grace")
    assert path.read_bytes() == before


def add_failures(path: str, count: int) -> None:
    for _ in range(count):
        ContestLog(Path(path)).add(
            lambda records: [EvaluationFailed(entry=len(records), kind="wrong", why="no")], REGISTRATION, "one"
        )


def test_writers_at_the_same_time_lose_nothing_and_number_nothing_twice(tmp_path: Path) -> None:
    path = tmp_path / "class.log.jsonl"
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=add_failures, args=(str(path), 20)) for _ in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    records = ContestLog(path).records()
    assert [record.n for record in records] == list(range(1, 61))
    assert [record.event.entry for record in records] == list(range(60))  # type: ignore[union-attr]


@settings(max_examples=10)
@given(why=st.text(min_size=1, max_size=200))
def test_whatever_somebody_writes_comes_back_as_one_line(why: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    found = contest(tmp_path_factory.mktemp("log"))
    register(found, "owls", "ada")
    one = submit(found, "ada")
    if not why.strip():
        return
    acts.disqualify(found, one.number, why, OPEN, "grace")
    lines = found.log.path.read_text(encoding="utf-8").split("\n")
    assert len(lines) == 4
    assert json.loads(lines[2])["event"]["why"] == found.state().entry(1).why
