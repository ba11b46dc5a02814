"""The result for programs: its schema, its stages, what is rewarded and what is not."""

import json
import re
from dataclasses import replace
from pathlib import Path

import jsonschema_rs
import pytest
from factories import CRASHED, FAILURES, HELD, RAISED, TIMED_OUT, TIMES, failed_benchmark, failed_test, report, results

from harness.agents.hints import BY_CHECK
from harness.agents.made import refused, result_of, rewarded
from harness.agents.result import Conditions, Interval, Result
from harness.agents.reward import log2_speedup, sol_score
from harness.agents.schema import json_schema
from harness.cli import eval_many, main
from harness.cli.eval_many import Tally, line_of
from harness.core.checkout import ROOT, Checkout
from harness.core.decode import decode, encode
from harness.core.errors import BadSubmissionError, Exit, HarnessError, UsageError
from harness.core.json_file import line_of as json_line
from harness.core.records import EvalReport, Outcome, Passed, Warning, Wrong
from harness.kinds.kind import BROKE_ITS_JUDGE
from harness.ranks.failure import OUTSIDE

A2A = Conditions(problem="a2a")
REPORTS = [
    report(),
    report(results([Passed()] * 3, []), mode="test"),
    *map(failed_test, FAILURES),
    *map(failed_benchmark, FAILURES),
]


@pytest.mark.parametrize("found", [*map(result_of, REPORTS), refused(HarnessError("the disk is full"), A2A)])
def test_every_result_fits_the_schema_and_is_read_back(found: Result) -> None:
    value = json.loads(json.dumps(encode(found)))
    jsonschema_rs.validate(json_schema(), value)
    assert decode(Result, value) == found
    assert found.next


def test_the_schema_in_docs_is_this_one() -> None:
    """`python -m harness.agents.schema > docs/result.schema.json` writes it."""
    assert json.loads((ROOT / "docs" / "result.schema.json").read_text()) == json_schema()


def test_the_schema_refuses_what_is_no_result() -> None:
    value = encode(result_of(report())) | {"verdict": "fine"}
    with pytest.raises(jsonschema_rs.ValidationError):
        jsonschema_rs.validate(json_schema(), value)


@pytest.mark.parametrize("found", [*map(failed_test, FAILURES), *map(failed_benchmark, FAILURES)])
def test_what_does_not_pass_earns_nothing(found: EvalReport) -> None:
    """Held too."""
    result = result_of(found)
    assert (result.ranked, result.reward.value) == (False, 0.0)
    assert result.reward.why
    assert result.verdict != "pass"


@pytest.mark.parametrize(
    "found",
    [
        report(confined=False),
        report(data="ab" * 32),
        report(results([Passed()] * 3, []), mode="test"),
    ],
)
def test_what_passes_and_is_not_ranked_earns_nothing(found: EvalReport) -> None:
    result = result_of(found)
    assert (result.verdict, result.ranked, result.reward.value) == ("pass", False, 0.0)


def test_what_is_left_out_on_the_quick_shapes_earns_nothing() -> None:
    result = result_of(report(), is_final=False)
    assert (result.verdict, result.ranked, result.reward.value) == ("pass", False, 0.0)
    assert result.figures is not None


def test_a_reward_without_a_rank_is_refused() -> None:
    found = result_of(report())
    with pytest.raises(ValueError, match="not ranked"):
        replace(found, ranked=False)
    with pytest.raises(ValueError, match="the verdict is wrong"):
        replace(found, verdict="wrong")


def test_the_lower_end_of_the_interval_earns_less() -> None:
    value, lower = result_of(report()).reward.value, result_of(report(), lower=True).reward.value
    assert 0 <= lower < value
    sol, sol_lower = (result_of(report(), "sol_score", end).reward.value for end in (False, True))
    assert 0 < sol_lower < sol < 1


def test_a_result_without_an_interval_has_no_lower_end() -> None:
    figures = result_of(report()).figures
    assert figures is not None
    assert figures.speedup is not None
    found = rewarded(replace(figures, speedup=replace(figures.speedup, low=None, high=None)), "log2_speedup", True)
    assert (found.value, found.why) == (0.0, "no interval: measure longer")


@pytest.mark.parametrize("lower", [False, True])
def test_the_reference_by_its_text_earns_what_the_reference_is_worth(lower: bool) -> None:
    """Whatever a busy machine measured."""
    found = replace(report(), warnings=(Warning(code="reference"),))
    assert result_of(found, "log2_speedup", lower).reward.value == 0
    assert result_of(found, "sol_score", lower).reward.value == pytest.approx(0.5)
    assert (result_of(found).speedup, result_of(report()).is_reference) == (1.0, False)


def test_a_reward_of_a_speedup_whose_interval_does_not_exclude_1_is_doubtful() -> None:
    figures = result_of(report()).figures
    assert figures is not None
    assert figures.speedup is not None
    wide, none = (replace(figures, speedup=Interval(value=14.0, low=low)) for low in (0.5, None))
    sure = replace(figures, speedup=Interval(value=14.0, low=9.0))
    found = [rewarded(one, "log2_speedup", False) for one in (wide, none, sure)]
    assert ["doubtful" in one.why for one in found] == [True, True, False]
    assert rewarded(wide, "log2_speedup", True).value == 0


def test_the_anchors_of_the_functions() -> None:
    assert log2_speedup(4.0, 1.0, [])[0] == 2
    assert log2_speedup(4.0, 0.5, [])[0] == 1
    assert log2_speedup(0.5, 1.0, [])[0] == 0  # right and slow: not below what is wrong
    assert sol_score(1.0, 1.0, [(10.0, 10.0, 2.0)])[0] == 0.5
    assert sol_score(5.0, 1.0, [(2.0, 10.0, 2.0)])[0] == 1
    assert sol_score(2.0, 1.0, [(6.0, 10.0, 2.0), (2.0, 10.0, 2.0)])[0] == pytest.approx((2 / 3 + 1) / 2)
    assert sol_score(1.0, 1.0, [(4.0, 1.0, 2.0)])[0] == 0.5  # a reference that is not slower than the limit
    assert sol_score(1.0, 1.0, [(4.0, 1.0, None)])[0] == 0


@pytest.mark.parametrize(
    ("found", "stages"),
    [
        (report(), ("pass", "pass", "pass")),
        (failed_test(RAISED), ("pass", "fail", "not_run")),
        (failed_benchmark(HELD), ("pass", "pass", "fail")),
        (failed_benchmark(RAISED), ("pass", "fail", "not_run")),
        (report(results([RAISED], []), phases_s={"start": 1.0, "import": 0.1}), ("fail", "not_run", "not_run")),
    ],
)
def test_stages_say_how_far_it_came(found: EvalReport, stages: tuple[str, str, str]) -> None:
    result = result_of(found)
    assert (result.stages.compile.status, result.stages.correct.status, result.stages.fast.status) == stages


def test_no_profile_is_advised_where_there_is_none() -> None:
    """Of a solver or a training run `--mode profile` is refused."""
    assert "--mode profile" in result_of(report()).next
    assert "--mode profile" not in result_of(report(checker="exact")).next


@pytest.mark.parametrize(("outcome", "word"), [(RAISED, "IndexError"), (CRASHED, "about to touch")])
def test_evidence_has_what_was_printed_without_control_characters(outcome: Outcome, word: str) -> None:
    result = result_of(failed_test(outcome))
    assert result.evidence is not None
    assert word in result.evidence.detail
    assert "\x1b" not in json.dumps(encode(result.evidence))
    assert result.evidence.where.startswith("test: ")


def test_evidence_says_of_several_ranks_which_one_failed_and_where_each_stood() -> None:
    """Eight stacks in full are more than evidence has room for: those in the middle would be left out."""
    found = result_of(failed_test(RAISED)).evidence
    assert found is not None
    assert found.message.startswith("rank 3: IndexError")
    frame = '  File "{}", line {} in {}\n'.format
    deep = frame("/x/site-packages/torch/distributed/c10d.py", 9, "all_reduce") * 12 + frame("/me/my.py", 8, "solution")
    stacks = (*[f"Current thread 0x00:\n{deep}"] * 3, f"Current thread 0x01:\n  ({OUTSIDE})\n", *[deep] * 4)
    found = result_of(failed_test(replace(TIMED_OUT, stacks=stacks))).evidence
    assert found is not None
    assert f"rank 3 {OUTSIDE}:" in found.detail
    assert "ranks 0-2 in all_reduce (my.py:8):" in found.detail
    assert "characters in all" not in found.detail


OURS = replace(RAISED, traceback=RAISED.traceback.replace("submission.py", "/checkout/harness/kinds/trace/rank.py"))


@pytest.mark.parametrize(
    ("outcome", "place"), [(RAISED, "detail"), (OURS, "message"), (replace(CRASHED, log_tail=""), "message")]
)
def test_the_hint_of_a_failed_import_names_what_is_there(outcome: Outcome, place: str) -> None:
    """A file that ends its process has no traceback; where the harness refuses what it defines, that is ours."""
    found = result_of(report(results([outcome], []), phases_s={"start": 1.0, "import": 0.1}))
    assert f"evidence.{place}" in found.next
    assert getattr(found.evidence, place)


def test_the_hint_of_a_result_that_the_harness_refuses_names_no_traceback() -> None:
    assert "as evidence.message says" in result_of(failed_test(OURS)).next
    mine = replace(RAISED, traceback=RAISED.traceback.replace("submission.py", "/home/me/harness/mine.py"))
    for own in (RAISED, mine):
        assert "traceback" in result_of(failed_test(own)).next
    adapted = replace(RAISED, traceback=RAISED.traceback.replace("submission.py", "adapter.py"))
    assert result_of(failed_test(adapted)).next.endswith("; reference/gemm_rs/adapter.py calls what it defines")
    found = result_of(replace(failed_test(adapted), checker="logits")).next
    assert "calls what it defines: build(config, weights), and of the model that it returns prefill" in found


def test_a_file_that_cannot_be_a_submission_is_rejected() -> None:
    result = refused(BadSubmissionError("x.py:3: invalid syntax"), A2A)
    assert (result.verdict, result.stages.compile.status) == ("rejected", "fail")


def test_a_problem_that_does_not_run_here_is_not_tried_again() -> None:
    refusal, failure = (refused(error("too large"), A2A) for error in (UsageError, HarnessError))
    assert (refusal.verdict, failure.verdict) == ("error", "error")
    assert "why" in refusal.next
    assert "try again" in failure.next
    assert line_of(refusal, Tally(["a"], Path("absent.jsonl"))).endswith(": too large")


def test_a_tally_names_errors_that_are_there_already(tmp_path: Path) -> None:
    """They are results, which the same command does not judge again."""
    (tmp_path / "r.jsonl").write_text(json_line(replace(refused(HarnessError("the disk is full"), A2A), id="a")))
    text = Tally(["a", "b"], tmp_path / "r.jsonl").text()
    assert text.endswith("1 before, 1 of them an error (without its line, it is judged again)")


@pytest.mark.parametrize(("others", "code"), [([], Exit.ERROR), ([result_of(report())], Exit.OK)])
def test_a_call_that_finds_nothing_but_errors_does_not_end_well(
    others: list[Result], code: Exit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.py").write_text("from reference import ref_kernel as custom_kernel\n")
    error = refused(HarnessError("the disk is full"), A2A)
    monkeypatch.setattr(eval_many, "many", lambda *asked: iter([error, *others]))
    words = [
        "eval-many",
        "a2a",
        str(tmp_path),
        "--suite",
        "quick",
        "--device",
        "cpu",
        "--out",
        str(tmp_path / "r.jsonl"),
    ]
    assert main.parse([*words, "-q"]).carry_out(Checkout.here()) == code


def test_a_tally_counts_what_is_there_already(tmp_path: Path) -> None:
    """After a kill the best is that of all candidates, not of those that were left. Others' lines do not count."""
    out = tmp_path / "results.jsonl"
    best, other = (replace(result_of(report()), id=name) for name in ("a", "other"))
    out.write_text(json_line(best) + json_line(other) + json_line(best)[:50])
    tally = Tally(["a", "b"], out)
    assert (tally.before, tally.judged) == (1, 0)
    assert tally.json()["best"] == {"id": "a", "speedup": best.speedup}
    assert "0 of 2 judged" in tally.text()


def test_the_hint_of_a_ranked_result_names_the_shape_with_most_to_gain() -> None:
    assert TIMES
    assert "--mode profile --benchmark" in result_of(report()).next


@pytest.mark.parametrize(
    ("checker", "right"),
    [
        ("strict", "ref_kernel"),
        ("benchmark", "the problem's own file"),
        ("folder", "the folder's ref_kernel, by its check_implementation,"),
    ],
)
def test_the_hint_of_a_wrong_result_names_what_the_problem_has(checker: str, right: str) -> None:
    wrong = replace(failed_test(Wrong(message="off")), checker=checker)
    assert result_of(wrong).next.startswith(f"compare with {right} on test ")


def test_every_check_that_holds_a_submission_has_a_hint() -> None:
    sources = [path.read_text() for path in (ROOT / "harness" / "kinds").rglob("*.py")]
    checks = {name for text in sources for name in re.findall(r'check="([a-z ]+)"', text)}
    assert {"clock", "roofline", "training"} <= checks
    assert checks | {BROKE_ITS_JUDGE} == BY_CHECK.keys()
