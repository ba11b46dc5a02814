"""`rejudge`: what entries are worth after a problem or a check has changed, shown first and applied only when asked.

Evaluations are played; tests/evaluation/test_verify.py has a real one.
"""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories import CRASHED, HELD, WRONG_OUTCOME, failed_benchmark, failed_test
from launches import ENTRY_RUN, HERE, MINE, Launches, alice, launch, loaded, played, prepared
from recorded import entry_for, run_id

from harness.board import judgements, leaderboard, places, reports, runs
from harness.board.entries import Board, Entry
from harness.cli import main
from harness.core.checkout import ROOT, Checkout
from harness.core.errors import Exit, HarnessError, UsageError
from harness.core.records import Held
from harness.core.stats import geomean, median
from harness.evaluation import rejudge
from harness.judging.verdict import measured_cases
from harness.machine import host
from harness.problems.shape_file import find
from harness.report import export, history

GEMM = find("gemm_rs", Checkout.here())
NOW = judgements.problem_version(GEMM, GEMM.suite("cpu"), "cpu")
BEFORE = "0123456789abcdef"


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Launches:
    return played(monkeypatch)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout in which alice's entry was judged under an earlier problem, and bob's under today's."""
    root = prepared(tmp_path)
    versions = {"alice": BEFORE, "bob": NOW}
    leaderboard.change(
        root / "leaderboard.yaml",
        lambda now: Board(entries=tuple(replace(one, problem_version=versions[one.author]) for one in now.entries)),
    )
    runs.store(launch(2, 1.1, author="bob"), root)
    return root


def rejudged(root: Path, *arguments: str) -> int:
    return main.parse(["rejudge", *arguments]).carry_out(Checkout(root))


def tree(root: Path) -> dict[str, str]:
    """Every file with what is in it."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in root.rglob("*")
        if path.is_file()
    }


def bob(found: Board) -> Entry:
    return next(one for one in found.entries if one.author == "bob")


# ---- run again -------------------------------------------------------------------------------------------------------


def test_without_apply_the_difference_is_shown_and_nothing_is_written(
    root: Path, launches: Launches, capsys: pytest.CaptureFixture[str]
) -> None:
    launches.script = [launch(11, 2.0)]
    before = tree(root)
    assert rejudged(root, "--stale") == Exit.OK
    assert tree(root) == before
    shown = capsys.readouterr().out
    row = next(line for line in shown.splitlines() if line.startswith("gemm_rs"))
    assert row.split() == ["gemm_rs", "mine.py", "by", "alice", "1.56x", "ranked", "0.78x", "ranked"]
    assert f"{ENTRY_RUN}: rejudged: problem version {BEFORE} became {NOW}" in shown
    assert "1 of 1 entries would change; --apply judges them again" in shown


def test_with_nothing_changed_nothing_changes(
    root: Path, launches: Launches, capsys: pytest.CaptureFixture[str]
) -> None:
    """Times of another day are slower by half, those of the reference too."""
    launches.script = [launch(11, 1.03)]
    before = (root / "leaderboard.yaml").read_bytes()
    one = bob(loaded(root)).run_id
    assert rejudged(root, "--entry", one, "--rerun", "--apply") == Exit.OK
    assert (root / "leaderboard.yaml").read_bytes() == before
    assert "Nothing changes" in capsys.readouterr().out


@pytest.mark.parametrize("times", [1.03, 2.0], ids=["within noise", "beyond noise"])
@pytest.mark.parametrize("version", [BEFORE, None], ids=["another version", "unknown version"])
def test_under_another_version_the_new_launch_gives_the_figures(
    version: str | None, times: float, root: Path, launches: Launches
) -> None:
    """What was measured before is of another problem, even where noise alone would explain the difference."""
    leaderboard.change(
        root / "leaderboard.yaml",
        lambda now: Board(entries=tuple(replace(one, problem_version=version) for one in now.entries)),
    )
    launches.script = [launch(11, times)]
    old = alice(loaded(root))
    assert rejudged(root, "--entry", ENTRY_RUN, "--apply") == Exit.OK
    now = alice(loaded(root))
    assert (now.run_id, now.problem_version) == (run_id(11), NOW)
    assert now.ratio == pytest.approx((old.ratio or 0) / times, rel=1e-4)
    (past,) = now.history
    assert (past.run_id, past.ratio, past.problem_version) == (ENTRY_RUN, old.ratio, version)


def test_applied_the_new_judgement_stands_and_the_old_one_is_history(root: Path, launches: Launches) -> None:
    launches.script = [launch(11, 2.0)]
    old = alice(loaded(root))
    untouched = bob(loaded(root))
    assert rejudged(root, "--stale", "--apply") == Exit.OK
    found = loaded(root)
    now = alice(found)
    assert (now.run_id, now.problem_version, now.status) == (run_id(11), NOW, "ranked")
    assert now.score.value == pytest.approx(2 * old.score.value, rel=1e-4)
    (earlier,) = now.history
    assert (earlier.run_id, earlier.score, earlier.problem_version) == (ENTRY_RUN, old.score.value, BEFORE)
    assert earlier.why == f"rejudged: problem version {BEFORE} became {NOW}"
    assert bob(found) == untouched
    assert [one.entry.author for one in places.ranking(found, now.group)] == ["alice", "bob"], "whose file is a copy"
    assert (root / "runs" / run_id(11) / "report.json").is_file()
    launches.ran.clear()
    assert rejudged(root, "--stale") == Exit.OK
    assert launches.ran == []


@pytest.mark.parametrize(
    ("outcome", "check"),
    [(WRONG_OUTCOME, "rejudge"), (CRASHED, "rejudge"), (HELD, "roofline")],
    ids=lambda one: str(one)[:5],
)
def test_what_is_not_right_any_more_is_held_with_its_evidence(
    outcome: Any, check: str, root: Path, launches: Launches, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = failed_benchmark if outcome is HELD else failed_test
    launches.script = [replace(failed(outcome), environment=HERE, submission=MINE, run_id=run_id(11))]
    assert rejudged(root, "--entry", ENTRY_RUN, "--apply") == Exit.OK
    found = loaded(root)
    assert [one.author for one in found.entries] == ["bob"]
    (held,) = found.held
    assert (held.check, held.run_id, held.run_ids, held.problem_version) == (check, ENTRY_RUN, (run_id(11),), NOW)
    assert [one.run_id for one in held.history] == [ENTRY_RUN]
    assert f"{check}: launch 1 of 1" in capsys.readouterr().out


def test_what_a_check_of_times_holds_is_run_once_more(root: Path, launches: Launches) -> None:
    outcome = Held(check="clock", evidence="700 us more passed around its calls")
    doubtful = replace(failed_benchmark(outcome), environment=HERE, submission=MINE, run_id=run_id(11))
    launches.script = [doubtful, launch(12, 2.0)]
    rejudged(root, "--entry", ENTRY_RUN, "--apply")
    assert alice(loaded(root)).run_id == run_id(12)
    launches.script = [doubtful, replace(doubtful, run_id=run_id(13))]
    launches.ran.clear()
    rejudged(root, "--entry", run_id(12), "--rerun", "--apply")
    (held,) = loaded(root).held
    assert (held.check, held.run_ids) == ("clock", (run_id(11), run_id(13)))


def test_a_held_evaluation_that_passes_today_is_ranked_and_keeps_why_it_was_held(
    root: Path, launches: Launches
) -> None:
    held = judgements.held_of(
        replace(failed_benchmark(HELD), environment=HERE, author="carol", submission=MINE), BEFORE
    )
    assert held is not None
    leaderboard.record(root / "leaderboard.yaml", held)
    launches.script = [launch(11, 2.0, author="carol")]
    rejudged(root, "--entry", held.run_id, "--apply")
    found = loaded(root)
    assert found.held == ()
    carol = next(one for one in found.entries if one.author == "carol")
    assert [(one.check, one.problem_version) for one in carol.holds] == [("roofline", BEFORE)]


def test_what_verify_held_is_released_by_verify_or_another_problem_only(
    root: Path, launches: Launches, capsys: pytest.CaptureFixture[str]
) -> None:
    old = bob(loaded(root))
    leaderboard.change(
        root / "leaderboard.yaml",
        lambda now: judgements.replaced(now, old, judgements.held(old, "verify", "less", ()), "not reproduced"),
    )
    assert rejudged(root, "--entry", run_id(2)) == Exit.OK
    assert launches.ran == []
    assert "held by `verify`, which alone can release it" in capsys.readouterr().out


# ---- from the report -------------------------------------------------------------------------------------------------


def bounded(monkeypatch: pytest.MonkeyPatch, bound_us: float) -> None:
    """Every shape's bound by today's cost and peaks. The example's times are beyond any machine of today."""
    monkeypatch.setattr(rejudge.hardware, "bound", lambda cost, peaks: (bound_us, "flops"))


def test_an_entry_of_todays_problem_is_judged_from_its_report_without_a_run(
    root: Path, launches: Launches, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the bounds have changed, of all that its figures depend on."""
    bounded(monkeypatch, 100.0)
    old = bob(loaded(root))
    rejudged(root, "--entry", run_id(2), "--apply")
    assert launches.ran == []
    now = bob(loaded(root))
    assert (now.run_id, now.score, now.ratio) == (old.run_id, old.score, old.ratio)
    assert now.ratio_ci == old.ratio_ci
    times_us = [median(one.against_bound.own) for _, one in measured_cases(reports.find(run_id(2), root))]
    assert now.fraction == pytest.approx(100 / geomean(times_us), rel=1e-5)
    assert now.fraction != old.fraction
    assert [(one.run_id, one.why) for one in now.history] == [(run_id(2), "judged again from its report")]
    capsys.readouterr()
    before = (root / "leaderboard.yaml").read_bytes()
    assert rejudged(root, "--entry", run_id(2), "--apply") == Exit.OK
    assert "Nothing changes." in capsys.readouterr().out
    assert (root / "leaderboard.yaml").read_bytes() == before


def test_intervals_are_of_the_blocks_that_the_report_tells(
    root: Path, launches: Launches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a device was short of memory they are smaller than usual."""
    path = root / "runs" / run_id(2) / "report.json"
    report = json.loads(path.read_text())
    for case in report["cases"]:
        for series in case["outcome"].get("series", ()):
            series["block"] = 3
    path.write_text(json.dumps(report))
    bounded(monkeypatch, 100.0)
    old = bob(loaded(root))
    rejudged(root, "--entry", run_id(2), "--apply")
    now = bob(loaded(root))
    assert now.ratio == old.ratio
    assert now.ratio_ci != old.ratio_ci


def test_a_run_that_stands_twice_is_told_once_as_the_entry_has_it(
    root: Path, launches: Launches, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounded(monkeypatch, 100.0)
    rejudged(root, "--entry", run_id(2), "--apply")
    path = root / "leaderboard.yaml"
    leaderboard.change(
        path,
        lambda now: Board(
            entries=tuple(replace(one, score=replace(one.score, value=one.score.value * 2)) for one in now.entries)
        ),
    )
    found = loaded(root)
    line = next(one for one in history.lines(found, []) if one.author == "bob")
    assert [(one.run_id, one.score) for one in line.runs] == [(run_id(2), bob(found).score.value)]
    rows = [row for row in export.rows(found, [], ROOT) if row["user_name"] == "bob"]
    assert [(row["run_name"], row["run_score"]) for row in rows] == [(run_id(2), bob(found).score.value)]


def test_a_report_that_beats_todays_bound_is_held(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bounded(monkeypatch, 1e6)
    rejudged(root, "--entry", run_id(2), "--apply")
    (held,) = loaded(root).held
    assert (held.check, held.run_ids) == ("roofline", (run_id(2),))
    assert "us are less than the limit of 1000000.00 us (flops), by its report" in held.evidence


@pytest.mark.parametrize("how", ["it is gone", "it cannot be read", "it is of another source", "--rerun"])
def test_where_the_report_does_not_do_the_source_is_run_again(how: str, root: Path, launches: Launches) -> None:
    report = root / "runs" / run_id(2) / "report.json"
    if how == "it is gone":
        report.unlink()
    elif how == "it cannot be read":
        report.write_text("{")
    elif how == "it is of another source":
        report.write_text(report.read_text().replace(MINE.sha256, "0" * 64))
    launches.script = [launch(11, 2.0, author="bob")]
    rejudged(root, "--entry", run_id(2), "--apply", *(["--rerun"] if how == "--rerun" else []))
    assert len(launches.ran) == 1
    assert bob(loaded(root)).run_id == run_id(11)


# ---- which -----------------------------------------------------------------------------------------------------------


def test_all_a_problems_and_single_entries_can_be_chosen(root: Path, launches: Launches) -> None:
    launches.script = [launch(number, 2.0) for number in (11, 12, 13, 14)]
    out = root.parent / "out.json"

    def chosen(*arguments: str) -> list[str]:
        launches.ran.clear()
        rejudged(root, "--json", str(out), *arguments)
        return [one["old"]["author"] for one in json.loads(out.read_text())["entries"]]

    assert chosen() == ["alice", "bob"]
    assert chosen("--problem", "amd-gemm-rs") == ["alice", "bob"]
    assert chosen("--entry", run_id(2), "--entry", run_id(2)) == ["bob"]
    assert chosen("--stale") == ["alice"]
    for arguments, says in (
        (["--problem", "a2a"], "no entry of a2a"),
        (["--entry", "nothing"], "no entry 'nothing'"),
        (["--seconds", "-1"], "seconds above 0"),
        (["--problem", "zzz"], "no problem 'zzz'"),
    ):
        with pytest.raises(UsageError, match=says):
            rejudged(root, *arguments)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"machine_class": "4 cores of Other CPU"}, "was measured on 4 cores of Other CPU"),
        ({"sha256": "0" * 64}, "is not kept"),
        ({"suite": "retired"}, "has no suite 'retired'"),
        ({"problem": "retired"}, "no problem 'retired'"),
    ],
)
def test_what_cannot_be_judged_here_is_left_as_it_is_and_does_not_stop_the_others(
    changes: dict[str, Any], says: str, root: Path, launches: Launches, capsys: pytest.CaptureFixture[str]
) -> None:
    one = replace(entry_for(launch(30)), author="dave", problem_version=BEFORE, **changes)
    leaderboard.record(root / "leaderboard.yaml", one)
    launches.script = [launch(11, 2.0)]
    assert rejudged(root, "--stale", "--apply") == Exit.OK
    shown = capsys.readouterr().out
    assert says in shown
    assert "1 of 2 entries" in shown
    found = loaded(root)
    assert alice(found).run_id == run_id(11)
    assert next(one for one in found.entries if one.author == "dave").run_id == run_id(30)


def test_an_entry_whose_version_was_not_recorded_counts_as_stale_and_not_as_known_to_be(
    root: Path, launches: Launches
) -> None:
    leaderboard.change(
        root / "leaderboard.yaml",
        lambda now: Board(entries=tuple(replace(one, problem_version=None) for one in now.entries)),
    )
    launches.script = [launch(11, 2.0), launch(12, 3.0, author="bob")]
    rejudged(root, "--stale")
    assert len(launches.ran) == 2
    assert not any(one.stale for one in runs.standings(loaded(root), ROOT).values())


def test_an_evaluation_that_cannot_be_leaves_its_entry_and_not_the_rest(
    root: Path, launches: Launches, capsys: pytest.CaptureFixture[str]
) -> None:
    launches.script = [HarnessError("the ranks could not be started"), launch(12, 3.0, author="bob")]
    assert rejudged(root, "--rerun", "--apply") == Exit.OK
    assert "the ranks could not be started" in capsys.readouterr().out
    found = loaded(root)
    assert alice(found).run_id == ENTRY_RUN
    assert next(one for one in found.entries if one.author == "bob").run_id == run_id(12)


# ---- meanwhile -------------------------------------------------------------------------------------------------------


def test_all_is_applied_or_nothing(root: Path, launches: Launches) -> None:
    """Bob's entry is deleted while alice's is run."""
    path = root / "leaderboard.yaml"
    launches.script = [launch(11, 2.0), launch(12, 3.0, author="bob")]
    launches.during = lambda: leaderboard.change(path, lambda now: Board(entries=(alice(now),)))
    with pytest.raises(HarnessError, match=r"meanwhile \(it was deleted\)"):
        rejudged(root, "--rerun", "--apply")
    assert [one.run_id for one in loaded(root).entries] == [ENTRY_RUN]


def test_an_interrupted_one_applies_nothing(root: Path, launches: Launches) -> None:
    launches.script = [launch(11, 2.0), KeyboardInterrupt()]
    before = (root / "leaderboard.yaml").read_bytes()
    with pytest.raises(KeyboardInterrupt):
        rejudged(root, "--rerun", "--apply")
    assert (root / "leaderboard.yaml").read_bytes() == before


def test_here_is_where_these_tests_think_they_are() -> None:
    assert host.environment("", 8).machine_class == HERE.machine_class
