"""MLPerf's score: the published figures of AMD's ten runs, MLPerf's rules, and logs that are bad."""

import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from harness.core import mllog
from harness.core.errors import BadFileError, UsageError
from harness.core.mllog import LogEvent
from harness.evaluation.mlperf import Scored, read_reference, score
from harness.judging.mlperf import LoggedRun, ScoredResult, least_mean, result_of
from harness.report.mlperf import document_of, to_json
from harness.report.render import FORMATS, terminal

# AMD's entry of MLPerf Training v5.1 (mlcommons/training_results_v5.1, Apache-2.0), Llama 2 70B LoRA on MI355X: of
# each log run_start and run_stop in Unix ms, the samples and the value of its last evaluation, the seed.
PUBLISHED = [
    (1759734393481, 1759735060271, 3456, 0.9222432, 18076),
    (1759735263152, 1759735930510, 3456, 0.9219900, 4661),
    (1759736133725, 1759736723548, 3072, 0.9230303, 8454),
    (1759736926168, 1759737515484, 3072, 0.9241313, 1300),
    (1759737718085, 1759738307748, 3072, 0.9246371, 21024),
    (1759738510284, 1759739177404, 3456, 0.9211614, 32363),
    (1759739380454, 1759739970492, 3072, 0.9242329, 21523),
    (1760067040812, 1760067627907, 3072, 0.9249827, 25317),
    (1760068700544, 1760069290358, 3072, 0.9249403, 7187),
    (1760069494259, 1760070083968, 3072, 0.9240867, 679),
]
FACTOR = 1.0033670033670032  # that entry's scaling.json
# The reference's runs at batch size 8 (mlcommons/logging, Apache-2.0, rcp_checker, rcps_llama2_70b_lora.json).
REFERENCE = [3072, 2688, 3456, 3072, 3072, 3072, 3456, 3456, 3072, 2688,
             3456, 3072, 3072, 3072, 3840, 3456, 2688, 3072, 3456, 3456]  # fmt: skip
SYSTEM = {
    "submission_benchmark": "llama2_70b_lora",
    "submission_org": "AMD",
    "submission_division": "closed",
    "submission_platform": "1xMI355X",
    "global_batch_size": 8,
}


def log_of(run: tuple[int, int, int, float, int], **others: object) -> str:
    """A log with the published figures; `others` replaces what the system says."""
    start, stop, samples, quality, seed = run
    events = [LogEvent(time_ms=start - 9, event_type="POINT_IN_TIME", key=key, value=value)
              for key, value in (SYSTEM | others | {"seed": seed}).items()]  # fmt: skip
    counts = {"samples_count": samples}
    events += [
        LogEvent(time_ms=start, event_type="INTERVAL_START", key="run_start"),
        LogEvent(time_ms=start + 1, event_type="POINT_IN_TIME", key="eval_accuracy", value=9.9,
              metadata={"samples_count": 384}),
        LogEvent(time_ms=stop - 1, event_type="POINT_IN_TIME", key="eval_accuracy", value=quality, metadata=counts),
        LogEvent(time_ms=stop, event_type="INTERVAL_END", key="run_stop", metadata=counts | {"status": "success"}),
    ]  # fmt: skip
    return "epoch 1: loss 1.3\n" + "".join(mllog.line(event) + "\n" for event in events)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The published result."""
    for number, run in enumerate(PUBLISHED):
        (tmp_path / f"result_{number}.txt").write_text(log_of(run))
    (tmp_path / "scaling.json").write_text(json.dumps({"scaling_factor": FACTOR}))
    return tmp_path


def reference_file(folder: Path, runs: list[int], batch: int = 8) -> Path:
    file = folder / "rcps.json"
    file.write_text(json.dumps({"ref": {"Benchmark": "llama2_70b_lora", "BS": batch, "samples to converge": runs}}))
    return file


def only(folder: Path, reference: Path | None = None) -> ScoredResult:
    (one,) = score(folder, reference)
    return one.result


def test_the_published_runs_score_what_was_published(folder: Path) -> None:
    result = only(folder)
    assert result.mean_s is not None
    assert result.mean_s / 60 == pytest.approx(10.1506, abs=5e-5)
    assert result.score_s is not None
    assert result.score_s / 60 == pytest.approx(10.185, abs=5e-4)
    assert result.refused == ()


def test_the_published_factor_follows_from_the_reference_runs(folder: Path, tmp_path: Path) -> None:
    (folder / "scaling.json").unlink()
    assert only(folder).factor == 1.0
    assert only(folder, reference_file(tmp_path, REFERENCE)).factor == pytest.approx(FACTOR, rel=1e-12)


def test_another_published_factor_than_the_reference_gives_is_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "scaling.json").write_text('{"scaling_factor": 1.0}')
    (why,) = only(folder, reference_file(tmp_path, REFERENCE)).refused
    assert why == "scaling.json says 1.000000, the reference's runs give 1.003367"


def test_convergence_faster_than_chance_explains_is_refused(folder: Path, tmp_path: Path) -> None:
    """3168 samples against a reference of 3456 +- 100, and against one that is as slow but spreads by as much."""
    (folder / "scaling.json").unlink()
    (why,) = only(folder, reference_file(tmp_path, [3356, 3456, 3456, 3556] * 5)).refused
    assert "converged in 3168 samples on average" in why
    spread = only(folder, reference_file(tmp_path, [2700, 3456, 3456, 4212] * 5))
    assert (spread.refused, spread.factor) == ((), pytest.approx(3456 / 3168))
    slower = only(folder, reference_file(tmp_path, [3072] * 20))
    assert (slower.refused, slower.factor) == ((), 1.0)


def test_the_least_mean_is_what_a_t_test_says(folder: Path, tmp_path: Path) -> None:
    """Against scipy's own, at both sides of the edge."""
    stats = pytest.importorskip("scipy.stats")
    (reference,) = read_reference(reference_file(tmp_path, REFERENCE))
    edge, mean = least_mean(reference, 10), 3178.6666667
    deviation = (sum((run - sum(REFERENCE) / 20) ** 2 for run in REFERENCE) / 20) ** 0.5
    for own, is_chance in ((edge + 0.01, True), (edge - 0.01, False)):
        p = stats.ttest_ind_from_stats(own, deviation, 8, mean, deviation, 18).pvalue / 2
        assert bool(p > 0.05) is is_chance


def runs_of(*seconds: float | None) -> list[LoggedRun]:
    """Runs of a benchmark without a fixed count; None did not converge."""
    return [
        LoggedRun(file=f"result_{n}.txt", seconds=value or 1.0, converged=value is not None, samples=None, epoch=None,
            quality=None, seed=n, benchmark="mine", platform=None, org=None, division=None, batch=None)
        for n, value in enumerate(seconds)
    ]  # fmt: skip


def test_one_run_that_does_not_converge_counts_as_the_slowest_and_two_refuse() -> None:
    one = result_of(runs_of(10, None, 20, 40))
    assert (one.mean_s, one.refused) == (30.0, ())
    two = result_of(runs_of(10, None, None, 40))
    assert two.mean_s is None
    assert two.refused == ("2 of 4 runs did not converge; at most 1 may (result_1.txt, result_2.txt)",)


@pytest.mark.parametrize(
    ("runs", "why"),
    [
        ([replace(run, benchmark="llama2_70b_lora") for run in runs_of(1)], "1 run; llama2_70b_lora takes exactly 10"),
        (runs_of(1, 2), "2 runs: an Olympic mean needs at least 3"),
        ([replace(run, benchmark="llama2_70b_lora") for run in runs_of(*range(1, 12))], "11 runs; .* exactly 10"),
        ([replace(run, seed=4) for run in runs_of(1, 2, 3)], "result_1.txt has the seed 4 of result_0.txt"),
        ([replace(run, seed=None) for run in runs_of(1, 2, 3)], "result_0.txt logs no seed"),
    ],
)
def test_what_the_rules_refuse_is_said(runs: list[LoggedRun], why: str) -> None:
    assert re.match(why, result_of(runs).refused[0])


START = re.compile(r".*run_start.*\n")
STOP = re.compile(r".*run_stop.*\n")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text[:-30], r"result_3.txt: line 11: .*cut off"),
        (lambda text: STOP.sub("", text), "result_3.txt: the log has no run_stop: it ends before its run does"),
        (lambda text: START.sub("", text), "result_3.txt: the log has no run_start; score whole logs"),
        (lambda text: START.sub(lambda found: 2 * found[0], text), "the log has 2 lines run_start; a log holds one"),
        (lambda text: text.replace('"success"', '"great"'), "run_stop has the status 'great'; expected one of success"),
        (lambda text: text.replace(str(PUBLISHED[3][1]), "5"), "run_stop is not after run_start"),
        (lambda text: log_of(PUBLISHED[3], submission_platform="2xMI355X"),
         "submission_platform is 1xMI355X in result_0.txt and 2xMI355X in result_3.txt"),
        (lambda text: log_of(PUBLISHED[3], global_batch_size=16), "global_batch_size is 8 in result_0.txt and 16"),
        (lambda text: text + mllog.line(LogEvent(time_ms=1, event_type="POINT_IN_TIME", key="submission_org",
                                                      value="X")),
         "the key submission_org stands there with several values: AMD, X"),
        (lambda text: "", "no run_start"),
    ],
)  # fmt: skip
def test_a_bad_log_is_named_with_what_is_wrong(folder: Path, change: Callable[[str], str], message: str) -> None:
    file = folder / "result_3.txt"
    file.write_text(change(file.read_text()))
    with pytest.raises(BadFileError, match=message):
        score(folder)


def test_a_file_in_place_of_a_folder_is_said_to_be_one_and_a_path_is_said_once(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"result_3\.txt: a file; name the folder that it is in"):
        score(folder / "result_3.txt")
    file = folder / "result_3.txt"
    file.write_bytes(b"\xff")
    with pytest.raises(BadFileError) as found:
        score(folder)
    assert str(found.value).count("result_3.txt") == str(found.value).count(str(folder)) == 1


def test_a_run_that_diverged_is_shown_without_a_quality(folder: Path) -> None:
    file = folder / "result_3.txt"
    file.write_text(file.read_text().replace("0.9241313", "NaN").replace("3072", "1" + "0" * 400))
    found = score(folder)
    assert (found[0].result.runs[3].quality, found[0].result.runs[3].samples) == (None, None)
    json.dumps(to_json(found), allow_nan=False)
    with pytest.raises(BadFileError, match=r"result_3.txt: no evaluation says how many samples it took"):
        score(folder, reference_file(folder, REFERENCE))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"scaling_factor": 0.9}', "scaling_factor is below 1"),
        (b'{"scaling": 1.1}', r": \$.scaling: unknown key; did you mean 'scaling_factor'"),
        (b"{", "scaling.json: not JSON"),
        (b"\xff", "scaling.json: cannot be read: not UTF-8 at byte 0; take the file"),
    ],
)
def test_a_bad_scaling_file_is_refused(folder: Path, content: bytes, message: str) -> None:
    (folder / "scaling.json").write_bytes(content)
    with pytest.raises(BadFileError, match=message):
        score(folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "expected a mapping of records"),
        ('{"a": {"Benchmark": "llama2_70b_lora", "BS": 8}}', r"\$.a: expected one of the keys 'samples to converge'"),
        ('{"a": {"Benchmark": "b", "BS": "8", "Epochs to converge": [1, 2, 3]}}', "BS: expected a whole number"),
        ('{"a": {"Benchmark": "b", "BS": 8, "Epochs to converge": [1, 2]}}', "at least 3 numbers above 0"),
        ('{"a": {"Benchmark": "llama2_70b_lora", "BS": 16, "Epochs to converge": [1, 2, 3]}}', r"of 8 \(it has 16\)"),
    ],
)
def test_a_bad_reference_is_refused(folder: Path, content: str, message: str) -> None:
    (folder / "rcps.json").write_text(content)
    with pytest.raises(BadFileError, match=message):
        score(folder, folder / "rcps.json")


def test_a_tree_of_results_is_scored_folder_by_folder(folder: Path) -> None:
    below = folder / "system" / "benchmark"
    below.mkdir(parents=True)
    for number in range(10, 7, -1):
        text = log_of(PUBLISHED[number - 8], submission_benchmark="mine")
        (below / f"result_{number}.txt").write_text(text)
    found = score(folder)
    assert [one.folder for one in found] == [folder, below]
    assert [run.file for run in found[1].result.runs] == ["result_8.txt", "result_9.txt", "result_10.txt"]
    empty = folder / "empty"
    empty.mkdir()
    with pytest.raises(UsageError, match=r"no result_\*.txt in it or below it"):
        score(empty)


def test_the_logs_of_our_own_runs_are_a_result_each_side_and_case(tmp_path: Path) -> None:
    for whose, seed in (("submission", 0), ("reference", 50)):
        for number in range(1, 12):
            start, stop, samples, quality, _ = PUBLISHED[number % 10]
            text = log_of((start, stop, samples, quality, seed + number), submission_benchmark="mine",
                          global_batch_size=32.0)  # fmt: skip
            (tmp_path / f"mllog-{whose}-case-0-run-{number}.log").write_text(text)
    (tmp_path / "candidate-rank-0.log").write_text("loss 3\n")
    reference, own = score(tmp_path)
    assert (reference.name, own.name) == ("mllog-reference-case-0", "mllog-submission-case-0")
    assert [run.seed for run in own.result.runs] == [*range(1, 12)]
    assert (own.result.refused, own.result.runs[0].batch) == ((), 32.0)


def test_each_run_the_mean_the_factor_and_the_result_are_shown(folder: Path) -> None:
    found = score(folder)
    console = Console(width=120, record=True, file=io.StringIO())
    terminal.show(document_of(found), console)
    shown = console.export_text()
    markdown = FORMATS["markdown"](document_of(found))
    for text in (shown, markdown):
        assert re.search(r"result.?_7.txt.*9.7849.*3,072.*25317.*fastest, left out", text)
        assert re.search(r"result.?_1.txt.*slowest, left out", text)
        assert re.search(r"Olympic mean\W+10.1506 min over 10 runs, of which 8 count", text)
        assert re.search(r"scaling factor\W+1.003367 \(`?scaling.json`?\)", text)
        assert re.search(r"score\W+10.185 min", text)
    (result,) = to_json(found)["results"]
    assert (result["valid"], round(result["score_s"] / 60, 3), len(result["runs"])) == (True, 10.185, 10)
    json.dumps(result, allow_nan=False)


def test_a_result_without_a_mean_is_shown_with_its_reason() -> None:
    found = [Scored(folder=Path("x"), name="", result=result_of(runs_of(10, None, None, 40)))]
    console = Console(width=120, record=True, file=io.StringIO())
    terminal.show(document_of(found), console)
    assert "refused  2 of 4 runs did not converge" in console.export_text()
    (result,) = to_json(found)["results"]
    assert (result["score_s"], result["valid"]) == (None, False)
