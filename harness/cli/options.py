"""Options that several verbs share, and the record that they become. Runs nothing."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TextIO, get_args

from harness.cli import result_files
from harness.core.errors import UsageError
from harness.core.files import replace_file
from harness.kinds.kind import Evaluator
from harness.kinds.settings import DEVICES, LAUNCHES, Asked

STDOUT = Path(result_files.STDOUT)
AUTHOR_CHARS = 64
HERE, ENGINES = "local", ("local", "slurm")  # engine.registry's; a test compares them, as importing it takes time


def asked(namespace: argparse.Namespace, **more: Any) -> Asked:
    """What the options ask for; `more` are fields that the verb decides itself."""
    given = (vars(namespace) if "problem" in more else _named(vars(namespace))) | more
    return Asked(**{field.name: given[field.name] for field in fields(Asked) if field.name in given})


def _named(given: dict[str, Any]) -> dict[str, Any]:
    """The problem and the file, also where --problem names the former and the only argument is the latter. Raises
    UsageError where neither is given."""
    if "problem_option" not in given:
        return given
    names = [given["problem_option"], given["problem"], given.get("file")]
    found = [name for name in names if name is not None]
    if not found:
        raise UsageError("which problem? name it (`python -m harness problems` lists them), or a file that names it")
    if len(found) > 2:
        raise UsageError(f"two problems: {found[1]} and --problem {found[0]}; name one")
    problem, *file = found
    return given | {"problem": str(problem), "file": Path(file[0]) if file else None}


def add_file(parser: argparse.ArgumentParser) -> None:
    """The problem and one of its submissions."""
    add_problem(
        parser,
        "its name (see `problems`), GPU MODE's name for it, or a folder with GPU MODE's task.yml; may be left out if "
        "the file's `#!POPCORN leaderboard` line names it",
    )
    parser.add_argument(
        "file",
        nargs="?",
        type=Path,
        help="the submission (default: submissions/<problem>/submission.py, or the folder's own)",
    )


def add_problem(parser: argparse.ArgumentParser, what: str) -> None:
    """The problem, as the first argument or as --problem, whichever is at hand: the same for all verbs."""
    parser.add_argument("problem", nargs="?", metavar="PROBLEM", help=what)
    parser.add_argument("--problem", dest="problem_option", metavar="PROBLEM", help="the same, as an option")


def problem_and_files(option: str | None, names: Sequence[str]) -> tuple[str | None, tuple[str, ...]]:
    """The same for a verb that takes several files: the first of the names is the problem where it is no Python file
    and another one is. None where neither names a problem."""
    first, *others = names
    if option is None and not first.endswith(".py") and any(name.endswith(".py") for name in others):
        return first, tuple(others)
    return option, tuple(names)


def problem_of(namespace: argparse.Namespace) -> str | None:
    """The problem that was named, in either way. Raises UsageError for two."""
    if namespace.problem and namespace.problem_option:
        raise UsageError(f"two problems: {namespace.problem} and --problem {namespace.problem_option}; name one")
    found: str | None = namespace.problem or namespace.problem_option
    return found


def add_evaluator(parser: argparse.ArgumentParser) -> None:
    """Whose evaluator runs a problem folder."""
    parser.add_argument(
        "--eval",
        dest="evaluator",
        choices=get_args(Evaluator),
        help="for a problem folder: our ranks and clocks, or its own eval.py, whose result is taken as it is (default: "
        "ours where the folder has what our ranks need, or else theirs)",
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
        help="how many ranks (default: one per GPU; on CPU cores as the shapes say, 8)",
    )
    parser.add_argument(
        "--suite", metavar="S", help=f"suite of shapes (default: official on GPUs, {cpu_suite} on CPU cores)"
    )
    parser.set_defaults(cpu_suite=cpu_suite)
    parser.add_argument("--device", choices=DEVICES, help="device that ranks run on (default: GPUs if there are any)")
    parser.add_argument(
        "--timeout", dest="timeout_s", type=float, metavar="SECONDS", help="for each phase (default: as the shapes say)"
    )
    result_files.add_json(parser)


def add_nodes(parser: argparse.ArgumentParser) -> None:
    """Over how many nodes ranks are spread."""
    parser.add_argument(
        "--nodes",
        type=int,
        default=1,
        metavar="N",
        help="spread the ranks over N machines of one kind, this one and others that run `agent`, or those of a Slurm "
        "job (docs/cluster.md; default: 1)",
    )


def add_unconfined(parser: argparse.ArgumentParser) -> None:
    """The switch for machines where the sandbox keeps drivers from working."""
    parser.add_argument(
        "--unconfined",
        dest="confined",
        action="store_false",
        help="leave the sandbox out (docs/trust.md): the submission may do whatever you may; "
        "the report and the leaderboard say so",
    )


def add_seconds(parser: argparse.ArgumentParser) -> None:
    """How long to measure."""
    parser.add_argument(
        "--seconds", type=float, help="about how long each benchmark is measured (default: its suite's)"
    )


def add_launches(parser: argparse.ArgumentParser) -> None:
    """In how many launches to measure."""
    usual = ", ".join(f"{count} on {device}" for device, count in LAUNCHES.items())
    parser.add_argument(
        "--launches",
        type=int,
        metavar="N",
        help="measure in N launches, each of fresh processes: the more, the narrower the interval "
        f"(docs/statistics.md; default: {usual})",
    )


def add_data(parser: argparse.ArgumentParser) -> None:
    """The user's own data."""
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="for training: a folder of token files to train on (docs/training.md); such a run is not ranked",
    )
    parser.add_argument(
        "--target",
        type=float,
        metavar="Q",
        help="with --data: the quality that ends a run (default: what the reference reaches in a fourth of samples)",
    )
    parser.add_argument(
        "--vocabulary",
        type=int,
        metavar="N",
        help="with --data: how many tokens there are (default: as files need)",
    )


def of_a_run(namespace: argparse.Namespace) -> list[str]:
    """The options that were given and that only an evaluation can follow."""
    usual = {field.name: field.default for field in fields(Asked)} | {"engine": HERE, "watch": False}
    names = {"timeout_s": "timeout", "evaluator": "eval", "confined": "unconfined"}
    given = vars(namespace)
    chosen = (set(usual) & set(given)) - {"problem", "file", "cpu_suite"}
    return sorted(names.get(name, name) for name in chosen if given[name] != usual[name])


def author_of(text: str) -> str:
    """The name; ArgumentTypeError for one that boards cannot show."""
    name = text.strip()
    if not 1 <= len(name) <= AUTHOR_CHARS or not name.isprintable():
        raise argparse.ArgumentTypeError(f"expected 1 to {AUTHOR_CHARS} printable characters, found {text[:80]!r}")
    return name


def add_recording(parser: argparse.ArgumentParser) -> None:
    """Whether and under whose name what passes is recorded."""
    parser.add_argument(
        "--no-record",
        action="store_true",
        help="do not write to leaderboard.yaml and runs/, except for a profile's traces",
    )
    parser.add_argument(
        "--author", type=author_of, metavar="NAME", help="name to record the result under (default: your login)"
    )


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Where the whole command runs."""
    parser.add_argument(
        "--engine",
        default=HERE,
        choices=ENGINES,
        help="where this runs: on this machine (the default), or as a job of the cluster that engine.yaml describes",
    )


def without_engine(arguments: Sequence[str]) -> list[str]:
    """The same command for the machine that it is to run on."""
    left, kept = iter(arguments), []
    for argument in left:
        name, has_value, _ = argument.partition("=")
        if len(name) < len("--en") or not "--engine".startswith(name):  # argparse takes the beginning of a name too
            kept.append(argument)
        elif not has_value:
            next(left, None)
    return kept


def add_quiet(parser: argparse.ArgumentParser, what: str) -> None:
    """For scripts: only `what` is printed, and errors."""
    parser.add_argument("-q", "--quiet", action="store_true", help=f"print only {what}; no progress")


def add_verbose(parser: argparse.ArgumentParser) -> None:
    """For those who want to know all."""
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="print the clocks, machine, memory, phases, each rank's profile and rank 0's log too",
    )


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
