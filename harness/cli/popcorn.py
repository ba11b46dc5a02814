"""Our evaluator where KernelBot expects its own: `python -m harness.popcorn <mode> <cases-file>` in a staged folder.

Knows KernelBot's format and nothing of ranks or clocks: the cases file, the lines on POPCORN_FD, the exit codes (after
gpu-mode/kernelbot src/libkernelbot/run_eval.py and gpu-mode/reference-kernels problems/amd_distributed/eval.py, read
2026-11). Of the staged files only submission.py is run, and only by candidate ranks; reference.py is read as text, to
recognise the problem, and inputs and verdicts then come from THIS checkout's reference of that problem.

KernelBot's runner reads the lines only after this process has ended, line by line, split wherever Python's splitlines
does. So what is written must fit into the pipe, and a value is always one line.
"""

import argparse
import ast
import dataclasses
import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn, get_type_hints

from harness.board import runs
from harness.cli import declare
from harness.cli.declare import argument, option
from harness.core import accounts, processes
from harness.core.checkout import Checkout
from harness.core.decode import DecodeError, as_bad_file, decode
from harness.core.errors import BadFileError, Exit, HarnessError, UsageError, os_error_as
from harness.core.records import Case, Crashed, EvalReport, Mode, Raised
from harness.core.words import clean
from harness.core.yaml_file import read_yaml
from harness.evaluation.evaluate import evaluate
from harness.gpumode import result_lines
from harness.gpumode.folder import FILE
from harness.gpumode.result_lines import CaseLine, Pairs, key_of, parse_cases
from harness.judging import verdict
from harness.judging.warnings import text_of
from harness.kinds.kind import Order, Setting
from harness.kinds.op.plan import make_plan
from harness.kinds.settings import DEVICES, check_seconds
from harness.machine import host
from harness.problems.problem import MAX_INT, OFFICIAL, Marks, Problem, Suite, as_params, check_ranks
from harness.problems.python_text import UNREADABLE
from harness.problems.shape_file import find, problem_names
from harness.problems.submission import read_submission
from harness.report.console import new_console
from harness.report.progress import ProgressLine

DEVICE_FAILED, NO_RESULT_FD = 110, 111  # exit codes that only KernelBot's evaluators have; for the others see Exit
STRINGS = "HARNESS_POPCORN_STRINGS"  # the variable that says what --words-are-true does
TRACES = "profile_data"  # what KernelBot's runner calls the folder that it takes traces from
MARGIN_S = 30.0  # our deadline comes before the runner's, which would leave no result
PRINTED_CHARS = 16_000  # KernelBot keeps 16,384 of what is printed
MAX_SEED = 2**63 - 1 - 4096  # a rank adds its number, and torch takes 64 bits
DEVICE_ERROR = re.compile(r"\b(?:CUDA|HIP|NCCL|RCCL)(?: driver)? error\b")
TIMEOUTS = ("test_timeout", "benchmark_timeout", "ranked_timeout")  # the keys of task.yml
WORDS = {"true": True, "false": False}
EPILOG = f"""\
environment:
  POPCORN_FD     the file descriptor that results are written to; needed
  POPCORN_SEED   a secret that every case's seed is combined with
  POPCORN_GPUS   how many GPUs there are for the ranks (on CPU cores it does not matter)

exit codes:
  0 passed   112 the submission is wrong, raised or crashed   113 bad cases file, or no problem that is known here
  114 timed out   110 a CUDA, HIP or NCCL call failed   111 no POPCORN_FD   2 bad arguments   130 interrupted
  1 the harness or the machine failed

Mode profile writes each case's table as benchmark.I.report, and its traces to tmp*/{TRACES}/, which KernelBot's runner
makes, or else to {TRACES}/. A failed case's report is its error. Mode private is no mode of an evaluator: KernelBot's
runner makes test, benchmark and leaderboard of it. Docs: docs/gpumode.md.
"""


def cases_of(
    problem: Problem, lines: Sequence[CaseLine], mode: Mode, secret: int | None, words_are_true: bool
) -> tuple[Case, ...]:
    """The cases, checked as a shape file's are. With `words_are_true` a switch is on whatever the word says, as in
    GPU MODE's published evaluator, which keeps `False` a (true) text. Raises DecodeError with the line's number."""
    hints = get_type_hints(problem.params_type)
    cases: list[Case] = []
    for line in lines:
        where = f"line {line.number}"
        values: dict[str, Any] = dict(line.values)
        for key, value in line.values.items():
            if hints.get(key) is bool:
                values[key] = _switch(value, words_are_true)
        numbers = {}
        for key, most in (("world_size", MAX_INT), ("seed", MAX_SEED)):
            numbers[key] = decode(int, values.pop(key, 1), f"{where}.{key}")  # one rank's cases have no world_size
            if key == "seed" and secret is not None:
                numbers[key] = result_lines.combined_seed(numbers[key], secret)
            if not 0 <= numbers[key] <= most:
                raise DecodeError(f"{where}.{key}", f"expected 0 to {most}, found {numbers[key]}")
        for key, value in values.items():
            if isinstance(value, int) and value > MAX_INT:
                raise DecodeError(f"{where}.{key}", f"too large; choose at most {MAX_INT}")
        params = decode(problem.params_type, values, where)
        if numbers["world_size"] < 1:
            raise DecodeError(f"{where}.world_size", "expected 1 or more ranks, found 0")
        if cases and numbers["world_size"] != cases[0].world_size:
            raise DecodeError(
                f"{where}.world_size",
                f"{numbers['world_size']} after {cases[0].world_size}: the cases of one file run on the same ranks; "
                "split the file",
            )
        check_ranks(params, numbers["world_size"], problem.multi_gpu, where)
        given = as_params(params, problem.params_type)
        cases.append(Case(kind=key_of(mode), params=given, short=problem.short, **numbers))
    return tuple(cases)


def recognise(lines: Sequence[CaseLine], reference: str, checkout: Checkout) -> Problem:
    """The problem of this checkout that the staged one is: by the keys of its cases, by its generate_input's arguments
    and by what its reference calls. Raises BadFileError where it is none."""
    keys = set(lines[0].values)
    try:
        tree = ast.parse(reference)
    except UNREADABLE as error:
        raise BadFileError(f"reference.py: Python cannot read it: {error}") from None
    found = (getattr(node, field, None) for node in ast.walk(tree) for field in ("id", "attr", "name"))
    names = {name for name in found if isinstance(name, str)}
    arguments = _arguments(tree, "generate_input")
    known = [find(name, checkout) for name in problem_names(checkout)]
    fitting = [one for one in known if all(_has(one, line.values.keys()) for line in lines)]
    odd = next((line.number for line in lines if line.values.keys() != keys), None)
    if odd is not None and not fitting:
        raise BadFileError(f"line {odd}: other keys than line 1 ({', '.join(sorted(keys))})")
    ours = [one for one in fitting if reference == (one.folder / "reference.py").read_text(encoding="utf-8")]
    has_rank = "rank" in arguments
    marked = [one for one in fitting if has_rank and _has(one, arguments - {"rank"}) and _marked(one.marks, names)]
    if len(recognised := ours or marked) == 1:
        return recognised[0]
    why = f"no problem here has cases of {', '.join(sorted(keys))}"
    if fitting:
        alike = " or ".join(problem.name for problem in fitting)
        why = f"its cases are as those of {alike}, but reference.py is not that problem's as this checkout has it"
    listed = ", ".join(one.name for one in known)
    raise BadFileError(
        f"the staged problem is none that is known here ({listed}): {why}. A problem's own reference is not "
        "run; `python -m harness problems` lists what there is"
    )


def _switch(value: int | float | str, words_are_true: bool) -> object:
    """What a switch's value means; what is no switch is left for decode to refuse."""
    if isinstance(value, str):
        return True if words_are_true else WORDS.get(value.lower(), value)
    return bool(value) if type(value) is int and value in (0, 1) else value


def _has(problem: Problem, keys: Set[str]) -> bool:
    """Whether the problem's cases may have these keys: all of its parameters, but for those with defaults."""
    more = {"seed", "world_size"} if problem.multi_gpu else {"seed"}
    fields = dataclasses.fields(problem.params_type)
    least = {field.name for field in fields if field.default is dataclasses.MISSING}
    return least | more <= keys <= {field.name for field in fields} | more


def _marked(marks: Marks | None, names: Set[str]) -> bool:
    return marks is not None and marks.lacks not in names and any(name.startswith(marks.has) for name in names)


def _arguments(tree: ast.Module, function: str) -> set[str]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return {argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}
    return set()


# ---- the evaluation ----------------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class PopcornOrder:
    mode: Mode = argument("what KernelBot asks for")
    cases: Path = argument("a case a line: `key: value; key: value`", metavar="cases-file")
    device: str | None = option(None, "default: GPUs where there are any", choices=DEVICES)
    timeout: float | None = option(None, "default: the problem's, less half a minute", metavar="SECONDS")
    seconds: float | None = option(None, "about how long each benchmark is measured (default: the problem's)")
    words_are_true: bool = option(
        False, f"read `has_bias: False` as GPU MODE's published evaluator does, as true (also: {STRINGS}=1)"
    )


def parser() -> argparse.ArgumentParser:
    made = declare.Parser(
        prog="python -m harness.popcorn",
        description="Evaluates the submission.py of a folder staged by KernelBot, as its eval.py would, by this "
        "checkout's references, verdicts and clocks.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    declare.add(made, run)
    return made


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Evaluates and exits with KernelBot's codes."""
    order = declare.order_of(run, parser().parse_args(argv))
    processes.interrupt_on_signals()
    fd = result_lines.result_fd(os.environ)
    if fd is None:
        told = "POPCORN_FD names no descriptor that results can be written to"
        print(f"error: {told}; KernelBot's runner sets it, and POPCORN_FD=1 shows them here", file=sys.stderr)
        sys.exit(NO_RESULT_FD)
    pairs, code = run(order, os.environ, Checkout.here())
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # what is known is written, in at most STALL_S
    try:
        result_lines.send(fd, result_lines.encoded(pairs, result_lines.room_bytes(fd)))
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)
        code = code or int(error.exit_code)
    sys.exit(code)


def run(order: PopcornOrder, environ: Mapping[str, str], checkout: Checkout) -> tuple[Pairs, int]:
    mode, words_are_true = order.mode, order.words_are_true or environ.get(STRINGS) == "1"
    specs: list[str] = []
    try:
        with as_bad_file(order.cases):
            lines = parse_cases(_text(order.cases))
            specs = [line.spec for line in lines]
            problem = recognise(lines, _text(Path("reference.py")), checkout)
            cases = cases_of(problem, lines, mode, _number(environ, "POPCORN_SEED"), words_are_true)
        report = _evaluated(order, problem, cases, _number(environ, "POPCORN_GPUS"), checkout)
        _tell(report, specs)
        passed = verdict.status(report) == "pass"
        return result_lines.report_pairs(specs, report.results, passed), _exit_code(report)
    except HarnessError as error:
        print(f"error: {clean(str(error))}", file=sys.stderr)
        code = DEVICE_FAILED if DEVICE_ERROR.search(str(error)) else int(error.exit_code)
        return result_lines.unfinished_pairs(mode, specs, str(error)), code
    except (OSError, MemoryError) as error:
        print(f"error: {host.refusal(error)}", file=sys.stderr)
        return result_lines.unfinished_pairs(mode, specs, host.refusal(error)), int(Exit.ERROR)
    except KeyboardInterrupt:
        print("interrupted: every rank is ended", file=sys.stderr)
        return result_lines.unfinished_pairs(mode, specs, "interrupted"), int(Exit.INTERRUPTED)


def _evaluated(
    order: PopcornOrder, problem: Problem, cases: tuple[Case, ...], gpu_limit: int | None, checkout: Checkout
) -> EvalReport:
    gpus, world_size = host.gpus(), cases[0].world_size
    device = order.device or gpus.device
    if device not in ("cpu", gpus.device):
        raise UsageError(f"--device {device}: this machine has {gpus.told}; --device {gpus.device} runs here")
    most = gpus.count if gpu_limit is None else min(gpus.count, gpu_limit)
    if device != "cpu" and world_size > most:
        raise BadFileError(f"{order.cases}: world_size {world_size}: there are {most} GPUs for as many ranks")
    submission = read_submission(Path("submission.py"), checkout.root)
    where = f"{world_size} ranks on {device}"
    print(f"{problem.name} ({problem.leaderboard}) by this checkout's reference, {where}", file=sys.stderr)
    suite = _suite(problem, order, cases, Path(FILE))
    setting = Setting(problem=problem, suite=suite, device=device, world_size=world_size)
    plan = make_plan(Order(setting=setting, submission=submission, mode=order.mode, author=accounts.login()))
    with ProgressLine(new_console(stderr=True)) as progress:
        report = evaluate(plan, progress)
    return runs.store_traces(report, traces_folder(Path())) if order.mode == "profile" else report


def traces_folder(staged: Path) -> Path:
    """Where traces belong. KernelBot's runner makes a temporary folder in the staged one for each profile, with a
    profile_data in it, and sends that as a zip; it tells the evaluator nothing of it. The newest counts. Without one,
    it is profile_data in the staged folder."""
    made = [path for path in staged.glob(f"tmp*/{TRACES}") if path.is_dir()]
    return max(made, key=lambda path: path.stat().st_mtime_ns, default=staged / TRACES)


def timeouts(task: Path) -> dict[str, float | None]:
    """Those of a staged task.yml, in seconds, of which KernelBot's runner tells an evaluator nothing; none where it is
    not staged. Raises BadFileError for what is no number."""

    def of_task(value: object) -> object:
        return {name: value[name] for name in TIMEOUTS if name in value} if isinstance(value, dict) else {}

    return read_yaml(dict[str, float | None], task, prepare=of_task) if task.is_file() else {}


def _suite(problem: Problem, order: PopcornOrder, cases: tuple[Case, ...], task: Path) -> Suite:
    """The problem's official suite with these cases alone, and with the timeouts of a staged task.yml."""
    check_seconds("--timeout", order.timeout)
    check_seconds("--seconds", order.seconds)
    official, said = problem.suite(OFFICIAL), timeouts(task)

    def limit_s(published_s: float) -> float:
        return order.timeout or max(published_s - MARGIN_S, published_s / 2)

    return replace(
        official,
        tests=cases if order.mode == "test" else (),
        benchmarks=() if order.mode == "test" else cases,
        test_timeout_s=limit_s(said.get("test_timeout") or official.test_timeout_s),
        benchmark_timeout_s=limit_s(said.get("benchmark_timeout") or official.benchmark_timeout_s),
        ranked_timeout_s=limit_s(said.get("ranked_timeout") or official.ranked_timeout_s),
        benchmark_s=order.seconds or official.benchmark_s,
        drawn=0,
    )


def _exit_code(report: EvalReport) -> int:
    failed = verdict.first_failure(report)
    if (
        failed is not None
        and isinstance(failed.outcome, Raised | Crashed)
        and DEVICE_ERROR.search(result_lines.error_text(failed))
    ):
        return DEVICE_FAILED
    return int(verdict.exit_code(report))


def _tell(report: EvalReport, specs: Sequence[str]) -> None:
    """What the submission printed goes to stdout, as if it had run here; what there is to say of it to stderr."""
    if said := result_lines.printed(report):
        print(said[:PRINTED_CHARS])
    for index, (spec, result) in enumerate(zip(specs, report.results, strict=True)):
        if verdict.case_status(result) == "fail":
            print(f"{result.case.kind} {index} ({spec}): {clean(result_lines.error_text(result))}", file=sys.stderr)
    for warning in report.warnings:
        print(f"warning: {clean(text_of(warning))}", file=sys.stderr)


def _text(path: Path) -> str:
    with os_error_as(BadFileError, f"{path}: cannot be read"):
        return path.read_text(encoding="utf-8")


def _number(environ: Mapping[str, str], name: str) -> int | None:
    """The variable's whole number; None where it is not set or empty."""
    text = environ.get(name, "").strip()
    if text and not re.fullmatch("[0-9]{1,40}", text):
        raise UsageError(f"{name}={text}: expected a whole number")
    return int(text) if text else None
