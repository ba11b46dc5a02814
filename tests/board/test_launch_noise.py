"""What launches of one source differ by: as evaluations on the board showed it, and as bench/launches.py measures it, a
further day continuing the first."""

import importlib.util
import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from types import ModuleType

import pytest
from factories import GEMM_BENCHMARKS, entry, measured, report, results

from harness.board import judgements
from harness.board.entries import Board, MeasuredNoise
from harness.board.noise import USUAL, head_to_head, known_noise, launch_sd
from harness.core.checkout import ROOT
from harness.core.records import Estimate, EvalReport, Measured, Passed
from harness.judging.figures import figured, usual_of

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


def noise_of(
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
        board = bench.with_noise(board, noise_of(day, sd, level))
    (one,) = board.launch_noise
    assert (one.launches, one.levels) == (28, (1.8, 2.0, 1.9))
    assert one.sd == pytest.approx(math.sqrt((0.02**2 + 0.04**2 + 0.03**2) / 3), rel=1e-2)
    known = known_noise(board, "a2a", "c", "cpu")
    assert (known.launch.freedom, known.session.freedom) == (4 + 27, 5 + 2)
    usual = USUAL["cpu"].evaluations.session
    assert known.session.sd == pytest.approx(math.sqrt((5 * usual.sd**2 + 2 * 0.1**2) / 7))


def test_one_of_the_same_day_or_of_another_source_takes_its_place(bench: ModuleType) -> None:
    for again in (noise_of(20, 0.03), noise_of(25, 0.03, sha256="6" * 64)):
        board = bench.with_noise(bench.with_noise(Board(), noise_of(20)), again)
        assert board.launch_noise == (again,)


def test_machines_of_one_class_are_measured_each_for_itself(bench: ModuleType) -> None:
    board = bench.with_noise(bench.with_noise(Board(), noise_of(20)), noise_of(25, machine="m2"))
    assert [one.machine for one in board.launch_noise] == ["m1", "m2"]


def test_launches_that_differ_by_less_than_their_samples_explain_differ_by_nothing(bench: ModuleType) -> None:
    same = [Estimate(value=value, ci=(value * 0.9, value * 1.1)) for value in (2.0, 2.01, 1.99)]
    assert bench.between(same) == bench.LEAST_SD
    apart = [Estimate(value=value, ci=(value * 0.999, value * 1.001)) for value in (1.0, math.e)]
    assert bench.between(apart) == pytest.approx(1 / math.sqrt(2), rel=1e-4)


def launched(logs: Sequence[float], **changes: object) -> EvalReport:
    """A passed evaluation whose launches have these log ratios, each of 8 samples that hardly differ."""

    def case() -> Measured:
        own = [1000.0 * (1 + 1e-6 * at) / math.exp(log) for log in logs for at in range(8)]
        one = measured(own, [1000.0] * len(own))
        return replace(one, series=tuple(replace(each, launches=(8,) * len(logs)) for each in one.series))

    cases = results([Passed()] * 3, [case() for _ in GEMM_BENCHMARKS], GEMM_BENCHMARKS)
    return figured(report(cases, **{"device": "cuda", **changes}))


def test_an_entry_of_several_launches_has_what_they_differ_by() -> None:
    logs = [0.100, 0.102, 0.101, 0.105]
    found = judgements.entry_of(launched(logs))
    assert found is not None
    assert found.launch_sd == pytest.approx(statistics.stdev(logs), rel=1e-2)
    alone = judgements.entry_of(launched(logs[:1]))
    assert alone is not None
    assert alone.launch_sd is None


def test_later_evaluations_of_the_group_count_with_the_median_of_what_earlier_ones_showed() -> None:
    one = entry(device="cuda")
    assert launch_sd(Board(entries=(one,)), one.group, "cuda") is None, "none of several launches"
    quiet = [replace(entry(author=str(number), device="cuda"), launch_sd=0.002) for number in range(3)]
    busy = replace(entry(author="busy", device="cuda"), launch_sd=0.08)
    board = Board(entries=(*quiet, busy))
    assert launch_sd(board, one.group, "cuda") == 0.002, "the median of 0.002 0.002 0.002 0.004 0.08"
    usual = usual_of("cuda").sd
    assert launch_sd(Board(entries=(quiet[0],)), one.group, "cuda") == pytest.approx((0.002 + usual) / 2)
    assert launch_sd(board, ("another", *one.group[1:]), "cuda") is None


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_head_to_head_counts_what_launches_beside_the_reference_differed_by(device: str) -> None:
    one = entry(device=device)
    assert (
        head_to_head(Board(entries=(one,)), one.group, device)
        == USUAL["gpu" if device == "cuda" else "cpu"].head_to_head
    )
    board = Board(
        entries=tuple(replace(entry(author=str(number), device=device), launch_sd=0.002) for number in (1, 2))
    )
    found = head_to_head(board, one.group, device)
    assert (found.sd, found.freedom) == (0.002, 4)


def test_history_counts_too() -> None:
    first = replace(entry(device="cuda"), launch_sd=0.002)
    again = replace(entry(device="cuda", sha256="77" * 32, run_id="20260502T120000-abc124"), launch_sd=0.006)
    board = judgements.with_judged(judgements.with_judged(Board(), first), again)
    assert [past.launch_sd for past in board.entries[0].history] == [0.002]
    assert launch_sd(board, first.group, "cuda") == 0.004, "the median of 0.002 0.004 0.006"


def test_the_interval_follows_what_launches_are_known_to_differ_by() -> None:
    logs = [0.100, 0.102, 0.101, 0.103]
    widths = []
    for sd in (None, 0.004, 0.002):
        figures = launched(logs, usual_sd=sd).figures
        assert figures is not None
        assert figures.ratio is not None
        assert figures.ratio.ci is not None
        widths.append(math.log(figures.ratio.ci[1] / figures.ratio.ci[0]))
    assert widths[0] == widths[1], "0.4 % is usual of GPUs"
    own = statistics.variance(logs)
    expected = math.sqrt((3 * own + 4 * 0.002**2) / (3 * own + 4 * 0.004**2))
    assert widths[2] / widths[1] == pytest.approx(expected, rel=1e-3)
