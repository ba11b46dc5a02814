"""Profile mode: one trace out of the ranks' traces, what took the time, and what a submission cannot do to it."""

import io
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from factories import GEMM_BENCHMARKS, HOSTILE, case, report
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from harness.core.errors import Exit
from harness.core.records import CaseResult, Crashed, EvalReport, OpTime, Passed, Profile, RankProfile, Wrong
from harness.ranks import trace
from harness.report.evaluation import document_of
from harness.report.render import terminal

Harness = Callable[..., subprocess.CompletedProcess[str]]
Evaluated = Callable[..., EvalReport]

BASE_NS = 1_790_857_026_000_000_000
REFERENCE = "from reference import ref_kernel as custom_kernel\n"
ZEROS = "import torch\n\n\ndef custom_kernel(data):\n    return torch.zeros_like(data[1].x)\n"
SECOND_WRONG = """\
import torch
from reference import ref_kernel

calls = 0


def custom_kernel(data):
    global calls
    calls += 1
    return ref_kernel(data) if calls < 6 else torch.zeros_like(data[1].x)
"""
FORGES = """\
import torch
from reference import ref_kernel as custom_kernel


def export(self, path):
    with open(path, "w") as file:
        file.write({content})


torch.autograd.profiler.profile.export_chrome_trace = export
"""


def span(name: str, ts: float, dur: float, category: str = "cpu_op", pid: Any = 77, tid: Any = 77) -> dict[str, Any]:
    return {"ph": "X", "name": name, "cat": category, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": {}}


def arrow(phase: str, number: int, ts: float, pid: int, tid: int) -> dict[str, Any]:
    return {"ph": phase, "id": number, "pid": pid, "tid": tid, "ts": ts, "cat": "ac2g", "name": "ac2g"}


def marks(start: float, end: float, call: float = 5.0) -> list[dict[str, Any]]:
    """A barrier that opens at `start`, the call `call` later."""
    return [
        span(trace.BARRIER_SPAN, start - 40, 40, "user_annotation"),
        span(trace.CALL_SPAN, start + call, end - start - call, "user_annotation"),
    ]


def file_of(events: list[Any], base_ns: Any = BASE_NS, **more: Any) -> bytes:
    """What torch.profiler would have written."""
    return json.dumps({"baseTimeNanoseconds": base_ns, "traceEvents": events, **more}).encode()


def cpu_rank(start: float = 100.0) -> bytes:
    """A warm-up call, then a call of 100 us: a matmul of 60 us with 10 us inside it, a gloo thread beside it."""
    return file_of(
        [
            {"ph": "M", "name": "thread_name", "pid": 77, "tid": 78, "ts": 0, "args": {"name": "thread 78 (gloo)"}},
            {"ph": "M", "name": "thread_name", "pid": 77, "tid": 78, "ts": 0, "args": {"name": "thread 78 (python)"}},
            *marks(start - 100, start - 50),
            span("aten::warm", start - 60, 2),
            *marks(start, start + 105),
            span("aten::matmul", start + 10, 60),
            span("aten::mm", start + 20, 10),
            span("gloo:all_gather", start + 30, 75, "user_annotation", tid=78),
            span("aten::copy_", start + 110, 9),
            {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": start + 200},
        ]
    )


def gpu_rank(start: float = 100.0) -> bytes:
    """A call that launches a kernel twice; process 3 stands for the GPU, thread 7 for its stream."""
    return file_of(
        [
            *marks(start, start + 100),
            span("aten::mm", start + 10, 20),
            span("cudaLaunchKernel", start + 12, 4, "cuda_runtime"),
            arrow("s", 41, start + 12, 77, 77),
            span("gemm", start + 30, 40, "kernel", pid=3, tid=7),
            arrow("f", 41, start + 30, 3, 7),
            span("gemm", start + 75, 10, "kernel", pid=3, tid=7),
            span("Memcpy", start + 80, 5, "gpu_memcpy", pid=3, tid=9),
            span(trace.CALL_SPAN, start + 30, 55, "gpu_user_annotation", pid=3, tid=7),
        ]
    )


def merged(*files: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(trace.merge([trace.parse(data) for data in files], "a title"))
    return found


def spans(found: dict[str, Any], name: str) -> list[tuple[int, float, float]]:
    """(process, start, end) of the spans of that name."""
    events = [event for event in found["traceEvents"] if event["ph"] == "X" and event["name"] == name]
    return [(event["pid"], event["ts"], event["ts"] + event["dur"]) for event in events]


def names(found: dict[str, Any], kind: str) -> dict[tuple[int, int], str]:
    events = [event for event in found["traceEvents"] if event["ph"] == "M" and event["name"] == kind]
    return {(event["pid"], event["tid"]): event["args"]["name"] for event in events}


def test_ranks_share_one_time_axis_that_begins_when_the_barrier_opens() -> None:
    """Rank 1 leaves the barrier 2 us after rank 0, by a file that counts from another moment."""
    later = json.loads(cpu_rank(102.0))
    later["baseTimeNanoseconds"] -= 1_000_000
    for event in later["traceEvents"]:
        event["ts"] += 1000
    found = merged(cpu_rank(100.0), json.dumps(later).encode())
    assert spans(found, "custom_kernel") == [(1000, 5.0, 105.0), (1001, 7.0, 107.0)]
    assert set(names(found, "process_name").values()) == {"rank 0", "rank 1"}
    assert min(event["ts"] for event in found["traceEvents"]) == 0
    assert found["otherData"] == {"title": "a title"}


def test_what_came_before_the_barrier_and_after_the_call_is_left_out() -> None:
    found = merged(cpu_rank())
    assert spans(found, "aten::matmul") != []
    assert all(spans(found, name) == [] for name in ("aten::warm", "aten::copy_", trace.BARRIER_SPAN))


def test_every_rank_has_threads_and_streams_of_its_own() -> None:
    """Tracks and arrows of two ranks never meet, though both files use the same numbers."""
    found = merged(gpu_rank(), gpu_rank(), cpu_rank())
    tracks = names(found, "thread_name")
    assert len({tid for _, tid in tracks}) == len(tracks) == 8
    of_rank = [[name for (pid, _), name in tracks.items() if pid == 1000 + rank] for rank in range(3)]
    assert of_rank[0] == of_rank[1] == ["calling thread", "GPU stream 7", "GPU stream 9"]
    assert of_rank[2] == ["calling thread", "thread 78 (gloo)"]
    arrows = [(event["ph"], event["id"], event["pid"]) for event in found["traceEvents"] if event["ph"] in "sf"]
    assert arrows == [("s", 1, 1000), ("f", 1, 1000), ("s", 2, 1001), ("f", 2, 1001)]


def test_the_top_on_a_host_is_self_time() -> None:
    found = trace.profile(3, trace.parse(cpu_rank()))
    assert (found.rank, found.call_us, found.of) == (3, 100.0, "host")
    times = {op.name: (op.calls, op.self_us) for op in found.top}
    assert times == {
        "gloo:all_gather": (1, 75.0),
        "aten::matmul": (1, 50.0),
        trace.OUTSIDE: (1, 40.0),
        "aten::mm": (1, 10.0),
    }
    assert [op.self_us for op in found.top] == sorted((op.self_us for op in found.top), reverse=True)


def test_shares_of_a_call_add_up_to_all_of_it_and_no_more() -> None:
    """40 us of matmul and all_gather at the same time count half for each; a caller that waits for a thread that works
    takes nothing."""
    found = trace.profile(3, trace.parse(cpu_rank()))
    shares = {op.name: pytest.approx(op.share) for op in found.top}
    assert shares == {"gloo:all_gather": 0.55, "aten::matmul": 0.30, trace.OUTSIDE: 0.05, "aten::mm": 0.10}
    gpu = {op.name: pytest.approx(op.share) for op in trace.profile(0, trace.parse(gpu_rank())).top}
    assert gpu == {"gemm": 47.5 / 95, "Memcpy": 2.5 / 95}


def test_the_top_on_a_gpu_is_its_kernels() -> None:
    found = trace.profile(0, trace.parse(gpu_rank()))
    assert found.of == "device"
    assert [(op.name, op.calls, op.self_us) for op in found.top] == [("gemm", 2, 50.0), ("Memcpy", 1, 5.0)]


def test_a_span_of_the_submissions_own_does_not_pass_for_the_call() -> None:
    events = json.loads(cpu_rank())["traceEvents"] + [span(trace.CALL_SPAN, 150, 3, "user_annotation")]
    assert trace.parse(file_of(events)).call.duration_ns == 100_000


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "is not JSON"),
        (b'{"traceEvents": [', "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"[]", "not of torch.profiler"),
        (b"{}", "not of torch.profiler"),
        (file_of([], base_ns="now"), "not of torch.profiler"),
        (file_of([], base_ns=10**400), "not of torch.profiler"),
        (file_of([]), "no call in it"),
        (file_of([None, 3, {}, {"ph": "X"}]), "no call in it"),
        (file_of(marks(0, 9)[:1]), "no call in it"),
        (file_of(marks(0, 9)[1:]), "no call in it"),
    ],
)
def test_a_file_that_is_no_trace_is_said_to_be_none(data: bytes, says: str) -> None:
    with pytest.raises(trace.TraceError, match=says):
        trace.parse(data)


@pytest.mark.parametrize(
    "odd",
    [
        {"ts": "1"}, {"ts": None}, {"ts": 1e300}, {"ts": 10**400}, {"ts": float("nan")}, {"ts": True},
        {"dur": -1}, {"dur": "2"}, {"name": 3}, {"cat": None},
        {"ph": "Q"}, {"ph": ["X"]}, {"ph": "s", "id": {}},
    ],
    ids=lambda odd: str(odd)[:20],
)  # fmt: skip
def test_an_event_that_is_not_what_it_should_be_is_left_out(odd: dict[str, Any]) -> None:
    good = json.loads(cpu_rank())["traceEvents"]
    assert trace.parse(file_of([*good, span("odd", 120, 1) | odd])) == trace.parse(cpu_rank())


@pytest.mark.parametrize(
    "args", [{"a": float("nan")}, {"a": "x" * 9999}, [1], {"a": {"b": [float("inf")]}}], ids=lambda args: str(args)[:20]
)
def test_arguments_that_cannot_be_written_again_are_left_out(args: Any) -> None:
    events = json.loads(cpu_rank())["traceEvents"] + [span("odd", 120, 1) | {"args": args}]
    found = merged(file_of(events))
    assert [event["args"] for event in found["traceEvents"] if event["name"] == "odd"] == [{}]


def test_nested_arguments_become_text() -> None:
    events = json.loads(cpu_rank())["traceEvents"] + [span("odd", 120, 1) | {"args": {"Input Dims": [[2, 3], []]}}]
    found = merged(file_of(events))
    assert [event["args"] for event in found["traceEvents"] if event["name"] == "odd"] == [
        {"Input Dims": "[[2, 3], []]"}
    ]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["X", "s", "M"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(["ph", "name", "cat", "pid", "tid", "ts", "dur", "args", "id"])


@given(st.lists(st.dictionaries(KEYS, JSON, max_size=9), max_size=5))
def test_whatever_stands_among_the_events_a_merged_trace_is_json(events: list[dict[str, Any]]) -> None:
    found = merged(file_of([*json.loads(cpu_rank())["traceEvents"], *events]), gpu_rank())
    assert len(spans(found, "custom_kernel")) >= 2
    json.dumps(found, allow_nan=False)


def test_only_an_ordinary_file_of_bounded_size_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe would hold the parent up for ever, a link could lead anywhere."""
    (tmp_path / "good").write_bytes(b"{}")
    assert trace.read(tmp_path / "good") == b"{}"
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "good")
    (tmp_path / "folder").mkdir()
    for name, says in (("pipe", "not an ordinary file"), ("link", "cannot be read"), ("none", "No such file")):
        with pytest.raises(trace.TraceError, match=says):
            trace.read(tmp_path / name)
    with pytest.raises(trace.TraceError):
        trace.read(tmp_path / "folder")
    monkeypatch.setattr(trace, "MAX_BYTES", 1)
    with pytest.raises(trace.TraceError, match="has more than"):
        trace.read(tmp_path / "good")


def test_the_table_fits_80_columns_whatever_kernels_are_called() -> None:
    """And a kernel's name can neither style a terminal nor begin a line of its own."""
    top = tuple(OpTime(name=name, calls=10_000, self_us=9_999_999, share=1.25) for name in ("k<" * 90, HOSTILE))
    ranks = tuple(RankProfile(rank=rank, call_us=1234.5, of="host", top=top) for rank in range(8))
    profile = Profile(ranks=ranks, trace_json="{}", trace="/runs/1/trace-0.json")
    found = CaseResult(case=case(GEMM_BENCHMARKS[0], "profile"), outcome=Passed(), profile=profile)
    out = io.StringIO()
    shown = document_of(report((found,), mode="profile", device="cuda"))
    terminal.show(shown, Console(file=out, width=80))
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert all(line.isascii() and line.isprintable() for line in lines)
    assert sum(line.startswith("verdict ") for line in lines) == 1
    assert "trace  /runs/1/trace-0.json" in lines
    assert "The profiler saw no kernel on rank 0, 1, 2, 3, 4, 5, 6, 7" in out.getvalue()


# ---- whole evaluations -------------------------------------------------------------------------------------------


def test_a_profile_is_one_trace_of_all_ranks_and_a_table(harness: Harness, checkout: Path) -> None:
    """gemm_rs on 4 CPU ranks: spans that overlap on one axis, a collective on top; the leaderboard stays as it is."""
    file = "submissions/gemm_rs/reference.py"
    result = harness("eval", "gemm_rs", file, "--suite", "quick", "--ranks", "4", "--mode", "profile",
                     "--json", "result.json")  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "gloo:" in result.stdout
    assert "aten::mm" in result.stdout
    assert "right in 2 profiled shapes on 4 ranks" in result.stdout
    assert not (checkout / "leaderboard.yaml").exists()
    found = json.loads((checkout / "result.json").read_text())
    assert (found["mode"], found["status"], found["exit_code"]) == ("profile", "pass", 0)
    run = checkout / "runs" / found["run_id"]
    assert json.loads((run / "report.json").read_text())["cases"] == found["cases"]
    for index, one in enumerate(found["cases"]):
        assert (one["kind"], one["status"]) == ("profile", "pass")
        assert Path(one["profile"]["trace"]) == run / f"trace-{index}.json"
        assert [rank["rank"] for rank in one["profile"]["ranks"]] == list(range(4))
        events = json.loads(Path(one["profile"]["trace"]).read_text())
        assert sorted(names(events, "process_name").values()) == [f"rank {rank}" for rank in range(4)]
        calls = spans(events, "custom_kernel")
        assert sorted(pid for pid, _, _ in calls) == list(range(1000, 1004))
        assert max(start for _, start, _ in calls) < min(end for _, _, end in calls), "all ranks at once"
        assert min(event["ts"] for event in events["traceEvents"]) == 0


def test_traces_go_where_they_are_asked_for_and_nothing_else_is_recorded(harness: Harness, checkout: Path) -> None:
    arguments = ("--suite", "quick", "--ranks", "2", "--mode", "profile", "--no-record", "--trace", "here/traces")
    assert harness("eval", "a2a", *arguments).returncode == 0
    assert sorted(path.name for path in (checkout / "here/traces").iterdir()) == ["trace-0.json", "trace-1.json"]
    assert not (checkout / "runs").exists()


def test_a_trace_folder_that_cannot_be_used_is_said_at_once(harness: Harness, checkout: Path) -> None:
    (checkout / "file").write_text("")
    for arguments, says in (
        (("--trace", "traces"), "only --mode profile writes traces"),
        (("--mode", "profile", "--trace", "file"), "cannot be made"),
    ):
        result = harness("eval", "a2a", *arguments)
        assert result.returncode == Exit.USAGE
        assert says in result.stderr


def test_a_wrong_submission_is_not_profiled(evaluated: Evaluated) -> None:
    report = evaluated(ZEROS, mode="profile", ranks=2)
    assert [type(result.outcome) for result in report.results] == [Wrong, Wrong], "all are checked all the same"
    assert all(result.profile is None for result in report.results)


def test_the_profiled_call_must_be_right_too(evaluated: Evaluated) -> None:
    """Two checked calls and the warm-up are right, the call that is shown is not."""
    report = evaluated(SECOND_WRONG, mode="profile", ranks=2)
    assert isinstance(report.results[0].outcome, Wrong)
    assert report.results[0].outcome.message.startswith("profiled call: rank 0")


@pytest.mark.parametrize(
    ("content", "says"),
    [("'{'", "its trace is not JSON"), ("'[]' + ' ' * 17_000_000", "its trace has more than 16 MiB")],
    ids=["broken", "huge"],
)
def test_a_forged_trace_ends_the_evaluation_as_an_outcome(content: str, says: str, evaluated: Evaluated) -> None:
    report = evaluated(FORGES.format(content=content), mode="profile", ranks=2)
    outcome = report.results[0].outcome
    assert isinstance(outcome, Crashed)
    assert outcome.message.startswith(says)


def test_each_case_has_its_own_call_in_its_trace(evaluated: Evaluated) -> None:
    report = evaluated(REFERENCE, mode="profile", ranks=2)
    assert [result.outcome for result in report.results] == [Passed(), Passed()]
    texts = [result.profile.trace_json for result in report.results if result.profile]
    assert [json.loads(text)["otherData"]["title"] for text in texts] == [
        f"a2a: {result.case.label}" for result in report.results
    ]
    assert all(len(spans(json.loads(text), "custom_kernel")) == 2 for text in texts)
