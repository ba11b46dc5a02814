"""Who is to blame for a rank's failure, and what is said of it: by process and by control, never by a message."""

import errno
import importlib
import os
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import submission_of

from harness.core.checkout import ROOT
from harness.core.errors import HarnessError, UsageError
from harness.core.records import Case, Crashed, Held, Module, Raised, TimedOut
from harness.kinds.benchmarks import rank_judging
from harness.kinds.gpu_only import GpuOnlyError
from harness.kinds.kind import OpponentFailed
from harness.kinds.op import failures as op_failures
from harness.kinds.op.control import Guarded
from harness.kinds.op.groups import Deadline
from harness.ranks import failure, program, wire
from harness.ranks.failure import RankFailure
from harness.ranks.launch import advice_on
from harness.ranks.rank import Rank

STAGED = 'File "/tmp/kernel-eval-a1b2c3/candidate/0/{}", line 3, in custom_kernel'


def problem(advice: str = "") -> Any:
    return SimpleNamespace(
        name="a problem",
        advice=lambda *_: advice,
        root=Path("/nowhere"),
        submissions_folder=ROOT / "submissions/a2a",
        suites=("official", "quick"),
        told_file=lambda name: "1_mine.py" if name == "problem_file.py" else name,
    )


def plan(**changes: Any) -> Any:
    submission = submission_of("")
    known = {"problem": problem(), "submission": submission, "opponent": None, "device": "cpu", "cuda_is_cpu": False}
    return SimpleNamespace(
        **known | {"world_size": 8, "is_control": False, "suite": SimpleNamespace(name="cpu")} | changes
    )


class Control:
    """A control run that fails for these reasons, by opponent; it passes where there is none."""

    def __init__(self, *why: str) -> None:
        self.why, self.opponents = list(why), []  # type: ignore[var-annotated]

    def __call__(self, opponent: Any) -> str:
        self.opponents.append(opponent)
        return self.why.pop(0) if self.why else ""


def decided(
    found: RankFailure,
    may_be_its: bool = False,
    control: Any = None,
    has_timed: bool = False,
    breaks: str = "broke its judge",
    **changes: Any,
) -> Any:
    asked = control or Control("never run"), lambda: breaks
    return op_failures.decided(found, plan(**changes), "m 64", 3 << 30, may_be_its, has_timed, *asked)


def raised(reason: wire.Reason, message: str = "it broke", role: wire.Role = "trusted") -> RankFailure:
    return RankFailure(role, Raised(rank=1, message=message, traceback="Traceback ..."), reason)


@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        ("memory", "Next: fewer ranks"),
        ("module", "Next: install the missing package"),
        ("tasks", "Next: fewer ranks (--ranks) or a higher limit of processes"),
        ("", "Next: correct the problem's files, or see with `python -m harness doctor --smoke`"),
        ("device_memory", "An input and an output take 3.0 GiB"),
    ],
)
@pytest.mark.parametrize("message", ["it broke", "it broke: No module named 'out of memory'"])
@pytest.mark.parametrize("role", ["trusted", "baseline"])
def test_what_fails_before_the_submission_can_have_reached_it_is_refused_in_a_line(
    reason: wire.Reason, advice: str, message: str, role: wire.Role
) -> None:
    """The reason first. What is advised hangs on the code that the rank sent, never on the message."""
    control = Control()
    with pytest.raises(UsageError) as caught:
        decided(raised(reason, message, role), control=control)
    said = str(caught.value)
    assert said.startswith(f"{message} (")
    assert advice in said
    assert "a problem does not run here, at m 64" in said
    assert "\n" not in said
    assert not control.opponents


@pytest.mark.parametrize("role", ["trusted", "baseline"])
def test_what_the_reference_passes_in_its_place_holds_the_submission(role: wire.Role) -> None:
    found = decided(raised("", role=role), may_be_its=True, control=Control())
    assert isinstance(found, Held)
    assert found.check == "broke its judge"
    assert "it broke; with the reference as the submission the same step passes" in found.evidence


def test_what_the_reference_fails_in_its_place_is_refused_for_that_reason() -> None:
    with pytest.raises(UsageError, match=r"^no FP4 \(with the reference as the submission, too\)$"):
        decided(raised(""), may_be_its=True, control=Control("no FP4"))


def test_a_judge_that_is_not_done_in_time_times_the_submission_out_where_the_reference_is() -> None:
    late = RankFailure("trusted", TimedOut(message="trusted rank 0 timed out", stacks=("", "")))
    assert decided(late, may_be_its=True, control=Control()) == late.outcome
    with pytest.raises(UsageError):
        decided(late, may_be_its=True, control=Control("trusted rank 0 timed out"))


@pytest.mark.parametrize("left_s", [-0.5, 4.0])
def test_judges_that_used_up_their_own_time_are_no_fault_of_the_submissions(left_s: float) -> None:
    """Those that are late while it is called may be late by what it does."""
    late = RankFailure("trusted", TimedOut(message="trusted rank 0 timed out", stacks=()))
    case = Case(kind="test", params={"m": 64}, seed=1, world_size=2)
    phase = Deadline(60.0, left_s)
    session: Any = SimpleNamespace(
        calls=SimpleNamespace(made=[], at=0, phase=phase, has_read=True),
        has_timed=False,
        plan=plan(phases=[SimpleNamespace(cases=[case])]),
        _control=Control(),
        _breaks=Control(),
    )
    if left_s > 0:
        assert Guarded._decided(session, late) == late.outcome
        return
    with pytest.raises(HarnessError, match=r"^trusted rank 0 timed out at test m 64.*not to blame") as caught:
        Guarded._decided(session, late)
    assert not isinstance(caught.value, UsageError)
    assert not session._control.opponents, "no step is repeated that would take as long"


def test_an_opponent_that_broke_the_judge_is_named() -> None:
    """The control run passes only without it."""
    opponent, control = submission_of("B"), Control("so it is")
    with pytest.raises(OpponentFailed, match="broke"):
        decided(raised(""), may_be_its=True, control=control, opponent=opponent)
    assert control.opponents == [opponent, None]
    assert isinstance(decided(raised(""), may_be_its=True, control=Control(), opponent=opponent), Held)
    with pytest.raises(OpponentFailed):
        decided(raised("", role="baseline"), opponent=opponent)


def test_one_rank_is_not_told_to_be_fewer() -> None:
    with pytest.raises(UsageError, match=r"Next: smaller shapes \(--suite quick\) need less memory"):
        decided(raised("memory"), world_size=1)


def test_a_submission_that_lacks_device_memory_is_told_who_else_has_it() -> None:
    lacks = RankFailure("candidate", Raised(rank=0, message="out of memory", traceback=""), "device_memory")
    assert "a judge and the reference are on the same device" in decided(lacks).message


def test_a_submission_that_lacks_a_module_is_told_which_files_ranks_have() -> None:
    def told(module: str) -> str:
        outcome = Raised(rank=0, message=f"No module named '{module}'", traceback="")
        return decided(RankFailure("candidate", outcome, "module")).message

    assert told("elsewhere").endswith("and files beside a submission below submissions/")
    merge = "`make merge PROBLEM=a problem OUT=my.py` makes one file"
    assert merge in told("common.heap")  # which the shipped one imports: its file is a copy of that


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
    assert program.failed(error, "/nowhere").reason == reason


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


def test_the_users_own_files_stand_in_what_a_failure_leaves() -> None:
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
        found: Any = decided(RankFailure("candidate", outcome), submission=submission)
        kept = {"raised": "traceback", "crashed": "log_tail", "timed_out": "stacks"}[found.type]
        assert getattr(found, kept) == ((wanted, "") if kept == "stacks" else wanted)


def test_a_submission_that_is_late_where_the_cpu_stands_in_for_a_gpu_is_told_so() -> None:
    late = RankFailure("candidate", TimedOut(message="rank 0 timed out", stacks=("",)))
    assert decided(late, problem=problem("evaluate it elsewhere")).message == "rank 0 timed out"
    told = "rank 0 timed out; this machine may be the reason: evaluate it elsewhere"
    assert decided(late, problem=problem("evaluate it elsewhere"), cuda_is_cpu=True).message == told


# ---- what only a GPU runs ------------------------------------------------------------------------------------------

DRIVER = 'Traceback (most recent call last):\n  File "/a/submission.py", line 3, in custom_kernel\n' + (
    '  File "/lib/site-packages/triton/runtime/driver.py", line 8, in _create_driver\nRuntimeError: whatever\n'
)
TOOLKIT = 'Traceback (most recent call last):\n  File "/a/submission.py", line 3, in <module>\n' + (
    '  File "/lib/site-packages/torch/utils/cpp_extension.py", line 9, in _join_cuda_home\nOSError: whatever\n'
)
JIT = "from triton import language as tl\n"
INLINE = "import torch.utils.cpp_extension as e\ne.load_inline('a', '', cuda_sources='')\n"


def gpu_only(source: str, traceback: str, device: str = "cpu", has_timed: bool = False) -> Any:
    failure = RankFailure("candidate", Raised(rank=0, message="whatever", traceback=traceback))
    return decided(failure, submission=submission_of(source), device=device, has_timed=has_timed)


@pytest.mark.parametrize(
    ("source", "traceback", "what", "advice"),
    [
        (JIT, DRIVER, "Triton kernels", "TRITON_INTERPRET=1"),
        (INLINE, TOOLKIT, "CUDA code", "a machine that has a GPU"),
        (
            INLINE.replace("cuda_sources=''", "'__global__ void k() {}'"),
            TOOLKIT,
            "CUDA code",
            "a machine that has a GPU",
        ),
        (INLINE.replace("'', cuda_sources=''", "['k.cu']"), TOOLKIT, "CUDA code", "a machine that has a GPU"),
    ],
)
def test_code_that_only_a_gpu_runs_is_refused_on_cpu_cores(source: str, traceback: str, what: str, advice: str) -> None:
    for text in (
        traceback,
        f'{traceback}\nThe above ...\nTraceback (most recent call last):\n  File "pool.py", line 1, in x',
    ):
        with pytest.raises(UsageError, match=f"needs a GPU for its {what}.*: whatever.*Next: .*{advice}") as caught:
            gpu_only(source, text)
        assert "\n" not in str(caught.value)
        assert isinstance(gpu_only(source, text, has_timed=True), Raised), "it ran here, and chose its moment"


@pytest.mark.parametrize(("set_to", "may_run"), [("", True), ("0", True), ("1", False)])
def test_a_refusal_says_whether_tritons_interpreter_would_help(
    set_to: str, may_run: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", set_to)
    for source, traceback, expected in ((JIT, DRIVER, may_run), (INLINE, TOOLKIT, False)):
        with pytest.raises(GpuOnlyError) as caught:
            gpu_only(source, traceback)
        assert caught.value.may_run == expected


@pytest.mark.parametrize(
    ("source", "traceback", "device"),
    [
        (JIT, DRIVER, "cuda"),
        ("import torch\n", DRIVER, "cpu"),
        ("# import triton\n", DRIVER, "cpu"),
        ("def (", DRIVER, "cpu"),
        (JIT, TOOLKIT, "cpu"),
        (INLINE, TOOLKIT.replace("_join_cuda_home", "_run_ninja_build"), "cpu"),
        (INLINE.replace("cuda_sources", "extra"), TOOLKIT, "cpu"),
        (JIT, DRIVER.replace("/lib/site-packages/triton/runtime/driver.py", "/a/submission.py"), "cpu"),
        (JIT, DRIVER.replace("RuntimeError", '  File "/a/submission.py", line 9, in late\nRuntimeError'), "cpu"),
    ],
)
def test_all_else_that_a_submission_raises_is_its_own(source: str, traceback: str, device: str) -> None:
    assert isinstance(gpu_only(source, traceback, device), Raised)


def test_a_rank_that_can_be_sent_no_file_fails_as_one_that_is_gone() -> None:
    """A submission may have as many files on their way as its user may: whose failure it is, a control run shows."""
    rank = Rank("trusted", 0)
    with rank.sending():
        raise OSError(errno.ETOOMANYREFS, "Too many references")
    assert rank.gone == "could not be sent a file (Too many references)"
    with pytest.raises(OSError, match="I/O"), rank.sending():
        raise OSError(errno.EIO, "I/O")
    assert not rank.sock.getblocking()
    rank.close()


# ---- two files that meet ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("late", ["candidate", "baseline", "trusted"])
@pytest.mark.parametrize(("waited_s", "named"), [((4.3, 1.2), "candidate"), ((1.2, 4.3), "baseline")])
def test_time_runs_out_by_whom_was_waited_for_longer(late: wire.Role, waited_s: Any, named: str) -> None:
    """Whoever has the last turn of a phase may have taken none of it."""
    found = RankFailure(late, TimedOut(message="timed out", stacks=("a stack",)))
    blamed = op_failures.by_the_slowest(found, dict(zip(("candidate", "baseline"), waited_s, strict=True)))
    assert blamed.role == named
    assert (blamed is found) == (late == named)
    assert isinstance(blamed.outcome, TimedOut)
    assert late == named or "it took 4.3 s of the phase, and the other side 1.2 s" in blamed.outcome.message


def test_time_that_runs_out_before_either_was_waited_for_is_neithers() -> None:
    found = RankFailure("trusted", TimedOut(message="timed out", stacks=()))
    assert op_failures.by_the_slowest(found, {"candidate": 0.0, "baseline": 0.0}) is found


@pytest.mark.parametrize("reason", ["memory", "files"])
def test_an_opponent_blames_nobody_by_saying_that_it_lacks_something(reason: wire.Reason) -> None:
    """It may say so beside a rival alone, whom it knows by how fast it is, and pass beside the reference."""
    for found, may_be_its in ((raised(reason, role="baseline"), False), (raised(""), True)):
        with pytest.raises(HarnessError, match="nobody can tell which is to blame") as caught:
            decided(found, may_be_its=may_be_its, control=Control(), breaks="", opponent=submission_of("B"))
        assert not isinstance(caught.value, UsageError)


def test_a_rank_that_can_send_no_file_says_so_in_a_word() -> None:
    assert program.reason_of(OSError(errno.ETOOMANYREFS, "Too many references")) == "files"


def test_too_many_processes_are_told_from_other_failures() -> None:
    """As os.fork says it where the limit is reached, and torch where it cannot start a thread."""
    for error in (OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)), RuntimeError("Resource temporarily unavailable")):
        assert program.reason_of(error) == "tasks"
        assert "`ulimit -u`" in advice_on(f"Traceback ...\n{type(error).__name__}: {error}\n")
    assert "import torch" in advice_on("ModuleNotFoundError: No module named 'torch'")


def test_what_ends_for_want_of_memory_is_laid_to_the_side_without_which_it_passes() -> None:
    killed = raised("memory", "was killed by SIGKILL", "baseline")
    opponent = submission_of("")
    control = Control()  # passes with the reference in the submission's place
    assert isinstance(decided(killed, control=control, opponent=opponent), Crashed)
    assert control.opponents == [opponent]
    with pytest.raises(OpponentFailed):
        decided(killed, control=Control("the opponent fails"), opponent=opponent)


@pytest.mark.parametrize(("reason", "advice"), [("memory", "smaller shapes"), ("files", "on their way")])
def test_what_the_reference_lacks_too_is_told_with_what_helps(reason: wire.Reason, advice: str) -> None:
    lacking = raised(reason, role="candidate")
    case = Case(kind="test", params={"m": 64}, seed=1, world_size=2)
    session: Any = SimpleNamespace(
        calls=SimpleNamespace(made=[], at=0, phase=Deadline(60.0, 60.0), has_read=False),
        has_run=True,
        has_timed=False,
        plan=plan(phases=[SimpleNamespace(cases=[case])], nodes=1),
        _control=Control("it lacks that too"),
    )
    session._check_shared = partial(Guarded._check_shared, session)
    with pytest.raises(UsageError, match=f"^it lacks that too .* Next: .*{advice}"):
        Guarded._decided(session, lacking)


NO_GROUP = "Default process group has not been initialized, please make sure to call init_process_group."


@pytest.mark.parametrize("role", ["candidate", "baseline"])
@pytest.mark.parametrize(
    ("message", "hint"),
    [
        (
            "PermissionError: [Errno 13] Permission denied: '/x'",
            "; in the sandbox (docs/trust.md) a submission may read",
        ),
        ("URLError: <urlopen error [Errno -3] Temporary failure in name resolution>", "; ranks have no network"),
        (f"ValueError: {NO_GROUP}", "; the harness opens the process group after it has imported the file"),
        ("OSError: no", ""),
    ],
)
def test_what_ranks_may_not_do_is_explained_to_the_submissions_author(role: str, message: str, hint: str) -> None:
    """A read that is refused reads like a write that is: what is said holds for both."""
    rank: Any = SimpleNamespace(rank=0, role=role)
    said = failure.raised([(rank, wire.Failed(message=message, traceback=""))]).outcome.message
    hint = hint if role == "candidate" else ""
    assert said.startswith(message + hint)
    assert bool(hint) == (said != message)


OWN = """
import importlib
from harness.kinds.benchmarks import rank_judging

def value():
    raise KeyError("M")

def custom_kernel(data):
    try:
        rank_judging.mapped([data], lambda one: value())
    except KeyError as error:
        error.__cause__ = OSError("a library's")
        raise ValueError(f"in {__file__}") from error
"""


def test_a_traceback_begins_with_the_authors_own_frames_and_has_those_of_the_cause(tmp_path: Path) -> None:
    """However the harness and torch came to call them."""
    (tmp_path / "submission.py").write_text(OWN)
    module: Any = SimpleNamespace(__file__=str(tmp_path / "submission.py"))
    exec(compile(OWN, module.__file__, "exec"), vars(module))
    adapter: dict[str, Any] = {}
    exec(compile("def call(data): return kernel(data)", str(tmp_path / "adapter.py"), "exec"), adapter)
    adapter["kernel"] = module.custom_kernel
    called = rank_judging.called(lambda: SimpleNamespace(kernel=adapter["call"]), ["kernel"])[0]
    with pytest.raises(ValueError, match="in ") as caught:
        called(torch.ones(1))
    found = program.failed(caught.value, str(tmp_path))
    assert found.message == "ValueError: in submission.py", "alike on all ranks, whose folders differ"
    assert re.findall(r"in (\w+)\n", found.traceback) == ["custom_kernel", "value", "custom_kernel"]
    assert found.traceback.count("direct cause") == 1
    assert "harness" not in found.traceback


def test_what_the_harness_itself_refuses_keeps_its_frames_but_for_those_of_ranks() -> None:
    with pytest.raises(TypeError) as caught:
        rank_judging.tensors_of("done", "the result")
    assert "in tensors_of" in program.failed(caught.value, "/nowhere").traceback


@pytest.mark.parametrize(
    ("device", "cuda_is_cpu"),
    [("cpu", False), ("cpu", True), ("cuda", False)],
)
@pytest.mark.parametrize(
    ("traceback", "may_be"),
    [
        ("AttributeError: the submission defines no custom_kernel(data)", False),
        (f"{STAGED.format('submission.py')}\n    CFG[127]\nKeyError: 127", False),
        (f"{STAGED.format('submission.py')}\n    x.cpu() + y\nRuntimeError: no such shapes", False),
        ('  File "torch/cuda/__init__.py", line 3, in f\nAssertionError: Torch not compiled with it', True),
        ('  File "torch/c10d.py", line 3, in f\nRuntimeError: Distributed package has no NCCL built in', True),
        (f'{STAGED.format("submission.py")}\n    a @ b\nRuntimeError: "addmm_impl_cpu_" not implemented', True),
    ],
)
def test_the_machine_is_named_only_where_it_may_be_the_reason(
    traceback: str, may_be: bool, device: str, cuda_is_cpu: bool
) -> None:
    failed = RankFailure("candidate", Raised(rank=0, message="no", traceback=traceback))
    said = decided(failed, problem=problem("evaluate it elsewhere"), device=device, cuda_is_cpu=cuda_is_cpu).message
    assert said == ("no; this machine may be the reason: evaluate it elsewhere" if may_be else "no")


def test_a_submission_that_asks_for_a_gpu_on_cpu_cores_is_told_so() -> None:
    wired = Raised(rank=0, message="no", traceback="AssertionError: Torch not compiled with CUDA enabled")
    assert "take the device from the inputs" in decided(RankFailure("candidate", wired)).message
    assert decided(RankFailure("candidate", wired), device="cuda").message == "no"


def test_an_exception_that_cannot_be_told_is_an_exception_like_others() -> None:
    class Untold(Exception):
        def __str__(self) -> str:
            raise ValueError

    found = program.failed(Untold(), "/nowhere")
    assert found.reason == ""
    assert "Untold" in found.message
    assert program.reason_of(ValueError(f"{wire.WEAK}: as before")) == "weak"
    assert program.reason_of(RuntimeError("Cannot allocate memory")) == "memory"


@pytest.mark.parametrize("role", ["trusted", "candidate"])
def test_a_problem_that_is_a_file_is_told_by_that_files_name(role: wire.Role) -> None:
    """Its copy, which ranks import, has another name and is gone."""
    staged = f"/tmp/kernel-eval-a1b2c3/{role}/0/problem_file.py"
    outcome = Raised(rank=0, message="it broke", traceback=f'  File "{staged}", line 3, in solution\n')
    found = RankFailure(role, outcome)
    if role == "candidate":
        assert decided(found).traceback == '  File "1_mine.py", line 3, in solution\n'
        return
    with pytest.raises(UsageError, match=re.escape("it broke (1_mine.py:3, a judge")):
        decided(found)


def test_a_solutions_file_is_told_by_its_name_among_the_solutions() -> None:
    """Lines of the JSON file are others."""
    submission = replace(submission_of(""), name="mine.json", main="main.py")
    found = Raised(rank=0, message="no", traceback=STAGED.format("submission.py"))
    shown = decided(RankFailure("candidate", found), submission=submission).traceback
    assert shown == 'File "main.py", line 3, in custom_kernel'


def test_stacks_end_where_the_authors_begin() -> None:
    """In a log too, of which only the end is kept: what the author printed must not be lost to the harness's frames."""
    frame = '  File "{}", line {} in {}\n'.format
    ours = frame(failure.__file__, 9, "call") + frame("<frozen runpy>", 88, "_run") + frame("<string>", 1, "<module>")
    head, mine = "Current thread 0x00007f01 (most recent call first):\n", frame("/home/me/harness/my.py", 8, "turn")
    log = f"mine\nFatal Python error: Aborted\n\n{head}{mine}{ours}\nExtension modules: torch._C\n"
    assert failure.without_ours(log) == log.replace(ours, "")
    library = frame("/x/torch/cuda/__init__.py", 8, "synchronize")
    assert failure.without_ours(head + library + ours) == head + library
    imports = frame("<frozen importlib._bootstrap>", 1, "_find") + frame(importlib.__file__, 1, "import_module")
    assert failure.without_ours(head + mine + imports + ours) == head + mine
    assert failure.without_ours(head + ours) == f"{head}  ({failure.OUTSIDE})\n"
    assert failure.without_ours(ours) == ours  # no stack: a submission may print what it likes
