"""The table of peaks, and the roofline over it."""

import itertools
import json
import os
import subprocess
import sys
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest

from harness.core.checkout import Checkout
from harness.core.errors import BadFileError, UsageError
from harness.core.machine_records import CpuUse, Peaks
from harness.core.records import Bound, Cost, Mode
from harness.kinds.op import peaks as op_peaks
from harness.kinds.op import watch
from harness.kinds.phases import phases
from harness.machine import host, peaks_cache
from harness.machine.hardware import bound, limit, match, of_class, peaks
from harness.problems.shape_file import find
from harness.ranks import wire

UNIT = Peaks(flops_per_s=1e6, hbm_bytes_per_s=1e6, link_bytes_per_s=1e6, source="test")


@pytest.mark.parametrize(
    ("name", "flops_per_s", "hbm_bytes_per_s", "link_bytes_per_s"),
    [
        ("MI300X", 1307.4e12, 5.3e12, 448e9),
        ("MI325X", 1307.4e12, 6e12, 448e9),
        ("MI355X", 2516.6e12, 8e12, 537.6e9),
        ("H100 SXM", 989e12, 3.35e12, 450e9),
        ("H200", 989e12, 4.8e12, 450e9),
        ("B200", 2250e12, 8e12, 900e9),
    ],
)
def test_the_table_holds_the_vendors_figures(
    name: str, flops_per_s: float, hbm_bytes_per_s: float, link_bytes_per_s: float
) -> None:
    """Whatever the case of the name, and each with a source and a year."""
    found = peaks(name.lower())
    assert (found.flops_per_s, found.hbm_bytes_per_s, found.link_bytes_per_s) == (
        flops_per_s,
        hbm_bytes_per_s,
        link_bytes_per_s,
    )
    assert "vendor datasheet" in found.source
    assert ", 202" in found.source


@pytest.mark.parametrize(
    ("device_name", "name"),
    [
        ("NVIDIA H200", "H200"),
        ("NVIDIA B200", "B200"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("AMD Instinct MI300X", "MI300X"),
        ("amd instinct mi325x", "MI325X"),
    ],
)
def test_a_device_is_found_by_the_name_that_torch_gives_it(device_name: str, name: str) -> None:
    """Case does not matter."""
    assert match(device_name) == peaks(name)


@pytest.mark.parametrize(
    "device_name",
    [
        "",
        "cpu",
        "NVIDIA GH200 480GB",
        "NVIDIA H200 NVL",
        "NVIDIA H100 PCIe",
        "NVIDIA H200 MIG 1g.18gb",
        "AMD Instinct MI300A",
    ],
)
def test_a_device_that_only_looks_alike_is_not_matched(device_name: str) -> None:
    """Its rates are others; better measured than wrong."""
    assert match(device_name) is None


def test_an_unknown_gpu_is_answered_with_the_nearest_and_the_list() -> None:
    """As everywhere."""
    with pytest.raises(UsageError, match=r"no GPU 'mi300' in hardware.yaml; did you mean 'MI300X'\? \(known: MI300X, "):
        peaks("mi300")


@pytest.mark.parametrize(
    ("cost", "expected"),
    [
        (Cost(flops=3, hbm_bytes=2, link_bytes=1), (3.0, "flops")),
        (Cost(flops=1, hbm_bytes=3, link_bytes=2), (3.0, "hbm")),
        (Cost(flops=2, hbm_bytes=1, link_bytes=3), (3.0, "link")),
    ],
)
def test_the_bound_is_the_longest_of_the_three_times(cost: Cost, expected: tuple[float, str]) -> None:
    """In microseconds, with the name of what binds."""
    assert bound(cost, UNIT) == expected


ROW = (
    "gpus:\n  X1:\n    device_names: [Xen X1]\n    flops_per_s: 1.0e+12\n    hbm_bytes_per_s: 1.0e+12\n"
    "    link_bytes_per_s: 1.0e+9\n    source: a leaflet\n    date: '2025-01'\n"
)


def test_one_rank_has_no_links_and_so_no_rate_that_could_bound_it(tmp_path: Path) -> None:
    """A GPU that the table does not know is measured, and one rank's links come out as 0. It was a division by 0."""
    measured = replace(UNIT, link_bytes_per_s=0.0)
    assert bound(Cost(flops=1, hbm_bytes=3, link_bytes=0), measured) == (3.0, "hbm")
    file = tmp_path / "peaks.json"
    peaks_cache.store(file, measured)
    assert peaks_cache.load(file) == measured, "it is not measured again at every evaluation"


def test_a_call_that_costs_only_what_has_no_rate_has_no_limit() -> None:
    """It was a bound of 0, which a report cannot have: the evaluation ended without one."""
    only_links = Cost(flops=0, hbm_bytes=0, link_bytes=1)
    assert limit(only_links, UNIT) == Bound(value=1.0, by="link")
    assert limit(only_links, replace(UNIT, link_bytes_per_s=0.0)) is None


def test_a_machine_class_has_the_peaks_of_its_gpus() -> None:
    """By the same words that a report's environment is written in."""
    for ranks in (4, 1):
        assert of_class(host.environment("NVIDIA H200", ranks).machine_class, ranks) == peaks("H200")
    assert of_class("4x NVIDIA H200", 2) is None
    assert of_class("4x NVIDIA H200 NVL", 4) is None
    assert of_class(host.environment("", 4).machine_class, 4) is None


def test_the_best_peaks_seen_are_kept_with_how_old_they_are(tmp_path: Path) -> None:
    """Other work makes a measured peak low: 36, 46 and 76 GFLOP/s were measured on one machine class."""
    file = tmp_path / "peaks.json"
    assert peaks_cache.is_due(file, 0.0)
    peaks_cache.store(file, replace(UNIT, flops_per_s=36.0, hbm_bytes_per_s=9.0), 2.0, today="2026-05-01")
    found = peaks_cache.store(file, replace(UNIT, flops_per_s=76.0, hbm_bytes_per_s=8.0), 0.1, today="2026-05-09")
    assert (found.flops_per_s, found.hbm_bytes_per_s) == (76.0, 9.0)
    assert found.source == "the best of 2 measurements on this machine, 2026-05-01 to 2026-05-09"
    assert peaks_cache.load(file) == found


def test_peaks_of_a_busy_moment_are_measured_again_as_soon_as_it_is_quiet(tmp_path: Path) -> None:
    """Busy is what `doctor` warns of. Once on that day is enough."""
    file = tmp_path / "peaks.json"
    peaks_cache.store(file, UNIT, 0.4, today="2026-05-01")
    assert not peaks_cache.is_due(file, 0.3, today="2026-05-09"), "busy again"
    assert peaks_cache.is_due(file, 0.2, today="2026-05-01")
    assert not peaks_cache.is_due(file, 0.2, measures=False, today="2026-05-01"), "an evaluation of tests has no limit"
    peaks_cache.store(file, UNIT, 0.2, stolen=0.3, today="2026-05-01")
    assert not peaks_cache.is_due(file, 0.0, today="2026-05-01")


def test_peaks_are_measured_on_three_quiet_days_and_a_month_later(tmp_path: Path) -> None:
    """Not more than once a day. A day on which a shared host gave the cores to other guests does not count."""
    file = tmp_path / "peaks.json"
    days = []
    for number in range(60):
        today = str(date(2026, 5, 1) + timedelta(days=number))
        for _ in range(3):  # evaluations
            if peaks_cache.is_due(file, 0.1, today=today):
                peaks_cache.store(file, UNIT, 0.1, stolen=0.2 if number == 1 else 0.01, today=today)
                days.append(number)
    assert days == [0, 1, 2, 3, 34]


def test_an_evaluation_of_tests_measures_no_peaks_again_and_what_others_took_meanwhile_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "peaks.json"
    peaks_cache.store(file, UNIT, 0.1, today="2026-05-01")
    monkeypatch.setattr(op_peaks, "_file", lambda plan, device_model: file)
    suite = find("gemm", Checkout.here()).suite("cpu")
    plans: dict[Mode, Any] = {mode: SimpleNamespace(phases=phases(suite, mode)) for mode in get_args(Mode)}
    assert {mode for mode, plan in plans.items() if op_peaks.known(plan, "", 0.1) is None} == {
        "benchmark",
        "leaderboard",
    }
    rates = wire.PeaksMeasured(flops_per_s=2e6, memory_bytes_per_s=1e6, link_bytes_per_s=1e6)
    monkeypatch.setattr(watch, "_own_s", lambda: 0.0)
    for stolen, used, quiet in ((30, 0, 1), (1, 30, 1), (1, 10, 2)):
        times = itertools.chain(
            [host.CpuTime(total=0, stolen=0)], itertools.repeat(host.CpuTime(total=100, stolen=stolen, used=used))
        )
        monkeypatch.setattr(host, "cpu_time", lambda times=times: next(times))
        trusted = SimpleNamespace(ask=lambda *_: [rates])
        calls: Any = SimpleNamespace(trusted=trusted, deadline=None, plan=plans["leaderboard"])
        assert op_peaks.measured(calls, "", 2.0).flops_per_s == 2e6, "the load of before is not what counts"
        assert len(json.loads(file.read_text())["quiet"]) == quiet


def test_stolen_time_is_a_part_of_that_of_the_cores_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other cores of a host are not counted, nor what guests of this machine take, which is in user time already."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {1, 2})
    text = "cpu 9 9 9 9 9 9 9 9 9 9\ncpu0 0 0 0 0 0 0 0 {0} 0 0\n"
    text += "cpu1 {1} 0 {1} 50 0 1 1 {2} {1} 0\ncpu2 5 0 0 0 0 0 0 0 0 0\nintr 1\n"
    read = iter(text.format(*counts) for counts in ((0, 10, 100), (500, 50, 120)))
    monkeypatch.setattr(host, "text_if_any", lambda path: next(read))
    before = host.cpu_time()
    assert before == host.CpuTime(total=177, stolen=100, used=25)
    after = host.cpu_time()
    assert after.stolen_since(before) == pytest.approx(20 / 100)
    assert before.stolen_since(before) == 0.0
    own_s = 30 / os.sysconf("SC_CLK_TCK")  # of 80 ticks in 100, of two cores; other guests took 20 more
    assert after.others_since(before, own_s) == pytest.approx(2 * 70 / 100)
    assert after.others_since(before, 4 * own_s) == 0.0
    assert before.others_since(before, 0.0) is None


def test_it_is_seen_what_others_used_of_the_cores_in_each_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of 3 cores is left free by the reference; of the measurements one has another process on two."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2})
    monkeypatch.setattr(watch.doctor, "read", lambda **_: SimpleNamespace(load=1.9, gpus=None))
    found = (
        watch.doctor.Finding(check="load", status="warn", found="1.9"),
        watch.doctor.Finding(check="CPU governor", status="warn", found="powersave"),
    )
    monkeypatch.setattr(watch.doctor, "doctor", lambda readings: found)
    counts = (0, 0, 200, 100, 200, 100, 500, 300, 500, 300, 800, 600)  # of all three cores, and those that were used
    ticks = iter(counts)
    monkeypatch.setattr(host, "cpu_time", lambda: host.CpuTime(total=next(ticks), stolen=0, used=next(ticks)))
    own_s = iter(count / os.sysconf("SC_CLK_TCK") for count in (0, 40, 40, 230, 230, 330))
    monkeypatch.setattr(watch, "_own_s", lambda: next(own_s))
    plan: Any = SimpleNamespace(device="cpu", nodes=1, world_size=2, threads=1)
    watching = watch.MachineWatch(plan)
    assert watching.load_per_core == pytest.approx(0.3), "a load of 1.9 is of the evaluation before"
    assert watching.cpu_use is None
    assert [one.check for one in watching.state] == ["load", "CPU governor"]
    for _ in range(2):
        with watching.timing():
            pass
    assert watching.cpu_use == CpuUse(cores=3, spare=1, others=(0.1, 2.0))
    assert [one.check for one in watching.state] == ["CPU governor"], "its load may be of the evaluation before it"


def test_what_a_child_has_used_is_an_evaluations_own() -> None:
    before_s = watch._own_s()
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    subprocess.run(["/bin/sh", "-c", f"{sys.executable} -c '{burn}'; exit"], check=True)  # a child's child
    assert watch._own_s() - before_s > 0.25


def test_where_the_kernel_counts_no_time_nothing_is_stolen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "text_if_any", lambda path: "")
    assert host.cpu_time() == host.CpuTime(total=0, stolen=0)


def test_peaks_are_measured_again_on_request(tmp_path: Path) -> None:
    file = tmp_path / peaks_cache.FOLDER / "peaks-0123.json"
    peaks_cache.store(file, UNIT, 0.0, today="2026-05-01")
    peaks_cache.ask_again(tmp_path)
    assert peaks_cache.is_due(file, 0.9, measures=False, today="2026-05-01")
    found = peaks_cache.store(file, UNIT, 0.0, today="2026-05-01")
    assert found.source == "the best of 2 measurements on this machine, 2026-05-01"
    assert not peaks_cache.is_due(file, 0.0, today="2026-05-01")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("flops_per_s: 1.0e+12", "flops_per_s: 1.0e12", "$.gpus.X1.flops_per_s: expected a number, found '1.0e12'"),
        ("flops_per_s: 1.0e+12", "flops_per_s: 0", "$.gpus.X1.flops_per_s: expected a rate above 0, found 0.0"),
        ("source: a leaflet", "source: ''", "$.gpus.X1.source: is empty; name the figure's source and date"),
        ("    date: '2025-01'\n", "", "$.gpus.X1: the key 'date' is missing"),
        ("date:", "dated:", "$.gpus.X1.dated: unknown key; did you mean 'date'?"),
        ("date:", "source:", "line 8, column 5: not YAML as expected here: the key 'source' appears twice"),
    ],
)
def test_a_bad_table_is_refused_with_its_place(tmp_path: Path, old: str, new: str, message: str) -> None:
    """The table is decoded as strictly as shape files are."""
    table = tmp_path / "hardware.yaml"
    table.write_text(ROW)
    assert match("xen x1", table) == peaks("x1", table)
    table.write_text(ROW.replace(old, new))
    with pytest.raises(BadFileError) as caught:
        peaks("X1", table)
    assert str(caught.value).startswith(f"{table}: {message}")
