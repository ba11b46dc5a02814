"""What an evaluation is asked for, made definite on this machine: problem, suite, device, ranks, file.

Decides from a record of what was asked for and from what the machine has. Runs nothing.
"""

import contextlib
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from harness.core.checkout import Checkout
from harness.core.records import BadSubmissionError, Submission, UsageError
from harness.gpumode.folder import TaskProblem
from harness.kinds.registry import find
from harness.machine import host
from harness.problems.problem import OFFICIAL, Problem, Suite
from harness.problems.shape_file import find as find_problem
from harness.problems.submission import directives, read_submission

CUDA_IS_CPU = (
    'DEVICE=cpu: wherever the problem or the submission names "cuda", the CPU stands in for it; these times say '
    "nothing of GPUs"
)
Evaluator = Literal["ours", "theirs"]
MAX_RANKS = 1024
DEVICES = ("cpu", "cuda", "rocm")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What an evaluation was asked for. `problem` is a name, a folder, or a submission that names its problem. None
    leaves a choice to the problem and the machine; `cpu_suite` is what runs on CPU cores where no suite is named."""

    problem: str
    file: Path | None = None
    suite: str | None = None
    ranks: int | None = None
    device: str | None = None
    timeout_s: float | None = None
    seconds: float | None = None
    evaluator: Evaluator = "ours"
    seed: int | None = None
    confined: bool = True
    cpu_suite: str = "cpu"


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


def setting(asked: Asked, checkout: Checkout, problem: Problem | None = None) -> Setting:
    """What was asked for, of `problem` or else of the one that `asked` names; UsageError where this machine or the
    problem cannot give it, BadFileError or BadSubmissionError for a file that does not say what it is for."""
    file = asked.file
    notes: tuple[str, ...] = ()
    gpus = host.gpus()
    if problem is None:
        problem, file, notes = named(asked, checkout)
    device = asked.device or gpus.device
    if device != "cpu" and device != gpus.device:
        raise UsageError(f"--device {device}: this machine has {gpus.told}; --device {gpus.device} runs here")
    cpu_suite = asked.cpu_suite if len(problem.suites) > 1 else OFFICIAL  # a problem folder has but one
    suite = problem.suite(asked.suite or (cpu_suite if device == "cpu" else OFFICIAL))
    if asked.timeout_s is not None:
        check_seconds("--timeout", asked.timeout_s)
        suite = replace(
            suite,
            test_timeout_s=asked.timeout_s,
            benchmark_timeout_s=asked.timeout_s,
            ranked_timeout_s=asked.timeout_s,
        )
    if asked.seconds is not None:
        check_seconds("--seconds", asked.seconds)
        suite = replace(suite, benchmark_s=asked.seconds)
    world_size = suite.benchmarks[0].world_size if device == "cpu" else min(gpus.count, suite.benchmarks[0].world_size)
    if asked.ranks is not None:
        most = MAX_RANKS if device == "cpu" else gpus.count
        if not 1 <= asked.ranks <= most:
            raise UsageError(f"--ranks {asked.ranks}: 1 to {most} ranks can be asked for on {device}")
        world_size = asked.ranks
    suite = problem.with_world_size(suite, world_size)
    return Setting(
        problem=problem,
        suite=suite,
        device=device,
        world_size=world_size,
        file=file,
        is_cpu_asked=asked.device == "cpu",
        evaluator=asked.evaluator,
        seed=asked.seed,
        confined=asked.confined,
        notes=notes,
    )


def named(asked: Asked, checkout: Checkout) -> tuple[Problem, Path | None, tuple[str, ...]]:
    """The problem that is meant, its file (None: its default), and notes for the report; UsageError where there is no
    such problem, or a file alone does not name one."""
    if asked.file is None and asked.problem.endswith(".py"):
        file = Path(asked.problem)
        problem, notes = _named_by(file, checkout)
        return problem, file, notes
    return find(asked.problem, checkout), asked.file, ()


def _named_by(file: Path, checkout: Checkout) -> tuple[Problem, tuple[str, ...]]:
    """The problem that a submission's first lines name, and what is to be said of the GPUs that they name."""
    submission = read_submission(file, checkout.root)
    said = directives(submission.source, submission.name)
    if said.leaderboard is None:
        raise UsageError(
            f"{submission.name}: for which problem? Name it (`python -m harness eval a2a {file}`), or begin the file "
            "with `#!POPCORN leaderboard amd-all2all`"
        )
    try:
        # No folder: whose code is trusted is not the submission's to say.
        problem = find_problem(said.leaderboard, checkout)
    except UsageError as error:
        raise UsageError(f"{submission.name}: its `#!POPCORN leaderboard` line: {error}") from None
    gpus = host.gpus()
    lacking = [name for name in said.gpus if not gpus.has(name)]
    if not lacking:
        return problem, ()
    return problem, (f"the submission is for {', '.join(lacking)}; this machine has {gpus.told}",)


def check_seconds(name: str, seconds: float | None) -> None:
    """UsageError for what that option cannot be."""
    if seconds is not None and not 0 < seconds < math.inf:
        raise UsageError(f"{name} {seconds}: a number of seconds above 0 is needed")
