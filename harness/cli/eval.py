"""Evaluate a submission. Tests it on every test shape, times it on every benchmark shape in turn with the reference,
and records the result. Stops at the first phase that fails; a failed run is kept in runs/ and never ranked."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from harness.agents.made import result_of
from harness.board import report_json
from harness.board.places import place_of
from harness.cli import options, result_files
from harness.cli.declare import option
from harness.core import accounts
from harness.core.checkout import Checkout
from harness.core.decode import encode
from harness.core.errors import Exit, HarnessError, UsageError, os_error_as
from harness.core.records import Mode, Submission
from harness.core.words import clean_line
from harness.evaluation import beside
from harness.evaluation.recorded import Ran, evaluated
from harness.judging import verdict
from harness.kinds import settings
from harness.kinds.kind import TORCH, Evaluator, Order, Progress, Setting
from harness.kinds.registry import read_submission
from harness.machine import peaks_cache
from harness.process.profilers import TOOLS
from harness.report.console import new_console
from harness.report.evaluation import document_of
from harness.report.progress import Both, ProgressLine, event_log
from harness.report.summary import OnBoard


@dataclass(frozen=True, kw_only=True)
class RunOrder(options.ByEngine, result_files.ForCi, options.Sandboxed, options.OnSetting, options.OfSubmission):
    """What `eval` and `check` have in common: which submission is run, on what, and how the result is shown."""

    cpu_suite: str = "cpu"
    nodes: int = option(
        1,
        "spread the ranks over N machines of one kind, this one and others that run `agent`, or those of a Slurm job "
        "(docs/cluster.md; default: 1)",
    )
    evaluator: Evaluator | None = option(
        None,
        "for a problem folder: our ranks and clocks, or its own eval.py, whose result is taken as it is (default: "
        "ours where the folder has what our ranks need, or else theirs)",
        "--eval",
    )
    seed: int | None = option(None, "with --eval theirs: POPCORN_SEED, the secret (default: task.yml's)")
    data: Path | None = option(
        None,
        "for training: a folder of token files to train on (docs/training.md); such a run is not ranked",
        metavar="DIR",
    )
    target: float | None = option(
        None,
        "with --data: the quality that ends a run (default: what the reference reaches in a fourth of samples)",
        metavar="Q",
    )
    vocabulary: int | None = option(None, "with --data: how many tokens there are (default: as files need)")
    quiet: bool = options.quiet("the last three lines: verdict, speedup, place")
    verbose: bool = option(
        False, "print the clocks, machine, memory, phases, each rank's profile and rank 0's log too", "-v", "--verbose"
    )


@dataclass(frozen=True, kw_only=True)
class EvalOrder(options.Rewarded, options.Recorded, options.Timed, RunOrder):
    """What `eval` was asked to do. `until` is in percent."""

    mode: Mode = option(
        "leaderboard",
        "test: tests only; benchmark: benchmarks only; leaderboard: tests, then benchmarks (the default); profile: "
        "one call of each benchmark under a profiler",
    )
    tool: str = option(
        TORCH,
        "mode profile's profiler: torch.profiler (the default), NVIDIA's ncu or AMD's rocprofv3",
        choices=(TORCH, *TOOLS),
    )
    benchmark: int | None = option(None, "mode profile: this benchmark alone, counted from 0 (default: all)")
    launch_count: int | None = option(
        None, f"--tool ncu: profile the first N kernel launches of a call (default: {TOOLS['ncu'].launch_count})"
    )
    trace: Path | None = option(None, "where mode profile writes its traces (default: runs/<run id>/)", metavar="DIR")
    events: Path | None = option(
        None, "write a line of JSON to FILE when a phase or a case begins, for programs that follow the evaluation"
    )
    remeasure: bool = option(
        False, "measure this machine's peak rates again, which the limit comes from; the best ever seen count"
    )
    launches: int | None = option(
        None,
        "measure in N launches, each of fresh processes: the more, the narrower the interval (docs/statistics.md; "
        f"default: {options.USUAL})",
    )
    leader: bool = option(
        True,
        "do not time it head to head with the best other entry of its board, which follows several launches",
        "--no-leader",
    )
    until: float | None = option(
        None, "go on head to head, at most ten minutes, until the two are in order or differ by less", metavar="PERCENT"
    )
    result: result_files.ResultFile | None = result_files.result_file(
        "result", "write stages, verdict, figures, a hint and a reward to FILE as JSON (docs/agents.md)"
    )


def run(order: EvalOrder, checkout: Checkout) -> Exit:
    if order.tool != TORCH and order.mode != "profile":
        raise UsageError(f"--tool {order.tool}: only --mode profile takes a profiler; add it, or leave --tool out")
    if order.benchmark is not None and order.mode != "profile":
        raise UsageError(f"--benchmark {order.benchmark}: only --mode profile takes it; add it, or leave it out")
    if order.launch_count is not None and order.tool == TORCH:
        count = f"--launch-count {order.launch_count}"
        raise UsageError(f"{count}: only --tool ncu takes it; add --mode profile --tool ncu, or leave it out")
    if order.until is not None and not 0 < order.until < 100:
        raise UsageError(f"--until {order.until:g}: a percentage above 0 and below 100 is needed")
    if order.until is not None and not order.leader:
        raise UsageError(f"--until {order.until:g} asks for what --no-leader leaves out; leave one of them out")
    if order.remeasure:
        peaks_cache.ask_again(checkout.root)
    return evaluate(order, checkout)


def evaluate(order: EvalOrder, checkout: Checkout) -> Exit:
    setting = settings.setting(options.asked(order), checkout)
    traces = _trace_folder(order)
    problem = setting.problem
    submission = read_submission(problem, setting.file, checkout)
    author = order.author or accounts.login()
    asked = Order(setting=setting, submission=submission, mode=order.mode, author=author)
    with _progress(order.quiet, order.events) as progress:
        ran = evaluated(asked, checkout, record=order.record, progress=progress, traces=traces)
    ran, met = _beside(order, ran, setting, submission, checkout)
    report, board, place = ran.report, ran.standing, ran.place
    result_files.tell(
        order,
        document_of(report, OnBoard(board=board, place=place, met=met), order.verbose),
        result=lambda: encode(result_of(report, order.reward, order.lower, board=board)),
        json=lambda: report_json.to_json(report, place) | ({"error": str(ran.unrecorded)} if ran.unrecorded else {}),
    )
    if ran.unrecorded is not None:
        raise ran.unrecorded
    return verdict.exit_code(ran.report)


def _beside(
    order: EvalOrder, ran: Ran, setting: Setting, submission: Submission, checkout: Checkout
) -> tuple[Ran, str]:
    """What was recorded, beside the best other entry of its board, in a line; "" where they do not meet."""
    entry, until = ran.entry, None if order.until is None else order.until / 100
    is_meant = until is not None or (order.leader and setting.launches > 1)
    if not is_meant or entry is None or ran.standing is None:
        return ran, ""
    meeting = beside.opposite(ran.standing, entry, setting, submission, checkout)
    if meeting is None:
        return ran, ""

    @contextlib.contextmanager
    def shown(number: int, one: int, other: int) -> Iterator[Progress]:
        with _progress(order.quiet, None) as progress:
            progress.note(clean_line(f"from launch {number} on beside {meeting.sources[0].name}"))
            yield progress

    try:
        found = beside.met(meeting, ran.standing, shown, checkout, until)
    except HarnessError as error:
        return ran, f"did not meet {meeting.sources[0].name}: {error}"
    return replace(ran, standing=found.board, place=place_of(found.board, entry)), found.text


@contextlib.contextmanager
def _progress(quiet: bool, events: Path | None) -> Iterator[Progress]:
    """The progress on the terminal, and in the file `events` if any. UsageError if that cannot be written."""
    with contextlib.ExitStack() as stack:
        line = stack.enter_context(ProgressLine(new_console(stderr=True), silent=quiet))
        if events is None:
            yield line
            return
        result_files.check_replaceable("--events", events)
        with os_error_as(UsageError, f"--events {events}: cannot be written", "name another file"):
            out = stack.enter_context(open(events, "wb", buffering=0, opener=_without_waiting))
        yield Both(line, event_log(out))


def _without_waiting(path: str, flags: int) -> int:
    """Opens a pipe without waiting for its reader; a reader that does not keep up misses events."""
    return os.open(path, flags | os.O_NONBLOCK, 0o666)


def _trace_folder(order: EvalOrder) -> Path | None:
    """The folder that --trace names, made now rather than found to be impossible when there is something to write."""
    if order.trace is None:
        return None
    if order.mode != "profile":
        raise UsageError(f"--trace {order.trace}: only --mode profile writes traces; add it, or leave --trace out")
    with os_error_as(UsageError, f"--trace {order.trace}: cannot be made", "name another folder"):
        order.trace.mkdir(parents=True, exist_ok=True)
    if not os.access(order.trace, os.W_OK):
        raise UsageError(f"--trace {order.trace}: cannot be written to; name another folder")
    return order.trace
