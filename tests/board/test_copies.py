"""Copies on the board: an entry is its author's and its source's, and a copy is known however it is written."""

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from factories import entry
from rich.console import Console

from harness.board import judgements, leaderboard, places, runs
from harness.board.entries import Board, Earlier, SettledFile, Settlement
from harness.core.records import Submission
from harness.problems.submission import digest
from harness.report import board_view
from harness.report.render import FORMATS, terminal

VERSION = "f" * 16


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "leaderboard.yaml"


def test_others_launches_of_a_file_move_no_figure_of_its_author() -> None:
    """Whoever evaluates another author's file, however often and under whatever load, has an entry of their own."""
    past = tuple(
        Earlier(date=f"2026-06-0{day}", run_id=f"slow {day}", sha256=entry().sha256, score=1.0, ratio=0.2)
        for day in range(1, 6)
    )
    (alone,) = places.ranking(Board(entries=(entry(),)), entry().group)
    copy = entry(author="mallory", ratio=0.2, ratio_ci=(0.19, 0.21), date="2026-06-06", run_id="slow 6", history=past)
    rows = {row.entry.author: row for row in places.ranking(Board(entries=(entry(), copy)), entry().group)}
    assert (rows["alice"].launches, rows["mallory"].launches) == (1, 6)
    assert rows["alice"].ratio is not None
    assert alone.ratio is not None
    assert (rows["alice"].ratio.value, rows["alice"].score) == (alone.ratio.value, alone.score)
    assert rows["mallory"].copy_of is not None, "and is marked"


def test_an_authors_own_edit_of_comments_begins_no_new_estimate(path: Path) -> None:
    for number, ratio in enumerate([2.0, 2.1, 1.9]):
        one = entry(ratio=ratio, ratio_ci=(ratio - 0.1, ratio + 0.1), run_id=f"r{number}", sha256=str(number) * 64)
        found = leaderboard.record(path, replace(one, code="same"))
    (row,) = places.ranking(found, entry().group)
    assert row.launches == 3
    (row,) = places.ranking(leaderboard.record(path, entry(run_id="r4", sha256="4" * 64)), entry().group)
    assert row.launches == 1


def test_a_copy_under_other_names_is_marked_and_never_ahead_of_whom_its_original_is_behind() -> None:
    """Its original was settled behind dora's, under which a luckier launch of the copy cannot get by."""
    made = [
        entry(author="alice", sha256="a" * 64, ratio=2.0, ratio_ci=(1.99, 2.01), run_id="first"),
        entry(author="dora", sha256="d" * 64, ratio=2.1, ratio_ci=(2.09, 2.11), run_id="second"),
        entry(author="copycat", sha256="c" * 64, ratio=9.0, ratio_ci=(8.9, 9.1), date="2026-06-01", run_id="third"),
    ]
    codes = {"alice": "one", "dora": "other", "copycat": "one"}
    entries = tuple(replace(one, code=codes[one.author], problem_version=VERSION) for one in made)
    settled = Settlement(
        problem="gemm_rs",
        suite="cpu",
        machine_class=entry().machine_class,
        world_size=8,
        machine="m1",
        date="2026-06-02T12:00:00+00:00",
        rounds=4,
        resolves=0.02,
        problem_version=VERSION,
        both_judged=True,
        files=(
            SettledFile(author="dora", file="d", sha256="d" * 64, ratio=1.2),
            SettledFile(author="alice", file="a", sha256="a" * 64, ratio=1.0),
        ),
    )
    rows = places.ranking(Board(entries=entries, settlements=(settled,)), entry().group)
    assert [(row.entry.author, row.place.text) for row in rows] == [("dora", "1"), ("alice", "2-3"), ("copycat", "2-3")]
    apart = places.ranking(Board(entries=entries[1:]), entry().group)
    assert apart[0].entry.author == "copycat", "without its original it is not known as one"


def test_a_copy_of_what_an_author_has_replaced_is_a_copy(path: Path) -> None:
    leaderboard.record(path, replace(entry(run_id="old", sha256="a" * 64), code="one"))
    leaderboard.record(path, replace(entry(run_id="new", sha256="b" * 64), code="two"))
    copy = replace(entry(author="copycat", date="2026-06-01", run_id="copy", sha256="c" * 64), code="one")
    rows = places.ranking(leaderboard.record(path, copy), entry().group)
    (first,) = [row.copy_of for row in rows if row.copy_of]
    assert (first.author, first.run_id) == ("alice", "old")


def test_what_an_older_harness_recorded_is_compared_where_its_source_is_kept(tmp_path: Path) -> None:
    text = "def custom_kernel(data):\n    x = data\n    return x\n"
    kept = Submission(path="a.py", name="a.py", source=text, sha256=digest(text, ()))
    runs.store_source(kept, tmp_path)
    old = (entry(sha256=kept.sha256), entry(author="bob", sha256="b" * 64))
    mine, lost = runs.with_code(Board(entries=old), tmp_path).entries
    assert lost.code is None
    renamed = text.replace("x", "result").replace("    return", "\n    # that is all\n    return")
    assert mine.code == judgements.code_of(replace(kept, source=renamed))


def test_a_board_says_what_a_copy_is_a_copy_of() -> None:
    copy = replace(entry(author="copycat", date="2026-06-01", run_id="copy", sha256="c" * 64), code="one")
    board = Board(entries=(replace(entry(), code="one"), copy))
    line = f"submission.py by copycat is a copy of submission.py by alice, 2026-05-01, {entry().run_id}"
    console = Console(file=io.StringIO(), width=200)
    terminal.show(board_view.document_of(board), console)
    assert line in console.file.getvalue()  # type: ignore[attr-defined]
    assert line in FORMATS["markdown"](board_view.document_of(board)).replace("`", "")
    of = {one["author"]: one["copy_of"] for one in json.loads(board_view.board_json(board))}
    first = {"date": entry().date, "author": "alice", "file": "submission.py", "run_id": entry().run_id}
    assert of == {"alice": None, "copycat": first}
