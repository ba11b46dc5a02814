"""The vendors' profilers: what their reports say, and a profile from the command to the table, with a stand-in for ncu.

The tables are written by hand, in the columns that the tools document."""

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from places import FIXTURES, SINGLE

from harness.cli.main import main
from harness.core.checkout import Checkout
from harness.core.errors import Exit, HarnessError, UsageError
from harness.core.records import KernelFigures
from harness.kinds import settings
from harness.kinds.settings import Asked
from harness.kinds.vendor_tool import kind as vendor
from harness.kinds.vendor_tool.rank import counted
from harness.machine.host import gpus
from harness.process import child, profilers
from harness.process.child import Ended
from harness.process.ncu import Ncu, ncu_dispatches
from harness.process.profiler_tool import Dispatch
from harness.process.rocprof import Rocprof

ROCPROF = FIXTURES / "rocprofv3"
SCALE = SINGLE / "scale"
SECOND = '  - {"size": 4096, "seed": 14}\n'  # benchmark of it
RAW = """==PROF== Connected to process 7
"ID","Process ID","Kernel Name","gpu__time_duration.sum","sm__warps_active.avg.pct_of_peak_sustained_active",\
"sm__throughput.avg.pct_of_peak_sustained_elapsed","gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",\
"sm__inst_executed_pipe_tensor_op_hmma.avg.pct_of_peak_sustained_active",\
"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active","launch__registers_per_thread"
"","","","ns","%","%","%","%","%","register/thread"
"0","7","void gemm<128, 128>(float *)","1,500","50","70","20","60","61.5","96"
"1","7","scale","500","25","5","80","0","0","16"
"2","7","scale","1500","75","5","88","0","0","16"
"""
DETAILS = """"ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"
"0","scale","GPU Speed Of Light Throughput","Duration","us","2.5"
"0","scale","GPU Speed Of Light Throughput","Memory Throughput","%","81.25"
"0","scale","GPU Speed Of Light Throughput","DRAM Throughput","%","79"
"0","scale","Memory Workload Analysis","Memory Throughput","Tbyte/s","2.4"
"0","scale","Occupancy","Achieved Occupancy","%","62.5"
"""
FAKE = f"""#!{sys.executable}
import subprocess, sys
arguments = sys.argv[1:]
if "--import" in arguments:
    print({RAW!r}, end="")
else:
    out = arguments.index("-o") + 1
    print("==PROF== Connected")
    open(arguments[out] + ".ncu-rep", "w").write("a report")
    sys.exit(subprocess.run(arguments[out + 1 :]).returncode)
"""


def test_ncus_raw_page_is_a_column_a_metric() -> None:
    found = ncu_dispatches(RAW)
    assert found[0] == Dispatch(
        name="void gemm<128, 128>(float *)",
        time_us=1.5,
        percents={"occupancy": 50.0, "compute": 70.0, "memory": 20.0, "tensor": 61.5},
    )
    assert profilers.kernel_figures(0, found)[0] == KernelFigures(
        rank=0,
        name="scale",
        calls=2,
        time_us=2.0,
        percents={"occupancy": 62.5, "compute": 5.0, "memory": 86.0, "tensor": 0.0},
    )


def test_ncus_details_page_is_a_row_a_metric() -> None:
    percents = {"memory": 81.25, "dram": 79.0, "occupancy": 62.5}
    assert ncu_dispatches(DETAILS) == [Dispatch(name="scale", time_us=2.5, percents=percents)]


def test_a_text_without_a_kernel_is_said_to_be_none() -> None:
    assert ncu_dispatches('"ID","Kernel Name"\n') == []
    for text in ("", "==ERROR== no\n"):
        with pytest.raises(HarnessError, match="printed no table"):
            ncu_dispatches(text)


@pytest.mark.parametrize(
    ("version", "within", "times_us"),
    [
        ("6.2", ["NormKernel1(int", "NormKernel2(int"], [401.121, 3.52]),
        ("7.2", ["subtract_kernel(float*", "multiply_kernel(float*"], [11.04, 9.72]),
    ],
)
def test_of_rocprofs_kernels_those_within_the_marked_call_count(
    version: str, within: list[str], times_us: list[float], tmp_path: Path
) -> None:
    """Kernel traces that these versions of ROCm wrote (AMD's training examples and rocprofiler-sdk's documentation);
    rows of markers in the columns of those that they wrote, with our range's name."""
    tool = profilers.TOOLS["rocprof"]
    host = tmp_path / "host"
    host.mkdir()
    shutil.copy(ROCPROF / f"{version}_kernel_trace.csv", host / "report-7_kernel_trace.csv")
    assert len(tool.dispatches("rocprofv3", tmp_path)) == len(within) + (
        2 if version == "6.2" else 1
    )  # no range is told
    shutil.copy(ROCPROF / f"{version}_marker_api_trace.csv", host / "report-7_marker_api_trace.csv")
    found = tool.dispatches("rocprofv3", tmp_path)
    assert [one.name.partition(",")[0].partition(" float const")[0] for one in found] == within
    assert [one.time_us for one in found] == pytest.approx(times_us)


def test_without_a_trace_rocprof_saw_nothing(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="no trace of kernels"):
        profilers.TOOLS["rocprof"].dispatches("rocprofv3", tmp_path)


def test_commands_put_the_tool_around_a_process() -> None:
    ncu = profilers.TOOLS["ncu"].command("/opt/ncu", Path("/out"), ["python", "x"], 7)
    assert ncu[0] == "/opt/ncu"
    ends = "--profile-from-start off --launch-count 7 --kernel-name-base demangled -f -o /out/report python x"
    assert " ".join(ncu).endswith(ends)
    rocprof = profilers.TOOLS["rocprof"].command("rocprofv3", Path("/out"), ["python", "x"], None)
    assert " ".join(rocprof) == (
        "rocprofv3 --kernel-trace --marker-trace --output-format csv -o report-%pid% -d /out -- python x"
    )


# ---- from the command to the table ---------------------------------------------------------------------------------


@pytest.fixture
def ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """ncu(script) puts that script in ncu's place, on CPU cores."""
    monkeypatch.setattr(Ncu, "places", ())

    def put(script: str = FAKE) -> None:
        monkeypatch.setattr(Ncu, "devices", ("cpu",))
        path = tmp_path / "bin" / "ncu"
        path.parent.mkdir()
        path.write_text(script)
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{path.parent}:/usr/bin:/bin")

    return put


def profile(*more: str, folder: Path = SCALE) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["eval", str(folder), *more])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def brief(to: Path) -> Path:
    """A copy of `single/scale` with one benchmark, since each is a process that imports torch."""
    shutil.copytree(SCALE.parent, to / "single")
    task = to / "single" / "scale" / "task.yml"
    text = task.read_text()
    assert text.count(SECOND) == 1
    task.write_text(text.replace(SECOND, ""))
    return task.parent


def test_a_profile_shows_each_kernel_and_keeps_the_report(
    ncu: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str], nothing_left: None
) -> None:
    ncu()
    out = tmp_path / "report.json"
    code = profile("--mode", "profile", "--tool", "ncu", "--no-record", "--trace", str(tmp_path), "--json", str(out))
    shown = capsys.readouterr().out
    assert code == 0, shown
    assert "kernel, by ncu" in shown
    assert [line.split() for line in shown.splitlines() if "scale " in line and "%" in line] == [
        ["0", "scale", "2", "2.00", "62.5%", "5.0%", "86.0%", "0%"]
    ] * 2  # benchmarks
    assert "outside the sandbox" in " ".join(shown.split())
    (found,) = json.loads(out.read_text())["cases"][:1]
    assert found["profile"]["tool"] == "ncu"
    assert [one["name"] for one in found["profile"]["kernels"]] == ["scale", "void gemm<128, 128>(float *)"]
    assert found["profile"]["trace"] is None
    kept = {Path(path).name: Path(path) for path in found["profile"]["reports"]}
    assert kept["profile-0-rank-0-report.ncu-rep"].read_text() == "a report"
    assert "gpu__time_duration" in kept["profile-0-rank-0-report.csv"].read_text()


@pytest.mark.parametrize(
    ("launches", "told"),
    [
        (2345, "ncu profiled the first 3 kernel launches of the call and left out the other 2,342; --launch-count N"),
        pytest.param(
            0,
            "ncu profiled the first 3 kernel launches of the call, which may have more: they could not be counted",
            marks=pytest.mark.slow,
        ),
        pytest.param(3, "", marks=pytest.mark.slow),
    ],
)
def test_of_a_call_of_many_launches_the_first_ones_are_profiled(
    launches: int,
    told: str,
    ncu: Callable[..., None],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The stand-in's report has three. A second run, without it, counts those that there are."""

    def run_child(command: list[str], folder: Path, environ: dict[str, str], limit_s: float) -> Ended:
        ended = child.run_child(command, folder, environ, limit_s)
        counts = json.loads((folder / profilers.JOB).read_text())["counts"]
        assert counts == ("--launch-count" not in command)
        if counts:  # there is no GPU here whose kernels could be counted
            said = folder / profilers.RESULT
            said.write_text(json.dumps(json.loads(said.read_text()) | {"launches": launches}))
        return ended

    ncu()
    monkeypatch.setattr(vendor, "run_child", run_child)
    options = ("--mode", "profile", "--tool", "ncu", "--launch-count", "3", "--no-record")
    assert profile(*options, folder=brief(tmp_path)) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert told in shown
    assert ("kernel launches of the call" in shown) == bool(told)


def test_kernels_are_counted_and_copies_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = [{"cat": "kernel"}, {"cat": "gpu_memcpy"}, {"cat": "cuda_runtime"}, {"cat": "kernel"}, {"name": "meta"}]
    called = []

    class Profiler:
        def __init__(self, activities: list[object]) -> None: ...
        def __enter__(self) -> "Profiler":
            return self

        def __exit__(self, *exc: object) -> None: ...
        def export_chrome_trace(self, path: str) -> None:
            Path(path).write_text(json.dumps({"traceEvents": events}))

    monkeypatch.setattr(torch.profiler, "profile", Profiler)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    assert counted(lambda: called.append(1), tmp_path / "trace.json") == 2
    assert called == [1]


@pytest.mark.parametrize(
    ("source", "code", "told"),
    [
        ("def custom_kernel(data):\n    return data[0] * 0\n", Exit.INVALID, "fail: wrong in profile"),
        ("def custom_kernel(data):\n    raise KeyError('gone')\n", Exit.INVALID, "KeyError: 'gone'"),
        ("import os\nos._exit(7)\n", Exit.INVALID, "under ncu the process exited with code 7"),
        ("import nowhere_at_all\n", Exit.INVALID, "nowhere_at_all"),  # raised, as whatever a submission raises
    ],
)
def test_what_the_submission_does_wrong_is_its_own(
    source: str, code: Exit, told: str, ncu: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ncu()
    file = tmp_path / "mine.py"
    file.write_text(source)
    assert profile(str(file), "--mode", "profile", "--tool", "ncu", "--no-record", folder=brief(tmp_path)) == code
    shown = capsys.readouterr()
    assert told in " ".join((shown.out + shown.err).split())


def test_a_tool_that_may_not_profile_says_why(
    ncu: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ncu(FAKE.replace("==PROF== Connected", "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission"))
    options = ("--mode", "profile", "--tool", "ncu", "--no-record")
    assert profile(*options, folder=brief(tmp_path)) == Exit.ERROR
    assert "ncu did not profile: this user may not read the GPU's counters" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--tool", "ncu"], "--tool ncu: only --mode profile takes a profiler"),
        (["--tool", "ncu", "--mode", "profile"], "there is no ncu here (looked in PATH, "),
        (["--tool", "rocprof", "--mode", "profile"], "there is no rocprofv3 here (looked in PATH, /opt/rocm/bin"),
        (
            ["--launch-count", "9", "--mode", "profile"],
            "--launch-count 9: only --tool ncu takes it; add --mode profile",
        ),
        (["--tool", "ncu", "--mode", "profile", "--eval", "theirs"], "not a folder's own evaluator"),
    ],
)
def test_what_cannot_be_profiled_is_refused_in_a_line(
    more: list[str], told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(profilers, "search_path", lambda: "/nowhere")
    monkeypatch.setattr(Ncu, "places", ("/nowhere/cuda",))
    assert profile("--no-record", *more) == Exit.USAGE
    shown = capsys.readouterr().err.strip()
    assert told in shown
    assert "\n" not in shown


@pytest.mark.parametrize(
    ("tool", "count", "told"),
    [
        ("ncu", "0", "--launch-count 0: 1 or more kernel launches can be profiled"),
        ("rocprof", "5", "--launch-count: --tool rocprof runs no kernel twice and profiles all; leave it out"),
    ],
)
def test_a_number_of_launches_that_cannot_be_profiled_is_refused(
    tool: str, count: str, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(profilers, "find", lambda tool: "/opt/it")
    for one in (Ncu, Rocprof):
        monkeypatch.setattr(one, "devices", ("cpu",))
    options = ("--mode", "profile", "--tool", tool, "--launch-count", count, "--no-record")
    assert profile(*options) == Exit.USAGE
    assert told in capsys.readouterr().err


def test_one_benchmark_can_be_profiled_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """In no other mode: what is ranked needs all of them."""
    asked = Asked(problem="gemm_rs", device="cpu")
    every = settings.setting(asked, Checkout.here()).suite.benchmarks
    assert len(every) > 1
    for number in (0, len(every) - 1):
        found = settings.setting(replace(asked, benchmark=number), Checkout.here())
        assert found.suite.benchmarks == (every[number],)
    for number in (-1, len(every)):
        with pytest.raises(UsageError, match=f"has the benchmarks 0 to {len(every) - 1}"):
            settings.setting(replace(asked, benchmark=number), Checkout.here())
    with pytest.raises(UsageError, match=r"a folder's own eval\.py runs all benchmarks"):
        settings.setting(
            Asked(problem=str(SCALE), device="cpu", evaluator="theirs", benchmark=0),
            Checkout.here(),
        )
    with pytest.raises(SystemExit) as ended:
        main(["eval", "gemm_rs", "--device", "cpu", "--benchmark", "0"])
    assert ended.value.code == Exit.USAGE
    assert "--benchmark 0: only --mode profile takes it" in capsys.readouterr().err


def test_several_ranks_are_no_work_for_a_tool_that_replays(
    ncu: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    ncu()
    with pytest.raises(SystemExit) as ended:
        main(["eval", "gemm_rs", "--ranks", "2", "--mode", "profile", "--tool", "ncu", "--no-record"])
    assert ended.value.code == Exit.USAGE
    assert "it profiles 1 rank, not 2 (--ranks 1" in capsys.readouterr().err


@pytest.mark.skipif(
    gpus().device != "cuda" or profilers.find(profilers.TOOLS["ncu"]) is None, reason="needs an NVIDIA GPU and ncu"
)
def test_ncu_itself_profiles_the_first_launches_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wired = shutil.copytree(SCALE.parent, tmp_path / "single") / "wired"
    mine = tmp_path / "mine.py"
    mine.write_text(
        "from reference import ref_kernel\n"
        "def custom_kernel(data):\n"
        "    for _ in range(40):\n"
        "        out = ref_kernel(data)\n"
        "    return out\n"
    )
    options = ("--mode", "profile", "--tool", "ncu", "--launch-count", "5", "--no-record", "--benchmark", "0")
    assert profile(str(mine), *options, folder=wired) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "ncu profiled the first 5 kernel launches of the call and left out the other " in shown


@pytest.mark.skipif(
    gpus().device != "cuda" or profilers.find(profilers.TOOLS["ncu"]) is None, reason="needs an NVIDIA GPU and ncu"
)
def test_ncu_itself_tells_what_the_table_has(tmp_path: Path) -> None:
    out = tmp_path / "report.json"
    wired = SCALE.parent / "wired"
    with pytest.raises(SystemExit) as ended:
        main(["eval", str(wired), "--mode", "profile", "--tool", "ncu", "--trace", str(tmp_path), "--json", str(out),
              "--no-record"])  # fmt: skip
    assert ended.value.code == 0
    for found in json.loads(out.read_text())["cases"]:
        kernels = found["profile"]["kernels"]
        assert kernels
        for one in kernels:
            assert 0 < one["time_us"] < 1e6
            assert {"occupancy", "compute", "memory", "dram", "tensor"} <= one["percents"].keys()
            assert all(0 <= value <= 105 for value in one["percents"].values())
        assert any(Path(path).suffix == ".ncu-rep" for path in found["profile"]["reports"])
