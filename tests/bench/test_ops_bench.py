"""bench/ops.py and bench/conditions.py without a GPU: what their calls are given; what bench/delays.py shows; and when
the busy processes of bench/trust.py end."""

import importlib
import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness.core.checkout import ROOT, Checkout
from harness.core.metrics import CLOCKS
from harness.core.records import Series
from harness.problems import shape_file
from harness.tuning import clock


class Event:
    """One of a device that takes no time."""

    def __init__(self, enable_timing: bool) -> None:
        pass

    def record(self) -> None:
        pass

    def elapsed_time(self, other: object) -> float:
        return 1.0


@pytest.mark.parametrize("in_place", [True, False])
def test_a_call_that_works_in_place_gets_its_input_back(in_place: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the two inputs that calls take in turn."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    ops = importlib.import_module("bench.ops")
    for name in ("empty_cache", "synchronize", "reset_peak_memory_stats"):
        monkeypatch.setattr(torch.cuda, name, lambda: None)
    for name in ("memory_allocated", "max_memory_allocated"):
        monkeypatch.setattr(torch.cuda, name, lambda: 0)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(clock, "hold_device", lambda cycles: None)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(L2_cache_size=64))
    monkeypatch.setattr(clock.driver, "reset_persisting_l2", lambda: None)
    monkeypatch.setattr(clock, "DEVICE", "cpu")
    monkeypatch.setattr(clock, "LEAST_PAUSE_S", 0)
    reference: Any = SimpleNamespace(
        generate_input=lambda rank, world_size, seed, **params: (torch.ones(2, 3)[:, :2], 7),
        harden=lambda data, seed: (3 * data[0], data[1]),
    )
    given: list[float] = []

    def double(data: Any) -> torch.Tensor:
        given.append(float(data[0].sum()))
        return data[0].mul_(2)

    case = shape_file.find("cross_entropy", Checkout.here()).suite("quick").benchmarks[0]
    ops.figures_of(reference, case, double, in_place)
    timed = given[-ops.CALLS :]
    assert (timed == [4.0, 12.0] * (ops.CALLS // 2) + [4.0]) == in_place


@pytest.mark.parametrize("in_place", [True, False])
def test_a_condition_changes_what_it_names_and_nothing_else(in_place: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    conditions = importlib.import_module("bench.conditions")
    did: list[str] = []

    def doing(name: str) -> Any:
        return lambda *_: did.append(name)

    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "_sleep", doing("sleeps"))
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(conditions.time, "sleep", lambda seconds: did.append("pauses") if seconds else None)
    names = ("flush_caches", "release", "regain")
    gpu = SimpleNamespace(
        **{name: doing(name) for name in names},
        synchronize=lambda: None,
        scratch=SimpleNamespace(sum=doing("reads"), zero_=doing("zeros")),
        start=Event(True),
        end=Event(True),
    )

    def held(call: Any, lead_s: float) -> float:
        did.append("held")
        call()
        return 2.0

    given: list[tuple[int, float]] = []

    def kernel(data: Any) -> None:
        did.append("called")
        given.append((data[0].data_ptr(), float(data[0].sum())))
        data[0].mul_(2 if in_place else 1)

    bench = conditions.Bench(
        kernel=kernel,
        hardened=(3 * torch.ones(2, 4)[:, :2], None),
        plain=(torch.ones(2, 4)[:, :2], None),
        in_place=in_place,
        held=SimpleNamespace(gpu=gpu, time_us=held),
        neighbour=SimpleNamespace(start=doing("starts"), work=doing("works")),
    )
    expected = {
        "bench": ["flush_caches", "sleeps", "called"],
        "back to back": ["flush_caches", "called"],
        "kept lines not reset": ["zeros", "sleeps", "called"],
        "caches flushed and clean": ["flush_caches", "reads", "sleeps", "called"],
        "long pause before the call": ["flush_caches", "pauses", "sleeps", "called"],
        "device barrier": ["flush_caches", "held", "called"],
        "new memory for the output": ["release", "regain", "flush_caches", "sleeps", "called"],
        "all of an evaluation": ["release", "works", "regain", "flush_caches", "pauses", "held", "called"],
    }
    for condition in conditions.CONDITIONS:
        did.clear()
        given.clear()
        times = bench.times_us(condition)
        assert times == [2.0 if condition.wait == "barrier" else 1000.0] * conditions.CALLS
        done = [one for one in did if one != "starts"]
        if condition.name in expected:
            assert done == expected[condition.name] * (conditions.WARM + conditions.CALLS), condition.name
        inputs = [4.0] if condition.plain else [12.0]
        inputs += [4.0] * condition.alternate
        assert [total for _, total in given] == [inputs[i % len(inputs)] for i in range(len(given))], condition.name
    assert {condition.neighbour for condition in conditions.CONDITIONS} == {"", "rests", "works", "frees"}


def test_a_delay_that_is_seen_in_full_has_no_bias(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(ROOT / "bench")])
    delays = importlib.import_module("bench.delays")
    noise = (-3.0, 1.0, 0.0, 2.0, -1.0, 0.0, 3.0, -2.0)
    full, half = (
        Series(metric=CLOCKS["wall"], own=tuple(100 + delay + one for one in noise), baseline=(100.0,) * len(noise))
        for delay in (20.0, 10.0)
    )
    call_us, bias, farthest, resolution, samples = delays.shown([full, half, half], 20.0)
    assert (call_us, bias, farthest, samples) == (100, -10, "-10.0 to 0.0", 24)
    assert 0 < resolution <= 3


def test_entries_of_several_ranks_are_of_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models and trainings have no wall and device clocks, by which the table goes."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(ROOT / "bench")])
    assert importlib.import_module("bench.gpu").operators() == ["a2a", "ag_gemm", "gemm_rs", "moe"]


def test_a_busy_process_ends_when_its_parent_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    busy = [sys.executable, "-c", importlib.import_module("trust").BUSY]
    subprocess.run([*busy, "0"], timeout=300, check=True)  # as if the parent were another by now
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run([*busy, str(os.getpid())], timeout=0.2, check=True)
