"""The verb `check`: the tests of a suite, without timing; or what GPU MODE's service checks before it runs a file."""

import argparse
from collections.abc import Iterable, Iterator

from harness.cli import options
from harness.cli.eval import LINES, Options, evaluate
from harness.core.checkout import Checkout
from harness.core.errors import Exit
from harness.core.words import clean_line
from harness.gpumode.front_door import Finding, check_taken, findings
from harness.kinds import settings
from harness.kinds.settings import Asked
from harness.problems.submission import read_submission, shown_path

DESCRIPTION = """Is it right? Runs the tests only; nothing is timed or recorded.

--for gpumode runs nothing: it says what GPU MODE's service would refuse of the file, and what to change."""
GPU_MODE = "gpumode"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `check`."""
    options.add_file(parser)
    options.add_setting(parser, cpu_suite="quick")
    options.add_evaluator(parser)
    options.add_unconfined(parser)
    options.add_quiet(parser, LINES)
    options.add_verbose(parser)
    parser.add_argument(
        "--for",
        dest="door",
        choices=[GPU_MODE],
        help="check instead, without running it, whether GPU MODE's service would take the file; exits with 112 if not",
    )


def run(namespace: argparse.Namespace, checkout: Checkout) -> Exit:
    """`check`: tests the submission and shows the report."""
    if namespace.door == GPU_MODE:
        return hand_in(options.asked(namespace), checkout)
    order = Options(
        asked=options.asked(namespace),
        mode="test",
        quiet=namespace.quiet,
        verbose=namespace.verbose,
        json=namespace.json,
    )
    return evaluate(order, checkout)


def hand_in(asked: Asked, checkout: Checkout) -> Exit:
    """Prints what GPU MODE's service would say of the file."""
    problem, file, _ = settings.named(asked, checkout)
    check_taken(problem, shown_path(file or problem.submissions_folder, checkout.root))
    submission = read_submission(file or problem.default_submission(), checkout.root)
    found = list(findings(submission.source, submission.name, problem))
    if submission.modules:
        needed = ", ".join(module.name for module in submission.modules)
        found.insert(0, Finding(text=f"it needs {needed}; one file is taken: `make bundle` writes it"))
    for line in finding_lines(found):
        print(line)
    refused = sum(finding.refused for finding in found)
    verdict = f"would refuse it ({refused} reasons)" if refused > 1 else "would refuse it" if refused else "takes it"
    print(f"{submission.name}: GPU MODE ({clean_line(problem.leaderboard)}) {verdict}")
    return Exit.INVALID if refused else Exit.OK


def finding_lines(found: Iterable[Finding]) -> Iterator[str]:
    """A line for each finding: `refused  line 7: ...`."""
    for finding in found:
        where = f"line {finding.line}: " if finding.line else ""
        yield clean_line(f"{'refused' if finding.refused else 'warning'}            {where}{finding.text}")
