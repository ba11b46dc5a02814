"""bench/launches.py: what launches of one source differ by, and how a further day's measurement continues it."""

import importlib.util
import math
from types import ModuleType

import pytest

from harness.board.entries import Board, MeasuredNoise
from harness.board.noise import USUAL, known_noise
from harness.core.checkout import ROOT
from harness.core.records import Estimate

SOURCE = "5" * 64


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    """The script; tests have a module of its name."""
    spec = importlib.util.spec_from_file_location("bench_launches", ROOT / "bench" / "launches.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def measured(
    day: int, sd: float = 0.02, level: float = 1.9, machine: str = "m1", sha256: str = SOURCE
) -> MeasuredNoise:
    return MeasuredNoise(
        problem="a2a",
        machine_class="c",
        machine=machine,
        date=f"2026-11-{day:02}T12:00:00+00:00",
        launches=10,
        sd=sd,
        sha256=sha256,
        levels=(level,),
    )


def test_a_measurement_of_another_day_adds_to_the_one_of_the_same_source(bench: ModuleType) -> None:
    board = Board()
    for day, sd, level in ((20, 0.02, 1.8), (21, 0.04, 2.0), (22, 0.03, 1.9)):
        board = bench.with_noise(board, measured(day, sd, level))
    (one,) = board.launch_noise
    assert (one.launches, one.levels) == (28, (1.8, 2.0, 1.9))
    assert one.sd == pytest.approx(math.sqrt((0.02**2 + 0.04**2 + 0.03**2) / 3), rel=1e-2)
    known = known_noise(board, "a2a", "c", "cpu")
    assert (known.launch.freedom, known.session.freedom) == (4 + 27, 5 + 2)
    usual = USUAL["cpu"].evaluations.session
    assert known.session.sd == pytest.approx(math.sqrt((5 * usual.sd**2 + 2 * 0.1**2) / 7))


def test_one_of_the_same_day_or_of_another_source_takes_its_place(bench: ModuleType) -> None:
    for again in (measured(20, 0.03), measured(25, 0.03, sha256="6" * 64)):
        board = bench.with_noise(bench.with_noise(Board(), measured(20)), again)
        assert board.launch_noise == (again,)


def test_machines_of_one_class_are_measured_each_for_itself(bench: ModuleType) -> None:
    board = bench.with_noise(bench.with_noise(Board(), measured(20)), measured(25, machine="m2"))
    assert [one.machine for one in board.launch_noise] == ["m1", "m2"]


def test_launches_that_differ_by_less_than_their_samples_explain_differ_by_nothing(bench: ModuleType) -> None:
    same = [Estimate(value=value, ci=(value * 0.9, value * 1.1)) for value in (2.0, 2.01, 1.99)]
    assert bench.between(same) == bench.LEAST_SD
    apart = [Estimate(value=value, ci=(value * 0.999, value * 1.001)) for value in (1.0, math.e)]
    assert bench.between(apart) == pytest.approx(1 / math.sqrt(2), rel=1e-4)
