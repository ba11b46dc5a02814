"""The command line: reads what was asked, calls the verb, turns errors into messages and exit codes."""

import argparse
import contextlib
import errno
import importlib
import io
import os
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NoReturn

from harness.cli import declare, options, result_files
from harness.cli.result_files import ResultFiles
from harness.core import processes
from harness.core.checkout import Checkout
from harness.core.errors import Exit, HarnessError, UsageError
from harness.core.version import __version__
from harness.core.words import cut_line
from harness.machine import host

VERBS = {
    "eval": "evaluate a submission",
    "check": "test a submission without timing it",
    "eval-many": "judge a population of candidates for one problem",
    "score": "say what the results of eval-many come to",
    "compare": "compare files, or recorded runs, head to head",
    "audit": "try generic cheats on the problems of another benchmark",
    "competition": "evaluate all problems of a KernelBot competition file",
    "contest": "run a contest: teams, submissions, standings, awards",
    "bundle": "make, check and reproduce what somebody needs to audit a result",
    "merge": "write a submission and its local modules as one file",
    "board": "show the local leaderboard",
    "verify": "run an entry's source again and decide whether it reproduces the claim",
    "settle": "time a board's leading entries head to head and record their order",
    "rejudge": "judge entries again after a change of a problem, shape or check",
    "history": "show how each file's score moved over its runs",
    "page": "write the leaderboard as one HTML file",
    "export": "write runs and leaderboard as CSV, JSON lines or parquet",
    "plot": "draw a recorded run as SVG or PNG",
    "serve": "answer popcorn-cli, and show the boards live",
    "mcp": "serve tools to an agent over MCP",
    "agent": "run this node's ranks of an evaluation on several nodes",
    "problems": "list the problems and their suites",
    "new": "write the files of a new problem, which evaluate at once",
    "new-submission": "write a submission that passes, to begin with",
    "prune": "show or delete what in runs/ and the compile caches nothing needs",
    "doctor": "say what on this machine changes results",
    "tune": "change the Linux settings that doctor warns of, and restore them",
    "mlperf": "score published results of MLPerf Training from their logs",
    "tune-kernel": "find the fastest block sizes of a submission's kernels on this GPU",
    "roofline": "print the limit of every benchmark shape",
}
NAME_CHARS = 120  # of a path that can be none's, which is shown
EPILOG = """\
exit codes:
  0 passed   112 the submission is wrong, raised, crashed or was held
  113 a problem, shape, leaderboard or bundle file is bad   114 timed out   2 the request cannot be carried out
  130 interrupted   1 the harness or the machine failed, or `verify` could not decide
  3 the outcome that `compare --fail-if` names
"""


@dataclass(frozen=True)
class CommandLine:
    """A command line: the verb's function, and the values that its order is made of."""

    run: Callable[..., int]
    values: argparse.Namespace

    @property
    def order(self) -> Any:
        """The verb's record of what was asked for. Raises UsageError as declare.order_of does."""
        return declare.order_of(self.run, self.values)

    @property
    def files(self) -> ResultFiles:
        return result_files.of(self.values)

    def carry_out(self, checkout: Checkout) -> int:
        return self.run(self.order, checkout)


def main(argv: Sequence[str] | None = None) -> NoReturn:
    _open_streams()
    words = sys.argv[1:] if argv is None else argv
    command = parse(words)
    processes.interrupt_on_signals()
    if isinstance(sys.stdout, io.TextIOWrapper):  # a name that the terminal's encoding lacks must not end a run
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with command.files.told_of_errors(), _no_path_as_usage_error():
            code = _carried_out(command, words)
        sys.stdout.flush()
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)
        code = error.exit_code
    except KeyboardInterrupt:
        print("\ninterrupted: every rank is ended, nothing more is recorded", file=sys.stderr)
        code = Exit.INTERRUPTED
    except BrokenPipeError:  # whoever read our output is gone
        code = Exit.ERROR
    except (OSError, MemoryError) as error:  # nobody's mistake: the machine has no more to give
        print(f"error: {host.refusal(error)}", file=sys.stderr)
        code = Exit.ERROR
    try:
        sys.stdout.flush()
    except OSError:  # or Python would say so, and exit with a code of its own
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(int(code))


def _carried_out(command: CommandLine, words: Sequence[str]) -> int:
    """Calls the verb here, or where --engine says, once all that it writes its result to can be written."""
    command.files.check()
    checkout = Checkout.here()
    engine = getattr(command.values, "engine", options.HERE)
    if engine == options.HERE:
        return command.carry_out(checkout)
    elsewhere = importlib.import_module("harness.cli.elsewhere")
    return int(elsewhere.run(engine, options.without_engine(words), checkout))


@contextlib.contextmanager
def _no_path_as_usage_error() -> Iterator[None]:
    """Raises UsageError where a path that was named can be none's: too long, or a link that leads to itself."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENAMETOOLONG, errno.ELOOP):
            raise
        name = error.filename if isinstance(error.filename, str) else ""
        raise UsageError(f"{cut_line(name, NAME_CHARS)}: {error.strerror}; name another") from None
    except RuntimeError as error:  # of Path.resolve, before Python 3.13
        if not str(error).startswith("Symlink loop"):
            raise
        raise UsageError(f"{cut_line(str(error), NAME_CHARS)}; name another") from None


def _open_streams() -> None:
    """Opens a closed standard stream on /dev/null: else the next file or socket would get its number."""
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
            setattr(sys, name, open(fd, "r" if fd == 0 else "w", closefd=False))  # noqa: SIM115


def verb(name: str) -> ModuleType:
    """The module of a verb. Its docstring, or DESCRIPTION, is what --help says; `run` takes an order and a checkout and
    returns an exit code, or SUB_VERBS do. Imported when it is asked for: all of them take half a second."""
    return importlib.import_module(f"harness.cli.{name.replace('-', '_')}")


def parse(arguments: Sequence[str]) -> CommandLine:
    named = next((argument for argument in arguments if argument in VERBS), None)
    if named == "bundle" and (words := verb("bundle").renamed(arguments)) != arguments:
        print("note: `bundle PROBLEM` is `merge PROBLEM` now; it still works", file=sys.stderr)
        return parse(words)
    values = parser(named).parse_args(arguments)
    return CommandLine(values.run, values)


def parser(named: str | None) -> argparse.ArgumentParser:
    """The commands, and the options of the one named."""
    top = declare.Parser(
        prog="python -m harness",
        description="Evaluate kernels, solvers, models and training runs on your own machine: whether a submission is "
        "correct, its time on every shape, its speedup over the reference, its distance from the limit, and its place "
        "on the local leaderboard.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"kernel-eval {__version__}")
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, text in VERBS.items():
        command = commands.add_parser(
            name, help=text, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        if name == named:
            module = verb(name)
            command.description = _filled(getattr(module, "DESCRIPTION", module.__doc__ or ""))
            declare.fill(command, module)
    return top


def _filled(text: str) -> str:
    return "\n\n".join(textwrap.fill(" ".join(part.split()), 100) for part in text.split("\n\n"))
