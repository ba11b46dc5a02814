"""bench/ops.py without a GPU: what its calls are given."""

import importlib
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness.core.checkout import Checkout
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
