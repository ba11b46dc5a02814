"""bench/rows.py without a GPU: which rows an evaluation is of, and that it goes by them."""

import argparse
import importlib
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import preloaded
import pytest
import yaml
from conftest import copy_peaks
from kernel_ranks import imported

from harness.core.checkout import ROOT, Checkout
from harness.problems import shape_file

CASES: list[tuple[str, dict[int, dict[str, Any]]]] = [
    ("ag_gemm", {3: {"senders": 7}, 1: {}}),
    ("gemm_rs", {2: {"window": 4096}}),
    ("a2a", {0: {}}),
    ("moe", {4: {}}),
]
WRONG = [
    ("6", "{}", "0 to 5"),
    ("-1", "{}", "0 to 5"),
    ("1", "{", "not JSON"),
    ("1", "[]", "senders"),
    ("1", '{"sender": 3}', "senders"),
]


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """It loads problems' modules, which all have the same names."""
    monkeypatch.setattr(sys, "path", [str(ROOT / "bench"), *sys.path])
    module = importlib.import_module("rows")
    with imported("ag_gemm"):
        yield module


def test_rows_that_are_asked_for_are_evaluated_one_of_each_benchmark_at_a_time(rows: ModuleType) -> None:
    asked = [(3, {"lead": 1}), (3, {"lead": 2}), (1, {"lead": 4})]
    assert rows.evaluations(asked) == [{3: {}, 1: {}}, {3: {"lead": 1}, 1: {"lead": 4}}, {3: {"lead": 2}, 1: {}}]


@pytest.mark.parametrize(("number", "changes", "why"), WRONG)
def test_what_is_no_row_is_refused(number: str, changes: str, why: str, rows: ModuleType) -> None:
    _, tuning = rows.load("ag_gemm")
    with pytest.raises(ValueError, match=f"^--row {number}.*{why}"):
        rows.read_row(number, changes, 6, tuning.Row)


@pytest.mark.parametrize(("problem", "changed"), CASES)
def test_the_copy_has_these_benchmarks_alone_and_goes_by_these_rows(
    problem: str, changed: dict[int, dict[str, Any]], rows: ModuleType, tmp_path: Path
) -> None:
    rows.make_copy(tmp_path, problem, "sm_90", 2, changed)
    official = shape_file.find(problem, Checkout.here()).suite("official").benchmarks
    suite = shape_file.find(problem, Checkout(tmp_path)).suite(rows.SUITE)
    assert [case.params for case in suite.benchmarks] == [official[number].params for number in sorted(changed)]
    table = runpy.run_path(str(tmp_path / "submissions" / problem / "tuning.py"))["TABLE"]
    for row, (number, changes) in zip(table, changed.items(), strict=False):
        assert (row.chip, row.shape) == ("sm_90", rows.cases_of(problem, 2)[number].shape)
        assert row._asdict() | changes == row._asdict()


def test_an_evaluation_of_a_copy_says_what_it_finds(
    rows: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On CPU ranks, where no row counts, at a size that takes no time."""
    make_copy = rows.make_copy

    def make_quick_copy(root: Path, *more: Any) -> None:
        make_copy(root, *more)
        copy_peaks(root)
        shapes = root / "shapes" / "ag_gemm.yaml"
        file = yaml.safe_load(shapes.read_text())
        file["suites"][rows.SUITE]["benchmark_seconds"] = 0.1
        shapes.write_text(yaml.safe_dump(file, sort_keys=False))

    monkeypatch.setattr(rows, "make_copy", make_quick_copy)
    monkeypatch.setattr(sys, "executable", preloaded.interpreter(f"{tmp_path}/python"))
    small = {"world_size": 8, "m": 16, "n": 288, "k": 112, "has_bias": False, "seed": 31}
    monkeypatch.setattr(
        rows, "official", lambda text: {**yaml.safe_load(text), "tests": [small], "benchmarks": [small] * 6}
    )
    changed: dict[int, dict[str, Any]] = {2: {"senders": 5}}
    found = rows.evaluated("ag_gemm", "sm_90", changed, argparse.Namespace(ranks=2, launches=1))
    assert found.result.verdict == "pass"
    assert found.walls_us == [pytest.approx(found.result.figures.cases[0].value, abs=0.1)]  # on CPUs the wall ranks
    line = rows.told(changed, found)
    assert line.startswith("2 ")
    assert line.endswith('us  {"senders": 5}')
