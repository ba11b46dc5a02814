"""Whatever a submission does, the evaluation ends in time, says which rank did what, and leaves nothing behind."""

import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from conftest import RANKS, TIMEOUT_S
from waiting import in_time

from harness.core.errors import Exit
from harness.core.records import Crashed, EvalReport, Passed, Raised, TimedOut, Wrong
from harness.judging import verdict
from harness.judging.warnings import text_of

RIGHT = """\
import torch.distributed as dist
from reference import ref_kernel

def custom_kernel(data):
    misbehave(dist.get_rank())
    return ref_kernel(data)
"""


@dataclass(frozen=True)
class Bad:
    """A submission: `misbehave(rank)` is called before each call, unless `source` is the whole file."""

    name: str
    misbehave: str = ""
    source: str = ""
    outcome: type = Raised
    rank: int | None = None
    message: str = ""  # a pattern
    exit_code: Exit = Exit.INVALID

    def text(self) -> str:
        return self.source or f"def misbehave(rank):\n    {self.misbehave}\n{RIGHT}"


BAD = [
    Bad("defines no custom_kernel", source="x = 1\n", message="no custom_kernel"),
    Bad("custom_kernel is not callable", source="custom_kernel = 3\n", message="is of type int; it must be a function"),
    Bad("takes two arguments", source="def custom_kernel(a, b): return a\n", message=r"\(a, b\) cannot be called"),
    Bad("is a class", source="class custom_kernel:\n    pass\n", message="is a class, which a call makes an instance"),
    Bad("imports what is not there", source="import nowhere_at_all\n", message="No module named 'nowhere_at_all'"),
    Bad("exits at import", source="import sys\nsys.exit(0)\n", message=r"called sys.exit\(0\)"),
    Bad("exits in the kernel", "import sys; sys.exit(0) if rank == 1 else None", rank=1, message=r"sys.exit\(0\)"),
    Bad("raises on one rank", "1 / 0 if rank == 1 else None", rank=1, message="ZeroDivisionError"),
    Bad("raises on all ranks", "raise KeyError('gone')", rank=0, message="KeyError.*and rank 1"),
    Bad(
        "raises what is no Exception",
        "raise BaseException('odd') if rank == 1 else KeyboardInterrupt",
        message="odd|Key",
    ),
    Bad("runs out of memory it asked for", "bytearray(1 << 60)", message="MemoryError|OverflowError"),
    Bad(
        "ends its process",
        "import os; os._exit(0) if rank == 1 else None",
        outcome=Crashed,
        rank=1,
        message="exited with code 0",
    ),
    Bad(
        "reads address 0",
        "import ctypes; ctypes.string_at(0) if rank == 1 else None",
        outcome=Crashed,
        rank=1,
        message="SIGSEGV",
    ),
    Bad(
        "kills itself",
        "import os; os.kill(os.getpid(), 9) if rank == 1 else None",
        outcome=Crashed,
        rank=1,
        message="SIGKILL.*out of memory",
    ),
    Bad(
        "ends by a signal without a name",
        "import os; os.kill(os.getpid(), 40) if rank == 1 else None",
        outcome=Crashed,
        rank=1,
        message="killed by signal 40",
    ),
    Bad(
        "tells times that no clock has",
        "import time; time.monotonic_ns = lambda: 10**400",
        outcome=Raised,
        message="63 bits",
    ),
    Bad("returns nothing", source="def custom_kernel(data): pass\n", outcome=Wrong, message="returned None"),
    Bad("returns a list", source="def custom_kernel(data): return [1]\n", outcome=Wrong, message="returned a list"),
]


@pytest.mark.parametrize("bad", BAD, ids=[bad.name for bad in BAD])
def test_a_submission_that_misbehaves_is_named_for_it(bad: Bad, evaluated: Callable[..., EvalReport]) -> None:
    """Outcome, rank, message and exit code say what it did; no process, file or folder is left."""
    report = evaluated(bad.text())
    outcome = report.results[0].outcome
    assert isinstance(outcome, bad.outcome), outcome
    assert re.search(bad.message, outcome.message, re.DOTALL), outcome.message
    if bad.rank is not None:
        assert outcome.rank == bad.rank
    assert verdict.exit_code(report) == bad.exit_code
    assert report.figures is None


def test_what_machine_it_is_is_not_the_submissions_to_say(evaluated: Callable[..., EvalReport]) -> None:
    """Or its bounds would be another machine's, and its place on another board."""
    source = """\
import harness.ranks.wire as wire
from reference import ref_kernel as custom_kernel

made = wire.Imported
wire.Imported = lambda device: made(device="NVIDIA H200")
"""
    report = evaluated(source, mode="leaderboard")
    assert isinstance(report.results[0].outcome, Passed)
    assert report.environment is not None
    assert "H200" not in report.environment.machine_class
    assert report.peaks is not None
    assert "measure" in report.peaks.source


@pytest.mark.parametrize(
    ("misbehave", "suspect", "has_stack"),
    [
        ("import time; time.sleep(3600) if rank == 1 else None", "rank 1", True),
        ("while rank == 0: pass", "rank 0", True),
        ("import os; os.kill(os.getpid(), 19) if rank == 1 else None", "rank 1", False),
    ],
    ids=["sleeps", "spins", "is stopped"],
)
def test_a_rank_that_hangs_is_found_at_the_deadline(
    misbehave: str, suspect: str, has_stack: bool, evaluated: Callable[..., EvalReport]
) -> None:
    """The phase's deadline holds, the report has each rank's stack, and the message points at the rank to blame."""

    def check(limit_s: float) -> None:
        report = evaluated(Bad("", misbehave).text(), timeout_s=limit_s)
        outcome = report.results[0].outcome
        assert isinstance(outcome, TimedOut), outcome
        assert f"; {suspect} did not wait for the others in a collective" in outcome.message
        assert len(outcome.stacks) == RANKS
        assert sum("in misbehave" in stack for stack in outcome.stacks) == (1 if has_stack else 0)
        assert verdict.exit_code(report) == Exit.TIMED_OUT
        assert sum(report.phases_s.values()) < 60, "of the hour that it would sleep"

    in_time(check, 2.0, 10.0)


def test_a_rank_that_raises_ends_the_evaluation_at_once(evaluated: Callable[..., EvalReport]) -> None:
    """The other ranks wait in a collective for minutes; nobody waits for them."""
    report = evaluated(Bad("", "1 / 0 if rank == 1 else None").text())
    assert isinstance(report.results[0].outcome, Raised)
    assert report.phases_s["test"] + report.phases_s["end"] < TIMEOUT_S


def test_the_traceback_shows_the_submission_and_not_the_harness(evaluated: Callable[..., EvalReport]) -> None:
    outcome = evaluated(Bad("", "1 / 0").text()).results[0].outcome
    assert isinstance(outcome, Raised)
    assert "in misbehave" in outcome.traceback
    assert "harness" not in outcome.traceback


HARMLESS = {
    "prints 100 MB": "print('x' * 65536) or [print('y' * 65536) for _ in range(1600) if rank == 0]",
    "forks children": "import os, time; os.fork() or (os.setsid(), os.fork() or time.sleep(999), os._exit(0))",
    "deletes its working folder": "import os, shutil; shutil.rmtree(os.path.dirname(__file__), ignore_errors=True)",
    "closes its standard streams": "import os; os.closerange(1, 3)",
    "changes the working folder": "import os; os.chdir('/')",
    "starts a program": "import subprocess; subprocess.Popen(['sleep', '999'], start_new_session=True)",
}


@pytest.mark.parametrize("misbehave", HARMLESS.values(), ids=HARMLESS.keys())
def test_what_harms_nobody_passes_and_is_cleaned_up(misbehave: str, evaluated: Callable[..., EvalReport]) -> None:
    report = evaluated(Bad("", misbehave).text())
    assert [type(result.outcome) for result in report.results] == [Passed, Passed], report.results
    assert all(len(text) <= 65536 for text in report.logs.values())


def test_later_cases_are_not_run_after_a_crash(evaluated: Callable[..., EvalReport]) -> None:
    report = evaluated(Bad("", "import os; os._exit(3)").text(), mode="leaderboard")
    assert [result.outcome.type for result in report.results] == ["crashed", "not_run", "not_run", "not_run"]


def test_all_tests_are_run_where_outputs_are_merely_wrong(evaluated: Callable[..., EvalReport]) -> None:
    """Each test says for itself what is wrong; the benchmarks are then not run."""
    source = "import torch\ndef custom_kernel(data): return torch.zeros_like(data[1].x)\n"
    report = evaluated(source, mode="leaderboard")
    assert [result.outcome.type for result in report.results] == ["wrong", "wrong", "not_run", "not_run"]


@pytest.mark.parametrize("right_calls", [4, 5, 9])  # two checks, a probe and a warm-up come before timed calls
def test_a_submission_that_is_right_only_at_first_is_wrong(
    right_calls: int, evaluated: Callable[..., EvalReport]
) -> None:
    """Every timed call is judged by its own output, not by the reference's on the same input or an earlier one."""
    source = (
        "from reference import ref_kernel\n\n"
        "calls = {}\n\n"
        "def custom_kernel(data):\n"
        "    shape = (data[0].num_experts, data[0].hidden_dim)\n"
        "    calls[shape] = calls.get(shape, 0) + 1\n"
        "    result = ref_kernel(data)\n"
        f"    return result if calls[shape] <= {right_calls} or data[1].x.shape[1] == 64 else result * 0\n"
    )
    report = evaluated(source, mode="leaderboard", timeout_s=60.0)
    assert [result.outcome.type for result in report.results[:3]] == ["passed", "passed", "wrong"]
    assert "a timed call" in report.results[2].outcome.message


def test_a_function_that_torch_compiles_no_more_is_said(evaluated: Callable[..., EvalReport]) -> None:
    """By torch's own message, behind the limit that the file sets."""
    source = """\
import torch
from reference import ref_kernel

torch._dynamo.config.recompile_limit = 1


@torch.compile(backend="eager", dynamic=False)
def changed(data):
    return data + 0


def custom_kernel(data):
    changed(data[0])
    return ref_kernel(data)
"""
    report = evaluated(source, problem="rms_norm", mode="benchmark")
    assert verdict.status(report) == "pass"
    (said,) = [text_of(one) for one in report.warnings if one.code == "uncompiled"]
    assert said.startswith("candidate rank 0: torch.compile compiles a function 1 times at most (")
    assert "recompile_limit" in said
