"""Options that several verbs have, each declared once. Runs nothing."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TextIO

from harness.agents.reward import Function
from harness.cli import result_files
from harness.cli.declare import REQUIRED, argument, given, option
from harness.core.decode import part
from harness.core.errors import UsageError, os_error_as
from harness.core.files import replace_file
from harness.kinds.program.files import BUILD
from harness.kinds.registry import is_problem
from harness.kinds.settings import DEVICES, LAUNCHES, Asked

STDOUT = Path(result_files.STDOUT)
AUTHOR_CHARS = 64
HERE, ENGINES = "local", ("local", "slurm")  # engine.registry's; a test compares them, as importing it takes time


def author_of(text: str) -> str:
    """The name; ArgumentTypeError for one that boards cannot show."""
    name = text.strip()
    if not 1 <= len(name) <= AUTHOR_CHARS or not name.isprintable():
        raise argparse.ArgumentTypeError(f"expected 1 to {AUTHOR_CHARS} printable characters, found {text[:80]!r}")
    return name


def problem(what: str, missing: str = "") -> Any:
    """The problem, as the first argument or as --problem, whichever is at hand; without `missing` of no need."""
    default = REQUIRED if missing else None
    return argument(what, "--problem", default=default, metavar="PROBLEM", missing=missing)


def suite(cpu_suite: str) -> Any:
    """The suite of shapes; `cpu_suite` is what runs on CPU cores where none is named."""
    return option(None, f"suite of shapes (default: official on GPUs, {cpu_suite} on CPU cores)", metavar="S")


def device() -> Any:
    return option(None, "device that ranks run on (default: GPUs if there are any)", choices=DEVICES)


def quiet(what: str) -> Any:
    """For scripts: only `what` is printed, and errors."""
    return option(False, f"print only {what}; no progress", "-q", "--quiet")


def out(text: str, default: Any = None, metavar: str = "FILE") -> Any:
    return option(default, text, "-o", "--out", metavar=metavar)


WHICH = "which problem? name it (`python -m harness problems` lists them)"
NAMED = "its name (see `problems`), or GPU MODE's name for it"
USUAL = ", ".join(f"{count} on {device}" for device, count in LAUNCHES.items())


@dataclass(frozen=True, kw_only=True)
class OfSubmission:
    problem: str = problem(
        "its name (see `problems`), GPU MODE's name for it, a folder with GPU MODE's task.yml, or another benchmark's "
        "file; may be left out if the submission's `#!POPCORN leaderboard` line names it",
        f"{WHICH}, or a file that names it",
    )
    file: Path | None = argument(
        "the submission (default: submissions/<problem>/submission.py, or the folder's own)",
        default=None,
        metavar="file",
    )


@dataclass(frozen=True, kw_only=True)
class OnSetting:
    ranks: int | None = option(None, "how many ranks (default: as the shapes say, 8; on GPUs at most one each)")
    suite: str | None = suite("cpu")
    device: str | None = device()
    timeout_s: float | None = option(
        None, "for each phase (default: as the shapes say)", "--timeout", metavar="SECONDS"
    )


@dataclass(frozen=True, kw_only=True)
class Timed:
    seconds: float | None = option(None, "about how long each benchmark is measured (default: its suite's)")


@dataclass(frozen=True, kw_only=True)
class Sandboxed:
    confined: bool = option(
        True,
        "leave the sandbox out (docs/trust.md): the submission may do whatever you may; the report and the leaderboard "
        "say so",
        "--unconfined",
    )


@dataclass(frozen=True, kw_only=True)
class Recorded:
    record: bool = option(
        True, "do not write to leaderboard.yaml and runs/, except for a profile's traces", "--no-record"
    )
    author: str | None = option(
        None, "name to record the result under (default: your login)", metavar="NAME", type=author_of
    )


@dataclass(frozen=True, kw_only=True)
class Rewarded:
    reward: Function = option("log2_speedup", "the reward's function (default: %(default)s)")
    lower: bool = option(False, "reward the lower end of the speedup's interval in place of its value")


@dataclass(frozen=True, kw_only=True)
class ByEngine:
    engine: str = option(
        HERE,
        "where this runs: on this machine (the default), or as a job of the cluster that engine.yaml describes",
        choices=ENGINES,
    )


def asked(order: Any, **more: Any) -> Asked:
    """What an evaluation is asked for by a verb's order; `more` are fields that the verb decides itself."""
    return part(order, Asked, **more)


def of_a_run(order: Any) -> list[str]:
    """The options that were given and that only an evaluation can follow."""
    return sorted(given(order, *(field.name for field in fields(Asked)), "watch"))


def problem_and_files(option: str | None, names: Sequence[str]) -> tuple[str | None, tuple[str, ...]]:
    """The problem and the files of a verb that takes several: the first of the names is the problem where it is the
    path of one, or no Python file and another one is, or nothing that is there and the others are submissions. None
    where neither names a problem."""
    first, *others = names
    is_named = not first.endswith(".py") and any(name.endswith(".py") for name in others)
    is_first = is_named or (not Path(first).exists() and all(map(may_be_submission, others)))
    if option is None and others and (is_first or is_problem(Path(first))):
        return first, tuple(others)
    return option, tuple(names)


def may_be_submission(name: str) -> bool:
    """Whether a file is there, or a solver's folder. A recorded run's is none."""
    return Path(name).is_file() or (Path(name) / BUILD).is_file()


def without_engine(words: Sequence[str]) -> list[str]:
    """The same command for the machine that it is to run on."""
    kept = [word for word in words if not word.startswith("--engine=")]
    while "--engine" in kept:
        at = kept.index("--engine")
        del kept[at : at + 2]
    return kept


def write_out(out: Path, data: bytes, make_folder: bool = False, option: str = "--out", replaces: str = "") -> TextIO:
    """Writes the file that the option names, and returns where the verb's words belong: standard error where `-` made
    standard output the file. A file is replaced in one step; a pipe or a device is written to. Raises UsageError where
    that fails, or where a Python or YAML file would be lost; `replaces` names the one kind that may be."""
    if out == STDOUT:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return sys.stderr
    with os_error_as(UsageError, f"{option} {out}: cannot be written", "name another file"):
        if out.suffix != replaces:
            result_files.check_replaceable(option, out)
        if make_folder:
            out.parent.mkdir(parents=True, exist_ok=True)
        if out.exists() and not out.is_file():
            out.write_bytes(data)
        else:
            replace_file(out, data)
    return sys.stdout
