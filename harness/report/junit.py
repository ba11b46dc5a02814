"""Results as JUnit XML, for CI systems: an evaluation, comparisons, or the error that ended a verb.

Keeps to what Jenkins' schema allows (xunit-plugin, junit-10.xsd) and to what GitLab reads: it shows `classname` as the
suite, tells cases apart by classname and name alone, and shows a failure's text rather than its message. A shape is a
test case. `time` is the median time of a call in seconds, where the problem is ranked by time. What is wrong or held is
a failure; what raised, crashed or timed out is an error; what an earlier failure kept from running is skipped.
"""

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from harness.board.entries import Board
from harness.board.places import Place
from harness.core.errors import Exit
from harness.core.metric_words import words_of
from harness.core.records import CaseResult, Crashed, EvalReport, Held, NotRun, Raised, TimedOut, Wrong
from harness.core.words import case_label, clean, clean_line, percent_text, times_text
from harness.evaluation.compare import Comparison, ratio_text, shown
from harness.judging import verdict
from harness.judging.warnings import text_of
from harness.report.comparison import summary_text
from harness.report.failures import evidence
from harness.report.summary import summary_lines

NAME = "kernel-eval"
Ending = Literal["passed", "failure", "error", "skipped"]


@dataclass(frozen=True, kw_only=True)
class TestCase:
    """A test case. `message` says in a line why it did not pass, `text` has the rest; `said` is what it printed."""

    __test__ = False  # it is no test of ours
    suite: str
    name: str
    ending: Ending = "passed"
    kind: str = ""
    message: str = ""
    text: str = ""
    said: str = ""
    seconds: float | None = None


# ---- what is written -------------------------------------------------------------------------------------------------
def evaluation_xml(report: EvalReport, board: Board | None, place: Place | None) -> str:
    """An evaluation: a suite for its tests and one for its benchmarks."""
    cases = [_case(report, result) for result in report.results]
    lines = [f"{label} {text}" for label, text in summary_lines(report, board, place)]
    if verdict.status(report) == "error":
        suite = f"{report.problem}.{report.suite}.evaluation"
        cases.append(TestCase(suite=suite, name="verdict", ending="error", kind="error", message=lines[0]))
    warnings = [f"warning: {text_of(one)}" for one in report.warnings]
    properties = {
        "run_id": report.run_id,
        "submission": report.submission.name,
        "sha256": report.submission.sha256,
        "machine": report.environment.machine_class if report.environment else "",
    }
    return _xml(cases, properties, [*lines, *warnings], report.started_at)


def comparison_xml(found: Sequence[Comparison], fail_if: Sequence[str]) -> str:
    """Comparisons: a case for every shape, and one for the summary, which fails where `fail_if` has its word."""
    cases = []
    for one in found:
        suite = f"{one.problem}.{one.suite}.compare"
        names, words = f"{one.b.name} against {one.a.name}", words_of(one.metric)
        for row, ratio in zip(one.rows, one.ratios, strict=True):
            said = f"{shown(ratio.word, words)}: A / B is {ratio_text(ratio)}"
            cases.append(TestCase(suite=suite, name=f"{names}: {row.label}", said=said))
        failed = one.is_failed(fail_if)
        cases.append(
            TestCase(
                suite=suite,
                name=f"{names}: summary",
                ending="failure" if failed else "passed",
                kind=shown(one.summary.word, words).lower(),
                message=summary_text(one) if failed else "",
                said=summary_text(one),
            )
        )
    warnings = [f"warning: {text_of(warning, 'A')}" for one in found for warning in one.warnings]
    return _xml(cases, {}, warnings)


def error_xml(message: str, code: Exit) -> str:
    """The error that ended a verb, as the only test case."""
    first, _, rest = clean(message).partition("\n")
    case = TestCase(suite=NAME, name="run", ending="error", kind=f"exit {int(code)}", message=first, text=rest)
    return _xml([case], {}, [])


def _case(report: EvalReport, result: CaseResult) -> TestCase:
    suite = f"{report.problem}.{report.suite}.{result.case.kind}"
    name, outcome = case_label(result), result.outcome
    if isinstance(outcome, NotRun):
        message = "an earlier failure ended the evaluation"
        return TestCase(suite=suite, name=name, ending="skipped", kind="not_run", message=message)
    if isinstance(outcome, Wrong | Held | Raised | Crashed | TimedOut):
        return TestCase(
            suite=suite,
            name=name,
            ending="failure" if isinstance(outcome, Wrong | Held) else "error",
            kind=outcome.type,
            message=verdict.message(outcome),
            text=_evidence_text(report, result),
        )
    if (figures := result.figures) is None:
        return TestCase(suite=suite, name=name)
    words = words_of(figures.metric)
    said = [f"{words.value(figures.value)} {figures.metric.unit}"]
    said += [f"{times_text(figures.ratio.value)} the reference"] if figures.ratio else []
    said += [f"{percent_text(figures.fraction.value)} of the {words.limit}"] if figures.fraction else []
    seconds = figures.value / 1e6 if figures.metric.unit == "us" else None
    return TestCase(suite=suite, name=name, said=", ".join(said), seconds=seconds)


def _evidence_text(report: EvalReport, result: CaseResult) -> str:
    parts = evidence(report, result) if result is verdict.first_failure(report) else []
    return "\n".join(f"{heading}:\n" + "\n".join(lines) for heading, lines in parts)


# ---- XML -------------------------------------------------------------------------------------------------------------
def _xml(cases: Sequence[TestCase], properties: dict[str, str], said: Sequence[str], started_at: str = "") -> str:
    root = ET.Element("testsuites", {"name": NAME, **_counts(cases)})
    names: set[tuple[str, str]] = set()
    for suite in dict.fromkeys(case.suite for case in cases):
        own = [case for case in cases if case.suite == suite]
        skipped = str(sum(case.ending == "skipped" for case in own))
        element = ET.SubElement(root, "testsuite", {"name": _line(suite), **_counts(own), "skipped": skipped})
        if started_at:
            element.set("timestamp", started_at.partition("+")[0])  # without a zone, as Ant's format has it: UTC
        if properties:
            listed = ET.SubElement(element, "properties")
            for name, value in properties.items():
                ET.SubElement(listed, "property", name=name, value=_line(value))
        for case in own:
            _add(element, case, names)
        if said:
            ET.SubElement(element, "system-out").text = "\n".join(map(_line, said))
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _counts(cases: Sequence[TestCase]) -> dict[str, str]:
    endings = [case.ending for case in cases]
    return {
        "tests": str(len(cases)),
        "failures": str(endings.count("failure")),
        "errors": str(endings.count("error")),
        "time": f"{sum(case.seconds or 0.0 for case in cases):.9f}",
    }


def _add(suite: ET.Element, case: TestCase, names: set[tuple[str, str]]) -> None:
    """Adds the case. Of two with one name, readers keep the first, so the second has a number."""
    name, number = _line(case.name), 1
    while (case.suite, name) in names:
        number += 1
        name = f"{_line(case.name)} ({number})"
    names.add((case.suite, name))
    element = ET.SubElement(suite, "testcase", classname=_line(case.suite), name=name)
    if case.seconds is not None:
        element.set("time", f"{case.seconds:.9f}")
    if case.ending != "passed":
        message = _line(case.message)
        ending = ET.SubElement(element, case.ending, type=case.kind, message=message)
        ending.text = clean(f"{message}\n{case.text}").strip()
    if case.said:
        ET.SubElement(element, "system-out").text = _line(case.said)


def _line(text: str) -> str:
    """The text without what XML cannot hold, on one line."""
    return clean_line(text)
