"""What `prune` deletes: by age, number and size, and never what the board or a contest needs."""

import json
import os
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import contests
import pytest
from factories import entry
from launches import ENTRY_RUN, alice, launch, loaded, prepared

from harness.board import leaderboard, prune, runs
from harness.board.entries import Board, Earlier, HeldEntry, Hold, SettledFile, Settlement
from harness.board.prune import Limits, Needed, StoredSubmission
from harness.cli import main
from harness.contest import acts
from harness.core.checkout import Checkout
from harness.core.errors import BadFileError, Exit, UsageError
from harness.core.files import taken_bytes
from harness.machine import readings
from harness.process import compile_cache
from harness.serve import kept
from harness.serve.store import AttemptEnded, NewSubmission, QueueLimits, Store
from harness.serve.users import User

NOTHING = Needed(run_ids=frozenset(), sha256s=frozenset())
DAY_S = 86400.0
KIB = 1 << 10


def a_run(root: Path, days_old: float, name: str = "", kib: int = 4, source: Path | None = None) -> Path:
    """A run's folder, with the date of its start in its name and as its own."""
    started = time.time() - days_old * DAY_S
    name = name or f"{datetime.fromtimestamp(started, UTC):%Y%m%dT%H%M%S}-00000a"
    folder = root / "runs" / name
    folder.mkdir(parents=True)
    (folder / "report.json").write_bytes(os.urandom(kib * KIB))
    if source is not None:
        os.link(source / runs.MAIN, folder / runs.MAIN)
    aged(folder, days_old)
    return folder


def a_source(root: Path, name: str, days_old: float = 400) -> Path:
    folder = root / "runs" / runs.SOURCES / name
    folder.mkdir(parents=True)
    (folder / runs.MAIN).write_text(f"# {name}")
    return aged(folder, days_old)


def aged(path: Path, days: float) -> Path:
    os.utime(path, (time.time() - days * DAY_S,) * 2)
    return path


def going(root: Path, limits: Limits, keep: Needed = NOTHING) -> dict[str, str]:
    return {piece.path.name: piece.why for piece in prune.plan(root, keep, limits).pieces}


# ---- the rule --------------------------------------------------------------------------------------------------------


def test_runs_go_by_age_number_and_size_the_oldest_first(tmp_path: Path) -> None:
    ages = (2, 10, 20, 100)
    names = [a_run(tmp_path, age, kib=64).name for age in ages]
    assert going(tmp_path, Limits(age_s=50 * DAY_S)) == {names[3]: "age"}
    assert going(tmp_path, Limits(runs=2)) == {names[2]: "number", names[3]: "age"}
    assert set(going(tmp_path, Limits(age_s=1e12, nbytes=3 * 70 * KIB))) == {names[3]}
    assert going(tmp_path, Limits(age_s=1e12)) == {}


def test_what_is_needed_stays_however_old_and_counts(tmp_path: Path) -> None:
    old, new = a_run(tmp_path, 400).name, a_run(tmp_path, 3).name
    keep = Needed(run_ids=frozenset([old]), sha256s=frozenset())
    assert going(tmp_path, Limits(), keep) == {}
    assert going(tmp_path, Limits(runs=1), keep) == {new: "number"}


def test_what_an_evaluation_may_be_writing_stays(tmp_path: Path) -> None:
    """By the folder's own date too: an evaluation may have begun long ago."""
    aged(a_run(tmp_path, 400), 0.5)
    a_source(tmp_path, "fresh", 0.5)
    assert going(tmp_path, Limits(age_s=0, runs=0, nbytes=0)) == {}


def test_a_copied_checkout_goes_by_the_dates_in_the_names(tmp_path: Path) -> None:
    folder = aged(a_run(tmp_path, 400), 2)
    assert going(tmp_path, Limits()) == {folder.name: "age"}


def test_a_source_stays_while_a_run_that_stays_has_it(tmp_path: Path) -> None:
    used, old, _ = (a_source(tmp_path, name) for name in ("used", "old", "lost"))
    a_run(tmp_path, 3, source=used)
    gone = a_run(tmp_path, 400, source=old)
    assert going(tmp_path, Limits()) == {gone.name: "age", "old": "unused", "lost": "unused"}
    keep = Needed(run_ids=frozenset(), sha256s=frozenset(["lost"]))
    assert set(going(tmp_path, Limits(), keep)) == {gone.name, "old"}


def test_other_things_in_runs_stay(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "20200101T000000-aaaaaa").symlink_to(elsewhere)
    (tmp_path / "runs" / "note.txt").touch()
    aged(a_run(tmp_path, 400, name="serve"), 400)
    assert going(tmp_path, Limits(age_s=0, runs=0, nbytes=0)) == {}


def test_everything_that_the_board_names_is_needed() -> None:
    def earlier(sign: str) -> Earlier:
        return Earlier(date="2026-05-01", run_id=f"run-{sign}", sha256=sign * 64, score=1.0, ratio=1.0)

    def hold(sign: str) -> Hold:
        return Hold(
            date="d", run_id=f"run-{sign}", sha256=sign * 64, check="c", evidence="e", problem_version=None, why=""
        )

    one = entry(run_id="run-1", sha256="1" * 64, history=(earlier("2"),), holds=(hold("3"),))
    names = [
        "problem",
        "suite",
        "machine_class",
        "world_size",
        "device",
        "author",
        "file",
        "versions",
        "score",
        "ratio",
    ]
    common = {name: getattr(one, name) for name in [*names, "ratio", "date"]}
    held = HeldEntry(**common, sha256="4" * 64, run_id="run-4", run_ids=("run-4", "run-5"), check="c", evidence="e")
    settled = Settlement(
        problem="a2a", suite="cpu", machine_class="m", world_size=8, machine=None, date="d", rounds=4, resolves=0.1,
        problem_version="v", files=(SettledFile(author="a", file="f", sha256="6" * 64, ratio=1.0),),
    )  # fmt: skip
    found = prune.needed(Board(entries=(one,), held=(held,), settlements=(settled,)), {"run-9"})
    assert found.run_ids == {"run-1", "run-2", "run-3", "run-4", "run-5", "run-9"}
    assert {sha256[0] for sha256 in found.sha256s} == set("12346")


def test_a_run_that_is_needed_by_now_is_not_deleted(tmp_path: Path) -> None:
    one, other = a_run(tmp_path, 400), a_run(tmp_path, 300)
    plan = prune.plan(tmp_path, NOTHING, Limits())
    gone = prune.apply(plan, Needed(run_ids=frozenset([one.name]), sha256s=frozenset()))
    assert [piece.path for piece in gone] == [other]
    assert (one.exists(), other.exists()) == (True, False)


def test_a_source_that_is_used_again_is_young(tmp_path: Path) -> None:
    """Else it could go between an evaluation's start and its entry."""
    report = launch(1)
    runs.store(report, tmp_path)
    folder = aged(tmp_path / "runs" / runs.SOURCES / report.submission.sha256, 400)
    runs.store_source(report.submission, tmp_path)
    assert time.time() - folder.stat().st_mtime < 60


def test_a_file_with_several_names_takes_its_room_once(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(bytes(64 * KIB))
    os.link(tmp_path / "one", tmp_path / "two")
    assert taken_bytes(tmp_path) == 2 * taken_bytes(tmp_path, set()) == 128 * KIB


# ---- the service -----------------------------------------------------------------------------------------------------


@pytest.fixture
def queue(tmp_path: Path) -> Path:
    """alice's best run on one board, a slower and a failed one; bob's only one; and one that waits."""
    folder = tmp_path / "runs" / "serve"
    store = Store(folder / kept.FILE)
    alice_, bob = store.users.register("alice:1", "x"), store.users.register("bob:1", "x")

    def submit(user: User, ended: AttemptEnded | None) -> None:
        asked = NewSubmission(
            problem="a2a", leaderboard="amd-all2all", gpu="H200", mode="leaderboard", file_name="f", code="x" * 99
        )
        row = store.add(user, asked, QueueLimits())
        if ended is not None:
            claimed = store.claim()
            assert claimed is not None
            assert store.finish(row.id, claimed.attempt, ended)

    submit(alice_, AttemptEnded(state="succeeded", passed=True, score_s=2.0, run_id="slow", result={"a": 1}))
    submit(alice_, AttemptEnded(state="succeeded", passed=True, score_s=1.0, run_id="best", result={"a": 1}))
    submit(alice_, AttemptEnded(state="failed"))
    submit(bob, AttemptEnded(state="succeeded", passed=True, score_s=5.0, run_id="bob"))
    submit(bob, None)
    store.close()
    return folder


def found_in(queue: Path, days_later: float = 400, most: int = 1000, most_bytes: int = 1 << 30) -> kept.Kept:
    limits = Limits(age_s=90 * DAY_S, runs=most, nbytes=most_bytes)
    return kept.kept(queue, limits, time.time() + days_later * DAY_S)


def test_what_a_contest_needs_of_the_queue_stays(queue: Path) -> None:
    found = found_in(queue)
    assert found.run_ids == {"best", "bob"}
    assert [(one.id, one.why) for one in found.stored] == [(3, "age"), (1, "age")]
    assert found_in(queue, days_later=0).stored == ()
    assert [one.id for one in found_in(queue, days_later=2, most=2).stored] == [3, 1]
    assert [(one.id, one.why) for one in found_in(queue, 2, most_bytes=350).stored] == [(1, "size")]
    assert found_in(queue, days_later=0.9, most=0, most_bytes=0).stored == (), "everything of the last day stays"


def test_of_points_the_most_are_a_users_best(queue: Path) -> None:
    limits, later = Limits(age_s=90 * DAY_S), time.time() + 400 * DAY_S
    found = kept.kept(queue, limits, later, lambda problem: problem == "a2a")
    assert found.run_ids == {"slow", "bob"}
    assert [one.id for one in found.stored] == [3, 2]
    kept.forget(queue, (StoredSubmission(id=1, nbytes=1, why="age"),), lambda problem: True)
    store = Store(queue / kept.FILE)
    assert store.code(1)
    store.close()


def test_forgotten_submissions_stay_in_their_users_list(queue: Path) -> None:
    kept.forget(queue, found_in(queue).stored)
    store = Store(queue / kept.FILE)
    alice_ = store.users.known("alice:1")
    assert alice_ is not None
    assert [(row.id, row.state, row.score_s) for row in store.listed(alice_, None, 9, 0)] == [
        (3, "failed", None),
        (2, "succeeded", 1.0),
        (1, "succeeded", 2.0),
    ]
    assert [bool(store.code(number)) for number in (1, 2, 3, 4, 5)] == [False, True, False, True, True]
    assert (store.result(1), store.result(2)) == (None, {"a": 1})
    store.close()
    assert found_in(queue).stored == (), "what is gone is not counted again"


def test_a_submission_that_became_a_users_best_meanwhile_is_not_forgotten(queue: Path) -> None:
    kept.forget(queue, (StoredSubmission(id=2, nbytes=1, why="age"),))
    store = Store(queue / kept.FILE)
    assert store.code(2)
    store.close()


def test_a_file_that_is_no_queue_is_said(tmp_path: Path) -> None:
    (tmp_path / kept.FILE).write_text("no database" * 100)
    with pytest.raises(BadFileError, match="cannot be read as a queue"):
        found_in(tmp_path)
    assert found_in(tmp_path / "none") == kept.Kept()


# ---- the verb --------------------------------------------------------------------------------------------------------


def run_prune(root: Path, *arguments: str) -> int:
    return main.parse(["prune", *arguments]).carry_out(Checkout(root))


def a_cache(root: Path, name: str, days: float) -> Path:
    found = compile_cache.folder(root, name)
    assert found is not None
    with compile_cache.held(found):
        (found / "kernel").write_bytes(bytes(64 * KIB))
    aged(found.with_name(f"{name}.lock"), days)
    return found


def test_nothing_goes_without_apply_and_with_it_all_but_what_the_board_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = prepared(tmp_path)
    mine = alice(loaded(root))
    for path in (root / "runs" / ENTRY_RUN, root / "runs" / runs.SOURCES / mine.sha256):
        aged(path, 400)
    old, cache, fresh = a_run(root, 400), a_cache(root, "old", 13), a_cache(root, "fresh", 1)
    aged(cache.with_name("old.lock"), 15)
    assert run_prune(root) == Exit.OK
    told = capsys.readouterr().out
    assert "would be freed; 1 run and 1 stored source stay. `python -m harness prune --apply` deletes it." in told
    assert "1 by age" in told
    assert old.exists()
    assert cache.exists()
    assert run_prune(root, "--apply", "--json", str(root / "out.json")) == Exit.OK
    assert "freed; 1 run" in capsys.readouterr().out
    assert (old.exists(), cache.exists(), fresh.exists()) == (False, False, True)
    found = json.loads((root / "out.json").read_text())
    assert [piece["path"] for piece in found["pieces"]] == [f"runs/{old.name}"]
    assert (found["applied"], [one["name"] for one in found["caches"]]) == (True, ["old"])
    assert runs.has_source(mine.sha256, mine.file, root, mine.run_id)
    assert run_prune(root) == Exit.OK
    assert "Nothing can go" in capsys.readouterr().out


def test_no_limit_reaches_a_compile_cache_of_the_last_day(tmp_path: Path) -> None:
    fresh, old = a_cache(tmp_path, "fresh", 0.9), a_cache(tmp_path, "old", 1.1)
    assert run_prune(tmp_path, "--older-than", "0", "--apply") == Exit.OK
    assert (fresh.exists(), old.exists()) == (True, False)


def test_a_board_that_does_not_load_keeps_everything(tmp_path: Path) -> None:
    old = a_run(tmp_path, 400)
    (tmp_path / "leaderboard.yaml").write_text("entries: 1\n")
    with pytest.raises(BadFileError):
        run_prune(tmp_path, "--apply")
    assert old.exists()


def test_what_a_contest_needs_of_runs_stays(tmp_path: Path, queue: Path) -> None:
    best, slow = (a_run(tmp_path, 400, name=name) for name in ("best", "slow"))
    assert run_prune(tmp_path, "--apply") == Exit.OK
    assert (best.exists(), slow.exists()) == (True, False)


def test_what_the_entries_of_a_contest_rest_on_stays(tmp_path: Path) -> None:
    """Its file in contests/ is enough: the leaderboard may never have had them."""
    (tmp_path / acts.FOLDER).mkdir()
    found = contests.contest(tmp_path / acts.FOLDER)
    contests.register(found, "tensor", "ada")
    ranked = contests.ranked(found, "ada", 2.0)
    (needed_run,) = ranked.run_ids
    run, other = a_run(tmp_path, 400, name=needed_run), a_run(tmp_path, 400)
    source, lost = a_source(tmp_path, ranked.sha256), a_source(tmp_path, "ee" * 32)
    assert run_prune(tmp_path, "--apply") == Exit.OK
    assert (run.exists(), source.exists()) == (True, True)
    assert (other.exists(), lost.exists()) == (False, False)


def test_a_contest_that_does_not_load_keeps_everything(tmp_path: Path) -> None:
    old = a_run(tmp_path, 400)
    (tmp_path / acts.FOLDER).mkdir()
    (tmp_path / acts.FOLDER / "class.yaml").write_text("name: 1\n")
    with pytest.raises(BadFileError):
        run_prune(tmp_path, "--apply")
    assert old.exists()


@pytest.mark.parametrize("bad", [("--older-than", "-1"), ("--max-size", "inf"), ("--keep", "-3")])
def test_a_limit_below_zero_is_refused(bad: tuple[str, str], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=bad[0]):
        run_prune(tmp_path, *bad)


def test_limits_may_be_larger_than_any_disk(tmp_path: Path) -> None:
    old = a_run(tmp_path, 400)
    run_prune(tmp_path, "--apply", "--older-than", "1e308", "--max-size", "1e308")
    assert old.exists()


def test_doctor_reads_what_a_checkout_keeps(tmp_path: Path, queue: Path) -> None:
    a_run(tmp_path, 1, kib=256)
    a_cache(tmp_path, "one", 1)
    found = readings.read_disk(tmp_path)
    assert isinstance(found, readings.Disk)
    assert 256 * KIB <= found.runs_bytes < 400 * KIB
    assert found.caches_bytes >= 64 * KIB
    assert found.queue_bytes > 4 * KIB
    assert readings.read_disk(tmp_path / "none") != found


def test_the_leaderboard_is_read_again_before_anything_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An evaluation may have ended, or `verify` named a run, while the plan was made."""
    old = a_run(tmp_path, 400)
    boards = iter([Board(), Board(entries=(replace(entry(), run_id=old.name),))])
    monkeypatch.setattr(leaderboard, "load", lambda path: next(boards))
    assert run_prune(tmp_path, "--apply") == Exit.OK
    assert old.exists()
