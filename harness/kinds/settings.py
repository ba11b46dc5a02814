"""What an evaluation is asked for, made definite on this machine: problem, suite, device, ranks, file.

Decides from the options that a verb was given and from what the machine has. Runs nothing.
"""

import argparse
import math
from dataclasses import replace
from pathlib import Path

from harness.core.checkout import ROOT
from harness.core.records import UsageError, Warning
from harness.kinds.kind import Setting
from harness.kinds.registry import find
from harness.machine import host
from harness.problems.problem import OFFICIAL, Problem
from harness.problems.shape_file import find as find_problem
from harness.problems.submission import directives, read_submission

MAX_RANKS = 1024
DEVICES = ("cpu", "cuda", "rocm")


def setting(options: argparse.Namespace, problem: Problem | None = None) -> Setting:
    """What `options` ask for, of `problem` or else of the one that they name; UsageError where this machine or the
    problem cannot give it, BadFileError or BadSubmissionError for a file that does not say what it is for."""
    file: Path | None = getattr(options, "file", None)
    notes: tuple[Warning, ...] = ()
    gpus = host.gpus()
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


def named(options: argparse.Namespace) -> tuple[Problem, Path | None, tuple[Warning, ...]]:
    """Which problem `options` mean, which of its files (None: its default), and what is to be said of that; UsageError
    where there is no such problem, or a file alone does not name one."""
    file: Path | None = getattr(options, "file", None)
    if file is None and options.problem.endswith(".py"):
        file = Path(options.problem)
        problem, notes = _named_by(file)
        return problem, file, notes
    return find(options.problem), file, ()


def _named_by(file: Path) -> tuple[Problem, tuple[Warning, ...]]:
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
    gpus = host.gpus()
    lacking = [name for name in said.gpus if not gpus.has(name)]
    if not lacking:
        return problem, ()
    return problem, (Warning(code="other_gpus", values={"gpus": ", ".join(lacking), "here": gpus.told}),)


def check_seconds(name: str, seconds: float | None) -> None:
    """UsageError for what that option cannot be."""
    if seconds is not None and not 0 < seconds < math.inf:
        raise UsageError(f"{name} {seconds}: a number of seconds above 0 is needed")
