"""tune-kernel: predictions prune, a search ends, what was measured counts again, and the table is written whole."""

import ast
import itertools
import math
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from waiting import is_gone, until

from harness.core import json_file
from harness.core.checkout import ROOT, Checkout
from harness.core.errors import BadFileError, HarnessError, UsageError
from harness.judging.correctness import Expected
from harness.problems.shape_file import find
from harness.report.console import new_console
from harness.report.kernel_tuning import document_of
from harness.report.render import terminal
from harness.tuning import child, clock, records, search, table, tuner
from harness.tuning.records import CaseFound, Finalist, KeptRow, TuneOrder, TuneResult
from harness.tuning.search import PredictedRow, Rates, Row, Tried

RATES = Rates(flops_per_s=1e15, hbm_bytes_per_s=4e12, multiprocessors=100)


@pytest.mark.parametrize(
    ("need", "us"),
    [
        ((1e12, 0.0, 0.0, 100, 1), 1000.0),  # by operations
        ((1e12, 0.0, 0.0, 150, 1), 1000.0 * 200 / 150),  # half of the second round is empty
        ((1e12, 0.0, 0.0, 150, 2), 1000.0 * 200 / 150),
        ((1e9, 8e9, 0.0, 100, 1), 2000.0),  # by bytes of memory
        ((1e9, 0.0, 2e10, 100, 1), 2000.0),  # by what is read in all
        ((1e12, 0.0, 0.0, 100, 0), math.inf),
    ],
)
def test_a_prediction_is_the_largest_of_three_bounds(need: tuple[float, float, float, int, int], us: float) -> None:
    assert search.predicted_us(*need, RATES) == pytest.approx(us)


def candidates(*predicted: float) -> list[PredictedRow]:
    return [PredictedRow(row=(f"row {index}",), predicted_us=us) for index, us in enumerate(predicted)]


def measuring(times: dict[str, float | None], asked: list[str]) -> Callable[[Row], Tried]:
    def measure(row: Row) -> Tried:
        asked.append(str(row[0]))
        return Tried(row=row, us=times.get(str(row[0]), 50.0))

    return measure


def test_rows_that_cannot_win_are_never_measured() -> None:
    asked: list[str] = []
    times: dict[str, float | None] = {"row 0": 14.0, "row 1": 12.0}
    found = search.search(candidates(10, 11, 12.5, 13.5, math.inf), [], measuring(times, asked), 99, lambda: False)
    assert asked == ["row 0", "row 1"]  # 12.5 is above the best measured, 13.5 above 1.3 times the best prediction
    assert (found.pruned, found.ended) == (3, "all measured")
    assert found.tried[0] == Tried(row=("row 1",), us=12.0)


def test_a_search_ends_when_nothing_better_comes() -> None:
    asked: list[str] = []
    found = search.search(candidates(*[10.0] * 40), [], measuring({"row 3": 40.0}, asked), 99, lambda: False)
    assert len(asked) == 4 + search.PATIENCE
    assert (found.ended, found.tried[0].row) == ("nothing better in a while", ("row 3",))


def test_what_was_measured_before_is_not_measured_again() -> None:
    asked: list[str] = []
    known = [Tried(row=("row 0",), us=20.0), Tried(row=("row 1",), us=None, note="wrong")]
    found = search.search(candidates(10, 10, 10), known, measuring({"row 2": 19.0}, asked), 99, lambda: False)
    assert asked == ["row 2"]
    assert found.tried[0] == Tried(row=("row 2",), us=19.0)
    over = search.search(candidates(10, 10, 10), known, measuring({}, asked), 99, lambda: True)
    assert (over.ended, over.tried[0]) == ("out of time", known[0])
    assert (
        search.search(candidates(10, 10, 10), known, measuring({}, asked), 0, lambda: False).ended == "as many as asked"
    )
    assert asked == ["row 2"]


def test_a_search_may_find_no_row_that_is_right() -> None:
    found = search.search(candidates(10), [], lambda row: Tried(row=row, us=None, note="wrong"), 9, lambda: False)
    assert [one.us for one in found.tried] == [None]


def test_kept_rows_count_for_the_same_gpu_kernels_and_case(tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"
    one = KeptRow(gpu="A", digest="d", pause=3.0, params={"m": 1}, row=("sm_90", (1, 2), True), us=3.0, note="")
    records.keep(path, one)
    with path.open("a") as file:
        file.write(
            '{"gpu": "A", "digest": "d", "params": {"m": 1}, "row": [1], "us": 2.0, "note": ""}\n'
        )  # another clock
        file.write('{"gpu": "A", "di')  # a run that was killed
    kept = records.load(path)
    assert kept == [one]
    assert records.tried(kept, "A", "d", 3.0, {"m": 1}) == [Tried(row=one.row, us=3.0)]
    for gpu, digest, pause, m in (("B", "d", 3.0, 1), ("A", "e", 3.0, 1), ("A", "d", 0.0, 1), ("A", "d", 3.0, 2)):
        assert records.tried(kept, gpu, digest, pause, {"m": m}) == []


def test_a_table_is_replaced_and_nothing_else() -> None:
    for name in ("gemm", "attention", "gemm_rs"):
        source = (ROOT / "submissions" / name / "tuning.py").read_text()
        rows = ast.literal_eval(
            "["
            + source.partition(table.BEGIN)[2].partition(table.END)[0].replace("Row(", "(").replace("UNMEASURED", "'?'")
            + "]"
        )
        lines = [table.line_of(row, "?") for row in rows]
        assert table.with_rows(source, lines, "tuning.py") == source
    with pytest.raises(BadFileError, match=r"tuning.py: no table is there to write into"):
        table.with_rows("ROWS = []\n", [], "tuning.py")


def asked(**more: object) -> tuner.TuneRequest:
    given = {"suite": "official", "places": (), "seconds": 9.0, "at_most": 3, "pause": 3.0, "chip": "sm_90"} | more
    given = {"write": False, **given}
    return tuner.TuneRequest(**given)  # type: ignore[arg-type]


def test_predictions_need_no_gpu_and_prune(capsys: pytest.CaptureFixture[str]) -> None:
    """In the real child, for both problems; what is kept and the tables stay as they are."""
    checkout = Checkout.here()
    for name in ("gemm", "attention"):
        before = (ROOT / "submissions" / name / "tuning.py").read_text()
        found = tuner.tune(find(name, checkout), asked(places=(0, 2), write=True), checkout, lambda text: None)
        assert [case.ended for case in found.cases] == ["only predicted"] * 2
        assert all(case.best and case.best[2 if name == "gemm" else 3] in ("warps", "library") for case in found.cases)
        assert sum(case.pruned for case in found.cases) > 0
        assert (ROOT / "submissions" / name / "tuning.py").read_text() == before


def test_what_the_child_found_is_written_into_the_table(monkeypatch: pytest.MonkeyPatch, checkout: Path) -> None:
    """With --write alone."""
    case = CaseFound(
        params={"m": 1}, best=("sm_90",), best_us=1.0, candidates=1, measured=1, pruned=0, ended="all measured",
        predicted_us=1.0, failed=(),
    )  # fmt: skip
    result = TuneResult(gpu="A", cases=(case,), table=('    Row("sm_90"),\n',))
    monkeypatch.setattr(tuner, "by_child", lambda order, progress: result)
    here = Checkout(checkout)
    path = checkout / "submissions" / "gemm" / "tuning.py"
    before = path.read_text()
    tuner.tune(find("gemm", here), asked(), here, lambda text: None)
    assert path.read_text() == before
    tuner.tune(find("gemm", here), asked(write=True), here, lambda text: None)
    assert 'TABLE = [\n    Row("sm_90"),\n]\n' in path.read_text()


ORDER = TuneOrder(
    root="/", problem="gemm", in_place=False, cases=({"m": 1},), began=5.0, seconds=0.1, at_most=2, pause=3.0, kept="k",
    out="o", chip="", rates=Rates(flops_per_s=1.0, hbm_bytes_per_s=2.0, multiprocessors=0),
)  # fmt: skip


def test_a_child_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one does whose kernel never ends."""
    hangs = tmp_path / "hangs"
    hangs.write_text(f"#!/bin/sh\nsleep 600 &\necho $! > {tmp_path}/pid\nsleep 600\n")
    hangs.chmod(0o755)
    monkeypatch.setattr(tuner.sys, "executable", str(hangs))
    monkeypatch.setattr(tuner, "GRACE_S", 0.5)
    with pytest.raises(HarnessError, match="tuning gemm ended without a result"):
        tuner.by_child(ORDER, lambda text: None)
    grandchild = int((tmp_path / "pid").read_text())
    until(lambda: is_gone(grandchild))


class DoublingInPlace:
    """A problem whose call doubles its input. What the calls were given is kept."""

    def __init__(self) -> None:
        self.given: list[float] = []
        self.reference = self.space = self

    def generate_input(self, **params: object) -> tuple[torch.Tensor, int]:
        return torch.ones(2, 3)[:, :2], 7  # rows with gaps

    def harden(self, data: tuple[torch.Tensor, int], seed: int) -> tuple[torch.Tensor, int]:
        return data[0].clone(), data[1]

    def exact_kernel(self, data: tuple[torch.Tensor, int]) -> Expected:
        return Expected(value=2 * data[0], noise=torch.zeros(2, 2), dtype=torch.float32)

    def row(self, fields: Row) -> Row:
        return fields

    def call(self, row: object, chip: object, data: tuple[torch.Tensor, int]) -> Callable[[], torch.Tensor]:
        def double() -> torch.Tensor:
            self.given.append(float(data[0].sum()))
            return data[0].mul_(2)

        return double


class Device:
    """A GPU that takes no time. What is done with it is noted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: list[str] = []
        self.us = itertools.count(1000.0)  # of the calls
        device = self

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                self.us = 0.0

            def record(self) -> None:
                device.steps.append("event")

            def elapsed_time(self, other: object) -> float:
                self.us = self.us or next(device.us)
                return self.us / 1000

        monkeypatch.setattr(clock, "DEVICE", "cpu")
        monkeypatch.setattr(child, "DEVICE", "cpu")
        monkeypatch.setattr(torch.cuda, "Event", Event)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda: self.steps.append("done"))
        monkeypatch.setattr(clock, "hold_device", lambda cycles: self.steps.append("ahead"))
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(L2_cache_size=8))
        monkeypatch.setattr(clock.driver, "reset_persisting_l2", lambda: self.steps.append("flush"))
        monkeypatch.setattr(clock.time, "sleep", lambda seconds: self.steps.append(f"rest {1e3 * seconds:.1f} ms"))

    def call(self, name: str = "call") -> clock.TimedCall:
        return clock.TimedCall(lambda: self.steps.append(name), lambda: self.steps.append("restore"))


def test_calls_come_one_at_a_time_with_pauses_as_long_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """And get their input back before the caches are flushed."""
    device = Device(monkeypatch)
    times = clock.DeviceClock(3.0).times_us([device.call()] * 2)
    assert times == pytest.approx([1000.0, 1001.0])
    rest = ["restore", "flush", "done", "ahead", "event", "call", "event", "done"]
    assert device.steps == ["rest 2.0 ms", *rest, "rest 3.0 ms", *rest, "done"]


def test_without_a_pause_calls_follow_each_other_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(monkeypatch)
    clock.DeviceClock(0.0).times_us([device.call()] * 2)
    assert device.steps == ["restore", "flush", "event", "call", "event"] * 2 + ["done"]


@pytest.mark.parametrize("in_place", [True, False])
def test_each_call_of_a_problem_that_works_in_place_is_given_the_same(
    in_place: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    Device(monkeypatch)
    problem = DoublingInPlace()
    case = child.CaseBench(problem, None, clock.DeviceClock(), {}, in_place)  # type: ignore[arg-type]
    assert case.measure(("row",)).us == 1000 + child.WARM + child.CALLS // 2
    judged, *timed, again = problem.given
    assert judged == again == 4.0
    assert timed[-1] == (4.0 if in_place else 4.0 * 2 ** (child.WARM + child.CALLS - 1))


def test_a_row_whose_later_calls_are_wrong_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    Device(monkeypatch)
    problem = DoublingInPlace()
    results = itertools.chain([2.0], itertools.repeat(3.0))
    monkeypatch.setattr(problem, "call", lambda row, chip, data: lambda: data[0] * next(results))
    case = child.CaseBench(problem, None, clock.DeviceClock(), {}, False)  # type: ignore[arg-type]
    tried = case.measure(("row",))
    assert (tried.us, tried.note[:6]) == (None, "wrong:")


@pytest.mark.parametrize("error", [AssertionError(), RuntimeError("too much shared memory\nand more")])
def test_a_row_that_raises_is_left_out_with_the_first_line_of_why(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which an assertion without a message does not have."""
    Device(monkeypatch)
    problem = DoublingInPlace()

    def call(row: object, chip: object, data: object) -> None:
        raise error

    monkeypatch.setattr(problem, "call", call)
    case = child.CaseBench(problem, None, clock.DeviceClock(), {}, False)  # type: ignore[arg-type]
    tried = case.measure(("row",))
    assert (tried.us, tried.note) == (None, f"{type(error).__name__}: {str(error)[:22]}")


def test_finalists_take_turns_with_the_reference_and_every_second_round_is_reversed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    device = Device(monkeypatch)
    problem = DoublingInPlace()
    monkeypatch.setattr(problem, "call", lambda row, chip, data: device.call(str(row[0])).run)
    monkeypatch.setattr(problem, "ref_kernel", lambda data: device.steps.append("reference"), raising=False)
    case = child.CaseBench(problem, None, clock.DeviceClock(), {}, False)  # type: ignore[arg-type]
    rows = tuple(Tried(row=(name,), us=us) for name, us in (("a", 5.0), ("b", 6.0), ("c", None)))
    found = search.SearchResult(tried=rows, pruned=0, ended="all measured")
    finalists, reference_us = case.in_turn(found, until=0.0)
    called = [step for step in device.steps if step in ("a", "b", "c", "reference")]
    in_order = ["a", "b", "reference"]
    assert called == ["reference"] * child.WARM + (in_order + in_order[::-1]) * (child.LEAST_ROUNDS // 2)
    assert {one.row for one in finalists} == {("a",), ("b",)}
    assert [one.us for one in finalists] == sorted(one.us for one in finalists)
    assert reference_us is not None
    assert reference_us > 1000
    monkeypatch.setattr(problem, "ref_kernel", lambda data: 1 / 0)
    assert case.in_turn(found, until=0.0)[1] is None


def test_finalists_are_shown_beside_the_reference_and_the_best_as_a_line_of_the_table(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = (("sm_90", (8, 8, 8), "warps", 16, "90.0 us"), ("sm_90", (8, 8, 8), "warps", 8, ""))
    case = CaseFound(
        params={"m": 8}, best=rows[0], best_us=90.0, candidates=2, measured=2, pruned=0, ended="all measured",
        predicted_us=80.0, failed=(), finalists=(Finalist(row=rows[0], us=90.0), Finalist(row=rows[1], us=100.0)),
        reference_us=99.0,
    )  # fmt: skip
    terminal.show(document_of(TuneResult(gpu="A", cases=(case,), table=()), {}), new_console())
    shown = capsys.readouterr().out.splitlines()
    assert [" ".join(line.split()) for line in shown[6:9]] == [
        "m 8 1.100 90.0 warps, 16",
        "0.990 100.0 warps, 8",
        "1.000 99.0 the reference",
    ]
    assert shown[-1] == '    Row("sm_90", (8, 8, 8), "warps", 16, "90.0 us"),'


def test_a_result_and_an_order_survive_their_files() -> None:
    case = CaseFound(
        params={"m": 8}, best=("a", (8, 8)), best_us=90.0, candidates=2, measured=2, pruned=0, ended="all measured",
        predicted_us=80.0, failed=("a: wrong",), finalists=(Finalist(row=("a", (8, 8)), us=90.0),), reference_us=99.0,
    )  # fmt: skip
    result = TuneResult(gpu="A", cases=(case,), table=("line",))
    for record in (result, ORDER):
        assert json_file.record_of(type(record), json_file.line_of(record)) == record


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["gemm_rs", "--predict", "sm_90"], "gemm_rs: submissions/gemm_rs says nothing of its rows"),
        (["gemm", "--predict", "sm_90", "--shapes", "8"], "--shapes 8: suite official has the benchmarks 0 to 7"),
        (["gemm", "--seconds", "0"], "--seconds 0: a number above 0 is needed"),
        (["gemm", "--pause", "-1"], "--pause -1: 0 or a number above it is needed"),
        (["gemm", "--at-most", "0"], "--at-most 0: 1 or more rows can be measured"),
        (["gem", "--predict", "sm_90"], "no problem 'gem'; did you mean 'gemm'"),
    ],
)
def test_what_cannot_be_tuned_is_refused_with_what_to_do(
    words: list[str], message: str, harness: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    result = harness("tune-kernel", *words)
    assert result.returncode == 2
    assert message in result.stderr


def test_a_gpu_without_rates_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for names, message in (((), "no GPU is here to measure on"), (("NVIDIA Abacus",), "NVIDIA Abacus is not in")):
        monkeypatch.setattr(tuner, "gpu_names", lambda names=names: names)
        with pytest.raises(UsageError, match=message):
            tuner.rates("")
