"""How scores moved: every run once, compared only with what it can be compared with."""

import contextlib
import io
import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from factories import ENVIRONMENT, FAILURES, HELD, RAISED, WRONG_OUTCOME, failed_test
from places import FIXTURES
from recorded import SCRIPT, checkout, earlier, entry_for, run, run_id, store
from rich.console import Console

from harness.board import reports
from harness.board.entries import Board
from harness.board.judgements import UNKNOWN_MACHINE
from harness.core.checkout import Checkout
from harness.core.errors import BadFileError, UsageError
from harness.core.machine_records import CpuUse, MachineState
from harness.core.records import Bound, Failure, Measured, Score, Warning
from harness.judging import verdict
from harness.judging.warnings import text_of
from harness.report import history
from harness.report.render import terminal

ROOT = Checkout.here().root
MACHINE_STATE = (MachineState(status="warn", check="memory", found="3.1 of 8 GiB are in use"),)


def shown(found: tuple[history.Line, ...], width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=False, _environ={})
    terminal.show(history.document_of(found), console)
    assert isinstance(console.file, io.StringIO)
    return "".join(f"{line.rstrip()}\n" for line in console.file.getvalue().splitlines())


# ---- what is read back -----------------------------------------------------------------------------------------------


def test_a_report_is_read_back_as_it_was(tmp_path: Path) -> None:
    found = run(3)
    read = reports.load(store(tmp_path, found), ROOT)
    assert read == replace(found, submission=replace(found.submission, path=found.submission.name, source=""))
    assert (read.run_id, read.author, verdict.status(read)) == (found.run_id, "alice", "pass")
    measured = verdict.measured_cases(read)
    assert [result.case.title for result, _ in measured] == [
        "m 64 n 7168 k 18432",
        "m 512 n 4096 k 12288 bias",
        "m 8192 n 29568 k 8192 bias",
    ]
    series = measured[0][1].by_name
    assert list(series) == ["wall", "device", "gpumode"]
    assert measured[0][1].against_bound == series["device"]
    assert read.peaks == found.peaks
    assert read.figures == found.figures is not None


@pytest.mark.parametrize("outcome", FAILURES, ids=lambda outcome: outcome.type)
def test_a_report_of_a_failure_is_read_back_as_it_was(tmp_path: Path, outcome: Failure) -> None:
    found = failed_test(outcome)
    read = reports.load(store(tmp_path, found), ROOT)
    assert (read.results, read.figures, read.logs) == (found.results, None, found.logs)


def test_a_report_from_before_cases_named_their_logs_has_those_of_its_ranks(tmp_path: Path) -> None:
    found = failed_test(RAISED)
    path = store(tmp_path, found)
    written = json.loads(path.read_text())
    assert written["logs"] == {"candidate rank 3": "loading weights\n"}
    for case in written["cases"]:
        del case["logs"]
    path.write_text(json.dumps(written))
    read = reports.load(path, ROOT)
    assert read.printed(read.results[1], rank=3) == "loading weights\n"


def test_a_report_says_what_its_warnings_say_whether_this_version_knows_them_or_not(tmp_path: Path) -> None:
    known = Warning(code="split", values={"suite": "cpu", "meant": 8, "ranks": 2})
    use = CpuUse(cores=2, spare=0, others=(0.01, 0.98))
    path = store(tmp_path, run(3, warnings=(known,), machine_state=MACHINE_STATE, cpu_use=use))
    found = json.loads(path.read_text())
    found["warnings"] += [
        {"code": "novelty", "values": {"x": 1}, "text": "the moon is {full}"},
        {"code": "split", "values": {"suite": "cpu"}, "text": "it was split"},
    ]
    path.write_text(json.dumps(found))
    read = reports.load(path, ROOT)
    assert read.warnings[0] == known
    assert [text_of(one) for one in read.warnings[1:]] == ["the moon is {full}", "it was split"]
    assert (read.machine_state, read.cpu_use) == (MACHINE_STATE, use)


# ---- reports of schema 1 ---------------------------------------------------------------------------------------------


def test_a_report_of_schema_1_is_read_with_the_figures_that_it_states() -> None:
    """As the harness wrote it before; its series, texts and figures under their names of today."""
    stated = json.loads((FIXTURES / "report-1.json").read_text())
    read = reports.load(FIXTURES / "report-1.json", ROOT)
    assert (read.run_id, read.author, read.submission.name) == (
        stated["run_id"],
        stated["submission"]["author"],
        stated["submission"]["path"],
    )
    assert (read.secret_seed, read.checker, read.mode, read.confined) == (99, "strict", "leaderboard", True)
    assert read.figures is not None
    assert read.figures.score == Score(value=stated["score_s"], unit="s", better="less")
    assert read.figures.ratio is not None
    assert (read.figures.ratio.value, list(read.figures.ratio.ci or ())) == (
        stated["geomean_speedup"],
        stated["geomean_speedup_ci"],
    )
    assert read.figures.fraction is not None
    assert read.figures.fraction.value == pytest.approx(stated["roofline_fraction"], rel=1e-4)
    assert [text_of(one) for one in read.warnings] == stated["warnings"]
    assert [f"{one.status}: {one.check}: {one.found}" for one in read.machine_state] == stated["machine_state"]
    assert (read.device_model, read.empty_call_samples_us["device"]) == ("NVIDIA H200", (2.0, 2.1))
    assert [result.outcome.type for result in read.results] == ["passed", "measured", "measured"]
    for result, case in zip(read.results, stated["cases"], strict=True):
        assert (result.case.kind, result.case.params, result.case.seed) == (case["kind"], case["params"], case["seed"])
        assert result.verdicts is not None
        assert result.verdicts.strict.passed
        if not isinstance(result.outcome, Measured):
            continue
        assert list(result.outcome.by_name) == list(case["clocks"])
        for series, clock in zip(result.outcome.series, case["clocks"].values(), strict=True):
            assert (list(series.own), list(series.baseline)) == (clock["samples_us"], clock["ref_samples_us"])
            assert series.block == case["block"]
        assert result.bound == Bound(value=case["bound_us"], by=case["bound_by"])
        assert result.figures is not None
        assert result.figures.value == case["time_us"]
        assert (result.figures.baseline, result.figures.spread) == (case["ref_us"], case["spread"])
        assert result.figures.ratio is not None
        assert result.figures.fraction is not None
        assert result.figures.ratio.value == pytest.approx(case["speedup"])
        assert result.figures.fraction.value == pytest.approx(case["roofline_fraction"], rel=1e-3)
        assert list(result.outcome.rank_ends_us) == case["rank_ends_us"]


@pytest.mark.parametrize("name", ["raised", "held"])
def test_a_failure_of_schema_1_is_read_as_what_it_was(name: str) -> None:
    stated = json.loads((FIXTURES / f"report-1-{name}.json").read_text())
    read = reports.load(FIXTURES / f"report-1-{name}.json", ROOT)
    assert [result.outcome.type for result in read.results] == ["passed", "measured", name]
    assert (read.figures, verdict.status(read)) == (None, "fail")
    held = replace(HELD, evidence=HELD.evidence.replace("limit", "bound"))  # as a harness of then said it
    assert read.results[2].outcome == {"raised": RAISED, "held": held}[name]
    assert verdict.message(read.results[2].outcome) == stated["cases"][2]["error"]


@pytest.mark.parametrize(
    "path", sorted((ROOT / "docs/measurements/reports").glob("*.json")), ids=lambda path: path.stem
)
def test_the_reports_in_git_are_read_with_the_figures_that_they_state(path: Path) -> None:
    stated, read = json.loads(path.read_text()), reports.load(path, ROOT)
    assert read.figures is not None
    assert read.figures.ratio is not None
    if stated["schema"] == 1:
        assert read.figures.score.value == pytest.approx(stated["score_s"])
        assert read.figures.ratio.value == pytest.approx(stated["geomean_speedup"])


@pytest.mark.parametrize("key", ["clocks", "cases", "environment", "warnings", "submission", "machine_state", "peaks"])
@pytest.mark.parametrize("value", [3, "x", [1], {"x": 1}, [[]], None])
def test_a_damaged_report_of_schema_1_is_a_bad_file_or_is_read(tmp_path: Path, key: str, value: object) -> None:
    """And no other error."""
    found = json.loads((FIXTURES / "report-1.json").read_text())
    (found["cases"][1] if key == "clocks" else found)[key] = value
    path = tmp_path / "report.json"
    path.write_text(json.dumps(found))
    with contextlib.suppress(BadFileError):
        reports.load(path, ROOT)
    assert json.loads(path.read_text()) == found


def test_a_report_of_a_schema_to_come_is_refused_with_what_to_do_and_left_alone(tmp_path: Path) -> None:
    path = store(tmp_path, run(3))
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema": 3}))
    before = path.read_bytes()
    with pytest.raises(
        BadFileError, match=r"\$\.schema: .*found 3; it was written by a newer harness: update the checkout"
    ):
        reports.load(path, ROOT)
    assert path.read_bytes() == before


def test_a_report_may_have_keys_that_this_version_does_not_know(tmp_path: Path) -> None:
    path = store(tmp_path, run(3))
    found = json.loads(path.read_text())
    found["new"] = found["cases"][0]["new"] = found["environment"]["new"] = 1
    path.write_text(json.dumps(found))
    assert reports.load(path, ROOT).run_id == run_id(3)


def figures_with(score: object, ratio: float = 1.5) -> dict[str, object]:
    estimate = {"value": ratio, "ci": None}
    return {"score": {"value": score, "unit": "s", "better": "less"}, "ratio": estimate, "fraction": None}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 3}, r"\$\.schema: expected 1 or 2, found 3"),
        ({"schema": "2"}, r"\$\.schema: expected 1 or 2, found '2'; is it another harness's?"),
        ({"figures": figures_with("fast")}, r"\$\.figures\.score\.value: expected a number, found 'fast'"),
        ({"figures": figures_with(-1.0)}, r"\$\.figures\.score\.value: expected a score above 0"),
        ({"figures": figures_with(1.0, ratio=0.0)}, r"\$\.figures\.ratio\.value: expected an estimate above 0"),
        ({"started_at": "today"}, r"\$\.started_at: expected a date and time, found 'today'"),
        ({"cases": [{"outcome": {"type": "passed"}}]}, r"\$\.cases\[0\]: the key 'kind' is missing"),
        ({"cases": 3}, r"\$\.cases: expected a list, found 3"),
        ({"run_id": "other"}, r"\$\.run_id: expected '20260503T120000-000003', as its folder says"),
    ],
)
def test_a_report_that_is_bad_is_named_and_hides_no_other(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    path = store(tmp_path, run(3))
    store(tmp_path, run(4))
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    found, unreadable = reports.load_all(tmp_path)
    assert [report.run_id for report in found] == [run_id(4)]
    with pytest.raises(BadFileError, match=message):
        raise BadFileError(*unreadable)


def test_samples_of_a_report_that_are_no_pairs_are_named(tmp_path: Path) -> None:
    path = store(tmp_path, run(3))
    report = json.loads(path.read_text())
    outcome = next(case["outcome"] for case in report["cases"] if case["outcome"]["type"] == "measured")
    del outcome["series"][1]["baseline"][-1]
    path.write_text(json.dumps(report))
    with pytest.raises(
        BadFileError,
        match=r"\$\.cases\[3\]\.outcome\.series\[1\]: expected as many samples of either side, found 12 and 11",
    ):
        reports.load(path, ROOT)


def test_samples_of_schema_1_that_are_no_pairs_are_named(tmp_path: Path) -> None:
    found = json.loads((FIXTURES / "report-1.json").read_text())
    path = tmp_path / "report.json"
    del found["cases"][1]["clocks"]["device"]["ref_samples_us"][-1]
    path.write_text(json.dumps(found))
    with pytest.raises(BadFileError, match=r"\$\.cases\[1\]\.outcome\.series\[1\]: expected as many .*found 8 and 7"):
        reports.load(path, ROOT)
    del found["cases"][1]["clocks"]["wall"]
    path.write_text(json.dumps(found))
    with pytest.raises(BadFileError, match=r"\$\.cases\[1\]\.clocks: the key 'wall' is missing"):
        reports.load(path, ROOT)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "\x00", '{"schema": 1}', '{"schema": 2}', "[" * 100_000])
def test_a_file_that_is_no_report_is_a_bad_file(tmp_path: Path, text: str) -> None:
    path = store(tmp_path, run(3))
    path.write_text(text)
    with pytest.raises(BadFileError, match=r"report\.json: "):
        reports.load(path, ROOT)


def test_a_run_is_found_by_its_id_the_beginning_of_it_its_folder_or_its_file(tmp_path: Path) -> None:
    path = store(tmp_path, run(3))
    store(tmp_path, run(14))
    for name in (run_id(3), run_id(3)[:8], str(path.parent), str(path)):
        assert reports.find(name, tmp_path).run_id == run_id(3)
    with pytest.raises(UsageError, match="'2026' begins 2 run ids"):
        reports.find("2026", tmp_path)
    with pytest.raises(UsageError, match=f"did you mean '{run_id(3)}'"):
        reports.find(run_id(3)[:-1] + "f", tmp_path)
    with pytest.raises(UsageError, match="`make eval PROBLEM=a2a` makes the first"):
        reports.find("x", tmp_path / "nowhere")


# ---- lines -----------------------------------------------------------------------------------------------------------


def test_runs_of_the_board_and_of_reports_are_one_line_each_run_once(tmp_path: Path) -> None:
    found = history.lines(checkout(tmp_path), reports.load_all(tmp_path)[0])
    line = next(line for line in found if line.author == "alice" and line.group[0] == "gemm_rs")
    assert [one.run_id for one in line.runs] == [run_id(1), run_id(2), run_id(3)]
    assert line.runs[0].score == 0.0105  # the board's figure, not the report's
    assert {line.author for line in found} == {"alice", "bob", "carol", "dave", "erin", SCRIPT}


def test_a_run_on_another_machine_is_another_line(tmp_path: Path) -> None:
    elsewhere = replace(ENVIRONMENT, machine_class="8 NVIDIA H200")
    for one in (run(1), run(2, environment=elsewhere), run(3, suite="quick"), run(4, environment=None)):
        store(tmp_path, one)
    found = history.lines(Board(), reports.load_all(tmp_path)[0])
    assert [len(line.runs) for line in found] == [1, 1, 1, 1]
    assert UNKNOWN_MACHINE in {line.group[2] for line in found}


def test_failed_runs_are_shown_and_not_scored(tmp_path: Path) -> None:
    store(tmp_path, run(1))
    store(tmp_path, replace(failed_test(WRONG_OUTCOME), run_id=run_id(2), started_at="2026-05-02T12:00:00+00:00"))
    store(tmp_path, run(3, 0.5))
    (line,) = history.lines(Board(), reports.load_all(tmp_path)[0])
    assert [one.status for one in line.runs] == ["pass", "fail", "pass"]
    assert len(line.scores) == 2
    assert "2 scores: 7.593 ms to 3.797 ms (-50.0%), now at its best" in shown((line,))


def test_the_history_reads_well() -> None:
    found = entry_for(run(3), (earlier(2, 0.009), earlier(1, 0.0105)))
    text = shown(history.lines(Board(entries=(found,)), ()), width=110)
    assert text == (
        "gemm_rs  submission.py by alice\n"
        "suite cpu, 8 ranks, 2 cores of Example CPU @ 2.00GHz\n"
        "3 scores: 10.5 ms to 7.593 ms (-27.7%), now at its best\n"
        "\n"
        "date                 score  change  speedup  source   run                     score, from 0\n"
        "2026-05-01 12:00   10.5 ms            1.10x  7777777  20260501T120000-000001  ########################\n"
        "2026-05-02 12:00      9 ms  -14.3%    1.10x  same     20260502T120000-000002  #####################\n"
        "2026-05-03 12:00  7.593 ms  -15.6%    1.56x  5e5e5e5  20260503T120000-000003  #################\n"
    )
    assert max(map(len, shown(history.lines(Board(entries=(found,)), ())).splitlines())) <= 80


def test_names_cannot_style_the_terminal(tmp_path: Path) -> None:
    store(tmp_path, run(1, author="\x1b[31mred[bold]\u202e"))
    text = shown(history.lines(Board(), reports.load_all(tmp_path)[0]))
    assert "by red[bold]\n" in text
    assert "\x1b" not in text


def test_a_file_that_has_no_end_is_no_report(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "report.json")
    with pytest.raises(BadFileError, match="not an ordinary file"):
        reports.load(tmp_path / "report.json", ROOT)


def test_an_author_without_runs_is_an_error_that_names_those_who_have_some(tmp_path: Path) -> None:
    found = history.lines(checkout(tmp_path), ())
    assert {line.author for line in history.chosen(found, "gemm_rs", "bob")} == {"bob"}
    assert history.chosen(found, "ag_gemm", "bob") == ()
    with pytest.raises(UsageError, match="no run by 'alise' is recorded; did you mean 'alice'"):
        history.chosen(found, None, "alise")
    with pytest.raises(UsageError, match="nothing is recorded yet"):
        history.chosen((), None, "alice")


def test_the_command_shows_runs_and_says_what_it_left_out(
    harness: Callable[..., "subprocess.CompletedProcess[str]"], tmp_path: Path
) -> None:
    root = tmp_path / "checkout"
    empty = harness("history")
    assert (empty.returncode, empty.stdout) == (
        0,
        "No such run is recorded yet: `make eval PROBLEM=a2a` makes the first.\n",
    )
    store(root, replace(run(3), problem="set/folder"))
    assert "1 score: " in harness("history", "--problem", "set/folder").stdout, "its folder may be anywhere"
    store(root, run(1))
    store(root, run(2)).write_text("{")
    found = harness("history", "--problem", "amd-gemm-rs", "--author", "alice")
    assert found.returncode == 0, found.stderr
    assert "1 score: 7.593 ms" in found.stdout
    assert f"left out: runs/{run_id(2)}/report.json: " in found.stdout
    assert harness("history", "--author", "bob").returncode == 2
    assert harness("history", "--problem", "nothing").returncode == 2
    (root / "leaderboard.yaml").write_text("schema: 1\nentries: 3\n")
    assert harness("history").returncode == 113


@pytest.mark.parametrize("content", [b"", b'{"schema": 2,'], ids=["empty", "cut off"])
def test_a_report_that_is_no_json_is_said_to_be_none(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "report.json").write_bytes(content)
    with pytest.raises(BadFileError, match=r"report\.json: not JSON, as if cut off or edited: "):
        reports.load(tmp_path / "report.json", ROOT)
