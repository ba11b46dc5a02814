"""The local leaderboard: what it keeps, how it ranks, and that nothing is lost whatever happens while it is written."""

import fcntl
import io
import math
import os
import random
import re
import shutil
import signal
import stat
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import recorded
import yaml
from factories import (
    CRASHED,
    FAILURES,
    HELD,
    HOSTILE,
    TIMES,
    entry,
    failed_benchmark,
    failed_test,
    report,
    results,
    timed,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from places import FIXTURES
from rich.console import Console

from harness.board import judgements, leaderboard, places
from harness.board import noise as board_noise
from harness.board.digits import same_figures
from harness.board.entries import (
    EVIDENCE_CHARS,
    Board,
    Earlier,
    Entry,
    EntryCase,
    EntrySeries,
    HeldEntry,
    MeasuredNoise,
    SettledFile,
    Settlement,
)
from harness.board.noise import LEAST, USUAL, known_noise
from harness.board.places import Place
from harness.core.checkout import ROOT, Checkout
from harness.core.decode import encode
from harness.core.errors import BadFileError, HarnessError, UsageError
from harness.core.records import Held, Passed, Score
from harness.problems.shape_file import find
from harness.report.board_view import document_of, notes
from harness.report.document import plain
from harness.report.render import terminal


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "leaderboard.yaml"


def forked(work: Callable[[], object]) -> int:
    """The id of another process that does this, and ends with 0 where it came to the end of it."""
    if (pid := os.fork()) == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return pid


# ---- what becomes an entry -----------------------------------------------------------------------------------------


def test_a_passed_evaluation_becomes_an_entry_with_all_that_the_report_knows() -> None:
    found = judgements.entry_of(report())
    assert found is not None
    assert (found.problem, found.suite, found.world_size, found.author) == ("gemm_rs", "cpu", 8, "alice")
    assert found.file == "submissions/gemm_rs/submission.py"
    assert (found.score.unit, found.score.better) == ("s", "less")
    assert found.ratio is not None
    assert found.ratio_ci is not None
    assert found.ratio_ci[0] < found.ratio < found.ratio_ci[1]
    assert found.fraction is not None
    assert found.fraction_ci is not None
    assert found.fraction_ci[0] < found.fraction < found.fraction_ci[1]
    assert found.versions.torch == "2.13.0"


@pytest.mark.parametrize("outcome", FAILURES, ids=lambda outcome: outcome.type)
def test_a_failed_evaluation_is_never_an_entry(outcome: Any) -> None:
    assert judgements.entry_of(failed_test(outcome)) is None
    assert judgements.entry_of(failed_benchmark(outcome)) is None


def test_an_evaluation_that_timed_nothing_or_did_not_end_is_not_an_entry() -> None:
    assert judgements.entry_of(report(results([Passed()] * 3, []), mode="test")) is None
    assert judgements.entry_of(report(results([Passed()], [TIMES[0], Passed()]))) is None
    assert judgements.entry_of(failed_test(CRASHED)) is None


def test_an_entry_without_an_interval_says_null(path: Path) -> None:
    few = judgements.entry_of(report(results([], [timed(samples=4, block=4)])))
    assert few is not None
    leaderboard.record(path, few)
    assert "ratio_ci: null" in path.read_text()
    assert leaderboard.load(path).entries[0].ratio_ci is None


def test_names_with_control_characters_are_recorded_so_that_they_can_be_read_again(path: Path) -> None:
    """YAML folds some of them away, and a board that is written but cannot be read would be lost."""
    found = judgements.entry_of(report(author="M\u00fcller \u738b\x85\n\u2028\udc80"))
    assert found is not None
    assert leaderboard.record(path, found) == leaderboard.load(path)
    assert leaderboard.load(path).entries[0].author == "M\u00fcller \u738b????"
    assert "M\u00fcller \u738b" in path.read_text()
    with pytest.raises(ValueError, match=r"author: expected printable characters, found 'x\\n'"):
        entry(author="x\n")


def test_an_entry_keeps_the_figures_of_each_case_as_the_report_states_them() -> None:
    made = report()
    found = judgements.entry_of(made)
    assert found is not None
    stated = [one.figures for one in made.results if one.figures]
    assert [one.params for one in found.cases] == [one.case.params for one in made.results if one.figures]
    assert {(one.metric, one.unit) for one in found.cases} == {("wall", "us")}
    assert [(one.value, one.baseline) for one in found.cases] == [(one.value, one.baseline) for one in stated]
    for one, figures in zip(found.cases, stated, strict=True):
        assert figures.ratio is not None
        assert figures.fraction is not None
        assert (one.ratio, one.ratio_ci) == (figures.ratio.value, figures.ratio.ci)
        assert (one.fraction, one.fraction_ci) == (figures.fraction.value, figures.fraction.ci)


# ---- the file ------------------------------------------------------------------------------------------------------


def test_the_file_reads_well(path: Path) -> None:
    """A comment on top, a key a line, short things on one line, figures to six digits."""
    leaderboard.record(path, entry(score_s=0.00123456789))
    again = {"sha256": "77" * 32, "run_id": "20260502T080000-def456", "problem_version": "0123456789abcdef"}
    leaderboard.record(path, entry(score_s=0.001, fraction=None, **again))
    assert path.read_text() == leaderboard.HEADER + (
        """schema: 8
entries:
- problem: gemm_rs
  suite: cpu
  machine_class: 2 cores of Example CPU @ 2.00GHz
  world_size: 8
  device: cpu
  author: alice
  file: submissions/gemm_rs/submission.py
  sha256: '"""
        + "77" * 32
        + """'
  confined: true
  machine: null
  code: null
  score: {value: 0.001, unit: s, better: less, relative_by: ''}
  ratio: 1.6
  ratio_ci: [1.5, 1.7]
  launches: 1
  launch_sd: null
  fraction: null
  fraction_ci: null
  date: '2026-05-01T12:00:00+00:00'
  run_id: 20260502T080000-def456
  versions: {python: 3.11.7, torch: 2.13.0, triton: null, harness: 0.1.0}
  problem_version: 0123456789abcdef
  verified: null
  cases: []
  peaks: null
  phases_s: {}
  history:
  - {date: '2026-05-01T12:00:00+00:00', run_id: 20260501T120000-abc123, sha256: """
        + "5e" * 32
        + """, score: 0.00123457, ratio: 1.6, status: ranked, problem_version: null, why: evaluated again, """
        """ratio_error: 0.0319, machine: null, code: null, launches: 1, launch_sd: null}
  holds: []
held: []
settlements: []
launch_noise: []
"""
    )


def test_a_missing_an_empty_and_a_commented_file_are_an_empty_board(path: Path) -> None:
    assert leaderboard.load(path) == Board()
    for text in ("", "\n", leaderboard.HEADER):
        path.write_text(text)
        assert leaderboard.load(path) == Board()
    leaderboard.record(path, entry())
    assert len(leaderboard.load(path).entries) == 1


names = st.text(st.characters(exclude_categories=["C", "Z"], include_characters=" "), min_size=1, max_size=12)
entries = st.builds(
    entry,
    problem=st.sampled_from(["a2a", "gemm_rs"]),
    author=names,
    file=names,
    machine_class=names,
    score_s=st.floats(1e-9, 1e6),
    fraction=st.none() | st.floats(1e-6, 2.0),
)


@settings(max_examples=40)
@given(st.lists(entries, max_size=6))
def test_what_was_recorded_is_what_is_loaded(tmp_path_factory: pytest.TempPathFactory, found: list[Entry]) -> None:
    path = tmp_path_factory.mktemp("board") / "leaderboard.yaml"
    written = Board()
    for one in found:
        written = leaderboard.record(path, one)
    assert leaderboard.load(path) == written
    assert {one.identity for one in written.entries} == {one.identity for one in found}
    assert list(written.entries) == sorted(
        written.entries, key=lambda one: (one.group, one.score.value, one.author, one.file)
    )


def edited(change: Callable[[dict[str, Any]], None]) -> Callable[[str], str]:
    def edit(text: str) -> str:
        value = yaml.safe_load(text)
        change(value)
        return yaml.safe_dump(value)

    return edit


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (
            lambda text: text.replace("value: 0.00123456", "value: fast"),
            "$.entries[1].score.value: expected a number",
        ),
        (
            lambda text: text.replace("value: 0.00123456", "value: -1"),
            "$.entries[1].score.value: expected a score above 0",
        ),
        (
            lambda text: text.replace("value: 0.00123456", "value: .nan"),
            "$.entries[1].score.value: expected a finite number",
        ),
        (
            lambda text: text.replace("score: {value: 0.00123456", "scores: {value: 0.00123456"),
            "$.entries[1].scores: unknown key; did you mean",
        ),
        (lambda text: text.replace("ratio: 1.6", "ratio: 0"), "$.entries[0].ratio: expected a number above 0"),
        (lambda text: text.replace("better: less", "better: lower"), "$.entries[0].score.better: expected one of"),
        (lambda text: text.replace("[1.5, 1.7]", "[1.7, 1.5]"), "ratio_ci: expected [low, high]"),
        (lambda text: "<<<<<<< HEAD\n" + text, "line"),
        (lambda text: text + "}", "line"),
        (lambda text: "- 1\n- 2\n", "$: expected a mapping, found a list"),
        (lambda text: "just words", "$: expected a mapping"),
        (
            lambda text: text.replace("schema: 8", "schema: 9\nnovelty: 1"),
            "newer harness (schema 9, this one reads up to 8); update the checkout",
        ),
        (lambda text: text.replace("schema: 8\n", ""), "the key 'schema' is missing"),
        (
            lambda text: text.replace("world_size: 8", "world_size: '8'"),
            "world_size: expected a whole number, found '8'",
        ),
        (lambda text: text.replace("author: alice\n", "author: alice\n  author: bob\n"), "author"),
        (edited(lambda value: value["entries"].append(value["entries"][0])), "$.entries[2]: the same author, file"),
        (edited(lambda value: value["entries"][0].update(history=[{}])), "$.entries[0].history[0]: the key 'date'"),
        (edited(lambda value: value["entries"][0].update(verified={})), "$.entries[0].verified: the key 'date'"),
        (edited(lambda value: value["entries"][0].update(status="verified")), "$.entries[0].status: unknown key"),
        (edited(lambda value: value.update(held=[encode(held_entry())] * 2)), "$.held[1]: the same author, file"),
        (
            edited(lambda value: value.update(held=[encode(held_entry()) | {"check": None}])),
            "$.held[0].check: expected",
        ),
        (lambda text: "\x00\x01", "not"),
    ],
)
def test_a_file_that_does_not_fit_is_named_with_place_and_way_out_and_left_alone(
    path: Path, damage: Callable[[str], str], says: str
) -> None:
    leaderboard.record(path, entry(author="bob", score_s=0.0001))
    leaderboard.record(path, entry())
    path.write_text(damage(path.read_text()))
    before = path.read_bytes()
    for action in (lambda: leaderboard.load(path), lambda: leaderboard.record(path, entry(author="carol"))):
        with pytest.raises(BadFileError) as caught:
            action()
        assert str(caught.value).startswith(f"{path}: ")
        assert says in str(caught.value)
        assert f"git checkout {path}" in str(caught.value)
        assert "--no-record" in str(caught.value)
    assert path.read_bytes() == before
    assert sorted(item.name for item in path.parent.iterdir()) == [leaderboard.LOCK_NAME, path.name]


def test_a_file_that_is_not_utf8_is_a_bad_file(path: Path) -> None:
    path.write_bytes(b"schema: 1 # \xff\n")
    with pytest.raises(BadFileError, match=r"leaderboard\.yaml"):
        leaderboard.load(path)


# ---- entries and places ----------------------------------------------------------------------------------------------


def test_evaluating_the_same_file_again_updates_its_entry_and_keeps_the_history(path: Path) -> None:
    for number, (score_s, sha256) in enumerate([(0.3, "a" * 64), (0.2, "b" * 64), (0.25, "b" * 64)]):
        leaderboard.record(path, entry(score_s=score_s, sha256=sha256, run_id=f"run-{number}"))
    (found,) = leaderboard.load(path).entries
    assert (found.score.value, found.run_id) == (0.25, "run-2")
    assert [(old.run_id, old.score, old.sha256[0]) for old in found.history] == [
        ("run-1", 0.2, "b"),
        ("run-0", 0.3, "a"),
    ]


def test_the_history_keeps_the_latest_judgements_of_other_sources_only(path: Path) -> None:
    """runs/ has all of them; a file that grows with every evaluation is read by nobody."""
    for number in range(1, judgements.KEPT + 4):
        date, sha256 = f"2026-05-{number:02d}T12:00:00+00:00", f"{number:064x}"
        leaderboard.record(path, entry(run_id=f"run-{number}", date=date, sha256=sha256))
    (found,) = leaderboard.load(path).entries
    latest = judgements.KEPT + 3
    assert [one.run_id for one in found.history] == [f"run-{latest - back}" for back in range(1, judgements.KEPT + 1)]


@pytest.mark.parametrize(
    "change",
    [
        {"author": "bob"},
        {"file": "x.py"},
        {"suite": "quick"},
        {"problem": "a2a"},
        {"world_size": 4},
        {"machine_class": "m"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_another_author_file_or_group_is_another_entry(path: Path, change: dict[str, Any]) -> None:
    leaderboard.record(path, entry())
    assert len(leaderboard.record(path, entry(**change)).entries) == 2


def board_of(**ratios: float) -> Board:
    """An entry an author, with these ratios and intervals of 1 % on either side."""
    made = [
        entry(author=author, ratio=ratio, ratio_ci=(0.99 * ratio, 1.01 * ratio), sha256=author.rjust(64, "0"))
        for author, ratio in ratios.items()
    ]
    return Board(entries=tuple(made))


def shown_places(found: Board, by: places.By = "speedup") -> dict[str, str]:
    return {one.entry.author: one.place.text for one in places.ranking(found, entry().group, by)}


def test_places_come_from_the_speedup_and_are_ranges_where_intervals_overlap() -> None:
    found = board_of(a=2.0, b=5.0, c=2.1, d=1.0)
    assert list(shown_places(found).items()) == [("b", "1"), ("c", "2-3"), ("a", "2-3"), ("d", "4")]
    assert places.place_of(found, found.entries[2]) == Place(place=2, last=3, of=4)


def test_a_slow_machine_moves_scores_and_no_places() -> None:
    found = board_of(a=2.0, b=5.0)
    slow = replace(found.entries[1], score=Score(value=1.0, unit="s", better="less"))
    found = Board(entries=(found.entries[0], slow))
    assert shown_places(found) == {"b": "1", "a": "2"}
    assert shown_places(found, "score") == {"a": "1", "b": "2"}


def test_more_launches_of_a_source_narrow_its_interval_and_tell_entries_apart(path: Path) -> None:
    """Where they are of several days; those of one day share what the machine was doing."""
    for author, ratio, days in (("a", 2.0, 12), ("b", 2.4, 12), ("c", 2.0, 1)):
        for number in range(12):
            wobble = ratio * (1 + 0.02 * math.sin(3 * number))
            one = entry(author=author, sha256=author * 64, ratio=wobble, ratio_ci=(0.99 * wobble, 1.01 * wobble))
            date = f"2026-05-{1 + number % days:02}T12:{number:02}:00+00:00"
            found = leaderboard.record(path, replace(one, run_id=f"{author}{number}", date=date))
    rows = {row.entry.author: row for row in places.ranking(found, entry().group)}
    assert (rows["b"].place.place, rows["a"].place.text, rows["a"].launches) == (1, "2-3", 12)
    a, c = (rows[name].ratio for name in "ac")
    assert a is not None
    assert c is not None
    assert a.ci is not None
    assert c.ci is not None
    assert a.ci[0] < 2.0 < a.ci[1]
    assert a.ci[1] / a.ci[0] < 1.1 < c.ci[1] / c.ci[0]


def test_what_is_shown_is_neither_the_luckiest_nor_the_latest_launch(path: Path) -> None:
    for number, ratio in enumerate([2.0, 3.0, 2.1, 2.2]):
        one = entry(ratio=ratio, ratio_ci=(0.99 * ratio, 1.01 * ratio), score_s=1 / ratio, run_id=f"r{number}")
        found = leaderboard.record(path, one)
    (row,) = places.ranking(found, entry().group)
    assert row.ratio is not None
    assert 2.2 < row.ratio.value < 2.4
    assert row.score.value == pytest.approx((1 / 2.1 + 1 / 2.2) / 2, rel=1e-4)


def test_another_source_or_problem_version_begins_the_estimate_anew(path: Path) -> None:
    leaderboard.record(path, entry(ratio=9.0, ratio_ci=(8.9, 9.1), run_id="old", sha256="a" * 64))
    leaderboard.record(path, entry(ratio=8.0, ratio_ci=(7.9, 8.1), run_id="older rules", problem_version="0" * 16))
    (row,) = places.ranking(leaderboard.record(path, entry(run_id="new")), entry().group)
    assert row.ratio is not None
    assert (row.launches, row.ratio.value) == (1, pytest.approx(1.6))


def test_a_run_that_was_judged_again_counts_once() -> None:
    past = Earlier(date="2026-05-01", run_id=entry().run_id, sha256=entry().sha256, score=1.0, ratio=9.0)
    (row,) = places.ranking(Board(entries=(entry(history=(past,)),)), entry().group)
    assert row.launches == 1


def test_an_identical_source_is_marked_and_never_ordered() -> None:
    copy = entry(author="copycat", ratio=2.0, ratio_ci=(1.9, 2.1), date="2026-06-01T12:00:00+00:00", run_id="copy")
    rows = {row.entry.author: row for row in places.ranking(Board(entries=(entry(), copy)), entry().group)}
    assert {row.place.text for row in rows.values()} == {"1-2"}
    assert rows["alice"].copy_of is None
    assert rows["copycat"].copy_of == places.Origin(
        date=entry().date, author="alice", file="submission.py", run_id=entry().run_id
    )
    assert list(rows) == ["alice", "copycat"]
    assert not any(places.is_open(row, list(rows.values())) for row in rows.values()), "settle cannot tell them apart"
    third = entry(author="third", sha256="d" * 64)
    everybody = places.ranking(Board(entries=(entry(), copy, third)), entry().group)
    assert all(places.is_open(row, everybody) for row in everybody)
    older = places.ranking(Board(entries=(entry(), replace(third, problem_version="older"))), entry().group)
    assert [row.place.text for row in older] == ["1-2", "1-2"]
    assert not any(places.is_open(row, older) for row in older), "settle runs entries of one version"


def test_a_group_without_speedups_is_ranked_by_score_and_ties_share_a_place() -> None:
    scores = {"a": 0.5, "b": 0.100002, "c": 0.1, "d": 0.2, "e": 0.10003}
    made = (
        entry(author=author, score_s=score, ratio=None, ratio_ci=None, sha256=author * 64)
        for author, score in scores.items()
    )
    assert list(shown_places(Board(entries=tuple(made))).items()) == [
        ("c", "1-3"),
        ("b", "1-3"),
        ("e", "1-3"),
        ("d", "4"),
        ("a", "5"),
    ]


def test_scores_that_are_no_times_are_ranked_by_the_contests_own_scale() -> None:
    points = {"ada": (1.5, 9.0), "bob": (1.875, 2.0)}
    made = (
        entry(author=author, score=Score(value=value, unit="points", better="more"), ratio=ratio, sha256=author)
        for author, (value, ratio) in points.items()
    )
    assert list(shown_places(Board(entries=tuple(made))).items()) == [("bob", "1"), ("ada", "2")]


def test_an_entry_without_an_interval_is_ahead_of_nobody_and_behind_nobody() -> None:
    unknown = entry(author="x", sha256="x" * 64, ratio=99.0, ratio_ci=None)
    assert shown_places(Board(entries=(*board_of(a=1.0, b=5.0).entries, unknown))) == {
        "x": "1-3",
        "b": "1-2",
        "a": "2-3",
    }


def test_entries_of_two_machines_of_one_class_are_ordered_only_where_they_are_far_apart() -> None:
    a, b = board_of(a=2.0, b=3.2).entries
    assert shown_places(Board(entries=(a, b))) == {"b": "1", "a": "2"}
    for one, other in (("m1", "m2"), ("m1", None)):
        two = Board(entries=(replace(a, machine=one), replace(b, machine=other)))
        assert shown_places(two) == {"b": "1-2", "a": "1-2"}, "one that is not known may be another"
        assert places.machines(two, a.group) == 2
    far = Board(entries=(replace(a, machine="m1"), replace(b, machine="m2", ratio=5.0, ratio_ci=(4.9, 5.1))))
    assert shown_places(far) == {"b": "1", "a": "2"}


def test_the_machines_of_earlier_launches_count() -> None:
    """Both stand with a launch on m1; b's four earlier ones were on a faster machine."""
    a, b = (replace(one, machine="m1") for one in board_of(a=2.0, b=3.2).entries)
    past = [
        Earlier(date=f"2026-04-0{day}", run_id=f"p{day}", sha256=b.sha256, score=1.0, ratio=3.2, ratio_error=0.005,
                machine="m2")
        for day in range(1, 5)
    ]  # fmt: skip
    assert shown_places(Board(entries=(a, b))) == {"b": "1", "a": "2"}
    mixed = Board(entries=(a, replace(b, history=tuple(past))))
    assert shown_places(mixed) == {"b": "1-2", "a": "1-2"}
    assert places.machines(mixed, a.group) == 2
    here = Board(entries=(a, replace(b, history=tuple(replace(one, machine="m1") for one in past))))
    assert (shown_places(here), places.machines(here, a.group)) == ({"b": "1", "a": "2"}, 1)


def test_entries_of_different_problem_versions_are_not_ordered() -> None:
    a, b = board_of(a=2.0, b=8.0).entries
    older, newer = replace(a, problem_version="1" * 16), replace(b, problem_version="2" * 16)
    assert shown_places(Board(entries=(older, newer))) == {"b": "1-2", "a": "1-2"}
    assert shown_places(Board(entries=(older, replace(newer, problem_version="1" * 16)))) == {"b": "1", "a": "2"}


def test_whoever_is_ahead_of_one_that_is_ahead_of_a_third_is_ahead_of_the_third() -> None:
    """a and b are settled, b and c far apart by their intervals, which those of a and c are not."""
    made = (replace(one, problem_version="f" * 16) for one in board_of(a=2.6, b=3.2, c=1.9).entries)
    settled = settlement(settled_file("a", 1.10), settled_file("b", 1.0))
    alone = Board(entries=tuple(made))
    assert shown_places(alone) == {"b": "1-2", "a": "1-3", "c": "2-3"}
    assert shown_places(replace(alone, settlements=(settled,))) == {"a": "1", "b": "2", "c": "3"}


def test_from_orders_that_contradict_each_other_nothing_follows() -> None:
    a, b, c, d = ((name, None) for name in "abcd")
    assert places.closed({(a, b), (b, c)}) == {(a, b), (b, c), (a, c)}
    assert places.closed({(a, b), (b, c), (c, a), (c, d)}) == {(a, b), (b, c), (c, a), (c, d), (a, d), (b, d)}


def settlement(*files: SettledFile, **changes: Any) -> Settlement:
    values: dict[str, Any] = {
        "problem": "gemm_rs",
        "suite": "cpu",
        "machine_class": entry().machine_class,
        "world_size": 8,
        "machine": "m1",
        "date": "2026-06-02T12:00:00+00:00",
        "rounds": 4,
        "resolves": 0.02,
        "problem_version": "f" * 16,
        "files": files,
        "both_judged": True,
    }
    return Settlement(**(values | changes))


def settled_file(author: str, ratio: float) -> SettledFile:
    return SettledFile(author=author, file=entry().file, sha256=author.rjust(64, "0"), ratio=ratio)


def test_a_settlement_orders_what_intervals_do_not_and_counts_more_than_they_do(path: Path) -> None:
    made = tuple(replace(one, problem_version="f" * 16) for one in board_of(a=2.0, b=2.05, c=9.0).entries)
    settled = settlement(settled_file("a", 1.03), settled_file("c", 1.01), settled_file("b", 1.0))
    found = Board(entries=made, settlements=(settled,))
    rows = places.ranking(found, entry().group)
    assert [(row.entry.author, row.place.text) for row in rows] == [("a", "1-2"), ("c", "1-3"), ("b", "2-3")]
    assert {row.place.settled for row in rows} == {settled.date}
    leaderboard.change(path, lambda now: found)
    assert leaderboard.load(path).settlements == (settled,)


def test_a_settlement_of_another_source_or_problem_version_says_nothing() -> None:
    a, b = (replace(one, problem_version="f" * 16) for one in board_of(a=2.0, b=2.05).entries)
    settled = settlement(settled_file("a", 1.05), settled_file("b", 1.0))
    assert shown_places(Board(entries=(a, b), settlements=(settled,))) == {"a": "1", "b": "2"}
    void = replace(settled, both_judged=False)
    assert shown_places(Board(entries=(a, b), settlements=(void,))) == {"b": "1-2", "a": "1-2"}
    for other in (replace(a, sha256="d" * 64), replace(a, problem_version="0" * 16)):
        assert shown_places(Board(entries=(other, b), settlements=(settled,))) == {"b": "1-2", "a": "1-2"}


def noise(**changes: Any) -> MeasuredNoise:
    values: dict[str, Any] = {
        "problem": "gemm_rs",
        "machine_class": entry().machine_class,
        "machine": None,
        "date": "2026-06-02",
        "launches": 40,
        "sd": 0.005,
    }
    return MeasuredNoise(**(values | changes))


def test_measured_noise_is_pooled_with_what_is_usual() -> None:
    a, b = board_of(a=2.0, b=2.4).entries
    assert shown_places(Board(entries=(a, b))) == {"b": "1-2", "a": "1-2"}
    assert shown_places(Board(entries=(a, b), launch_noise=(noise(),))) == {"b": "1-2", "a": "1-2"}, "of one session"
    quiet = noise(levels=(0.7,) * 40)
    assert shown_places(Board(entries=(a, b), launch_noise=(quiet,))) == {"b": "1", "a": "2"}


def test_launches_that_seem_not_to_differ_at_all_may_do_so_by_chance() -> None:
    """Of launches that differ by 3 % ten may show nothing beside what their samples explain."""
    known = known_noise(Board(launch_noise=(noise(launches=10, sd=0.0001),)), "gemm_rs", entry().machine_class, "cpu")
    assert (known.launch.freedom, known.session) == (13, USUAL["cpu"].evaluations.session)
    assert 0.03 < known.launch.sd < 0.06
    endless = known_noise(Board(launch_noise=(noise(launches=10**6),)), "gemm_rs", entry().machine_class, "cpu")
    assert endless.launch.sd == pytest.approx(LEAST, rel=1e-3)


def test_of_several_machines_of_a_class_the_one_whose_launches_differ_most_counts() -> None:
    both = Board(launch_noise=(noise(machine="m1"), noise(machine="m2", sd=0.2)))
    assert known_noise(both, "gemm_rs", entry().machine_class, "cpu").launch.sd > 0.15


@pytest.mark.parametrize(
    ("begins", "sessions"),
    [
        (["2026-05-01T00:00:00+00:00", "2026-05-01T12:00:00+00:00"], 1),
        (["2026-05-01T00:00:00+00:00", "2026-05-01T12:00:01+00:00"], 2),
        (["2026-05-02T09:00:00Z", "2026-05-01", "2026-05-02T08:00:00+00:00"], 2),
        (["d", "e", "2026-05-01"], 2),
    ],
)
def test_launches_within_twelve_hours_on_one_machine_are_a_session(begins: list[str], sessions: int) -> None:
    launches = [Earlier(date=date, run_id=date, sha256="a", score=1.0, ratio=2.0, machine="m1") for date in begins]
    assert len(list(board_noise.sessions(launches))) == sessions
    others = [replace(one, machine="m2") for one in launches]
    assert len(list(board_noise.sessions([*launches, *others]))) == 2 * sessions


def test_entries_of_one_board_are_held_against_one_limit() -> None:
    """Peaks that were measured in a busy moment made a slow entry look nearer to its limit than a fast one."""

    def case(value: float, fraction: float) -> EntryCase:
        return EntryCase(
            label="m 1",
            params={"m": 1},
            metric="wall",
            unit="us",
            value=value,
            baseline=None,
            ratio=None,
            ratio_ci=None,
            fraction=fraction,
            fraction_ci=None,
        )

    fast, slow = (
        entry(cases=(case(100.0, 0.1),), fraction=0.1),
        entry(author="b", cases=(case(200.0, 0.2),), fraction=0.2),
    )
    rows = {row.entry.author: row.fraction for row in places.ranking(Board(entries=(fast, slow)), fast.group)}
    assert rows == {"alice": pytest.approx(0.1), "b": pytest.approx(0.05)}
    of_another_clock = replace(slow, cases=(replace(case(200.0, 0.2), bounded="device"),))
    alone = places.ranking(Board(entries=(fast, of_another_clock)), fast.group)
    assert {row.entry.author: row.fraction for row in alone} == {"alice": pytest.approx(0.1), "b": 0.2}


def test_places_count_within_problem_suite_machine_class_and_world_size_only() -> None:
    changes = [{}, {"suite": "quick"}, {"problem": "a2a"}, {"world_size": 4}, {"machine_class": "other"}]
    found = Board(entries=tuple(entry(score_s=1 / (index + 1), **change) for index, change in enumerate(changes)))
    assert len(places.groups(found)) == 5
    assert all(places.place_of(found, one) == Place(place=1, last=1, of=1) for one in found.entries)
    with pytest.raises(KeyError):
        places.place_of(found, entry(author="nobody"))


# ---- what is said below a board --------------------------------------------------------------------------------------


def told_of(found: Board, by: places.By = "speedup") -> list[str]:
    group = found.entries[0].group
    return list(map(plain, notes(found, group, places.ranking(found, group, by))))


def test_a_board_of_several_machines_says_so_and_what_that_means() -> None:
    a, b = board_of(a=2.0, b=5.0).entries
    says = "entries that are not all of one machine are in order only where intervals are 25% apart"
    assert says in told_of(Board(entries=(replace(a, machine="m1"), replace(b, machine="m2"))))
    assert says not in told_of(Board(entries=(replace(a, machine="m1"), replace(b, machine="m1"))))


def test_a_board_of_several_problem_versions_names_rejudge() -> None:
    a, b = board_of(a=2.0, b=5.0).entries
    (line,) = [line for line in told_of(Board(entries=(replace(a, problem_version="1" * 16), b))) if "versions" in line]
    assert "`python -m harness rejudge --stale --problem gemm_rs`" in line
    assert not any("versions" in line for line in told_of(Board(entries=(a, b))))


def test_a_settlement_stands_below_a_board_that_is_ranked_by_points() -> None:
    made = tuple(
        replace(one, problem_version="f" * 16, score=Score(value=value, unit="points", better="more"))
        for one, value in zip(board_of(a=2.0, b=2.05, c=2.0).entries, (1.5, 1.6, 1.7), strict=True)
    )
    found = Board(entries=made, settlements=(settlement(settled_file("a", 1.10), settled_file("b", 1.0)),))
    assert any("a 1.100x" in line for line in told_of(found))
    gone = replace(found, entries=made[1:])
    assert not told_of(gone), "one of its two files is on this board"


def test_an_order_that_was_settled_outside_the_sandbox_is_marked() -> None:
    made = tuple(replace(one, problem_version="f" * 16) for one in board_of(a=2.0, b=2.05).entries)
    for confined in (True, False):
        one = settlement(settled_file("a", 1.05), settled_file("b", 1.0), confined=confined)
        console = Console(width=120, file=io.StringIO())
        terminal.show(document_of(Board(entries=made, settlements=(one,))), console)
        text = console.file.getvalue()  # type: ignore[attr-defined]
        assert text.count("ranked^") == (0 if confined else 2)
        assert ("outside the sandbox" in text) is not confined


# ---- held ------------------------------------------------------------------------------------------------------------


def held_entry(**changes: Any) -> HeldEntry:
    return replace(judgements.held(entry(), "clock", "5 us more than it says", ("run-1",)), **changes)


def test_a_held_evaluation_is_kept_with_its_evidence_and_without_a_place(path: Path) -> None:
    one = judgements.judged(failed_benchmark(HELD), "0123456789abcdef")
    assert isinstance(one, HeldEntry)
    found = leaderboard.record(path, one)
    assert found == leaderboard.load(path)
    (kept,) = found.held
    assert (found.entries, places.groups(found), kept.group) == ((), [], one.group)
    assert (kept.status, kept.check, kept.evidence) == ("held", HELD.check, HELD.evidence)
    assert (kept.score, kept.run_ids, kept.problem_version) == (None, (kept.run_id,), "0123456789abcdef")


@pytest.mark.parametrize("outcome", [one for one in FAILURES if one is not HELD], ids=lambda outcome: outcome.type)
def test_what_is_wrong_or_did_not_end_is_neither_ranked_nor_held(outcome: Any) -> None:
    assert judgements.judged(failed_test(outcome)) is None
    assert judgements.judged(failed_benchmark(outcome)) is None


def test_evidence_of_any_kind_can_be_read_again(path: Path) -> None:
    """It may quote what a submission wrote."""
    outcome = Held(check="clock", evidence=HOSTILE + "\u2028: [x]\ud800 - 'a' # b " + 1000 * "long ")
    one = judgements.judged(failed_benchmark(outcome))
    assert one is not None
    assert leaderboard.record(path, one) == leaderboard.load(path)
    (kept,) = leaderboard.load(path).held
    assert len(kept.evidence) == EVIDENCE_CHARS
    assert kept.evidence.isprintable()


@settings(max_examples=60)
@given(st.text(), st.text(), st.text(), names)
def test_whatever_was_said_of_a_held_evaluation_is_loaded_as_it_was_recorded(
    tmp_path_factory: pytest.TempPathFactory, check: str, evidence: str, why: str, author: str
) -> None:
    path = tmp_path_factory.mktemp("board") / "leaderboard.yaml"
    old = entry(author=author)
    leaderboard.record(path, old)
    held = judgements.held(old, check, evidence, ("run-1",))
    written = leaderboard.change(path, lambda now: judgements.replaced(now, old, held, why))
    assert leaderboard.load(path) == written
    again = leaderboard.record(path, replace(old, sha256="c" * 64, run_id="later"))
    assert leaderboard.load(path) == again
    assert [one.run_id for one in again.entries[0].holds] == [old.run_id]


def test_a_held_evaluation_leaves_the_same_files_entry_ranked(path: Path) -> None:
    leaderboard.record(path, entry(run_id="good"))
    found = leaderboard.record(path, held_entry(run_id="bad", sha256="b" * 64))
    assert places.place_of(found, entry()) == Place(place=1, last=1, of=1)
    assert ([one.run_id for one in found.entries], [one.run_id for one in found.held]) == (["good"], ["bad"])
    assert judgements.doubted(found, found.entries[0]) is None


def test_another_source_that_passes_sends_the_held_one_into_the_past(path: Path) -> None:
    leaderboard.record(path, entry(run_id="good", sha256="a" * 64))
    leaderboard.record(path, held_entry(run_id="bad", sha256="b" * 64))
    found = leaderboard.record(path, entry(run_id="better", sha256="c" * 64))
    assert found.held == ()
    (now,) = found.entries
    assert [one.run_id for one in now.history] == ["good"]
    assert [(one.run_id, one.check, one.why) for one in now.holds] == [("bad", "clock", "another source was evaluated")]


def test_the_very_source_that_was_held_is_ranked_when_it_passes_and_the_doubt_stays(path: Path) -> None:
    leaderboard.record(path, held_entry(run_id="bad"))
    found = leaderboard.record(path, entry(run_id="lucky"))
    (now,) = found.entries
    assert places.place_of(found, now).place == 1
    doubt = judgements.doubted(found, now)
    assert doubt is not None
    assert doubt.run_id == "bad"


def test_held_again_keeps_what_it_was_held_for_before(path: Path) -> None:
    leaderboard.record(path, held_entry(run_id="first"))
    (now,) = leaderboard.record(path, held_entry(run_id="second", check="roofline")).held
    assert (now.run_id, now.check) == ("second", "roofline")
    assert [(one.run_id, one.check, one.why) for one in now.holds] == [("first", "clock", "evaluated again")]


def test_an_entry_that_is_held_later_loses_its_place_and_nothing_else(path: Path) -> None:
    leaderboard.record(path, entry(author="bob", score_s=1.0))
    leaderboard.record(path, entry(run_id="old", score_s=0.2))
    old = next(
        one for one in leaderboard.record(path, entry(run_id="new", score_s=0.1)).entries if one.author == "alice"
    )
    held = judgements.held(old, "verify", "40 % less", ("l1", "l2"))
    found = leaderboard.change(path, lambda now: judgements.replaced(now, old, held, "not reproduced"))
    assert [(one.place.place, one.entry.author) for one in places.ranking(found, old.group)] == [(1, "bob")]
    (kept,) = found.held
    assert kept.score is not None
    assert (kept.score.value, kept.run_ids) == (0.1, ("l1", "l2"))
    assert [(one.run_id, one.why) for one in kept.history] == [("new", "not reproduced"), ("old", "evaluated again")]
    again = leaderboard.record(path, entry(run_id="newest", score_s=0.3, sha256="c" * 64))
    assert again.held == ()
    assert [one.run_id for one in again.entries[0].history] == ["new", "old"]
    assert [one.check for one in again.entries[0].holds] == ["verify"]


def test_a_judgement_of_what_is_not_there_any_more_changes_nothing(path: Path) -> None:
    old = entry(run_id="old")
    held = judgements.held(old, "verify", "less", ())
    leaderboard.record(path, entry(author="bob"))
    for says in ("it was deleted", "now stands there: new "):
        before = path.read_bytes()
        with pytest.raises(HarnessError, match=f"old was changed in the leaderboard meanwhile .{says}"):
            leaderboard.change(path, lambda now: judgements.replaced(now, old, held, "x"))
        assert path.read_bytes() == before
        leaderboard.record(path, entry(run_id="new"))


def test_a_file_of_schema_1_is_read_as_it_is_and_written_in_todays(path: Path) -> None:
    """The file in git, as the first harness wrote it."""
    text = (FIXTURES / "leaderboard-1.yaml").read_text()
    path.write_text(text)
    before = leaderboard.load(path)
    assert len(before.entries) == 2
    assert all(one.status == "ranked" and one.problem_version is None for one in before.entries)
    assert [len(one.history) for one in before.entries] == [0, 1]
    first = before.entries[0]
    assert (first.score, first.ratio) == (Score(value=0.00377485, unit="s", better="less"), 6.69078)
    assert (first.ratio_ci, first.fraction) == ((6.41306, 6.95734), 0.0318939)
    assert [(one.score, one.ratio) for one in before.entries[1].history] == [(0.00612, 4.71)]
    after = leaderboard.record(path, entry())
    assert after.entries[-1].history == ()
    assert before.entries == after.entries[:-1] == leaderboard.load(path).entries[:-1]
    assert "schema: 8\n" in path.read_text()


def test_a_file_of_schema_2_is_read_with_the_figures_that_it_states(path: Path) -> None:
    """Entries, a verified one among them, and a held one; figures that it did not have are null."""
    path.write_text((FIXTURES / "leaderboard-2.yaml").read_text())
    stated = yaml.safe_load(path.read_text())
    found = leaderboard.load(path)
    assert [one.status for one in found.entries] == ["ranked", "ranked", "verified"]
    for one, old in zip(found.entries, stated["entries"], strict=True):
        assert one.score == Score(value=old["score_s"], unit="s", better="less")
        assert (one.ratio, list(one.ratio_ci or ())) == (old["geomean_speedup"], old["geomean_speedup_ci"])
        assert (one.fraction, one.fraction_ci, one.cases) == (old["roofline_fraction"], None, ())
        assert [(past.run_id, past.score, past.ratio) for past in one.history] == [
            (past["run_id"], past["score_s"], past["geomean_speedup"]) for past in old["history"]
        ]
    verified, old = found.entries[2].verified, stated["entries"][2]["verified"]
    assert verified is not None
    assert (verified.score, list(verified.score_ci)) == (old["score_s"], old["score_s_ci"])
    assert (verified.ratio, list(verified.ratio_ci)) == (old["geomean_speedup"], old["geomean_speedup_ci"])
    (held,), (old,) = found.held, stated["held"]
    assert held.score == Score(value=old["score_s"], unit="s", better="less")
    assert (held.ratio, held.evidence, held.history[0].why) == (
        old["geomean_speedup"],
        old["evidence"],
        "not reproduced",
    )


def test_a_file_of_schema_2_loses_nothing_when_it_is_written_again(path: Path) -> None:
    path.write_text((FIXTURES / "leaderboard-2.yaml").read_text())
    before = leaderboard.load(path)
    after = leaderboard.record(path, entry())
    assert "schema: 8\n" in path.read_text()
    assert after == leaderboard.load(path) == replace(before, entries=after.entries)
    assert [one for one in after.entries if one.problem == "a2a"] == list(before.entries)


@pytest.mark.parametrize("name", ["leaderboard-3.yaml", "leaderboard-3-charts.yaml"])
def test_a_file_of_schema_3_is_read_as_it_is_and_carried_over(path: Path, name: str) -> None:
    """The file in git before places came from the speedup, and a part of it with what charts show."""
    path.write_text((FIXTURES / name).read_text())
    stated = yaml.safe_load(path.read_text())
    before = leaderboard.load(path)
    assert [(one.run_id, one.ratio, len(one.history)) for one in before.entries] == [
        (one["run_id"], one["ratio"], len(one["history"])) for one in stated["entries"]
    ]
    assert {one.machine for one in before.entries} == {None}
    assert any(one.phases_s for one in before.entries) == (name != "leaderboard-3.yaml")
    leaderboard.record(path, entry(problem="zzz"))
    assert "schema: 8\n" in path.read_text()
    assert leaderboard.load(path).entries[:-1] == before.entries


def test_a_file_of_schema_4_is_read_with_its_settlement_which_cannot_be_continued(path: Path) -> None:
    """Its only noise was measured as nothing by ten launches."""
    path.write_text((FIXTURES / "leaderboard-4.yaml").read_text())
    before = leaderboard.load(path)
    (one,) = before.settlements
    assert (one.rounds, one.looks, one.squares, one.confined) == (8, 3, None, True)
    assert not one.both_judged, "void"
    assert any(
        "void, since one file of each launch was not judged" in text
        for text in map(plain, notes(before, one.group, []))
    )
    assert [file.ratio for file in one.files] == [1.064, 1.0]
    assert [(noise.launches, noise.sd, noise.levels) for noise in before.launch_noise] == [(10, 0.0001, ())]
    leaderboard.record(path, entry(problem="zzz"))
    assert "schema: 8\n" in path.read_text()
    after = leaderboard.load(path)
    assert (after.entries[:-1], after.settlements, after.launch_noise) == (
        before.entries,
        before.settlements,
        before.launch_noise,
    )


@pytest.mark.parametrize("schema", [1, 2])
@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("score_s", "fast", "$.entries[0].score.value: expected a number, found 'fast'"),
        ("score_s", -1.0, "$.entries[0].score.value: expected a score above 0"),
        ("geomean_speedup", 0.0, "$.entries[0].ratio: expected a number above 0"),
        ("history", [{"score_s": 1.0}], "$.entries[0].history[0]: the key 'date' is missing"),
        ("history", ["x"], "$.entries[0].history[0]: expected a mapping"),
        ("verified", {"score_s": 1.0}, "$.entries[0].verified: "),
        ("verified", 3, "$.entries[0].verified: expected"),
        ("novelty", 1, "$.entries[0].novelty: unknown key"),
    ],
)
def test_an_older_file_that_does_not_fit_is_refused_and_left_alone(
    path: Path, schema: int, key: str, value: object, says: str
) -> None:
    text = (FIXTURES / f"leaderboard-{schema}.yaml").read_text()
    path.write_text(edited(lambda board: board["entries"][0].update({key: value}))(text))
    before = path.read_bytes()
    for action in (lambda: leaderboard.load(path), lambda: leaderboard.record(path, entry())):
        with pytest.raises(BadFileError) as caught:
            action()
        assert says in str(caught.value)
        assert "The file is left as it is." in str(caught.value)
    assert path.read_bytes() == before


@pytest.mark.parametrize("text", ["entries: 3", "entries: [3]", "entries: [[]]", "held: {}", "held: [null]"])
def test_an_older_file_of_another_form_is_refused(path: Path, text: str) -> None:
    path.write_text(f"schema: 2\n{text}\n")
    with pytest.raises(BadFileError, match=r"\$\.(entries|held)"):
        leaderboard.load(path)


def test_an_entry_of_schema_2_has_the_figures_of_the_same_report_today() -> None:
    """It has no cases and no interval of the fraction; whatever it has is the same."""
    now = judgements.entry_of(report())
    assert now is not None
    assert now.fraction is not None
    before = replace(now, cases=(), fraction_ci=None)
    assert same_figures(before, now)
    assert same_figures(now, now)
    for other in (
        replace(before, fraction=now.fraction * 1.0001),
        replace(before, fraction=None),
        replace(before, score=Score(value=now.score.value * 1.001, unit="s", better="less")),
        replace(before, ratio=2 * (now.ratio or 1)),
        replace(now, fraction=now.fraction * 1.0001),
        replace(now, cases=(replace(now.cases[0], value=1.0), *now.cases[1:])),
    ):
        assert not same_figures(other, now)


def test_the_committed_leaderboard_loads() -> None:
    assert leaderboard.load(ROOT / "leaderboard.yaml").entries


def test_a_change_that_changes_nothing_does_not_touch_the_file(path: Path) -> None:
    leaderboard.record(path, entry())
    before = path.stat()
    leaderboard.change(path, lambda now: now)
    after = path.stat()
    assert (after.st_ino, after.st_mtime_ns, after.st_size) == (before.st_ino, before.st_mtime_ns, before.st_size)


# ---- which entry is meant --------------------------------------------------------------------------------------------


def test_an_entry_is_found_by_run_id_its_beginning_or_its_file() -> None:
    one = entry(run_id="20260501T120000-abc123")
    other = entry(problem="a2a", file="submissions/a2a/ring.py", run_id="20260502T120000-abc123")
    held = held_entry(file="x.py", run_id="20260503T120000-abc123")
    found = Board(entries=(one, other), held=(held,))
    for text in (one.run_id, "20260501", one.file, "./" + one.file, "submission.py"):
        assert leaderboard.find(found, text) is one
    assert leaderboard.find(found, "ring.py") is other
    assert leaderboard.find(found, "x.py", "gemm_rs") is held
    for text, problem, says in (
        (
            "2026",
            None,
            r"'2026' matches 3 entries; name one by its run id:\n  20260501.*\n  20260502.*\n  20260503.*held",
        ),
        ("ring.py", "gemm_rs", "no entry of gemm_rs 'ring.py'"),
        ("submision.py", None, "did you mean 'submission.py'"),
        ("", None, "which entry"),
    ):
        with pytest.raises(UsageError, match=says):
            leaderboard.find(found, text, problem)
    with pytest.raises(UsageError, match="none is recorded"):
        leaderboard.find(Board(), "x")


def test_of_one_file_on_several_machines_the_one_here_is_meant() -> None:
    found = Board(entries=(entry(run_id="1", machine_class="there"), entry(run_id="2", machine_class="here")))
    assert leaderboard.find(found, "submission.py", machine_class="here").run_id == "2"
    with pytest.raises(UsageError, match="matches 2 entries"):
        leaderboard.find(found, "submission.py", machine_class="elsewhere")


# ---- what a judgement depends on -------------------------------------------------------------------------------------


def test_a_problem_version_follows_what_is_judged_and_by_what(tmp_path: Path, monkeypatch: Any) -> None:
    for part in ("reference", "shapes"):
        shutil.copytree(ROOT / part, tmp_path / part)
    shapes, kernel = tmp_path / "shapes/gemm_rs.yaml", tmp_path / "reference/gemm_rs/reference.py"

    def version(suite: str = "quick", ranks: int = 8, device: str = "cpu") -> str:
        problem = find("gemm_rs", Checkout(tmp_path))
        return judgements.problem_version(problem, problem.with_world_size(problem.suite(suite), ranks), device)

    first = version()
    assert re.fullmatch("[0-9a-f]{16}", first)
    assert version(device="rocm") == first  # the wall clock ranks there too
    assert version(device="cuda") != first
    shapes.write_text(shapes.read_text() + "\n# a comment\n")
    (tmp_path / "reference/a2a/reference.py").write_text("# another problem's\n")
    assert version() == first
    seen = {first, version("cpu"), version(ranks=2)}
    kernel.write_text(kernel.read_text() + "\n# another kernel\n")
    seen.add(version())
    (tmp_path / "reference/common/new.py").write_text("")
    seen |= {version(), version("cpu")}
    shapes.write_text(shapes.read_text().replace("seed: 21", "seed: 22", 1))
    seen.add(version("cpu"))
    monkeypatch.setattr(judgements, "JUDGES", judgements.JUDGES + 1)
    seen.add(version())
    assert len(seen) == 8


def test_of_several_entries_of_one_file_here_the_one_with_a_kept_source_is_meant() -> None:
    """As beside the entries that the project ships, whose sources lie on the machines that measured them."""
    shipped, mine = entry(run_id="1", author="maintainers"), entry(run_id="2", author="ada")
    found = Board(entries=(shipped, mine))
    both = (lambda one: True, lambda one: one.run_id == "2")
    assert leaderboard.find(found, "submission.py", preferred=both) is mine
    assert leaderboard.find(found, "1", preferred=both) is shipped
    with pytest.raises(UsageError, match="matches 2 entries"):
        leaderboard.find(found, "submission.py", preferred=[lambda one: False])


# ---- writing ---------------------------------------------------------------------------------------------------------


def test_a_checkout_that_cannot_be_written_is_known_before_the_evaluation(path: Path, monkeypatch: Any) -> None:
    leaderboard.check_writable(path)  # no file yet
    leaderboard.record(path, entry())
    leaderboard.check_writable(path)
    with pytest.raises(UsageError, match=r"no such folder; make it writable, or"):
        leaderboard.check_writable(path.parent / "nowhere" / path.name)
    allowed = os.access  # root may write anywhere, so a read-only folder is played
    monkeypatch.setattr(leaderboard.os, "access", lambda what, mode: what != path.parent and allowed(what, mode))
    with pytest.raises(UsageError, match=r"nothing can be written in .*; make it writable, or"):
        leaderboard.check_writable(path)
    monkeypatch.setattr(leaderboard.os, "access", lambda what, mode: what != path and allowed(what, mode))
    with pytest.raises(UsageError, match=r"the file is read-only; make it writable, or"):
        leaderboard.check_writable(path)


def test_a_board_that_is_a_link_to_itself_is_known_before_the_evaluation(path: Path) -> None:
    path.symlink_to(path.name)
    with pytest.raises(UsageError, match="it is a link to itself; remove it"):
        leaderboard.check_writable(path)


@pytest.mark.parametrize("folder", ["runs", "runs/sources"])
def test_runs_that_cannot_be_written_are_known_before_the_evaluation(folder: str, path: Path, monkeypatch: Any) -> None:
    kept = path.parent / folder
    kept.mkdir(parents=True)
    leaderboard.check_writable(path)
    allowed = os.access
    monkeypatch.setattr(leaderboard.os, "access", lambda what, mode: what != kept and allowed(what, mode))
    with pytest.raises(UsageError, match=rf"{folder}/ cannot be written: it is read-only; make it writable, or"):
        leaderboard.check_writable(path)
    kept.rmdir()
    kept.symlink_to("nowhere")
    with pytest.raises(UsageError, match=rf"{folder}/ cannot be written: it is no folder; make it writable, or"):
        leaderboard.check_writable(path)


def test_a_full_disk_is_an_error_and_leaves_the_old_file_and_nothing_else(path: Path, monkeypatch: Any) -> None:
    leaderboard.record(path, entry())
    before = path.read_bytes()

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(leaderboard.os, "fsync", full)
    with pytest.raises(HarnessError, match=r"was not written: No space left on device"):
        leaderboard.record(path, entry(author="bob"))
    assert path.read_bytes() == before
    assert sorted(item.name for item in path.parent.iterdir()) == [leaderboard.LOCK_NAME, path.name]


def test_the_files_mode_is_kept_and_a_link_stays_a_link(path: Path) -> None:
    real = path.parent / "elsewhere.yaml"
    leaderboard.record(real, entry())
    real.chmod(0o640)
    path.symlink_to(real)
    leaderboard.record(path, entry(author="bob"))
    assert path.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert len(leaderboard.load(real).entries) == 2


def test_what_a_killed_writer_left_behind_is_cleaned_up_by_the_next(path: Path) -> None:
    left = path.parent / f".{path.name}.tmp"
    left.write_text("half an ent")
    leaderboard.record(path, entry())
    assert not left.exists()
    assert len(leaderboard.load(path).entries) == 1


def test_waiting_for_the_lock_has_an_end_that_says_who_to_look_for(path: Path) -> None:
    with (path.parent / leaderboard.LOCK_NAME).open("w") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        began = time.monotonic()
        with pytest.raises(HarnessError, match=r"another process has held .*\.leaderboard\.lock for 0\.2 s.*fuser"):
            leaderboard.record(path, entry(), wait_s=0.2)
        assert 0.2 <= time.monotonic() - began < 5
    leaderboard.record(path, entry(), wait_s=0.2)
    assert len(leaderboard.load(path).entries) == 1


def record_twice(path: Path, number: int) -> None:
    for again in range(2):
        leaderboard.record(path, entry(author=str(number), run_id=f"{number}-{again}"))


def test_sixteen_processes_that_record_at_once_lose_nothing(path: Path) -> None:
    writers = [forked(partial(record_twice, path, number)) for number in range(16)]
    assert [os.waitpid(writer, 0)[1] for writer in writers] == [0] * 16
    found = {one.author: one for one in leaderboard.load(path).entries}
    assert sorted(found, key=int) == [str(number) for number in range(16)]
    assert all([old.run_id for old in one.history] == [f"{author}-0"] for author, one in found.items())


def record_for_ever(path: Path, number: int, out: int) -> None:
    while True:
        number += 1
        leaderboard.record(path, entry(score_s=float(number), run_id=str(number)))
        os.write(out, f"{number}\n".encode())


def test_a_kill_at_any_moment_leaves_the_old_or_the_new_file(path: Path) -> None:
    """A process records without pause and is killed at random moments; what it said it recorded must be there."""
    moments, number = random.Random(3), 0
    for _ in range(12):
        read, write = os.pipe()
        writer = forked(partial(record_for_ever, path, number, write))
        os.close(write)
        with open(read, encoding="utf-8") as told:
            said = [int(told.readline())]
            time.sleep(moments.uniform(0, 0.03))
            os.kill(writer, signal.SIGKILL)
            said += [int(line) for line in told.read().splitlines(keepends=True) if line.endswith("\n")]
        os.waitpid(writer, 0)
        (found,) = leaderboard.load(path).entries
        assert int(found.run_id) in (said[-1], said[-1] + 1)
        assert len(found.history) == int(found.run_id) - 1
        number = int(found.run_id)


def test_a_kill_between_any_two_system_calls_leaves_the_old_or_the_new_file(path: Path) -> None:
    """The same with no luck in it: a forked writer is killed before its first call to the system, its second, ..."""
    leaderboard.record(path, entry(run_id="old"))
    old = path.read_bytes()
    seen = []
    for fatal in range(1, 100):
        path.write_bytes(old)
        pid = os.fork()
        if pid == 0:
            _die_before(fatal)
            leaderboard.record(path, entry(run_id="new"))
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        (found,) = leaderboard.load(path).entries
        seen.append(found.run_id)
        assert path.read_bytes() == old or [one.run_id for one in found.history] == ["old"]
        if os.WIFEXITED(status):
            break
        assert os.WTERMSIG(status) == signal.SIGKILL
    assert len(seen) >= 8, "the writer was hardly interrupted"
    assert seen == sorted(seen, reverse=True)  # old, old, ..., new: there is one moment at which it changes
    assert set(seen) == {"old", "new"}
    leaderboard.record(path, replace(entry(), author="bob"))
    assert sorted(item.name for item in path.parent.iterdir()) == [leaderboard.LOCK_NAME, path.name]


def _die_before(fatal: int) -> None:
    """This process kills itself where it would make its call number `fatal`."""
    calls = 0

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == fatal:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **named)

        return call

    for name in ("open", "fsync", "replace", "close", "fchmod", "fdopen", "unlink"):
        setattr(os, name, counted(getattr(os, name)))
    fcntl.flock = counted(fcntl.flock)


def test_by_wall_entries_are_in_the_order_of_their_times_on_the_hosts_clock() -> None:
    """Whichever clock ranked them. One whose wall times are not kept stays with its score."""

    def with_wall(one: Entry, wall_us: float, device_us: float) -> Entry:
        def series(name: str, value: float) -> EntrySeries:
            return EntrySeries(
                metric=name, unit="us", low=None, value=value, high=None, baseline_low=None, baseline=300.0,
                baseline_high=None, empty=None,
            )  # fmt: skip

        cases = tuple(
            replace(case, series=(series("device", device_us), series("wall", wall_us)), metric="device")
            for case in one.cases
        )
        return replace(one, cases=cases)

    slow_host = with_wall(recorded.entry_for(recorded.run(3)), wall_us=200.0, device_us=20.0)
    quick_host = with_wall(recorded.entry_for(recorded.run(4, author="bob", times=1.2)), wall_us=100.0, device_us=25.0)
    board = Board(entries=(slow_host, quick_host))
    rows = places.ranking(board, slow_host.group, "wall")
    assert [row.entry.author for row in rows] == ["bob", slow_host.author]
    assert [row.ratio.value for row in rows if row.ratio] == [pytest.approx(3.0), pytest.approx(1.5)]
    assert [row.place.text for row in rows] == ["1", "2"]
    assert {row.by for row in rows} == {"wall"}
    assert not any(places.is_open(row, rows) for row in rows)
