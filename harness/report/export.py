"""The verb `export`: recorded runs and leaderboard entries as rows for other programs, a row a (run, case).

Knows the columns and the three formats. Columns that GPU MODE's public dataset has (GPUMODE/kernelbot-data on
Hugging Face) come first, under its names, types and order, as export.py of gpu-mode/kernelbot-data makes them. Next
come those that only src/libkernelbot/hf_export.py of gpu-mode/kernelbot has (both read 2026-11), then ours. What a row
does not have is null (empty in CSV); there is no NaN. Texts of submissions are passed on as they are: whoever shows
them must clean them.

Where a column of theirs means something a little different here:
- The ids are whole numbers made of names (`number_of`), the same in every export and below 2^52: submission_id and
  run_id of the run id (`run_name`), since here every evaluation is a hand-in of its own; code_id of the source's
  sha256, which joins those of the same code; leaderboard_id of GPU MODE's name of the board. user_id is such a number
  as a text, as in the newer export.
- status: succeeded or failed; runner: `CPU`, or the device and how many, as `serve` calls GPUs.
- code: the submission's main file, as it ran; the modules that it needs are beside it in runs/<run id>/.
- run_score: seconds, of passed leaderboard runs only, as theirs.
- run_result: KernelBot's keys and values (texts) for this row's case; of all rows of a run together, the run's. The
  specs are without seeds. On CPUs its times are the wall clock's, on GPUs those of GPU MODE's clock.
"""

import contextlib
import csv
import hashlib
import io
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from harness.board import places
from harness.board.entries import Board, Earlier, Entry
from harness.board.runs import FOLDER
from harness.core.checkout import Checkout
from harness.core.errors import HarnessError, UsageError
from harness.core.files import read_text
from harness.core.records import CaseResult, EvalReport, Measured, Series
from harness.core.stats import median
from harness.gpumode import result_lines
from harness.judging import verdict
from harness.problems.problem import Problem
from harness.problems.shape_file import find, problem_names

Type = Literal["text", "int", "float", "bool", "time", "json", "texts"]
COLUMNS: dict[str, Type] = {
    # GPU MODE's
    "submission_id": "int",
    "leaderboard_id": "int",
    "user_id": "text",
    "submission_time": "time",
    "file_name": "text",
    "code": "text",
    "code_id": "int",
    "run_id": "int",
    "run_start_time": "time",
    "run_end_time": "time",
    "run_mode": "text",
    "run_score": "float",
    "run_passed": "bool",
    "run_result": "json",
    "run_system_info": "json",
    # GPU MODE's, of the newer export alone
    "problem_name": "text",
    "user_name": "text",
    "status": "text",
    "score": "float",
    "passed": "bool",
    "mode": "text",
    "runner": "text",
    # of the run
    "run_name": "text",
    "code_sha256": "text",
    "recorded_in": "text",  # runs, or leaderboard where the run's folder is gone; such a row has no case
    "problem": "text",
    "suite": "text",
    "device": "text",
    "machine_class": "text",
    "world_size": "int",
    "run_status": "text",  # pass, fail, error
    "run_speedup": "float",  # geometric mean over cases
    "run_roofline_fraction": "float",
    "board_place": "int",  # of the runs that are entries now
    # of the case
    "case_index": "int",  # of its kind, as in the keys of run_result
    "case_kind": "text",  # test, benchmark, profile
    "case_params": "json",
    "case_outcome": "text",
    "case_error": "text",
    "case_samples": "int",
    "case_time_us": "float",  # medians: wall clock, as the next
    "case_ref_us": "float",
    "case_speedup": "float",
    "case_device_us": "float",
    "case_gpumode_us": "float",
    "case_bound_us": "float",
    "case_bound_by": "text",
    "case_published_us": "float",
    "case_unit": "text",  # of the next four, whatever ranks: us, or a solver's cost; the columns in us are of times
    "case_value": "float",
    "case_ref": "float",
    "case_bound": "float",
    "case_best": "float",  # known from elsewhere
    "case_series": "json",  # every metric's unit, and the medians of either side, by its name
}
LEADERBOARDS: dict[str, Type] = {  # the columns of GPU MODE's leaderboards file
    "id": "int",
    "name": "text",
    "deadline": "time",
    "lang": "text",
    "description": "text",
    "reference": "text",
    "gpu_types": "texts",
}
RUNTIMES = {"cuda": "CUDA", "rocm": "ROCm"}  # as KernelBot's SystemInfo calls them
Row = dict[str, Any]


def rows(found: Board, recorded: Iterable[EvalReport], root: Path) -> list[Row]:
    """A row a (run, case) of the reports, oldest run first, then a row for each run that only the board knows. Every
    row has every column, in the order of COLUMNS."""
    reports_ = list(recorded)
    rankings = (row for group in places.groups(found) for row in places.ranking(found, group))
    place_of = {row.entry.run_id: row.place.place for row in rankings}
    made = [row for report in reports_ for row in _of_report(report, place_of.get(report.run_id), root)]
    known = {report.run_id for report in reports_}
    told: list[tuple[Entry, Entry | Earlier]] = []
    for entry in found.entries:
        of_entry: tuple[Entry | Earlier, ...] = (entry, *entry.history)
        by_run = {one.run_id: one for one in reversed(of_entry)}  # a run that was judged again stands in both
        told += [(entry, one) for run_id, one in by_run.items() if run_id not in known]
    told.sort(key=lambda pair: (pair[1].date, pair[1].run_id))
    made += [_of_board(entry, one, place_of.get(one.run_id), root) for entry, one in told]
    return made


def _of_report(report: EvalReport, place: int | None, root: Path) -> list[Row]:
    began = datetime.fromisoformat(report.started_at)
    environment, figures, status = report.environment, report.figures, verdict.status(report)
    run: Row = {
        "user_name": report.author,
        "run_name": report.run_id,
        "code_sha256": report.submission.sha256,
        "mode": report.mode,
        "score": figures.score.value if figures and report.mode == "leaderboard" else None,
        "passed": status == "pass",
        "problem": report.problem,
        "device": report.device,
        "world_size": report.world_size,
        "submission_time": began,
        "file_name": report.submission.name,
        "code": _code(root / FOLDER / report.run_id / "submission.py"),
        "run_start_time": began,
        "run_end_time": began + timedelta(seconds=sum(report.phases_s.values())),
        "run_system_info": {
            "device_count": report.world_size if report.device in RUNTIMES else 0,
            "runtime": RUNTIMES.get(report.device, ""),
            "torch": environment.torch if environment else "",
            "triton": environment.triton if environment else None,
            "python": environment.python if environment else "",
        },
        "recorded_in": "runs",
        "suite": report.suite,
        "machine_class": environment.machine_class if environment else None,
        "run_status": status,
        "run_speedup": figures.ratio.value if figures and figures.ratio else None,
        "run_roofline_fraction": figures.fraction.value if figures and figures.fraction else None,
        "board_place": place,
    }
    run |= _shared(run, root)
    if not report.results:
        return [_row(run)]
    counts = Counter(result.case.kind for result in report.results)
    index = {kind: itertools.count() for kind in counts}
    return [
        _row(run | _of_case(one, next(index[one.case.kind]), counts[one.case.kind], status == "pass"))
        for one in report.results
    ]


def _of_case(result: CaseResult, index: int, count: int, run_passed: bool) -> Row:
    case, figures, outcome = result.case, result.figures, result.outcome
    measured = outcome if isinstance(outcome, Measured) else None
    summary = measured.ranked.summary if measured else None
    samples = measured.by_name if measured else {}
    is_time = figures is None or figures.metric.unit == "us"
    other_us = {name: median(samples[name].own) for name in ("device", "gpumode") if name in samples}
    return {
        "run_result": _result(result, index, count, run_passed),
        "case_index": index,
        "case_kind": case.kind,
        "case_params": dict(case.params),
        "case_outcome": outcome.type,
        "case_error": verdict.message(outcome) or None,
        "case_samples": summary.runs if summary else len(measured.ranked.own) if measured else None,
        "case_time_us": figures.value if figures and is_time else None,
        "case_ref_us": figures.baseline if figures and is_time else None,
        "case_speedup": figures.ratio.value if figures and figures.ratio else None,
        "case_device_us": other_us.get("device"),
        "case_gpumode_us": other_us.get("gpumode"),
        "case_bound_us": result.bound.value if result.bound and is_time else None,
        "case_bound_by": result.bound.by if result.bound else None,
        "case_published_us": case.published_us,
        "case_unit": figures.metric.unit if figures else None,
        "case_value": figures.value if figures else None,
        "case_ref": figures.baseline if figures else None,
        "case_bound": result.bound.value if result.bound else None,
        "case_best": measured.best if measured else None,
        "case_series": {name: _series(one) for name, one in samples.items()} or None,
    }


def _series(one: Series) -> dict[str, str | float | None]:
    sides = {name: median(side) if side else None for name, side in (("value", one.own), ("ref", one.baseline))}
    return {"unit": one.metric.unit, **sides}


def _result(result: CaseResult, index: int, count: int, run_passed: bool) -> dict[str, str]:
    """What KernelBot's evaluator would have written of this case."""
    case = result.case
    spec = result_lines.spec_of({"world_size": case.world_size, **case.params})
    pairs = [
        (f"{result_lines.key_of(case.kind)}-count", str(count)),
        *result_lines.case_pairs(index, spec, result),
        result_lines.check_pair(run_passed),
    ]
    return result_lines.values_of(pairs)


def _of_board(entry: Entry, one: Entry | Earlier, place: int | None, root: Path) -> Row:
    """A run whose folder is gone: what the leaderboard keeps of it. Only passed leaderboard runs are there."""
    began = datetime.fromisoformat(one.date)
    latest = isinstance(one, Entry)
    run: Row = {
        "user_name": entry.author,
        "run_name": one.run_id,
        "code_sha256": one.sha256,
        "mode": "leaderboard",
        "score": one.score.value if isinstance(one, Entry) else one.score,
        "passed": True,
        "problem": entry.problem,
        "device": entry.device,
        "world_size": entry.world_size,
        "submission_time": began,
        "file_name": entry.file,
        "run_start_time": began,
        "recorded_in": "leaderboard",
        "suite": entry.suite,
        "machine_class": entry.machine_class,
        "run_status": "pass",
        "run_speedup": one.ratio,
        "run_roofline_fraction": entry.fraction if latest else None,
        "board_place": place,
    }
    return _row(run | _shared(run, root))


def _shared(run: Row, root: Path) -> Row:
    """What follows from a run's own columns: the names and ids that GPU MODE's exports have for the same."""
    leaderboard, device = _leaderboard(run["problem"], root), run["device"]
    run_id = number_of(run["run_name"])
    return {
        "submission_id": run_id,
        "leaderboard_id": number_of(leaderboard) if leaderboard else None,
        "user_id": str(number_of(run["user_name"])),
        "code_id": number_of(run["code_sha256"]),
        "run_id": run_id,
        "run_mode": run["mode"],
        "run_score": run["score"],
        "run_passed": run["passed"],
        "problem_name": leaderboard or run["problem"],
        "status": "succeeded" if run["passed"] else "failed",
        "runner": "CPU" if device == "cpu" else f"{device.upper()}x{run['world_size']}",
    }


def number_of(name: str) -> int:
    """An id for a name: the first 52 bits of its sha256, which JSON's readers keep exactly. Of a million names, two are
    alike once in ten thousand exports."""
    return int(hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:13], 16)


def leaderboards(checkout: Checkout) -> list[Row]:
    """A row for each problem of the checkout, with the columns of LEADERBOARDS. Raises BadFileError for a bad one."""
    return [_of_problem(find(name, checkout)) for name in problem_names(checkout)]


def _of_problem(problem: Problem) -> Row:
    return {
        "id": number_of(problem.leaderboard),
        "name": problem.leaderboard,
        "deadline": None,
        "lang": "py",
        "description": problem.description,
        "reference": problem.staged()["reference.py"].decode(),
        "gpu_types": list(problem.gpus),
    }


def _row(values: Mapping[str, Any]) -> Row:
    assert values.keys() <= COLUMNS.keys()
    return {name: values.get(name) for name in COLUMNS}


def _leaderboard(problem: str, root: Path) -> str | None:
    """GPU MODE's name of the problem's board; None for a problem that is not here any more."""
    with contextlib.suppress(HarnessError):
        return find(problem, Checkout(root)).leaderboard
    return problem.rpartition("/")[2] if "/" in problem else None  # a problem folder's: <set>/<problem>


def _code(path: Path) -> str | None:
    try:
        return read_text(path)
    except (OSError, UnicodeDecodeError):
        return None


# ---- formats -----------------------------------------------------------------------------------------------------
def as_csv(found: Sequence[Row], columns: Mapping[str, Type] = COLUMNS) -> bytes:
    """A line of names, then a row a line; JSON in cells that hold more than one value."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(row[name], kind) for name, kind in columns.items()] for row in found)
    return _utf8(text.getvalue())


def as_jsonl(found: Sequence[Row], columns: Mapping[str, Type] = COLUMNS) -> bytes:
    lines = [json.dumps({name: _plain(row[name]) for name in columns}, allow_nan=False) for row in found]
    return _utf8("".join(f"{line}\n" for line in lines))


def as_parquet(found: Sequence[Row], columns: Mapping[str, Type] = COLUMNS) -> bytes:
    """One table, whose types do not depend on the rows: text, int64, float64, bool, UTC time in us, lists of texts,
    JSON as text.

    Raises UsageError without pyarrow.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise UsageError(
            "`export --format parquet` needs pyarrow, which is not installed: "
            "`.venv/bin/python -m pip install -e '.[parquet]'`"
        ) from None
    types = {
        "text": pa.string(),
        "int": pa.int64(),
        "float": pa.float64(),
        "bool": pa.bool_(),
        "time": pa.timestamp("us", tz="UTC"),
        "json": pa.string(),
        "texts": pa.list_(pa.string()),
    }
    schema = pa.schema([(name, types[kind]) for name, kind in columns.items()])
    values = [
        {name: _json(row[name]) if kind == "json" else row[name] for name, kind in columns.items()} for row in found
    ]
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(values, schema=schema), sink)
    return sink.getvalue()


FORMATS: dict[str, Callable[[Sequence[Row], Mapping[str, Type]], bytes]] = {
    "csv": as_csv,
    "jsonl": as_jsonl,
    "parquet": as_parquet,
}


def _cell(value: Any, kind: Type) -> object:
    if value is None:
        return ""
    if kind in ("json", "texts"):
        return _json(value)
    return str(value).lower() if kind == "bool" else _plain(value)


def _plain(value: Any) -> Any:
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else value


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(value, allow_nan=False)


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", errors="replace")  # half a surrogate pair, from somebody's message
