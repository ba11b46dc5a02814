"""Options that several verbs have, each declared once. Runs nothing."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, TextIO

from harness.agents.reward import Function
from harness.cli import result_files
from harness.cli.declare import Option, argument, given, option, part
from harness.core.errors import UsageError
from harness.core.files import replace_file
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


def problem(what: str, missing: str = "") -> Option:
    """The problem, as the first argument or as --problem, whichever is at hand: the same for all verbs."""
    return argument(what, "--problem", metavar="PROBLEM", missing=missing)


def suite(cpu_suite: str) -> Option:
    """The suite of shapes; `cpu_suite` is what runs on CPU cores where none is named."""
    default = f"official on GPUs, {cpu_suite} on CPU cores"
    return option(f"suite of shapes (default: {default})", metavar="S")


def quiet(what: str) -> Option:
    """For scripts: only `what` is printed, and errors."""
    return option(f"print only {what}; no progress", "-q", "--quiet")


def out(text: str, metavar: str = "FILE") -> Option:
    """The file that a verb makes."""
    return option(text, "-o", "--out", metavar=metavar)


WHICH = "which problem? name it (`python -m harness problems` lists them)"
NamedProblem = Annotated[str, problem("its name (see `problems`), or GPU MODE's name for it", WHICH)]
NamedByFile = Annotated[
    str,
    problem(
        "its name (see `problems`), GPU MODE's name for it, or a folder with GPU MODE's task.yml; may be left out if "
        "the file's `#!POPCORN leaderboard` line names it",
        f"{WHICH}, or a file that names it",
    ),
]
Submission = Annotated[
    Path | None,
    argument("the submission (default: submissions/<problem>/submission.py, or the folder's own)", metavar="file"),
]
Ranks = Annotated[int | None, option("how many ranks (default: one per GPU; on CPU cores as the shapes say, 8)")]
Suite = Annotated[str | None, suite("cpu")]
Device = Annotated[str | None, option("device that ranks run on (default: GPUs if there are any)", choices=DEVICES)]
Timeout = Annotated[float | None, option("for each phase (default: as the shapes say)", "--timeout", metavar="SECONDS")]
Nodes = Annotated[
    int,
    option(
        "spread the ranks over N machines of one kind, this one and others that run `agent`, or those of a Slurm job "
        "(docs/cluster.md; default: 1)"
    ),
]
Confined = Annotated[
    bool,
    option(
        "leave the sandbox out (docs/trust.md): the submission may do whatever you may; the report and the leaderboard "
        "say so",
        "--unconfined",
    ),
]
Seconds = Annotated[float | None, option("about how long each benchmark is measured (default: its suite's)")]
USUAL = ", ".join(f"{count} on {device}" for device, count in LAUNCHES.items())
Launches = Annotated[
    int | None,
    option(
        "measure in N launches, each of fresh processes: the more, the narrower the interval (docs/statistics.md; "
        f"default: {USUAL})"
    ),
]
Record = Annotated[
    bool, option("do not write to leaderboard.yaml and runs/, except for a profile's traces", "--no-record")
]
Author = Annotated[
    str | None, option("name to record the result under (default: your login)", metavar="NAME", type=author_of)
]
Engine = Annotated[
    str,
    option(
        "where this runs: on this machine (the default), or as a job of the cluster that engine.yaml describes",
        choices=ENGINES,
    ),
]
RewardFunction = Annotated[Function, option("the reward's function (default: %(default)s)")]
Lower = Annotated[bool, option("reward the lower end of the speedup's interval in place of its value")]


def asked(order: Any, **more: Any) -> Asked:
    """What an evaluation is asked for by a verb's order; `more` are fields that the verb decides itself."""
    return part(order, Asked, **more)


def of_a_run(order: Any) -> list[str]:
    """The options that were given and that only an evaluation can follow."""
    return sorted(given(order, *(field.name for field in fields(Asked)), "watch"))


def problem_and_files(option: str | None, names: Sequence[str]) -> tuple[str | None, tuple[str, ...]]:
    """The problem and the files of a verb that takes several: the first of the names is the problem where it is no
    Python file and another one is. None where neither names a problem."""
    first, *others = names
    if option is None and not first.endswith(".py") and any(name.endswith(".py") for name in others):
        return first, tuple(others)
    return option, tuple(names)


def without_engine(words: Sequence[str]) -> list[str]:
    """The same command for the machine that it is to run on."""
    left = iter(words)
    return [word for word in left if not word.startswith("--engine=") and (word != "--engine" or not next(left, "-"))]


def write_out(out: Path, data: bytes, make_folder: bool = False, option: str = "--out", replaces: str = "") -> TextIO:
    """Writes the file that the option names, and returns where the verb's words belong: standard error where `-` made
    standard output the file. A file is replaced in one step; a pipe or a device is written to. Raises UsageError where
    that fails, or where a Python or YAML file would be lost; `replaces` names the one kind that may be."""
    if out == STDOUT:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return sys.stderr
    if out.suffix != replaces:
        result_files.check_replaceable(option, out)
    try:
        if make_folder:
            out.parent.mkdir(parents=True, exist_ok=True)
        if out.exists() and not out.is_file():
            out.write_bytes(data)
        else:
            replace_file(out, data)
    except OSError as error:
        raise UsageError(f"{option} {out}: cannot be written: {error.strerror}; name another file") from None
    return sys.stdout
