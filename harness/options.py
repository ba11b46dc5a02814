"""The options that verbs which evaluate share, and what they ask for: which problem, shapes, device and rank count.

Knows the machine only as far as it decides what can be asked for. Runs nothing.
"""

import argparse
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness import machine
from harness.problem import OFFICIAL, Problem, Suite, find
from harness.records import UsageError

MAX_RANKS = 1024
DEVICES = ("cpu", "cuda", "rocm")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is evaluated on what. `suite` has the world size that will run."""

    problem: Problem
    suite: Suite
    device: str
    world_size: int


def add_file(parser: argparse.ArgumentParser) -> None:
    """The problem and one of its submissions."""
    parser.add_argument("problem", help="its name (see `problems`), or GPU MODE's name for it")
    parser.add_argument("file", nargs="?", type=Path, help="default: submissions/<problem>/submission.py")


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
    parser.add_argument("--json", metavar="FILE", help="write the full result there as one JSON object")


def setting(options: argparse.Namespace) -> Setting:
    """What `options` ask for; UsageError where this machine or the problem cannot give it."""
    problem = find(options.problem)
    gpus = machine.gpus()
    device = options.device or gpus.device
    if device != "cpu" and device != gpus.device:
        raise UsageError(f"--device {device}: this machine has {gpus.told}; --device {gpus.device} runs here")
    suite = problem.suite(options.suite or (options.cpu_suite if device == "cpu" else OFFICIAL))
    if options.timeout is not None:
        if not options.timeout > 0:
            raise UsageError(f"--timeout {options.timeout}: seconds above 0 are needed")
        suite = replace(
            suite,
            test_timeout_s=options.timeout,
            benchmark_timeout_s=options.timeout,
            ranked_timeout_s=options.timeout,
        )
    if getattr(options, "seconds", None) is not None:
        if not options.seconds > 0:
            raise UsageError(f"--seconds {options.seconds}: seconds above 0 are needed")
        suite = replace(suite, benchmark_s=options.seconds)
    world_size = suite.benchmarks[0].world_size if device == "cpu" else min(gpus.count, suite.benchmarks[0].world_size)
    if options.ranks is not None:
        most = MAX_RANKS if device == "cpu" else gpus.count
        if not 1 <= options.ranks <= most:
            raise UsageError(f"--ranks {options.ranks}: 1 to {most} ranks can be asked for on {device}")
        world_size = options.ranks
    suite = problem.with_world_size(suite, world_size)
    return Setting(problem=problem, suite=suite, device=device, world_size=world_size)


def check_json(options: argparse.Namespace) -> None:
    """UsageError where --json cannot be written, to be known before an evaluation and not after it."""
    if options.json and not os.access(Path(options.json).resolve().parent, os.W_OK):
        raise UsageError(f"--json {options.json}: its folder is not there or cannot be written to")


def write_json(file: str, content: dict[str, Any]) -> None:
    """One JSON object; UsageError where it cannot be written."""
    text = json.dumps(content, indent=2) + "\n"
    try:
        Path(file).write_text(text)
    except OSError as error:
        raise UsageError(f"--json {file}: cannot be written: {error.strerror}") from None
