"""What NVLinks carried: read from the GPUs' counters, held against the least, told in words."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from factories import results, timed

from harness.core.decode import decode, encode
from harness.core.machine_records import LinkTraffic, NoTraffic, Traffic
from harness.core.records import Held, Measured
from harness.kinds.op.traffic import TrafficCount
from harness.machine.nvml import LinkCounters
from harness.ranks.witness import Turn
from harness.report.traffic import traffic_words

MIB = 1 << 20
CALLS = 10
TURN = Turn(began_ns=0, ended_ns=1, called=((),) * CALLS)


class Nvml:
    """pynvml for GPUs whose counters stand at `kib`, by what was sent and received; `fails` as NVML does."""

    NVML_ERROR_NOT_SUPPORTED = 3

    class NVMLError(Exception):
        def __str__(self) -> str:
            return f"error {self.args[0]}"

    def __init__(self, gpus: int = 2) -> None:
        self.kib = [[7, 9] for _ in range(gpus)]
        self.fails = 0

    def nvmlInit(self) -> None: ...
    def nvmlShutdown(self) -> None: ...

    def nvmlDeviceGetCount(self) -> int:
        return len(self.kib)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetFieldValues(self, gpu: int, fields: list[tuple[int, int]]) -> list[Any]:
        assert [scope for _, scope in fields] == [0xFFFFFFFF] * 2, "all links together"
        kib = {138: self.kib[gpu][0], 139: self.kib[gpu][1]}
        return [SimpleNamespace(nvmlReturn=self.fails, value=SimpleNamespace(ullVal=kib[field])) for field, _ in fields]


def counted(own: list[float], baseline: list[float], least_bytes: float = MIB, fails: int = 0) -> TrafficCount:
    """Turns of both sides in which each GPU sends that part of what it has to, and receives a tenth of that."""
    nvml = Nvml()
    nvml.fails = fails
    count = TrafficCount(LinkCounters(nvml=nvml), least_bytes)

    def turn(part: float) -> Turn:
        for gpu in nvml.kib:
            gpu[0] += int(part * CALLS * least_bytes / 1024)
            gpu[1] += int(part * CALLS * least_bytes / 10240)
        return TURN

    for is_baseline, parts in ((True, baseline), (False, own)):
        for part in parts:
            assert count.turn(is_baseline, CALLS, lambda part=part: turn(part)) is TURN  # type: ignore[misc]
    return count


def test_traffic_is_that_of_the_busier_direction_a_call() -> None:
    count = counted([1.0, 1.5], [2.0, 2.0])
    record = count.record()
    assert isinstance(record, LinkTraffic)
    assert record.calls == 2 * CALLS
    assert record.own_bytes == pytest.approx(1.25 * MIB)
    assert record.baseline_bytes == pytest.approx(2 * MIB)
    assert count.doubt() is None


@pytest.mark.parametrize("own", [[0.0, 0.0], [1.0, 0.01, 1.0]], ids=["none at all", "in most turns only"])
def test_whoever_moves_too_little_in_a_turn_is_held_with_the_figures(own: list[float]) -> None:
    doubt = counted(own, [1.0, 1.0]).doubt()
    assert isinstance(doubt, Held)
    assert doubt.check == "communication"
    assert "needs 1024 KiB" in doubt.evidence


def test_ranks_that_have_less_to_send_than_the_busiest_are_not_held() -> None:
    assert counted([0.5, 0.4], [0.5, 0.5]).doubt() is None


UNKNOWN: dict[str, tuple[TrafficCount, str]] = {
    "the counters do not count the baseline either": (counted([0.0], [0.0]), "do not show what the baseline sends"),
    "there are no counters": (counted([0.0], [1.0], fails=3), "error 3"),
    "too few bytes": (counted([0.0], [1.0], least_bytes=4096), "40 KiB in 10 calls are too few"),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_where_counters_say_nothing_nobody_is_held_and_the_record_says_why(case: str) -> None:
    count, why = UNKNOWN[case]
    record: Traffic | None = count.record()
    assert isinstance(record, NoTraffic)
    assert why in record.why
    assert count.doubt() is None


def test_nothing_is_counted_without_gpus_or_links_to_count_on() -> None:
    assert TrafficCount(None, MIB).record() is None
    assert TrafficCount(LinkCounters(nvml=Nvml()), 0).record() is None


def test_a_report_says_how_communication_was_shown() -> None:
    counted_shape = LinkTraffic(calls=20, own_bytes=3.0 * MIB, baseline_bytes=4.0 * MIB, least_bytes=2.0 * MIB)
    small = NoTraffic(why="40 KiB in 10 calls are too few to count")

    def told(*found: Traffic | None) -> str:
        return traffic_words(results([], [replace(timed(), traffic=one) for one in found]))

    assert told(counted_shape, counted_shape) == "by traffic in all shapes: NVLink carried 1.50x to 1.50x the least"
    assert told(counted_shape, small).startswith("by traffic in 1 of 2 shapes")
    assert told(small) == "not by traffic: 40 KiB in 10 calls are too few to count"
    assert told(None) == "", "on CPUs and on one GPU"
    for one in (counted_shape, small, None):
        measured = replace(timed(), traffic=one)
        assert decode(Measured, encode(measured)) == measured
