"""Peak device memory of a call beside time: measured beside the reference's, kept, and shown with its least."""

import io
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from factories import TIMES, case, entry, outcome_of, report, results
from rich.console import Console

from harness.board.digits import round_off
from harness.board.entries import Board
from harness.board.judgements import entry_cases
from harness.board.report_json import from_json, to_json
from harness.core.metrics import MEMORY
from harness.core.records import Case, CaseResult, Cost, Failure, Passed, Series, Verdict, Verdicts, Wrong
from harness.kinds.kind import SubmissionFailed
from harness.kinds.op import measure as op_measure
from harness.ranks import wire
from harness.ranks.group import CallOrder
from harness.report import board_view
from harness.report.evaluation import document_of, further_table
from harness.report.render import terminal

OWN, REF, LEAST = 2e9, 6e9, 1e9
SERIES = Series(metric=MEMORY, own=(OWN,) * 3, baseline=(REF,) * 3, least=LEAST)


def with_memory() -> Any:
    return report(results([Passed()] * 3, [replace(one, series=(*one.series, SERIES)) for one in TIMES]))


def printed(show: Any) -> str:
    console = Console(file=io.StringIO(), width=100, force_terminal=False, _environ={})
    show(console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_terminal_shows_both_sides_and_the_least() -> None:
    text = printed(lambda console: terminal.show(document_of(with_memory()), console))
    table = text[text.index("also measured") :]
    assert "5.6 GiB  1.9 GiB  3.00x  954 MiB    50.0%" in table
    assert "peak memory is what a call holds of the device at most" in " ".join(table.split())
    assert "peak memory" not in printed(lambda console: terminal.show(document_of(report()), console))


def test_reports_and_boards_keep_it_and_times_still_rank() -> None:
    found = with_memory()
    again = from_json(to_json(found))
    assert all(one.outcome.by_name["memory"] == SERIES for one in again.results if one.case.kind == "benchmark")  # type: ignore[union-attr]
    assert again.figures == report().figures
    one = round_off(entry(cases=entry_cases(found)))
    kept = [series for shape in one.cases for series in shape.series if series.metric == "memory"]  # type: ignore[union-attr]
    assert {(series.value, series.baseline, series.least) for series in kept} == {(OWN, REF, LEAST)}
    text = printed(lambda console: terminal.show(board_view.document_of(Board(entries=(one,))), console))  # type: ignore[arg-type]
    said = "by alice, geometric means: peak memory 1.9 GiB, reference 5.6 GiB, least 954 MiB"
    assert f"also measured of submission.py {said}" in " ".join(text.split())


class Calls:
    """Calls that return a result of 30 bytes, and hold 100 bytes of memory more each time."""

    def __init__(self, has_files: bool = False, held_bytes: float = 0, right: bool = True) -> None:
        problem = SimpleNamespace(cost=lambda case: Cost(flops=1, hbm_bytes=1, link_bytes=0, held_bytes=held_bytes))
        problem.cost_of = problem.cost
        self.plan, self.has_files, self.right = SimpleNamespace(problem=problem), has_files, right
        self.candidate, self.baseline, self.deadline, self.at = "candidate", "baseline", 0.0, 0
        self.rivals = [self.candidate]
        self.made = [SimpleNamespace(inputs=[SimpleNamespace(nbytes=70)])]
        self.turns: list[str] = []

    def fresh(self, count: int) -> list[int]:
        return [1] * count

    def make(self, case: Case, inputs: list[int]) -> None:
        self.turns.append("made")

    def turn(self, group: str, order: CallOrder, watched: bool) -> Any:
        self.turns.append(group)
        output = wire.Output(kind="torch.Tensor", dtype="", shape=(), device="cuda", offset=0, nbytes=30)
        return SimpleNamespace(called=[[SimpleNamespace(output=output)]])

    def memory_of(self, group: str) -> int:
        return 100 * len(self.turns) * (2 if group == self.baseline else 1)

    def both(self, *place: object) -> tuple[str, str]:
        return self.baseline, self.candidate

    def blamed(self, group: str, case: Case, failure: Failure) -> SubmissionFailed:
        assert group == self.candidate
        return SubmissionFailed(failure)

    def verify(self, *indices: int) -> list[Verdicts]:
        verdict = Verdict(passed=self.right, message="" if self.right else "row 3")
        return [Verdicts(strict=verdict, gpumode=verdict) for _ in indices]


def measured(**changes: Any) -> Any:
    return outcome_of(op_measure.memory_of, Calls(**changes), case({"m": 1}))  # type: ignore[arg-type]


def test_either_side_is_watched_on_fresh_inputs() -> None:
    found = measured()
    assert found.metric == MEMORY
    assert (found.own, found.baseline) == ((300.0, 600.0, 900.0), (600.0, 1200.0, 1800.0))
    assert found.least == 100, "input and result"
    assert measured(held_bytes=70).least == 70, "what the problem says"
    assert measured(has_files=True) is None, "on CPU cores"
    assert isinstance(wrong := measured(right=False), Wrong)
    assert wrong.message == "a call whose memory was measured: row 3"


def test_a_case_without_memory_has_no_table() -> None:
    assert list(further_table([CaseResult(case=case({"m": 1}), outcome=Passed())])) == []
