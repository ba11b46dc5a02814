"""How scores moved: every run once, compared only with what it can be compared with."""

import io
import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from factories import ENVIRONMENT, WRONG_OUTCOME, failed_test
from recorded import SCRIPT, checkout, earlier, entry_for, run, run_id, store
from rich.console import Console

from harness.board import reports
from harness.board.entries import Board
from harness.core.errors import BadFileError, UsageError
from harness.report import history


def shown(found: tuple[history.Line, ...], width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=False, _environ={})
    history.show(found, console)
    assert isinstance(console.file, io.StringIO)
    return "".join(f"{line.rstrip()}\n" for line in console.file.getvalue().splitlines())


# ---- what is read back -----------------------------------------------------------------------------------------------


def test_a_report_is_read_back_as_it_was(tmp_path: Path) -> None:
    found = run(3)
    read = reports.load(store(tmp_path, found))
    assert (read.run_id, read.submission.author, read.status) == (found.run_id, "alice", "pass")
    assert [case.label for case in read.timed] == [
        "m 64 n 7168 k 18432",
        "m 512 n 4096 k 12288 bias",
        "m 8192 n 29568 k 8192 bias",
    ]
    assert list(read.timed[0].clocks) == ["wall", "device", "gpumode"]
    assert read.timed[0].roofline_samples_us == read.timed[0].clocks["device"].samples_us
    assert read.peaks == found.peaks


def test_a_report_may_have_keys_that_this_version_does_not_know(tmp_path: Path) -> None:
    path = store(tmp_path, run(3))
    found = json.loads(path.read_text())
    found["new"] = found["cases"][0]["new"] = found["environment"]["new"] = 1
    path.write_text(json.dumps(found))
    assert reports.load(path).run_id == run_id(3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 2}, r"\$\.schema: expected 1, found 2"),
        ({"score_s": "fast"}, r"\$\.score_s: expected a number, found 'fast'"),
        ({"score_s": -1.0}, r"\$\.score_s: expected a number above 0"),
        ({"cases": [{}]}, r"\$\.cases\[0\]: the key 'kind' is missing"),
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
    clock = next(case for case in report["cases"] if case["clocks"])["clocks"]["device"]
    del clock["ref_samples_us"][-1]
    path.write_text(json.dumps(report))
    with pytest.raises(BadFileError, match=r"clocks.*device.*ref_samples_us: expected as many as samples_us, found 12"):
        reports.load(path)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "\x00", '{"schema": 1}', "[" * 100_000])
def test_a_file_that_is_no_report_is_a_bad_file(tmp_path: Path, text: str) -> None:
    path = store(tmp_path, run(3))
    path.write_text(text)
    with pytest.raises(BadFileError, match=r"report\.json: "):
        reports.load(path)


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
    assert line.runs[0].score_s == 0.0105  # the board's figure, not the report's
    assert {line.author for line in found} == {"alice", "bob", "carol", "dave", "erin", SCRIPT}


def test_a_run_on_another_machine_is_another_line(tmp_path: Path) -> None:
    elsewhere = replace(ENVIRONMENT, machine_class="8 NVIDIA H200")
    for one in (run(1), run(2, environment=elsewhere), run(3, suite="quick"), run(4, environment=None)):
        store(tmp_path, one)
    found = history.lines(Board(), reports.load_all(tmp_path)[0])
    assert [len(line.runs) for line in found] == [1, 1, 1, 1]
    assert history.UNKNOWN_MACHINE in {line.group[2] for line in found}


def test_failed_runs_are_shown_and_not_scored(tmp_path: Path) -> None:
    store(tmp_path, run(1))
    store(tmp_path, replace(failed_test(WRONG_OUTCOME), run_id=run_id(2), started_at="2026-05-02T12:00:00+00:00"))
    store(tmp_path, run(3, 0.5))
    (line,) = history.lines(Board(), reports.load_all(tmp_path)[0])
    assert [one.status for one in line.runs] == ["pass", "fail", "pass"]
    assert len(line.scores_s) == 2
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
        "2026-05-01 12:00   10.5 ms             1.1x  7777777  20260501T120000-000001  ########################\n"
        "2026-05-02 12:00      9 ms  -14.3%     1.1x  same     20260502T120000-000002  #####################\n"
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
        reports.load(tmp_path / "report.json")


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
