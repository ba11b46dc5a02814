"""The verb `audit`: which problems of another benchmark are weak."""

import argparse
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path

from rich.text import Text

from harness.cli import result_files
from harness.cli.problems import problems_below
from harness.core.checkout import Checkout
from harness.core.decode import encode
from harness.core.errors import Exit
from harness.core.words import clean_line
from harness.kinds import registry
from harness.kinds.benchmarks.audit import Audit, audits
from harness.machine import host
from harness.report import audit
from harness.report.console import new_console

DESCRIPTION = """Try generic cheats on the problems of another benchmark: zeros, a copy of an input, a constant, an
earlier result, lower precision. Says for each problem which of them pass the benchmark's own tolerance, and which pass
our strict verdict. Nothing is timed, and no submission is needed."""
GIB = 2.0**30


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `audit`."""
    parser.add_argument("path", type=Path, metavar="SET", help="a problem file, or a folder that has such below")
    parser.add_argument(
        "--seconds", type=float, default=120.0, metavar="S", help="for each problem, at most (default: %(default)g)"
    )
    parser.add_argument(
        "--most",
        type=float,
        default=1.0,
        metavar="GIB",
        help="of inputs and results together; larger batches are halved until they fit (default: %(default)g)",
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="keep each problem's result in FILE, where the same command goes on"
    )
    result_files.add_json(parser)
    result_files.add_markdown(parser)


def run(namespace: argparse.Namespace, checkout: Checkout) -> Exit:
    """`audit`: tries, shows each problem as it is done, then the table."""
    problems = [registry.find(str(place.resolve()), checkout) for place in problems_below(namespace.path)]
    console, found = new_console(stderr=True), list[Audit]()
    for one in audits(problems, namespace.seconds, int(namespace.most * GIB), namespace.out):
        found.append(one)
        line = f"[{one.seconds:6.1f} s] {len(found):>3}/{len(problems)}  {one.problem}: {audit.words(one)}"
        console.print(Text(clean_line(line)), soft_wrap=True)
    files = result_files.of(namespace)
    if files.json:
        files.json.write({"schema": 1, "problems": encode(found)})
    if files.markdown:
        command, machine = f"python -m harness {shlex.join(sys.argv[1:])}", host.environment("", 1)
        where = f"{machine.cores} cores of {machine.cpu}, torch {machine.torch}"
        files.markdown.write_text(audit.markdown(found, command, where, f"{datetime.now(UTC):%Y-%m-%d}"))
    if not files.take_stdout:
        print(audit.summary(found))
    return Exit.OK
