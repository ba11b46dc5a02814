"""What people and programs read. Snapshots lie in tests/snapshots; SNAPSHOTS=update pytest writes them anew."""

import csv
import io
import json
import os
import re
import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import factories
import pytest
from factories import (
    A2A_BENCHMARKS,
    CRASHED,
    FAILURES,
    GEMM_BENCHMARKS,
    HELD,
    HOSTILE,
    RAISED,
    TIMED_OUT,
    TIMES,
    WRONG_OUTCOME,
    entry,
    failed_benchmark,
    failed_test,
    ordered,
    report,
    results,
    timed,
)
from hypothesis import given
from hypothesis import strategies as st
from places import SNAPSHOTS
from replaying import replay_of
from rich.console import Console

from harness.board import judgements, leaderboard, report_json
from harness.board.entries import Board, Entry, Standing, Verification
from harness.board.places import Place, place_of
from harness.core import machine_records
from harness.core.checkout import ROOT, Checkout
from harness.core.errors import Exit
from harness.core.metrics import TIME_TO_TARGET, UNITS
from harness.core.records import (
    Bound,
    CaseResult,
    Crashed,
    EvalReport,
    Metric,
    NotRun,
    OpTime,
    Outcome,
    Passed,
    Profile,
    Raised,
    RankProfile,
    Series,
    Submission,
    Warning,
    Wrong,
)
from harness.core.words import both_ends, clean, clean_line, name_lines, rate_text
from harness.evaluation.evaluate import evaluate
from harness.judging.figures import Resolution, SeriesFigures, series_figures
from harness.kinds.checkers import CHECKERS
from harness.kinds.kind import Progress
from harness.kinds.op.plan import make_plan
from harness.problems.shape_file import find
from harness.ranks.failure import OUTSIDE
from harness.report import board_view, evaluation, problems
from harness.report.document import Document
from harness.report.evaluation import document_of
from harness.report.progress import ProgressLine
from harness.report.render import FORMATS, terminal
from harness.report.summary import OnBoard, resolution_text

GEMM_RS = find("gemm_rs", Checkout.here())
BOARD = Board(
    entries=(
        entry(score_s=0.00759334),
        entry(
            author="bob",
            file="submissions/gemm_rs/ring.py",
            score_s=0.0051234,
            ratio=2.6,
            ratio_ci=(2.5, 2.7),
            sha256="b" * 64,
        ),
        entry(
            author="carol",
            file="/home/carol/experiments/fused.py",
            score_s=0.0075931,
            fraction=None,
            sha256="c" * 64,
        ),
        entry(problem="a2a", file="submissions/a2a/token_loop.py", score_s=3.5, ratio_ci=None),
    )
)
ISSUE_KEYS = [
    "schema",
    "problem",
    "submission",
    "device",
    "world_size",
    "suite",
    "mode",
    "status",
    "exit_code",
    "cases",
    "figures",
    "empty_call_samples_us",
    "warnings",
    "environment",
    "phases_s",
]
ISSUE_CASE_KEYS = [
    "kind",
    "params",
    "status",
    "error",
    "verdicts",
    "outcome",
    "figures",
    "bound",
]


def printed(show: Callable[[Console], object], width: int = 80) -> str:
    """What `show` prints where the output is no terminal; columns are filled up with spaces, which are left out."""
    console = Console(file=io.StringIO(), width=width, force_terminal=False, _environ={})
    show(console)
    assert isinstance(console.file, io.StringIO)
    return "".join(f"{line.rstrip()}\n" for line in console.file.getvalue().splitlines())


def printed_document(found: Document, width: int = 80, quiet: bool = False) -> str:
    return printed(lambda console: terminal.show(found, console, quiet), width)


def shown(found: EvalReport, place: Place | None = None, width: int = 80, verbose: bool = False) -> str:
    return printed_document(document_of(found, OnBoard(board=BOARD, place=place), verbose), width)


def board_markdown(*of: Any) -> str:
    return FORMATS["markdown"](board_view.document_of(*of))


def check(name: str, text: str) -> None:
    file = SNAPSHOTS / f"{name}.txt"
    if os.environ.get("SNAPSHOTS") == "update":
        file.write_text(text)
    assert text == file.read_text()


# ---- the report ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [80, 120])
def test_a_passed_run_reads_well_on_narrow_and_wide_terminals(width: int) -> None:
    check(f"passed-{width}", shown(report(), place_of(BOARD, entry()), width))


@pytest.mark.parametrize("outcome", FAILURES, ids=lambda outcome: outcome.type)
def test_a_failed_run_says_what_where_and_what_next(outcome: Any) -> None:
    found = failed_benchmark(outcome) if outcome is HELD else failed_test(outcome)
    check(f"failed-{outcome.type}", shown(found))


def test_the_advice_after_a_failure_fits_the_failure() -> None:
    """SIGKILL alone is called out of memory, a `check` is not answered by `check`, and where all ranks raised none
    only waited; no traceback is pointed at where the harness raised before any line of the submission could."""
    for message in ("ended by signal 11 (SIGSEGV)", "exited with code 7 in the middle", "exited with code 1"):
        assert "memory" not in shown(failed_test(replace(CRASHED, message=message)))
    assert "Mostly out of memory" in shown(failed_test(replace(CRASHED, message="was killed by SIGKILL")))
    assert "harness check" in shown(failed_test(WRONG_OUTCOME))
    assert "harness check" not in shown(replace(failed_test(WRONG_OUTCOME), mode="test"))
    assert "may only have" in shown(failed_test(replace(RAISED, alike=(1, 2))))
    assert "may only have" not in shown(failed_test(replace(RAISED, alike=(0, 1, 2, 4, 5, 6, 7))))
    unframed = shown(failed_test(replace(RAISED, traceback="AttributeError: the submission defines no custom_kernel")))
    assert "Next: Change the submission as the message says." in unframed
    ours = 'File "/x/harness/kinds/kernelbench/rank.py", line 9, in built\n'
    library = 'File "/x/site-packages/torch/nn/modules/module.py", line 9, in _call_impl\n'
    assert "Next: Change" in shown(failed_test(replace(RAISED, traceback=ours + library)))
    assert "Next: Change" not in shown(failed_test(replace(RAISED, traceback='File "my.py", line 9, in f\n' + library)))


def test_a_hang_is_one_line_for_ranks_that_stood_at_the_same_place() -> None:
    """Whatever ranks do in a collective, what counts is which one they are in, and from where of the submission."""
    frame = '  File "{}", line {} in {}\n'.format
    torch = "/x/.venv/lib/python3.11/site-packages/torch/distributed/"

    def stack(rank: int, line: int, collective: str) -> str:
        inside = frame(f"{torch}distributed_c10d.py", 99, collective) + frame(f"{torch}c10d_logger.py", 83, "wrapper")
        head = f"Current thread 0x00007f{rank:02x} (most recent call first):\n"
        return head + inside + frame("/home/me/my.py", line, "custom_kernel")

    stacks = (stack(0, 9, "barrier"), *(stack(rank, 14, "all_to_all_single") for rank in range(1, 8)))
    text = shown(failed_test(replace(TIMED_OUT, stacks=stacks)))
    assert "rank 0 in barrier (my.py:9), ranks 1-7 in all_to_all_single (my.py:14) (exit 114)" in text
    assert text.count("in custom_kernel") == 2
    assert "Usually a rank waits" in text
    left = replace(TIMED_OUT, stacks=(f"Current thread 0x01:\n  ({OUTSIDE})\n", *stacks[1:]))
    assert f"rank 0 {OUTSIDE}, ranks 1-7 in all_to_all_single" in shown(failed_test(left))


def test_a_hang_of_all_ranks_in_the_authors_lines_is_a_loop_whose_stack_begins_there() -> None:
    """Where one is in a collective, it may be no loop."""
    frame = '  File "{}", line {} in {}\n'.format
    head = "Current thread 0x00007f01 (most recent call first):\n"
    in_exec = frame("/home/me/my.py", 8, "turn") + frame("<string>", 7, "from_an_exec")
    mine = (head + in_exec, head + frame("/home/me/my.py", 9, "custom_kernel"))
    loops = replace(TIMED_OUT, stacks=mine * 4)
    text = shown(failed_test(loops))
    assert "look for a loop or wait there that never ends" in " ".join(text.split())
    assert text.count("<string>") == 1
    library = frame("/x/lib/python3.11/site-packages/torch/distributed/c10d.py", 2, "barrier")
    waits = replace(loops, stacks=(*mine * 3, mine[0], head + library + mine[1]))
    assert "Usually a rank waits" in shown(failed_test(waits))


def test_what_a_submission_printed_is_shown_after_every_failure_and_with_verbose_always() -> None:
    logs = {"candidate rank 0": "the shape is (3, 4)\n"}
    for outcome in (WRONG_OUTCOME, TIMED_OUT, HELD):
        text = shown(replace(failed_test(outcome), logs=logs))
        assert "  the end of rank 0's log:\n  | the shape is (3, 4)\n" in text
        assert "  logs of all ranks: runs/20260501T120000-abc123/\n" in text
    assert "the shape is" not in shown(report(logs=logs))
    assert "  | the shape is (3, 4)\n" in shown(report(logs=logs), verbose=True)


def test_quiet_says_what_was_raised() -> None:
    text = printed_document(document_of(failed_test(RAISED)), quiet=True)
    assert "rank 3: IndexError: index 7 is out of bounds (exit 112)" in text


def test_the_machine_and_the_phases_are_for_verbose() -> None:
    found = report()
    for word in ("machine ", "clock ", "verdicts ", "Limit by a rank's peaks"):
        assert word not in shown(found)
        assert word in shown(found, verbose=True)
    assert "\nrun    20260501T120000-abc123\n" in shown(found)


def test_a_profile_is_summed_up_over_ranks() -> None:
    def rank(number: int, share: float) -> RankProfile:
        top = (OpTime(name="aten::mm", calls=1, self_us=100 * share, share=share),)
        return RankProfile(rank=number, call_us=100.0, of="host", top=top)

    profile = Profile(ranks=tuple(rank(number, 0.1 * number) for number in range(1, 4)), trace_json="{}")
    of_shape = CaseResult(case=factories.case(GEMM_BENCHMARKS[0], "profile"), outcome=Passed(), profile=profile)
    found = report((of_shape,), mode="profile")
    assert re.search(r"^ +10.0% +20.0% +30.0% +20.0 +aten::mm$", shown(found), re.MULTILINE)
    assert shown(found, verbose=True).count("aten::mm") == 3


def test_long_parameter_names_are_shortened_and_explained() -> None:
    found = report(
        results([], TIMES, A2A_BENCHMARKS),
        problem="a2a",
        mode="benchmark",
        peaks=None,
        warnings=(
            Warning(
                code="said",
                values={"text": "the empty call is 24 % of the fastest shape's time; do not trust its third digit"},
            ),
        ),
    )
    check("a2a-80", shown(found))


def test_a_run_of_tests_alone_has_no_table_and_says_that_nothing_is_timed() -> None:
    check("tests-only", shown(report(results([Passed()] * 3, []), mode="test", environment=None)))


ALL = [report(), report(()), report(results([Passed()] * 2, []), mode="test"), report(results([], [timed(samples=4)]))]
ALL += [failed(outcome) for failed in (failed_test, failed_benchmark) for outcome in FAILURES]


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("found", ALL, ids=range(len(ALL)))
def test_the_last_three_lines_are_verdict_speedup_and_place(found: EvalReport, width: int) -> None:
    lines = shown(found, width=width).splitlines()[-3:]
    assert [line.split()[0] for line in lines] == ["verdict", "speedup", "place"]


@pytest.mark.parametrize("found", ALL, ids=range(len(ALL)))
def test_piped_output_is_plain_ascii_without_escapes(found: EvalReport) -> None:
    assert all(char == "\n" or " " <= char <= "~" for char in shown(found))


def test_no_table_line_is_longer_than_eighty_columns() -> None:
    slow = [timed(93_540_000.0, 123_456_789.0), timed(0.5, 0.25), timed(12.3, 45.6)]
    for shapes in (A2A_BENCHMARKS, GEMM_BENCHMARKS):
        assert max(map(len, shown(report(results([], slow, shapes))).splitlines())) <= 80


def test_colours_are_left_out_where_no_color_is_set() -> None:
    def ansi(environment: dict[str, str]) -> str:
        console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system="256", _environ=environment)
        terminal.show(document_of(failed_test(RAISED)), console)
        assert isinstance(console.file, io.StringIO)
        return console.file.getvalue()

    colour = re.compile(r"\x1b\[[0-9;]*3[0-7]m")
    assert colour.search(ansi({}))
    assert not colour.search(ansi({"NO_COLOR": "1"}))


def test_what_a_submission_printed_is_shown_literally_and_cannot_pass_for_our_words() -> None:
    for outcome in (CRASHED, Raised(rank=1, message=HOSTILE, traceback=HOSTILE), Wrong(message="wrong\n" + HOSTILE)):
        text = shown(failed_test(outcome))
        assert "[bold]not markup[/bold] :smile:" in text
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e]", text)
        assert [line for line in text.splitlines() if line.startswith("place")] == [
            "place    none: a failed run is never ranked"
        ]
    assert shown(report(author="[red]me\x1b[0m\nplace 1 of 1")).splitlines()[1].startswith("by [red]me place 1 of 1, ")


@given(st.text())
def test_clean_text_has_nothing_that_a_terminal_would_act_on(text: str) -> None:
    assert all(char == "\n" or char.isprintable() for char in clean(text))
    assert "\n" not in clean_line(text)


def test_a_long_log_is_cut_to_its_end_and_says_so() -> None:
    log = "".join(f"line {number}\n" for number in range(1000)) + "x" * 5000
    text = shown(failed_test(CRASHED.__class__(rank=0, message="exit code 1", log_tail=log)))
    assert "line 999" in text
    assert "line 900" not in text
    assert "(977 lines left out; --json FILE keeps them)" in text
    assert len(text) < 5000


def test_a_place_is_a_range_with_what_settles_it_and_how_far_it_is_behind() -> None:
    alone = Board(entries=(entry(),))
    text = printed_document(document_of(report(), OnBoard(board=alone, place=place_of(alone, entry()))))
    assert text.endswith("place    1 of 1 on the local leaderboard\n")
    unresolved = shown(report(), place_of(BOARD, entry()))
    assert (
        "place    2-3 of 3 on the local leaderboard, 1.62x behind the first: 2.60x, bob's ring.py; "
        "not resolved: `make settle PROBLEM=gemm_rs` runs the entries head to head\n"
    ) in unresolved
    settled = shown(report(), Place(place=2, last=2, of=3, settled="2026-05-02T12:00:00+00:00"))
    assert "place    2 of 3 on the local leaderboard, settled 2026-05-02, 1.62x behind the first" in settled
    assert shown(report()).endswith("place    none: not recorded\n")


def test_a_place_by_score_is_told_by_scores() -> None:
    """As `competition` ranks. The file with the best speedup was told to be behind itself, and to settle."""
    run = report()
    own = entry(score_s=0.004, ratio=2.0, ratio_ci=(1.9, 2.1), run_id=run.run_id, sha256=run.submission.sha256)
    other = entry(author="bob", score_s=0.002, ratio=1.6, sha256="b" * 64)
    board = Board(entries=(own, other))
    place = place_of(board, own, "score")
    text = printed_document(document_of(run, OnBoard(board=board, place=place, by="score")))
    assert text.endswith(
        "place    2 of 2 on the local leaderboard, 2.00x behind the first: 2 ms, bob's submission.py\n"
    )
    quiet = printed_document(document_of(run, OnBoard(board=board, place=place_of(board, own))), quiet=True)
    assert quiet.splitlines()[-1].startswith("place    1-2 of 2 on the local leaderboard; not resolved: `make settle")


def test_scores_that_agree_share_a_place_where_no_reference_was_measured() -> None:
    def scored(author: str, score_s: float) -> Entry:
        return entry(author=author, score_s=score_s, ratio=None, ratio_ci=None, sha256=author * 64)

    own = replace(scored("a", 0.004), run_id=report().run_id, sha256=report().submission.sha256)
    board = Board(entries=(own, scored("b", 0.004), scored("c", 0.002)))
    text = printed_document(document_of(report(), OnBoard(board=board, place=place_of(board, own))))
    assert "place    2-3 of 3 on the local leaderboard, 2.00x behind the first: 2 ms, c's submission.py, shared" in text


def test_too_few_samples_for_an_interval_are_said() -> None:
    """And how to get more; a shape file has a training's number of runs."""
    few = timed(samples=4)
    said = "(no interval: case 1 has 4 samples; an interval takes 8 or more; "
    assert f"{said}--seconds says how long a shape is timed)" in shown(report(results([], [few])))
    runs = replace(few, series=(replace(few.ranked, metric=TIME_TO_TARGET),))
    assert f"{said}the shape file says how many runs a case has)" in shown(report(results([], [runs])))


def test_the_line_of_the_speedup_says_that_it_is_doubtful_and_why() -> None:
    """--quiet prints that line and no warnings."""
    busy = Warning(code="others", values={"most": 1.4, "cores": 2, "count": 1, "total": 3})
    told = document_of(report(warnings=(busy, Warning(code="cuda_is_cpu"))))
    assert printed_document(told, quiet=True).splitlines()[1].endswith("; doubtful: other work took cores")
    assert "doubtful" not in shown(report(warnings=(Warning(code="cuda_is_cpu"),)))


def test_one_launch_that_does_not_tell_which_side_is_faster_says_what_would() -> None:
    near = results([], [timed(1000.0, 1000.5, samples=40)])
    said = "resolves  no difference from the reference, since 1x is in the interval; "
    assert f"{said}--seconds says how long a shape is timed\n" in shown(report(near), width=200)
    assert f"{said}suite quick is to see whether" in shown(report(near, suite="quick"), width=200)
    apart = report(results([], [timed(1000.0, 1050.0, samples=40)]))
    assert f"{said}`--launches 4` measures in fresh" in shown(apart, width=200), "more samples do not help"
    busy = {"most": 1.4, "cores": 2, "count": 1, "total": 3}
    noted = [Warning(code="reference"), Warning(code="others", values=busy)]
    assert not any("resolves" in shown(one) for one in (report(), *(report(near, warnings=(n,)) for n in noted)))


@pytest.mark.parametrize(
    ("launches", "advised"), [(40, "for 1% `--launches 40`, or `settle`, "), (65, "for 1% `settle`, ")]
)
def test_no_more_launches_are_advised_than_an_evaluation_can_have(launches: int, advised: str) -> None:
    assert advised in resolution_text(Resolution(difference=0.03, launches=launches))


def test_peaks_are_said_to_be_measured_or_a_vendors() -> None:
    assert "Limit by a rank's peaks, measured on this machine, 2026-05-01:" in shown(report(), verbose=True)
    vendor = machine_records.Peaks(
        flops_per_s=989e12, hbm_bytes_per_s=4.8e12, link_bytes_per_s=450e9, source="NVIDIA H200, 2024-11"
    )
    text = shown(report(peaks=vendor), verbose=True)
    assert "NVIDIA H200, 2024-11:\n989 TFLOP/s, 4.8 TB/s memory, 450 GB/s links." in text
    assert "measured" not in text


# ---- JSON ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("found", ALL, ids=range(len(ALL)))
def test_json_has_the_promised_names_and_is_strict_json(found: EvalReport) -> None:
    value = json.loads(json.dumps(report_json.to_json(found), allow_nan=False))
    assert set(ISSUE_KEYS) <= value.keys()
    assert value["submission"].keys() == {"path", "sha256"}
    assert value["status"] in {"pass", "fail", "error"}
    assert (value["exit_code"] == 0) == (value["status"] == "pass")
    for case in value["cases"]:
        assert set(ISSUE_CASE_KEYS) <= case.keys()
        assert case["verdicts"] is None or case["verdicts"].keys() == {"strict", "gpumode"}
        assert case["status"] in {"pass", "fail", "not_run"}
        assert (case["figures"] is None) == (case["outcome"]["type"] != "measured")


def test_json_of_a_passed_run_has_all_figures() -> None:
    value = report_json.to_json(report(), Place(place=2, last=2, of=3))
    case = value["cases"][-1]
    assert case["params"] == {"m": 8192, "n": 29568, "k": 8192, "has_bias": True}
    assert {name: verdict["passed"] for name, verdict in case["verdicts"].items()} == {"strict": True, "gpumode": True}
    (series,) = case["outcome"]["series"]
    assert series["metric"] == {"name": "wall", "unit": "us", "better": "less"}
    ratios = [ref / own for ref, own in zip(series["baseline"], series["own"], strict=True)]
    figures = case["figures"]
    assert figures["ratio"]["value"] == pytest.approx(statistics.median(ratios), rel=1e-3), "even: of logarithms"
    assert figures["fraction"]["value"] == pytest.approx(case["bound"]["value"] / figures["value"], rel=1e-3)
    assert series["own"] == list(TIMES[2].ranked.own)
    low, high = value["figures"]["ratio"]["ci"]
    assert low < value["figures"]["ratio"]["value"] < high
    score = {"value": pytest.approx(0.00759334, rel=1e-5), "unit": "s", "better": "less", "relative_by": ""}
    assert value["figures"]["score"] == score
    assert (value["empty_call_samples_us"]["wall"], value["place"]["place"]) == ([210.0, 190.0, 200.0], 2)


def test_json_of_a_failed_run_has_the_evidence_and_no_figures() -> None:
    raised, crashed, hung, wrong = (
        report_json.to_json(failed_test(outcome)) for outcome in (RAISED, CRASHED, TIMED_OUT, WRONG_OUTCOME)
    )
    for value in (raised, crashed, hung, wrong):
        assert [value[name] for name in ("figures", "place")] == [None] * 2
        assert [case["status"] for case in value["cases"][:3]] == ["pass", "fail", "not_run"]
    assert raised["cases"][1]["outcome"]["rank"] == 3
    assert "IndexError" in raised["cases"][1]["outcome"]["traceback"]
    assert crashed["cases"][1]["outcome"]["log_tail"] == CRASHED.log_tail
    assert len(hung["cases"][1]["outcome"]["stacks"]) == 8
    assert hung["exit_code"] == 114
    verdicts = wrong["cases"][1]["verdicts"]
    assert (verdicts["strict"]["passed"], verdicts["gpumode"]["passed"]) == (False, True)
    assert wrong["cases"][1]["error"] == verdicts["strict"]["message"] == WRONG_OUTCOME.message


def test_json_of_a_benchmark_that_was_not_run_has_no_figures() -> None:
    value = report_json.to_json(report(results([Passed()] * 3, [TIMES[0], NotRun()])))
    assert (value["status"], value["exit_code"], value["figures"]) == ("error", 1, None)
    assert [case["figures"] is None for case in value["cases"]] == [True, True, True, False, True]


def test_json_of_an_evaluation_that_never_began_has_the_same_keys() -> None:
    value = report_json.error_json("shapes/a2a.yaml: $.tests: missing", Exit.BAD_FILE)
    assert list(value) == list(report_json.to_json(report()))
    assert (value["status"], value["exit_code"], value["cases"]) == ("error", 113, [])
    assert value["error"] == "shapes/a2a.yaml: $.tests: missing"
    assert (value["problem"], value["submission"]) == (None, {"path": None, "sha256": None})


# ---- progress --------------------------------------------------------------------------------------------------------


def go(progress: ProgressLine) -> None:
    with progress:
        progress.phase("start")
        progress.phase("test")
        progress.case("m 64  bias true", 0, 2)
        progress.case("m 64  bias true", 0, 2)
        progress.case("m 512  bias\nfalse", 1, 2)
        progress.note("peaks are measured, once on this machine")


def test_progress_in_a_pipe_is_a_short_line_a_phase_and_case() -> None:
    ticks = iter(range(100))
    text = printed(lambda console: go(ProgressLine(console, clock=lambda: float(next(ticks)))))
    assert re.sub(r"\d+\.\d s", "N s", text) == (
        "[  N s] start\n[  N s] test\n[  N s]   1/2  m 64  bias true\n[  N s]   2/2  m 512  bias false\n"
        "peaks are measured, once on this machine\n"
    ).replace("[  N s]", "[  N s]")


def test_progress_can_be_silent() -> None:
    assert printed(lambda console: go(ProgressLine(console, silent=True))) == ""


def test_progress_on_a_terminal_is_one_line_that_is_gone_afterwards_even_after_an_error() -> None:
    console = Console(file=io.StringIO(), width=60, force_terminal=True, _environ={"TERM": "xterm"})

    def fail() -> None:
        with ProgressLine(console) as progress:
            progress.phase("ranked")
            progress.case("m 64 " * 40, 2, 5)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "ranked 3/5  0 s  m 64" in text
    assert text.count("\n") == 1  # its one line is cut to the width
    assert text.endswith("\x1b[?25h\r\x1b[1A\x1b[2K")  # the cursor is back, the line is empty


def test_progress_says_about_how_long_it_will_take_where_it_knows_the_plan() -> None:
    problem = find("a2a", Checkout.here())
    suite = problem.with_world_size(problem.suite("cpu"), 1)
    suite = replace(suite, tests=suite.tests[:5], benchmarks=suite.benchmarks[:5], drawn=0, benchmark_s=3.0)
    submission = Submission(path="x.py", name="x.py", source="", sha256="0" * 64)
    plan = replace(make_plan(ordered(problem, suite, submission, "leaderboard", "cpu", 1)), has_controls=False)
    now = 0.0

    def steps(console: Console) -> None:
        nonlocal now
        progress = ProgressLine(console, clock=lambda: now)
        progress.expect(plan)
        for phase in ("start", "test", "benchmark"):
            progress.phase(phase)
            for index in range(5 if phase != "start" else 0):
                progress.case("E 8", index, 5)
                if (phase, index) == ("benchmark", 3):
                    now += 2.0
                    console.print(progress)
                    now += 10.0
                    console.print(progress)
                    return
                now += 1.0 if phase == "test" else 4.0

    text = printed(steps)
    assert "[  0.0 s] start, about 25 s left\n" in text
    assert "[  5.0 s] benchmark, about 30 s left\n" in text
    assert "benchmark 4/5  about 6 s left, 19 s so far  E 8\n" in text
    assert "benchmark 4/5  longer than expected, 29 s so far  E 8\n" in text


def test_bars_are_ascii_where_the_encoding_has_no_more() -> None:
    def bars(encoding: str) -> list[str]:
        console = Console(file=io.TextIOWrapper(io.BytesIO(), encoding=encoding), width=120, _environ={})
        terminal.show(document_of(report()), console)
        console.file.flush()
        lines = console.file.buffer.getvalue().decode(encoding).splitlines()  # type: ignore[attr-defined]
        return [line.rstrip() for line in lines]

    wide, plain = bars("utf-8"), bars("ascii")
    assert any(line.endswith("┄○") for line in wide)
    marks = str.maketrans("┃━●┄○◉", "|=#.o@")
    assert [line.translate(marks) for line in wide] == plain


def test_bars_need_room_and_something_timed() -> None:
    header = next(line for line in shown(report(), width=120).splitlines() if line.startswith("shape"))
    assert header.endswith("spread   n  1x to 14x the limit")
    assert "x the limit" not in shown(report(), width=99)
    unbound = report(tuple(replace(result, bound=None) for result in report().results), peaks=None)
    assert "  1x to 2.0x the faster\n" in shown(unbound, width=120)
    failed = shown(failed_benchmark(CRASHED), width=120).splitlines()
    assert sum("━" in line for line in failed) == 1, "of the shape that was timed"


@pytest.mark.parametrize("width", [20, 40, 60])
def test_a_narrow_terminal_leaves_out_columns_and_cuts_no_figure(width: int) -> None:
    lines = shown(report(), width=width).splitlines()
    header = next(line for line in lines if line.startswith("shape"))
    assert header.split()[:1] == ["shape"]
    assert max(map(len, lines[3 : lines.index(header) + 8])) <= width
    assert all(name in header for name in ("speedup", *(("time us",) if width > 20 else ())))
    assert "2.01x" in "".join(lines)
    assert "…" not in "".join(lines)


def test_names_of_any_length_and_script_are_shown() -> None:
    for name in ("s" * 300 + ".py", "提出/核融合カーネル.py", "e\u0301" * 40, "\u202egpj.py"):
        found = report(submission=replace(report().submission, name=name), author=name)
        for width in (40, 80, 120):
            assert clean_line(name) in shown(found, width=width).replace("\n", "")


# ---- leaderboard and problems ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [80, 120])
def test_the_leaderboard_reads_well(width: int) -> None:
    check(f"board-{width}", printed_document(board_view.document_of(BOARD), width))


def test_the_leaderboard_on_a_narrow_terminal_says_who_leads_and_by_how_much() -> None:
    lines = printed_document(board_view.document_of(BOARD), 50).splitlines()
    heads = {" ".join(line.split()) for line in lines if line.startswith("place")}
    assert heads == {"place score speedup author status"}
    assert any(line.split()[:5] == ["1", "5.123", "ms", "2.60x", "bob"] for line in lines)
    assert max(map(len, lines)) <= 50


def test_a_file_name_breaks_where_its_parts_end() -> None:
    assert name_lines("torch_fused_with_a_long_name.py", 22) == "torch_fused_with_a_\nlong_name.py"
    assert name_lines("x" * 30, 22) == f"{'x' * 22}\n{'x' * 8}"
    assert name_lines("submission.py", 22) == "submission.py"


def test_rates_have_one_kind_of_unit() -> None:
    assert [rate_text(value) for value in (626_000, 3.61e6, 5.0, 76.3e9)] == ["626 k", "3.61 M", "5 ", "76.3 G"]


def test_the_leaderboard_as_markdown() -> None:
    check("board-markdown", board_markdown(BOARD))


def held_board() -> Board:
    """Beside bob's entry what is held: of the same source, of another file, and of a group without entries."""
    bob = BOARD.entries[1]
    held = (
        judgements.held(
            bob, "clock", "its ranks say that a call takes 25 us, but 700 us more passed around it", ("run-7",)
        ),
        judgements.held(entry(file="submissions/gemm_rs/liar.py"), "verify", HOSTILE, ("run-8", "run-9")),
        judgements.held(entry(suite="quick"), "roofline", "1.20 us are less than the limit of 6.46 us", ("run-10",)),
    )
    return Board(entries=BOARD.entries, held=held)


KNOWN = {
    entry().run_id: Standing(reproducible=False, stale=True),
}


@pytest.mark.parametrize("width", [80, 120])
def test_what_is_held_stands_below_the_ranked_without_a_place(width: int) -> None:
    check(
        f"board-held-{width}",
        printed_document(board_view.document_of(held_board(), standings=KNOWN), width),
    )


def test_what_is_held_in_markdown_csv_and_json() -> None:
    found = held_board()
    assert "- **held** `liar.py by alice, 2026-05-01" in board_markdown(found)
    assert board_markdown(found).count("| place |") == 2
    rows = list(csv.DictReader(io.StringIO(board_view.board_csv(found, "gemm_rs", KNOWN))))
    assert [(row["place"], row["status"], row["check"]) for row in rows] == [
        ("1", "ranked", ""),
        ("2", "ranked", ""),
        ("2", "ranked", ""),
        ("", "held", "clock"),
        ("", "held", "verify"),
        ("", "held", "roofline"),
    ]
    assert {(row["reproducible"], row["stale"]) for row in rows} == {("False", "True")}
    values = json.loads(board_view.board_json(found))
    assert [(one["place"], one["status"], one["reproducible"]) for one in values[-1:]] == [(None, "held", None)]


def test_a_verified_entry_is_called_so_and_a_clean_board_has_no_legend() -> None:
    twice: dict[str, Any] = {"score": 0.1, "score_ci": (0.1, 0.1), "ratio": 2.0, "ratio_ci": (2.0, 2.0)}
    verified = Verification(date="2026-05-02T12:00:00+00:00", launches=5, run_ids=("a",), **twice)
    known = {entry().run_id: Standing(reproducible=True, stale=False)}
    text = printed_document(board_view.document_of(Board(entries=(entry(verified=verified),)), standings=known))
    assert text.splitlines()[-2].endswith("verified")


def test_a_held_evaluation_says_where_it_stands_and_that_the_entry_before_it_does(
    tmp_path: Path,
) -> None:
    found = failed_benchmark(HELD)
    path = tmp_path / "leaderboard.yaml"
    leaderboard.record(path, entry(run_id="before", sha256="0" * 64))
    one = judgements.judged(found)
    assert one is not None
    standing = leaderboard.record(path, one)
    text = printed_document(document_of(found, OnBoard(board=standing)))
    last = text.splitlines()[-1]
    assert last.startswith("place    none: held (roofline), shown beside the board; `python -m harness verify 2026")
    assert last.endswith("; this file's entry of 2026-05-01 stays as it is")
    passed = report(run_id="lucky")
    now = judgements.entry_of(passed)
    assert now is not None
    standing = leaderboard.record(path, now)
    text = printed_document(document_of(passed, OnBoard(board=standing, place=place_of(standing, now))))
    assert "; the same source was held on 2026-05-01 (roofline): `python -m harness verify lucky` settles it" in text


def test_names_do_not_format_the_markdown_table() -> None:
    text = board_markdown(Board(entries=(entry(author="**a** <b>"),)))
    assert r"| \*\*a\*\* \<b\> |" in text


@pytest.mark.parametrize("recorded", [True, False])
def test_a_run_that_is_not_kept_has_no_id(recorded: bool) -> None:
    found = report()
    text = printed_document(document_of(found, OnBoard(board=Board() if recorded else None)))
    assert (found.run_id in text) == recorded


def test_a_pipe_in_a_name_does_not_break_the_markdown_table() -> None:
    rows = board_markdown(Board(entries=(entry(author="a|b"),))).splitlines()
    assert " a\\|b " in rows[-1]


def test_the_leaderboard_as_csv_and_json_holds_every_entry_with_its_place() -> None:
    text = board_view.board_csv(BOARD)
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [(row["problem"], row["place"], row["author"]) for row in rows] == [
        ("a2a", "1", "alice"),
        ("gemm_rs", "1", "bob"),
        ("gemm_rs", "2", "alice"),
        ("gemm_rs", "2", "carol"),
    ]
    assert [row["last_place"] for row in rows] == ["1", "1", "3", "3"]
    assert (rows[0]["low"], rows[1]["low"][:3], rows[1]["score"]) == ("", "2.0", "0.0051234")
    value = json.loads(board_view.board_json(BOARD))
    assert [(one["place"], one["author"]) for one in value] == [(int(row["place"]), row["author"]) for row in rows]
    assert value[0]["ratio_ci"] is None
    assert value[0]["history"] == []


def test_one_problems_leaderboard_leaves_out_the_others() -> None:
    text = printed_document(board_view.document_of(BOARD, "a2a"))
    assert "token_loop.py" in text
    assert "gemm_rs" not in text
    texts = (board_view.board_csv(BOARD, "a2a"), board_view.board_json(BOARD, "a2a"), board_markdown(BOARD, "a2a"))
    assert not any("gemm_rs" in text for text in texts)


def test_the_leaderboard_says_how_communication_is_shown_for_a_problem() -> None:
    """Under the title of its boards; nothing where the problem does not say."""
    said = {"a2a": "delay", "gemm_rs": ""}
    text = printed_document(board_view.document_of(BOARD, communication=said))
    lines = text.splitlines()
    after = [lines[index + 1] for index, line in enumerate(lines) if line.startswith("a2a  suite")]
    assert set(after) == {"communication shown by: delay"}
    assert text.count("communication") == len(after)


def test_an_empty_leaderboard_says_how_to_begin() -> None:
    text = printed_document(board_view.document_of(Board(), "ag_gemm"))
    assert text.split() == [
        "No",
        "evaluation",
        "of",
        "ag_gemm",
        "is",
        "recorded",
        "yet:",
        "`make",
        "eval",
        "PROBLEM=ag_gemm`",
        "makes",
        "the",
        "first.",
    ]


def test_problems_take_a_line_each_where_it_is_narrow() -> None:
    what = "Each rank sends its tokens to the ranks that hold their experts, [b]which[/b] takes long; it gets sums."
    a2a = find("a2a", Checkout(ROOT))
    rows = [replace(a2a, description=what), replace(a2a, name="x", leaderboard="[b]x[/b]", description="v1.0 is short")]
    check("problems-80", printed_document(problems.document_of(rows)))
    check("problems-140", printed_document(problems.document_of(rows), 140))


def test_the_first_sentence_ends_at_a_stop_and_not_within_a_number() -> None:
    found = [problems.first_sentence(text) for text in ("Rates of 1.5 x\n more. Then?", "all of it", "", "a: b. c")]
    assert found == ["Rates of 1.5 x more", "all of it", "", "a: b"]


@pytest.mark.parametrize(
    ("message", "advice"),
    [
        ("was killed by SIGKILL (often the kernel's answer)", "out of memory"),
        ("was killed by SIGSEGV", "Native code crashed"),
        ("was killed by signal 40", "Native code crashed"),
        ("exited with code 7 in the middle", "os._exit()"),
        ("eval.py exited with code 1", "evaluator printed last"),
        ("sent nonsense", "printed last"),
    ],
)
def test_a_crash_is_followed_by_advice_for_its_kind(message: str, advice: str) -> None:
    text = " ".join(shown(failed_test(Crashed(rank=0, message=message, log_tail=""))).split())
    assert advice in text
    assert ("memory" in text) == ("SIGKILL" in message)


def test_the_advice_for_a_wrong_result_of_a_folder_names_no_placeholder() -> None:
    text = shown(replace(failed_test(Wrong(message="off")), checker="folder"))
    assert "`check` in place of `eval`" in " ".join(text.split())
    assert "FOLDER" not in text


def test_a_long_error_keeps_its_start_and_its_end() -> None:
    found = both_ends("first" + "x" * 5000 + "last", 1000)
    assert (len(found), found[:5], found[-4:]) == (1000, "first", "last")
    assert both_ends("short", 1000) == "short"


ADVICE = {
    "strict": "`ref_kernel` on this shape in the problem's reference.py",
    "folder": "`ref_kernel` on this shape in the problem's reference.py",
    "theirs": "the folder's reference on this shape",
    "exact": "run it by itself on the instance",
    "quality": "which reaches the target",
    "logits": "compare the logits with those of the problem",
}


@pytest.mark.parametrize("checker", get_args(str))
def test_after_a_wrong_test_the_checker_says_what_to_compare_with(checker: str) -> None:
    """Advice for an operator is of no use to a solver, a model or a training run."""
    found = replace(failed_test(Wrong(message="off")), checker=checker, mode="test")
    played = evaluate(replay_of(found, GEMM_RS), Progress())
    text = " ".join(shown(played).split())
    assert f"Next: {CHECKERS[checker].after_wrong}" in text
    assert ADVICE[checker] in text
    assert ("ref_kernel" in text) == ("ref_kernel" in ADVICE[checker])


def test_the_log_that_is_shown_is_the_one_that_the_session_names() -> None:
    """Whatever it is called: a solver's is named by its instance."""
    found = failed_test(WRONG_OUTCOME)
    [first, failed, *others] = found.results
    failed = replace(failed, logs=("candidate test tiny",))
    logs = {"candidate rank 0": "of another\n", "candidate test tiny": "3 nodes are left\n"}
    found = replace(found, results=(first, failed, *others), logs=logs, world_size=1)
    text = shown(evaluate(replay_of(found, GEMM_RS), Progress()))
    assert "  the end of its log:\n  | 3 nodes are left\n" in text
    assert "  all logs: runs/" in text
    assert "of another" not in text


@pytest.mark.parametrize(("outcome", "advice"), [(RAISED, "where it was raised"), (TIMED_OUT, "only need longer")])
def test_advice_speaks_of_other_ranks_only_where_there_are_some(outcome: Outcome, advice: str) -> None:
    several = failed_test(outcome)
    assert advice not in " ".join(shown(several).split())
    assert advice in " ".join(shown(replace(several, world_size=1)).split())


def test_the_row_of_means_shows_the_figures_of_the_whole() -> None:
    """Which the last lines show too: a second rule could differ from them in the last digit."""
    found = report()
    benchmarks = [result for result in found.results if result.case.kind == "benchmark"]
    assert found.figures is not None
    assert found.figures.ratio is not None
    whole = replace(found.figures, ratio=replace(found.figures.ratio, value=9.99))
    mean = evaluation.mean_row(benchmarks, whole, UNITS["us"])
    assert mean is not None
    assert mean[:4:3] == ["geometric mean", "9.99x"]
    values = [result.figures.value for result in benchmarks if result.figures]
    assert mean[2] == UNITS["us"].value(statistics.geometric_mean(values))
    assert evaluation.mean_row(benchmarks, None, UNITS["us"]) is None
    untimed = replace(benchmarks[0], outcome=Passed(), figures=None)
    assert evaluation.mean_row([untimed, *benchmarks[1:]], whole, UNITS["us"]) is None


RATES = [("us", "less", 2.0, 0.25), ("GB/s", "more", 0.5, 4.0)]


@pytest.mark.parametrize(("unit", "better", "ratio", "fraction"), RATES)
def test_a_further_metric_has_the_same_figures_wherever_it_is_shown(
    unit: str, better: Any, ratio: float, fraction: float
) -> None:
    metric = Metric(name="further", unit=unit, better=better)
    series = Series(metric=metric, own=(4.0, 4.0), baseline=(8.0, 8.0))
    case = replace(timed(), series=(*timed().series, series))
    bounded = replace(case, bounds={"further": Bound(value=1.0, by="hbm")})
    least = replace(case, series=(*timed().series, replace(series, least=1.0)))
    for one in (bounded, least):
        found = series_figures(one, "further")
        assert found == SeriesFigures(value=4.0, baseline=8.0, ratio=pytest.approx(ratio), bound=1.0, fraction=fraction)
    assert series_figures(case, "further") == SeriesFigures(
        value=4.0, baseline=8.0, ratio=pytest.approx(ratio), bound=None, fraction=None
    )
    assert series_figures(case, "no such metric") is None
