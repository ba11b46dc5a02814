"""Bursts, as calls are timed on GPUs: several inputs are handed out together, and none can be read before its turn."""

import contextlib
import hashlib
import time
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from factories import case, outcome_of
from places import HOSTILE

from harness.core.errors import Exit
from harness.core.records import Crashed, EvalReport, Held, Measured, Raised, TimedOut, Verdict, Verdicts, Wrong
from harness.judging import verdict
from harness.kinds.kind import SubmissionFailed
from harness.kinds.op import measure as op_measure
from harness.kinds.op.calls import Calls
from harness.kinds.op.measure import CaseMeasurement
from harness.ranks import clocks, wire
from harness.ranks.clocks import Budget, due
from harness.ranks.group import CallOrder, Group
from harness.ranks.program import Program
from harness.ranks.wire import CallSample
from harness.ranks.witness import Turn

RIGHT = Verdict(passed=True)
# A call in the middle of a burst: after checks, probes and the warm-up of the first benchmark.
MISBEHAVES = """
import os, time
import torch.distributed as dist
from reference import ref_kernel

calls = 0

def custom_kernel(data):
    global calls
    calls += 1
    if calls == 8 and dist.get_rank() == 1:
        {misbehave}
    return ref_kernel(data)
"""


def in_bursts(evaluated: Callable[..., EvalReport], source: str, timeout_s: float = 30.0) -> EvalReport:
    return evaluated(source, "gemm_rs", mode="leaderboard", burst=True, timeout_s=timeout_s)


@pytest.mark.parametrize("burst", [False, True])
def test_the_reference_is_ranked_and_both_sides_have_had_as_many_calls_when_they_are_timed(
    burst: bool, evaluated: Callable[..., EvalReport], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a process group as new as the other's: its first calls are slower than later ones. Each clock is read in the
    blocks that it is due in."""
    calls: Counter[str] = Counter()
    timed: list[dict[str, int]] = []
    opened, call, enough = Calls.open, Group.call, clocks.enough

    def opening(self: Calls, *groups: Any) -> None:
        calls.clear()
        opened(self, *groups)

    def calling(self: Group, order: CallOrder, deadline: float) -> Any:
        calls[self.role] += len(order.indices)
        return call(self, order, deadline)

    def first_asked(budget: Budget, series: clocks.Samples, elapsed_s: float) -> bool:
        if not series.count("wall"):
            timed.append(dict(calls))
        return enough(budget, series, elapsed_s)

    monkeypatch.setattr(Calls, "open", opening)
    monkeypatch.setattr(Group, "call", calling)
    monkeypatch.setattr(clocks, "enough", first_asked)
    report = evaluated(
        "from reference import ref_kernel as custom_kernel\n", "gemm_rs", mode="leaderboard", burst=burst
    )
    assert verdict.exit_code(report) == Exit.OK, verdict.first_failure(report)
    measured = [result.outcome for result in report.results if isinstance(result.outcome, Measured)]
    assert len(timed) == len(measured) > 0, report.results
    for one in measured:
        wall, *others = one.series
        blocks = len(wall.own) // wall.block
        read = [number for number in range(blocks) if "gpumode" in due(("wall", "gpumode"), number)]
        assert [len(other.own) for other in others] == ([len(read) * wall.block] if burst else [])
    for had in timed:
        assert had["candidate"] == had["baseline"] > 2, had  # it was checked before


def test_work_ahead_of_its_turn_is_done_on_noise(evaluated: Callable[..., EvalReport]) -> None:
    report = in_bursts(evaluated, (HOSTILE / "ahead_in_a_burst.py").read_text())
    failed = verdict.first_failure(report)
    assert failed is not None
    if isinstance(failed.outcome, Held):  # in a burst with a late rank, whose data it did not wait for
        assert failed.outcome.check == "communication"
    else:
        assert isinstance(failed.outcome, Wrong), failed
        assert "a timed call" in failed.outcome.message


@pytest.mark.parametrize(
    ("misbehave", "outcome", "timeout_s"),
    [("os._exit(3)", Crashed, 30.0), ("raise ValueError('no')", Raised, 30.0), ("time.sleep(999)", TimedOut, 3.0)],
)
def test_what_goes_wrong_in_the_middle_is_named_and_bounded(
    misbehave: str, outcome: type, timeout_s: float, evaluated: Callable[..., EvalReport]
) -> None:
    began = time.monotonic()
    report = in_bursts(evaluated, MISBEHAVES.format(misbehave=misbehave), timeout_s)
    failed = verdict.first_failure(report)
    assert failed is not None
    assert isinstance(failed.outcome, outcome), failed
    assert time.monotonic() - began < 200


def test_a_ranks_bursts_run_on_one_core_and_its_other_calls_on_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that submission and reference see the same core; and threads that first calls start are not all born there."""
    moves: list[tuple[int, ...]] = []
    monkeypatch.setattr("os.sched_setaffinity", lambda process, cores: moves.append(tuple(cores)))
    order = SimpleNamespace(cores=(4, 5, 6))
    for kind, wanted in (("cuda", [(6,), (4, 5, 6)]), ("cpu", [])):
        moves.clear()
        program = SimpleNamespace(order=order, settled=order.cores, device=SimpleNamespace(kind=kind))
        for indices in ((0,), (0, 1, 2), (0, 1), (0,)):
            Program.settle(program, wire.Call(indices=indices, epoch=1, clock="wall"))  # type: ignore[arg-type]
        assert moves == wanted, kind


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Calls of two ranks that take no time, whose outputs are right; a sample is measured for a second."""

    def seed(*place: int | str) -> int:
        return int.from_bytes(hashlib.blake2b(repr(place).encode(), digest_size=4).digest())

    problem = SimpleNamespace(cost_of=None, depends_on=lambda case, rank: {0, 1})
    plan: Any = SimpleNamespace(
        seed=seed, clocks=("wall",), opponent=None, problem=problem, budget=None, device="cpu", world_size=2
    )
    calls = Calls(plan, SimpleNamespace(trusted=None, baseline=None, candidate=None))  # type: ignore[arg-type]
    call = CallSample(start_ns=0, end_ns=1000, device_us=None, output=None)
    turn = Turn(began_ns=0, ended_ns=1000, called=((call,),))
    for name, found in (("make", None), ("turn", turn)):
        monkeypatch.setattr(calls, name, lambda *_, found=found, **__: found)
    monkeypatch.setattr(calls, "verify", lambda *indices: [Verdicts(strict=RIGHT, gpumode=RIGHT) for _ in indices])
    monkeypatch.setattr(op_measure, "_budget", lambda *_: Budget(seconds=1))
    return calls


def test_a_case_that_is_measured_twice_has_its_delays_and_counts_elsewhere(
    played: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ranks are the same, and have seen where the first measurement had them."""

    def fail() -> None:
        raise SubmissionFailed(Held(check="clock", evidence=""))

    probes: list[op_measure.Probe] = []
    monkeypatch.setattr(CaseMeasurement, "block", lambda *these: probes.append(these[4]) or fail())
    for _ in range(2):
        measurement = CaseMeasurement(played, case({}), None, contextlib.nullcontext)
        outcome_of(measurement.samples, played.plan.clocks)
    first, second = ([(probe.due(at, 1), probe.place(8)) for at in range(400)] for probe in probes)
    assert [late for late, _ in first if late] != []
    assert first != second
    assert [probes[0].secret("counted", at) for at in range(9)] != [probes[1].secret("counted", at) for at in range(9)]


def test_a_measurement_tells_what_is_left_of_it(played: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs and outputs that take long are counted, and the look for caches that follows the samples."""
    now_s = 0.0
    call = CallSample(start_ns=0, end_ns=1000, device_us=None, output=None)

    def block(self: CaseMeasurement, budget: Budget, samples: clocks.Samples, *_: object) -> None:
        nonlocal now_s
        now_s += 4 * 10.0
        samples.add("wall", [[call]] * 4, [[call]] * 4)

    monkeypatch.setattr(CaseMeasurement, "block", block)
    monkeypatch.setattr(op_measure, "time", SimpleNamespace(monotonic=lambda: now_s))
    monkeypatch.setattr(op_measure, "_budget", lambda *_: Budget(seconds=1, min_samples=8))
    played.making_s, played.judging_s, played.checked_s = 2.0, 3.0, 20.0
    played.shortened.add(played.at)
    told: list[float] = []
    CaseMeasurement(played, case({}), None, contextlib.nullcontext, told.append).samples(played.plan.clocks)
    looks = op_measure.FEWER_INPUTS
    assert told == pytest.approx([(8 + looks) * 10.0, (4 + looks) * 10.0, looks * 10.0], rel=1e-3)


@pytest.mark.parametrize(
    ("nbytes", "spare_bytes", "in_flight_bytes", "block", "burst"),
    [
        (100, 1 << 40, 1 << 40, 7, True),
        (100, (4 * 100 + 3 * 50) * 8, 1 << 40, 5, True),
        (100, 0, 1 << 40, 1, False),
        (1 << 20, 1 << 40, 1 << 30, 7, True),
        (1 << 30, 1 << 40, 1 << 30, 1, False),
    ],
    ids=["much", "little", "none", "small inputs", "large inputs"],
)
def test_blocks_are_as_small_as_inputs_are_large_for_the_fullest_device(
    nbytes: int, spare_bytes: int, in_flight_bytes: int, block: int, burst: bool
) -> None:
    plan: Any = SimpleNamespace(
        budget=Budget(seconds=1, block=7, burst=True),
        device="cuda",
        in_flight_bytes=in_flight_bytes,
        clocks=("wall",),
        phases=(),
        opponent=None,
    )
    calls = Calls(plan, SimpleNamespace(trusted=None, baseline=None, candidate=None))  # type: ignore[arg-type]
    one = SimpleNamespace(inputs=[SimpleNamespace(nbytes=nbytes)], output_limit=50, spare_bytes=1 << 50)
    calls.made = [one, SimpleNamespace(**{**vars(one), "spare_bytes": spare_bytes})]  # type: ignore[list-item]
    budget = op_measure._budget(calls, case({}), 100.0)
    assert (budget.block, budget.burst) == (block, burst)


@pytest.mark.parametrize(("call_us", "burst"), [(3_000.0, True), (47_000.0, False)])
def test_long_calls_are_made_one_by_one(call_us: float, burst: bool) -> None:
    """A burst's first calls only warm up the host: of a model's generation that would be as much time again."""
    plan = SimpleNamespace(budget=Budget(seconds=1, block=7, burst=True), clocks=("wall",))
    calls: Any = SimpleNamespace(plan=plan, making_s=0.1, judging_s=0.1, share_s=lambda: 1000.0, room=lambda: 100)
    budget = op_measure._budget(calls, case({}), call_us)
    assert (budget.block, budget.burst) == (7, burst)
