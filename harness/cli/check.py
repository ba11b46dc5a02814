"""Test a submission. Runs the tests only; nothing is timed or recorded.

--for gpumode runs nothing: it says what GPU MODE's service would refuse of the file, and what to change."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from harness.cli import options, result_files
from harness.cli.declare import option
from harness.cli.eval import EvalOrder, RunOrder, evaluate
from harness.cli.watch import watch
from harness.core.checkout import Checkout
from harness.core.decode import part
from harness.core.errors import Exit, HarnessError, UsageError
from harness.core.records import Submission
from harness.core.words import clean_line
from harness.gpumode.front_door import Objection, check_taken, findings
from harness.kinds import settings
from harness.kinds.settings import Asked
from harness.problems.problem import Problem
from harness.problems.submission import read_submission, shown_path
from harness.report.document import Document, UntrustedText, prose

JSON_SCHEMA = 1  # of --for's --json; 1: first


@dataclass(frozen=True, kw_only=True)
class CheckOrder(RunOrder):
    """What `check` was asked to do. `door` names whose service is to take the file."""

    suite: str | None = options.suite("quick")
    cpu_suite: str = "quick"
    watch: bool = option(False, "check again whenever the file, or one that it needs, is saved")
    door: Literal["gpumode"] | None = option(
        None,
        "check instead, without running it, whether GPU MODE's service would take the file; exits with 112 if not",
        "--for",
    )


def run(order: CheckOrder, checkout: Checkout) -> Exit:
    if order.door is not None:
        if given := options.of_a_run(order):
            raise UsageError(f"{given[0]}: --for {order.door} runs nothing; leave it out")
        return hand_in(order, checkout)
    files = result_files.of(order)
    test = part(order, EvalOrder, mode="test", launches=1, record=False, leader=False)
    if not order.watch:
        return evaluate(test, checkout)
    if files.take_stdout:
        raise UsageError("--watch: checks again and again; name a file in place of - for the result")

    def again() -> Exit:
        with files.told_of_errors():
            return evaluate(test, checkout)

    return watch(again, lambda: watched(options.asked(order), checkout))


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


def hand_in(order: CheckOrder, checkout: Checkout) -> Exit:
    """Says what GPU MODE's service would say of the file. Raises UsageError for files that only a run can fill."""
    if more := [file.option for file in result_files.of(order).all if file is not order.json]:
        raise UsageError(f"{more[0]}: --for {order.door} runs nothing; --json FILE keeps what it finds")
    problem, file, _ = settings.named(options.asked(order), checkout)
    check_taken(problem, shown_path(file or problem.submissions_folder, checkout.root))
    submission = read_submission(file or problem.default_submission(), checkout.root, problem.lang)
    found = list(findings(submission.source, submission.name, problem))
    if submission.modules:
        needed = ", ".join(module.name for module in submission.modules)
        found.insert(0, Objection(text=f"it needs {needed}; one file is taken: `make merge` writes it"))
    refused = sum(finding.refused for finding in found)
    code = Exit.INVALID if refused else Exit.OK
    verdict = "would refuse it" if refused else "takes it"
    reasons = f" ({refused} reasons)" if refused > 1 else ""
    said = f"{submission.name}: GPU MODE ({problem.leaderboard}) {verdict}{reasons}"
    document = Document(blocks=(prose(*map(UntrustedText, [*finding_lines(found), said]), whole=True),))
    return result_files.tell(order, document, code, json=lambda: findings_json(problem, submission, found, code))


def findings_json(problem: Problem, submission: Submission, found: Iterable[Objection], code: Exit) -> dict[str, Any]:
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
