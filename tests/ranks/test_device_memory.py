"""How groups of ranks share a device's memory: nobody keeps much while others are on turn, no case keeps another's."""

import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from harness.core.records import Case, Verdict, Verdicts
from harness.kinds.op import measure as op_measure
from harness.kinds.op.calls import Calls
from harness.ranks import device, program, trusted, wire
from harness.ranks.clocks import Budget
from harness.ranks.group import CallOrder
from harness.ranks.wire import KEPT_BYTES


class Group:
    """A group of one rank that answers at once and keeps what it was told."""

    opened_ns = 0
    told_ns = ()

    def __init__(self, excess_bytes: int = 0) -> None:
        self.told: list[Any] = []
        self.excess_bytes = excess_bytes

    def send(self, commands: Any, files: Any = ()) -> None:
        self.told += commands if isinstance(commands, list) else [commands]

    def gather(self, reply: type, deadline: float) -> list[Any]:
        buffers = wire.Buffers(inputs=trusted.NO_BUFFER, outputs=trusted.NO_BUFFER)
        made = wire.InputsMade(
            inputs=(wire.Input(tree="", nbytes=1, masked=False),), buffers=buffers, output_limit=1, spare_bytes=1
        )
        return [made if reply is wire.InputsMade else wire.Done()]

    def ask(self, commands: Any, reply: type, deadline: float) -> list[Any]:
        self.send(commands)
        return self.gather(reply, deadline)

    def call(self, *arguments: Any) -> list[list[wire.CallSample]]:
        return [[wire.CallSample(start_ns=1, end_ns=2, device_us=None, output=None)]]

    def take_files(self, count: int) -> list[list[int]]:
        return [[]]

    def sealed_ns(self) -> int:
        return 3

    def freeze(self) -> None: ...

    def of(self, kind: type) -> list[Any]:
        return [command for command in self.told if isinstance(command, kind)]


def calls_of(device: str, excess_bytes: int = 0) -> tuple[Calls, Any]:
    groups: Any = SimpleNamespace(trusted=Group(), baseline=Group(excess_bytes), candidate=Group(excess_bytes))
    plan: Any = SimpleNamespace(
        device=device, is_stepped=False, opponent=None, checker="strict", baseline_name="the reference"
    )
    return Calls(plan, groups), groups


def case(m: int) -> Case:
    return Case(kind="test", params={"m": m}, seed=1, world_size=1)


SPEC = [wire.InputSpec(seed=1, hardened=False)]


def test_a_new_case_begins_with_buffers_of_its_own() -> None:
    calls, groups = calls_of("cuda")
    for m in (1, 1, 2):
        calls.make(case(m), SPEC)
    assert [command.renew for command in groups.trusted.of(wire.MakeInputs)] == [True, False, True]
    assert groups.candidate.of(wire.Yield) == groups.baseline.of(wire.Yield) == [wire.Yield(case=True)] * 2


def test_on_cpus_buffers_are_files_that_take_no_room() -> None:
    calls, groups = calls_of("cpu")
    calls.make(case(1), SPEC)
    assert not groups.trusted.of(wire.MakeInputs)[0].renew
    assert not groups.candidate.told


@pytest.mark.parametrize(("excess_bytes", "yields"), [(0, 0), (KEPT_BYTES, 1)])
def test_a_group_that_holds_much_yields_it_after_its_turn(excess_bytes: int, yields: int) -> None:
    calls, groups = calls_of("cuda", excess_bytes)
    calls.make(case(1), SPEC)
    calls.turn(groups.candidate, CallOrder(indices=[0]))
    calls.turn(groups.candidate, CallOrder(indices=[0]))
    assert groups.candidate.told.count(wire.Do(what="regain")) == yields  # ahead of the second turn
    assert groups.candidate.of(wire.Yield)[1:] == [wire.Yield()] * (2 * yields)


def test_what_a_group_gives_back_is_open_nowhere_by_then() -> None:
    """Device memory that another process has mapped stays taken, and is cleared when nobody waits for that any more:
    cross_entropy's calls behind the reference's took 8 % longer."""
    calls, groups = calls_of("cuda", KEPT_BYTES + 1)
    calls.make(case(1), SPEC)
    yielded = []
    for group in (groups.candidate, groups.trusted):
        group.send = lambda command, *_, group=group: yielded.append(group) if command == wire.Yield() else None
    calls.turn(groups.candidate, CallOrder(indices=[0]))
    assert yielded == [groups.trusted, groups.candidate]


def test_memory_goes_back_behind_the_last_of_several_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is on turn between two, and a right result of many GiB is found once for all outputs of an input."""
    calls, groups = calls_of("cuda")
    calls.made, calls._keys = [], [0, 0]
    monkeypatch.setattr(groups.trusted, "gather", lambda reply, deadline: [])
    calls.judge(1, 0, 1)
    judge: Any = object.__new__(trusted.Trusted)
    judge.taken, judge.stepped, judge.made, judge.known = [], [], ["first", "second"], None
    judge.device, judge.expected_nbytes = Mock(), trusted.MOST_KEPT_EXPECTED + 1
    judge.default_device, judge.right_result = Mock(return_value=nullcontext()), Mock(side_effect=str)
    right = Verdicts(strict=Verdict(passed=True), gpumode=Verdict(passed=True))

    def verified(command: wire.Verify) -> wire.Verified:
        judge.expected(command.index)
        assert not judge.device.release.called
        return wire.Verified(verdicts=right)

    judge.verified = verified
    for command in groups.trusted.of(wire.Verify):
        judge.verify(command)
    assert [call.args for call in judge.right_result.call_args_list] == [("first",), ("second",)]
    assert judge.device.release.call_count == 1
    assert judge.known is None


def test_what_was_released_is_taken_again_before_the_next_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that no timed call asks the device for memory."""
    held, done = KEPT_BYTES + (64 << 20), []
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda id=None: held)

    def empty_cache() -> None:
        nonlocal held
        held -= KEPT_BYTES
        done.append("empty")

    monkeypatch.setattr(torch.cuda, "empty_cache", empty_cache)
    monkeypatch.setattr(time, "sleep", done.append)
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    monkeypatch.setattr(torch, "empty", lambda nbytes, **named: done.append(nbytes))
    gpu = device.GpuDevice.__new__(device.GpuDevice)
    gpu.id, gpu.released, gpu.most_kept_bytes, gpu.cleared_s = torch.device("cuda:0"), 0, KEPT_BYTES, 0.0
    cleared_s = device.CLEARING_S + KEPT_BYTES / device.CLEARED_BYTES_PER_S
    gpu.release(wait=False)
    assert done == ["empty"]
    gpu.release()  # little is left, and is kept
    gpu.regain()
    gpu.regain()
    assert done[1:] == [pytest.approx(cleared_s), KEPT_BYTES], "the driver has cleared it before others are timed"
    held = KEPT_BYTES
    gpu.release(everything=True)  # before another case
    gpu.regain()
    assert done[3:] == ["empty", pytest.approx(2 * cleared_s)]


def test_a_full_device_is_told_in_a_line() -> None:
    said = "CUDA out of memory. Tried to allocate 12.00 GiB. GPU 0 has a total capacity of 139.72 GiB\nmore"
    failed = program.failed(torch.OutOfMemoryError(said), "/nowhere")
    message = failed.message
    assert failed.reason == "device_memory"
    assert message.startswith("out of the device's memory: 12.00 GiB were asked for, with ")
    assert "\n" not in message


def test_room_for_outputs_follows_from_the_right_result(tmp_path: Path) -> None:
    """Of large ones there is little to spare, of small ones enough for any dtype and number of rows."""
    assert program.output_limit(0) == 16 << 20
    assert program.output_limit(64 << 20) == 128 << 20
    assert program.output_limit(4 << 30) == (4 << 30) + (256 << 20)


def test_outgrown_buffers_go_with_the_case(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[SimpleNamespace] = []

    def buffer(nbytes: int, handle: str) -> Any:
        made.append(SimpleNamespace(nbytes=nbytes, handle="", closed=False))
        made[-1].close = lambda one=made[-1]: setattr(one, "closed", True)
        return made[-1]

    device: Any = SimpleNamespace(buffer=buffer, release=lambda wait: None)
    exchange = trusted.TrustedExchange(Mock(), device, judged=True)
    exchange.make_room(3 << 20, 1)
    exchange.make_room(5 << 20, 1)
    assert [one.nbytes for one in made] == [4 << 20, 2 << 20, 6 << 20]  # as large as is needed, by the page
    assert not any(one.closed for one in made)  # somebody may have them open
    exchange.close_buffers()
    assert all(one.closed for one in made)


@pytest.mark.parametrize(
    ("making_s", "judging_s", "share_s", "least", "block"),
    [
        (0.1, 0.0, 1000.0, 16, 7),
        (1.5, 0.0, 1000.0, 8, 4),
        (0.1, 1.5, 1000.0, 8, 4),
        (0.6, 0.6, 1000.0, 8, 4),
        (0.1, 0.4, 72.0, 16, 7),
        (0.1, 0.4, 36.0, 8, 4),  # 96 outputs of the usual minimum on three clocks would take longer
    ],
)
def test_where_making_inputs_or_judging_outputs_takes_long_half_the_samples_have_to_do(
    making_s: float, judging_s: float, share_s: float, least: int, block: int
) -> None:
    plan = SimpleNamespace(budget=Budget(seconds=2.0, block=7, burst=True), clocks=("wall", "device", "gpumode"))
    calls: Any = SimpleNamespace(
        plan=plan,
        making_s=making_s,
        judging_s=judging_s,
        at=3,
        shortened=set(),
        share_s=lambda: share_s,
        room=lambda: 100,
    )
    budget = op_measure._budget(calls, Case(kind="benchmark", params={}, seed=1, world_size=1), 100.0)
    assert (budget.min_samples, budget.block, budget.burst) == (least, block, True)
    assert calls.shortened == ({3} if least == 8 else set())


def test_samples_that_are_few_already_stay() -> None:
    """Of a model's generations: two blocks, which an interval takes."""
    plan = SimpleNamespace(budget=Budget(seconds=2.0, min_samples=8, block=4), clocks=("wall",))
    calls: Any = SimpleNamespace(
        plan=plan, making_s=9.0, judging_s=9.0, at=0, shortened=set(), share_s=lambda: 1.0, room=lambda: 100
    )
    assert op_measure._budget(calls, Case(kind="benchmark", params={}, seed=1, world_size=1), 100.0) == plan.budget
    assert calls.shortened == set()
