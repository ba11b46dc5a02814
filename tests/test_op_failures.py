"""Whose fault a rank's failure is, and what is said of it: by codes that ranks send, never by what a message says."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import submission_of

from harness.core.errors import HarnessError
from harness.core.records import Crashed, Module, Raised, TimedOut
from harness.kinds.op_failures import the_submissions
from harness.ranks import failure, program, wire
from harness.ranks.failure import RankFailure
from harness.ranks.rank import Rank

STAGED = 'File "/tmp/kernel-eval-a1b2c3/candidate/0/{}", line 3, in custom_kernel'


def plan(**changes: Any) -> Any:
    problem = SimpleNamespace(check_failure=lambda *_: None)
    submission = submission_of("")
    known = {"problem": problem, "submission": submission, "opponent": None, "device": "cpu", "cuda_is_cpu": False}
    return SimpleNamespace(**known | {"world_size": 8} | changes)


def decided(found: RankFailure, folder: Path, **changes: Any) -> Raised | Crashed | TimedOut:
    return the_submissions(found, plan(**changes), folder, "m 64", 3 << 30, has_run=False)


def raised(reason: wire.Reason, message: str = "it broke") -> RankFailure:
    return RankFailure("trusted", Raised(rank=1, message=message, traceback="Traceback ..."), reason)


@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        ("memory", "Next: fewer ranks"),
        ("module", "Next: install the missing package"),
        ("", "Next: `python -m harness doctor --smoke`"),
        ("device_memory", "this shape does not fit here: trusted rank it broke; an input and an output take 3.0 GiB"),
    ],
)
@pytest.mark.parametrize("message", ["it broke", "it broke: No module named 'out of memory'"])
def test_what_is_advised_after_a_judges_failure_hangs_on_its_reason(
    reason: wire.Reason, advice: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(HarnessError) as caught:
        decided(raised(reason, message), tmp_path)
    assert advice.replace("it broke", message) in str(caught.value)


def test_one_rank_is_not_told_to_be_fewer(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match=r"Next: smaller shapes \(--suite\) need less memory"):
        decided(raised("memory"), tmp_path, world_size=1)


def test_a_submission_that_lacks_device_memory_is_told_who_else_has_it(tmp_path: Path) -> None:
    lacks = RankFailure("candidate", Raised(rank=0, message="out of memory", traceback=""), "device_memory")
    assert "a judge and the reference are on the same device" in decided(lacks, tmp_path).message


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (torch.OutOfMemoryError("Tried to allocate 1 GiB"), "device_memory"),
        (MemoryError(), "memory"),
        (RuntimeError("CUDA error: out of memory"), "memory"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), "memory"),
        (ModuleNotFoundError("No module named 'einops'"), "module"),
        (ImportError("cannot import name 'x'"), ""),
        (ValueError("3 is too much"), ""),
    ],
)
def test_a_rank_says_what_its_exception_comes_down_to(error: Exception, reason: str) -> None:
    assert program.failed(error).reason == reason


@pytest.mark.parametrize(("code", "reason"), [(-9, "memory"), (-11, ""), (1, "")])
def test_only_a_killed_rank_may_have_been_out_of_memory(code: int, reason: str) -> None:
    rank = Rank("trusted", 0)
    rank.exited(code)
    assert failure.crashed(rank, rank.gone).reason == reason


def test_a_rank_that_was_given_up_before_it_was_killed_is_not_called_out_of_memory() -> None:
    rank = Rank("trusted", 0)
    rank.gone = "sent a file that it can still change"
    rank.exited(-9)
    found = failure.crashed(rank, rank.gone)
    assert (found.reason, found.outcome.message) == ("", "sent a file that it can still change")


def test_the_users_own_files_stand_in_what_a_failure_leaves(tmp_path: Path) -> None:
    own = Module(name="common.heap", file="submissions/common/heap.py", source="")
    submission = submission_of("")
    submission = type(submission)(path="mine.py", name="mine.py", source="", sha256="0" * 64, modules=(own,))
    text = "\n".join(STAGED.format(name) for name in ("submission.py", "common/heap.py", "reference.py"))
    wanted = text
    for name, file in (("submission.py", "mine.py"), ("common/heap.py", own.file), ("reference.py", "reference.py")):
        wanted = wanted.replace(f"/tmp/kernel-eval-a1b2c3/candidate/0/{name}", file)
    outcomes = (
        Raised(rank=0, message="no", traceback=text),
        Crashed(rank=0, message="no", log_tail=text),
        TimedOut(message="no", stacks=(text, "")),
    )
    for outcome in outcomes:
        found: Any = decided(RankFailure("candidate", outcome), tmp_path, submission=submission)
        kept = {"raised": "traceback", "crashed": "log_tail", "timed_out": "stacks"}[found.type]
        assert getattr(found, kept) == ((wanted, "") if kept == "stacks" else wanted)


def test_a_folder_that_somebody_removed_is_told(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="was removed while ranks ran in it"):
        decided(RankFailure("candidate", Raised(rank=0, message="no", traceback="")), tmp_path / "gone")
