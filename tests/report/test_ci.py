"""What a CI system reads: JUnit XML and Markdown of an evaluation and of comparisons, and the files they go to."""

import contextlib
import io
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
from factories import (
    CRASHED,
    FAILURES,
    GEMM_BENCHMARKS,
    HELD,
    HOSTILE,
    TIMES,
    WRONG_OUTCOME,
    failed_benchmark,
    failed_test,
    report,
    results,
)
from recorded import run

from harness.cli import main
from harness.core.errors import BadSubmissionError, Exit, UsageError
from harness.core.records import NotRun, Passed, Raised
from harness.evaluation import compare, compare_runs
from harness.report import comparison
from harness.report.evaluation import document_of
from harness.report.render import FORMATS

# Of Jenkins' schema (xunit-plugin, junit-10.xsd): what an element may have, and what may stand in it.
ATTRIBUTES = {
    "testsuites": {"name", "time", "tests", "failures", "errors"},
    "testsuite": {"name", "tests", "failures", "errors", "time", "skipped", "timestamp", "hostname", "id", "package"},
    "testcase": {"name", "time", "classname"},
    "failure": {"type", "message"},
    "error": {"type", "message"},
    "skipped": {"type", "message"},
    "property": {"name", "value"},
}
CHILDREN = {
    "testsuites": {"testsuite"},
    "testsuite": {"properties", "testcase", "system-out", "system-err"},
    "testcase": {"skipped", "error", "failure", "system-out", "system-err"},
    "properties": {"property"},
}
TIME = re.compile(r"\d+\.\d+")  # no exponent


def parsed(text: str) -> ET.Element:
    """The document, which fits the schema, adds up, and names no case twice."""
    root = ET.fromstring(text)
    for element in root.iter():
        assert set(element.attrib) <= ATTRIBUTES.get(element.tag, set())
        assert {child.tag for child in element} <= CHILDREN.get(element.tag, set())
        assert TIME.fullmatch(element.get("time", "0.0"))
    suites = [root, *root.iter("testsuite")]
    for suite in suites:
        counts = {name: str(len(list(suite.iter(name)))) for name in ("testcase", "failure", "error", "skipped")}
        assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == (
            counts["testcase"],
            counts["failure"],
            counts["error"],
        )
        assert suite.get("skipped", counts["skipped"]) == counts["skipped"]
    names = [(case.get("classname"), case.get("name")) for case in root.iter("testcase")]
    assert len(set(names)) == len(names), "readers keep the first of two alike"
    return root


def test_a_passed_evaluation_has_a_suite_of_tests_and_one_of_benchmarks_with_their_times() -> None:
    root = parsed(FORMATS["junit"](document_of(report())))
    assert [suite.get("name") for suite in root] == ["gemm_rs.cpu.test", "gemm_rs.cpu.benchmark"]
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("6", "0", "0")
    first = root.findall("testsuite/testcase")[3]
    assert (first.get("classname"), first.get("name")) == ("gemm_rs.cpu.benchmark", "m 64 n 7168 k 18432")
    assert float(first.get("time", "")) == pytest.approx(812.5e-6, rel=0.05)
    assert re.fullmatch(r"8\d\d us, 2\.\d+x the reference, 1\d\.\d% of the limit", first.findtext("system-out", ""))
    assert "verdict pass: right in 3 tests" in root.findtext("testsuite/system-out", "")
    assert root.find("testsuite").get("timestamp") == "2026-05-01T12:00:00"  # type: ignore[union-attr]


@pytest.mark.parametrize("outcome", FAILURES, ids=lambda outcome: outcome.type)
@pytest.mark.parametrize("failed", [failed_test, failed_benchmark])
def test_what_is_wrong_or_held_fails_and_what_raised_crashed_or_hung_is_an_error(failed, outcome) -> None:  # type: ignore[no-untyped-def]
    root = parsed(FORMATS["junit"](document_of(failed(outcome))))
    tag = "failure" if outcome in (WRONG_OUTCOME, HELD) else "error"
    (found,) = [element for name in ("failure", "error") for element in root.iter(name)]
    assert (found.tag, found.get("type")) == (tag, outcome.type)
    assert found.get("message")
    assert found.get("message", "") in (found.text or ""), "GitLab shows the text alone"
    assert len(list(root.iter("skipped"))) == sum(isinstance(one.outcome, NotRun) for one in failed(outcome).results)


def test_a_failure_has_its_traceback_and_nothing_that_xml_cannot_hold() -> None:
    outcome = Raised(rank=1, message=f"ValueError: \x00\ufffe{HOSTILE}", traceback=f"File x\n{HOSTILE}<&]]>")
    text = FORMATS["junit"](document_of(failed_test(outcome)))
    (found,) = parsed(text).iter("error")
    assert "traceback of rank 1:\nFile x" in (found.text or "")
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ufffe]", text)


def test_shapes_with_one_name_are_told_apart() -> None:
    twice = results([Passed()], TIMES[:2], (GEMM_BENCHMARKS[0], GEMM_BENCHMARKS[0]))
    root = parsed(FORMATS["junit"](document_of(report(twice))))
    assert [case.get("name") for case in root.iter("testcase")][1:] == [
        "m 64 n 7168 k 18432",
        "m 64 n 7168 k 18432 (2)",
    ]


def test_an_evaluation_that_ended_for_no_fault_of_the_submission_does_not_look_passed() -> None:
    root = parsed(FORMATS["junit"](document_of(report(results([Passed()] * 3, [NotRun()] * 3)))))
    assert root.get("errors") == "1"


def compared(times: float) -> compare.Comparison:
    return compare_runs.recorded(run(3), run(4, times, submission=replace(report().submission, name="mine.py")), 0.02)


def test_a_comparison_fails_where_the_command_does() -> None:
    slower = compared(3.0)
    for fail_if, failures in (([], "0"), (["faster"], "0"), (["slower"], "1")):
        root = parsed(FORMATS["junit"](comparison.document_of([slower], fail_if)))
        assert root.get("failures") == failures
        assert (compare.exit_code([slower], fail_if) == Exit.FAIL_IF) == (failures == "1")
    last = list(root.iter("testcase"))[-1]
    assert last.get("name") == "mine.py against submissions/gemm_rs/submission.py: summary"
    assert "B is SLOWER" in last.findtext("failure", "")
    assert len(list(root.iter("testcase"))) == 4, "three shapes and the summary"


def test_the_markdown_of_an_evaluation_has_its_verdict_and_the_table_of_shapes() -> None:
    text = FORMATS["markdown"](document_of(report()))
    assert text.startswith("### `gemm_rs`  `submissions/gemm_rs/submission.py`\n")
    assert "- **verdict** `pass: right in 3 tests and 3 benchmarks on 8 ranks`" in text
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert table[0] == "| shape | ref us | time us | speedup | limit us | limit % | spread | n |"
    assert len(table) == 2 + 3 + 1
    assert {line.count("|") for line in table} == {9}


def test_what_a_submission_says_cannot_format_the_markdown() -> None:
    """Not even by ticks, of which the fence has more."""
    evil = "```\n# pass\n@everyone <img src=x> | [a](b)\n````"
    named = replace(report().submission, name="`x` @team |.py")
    text = FORMATS["markdown"](
        document_of(replace(failed_test(Raised(rank=0, message=evil, traceback=evil)), submission=named))
    )
    fence = next(line for line in text.splitlines() if line.endswith("`text"))
    before, *blocks = text.split(f"{fence}\n")
    inside, after = zip(*(block.split(f"\n{fence[:-4]}\n", 1) for block in blocks), strict=True)
    assert (len(fence), len(blocks), "@everyone" in inside[0], "@everyone" in "".join(after)) == (9, 2, True, False)
    assert "`` `x` @team |.py ``" in before


def test_the_markdown_of_a_comparison_has_a_row_a_shape_and_the_word() -> None:
    text = FORMATS["markdown"](comparison.document_of([compared(3.0)]))
    assert "- **summary** B is SLOWER" in text
    assert len([line for line in text.splitlines() if line.startswith("|")]) == 2 + 3


def test_every_file_gets_the_result_or_the_error(tmp_path: Path) -> None:
    words = ["check", "a2a", "--json", "a.json", "--markdown", "a.md", "--junit", "a.xml"]
    files = main.parse([str(tmp_path / one) if one.startswith("a.") else one for one in words]).files
    files.check()
    with pytest.raises(BadSubmissionError), files.told_of_errors():
        raise BadSubmissionError("mine.py:3: no such name\x1b[2J")
    (error,) = parsed((tmp_path / "a.xml").read_text()).iter("error")
    assert (error.get("type"), error.get("message")) == ("exit 112", "mine.py:3: no such name")
    assert "mine.py:3" in (tmp_path / "a.md").read_text()
    assert '"exit_code": 112' in (tmp_path / "a.json").read_text()
    (junit,) = (file for file in files.all if file.what == "junit")
    with contextlib.suppress(UsageError), files.told_of_errors():
        junit.write("whole")
        raise UsageError("later")
    assert (tmp_path / "a.xml").read_text() == "whole", "a result that was written stays"
    assert '"error": "later"' in (tmp_path / "a.json").read_text()


def test_two_results_cannot_both_be_standard_output() -> None:
    with pytest.raises(UsageError, match="--json - and --junit -: only one of them can be standard output"):
        main.parse(["eval", "a2a", "--json", "-", "--junit", "-"]).files.check()


@pytest.mark.parametrize("verb", ["eval", "check", "compare", "competition", "verify", "settle", "rejudge", "board",
                                  "history", "roofline", "problems", "doctor"])  # fmt: skip
def test_every_verb_with_a_result_writes_it_as_json_by_one_option(verb: str) -> None:
    words = [verb, *(["x"] if verb in ("compare", "competition", "verify") else []), "--json", "-"]
    assert main.parse(words).files.take_stdout


@pytest.mark.parametrize(
    ("verb", "form"), [("board", "json"), ("board", "csv"), ("history", "json"), ("roofline", "json")]
)
def test_the_option_of_before_still_works_and_is_not_in_the_help(
    verb: str, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (file,) = main.parse([verb, "--format", form]).files.all
    assert (file.what, file.is_stdout) == (form, True)
    assert main.parse([verb, "--format", "table"]).files.all == ()
    with pytest.raises(SystemExit):
        main.parse([verb, "--help"])
    assert "--format" not in capsys.readouterr().out


def test_a_crash_is_written_with_its_log() -> None:
    (found,) = parsed(FORMATS["junit"](document_of(failed_test(CRASHED)))).iter("error")
    assert "the end of rank 5's log:\nabout to touch what is not mine" in (found.text or "")
    assert io.StringIO(found.text or "").readline().startswith("ended by signal 11")
