"""Exported rows: every format says the same, under names that do not move, and no run is lost or told twice."""

import csv
import io
import json
import math
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import recorded
from factories import GEMM_BENCHMARKS, TIMES, failed_benchmark, results
from recorded import run, run_id

from harness.board import reports
from harness.board.entries import Board
from harness.cli.export import format_of
from harness.cli.options import STDOUT
from harness.core import files
from harness.core.checkout import Checkout
from harness.core.errors import UsageError
from harness.core.records import Passed, Profile, RankProfile, Wrong
from harness.gpumode import result_lines
from harness.problems.shape_file import problem_names
from harness.report import export
from harness.report.export import COLUMNS, FORMATS, Row

GPU_MODE = [  # the public dataset's columns, in its order
    "submission_id", "leaderboard_id", "user_id", "submission_time", "file_name", "code", "code_id", "run_id",
    "run_start_time", "run_end_time", "run_mode", "run_score", "run_passed", "run_result", "run_system_info",
    # and the newer export's
    "problem_name", "user_name", "status", "score", "passed", "mode", "runner",
]  # fmt: skip


def exported(root: Path, found: Board) -> list[Row]:
    recorded_, unreadable = reports.load_all(root)
    assert unreadable == ()
    return export.rows(found, recorded_, root)


@pytest.fixture
def rows(tmp_path: Path) -> list[Row]:
    board = recorded.checkout(tmp_path)
    (tmp_path / "runs" / run_id(3) / "submission.py").write_text("def custom_kernel(data): ...\n")
    return exported(tmp_path, board)


def of(rows: list[Row], number: int) -> list[Row]:
    return [row for row in rows if row["run_name"] == run_id(number)]


def test_the_columns_of_gpu_mode_come_first_and_none_moves(rows: list[Row]) -> None:
    assert list(COLUMNS)[: len(GPU_MODE)] == GPU_MODE
    assert all(list(row) == list(COLUMNS) for row in rows)


def test_ids_are_whole_numbers_that_join_what_belongs_together(rows: list[Row]) -> None:
    """As theirs, but for user_id, which is a number as a text in the newer export."""
    theirs = {"submission_id": int, "leaderboard_id": int, "user_id": str, "code_id": int, "run_id": int}
    for row in rows:
        assert {name: type(row[name]) for name in theirs if row[name] is not None} == {
            name: kind for name, kind in theirs.items() if row[name] is not None
        }
        assert row["submission_id"] == row["run_id"] < 2**52
        assert row["user_id"].isdecimal()
    for number, name in (("run_id", "run_name"), ("code_id", "code_sha256"), ("user_id", "user_name")):
        assert len({row[number] for row in rows}) == len({row[name] for row in rows}), number
    assert [row["run_id"] for row in rows][:1] == [export.number_of(rows[0]["run_name"])]


OTHERS = ["iopddl", "llama", "llama_lora", "llama_pretrain"]  # whose submissions are no kernels


def test_the_leaderboards_file_has_their_columns() -> None:
    """id, name, deadline, lang, description, reference, gpu_types, as export.py of gpu-mode/kernelbot-data selects."""
    found = export.leaderboards(Checkout.here())
    assert list(found[0]) == ["id", "name", "deadline", "lang", "description", "reference", "gpu_types"]
    theirs = [board["name"] for board in found if board["gpu_types"] == ["MI300x8"]]
    assert theirs == ["amd-all2all", "amd-ag-gemm", "amd-gemm-rs"], "the others are ours"
    assert [board["name"] for board in found if board["name"] in OTHERS] == OTHERS
    assert all("def ref_kernel" in board["reference"] for board in found if board["name"] not in OTHERS), (
        "ours alone have kernels"
    )
    pq = pytest.importorskip("pyarrow.parquet")
    back = pq.read_table(io.BytesIO(export.as_parquet(found, export.LEADERBOARDS))).to_pylist()
    assert back == found


def test_a_run_has_a_row_for_each_case(rows: list[Row]) -> None:
    found = of(rows, 3)
    kinds = [(row["case_kind"], row["case_index"]) for row in found]
    assert kinds == [(kind, index) for kind in ("test", "benchmark") for index in range(3)]
    (first,) = (row for row in found if kinds[3] == (row["case_kind"], row["case_index"]))
    assert (first["problem_name"], first["runner"], first["status"]) == ("amd-gemm-rs", "CPU", "succeeded")
    assert (first["user_name"], first["file_name"]) == ("alice", "submissions/gemm_rs/submission.py")
    assert first["code"] == "def custom_kernel(data): ...\n"
    assert (first["run_mode"], first["run_passed"], first["recorded_in"]) == ("leaderboard", True, "runs")
    assert first["submission_time"] == datetime(2026, 5, 3, 12, tzinfo=UTC)
    assert (first["run_end_time"] - first["run_start_time"]).total_seconds() == pytest.approx(19.3)
    assert first["case_params"] == GEMM_BENCHMARKS[0]
    # About the ratio of the medians: it is the median of ratios.
    assert first["case_speedup"] == pytest.approx(first["case_ref_us"] / first["case_time_us"], rel=0.02)
    assert first["case_gpumode_us"] > first["case_time_us"] > first["case_device_us"]
    assert first["board_place"] == 1


def test_the_results_of_a_runs_rows_are_the_evaluators_own(rows: list[Row]) -> None:
    """As harness.popcorn wrote them, but for seeds; benchmarks by GPU MODE's clock, which this run has."""
    together: dict[str, str] = {}
    for row in of(rows, 3):
        together |= row["run_result"]
    report = run(3)
    benchmarks = report.results[3:]
    specs = [result_lines.spec_of({"world_size": 8, **result.case.params}) for result in benchmarks]
    theirs = dict(result_lines.report_pairs(specs, benchmarks, True))
    assert theirs.items() <= together.items()
    assert together["test-count"] == "3"
    assert {together[f"test.{index}.status"] for index in range(3)} == {"pass"}
    assert all(isinstance(value, str) for value in together.values())


def test_only_leaderboard_runs_that_passed_have_a_score(tmp_path: Path) -> None:
    recorded.store(tmp_path, run(1))
    recorded.store(tmp_path, run(2, mode="benchmark", results=results([], TIMES)))
    recorded.store(tmp_path, run(3, results=failed_benchmark(Wrong(message="off by 3\nin tile 2")).results))
    found = exported(tmp_path, Board())
    assert [of(found, number)[0]["run_score"] is None for number in (1, 2, 3)] == [False, True, True]
    wrong = next(row for row in of(found, 3) if row["case_outcome"] == "wrong")
    assert (wrong["run_passed"], wrong["run_status"], wrong["case_time_us"]) == (False, "fail", None)
    assert wrong["run_result"]["benchmark.1.error"].startswith("off by 3\\nin tile 2")
    assert wrong["run_result"]["check"] == "fail"
    assert of(found, 3)[-1]["run_result"]["benchmark.2.error"].startswith("not run: ")


def test_a_profiled_case_is_neither_timed_nor_failed(tmp_path: Path) -> None:
    ranks = (RankProfile(rank=0, call_us=1.0, of="host", top=()),)
    (result,) = results([], [Passed()])
    profiled = replace(result, case=replace(result.case, kind="profile"), profile=Profile(ranks=ranks, trace_json="{}"))
    recorded.store(tmp_path, run(1, mode="profile", results=(profiled,)))
    (row,) = exported(tmp_path, Board())
    assert (row["case_kind"], row["run_score"], row["run_passed"]) == ("profile", None, True)
    assert row["run_result"].keys() == {"benchmark-count", "check", "benchmark.0.spec", "benchmark.0.report"}


def test_runs_whose_folder_is_gone_are_told_by_the_board_once(rows: list[Row]) -> None:
    """Of alice's entry the runs 3 and 1 have folders, 2 has not; 9 and 10 are entries without any."""
    told = [row["run_name"] for row in rows if row["recorded_in"] == "leaderboard"]
    assert sorted(told) == sorted(run_id(number) for number in (2, 9, 10))
    (old,) = of(rows, 2)
    assert (old["run_score"], old["run_speedup"], old["board_place"], old["case_kind"]) == (0.009, 1.1, None, None)
    (alone,) = of(rows, 9)
    assert (alone["problem_name"], alone["board_place"], alone["code"]) == ("amd-all2all", 1, None)
    (retired,) = of(rows, 10)
    assert (retired["leaderboard_id"], retired["run_roofline_fraction"]) == (None, None)
    assert len(of(rows, 1)) == 6, "in runs/ and in the history, told by runs/"


def test_a_run_without_cases_and_machine_has_a_row(tmp_path: Path) -> None:
    recorded.store(tmp_path, run(1, results=(), environment=None))
    (row,) = exported(tmp_path, Board())
    assert (row["run_name"], row["run_passed"], row["run_status"]) == (run_id(1), False, "error")
    assert (row["status"], row["passed"]) == ("failed", False)
    assert row["machine_class"] is None


# ---- formats -----------------------------------------------------------------------------------------------------


def test_csv_reads_back(rows: list[Row]) -> None:
    text = export.as_csv(rows).decode()
    back = list(csv.DictReader(io.StringIO(text, newline="")))
    assert list(back[0]) == list(COLUMNS)
    assert len(back) == len(rows)
    for got, row in zip(back, rows, strict=True):
        assert got["code"] == (row["code"] or "")
        assert got["run_passed"] == str(row["run_passed"]).lower()
        assert (json.loads(got["run_result"]) if got["run_result"] else None) == row["run_result"]
        assert (float(got["case_time_us"]) if got["case_time_us"] else None) == row["case_time_us"]
    assert "nan" not in {cell.lower() for got in back for cell in got.values()}
    assert recorded.SCRIPT in text, "texts are passed on as they are"


def test_json_lines_read_back_with_objects_in_them(rows: list[Row]) -> None:
    back = [json.loads(line) for line in export.as_jsonl(rows).decode().splitlines()]
    assert [list(got) for got in back] == [list(COLUMNS)] * len(rows)
    assert [got["run_result"] for got in back] == [row["run_result"] for row in rows]
    assert back[0]["run_start_time"] == "2026-05-01T12:00:00+00:00"
    assert {type(got["run_system_info"]) for got in back if got["recorded_in"] == "runs"} == {dict}


def test_parquet_reads_back_with_types_that_do_not_depend_on_the_rows(rows: list[Row]) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    table = pq.read_table(io.BytesIO(export.as_parquet(rows)))
    empty = pq.read_table(io.BytesIO(export.as_parquet([])))
    assert table.schema == empty.schema
    assert table.column_names == list(COLUMNS)
    assert str(table.schema.field("submission_time").type) == "timestamp[us, tz=UTC]"
    back = table.to_pylist()
    for name, kind in COLUMNS.items():
        for got, row in zip(back, rows, strict=True):
            value = json.loads(got[name]) if kind == "json" and got[name] is not None else got[name]
            assert value == row[name], name


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_a_number_that_is_none_is_refused_in_json_and_half_a_character_is_not(form: str, rows: list[Row]) -> None:
    odd = {**rows[0], "user_name": "half \udc80"}
    assert b"half " in FORMATS[form]([odd], COLUMNS)
    with pytest.raises(ValueError, match="JSON compliant"):
        FORMATS[form]([{**odd, "run_system_info": {"x": math.nan}}], COLUMNS)


def test_without_pyarrow_parquet_says_what_to_install(rows: list[Row], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"needs pyarrow.*\.\[parquet\]"):
        export.as_parquet(rows)


# ---- the verb ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "out", "chosen"),
    [
        (None, None, "csv"),
        ("jsonl", None, "jsonl"),
        (None, "a.jsonl", "jsonl"),
        (None, "a.PARQUET", "parquet"),
        ("csv", "a.jsonl", "csv"),
    ],
)
def test_the_format_is_what_is_asked_for_or_what_the_name_says(
    form: str | None, out: str | None, chosen: str, tmp_path: Path
) -> None:
    assert format_of(form, tmp_path / out if out else STDOUT) == chosen


def test_what_cannot_be_written_is_said_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="binary"):
        format_of("parquet", STDOUT)
    with pytest.raises(UsageError, match="is no file"):
        format_of(None, tmp_path)


def umask() -> int:
    value = os.umask(0)
    os.umask(value)
    return value


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, link = tmp_path / "rows.csv", tmp_path / "link.csv"
    link.symlink_to(path)
    files.replace_file(link, b"old")
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask()
    path.chmod(0o640)
    files.replace_file(path, b"new")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"new", 0o640)

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        files.replace_file(path, b"newer")
    with pytest.raises(OSError, match="No such file"):
        files.replace_file(tmp_path / "nowhere" / "rows.csv", b"")
    assert path.read_bytes() == b"new"
    assert sorted(item.name for item in tmp_path.iterdir()) == ["link.csv", "rows.csv"]


def test_the_command_writes_what_is_recorded(
    harness: Callable[..., subprocess.CompletedProcess[str]], checkout: Path
) -> None:
    """A problem's runs only, on standard output or in a file; a broken report is said and hides no other."""
    for number in (1, 2):
        recorded.store(checkout, run(number))
    broken = recorded.store(checkout, run(4))
    broken.write_text(broken.read_text().replace('"cases"', '"case"'))
    printed = harness("export", "--format", "jsonl", "--problem", "amd-gemm-rs")
    assert printed.returncode == 0
    assert {json.loads(line)["run_name"] for line in printed.stdout.splitlines()} == {run_id(1), run_id(2)}
    assert f"left out: runs/{run_id(4)}/report.json: " in printed.stderr
    written = harness("export", "-o", "rows.csv")
    assert written.stdout == f"rows.csv: 12 rows of 2 runs, {len(COLUMNS)} columns\n"
    assert (checkout / "rows.csv").read_bytes().count(b"leaderboard,") >= 12
    assert harness("export", "--problem", "a2a").stdout.splitlines() == [",".join(COLUMNS)]
    assert harness("export", "--format", "parquet").returncode == 2
    boards = harness("export", "--leaderboards", "-o", "boards.csv")
    count = len(problem_names(Checkout.here()))
    assert boards.stdout == f"boards.csv: {count} leaderboards, 7 columns\n"
    assert harness("export", "--problem", "nothing").returncode == 2
