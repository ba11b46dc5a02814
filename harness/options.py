"""The options that verbs which evaluate share, and what they ask for: which problem, shapes, device and rank count.

Knows the machine only as far as it decides what can be asked for. Runs nothing.
"""

import argparse
import contextlib
import errno
import json
import math
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from harness import machine
from harness.problem import OFFICIAL, ROOT, Problem, Suite
from harness.problem import find as find_problem
from harness.records import BadSubmissionError, Submission, UsageError
from harness.submission import directives, read_submission
from harness.taskfolder import TaskProblem, find

CUDA_IS_CPU = (
    'DEVICE=cpu: wherever the problem or the submission names "cuda", the CPU stands in for it; these times say '
    "nothing of GPUs"
)
Evaluator = Literal["ours", "theirs"]
MAX_RANKS = 1024
DEVICES = ("cpu", "cuda", "rocm")
STDOUT = "-"  # as a file's name
JSON_HELP = "write the full result there as one JSON object; -: to standard output, with nothing else there"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is evaluated on what. `suite` has the world size that will run."""

    problem: Problem
    suite: Suite
    device: str
    world_size: int
    file: Path | None = None  # the submission that was named
    is_cpu_asked: bool = False  # --device cpu, which is more than to have no GPU
    evaluator: Evaluator = "ours"
    seed: int | None = None  # of the folder's own evaluator
    confined: bool = True  # by the sandbox
    notes: tuple[str, ...] = ()  # warnings for the report


def conditions(setting: Setting, submission: Submission) -> tuple[bool, tuple[str, ...]]:
    """Whether the CPU stands in for "cuda" where this submission is evaluated by our ranks, or by a folder's own
    evaluator, and what the report has to say of it all."""
    problem, notes = setting.problem, setting.notes
    if not isinstance(problem, TaskProblem):  # whose names at GPU MODE are not in their folders
        with contextlib.suppress(BadSubmissionError):  # lines that nobody follows hurt nobody
            named = directives(submission.source, submission.name).leaderboard
            if named is not None and not problem.is_named(named):
                notes += (f"its `#!POPCORN leaderboard` line names {named}; it was evaluated as {problem.name}",)
        return False, notes
    if not setting.is_cpu_asked:
        return False, notes
    is_cuda = problem.mentions("cuda", submission.source)
    return is_cuda, (*notes, CUDA_IS_CPU) if is_cuda else notes


def add_file(parser: argparse.ArgumentParser) -> None:
    """The problem and one of its submissions."""
    parser.add_argument(
        "problem",
        help="its name (see `problems`), GPU MODE's name for it, or a folder with GPU MODE's task.yml; left out where "
        "the file's `#!POPCORN leaderboard` line names it",
    )
    parser.add_argument("file", nargs="?", type=Path, help="default: submissions/<problem>/submission.py; the folder's")


def add_evaluator(parser: argparse.ArgumentParser) -> None:
    """Whose evaluator runs a problem folder."""
    parser.add_argument(
        "--eval",
        dest="evaluator",
        default="ours",
        choices=get_args(Evaluator),
        help="of a problem folder: our ranks and clocks, or its own eval.py, whose word is taken (default: ours)",
    )
    parser.add_argument(
        "--seed", type=int, metavar="N", help="with --eval theirs: POPCORN_SEED, the secret (default: task.yml's)"
    )


def add_setting(parser: argparse.ArgumentParser, cpu_suite: str) -> None:
    """Shapes, ranks and device; `cpu_suite` is what runs on CPU cores where no suite is named."""
    parser.add_argument(
        "--ranks",
        type=int,
        metavar="N",
        help="how many ranks (default: a rank a GPU; on CPU cores as the shapes say, 8)",
    )
    parser.add_argument(
        "--suite", metavar="S", help=f"which shapes (default: official on GPUs, {cpu_suite} on CPU cores)"
    )
    parser.set_defaults(cpu_suite=cpu_suite)
    parser.add_argument("--device", choices=DEVICES, help="what ranks run on (default: GPUs where there are any)")
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="for each phase (default: as the shapes say)")
    parser.add_argument("--json", metavar="FILE", help=JSON_HELP)


def add_unconfined(parser: argparse.ArgumentParser) -> None:
    """For machines on whose drivers the sandbox does harm."""
    parser.add_argument(
        "--unconfined",
        action="store_true",
        help="leave the sandbox out (docs/trust.md): the submission may do what you may; the report warns of it",
    )


def add_seconds(parser: argparse.ArgumentParser) -> None:
    """How long to measure."""
    parser.add_argument(
        "--seconds", type=float, help="about how long each benchmark is measured (default: its suite's)"
    )


def add_recording(parser: argparse.ArgumentParser) -> None:
    """Whether and under whose name what passes is recorded."""
    parser.add_argument(
        "--no-record",
        action="store_true",
        help="leave leaderboard.yaml and runs/ as they are, but for a profile's traces",
    )
    parser.add_argument("--author", metavar="NAME", help="whom to record it under (default: your login)")


def add_quiet(parser: argparse.ArgumentParser, what: str) -> None:
    """For scripts that read lines: `what` is printed, and nothing else but errors."""
    parser.add_argument("-q", "--quiet", action="store_true", help=f"print only {what}; no progress")


def setting(options: argparse.Namespace, problem: Problem | None = None) -> Setting:
    """What `options` ask for, of `problem` or else of the one that they name; UsageError where this machine or the
    problem cannot give it, BadFileError or BadSubmissionError for a file that does not say what it is for."""
    file: Path | None = getattr(options, "file", None)
    notes: tuple[str, ...] = ()
    gpus = machine.gpus()
    if problem is None:
        problem, file, notes = named(options)
    device = options.device or gpus.device
    if device != "cpu" and device != gpus.device:
        raise UsageError(f"--device {device}: this machine has {gpus.told}; --device {gpus.device} runs here")
    cpu_suite = options.cpu_suite if len(problem.suites) > 1 else OFFICIAL  # a problem folder has but one
    suite = problem.suite(options.suite or (cpu_suite if device == "cpu" else OFFICIAL))
    if options.timeout is not None:
        check_seconds("--timeout", options.timeout)
        suite = replace(
            suite,
            test_timeout_s=options.timeout,
            benchmark_timeout_s=options.timeout,
            ranked_timeout_s=options.timeout,
        )
    if getattr(options, "seconds", None) is not None:
        check_seconds("--seconds", options.seconds)
        suite = replace(suite, benchmark_s=options.seconds)
    world_size = suite.benchmarks[0].world_size if device == "cpu" else min(gpus.count, suite.benchmarks[0].world_size)
    if options.ranks is not None:
        most = MAX_RANKS if device == "cpu" else gpus.count
        if not 1 <= options.ranks <= most:
            raise UsageError(f"--ranks {options.ranks}: 1 to {most} ranks can be asked for on {device}")
        world_size = options.ranks
    suite = problem.with_world_size(suite, world_size)
    return Setting(
        problem=problem,
        suite=suite,
        device=device,
        world_size=world_size,
        file=file,
        is_cpu_asked=options.device == "cpu",
        evaluator=getattr(options, "evaluator", "ours"),
        seed=getattr(options, "seed", None),
        confined=not getattr(options, "unconfined", False),
        notes=notes,
    )


def named(options: argparse.Namespace) -> tuple[Problem, Path | None, tuple[str, ...]]:
    """Which problem `options` mean, which of its files (None: its default), and what is to be said of that; UsageError
    where there is no such problem, or a file alone does not name one."""
    file: Path | None = getattr(options, "file", None)
    if file is None and options.problem.endswith(".py"):
        file = Path(options.problem)
        problem, notes = _named_by(file)
        return problem, file, notes
    return find(options.problem), file, ()


def _named_by(file: Path) -> tuple[Problem, tuple[str, ...]]:
    """The problem that a submission's first lines name, and what is to be said of the GPUs that they name."""
    submission = read_submission(file, ROOT)
    said = directives(submission.source, submission.name)
    if said.leaderboard is None:
        raise UsageError(
            f"{submission.name}: for which problem? Name it (`python -m harness eval a2a {file}`), or begin the file "
            "with `#!POPCORN leaderboard amd-all2all`"
        )
    try:
        # No folder: whose code is trusted is not the submission's to say.
        problem = find_problem(said.leaderboard)
    except UsageError as error:
        raise UsageError(f"{submission.name}: its `#!POPCORN leaderboard` line: {error}") from None
    gpus = machine.gpus()
    lacking = [name for name in said.gpus if not gpus.has(name)]
    if not lacking:
        return problem, ()
    return problem, (f"the submission is for {', '.join(lacking)}; this machine has {gpus.told}",)


def check_seconds(name: str, seconds: float | None) -> None:
    """UsageError for what that option cannot be."""
    if seconds is not None and not 0 < seconds < math.inf:
        raise UsageError(f"{name} {seconds}: a number of seconds above 0 is needed")


def check_json(options: argparse.Namespace) -> None:
    """UsageError where --json cannot be written, to be known before an evaluation and not after it."""
    if not options.json or options.json == STDOUT:
        return
    path = Path(options.json)
    if path.is_dir():
        raise UsageError(f"--json {path}: it is a folder; name a file in it")
    if path.is_fifo():
        try:
            os.close(_opened(path))
        except OSError as error:
            raise _unwritable(path, error) from None
    elif not os.access(path if path.exists() else path.resolve().parent, os.W_OK):
        what = "it" if path.exists() else "its folder is not there or"
        raise UsageError(f"--json {path}: {what} cannot be written to; make it, or name another")


def write_json(file: str, content: dict[str, Any]) -> None:
    """One JSON object, to standard output where the file is `-`; UsageError where it cannot be written."""
    text = json.dumps(content, indent=2) + "\n"
    if file == STDOUT:
        print(text, end="", flush=True)
        return
    try:
        with open(file, "w", encoding="utf-8", opener=_opened) as out:
            out.write(text)
    except OSError as error:
        raise _unwritable(file, error) from None


def _opened(path: str | Path, flags: int = os.O_WRONLY) -> int:
    """--json's file, open for writing; not waited for where it is a pipe that nobody reads."""
    fd = os.open(path, flags | os.O_NONBLOCK, 0o666)
    os.set_blocking(fd, True)
    return fd


def _unwritable(file: str | Path, error: OSError) -> UsageError:
    why = "nobody reads from this pipe" if error.errno == errno.ENXIO else f"cannot be written: {error.strerror}"
    return UsageError(f"--json {file}: {why}; name another file")
