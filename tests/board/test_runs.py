"""What a run leaves in runs/: all that it was, and its source once, checked against its sha256 when it is read."""

import hashlib
import json
import multiprocessing
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.board import runs
from harness.board.entries import Board
from harness.board.runs import SourceError
from harness.core.checkout import ROOT
from harness.core.errors import HarnessError, UsageError
from harness.core.records import Module, Submission
from harness.problems.submission import digest, read_submission
from tests import factories

MODULES = (
    Module(name="common.heap", file="submissions/common/heap.py", source="HEAP = 1\n"),
    Module(name="tuning", file="submissions/gemm_rs/tuning.py", source="TABLE = []\r\n"),
)
SOURCE = "from tuning import TABLE  # \u2713, and no line end"
SHA256 = digest(SOURCE, MODULES)
NAME = "submissions/gemm_rs/submission.py"


def submission() -> Submission:
    return Submission(path=f"/checkout/{NAME}", name=NAME, source=SOURCE, sha256=SHA256, modules=MODULES)


def kept(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.py")}


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """The source's folder, with one run of it."""
    runs.store(replace(factories.report(), submission=submission()), tmp_path)
    return tmp_path / "runs" / "sources" / SHA256


def test_a_run_keeps_every_file_of_its_submission_byte_for_byte(tmp_path: Path, stored: Path) -> None:
    expected = {
        "submission.py": SOURCE.encode(),
        "common/heap.py": b"HEAP = 1\n",
        "tuning.py": b"TABLE = []\r\n",
    }
    assert kept(tmp_path / "runs" / factories.report().run_id) == kept(stored) == expected


def test_a_stored_source_is_the_submission_that_ran(tmp_path: Path, stored: Path) -> None:
    found = runs.load_source(SHA256, NAME, tmp_path)
    assert (found.source, found.sha256, found.name) == (SOURCE, SHA256, NAME)
    assert [(one.name, one.source) for one in found.modules] == [(one.name, one.source) for one in MODULES]
    assert found.path == str(stored / "submission.py")


@pytest.mark.parametrize("problem", ["a2a", "moe", "gemm_rs", "ag_gemm"])
def test_the_shipped_submissions_come_back_out_of_the_store(problem: str, tmp_path: Path) -> None:
    found = read_submission(ROOT / "submissions" / problem / "submission.py", ROOT)
    runs.store_source(found, tmp_path)
    again = runs.load_source(found.sha256, found.name, tmp_path)
    assert (again.source, [(one.name, one.source) for one in again.modules]) == (
        found.source,
        [(one.name, one.source) for one in found.modules],
    )


def test_runs_of_one_source_share_its_files(tmp_path: Path, stored: Path) -> None:
    for number in range(3):
        run = runs.store(replace(factories.report(run_id=f"run-{number}"), submission=submission()), tmp_path)
        assert (run / "submission.py").stat().st_ino == (stored / "submission.py").stat().st_ino
    assert [path.name for path in stored.parent.iterdir()] == [SHA256]
    shutil.rmtree(stored)
    assert kept(run)["submission.py"] == SOURCE.encode()


def test_without_hard_links_there_are_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: Any, target: Any) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(runs.os, "link", refuse)
    run = runs.store(replace(factories.report(), submission=submission()), tmp_path)
    assert kept(run) == kept(tmp_path / "runs" / "sources" / SHA256)


def rewrite(path: Path, data: bytes) -> None:
    path.unlink()
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda folder: rewrite(folder / "submission.py", b"def custom_kernel(data): ...\n"), "was altered"),
        (lambda folder: rewrite(folder / "tuning.py", b"TABLE = [1]\r\n"), "was altered"),
        (lambda folder: rewrite(folder / "submission.py", b"\xff"), "is not whole"),
        (lambda folder: (folder / "common" / "heap.py").unlink(), "is not whole: No such file"),
        (lambda folder: (folder / "submission.py").unlink(), "is not whole: No such file"),
        (lambda folder: (folder / "modules.json").unlink(), "is not whole: No such file"),
        (lambda folder: (folder / "modules.json").write_text('["tuning", "common.heap"]'), "was altered"),
        (lambda folder: (folder / "modules.json").write_text("[]"), "was altered"),
        (lambda folder: (folder / "modules.json").write_text("{}"), "is not whole"),
        (lambda folder: (folder / "modules.json").write_text('["../../../../etc/hosts"]'), "is no module's name"),
        (lambda folder: (folder / "modules.json").write_text("["), "is not whole"),
    ],
)
def test_a_source_that_was_altered_is_not_believed_and_is_healed_by_the_next_run_of_it(
    damage: Callable[[Path], object], says: str, tmp_path: Path, stored: Path
) -> None:
    damage(stored)
    with pytest.raises(SourceError, match=says) as caught:
        runs.load_source(SHA256, NAME, tmp_path)
    assert f"runs/sources/{SHA256}" in str(caught.value)
    assert not runs.has_source(SHA256, NAME, tmp_path)
    runs.store_source(submission(), tmp_path)
    assert runs.load_source(SHA256, NAME, tmp_path).source == SOURCE
    assert [path.name for path in stored.parent.iterdir()] == [SHA256]


def test_an_entry_without_a_stored_source_is_the_file_itself_as_long_as_that_is_unchanged(tmp_path: Path) -> None:
    """As in a fresh clone, where runs/ is empty."""
    file = tmp_path / "mine.py"
    file.write_text("def custom_kernel(data): ...\n")
    sha256 = read_submission(file, tmp_path).sha256
    assert runs.load_source(sha256, "mine.py", tmp_path).source == file.read_text()
    file.write_text("def custom_kernel(data): return data\n")
    with pytest.raises(
        SourceError, match=r"the source of mine\.py with sha256 .* is not kept: runs/sources/.* missing"
    ):
        runs.load_source(sha256, "mine.py", tmp_path)


@pytest.mark.parametrize("problem", ["a2a", "gemm_rs"])
def test_a_source_that_only_an_older_harness_kept_comes_out_of_its_runs_folder(problem: str, tmp_path: Path) -> None:
    """It left the files side by side, without their order."""
    (tmp_path / "reference").symlink_to(ROOT / "reference")
    found = read_submission(ROOT / "submissions" / problem / "submission.py", ROOT)
    assert len(found.modules) > 2
    run = runs.store(factories.report(submission=found, logs={"candidate rank 3": "x"}), tmp_path)
    shutil.rmtree(tmp_path / "runs" / "sources")
    again = runs.load_source(found.sha256, found.name, tmp_path, run.name)
    assert (again.name, again.source) == (found.name, found.source)
    assert [(one.name, one.source) for one in again.modules] == [(one.name, one.source) for one in found.modules]
    rewrite(run / "tuning.py", b"# another\n")
    assert not runs.has_source(found.sha256, found.name, tmp_path, run.name)


def test_a_full_disk_leaves_no_half_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []

    def full(fd: int) -> None:
        written.append(fd)
        if len(written) == 2:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(runs.os, "fsync", full)
    with pytest.raises(HarnessError, match="No space left on device"):
        runs.store(replace(factories.report(), submission=submission()), tmp_path)
    assert list((tmp_path / "runs").rglob("*")) == [tmp_path / "runs" / "sources"]
    monkeypatch.undo()
    runs.store_source(submission(), tmp_path)
    assert runs.load_source(SHA256, NAME, tmp_path).source == SOURCE


def _store(root: Path, number: int) -> None:
    for again in range(5):
        report = factories.report(run_id=f"run-{number}-{again}")
        runs.store(replace(report, submission=submission()), root)


def test_evaluations_of_one_source_that_end_at_once_store_it_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_store, args=(tmp_path, number)) for number in range(6)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(30)
    assert [writer.exitcode for writer in writers] == [0] * 6
    assert os.listdir(tmp_path / "runs" / "sources") == [SHA256]
    assert len(list(tmp_path.glob("runs/run-*/report.json"))) == 30
    assert runs.load_source(SHA256, NAME, tmp_path).source == SOURCE


def test_what_a_checkout_knows_of_its_entries(tmp_path: Path, stored: Path) -> None:
    """Which can be reproduced, and which were judged under another version of their problem."""
    for part in ("reference", "shapes"):
        (tmp_path / part).symlink_to(ROOT / part)
    common = {"suite": "quick", "sha256": SHA256}
    ran = runs._version(factories.entry(**common), tmp_path)
    entries = (
        factories.entry(run_id="now", problem_version=ran, **common),
        factories.entry(run_id="before", author="bob", problem_version="0" * 16, **common),
        factories.entry(run_id="unknown", author="carol", suite="quick"),
        factories.entry(run_id="retired", problem="retired", problem_version="0" * 16, sha256=SHA256),
    )
    found = runs.standings(Board(entries=entries), tmp_path)
    assert {run_id: (one.reproducible, one.stale) for run_id, one in found.items()} == {
        "now": (True, False),
        "before": (True, True),
        "unknown": (False, False),
        "retired": (True, False),
    }


def test_the_order_of_modules_is_part_of_what_is_kept(stored: Path) -> None:
    assert json.loads((stored / "modules.json").read_text()) == ["common.heap", "tuning"]


def test_a_file_with_a_byte_order_mark_is_the_file_without_it(tmp_path: Path) -> None:
    """Some editors write it, and Python imports such files."""
    text = b"#!POPCORN leaderboard amd-all2all\ndef custom_kernel(data):\n    return data\n"
    (tmp_path / "plain.py").write_bytes(text)
    (tmp_path / "marked.py").write_bytes(b"\xef\xbb\xbf" + text)
    plain, marked = (read_submission(tmp_path / name, tmp_path) for name in ("plain.py", "marked.py"))
    assert (marked.source, marked.sha256) == (plain.source, plain.sha256)
    assert plain.sha256 == hashlib.sha256(text).hexdigest()


def test_a_link_to_itself_is_no_submission_file(tmp_path: Path) -> None:
    (tmp_path / "loop.py").symlink_to("loop.py")
    with pytest.raises(UsageError, match=r"no submission file loop\.py"):
        read_submission(tmp_path / "loop.py", tmp_path)
