"""Head to head: one word and only one for every interval, wrong about as seldom as it says; what cannot be compared
says why."""

import io
import json
import math
import random
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from factories import (
    A2A_BENCHMARKS,
    ENVIRONMENT,
    FAILURES,
    WRONG_OUTCOME,
    failed_benchmark,
    failed_test,
    measured,
    results,
)
from hypothesis import given
from hypothesis import strategies as st
from launches import FEW
from recorded import gpu, run, run_id, store
from rich.console import Console

from harness.board import reports
from harness.board.entries import Board, MeasuredNoise
from harness.core.checkout import ROOT
from harness.core.errors import Exit, HarnessError, UsageError
from harness.core.records import EvalReport, Measured, Outcome, Passed, Series
from harness.evaluation import compare, compare_runs
from harness.evaluation.compare import Comparison, Difference, mean, paired, ratio, unpaired, word
from harness.judging import verdict
from harness.judging.warnings import text_of
from harness.problems.submission import digest
from harness.report import comparison
from harness.report.render import terminal

Harness = Callable[..., subprocess.CompletedProcess[str]]

SWAPPED = {"BETTER": "WORSE", "WORSE": "BETTER", "SAME": "SAME", "AMBIGUOUS": "AMBIGUOUS"}
logs = st.floats(-5, 5)
margins = st.floats(0, 0.5)
times = st.floats(0.5, 1e6)

ZEROS = "import torch\n\n\ndef custom_kernel(data):\n    return torch.zeros_like(data[1].x)\n"
RAISES_LATE = """\
from reference import ref_kernel

calls = 0


def custom_kernel(data):
    global calls
    calls += 1
    if calls > 15:  # more than the tests of suite quick call it
        raise IndexError("worn out")
    return ref_kernel(data)
"""

TWO_MACHINES = (
    "A's and B's runs are not known to be of one machine: intervals are 25% wider on either side; to be sure, compare "
    "the files on one"
)
DRIFTED = "the reference's times in A's run were "


# ---- the rule --------------------------------------------------------------------------------------------------------


@given(st.tuples(logs, logs).map(sorted), margins)
def test_exactly_one_word_applies_to_an_interval(interval: list[float], margin: float) -> None:
    low, high = interval
    edge = math.log1p(margin)
    within = -edge <= low and high <= edge
    applies = {"BETTER": low > edge, "WORSE": high < -edge, "SAME": within}
    applies["AMBIGUOUS"] = not any(applies.values())
    assert [one for one, does in applies.items() if does] == [word(low, high, margin)]


@given(st.tuples(logs, logs).map(sorted), margins)
def test_swapping_a_and_b_swaps_faster_and_slower(interval: list[float], margin: float) -> None:
    low, high = interval
    assert word(-high, -low, margin) == SWAPPED[word(low, high, margin)]


@given(st.lists(st.tuples(times, times), min_size=1, max_size=40), st.integers(1, 8), margins)
def test_swapping_the_samples_inverts_the_ratio_and_its_interval(
    pairs: list[tuple[float, float]], size: int, margin: float
) -> None:
    a_us, b_us = zip(*pairs, strict=True)
    for differ in (paired, unpaired):
        one, other = (ratio(differ(*sides, size), margin) for sides in ((a_us, b_us), (b_us, a_us)))
        assert other.word == SWAPPED[one.word]
        assert other.value == pytest.approx(1 / one.value)
        if one.ci is not None:
            assert one.ci[0] <= one.value <= one.ci[1]
            assert other.ci is not None
            if one.ci[0] > 1e-200:
                assert other.ci[1] == pytest.approx(1 / one.ci[0])
        else:
            assert one.word == "AMBIGUOUS"


def samples(chance: random.Random, count: int, spread: float, time_us: float = 1000.0) -> list[float]:
    """Independent samples, some of them outliers, as a machine that others use too gives them."""
    return [
        time_us * math.exp(chance.gauss(0, spread) + (chance.random() < 0.05) * chance.expovariate(0.1) * spread)
        for _ in range(count)
    ]


def rate(words: list[str], *of: str) -> float:
    return sum(one in of for one in words) / len(words)


@pytest.mark.parametrize("differ", [paired, unpaired])
@pytest.mark.parametrize(("shapes", "count"), [(1, 16), (1, 60), (3, 16)])
@pytest.mark.parametrize("spread", [0.003, 0.05, 0.3])
def test_a_file_against_itself_is_faster_or_slower_in_less_than_one_of_twenty(
    differ: Callable[..., Difference], shapes: int, count: int, spread: float
) -> None:
    chance = random.Random(7)
    found, intervals = [], []
    for _ in range(400):
        both = [[samples(chance, count, spread) for _ in "ab"] for _ in range(shapes)]
        one = ratio(mean([differ(a, b, 4) for a, b in both]), compare.MARGIN)
        found.append(one.word)
        assert one.ci is not None
        intervals.append(one.ci[0] <= 1 <= one.ci[1])
    assert rate(found, "BETTER", "WORSE") < 0.05
    assert sum(intervals) / len(intervals) > 0.92, "the interval holds the truth as often as it says"
    if spread == 0.003:
        assert rate(found, "SAME") > 0.95


def test_stopping_when_it_is_precise_enough_is_not_rewarded() -> None:
    """Samples are taken until their ratio is known well, which is also when chance makes them look alike."""
    from harness.ranks.clocks import Budget, relative_error

    chance, budget, found = random.Random(3), Budget(seconds=1), []
    for _ in range(300):
        a, b = samples(chance, 16, 0.015), samples(chance, 16, 0.015)
        while relative_error(b, a) >= budget.target_error and len(a) < budget.max_samples:
            a, b = a + samples(chance, 4, 0.015), b + samples(chance, 4, 0.015)
        found.append(ratio(paired(a, b, budget.block), compare.MARGIN).word)
    assert rate(found, "BETTER", "WORSE") < 0.05


def test_a_difference_of_the_margin_is_not_called_faster_and_a_large_one_is() -> None:
    chance = random.Random(5)
    for gain, least, most in ((1 + compare.MARGIN, 0.0, 0.05), (1.15, 0.95, 1.0)):
        found = []
        for _ in range(300):
            a, b = samples(chance, 32, 0.05, 1000.0 * gain), samples(chance, 32, 0.05)
            found.append(ratio(paired(a, b, 4), compare.MARGIN).word)
        assert least <= rate(found, "BETTER") <= most
        assert rate(found, "WORSE") == 0


def test_drift_that_both_sides_share_does_not_blur_what_was_timed_in_turn() -> None:
    chance = random.Random(1)
    drift = [1 + index / 10 for index in range(40)]
    a, b = ([time * slow for time, slow in zip(samples(chance, 40, 0.002), drift, strict=True)] for _ in "ab")
    assert ratio(paired(a, [0.9 * time for time in b], 4), compare.MARGIN).word == "BETTER"
    assert ratio(unpaired(a, [0.9 * time for time in b], 4), compare.MARGIN).word == "AMBIGUOUS"


def test_one_block_says_nothing_and_so_does_a_summary_over_it() -> None:
    lone = paired([200.0] * 7, [100.0] * 7, 4)
    sure = paired([200.0] * 16, [100.0] * 16, 4)
    assert ratio(sure, 0.02) == compare.Ratio(
        value=pytest.approx(2), ci=(pytest.approx(2), pytest.approx(2)), word="BETTER"
    )
    for one in (lone, mean([lone, sure])):
        assert ratio(one, 0.02).ci is None
        assert ratio(one, 0.02).word == "AMBIGUOUS"


@given(st.lists(st.tuples(logs, st.floats(1e-6, 1), st.floats(1, 100)), min_size=1, max_size=8))
def test_the_summary_is_the_geometric_mean_and_no_less_free_than_its_least_free_shape(
    parts: list[tuple[float, float, float]],
) -> None:
    found = mean([Difference(log=log, variance=variance, freedom=free) for log, variance, free in parts])
    assert found.log == pytest.approx(sum(log for log, _, _ in parts) / len(parts), abs=1e-9)
    frees = [free for _, _, free in parts]
    assert min(frees) * (1 - 1e-9) <= found.freedom <= sum(frees) * (1 + 1e-9)


# ---- recorded runs ---------------------------------------------------------------------------------------------------


def many(number: int, factor: float = 1.0, ref_factor: float = 1.0, seed: int = 0, **changes: object) -> EvalReport:
    """A recorded run of a file of its own, whose samples are many and differ by half a percent."""
    source = f"# file {number}\n"
    file = replace(run(number).submission, source=source, sha256=digest(source, ()))
    chance = random.Random(f"{number}/{seed}")

    def timed(time_us: float) -> Measured:
        return measured(
            samples(chance, 60, 0.005, factor * time_us),
            samples(chance, 60, 0.005, 2 * ref_factor * time_us),
            block=4,
        )

    return run(
        number,
        results=results([Passed()] * 3, [timed(500), timed(5000), timed(50000)]),
        **{"submission": file} | changes,
    )


def on_a_machine(found: EvalReport, factors: list[float]) -> EvalReport:
    """The run where each benchmark takes so many times as long, the reference's and the file's."""
    scaled = iter(factors)

    def slowed(one: Series, by: float) -> Series:
        own, baseline = (tuple(by * sample for sample in samples) for samples in (one.own, one.baseline))
        return replace(one, own=own, baseline=baseline)

    def slow(outcome: Outcome) -> Outcome:
        if not isinstance(outcome, Measured):
            return outcome
        by = next(scaled)
        return replace(outcome, series=tuple(slowed(one, by) for one in outcome.series))

    return replace(found, results=tuple(replace(one, outcome=slow(one.outcome)) for one in found.results))


def said(found: Comparison) -> tuple[str, ...]:
    return tuple(map(text_of, found.warnings))


def steady(time_us: float) -> Measured:
    return measured((time_us,) * 8, (9000.0,) * 8)


def read(root: Path, found: EvalReport) -> EvalReport:
    return reports.load(store(root, found), root)


@pytest.mark.parametrize(
    ("factor", "expected"), [(1.5, "WORSE"), (0.6, "BETTER"), (1.2, "AMBIGUOUS"), (1.0, "AMBIGUOUS")]
)
def test_two_recorded_runs_are_compared_shape_by_shape(tmp_path: Path, factor: float, expected: str) -> None:
    found = compare_runs.recorded(read(tmp_path, many(3)), read(tmp_path, many(4, factor)), 0.02)
    assert found.summary.word == expected
    assert found.summary.value == pytest.approx(1 / factor, rel=0.01)
    assert [one.word for one in found.ratios] == [expected] * 3 or expected == "AMBIGUOUS"
    assert (found.a.run_id, found.b.run_id, found.how, found.warnings) == (run_id(3), run_id(4), "unpaired", ())


def test_what_differs_between_two_runs_beside_the_submission_is_said(tmp_path: Path) -> None:
    elsewhere = replace(ENVIRONMENT, machine_class="8 NVIDIA H200", torch="2.14.0")
    other = many(4, environment=elsewhere, suite="official", world_size=4)
    found = compare_runs.recorded(read(tmp_path, many(3)), read(tmp_path, other), 0.02)
    assert said(found) == (
        "machine differs: 2 cores of Example CPU @ 2.00GHz (A), 8 NVIDIA H200 (B)",
        "torch differs: 2.13.0 (A), 2.14.0 (B)",
        "suite differs: cpu (A), official (B)",
        "world size differs: 8 ranks (A), 4 ranks (B)",
        TWO_MACHINES,
    )
    unknown = compare_runs.recorded(read(tmp_path, many(5)), read(tmp_path, many(6, environment=None)), 0.02)
    assert "machine differs: 2 cores of Example CPU @ 2.00GHz (A), unknown (B)" in said(unknown)


def test_a_machine_that_was_faster_the_other_time_is_not_the_files_doing(tmp_path: Path) -> None:
    """One source in two runs was called FASTER 1.31x: each is divided by its own reference."""
    found = compare_runs.recorded(read(tmp_path, many(3)), read(tmp_path, many(4, 0.76, ref_factor=0.76)), 0.02)
    assert (found.summary.word, found.summary.value) == ("AMBIGUOUS", pytest.approx(1.0, rel=0.01))
    assert f"{DRIFTED}1.3" in said(found)[0]
    assert compare.exit_code([found], ["ambiguous", "faster", "slower", "same"]) == Exit.OK, "drift fails nothing"


def test_a_reference_that_drifted_by_more_than_is_claimed_leaves_it_open(tmp_path: Path) -> None:
    runs = (many(3), many(4, 1.5, ref_factor=1.0), many(5, 3.0, ref_factor=2.0))
    first, second, third = (read(tmp_path, one) for one in runs)
    assert compare_runs.recorded(first, second, 0.02).summary.word == "WORSE"
    assert compare_runs.recorded(first, third, 0.02).summary.word == "AMBIGUOUS"


@pytest.mark.parametrize(("factor", "word"), [(1.4, "AMBIGUOUS"), (1.0, "AMBIGUOUS"), (2.0, "WORSE")])
def test_two_machines_of_one_class_may_differ_by_a_quarter(tmp_path: Path, factor: float, word: str) -> None:
    """As on the board. On one machine 1.4 times as long is SLOWER."""
    here, there = (replace(ENVIRONMENT, machine=name * 12) for name in "ab")
    first, again = (read(tmp_path, many(number, environment=here)) for number in (3, 4))
    slower = read(tmp_path, many(5, factor, environment=here))
    elsewhere = replace(slower, environment=there)
    one, two = (compare_runs.recorded(first, run, 0.02) for run in (slower, elsewhere))
    assert (one.apart, one.summary.word) == (0.0, "AMBIGUOUS" if factor == 1.0 else "WORSE")
    assert (one.warnings, said(two), two.summary.word) == ((), (TWO_MACHINES,), word)
    assert [each.word for each in two.ratios] == [word] * 3
    (low, high), (low_of_one, high_of_one) = two.summary.ci or (), one.summary.ci or ()
    assert (low_of_one / low, high / high_of_one) == (pytest.approx(1.25), pytest.approx(1.25))
    unknown = replace(elsewhere, environment=ENVIRONMENT)  # recorded by an older harness
    assert compare_runs.recorded(again, unknown, 0.02).apart == math.log(1.25)
    assert compare_runs.recorded(replace(again, environment=ENVIRONMENT), unknown, 0.02).apart == 0.0


def test_references_that_drifted_in_opposite_directions_do_not_cancel(tmp_path: Path) -> None:
    """A shape whose reference moved by more than is claimed says nothing; another one is judged."""
    first, second = read(tmp_path, many(3)), read(tmp_path, many(4, 1.5))
    found = compare_runs.recorded(first, on_a_machine(second, [1.8, 1.0, 1 / 1.8]), 0.02)
    assert found.drift == pytest.approx(0, abs=0.01)
    assert [row.drift for row in found.rows] == pytest.approx([-math.log(1.8), 0, math.log(1.8)], abs=0.01)
    assert [one.word for one in found.ratios] == ["AMBIGUOUS", "WORSE", "AMBIGUOUS"]
    assert (found.summary.word, found.summary.value) == ("WORSE", pytest.approx(1 / 1.5, rel=0.01))
    assert said(found)[0].startswith(f"{DRIFTED}0.55")
    assert "x to 1.8" in said(found)[0]
    more = compare_runs.recorded(first, on_a_machine(second, [2.2, 1.0, 1 / 2.2]), 0.02)
    assert (more.drift, more.summary.word) == (pytest.approx(0, abs=0.01), "AMBIGUOUS")
    assert compare.exit_code([more], ["slower", "ambiguous"]) == Exit.OK, "drift fails nothing"


def test_two_runs_of_one_source_are_said_to_be_of_one(tmp_path: Path) -> None:
    one, other = (read(tmp_path, run(number)) for number in (3, 4))
    assert said(compare_runs.recorded(one, other, 0.02)) == (
        "A and B have the same text: any difference is noise of the harness and the machine",
    )


def test_what_launches_were_measured_to_differ_by_is_in_the_interval(tmp_path: Path) -> None:
    first, second = read(tmp_path, many(3)), read(tmp_path, many(4, 1.2))
    quiet = MeasuredNoise(
        problem=first.problem,
        machine_class=ENVIRONMENT.machine_class,
        machine=None,
        levels=(0.0,) * 40,
        date="2026-05-01",
        launches=20,
        sd=0.01,
    )
    found = compare_runs.recorded(first, second, 0.02, Board(launch_noise=(quiet,)))
    assert found.summary.word == "WORSE"


def test_only_shapes_of_both_runs_are_compared(tmp_path: Path) -> None:
    fewer = run(4, results=results([Passed()] * 3, [gpu(steady(500)), gpu(steady(5000))]))
    found = compare_runs.recorded(read(tmp_path, many(3)), read(tmp_path, fewer), 0.02)
    assert len(found.rows) == 2
    assert said(found)[0] == "2 shapes are in both runs, of 3 (A) and 2 (B)"


def test_what_cannot_be_compared_is_an_error_that_says_why(tmp_path: Path) -> None:
    one = read(tmp_path, many(3))
    others = {
        "are the same run": one,
        "is of gemm_rs and .* of a2a; compare runs of one problem": read(tmp_path, many(4, problem="a2a")),
        r"did not pass \(fail\)": read(tmp_path, replace(failed_test(WRONG_OUTCOME), run_id=run_id(5))),
        "measured nothing": read(tmp_path, run(6, mode="test", results=results([Passed()] * 3, []))),
        "no shape in common": read(tmp_path, run(7, results=results([], [steady(9.0)], A2A_BENCHMARKS))),
    }
    for message, other in others.items():
        with pytest.raises(UsageError, match=message):
            compare_runs.recorded(one, other, 0.02)


# ---- sides that fail -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", FAILURES, ids=lambda outcome: outcome.type)
def test_a_side_that_fails_ends_the_comparison_with_its_exit_code(outcome: object) -> None:
    for report in (failed_test(outcome), failed_benchmark(outcome)):
        with pytest.raises(HarnessError) as error:
            compare._passed("B", report)
        assert error.value.exit_code == verdict.exit_code(report)
        text = str(error.value)
        assert text.startswith("B (submissions/gemm_rs/submission.py) fails, so nothing is compared: ")
        assert "reference" not in text
        assert "\x1b" not in text


# ---- what is shown ---------------------------------------------------------------------------------------------------


def shown(found: compare.Comparison) -> str:
    console = Console(file=io.StringIO(), width=80, force_terminal=False, _environ={})
    terminal.show(comparison.document_of([found]), console)
    assert isinstance(console.file, io.StringIO)
    return "".join(f"{line.rstrip()}\n" for line in console.file.getvalue().splitlines())


def test_a_comparison_reads_well(tmp_path: Path) -> None:
    runs = [
        replace(many(number), results=results([Passed()] * 3, [steady(factor * 500), steady(factor * 5000)]))
        for number, factor in ((3, 1.0), (4, 1.5))
    ]
    assert shown(compare_runs.recorded(*(read(tmp_path, one) for one in runs), 0.02)) == (
        "gemm_rs\n"
        "A  submissions/gemm_rs/submission.py, run 20260503T120000-000003\n"
        "B  submissions/gemm_rs/submission.py, run 20260504T120000-000004\n"
        "8 ranks on cpu, suite cpu, timed apart, another time\n"
        "\n"
        "shape                       A us   B us    A / B     95 % interval  B is\n"
        "m 64 n 7168 k 18432          500    750  0.6667x  0.5057 to 0.8789  SLOWER\n"
        "m 512 n 4096 k 12288 bias  5,000  7,500  0.6667x  0.5057 to 0.8789  SLOWER\n"
        "\n"
        "Times are medians on the wall clock, A / B is by pairs of calls in blocks.\n"
        "B is FASTER when the whole 95 % interval of A / B lies above 1.02, SLOWER when\n"
        "it lies below 1 / 1.02, SAME when it lies between them, AMBIGUOUS when it\n"
        "crosses an edge. Where A and B differ by no more than 2 %, FASTER or SLOWER is\n"
        "said in less than 5 % of comparisons.\n"
        "The summary is of the geometric mean; a shape's word is not corrected for their\n"
        "number.\n"
        "A / B is the ratio of speedups, each over its own run's reference. Intervals\n"
        "include that launches of one source differ by 9%.\n"
        "\n"
        "summary  B is SLOWER  A / B is 0.6667x (95 % interval 0.5057 to 0.8789), geometric mean over 2 shapes\n"
    )


# ---- the command -----------------------------------------------------------------------------------------------------


def test_two_files_are_timed_head_to_head(harness: Harness, checkout: Path) -> None:
    """The reference as an ordinary file against the shipped submission, which is several times as fast. On a busy
    machine a few samples may say so and still not be sure."""
    files = ("submissions/a2a/reference.py", "submissions/a2a/submission.py")
    found = harness(
        *(
            "compare",
            *files,
            "--problem",
            "a2a",
            "--suite",
            "quick",
            "--ranks",
            "2",
            "--seconds",
            "0.2",
            "--fail-if",
            "slower",
            "--json",
            "out.json",
        )
    )
    assert found.returncode == 0, found.stderr
    lines = found.stdout.splitlines()
    assert lines[:2] == ["a2a", "A  submissions/a2a/reference.py"]
    assert "Outputs of A and of B were judged in every call" in " ".join(found.stdout.split())
    assert "reference" not in found.stdout.replace(files[0], "")
    told = json.loads((checkout / "out.json").read_text())
    (one,) = told["comparisons"]
    assert (told["schema"], told["exit_code"], one["how"], one["problem"]) == (2, 0, "paired", "a2a")
    assert (one["a"]["path"], one["b"]["path"]) == files
    summary = one["summary"]
    assert lines[-1].startswith(f"summary  B is {summary['word']}  A / B is ")
    assert summary["ratio"] > 1.02
    for case in (summary, *one["cases"]):
        assert case["ratio_ci"][0] <= case["ratio"] <= case["ratio_ci"][1]
        assert case["word"] == ("FASTER" if case["ratio_ci"][0] > 1.02 else "AMBIGUOUS")
    assert all(len(case["a_samples_us"]) == len(case["b_samples_us"]) >= 16 for case in one["cases"])
    assert not (checkout / "runs").exists()
    assert not (checkout / "leaderboard.yaml").exists()


def test_a_side_that_is_wrong_or_raises_is_named(harness: Harness, checkout: Path) -> None:
    (checkout / "zeros.py").write_text(ZEROS)
    (checkout / "late.py").write_text(RAISES_LATE)
    good = "submissions/a2a/submission.py"
    for a, b, failing in (("zeros.py", good, "A (zeros.py)"), (good, "zeros.py", "B (zeros.py)")):
        found = harness("compare", a, b, "--problem", "a2a", "--suite", "quick", "--ranks", "2", "--json", "out.json")
        assert found.returncode == Exit.INVALID, found.stderr
        assert f"error: {failing} fails, so nothing is compared: test " in found.stderr
        assert json.loads((checkout / "out.json").read_text())["exit_code"] == Exit.INVALID
    found = harness("compare", "late.py", good, "--problem", "a2a", "--suite", "quick", "--ranks", "2", *FEW)
    assert found.returncode == Exit.INVALID, found.stderr
    assert "error: A (late.py) fails, so nothing is compared: benchmark " in found.stderr
    assert "IndexError: worn out" in found.stderr


def test_what_was_asked_for_wrongly_is_a_usage_error(harness: Harness, checkout: Path) -> None:
    good = "submissions/a2a/submission.py"
    for arguments, message in (
        ((good,), "compare takes two"),
        ((good, "submissions/../" + good, "--problem", "a2a"), "A and B are the same file"),
        ((good, "none.py", "--problem", "a2a"), "no submission file none.py"),
        ((good, "other.py"), "say of which problem (--problem P"),
        (("20260101", "20260102"), "no run '20260101' in runs/"),
        (("20260101", "20260102", "--suite", "quick"), "--suite: recorded runs are timed already"),
        ((good, "other.py", "--problem", "a2a", "--margin", "-1"), "--margin -1.0: a percentage"),
        ((good, "other.py", "--problem", "nothing"), "nothing"),
    ):
        found = harness("compare", *arguments)
        assert (found.returncode, message in found.stderr) == (Exit.USAGE, True), found.stderr


def test_recorded_runs_are_found_by_the_beginning_of_their_ids(harness: Harness, checkout: Path) -> None:
    for one in (many(3), many(4, 1.5), many(5)):
        store(checkout, one)
    found = harness("compare", run_id(3)[:8], run_id(4), run_id(5), "--fail-if", "slower", "--json", "out.json")
    assert found.returncode == Exit.FAIL_IF, found.stderr
    assert found.stdout.count("summary  B is SLOWER") == found.stdout.count("summary  B is AMBIGUOUS") == 1
    told = json.loads((checkout / "out.json").read_text())
    assert [one["summary"]["word"] for one in told["comparisons"]] == ["SLOWER", "AMBIGUOUS"]
    assert harness("compare", run_id(3), run_id(4), "--fail-if", "ambiguous").returncode == 0
    assert f"exit with {Exit.FAIL_IF:d}" in harness("compare", "--help").stdout


def test_the_makefile_compares(checkout: Path) -> None:
    shutil.copy(ROOT / "Makefile", checkout)
    command = ["make", "--no-print-directory", "compare", "PYTHON=echo"]  # which it prints when a make runs the tests
    asked = subprocess.run([*command, "A=a.py"], cwd=checkout, capture_output=True, text=True, check=False)
    assert (asked.returncode, "which two?" in asked.stderr) == (2, True)
    command += ["PROBLEM=gemm_rs", "A=a.py", "B=b.py", "FAIL_IF=slower", "SUITE=quick"]
    told = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=True).stdout
    assert told.strip() == "-m harness compare a.py b.py --problem gemm_rs --suite quick --fail-if slower"
