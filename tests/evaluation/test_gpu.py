"""Evaluations on real GPUs: what passes, and that every way to fail is named, bounded and leaves the GPUs free."""

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from harness.core.errors import Exit
from harness.core.processes import descendants
from harness.core.records import Crashed, EvalReport, Measured, Raised, TimedOut, Wrong
from harness.core.stats import median
from harness.judging import verdict
from harness.machine.host import gpus

pytestmark = pytest.mark.gpu

REFERENCE = "from reference import ref_kernel as custom_kernel\n"
WORLD_SIZE = min(4, gpus().count)
LAST = WORLD_SIZE - 1

Evaluate = Callable[..., EvalReport]


def processes_on_gpus() -> set[str]:
    """Those that this one has started."""
    query = ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"]
    found = subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()
    return set(found) & set(map(str, descendants(os.getpid())))


@pytest.fixture(autouse=True)
def gpus_are_left_free() -> Iterator[None]:
    yield
    deadline = time.monotonic() + 5
    while processes_on_gpus() and time.monotonic() < deadline:
        time.sleep(0.2)
    assert processes_on_gpus() == set()


@pytest.fixture
def on_gpus(evaluated: Evaluate) -> Evaluate:
    def run(source: str, **options: object) -> EvalReport:
        settings = {"problem": "gemm_rs", "device": gpus().device, "ranks": WORLD_SIZE, "timeout_s": 60.0}
        return evaluated(source, **(settings | options))

    return run


@pytest.mark.parametrize("problem", ["a2a", "ag_gemm", "gemm_rs"])
def test_the_reference_passes_and_is_timed_on_every_clock(problem: str, on_gpus: Evaluate) -> None:
    report = on_gpus(REFERENCE, problem=problem, mode="leaderboard")
    assert verdict.exit_code(report) == Exit.OK, [result.outcome for result in report.results]
    for result in report.results:
        if isinstance(result.outcome, Measured):
            assert list(result.outcome.by_name) == ["device", "wall", "gpumode", "host", "memory"]
            assert all(min(series.own) > 0 for series in result.outcome.series)
            assert result.outcome.against_bound.metric.name == "device"
    assert report.environment is not None
    assert report.environment.machine_class.startswith(f"{WORLD_SIZE}x ")


def bad(misbehave: str) -> str:
    return (
        "import torch\nimport torch.distributed as dist\nfrom reference import ref_kernel\n\n"
        "def custom_kernel(data):\n"
        f"    if dist.get_rank() == {LAST}:\n        {misbehave}\n"
        "    return ref_kernel(data)\n"
    )


BAD = {
    "an illegal memory access": (
        "torch.zeros(1, device='cuda')[torch.tensor([1 << 40], device='cuda')]; torch.cuda.synchronize()",
        (Raised, Crashed),
        r"CUDA error|device-side assert|SIGABRT",
    ),
    "more memory than there is": ("torch.empty(1 << 45, device='cuda')", (Raised,), "out of the device.s memory"),
    "a dead rank": ("import os; os._exit(7)", (Crashed,), "exited with code 7"),
    "a result on the host": ("return ref_kernel(data).cpu()", (Wrong,), "is on cpu; expected it on cuda"),
}


@pytest.mark.parametrize(("misbehave", "outcomes", "says"), BAD.values(), ids=BAD.keys())
def test_what_goes_wrong_on_one_gpu_is_named(
    misbehave: str, outcomes: tuple[type, ...], says: str, on_gpus: Evaluate
) -> None:
    began = time.monotonic()
    outcome = on_gpus(bad(misbehave)).results[0].outcome
    assert isinstance(outcome, outcomes), outcome
    assert re.search(says, outcome.message), outcome
    if not isinstance(outcome, Wrong):
        assert outcome.rank == LAST
    assert time.monotonic() - began < 60


@pytest.mark.parametrize(
    "misbehave",
    ["torch.cuda._sleep(1 << 45)", "import time; time.sleep(3600)"],
    ids=["a spinning kernel", "a rank that never joins the collective"],
)
def test_what_never_ends_is_ended_at_the_deadline_and_the_next_evaluation_works(
    misbehave: str, on_gpus: Evaluate
) -> None:
    report = on_gpus(bad(misbehave), timeout_s=8.0)
    assert isinstance(report.results[0].outcome, TimedOut), report.results[0].outcome
    assert report.phases_s["test"] < 12
    assert verdict.exit_code(on_gpus(REFERENCE)) == Exit.OK


AHEAD = """
import torch
from reference import ref_kernel

streams = []

def custom_kernel(data):
    if not streams:
        streams.append(torch.cuda.Stream())
    with torch.cuda.stream(streams[0]):
        torch.cuda._sleep(2_000_000)
        result = ref_kernel(data)
    torch.cuda.current_stream().wait_stream(streams[0])
    return result
"""
SLEEP_US = 2_000_000 / 1980 / 2  # at twice the clock of any GPU of today


def test_what_another_stream_does_before_the_clock_starts_is_in_the_time_all_the_same(on_gpus: Evaluate) -> None:
    """Its stream does not wait for the one that it is called on: such a call is made when its input is there."""
    for result in on_gpus(AHEAD, mode="benchmark").results:
        assert isinstance(result.outcome, Measured), result.outcome
        assert median(result.outcome.by_name["device"].own) > SLEEP_US
