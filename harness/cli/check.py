"""The verb `check`: the tests of a suite, without timing; or what GPU MODE's service checks before it runs a file."""

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from harness.cli import options, result_files
from harness.cli.eval import LINES, Options, evaluate
from harness.cli.result_files import ResultFiles
from harness.cli.watch import watch
from harness.core.checkout import Checkout
from harness.core.errors import Exit, HarnessError, UsageError
from harness.core.records import Submission
from harness.core.words import clean_line
from harness.gpumode.front_door import Objection, check_taken, findings
from harness.kinds import settings
from harness.kinds.settings import Asked
from harness.problems.problem import Problem
from harness.problems.submission import read_submission, shown_path

DESCRIPTION = """Test a submission. Runs the tests only; nothing is timed or recorded.

--for gpumode runs nothing: it says what GPU MODE's service would refuse of the file, and what to change."""
GPU_MODE = "gpumode"
JSON_SCHEMA = 1  # of --for's --json; 1: first


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `check`."""
    options.add_file(parser)
    options.add_setting(parser, cpu_suite="quick")
    options.add_data(parser)
    result_files.add_for_ci(parser)
    options.add_evaluator(parser)
    options.add_nodes(parser)
    options.add_unconfined(parser)
    options.add_quiet(parser, LINES)
    options.add_verbose(parser)
    parser.add_argument(
        "--watch", action="store_true", help="check again whenever the file, or one that it needs, is saved"
    )
    parser.add_argument(
        "--for",
        dest="door",
        choices=[GPU_MODE],
        help="check instead, without running it, whether GPU MODE's service would take the file; exits with 112 if not",
    )
    options.add_engine(parser)


def run(namespace: argparse.Namespace, checkout: Checkout) -> Exit:
    """`check`: tests the submission and shows the report."""
    if namespace.door == GPU_MODE:
        if given := options.of_a_run(namespace):
            raise UsageError(f"--{given[0]}: --for {GPU_MODE} runs nothing; leave it out")
        return hand_in(options.asked(namespace), checkout, result_files.of(namespace))
    order = Options(
        asked=options.asked(namespace),
        mode="test",
        quiet=namespace.quiet,
        verbose=namespace.verbose,
        files=result_files.of(namespace),
    )
    if not namespace.watch:
        return evaluate(order, checkout)
    if order.files.take_stdout:
        raise UsageError("--watch: checks again and again; name a file in place of - for the result")

    def again() -> Exit:
        with order.files.told_of_errors():
            return evaluate(order, checkout)

    return watch(again, lambda: watched(order.asked, checkout))


def watched(asked: Asked, checkout: Checkout) -> list[Path]:
    """The files that a check reads of the submission. Where it cannot be read just now, its own file alone."""
    problem, file, _ = settings.named(asked, checkout)
    main = file or problem.default_submission()
    try:
        return [
            main,
            *(checkout.root / module.file for module in read_submission(main, checkout.root, problem.lang).modules),
        ]
    except HarnessError:  # half of it is saved, say
        return [main]


def hand_in(asked: Asked, checkout: Checkout, files: ResultFiles) -> Exit:
    """Says what GPU MODE's service would say of the file. Raises UsageError for files that only a run can fill."""
    if more := [file.option for file in files.all if file is not files.json]:
        raise UsageError(f"{more[0]}: --for {GPU_MODE} runs nothing; --json FILE keeps what it finds")
    problem, file, _ = settings.named(asked, checkout)
    check_taken(problem, shown_path(file or problem.submissions_folder, checkout.root))
    submission = read_submission(file or problem.default_submission(), checkout.root, problem.lang)
    found = list(findings(submission.source, submission.name, problem))
    if submission.modules:
        needed = ", ".join(module.name for module in submission.modules)
        found.insert(0, Objection(text=f"it needs {needed}; one file is taken: `make merge` writes it"))
    refused = sum(finding.refused for finding in found)
    code = Exit.INVALID if refused else Exit.OK
    if files.json:
        files.json.write(findings_json(problem, submission, found, code))
        if files.take_stdout:
            return code
    for line in finding_lines(found):
        print(line)
    verdict = f"would refuse it ({refused} reasons)" if refused > 1 else "would refuse it" if refused else "takes it"
    print(f"{submission.name}: GPU MODE ({clean_line(problem.leaderboard)}) {verdict}")
    return code


def findings_json(problem: Problem, submission: Submission, found: Iterable[Objection], code: Exit) -> dict[str, Any]:
    """The object that --json writes."""
    return {
        "schema": JSON_SCHEMA,
        "problem": problem.name,
        "leaderboard": problem.leaderboard,
        "submission": {"path": submission.name, "sha256": submission.sha256},
        "exit_code": int(code),
        "findings": [{"line": one.line, "refused": one.refused, "text": one.text} for one in found],
    }


def finding_lines(found: Iterable[Objection]) -> Iterator[str]:
    """A line for each finding: `refused  line 7: ...`."""
    for finding in found:
        where = f"line {finding.line}: " if finding.line else ""
        yield clean_line(f"{'refused' if finding.refused else 'warning'}            {where}{finding.text}")
