"""Try generic cheats on the problems of another benchmark: zeros, a copy of an input, a constant, an
earlier result, lower precision. Says for each problem which of them pass the benchmark's own tolerance, and which pass
our strict verdict. Nothing is timed, and no submission is needed."""

import math
import shlex
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.text import Text

from harness.cli import result_files
from harness.cli.declare import argument, option
from harness.core.checkout import Checkout
from harness.core.decode import encode
from harness.core.errors import Exit, UsageError
from harness.core.words import clean_line
from harness.kinds import registry
from harness.kinds.benchmarks.audit import Audit, audits
from harness.kinds.settings import check_seconds
from harness.machine import host
from harness.report import audit
from harness.report.console import new_console

GIB = 2.0**30


@dataclass(frozen=True, kw_only=True)
class AuditOrder(result_files.WithFiles):
    set: Path = argument("a problem file, or a folder that has such below", metavar="SET")
    seconds: float = option(120.0, "for each problem, at most (default: %(default)g)")
    most: float = option(
        1.0,
        "GiB of inputs and results together; larger batches are halved until they fit (default: %(default)g)",
        metavar="GIB",
    )
    out: Path | None = option(None, "keep each problem's result in FILE, where the same command goes on")


def run(order: AuditOrder, checkout: Checkout) -> Exit:
    check_seconds("--seconds", order.seconds)
    if not 0 < order.most < math.inf:
        raise UsageError(f"--most {order.most:g}: a number of GiB above 0 is needed")
    if order.out:
        result_files.check_lines(order.out, "audits")
    problems = [registry.find(str(place.resolve()), checkout) for place in registry.problems_below(order.set)]
    console, found = new_console(stderr=True), list[Audit]()
    for one in audits(problems, order.seconds, int(order.most * GIB), order.out):
        found.append(one)
        line = f"[{one.seconds:6.1f} s] {len(found):>3}/{len(problems)}  {one.problem}: {audit.words(one)}"
        console.print(Text(clean_line(line)), soft_wrap=True)
    command, machine = f"python -m harness {shlex.join(sys.argv[1:])}", host.environment("", 1)
    where = f"{machine.cores} cores of {machine.cpu}, torch {machine.torch}"
    document = audit.document_of(found, command, where, f"{datetime.now(UTC):%Y-%m-%d}")
    return result_files.tell(order, document, json=lambda: {"schema": 1, "problems": encode(found)})
