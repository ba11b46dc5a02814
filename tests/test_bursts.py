"""Bursts, as calls are timed on GPUs: several inputs are handed out together, and none can be read before its turn."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import verdict
from harness.records import Crashed, EvalReport, Exit, Raised, Timed, TimedOut, Wrong
from harness.timing import due

HOSTILE = Path(__file__).parent / "hostile"
# A call in the middle of a burst: after checks, probes and the warm-up of the first benchmark.
MISBEHAVES = """
import os, time
import torch.distributed as dist
from reference import ref_kernel

calls = 0

def custom_kernel(data):
    global calls
    calls += 1
    if calls == 8 and dist.get_rank() == 1:
        {misbehave}
    return ref_kernel(data)
"""


def in_bursts(evaluated: Callable[..., EvalReport], source: str, timeout_s: float = 30.0) -> EvalReport:
    return evaluated(source, "gemm_rs", mode="leaderboard", burst=True, timeout_s=timeout_s)


def test_the_reference_is_ranked(evaluated: Callable[..., EvalReport]) -> None:
    report = in_bursts(evaluated, "from reference import ref_kernel as custom_kernel\n")
    assert verdict.exit_code(report) == Exit.OK, verdict.first_failure(report)
    for timed in (result.outcome for result in report.results if isinstance(result.outcome, Timed)):
        (gpumode,) = timed.others
        blocks = len(timed.samples_us) // timed.block
        read = [number for number in range(blocks) if "gpumode" in due(("wall", "gpumode"), number)]
        assert len(gpumode.samples_us) == len(read) * timed.block


def test_work_ahead_of_its_turn_is_done_on_noise(evaluated: Callable[..., EvalReport]) -> None:
    report = in_bursts(evaluated, (HOSTILE / "ahead_in_a_burst.py").read_text())
    failed = verdict.first_failure(report)
    assert failed is not None
    assert isinstance(failed.outcome, Wrong), failed
    assert "a timed call" in failed.outcome.message


@pytest.mark.parametrize(
    ("misbehave", "outcome"),
    [("os._exit(3)", Crashed), ("raise ValueError('no')", Raised), ("time.sleep(99)", TimedOut)],
)
def test_what_goes_wrong_in_the_middle_is_named_and_bounded(
    misbehave: str, outcome: type, evaluated: Callable[..., EvalReport]
) -> None:
    began = time.monotonic()
    report = in_bursts(evaluated, MISBEHAVES.format(misbehave=misbehave), timeout_s=6.0)
    failed = verdict.first_failure(report)
    assert failed is not None
    assert isinstance(failed.outcome, outcome), failed
    assert time.monotonic() - began < 25
