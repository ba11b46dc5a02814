"""Write runs and leaderboard as CSV, JSON lines or parquet: a row for each run and case, under the names
of GPU MODE's public dataset. --leaderboards writes the problems instead, as its leaderboards file has them. Parquet
needs the extra `parquet`.

--trace PROBLEM writes the runs of a FlashInfer-Trace definition as its Trace objects, a line of JSON each.

--task PROBLEM FOLDER writes a problem as a KernelBot problem folder: task.yml, its files, and an eval.py that runs this
checkout. --harbor FOLDER writes all problems, or PROBLEM, as Harbor tasks for agents (docs/agents.md); PROBLEM may be
a file of KernelBench's or a folder of such files."""

import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from harness.agents import harbor
from harness.agents.reward import Function
from harness.board import leaderboard, reports
from harness.cli import options
from harness.cli.declare import argument, option
from harness.core.checkout import Checkout
from harness.core.decode import part
from harness.core.errors import BadFileError, Exit, UsageError
from harness.core.words import clean_line, count_text
from harness.gpumode import task_folder
from harness.kinds.registry import find, find_name, set_members
from harness.kinds.settings import DEVICES
from harness.machine import host
from harness.problems.problem import OFFICIAL
from harness.problems.shape_file import problem_names
from harness.report import traces
from harness.report.export import COLUMNS, FORMATS, LEADERBOARDS, Row, Type, leaderboards, rows


@dataclass(frozen=True, kw_only=True)
class ExportOrder:
    """What is written, how and where to: rows, leaderboards, or problems as folders of others' formats."""

    problem: str | None = options.problem("only this problem's runs; with --task, the problem that is written")
    folder: Path | None = argument("with --task: a new folder to write", metavar="FOLDER", default=None)
    format: str | None = option(None, "default: as FILE's name ends, else csv", choices=[*FORMATS])
    out: Path | None = options.out("default: -, standard output")
    task: bool = option(False, "write PROBLEM as a KernelBot problem folder")
    harbor: Path | None = option(None, "write problems as Harbor tasks into a new folder, one each", metavar="FOLDER")
    suite: str | None = option(
        None, "with --task and --harbor: the cases (default: official; on CPU cores cpu)", metavar="S"
    )
    device: str | None = option(None, "with --harbor: the device (default: GPUs if there are any)", choices=DEVICES)
    reward: Function = option("log2_speedup", "with --harbor: the reward (default: %(default)s)")
    image: str = option(
        "", "with --harbor: built already are the images NAME-<problem> and NAME-<problem>-verifier", metavar="NAME"
    )
    trace: bool = option(False, "PROBLEM's runs as Trace objects of FlashInfer-Trace")
    leaderboards: bool = option(False, "the problems, in place of runs")


TAKEN = {  # by the option that says what is written ("": rows), the others that it takes
    "": ("problem", "format", "out"),
    "leaderboards": ("format", "out"),
    "trace": ("problem", "out"),
    "task": ("problem", "folder", "suite", "out"),
    "harbor": ("problem", "suite", "device", "reward", "image"),
}


def check_options(order: ExportOrder) -> None:
    """Raises UsageError for options of which one would say nothing: two that say what is written, or one that what is
    written does not take."""
    given = [each.name for each in fields(order) if getattr(order, each.name) != each.default]
    what = [name for name in given if name in TAKEN]
    if len(what) > 1:
        raise UsageError(f"--{what[0]} and --{what[1]}: name one")
    asked = what[0] if what else ""
    for name in given:
        if name in (asked, *TAKEN[asked]):
            continue
        flag = f"{order.folder}" if name == "folder" else f"--{name}"
        if name == "problem":
            raise UsageError(f"--{asked}: all problems are written; leave the problem out")
        if asked:
            raise UsageError(f"{flag}: --{asked} does not take it; leave it out")
        takers = [f"--{one}" for one, taken in TAKEN.items() if name in taken]
        takes = "takes it; add that" if len(takers) == 1 else "take it; add one of them"
        raise UsageError(f"{flag}: only {' and '.join(takers)} {takes}, or leave it out")
    if order.folder and order.out:
        raise UsageError(f"{order.folder} and --out {order.out}: name one")


def format_of(form: str | None, out: Path) -> str:
    """The format that the options name. UsageError for a binary one without a file, or a FILE that is no file."""
    suffix = out.suffix.lower().removeprefix(".")
    chosen = form or suffix or "csv"
    if chosen not in FORMATS:
        names = ", ".join(f".{name}" for name in FORMATS)
        raise UsageError(f"--out {out}: '{suffix}' is no format; end the name in {names}, or say which with --format")
    if out == options.STDOUT and chosen == "parquet":
        raise UsageError("--format parquet is binary: name a file with -o FILE")
    if out != options.STDOUT and os.path.exists(out) and not os.path.isfile(out):
        raise UsageError(f"--out {out}: it is there, and is no file; name another")
    return chosen


def run(order: ExportOrder, checkout: Checkout) -> Exit:
    """`export`: writes the rows; what cannot be read is said on standard error."""
    check_options(order)
    if order.task:
        return write_task(order, checkout)
    if order.harbor:
        return write_harbor(order, order.harbor, checkout)
    if order.trace:
        return write_traces(order, checkout)
    to = order.out or options.STDOUT
    form = format_of(order.format, to)
    named = order.problem
    if order.leaderboards:
        boards = leaderboards(checkout)
        _write(to, form, boards, LEADERBOARDS, count_text(len(boards), "leaderboard"))
        return Exit.OK
    recorded, unreadable = reports.load_all(checkout.root)
    found = rows(leaderboard.load(checkout.leaderboard), recorded, checkout.root)
    if named:
        problem = find_name(named, {row["problem"] for row in found}, checkout)
        found = [row for row in found if row["problem"] == problem]
    runs = len({row["run_id"] for row in found})
    _write(to, form, found, COLUMNS, f"{count_text(len(found), 'row')} of {count_text(runs, 'run')}")
    for message in unreadable:
        print(f"left out: {clean_line(message)}", file=sys.stderr)
    return Exit.OK


def write_task(order: ExportOrder, checkout: Checkout) -> Exit:
    """`export --task`: writes the folder. UsageError for a problem that KernelBot has no place for."""
    named, folder = order.problem, order.folder or order.out
    if named is None or folder is None:
        raise UsageError("--task: name a problem and a new folder: `export --task a2a my-a2a`")
    problem = find(named, checkout)
    task_folder.write(folder, task_folder.files_of(problem, problem.suite(order.suite or OFFICIAL)))
    print(f"{folder}: {problem.name} as a KernelBot problem folder, whose eval.py runs {checkout.root}")
    print(f"evaluate it        make eval PROBLEM={shlex.quote(str(folder))} EVAL=theirs")
    return Exit.OK


def write_traces(order: ExportOrder, checkout: Checkout) -> Exit:
    if order.problem is None:
        raise UsageError("--trace: name a definition's file: `export --trace definitions/gemm.json -o traces.jsonl`")
    problem = find(order.problem, checkout)
    if problem.workload(problem.suite(OFFICIAL).benchmarks[0]) is None:
        raise UsageError(
            f"--trace: {problem.name} is no definition of FlashInfer-Trace; leave --trace out for its rows"
        )
    recorded, unreadable = reports.load_all(checkout.root)
    lines = [json.dumps(one) + "\n" for one in traces.traces(recorded, problem)]
    words = options.write_out(order.out or options.STDOUT, "".join(lines).encode())
    print(f"{count_text(len(lines), 'trace')} of {problem.name}", file=words)
    for message in unreadable:
        print(f"left out: {clean_line(message)}", file=sys.stderr)
    return Exit.OK


def write_harbor(order: ExportOrder, folder: Path, checkout: Checkout) -> Exit:
    device = order.device or host.gpus().device
    wanted = order.suite or (OFFICIAL if device != "cpu" else "cpu")
    named = order.problem
    members = named and set_members(named)
    names = list(map(str, members)) if members else [named] if named else problem_names(checkout)
    is_asked = order.suite is not None and named and not members
    suites = []
    for name in names:
        try:
            one = find(name, checkout)
            one.check_runnable()
        except (UsageError, BadFileError) as error:  # what `eval` would say, too
            if not members:
                raise
            print(f"left out: {clean_line(str(error))}", file=sys.stderr)
            continue
        suites.append((one, wanted if is_asked or wanted in one.suites else OFFICIAL))
    if not suites:
        raise UsageError(f"--harbor: no problem of {named} can be evaluated; name other ones")
    harbor.write(folder, suites, part(order, harbor.Wanted, device=device), checkout)
    print(f"{folder}: {count_text(len(suites), 'Harbor task')}, suite {wanted} on {device}")
    first = shlex.quote(str(folder / harbor.task_name(suites[0][0])))
    print(f"try one            harbor run -p {first} -a AGENT -m MODEL")
    return Exit.OK


def _write(to: Path, form: str, found: Sequence[Row], columns: Mapping[str, Type], what: str) -> None:
    options.write_out(to, FORMATS[form](found, columns))
    if to != options.STDOUT:
        print(f"{to}: {what}, {len(columns)} columns")
