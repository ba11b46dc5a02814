"""What doctor finds: healthy and ailing machines, on fakes of the driver's library; and this machine as it is."""

import dataclasses
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from waiting import until

from harness.cli import doctor as doctor_verb
from harness.cli import main
from harness.core.checkout import ROOT, Checkout
from harness.core.errors import Exit, UsageError
from harness.core.machine_records import NotSampled, Sampled
from harness.core.processes import descendants
from harness.judging.warnings import of_sampling, text_of
from harness.machine import readings, smoke
from harness.machine.doctor import CHECKS, DOCTOR_SCHEMA, Finding, doctor, read, short
from harness.machine.gpu_common import visible
from harness.machine.gpus import read_gpus
from harness.machine.nvml import read_nvidia
from harness.machine.readings import Collective, Gpus, Readings, SmokeFailed, Unread
from harness.machine.sampler import GpuSampler
from harness.report.findings import document_of, summary, to_json
from harness.report.render import terminal

GIB = 1 << 30


class FakeNvml:
    """pynvml for a machine of 8 linked H200s; `set` alters what one GPU, or all, answer. An exception is raised."""

    NVML_TEMPERATURE_GPU, NVML_TEMPERATURE_THRESHOLD_SLOWDOWN = 0, 1
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC = 1, 0
    NVML_NVLINK_MAX_LINKS = 36

    class NVMLError(Exception):
        pass

    class NVMLError_NotSupported(NVMLError):
        pass

    def __init__(self, count: int = 8) -> None:
        self.count = count
        self.initialised = 0
        self.energy_mj = 0
        self.answers: dict[tuple[str, int | None], Any] = {
            ("ClockInfo", None): {1: 1980, 2: 3201},
            ("MaxClockInfo", None): {1: 1980, 2: 3201},
            ("EventReasons", None): 0x1,
            ("Temperature", None): 33,
            ("TemperatureThreshold", None): 87,
            ("PowerUsage", None): 76_500,
            ("EnforcedPowerLimit", None): 700_000,
            ("PowerManagementDefaultLimit", None): 700_000,
            ("EccMode", None): [1, 1],
            ("TotalEccErrors", None): 0,
            ("MigMode", None): [0, 0],
            ("ComputeMode", None): 0,
            ("PersistenceMode", None): 1,
            ("Processes", None): [],
            ("Memory", None): 600 << 20,
            ("Busy", None): 0,
            ("Name", None): "NVIDIA H200",
            ("NvLinks", None): 18,
            ("P2P", None): 0,
        }

    def set(self, name: str, value: Any, gpu: int | None = None) -> "FakeNvml":
        assert (name, None) in self.answers
        self.answers[name, gpu] = value
        return self

    def _get(self, name: str, gpu: int) -> Any:
        value = self.answers.get((name, gpu), self.answers[name, None])
        if isinstance(value, Exception):
            raise value
        return value

    def nvmlInit(self) -> None:
        self.initialised += 1

    def nvmlShutdown(self) -> None:
        self.initialised -= 1

    def nvmlDeviceGetCount(self) -> int:
        return self.count

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index >= self.count:
            raise self.NVMLError("Invalid Argument")
        return index

    def nvmlSystemGetDriverVersion(self) -> bytes:
        return b"580.159.04"  # bytes in old versions of pynvml

    def nvmlSystemGetCudaDriverVersion(self) -> int:
        return 13000

    def nvmlDeviceGetName(self, gpu: int) -> str:
        return str(self._get("Name", gpu))

    def nvmlDeviceGetUUID(self, gpu: int) -> str:
        return f"GPU-{gpu:04d}"

    def nvmlDeviceGetClockInfo(self, gpu: int, clock: int) -> int:
        return int(self._get("ClockInfo", gpu)[clock])

    def nvmlDeviceGetMaxClockInfo(self, gpu: int, clock: int) -> int:
        return int(self._get("MaxClockInfo", gpu)[clock])

    def nvmlDeviceGetCurrentClocksEventReasons(self, gpu: int) -> int:
        return int(self._get("EventReasons", gpu))

    def nvmlDeviceGetTemperature(self, gpu: int, sensor: int) -> int:
        return int(self._get("Temperature", gpu))

    def nvmlDeviceGetTemperatureThreshold(self, gpu: int, threshold: int) -> int:
        return int(self._get("TemperatureThreshold", gpu))

    def nvmlDeviceGetPowerUsage(self, gpu: int) -> int:
        return int(self._get("PowerUsage", gpu))

    def nvmlDeviceGetEnforcedPowerLimit(self, gpu: int) -> int:
        return int(self._get("EnforcedPowerLimit", gpu))

    def nvmlDeviceGetPowerManagementDefaultLimit(self, gpu: int) -> int:
        return int(self._get("PowerManagementDefaultLimit", gpu))

    def nvmlDeviceGetTotalEnergyConsumption(self, gpu: int) -> int:
        self.energy_mj += 5000
        return self.energy_mj

    def nvmlDeviceGetEccMode(self, gpu: int) -> Any:
        return self._get("EccMode", gpu)

    def nvmlDeviceGetTotalEccErrors(self, gpu: int, kind: int, since: int) -> int:
        return int(self._get("TotalEccErrors", gpu))

    def nvmlDeviceGetMigMode(self, gpu: int) -> Any:
        return self._get("MigMode", gpu)

    def nvmlDeviceGetComputeMode(self, gpu: int) -> int:
        return int(self._get("ComputeMode", gpu))

    def nvmlDeviceGetPersistenceMode(self, gpu: int) -> int:
        return int(self._get("PersistenceMode", gpu))

    def nvmlDeviceGetComputeRunningProcesses(self, gpu: int) -> Any:
        return self._get("Processes", gpu)

    def nvmlDeviceGetMemoryInfo(self, gpu: int) -> Any:
        return SimpleNamespace(used=self._get("Memory", gpu))

    def nvmlDeviceGetUtilizationRates(self, gpu: int) -> Any:
        return SimpleNamespace(gpu=self._get("Busy", gpu))

    def nvmlDeviceGetCurrPcieLinkWidth(self, gpu: int) -> int:
        return 16

    def nvmlDeviceGetMaxPcieLinkWidth(self, gpu: int) -> int:
        return 16

    def nvmlDeviceGetMaxPcieLinkGeneration(self, gpu: int) -> int:
        return 5

    def nvmlDeviceGetNvLinkState(self, gpu: int, link: int) -> int:
        if link >= 18:
            raise self.NVMLError("Invalid Argument")
        return int(link < self._get("NvLinks", gpu))

    def nvmlDeviceGetNvLinkVersion(self, gpu: int, link: int) -> int:
        return 6

    def nvmlDeviceGetP2PStatus(self, a: int, b: int, cap: int) -> int:
        return int(self._get("P2P", a) or self._get("P2P", b))

    def nvmlDeviceGetTopologyCommonAncestor(self, a: int, b: int) -> int:
        return 50


HEALTHY_SMOKE = Collective(
    backend="NCCL",
    world_size=8,
    nbytes=64 << 20,
    all_reduce_bytes_per_s=2.8e11,
    all_gather_bytes_per_s=2.6e11,
    took_s=9.0,
)


HEALTHY_DISK = readings.Disk(runs_bytes=GIB, caches_bytes=GIB, queue_bytes=0, free_bytes=100 * GIB)


def machine_of(nvml: FakeNvml | None = None, environ: dict[str, str] | None = None, **changes: Any) -> Readings:
    """A host on which all is well, with the GPUs of `nvml`, or none; `changes` alter what it reads."""
    found = read_nvidia(nvml, environ or {}) if nvml else None
    cuda = "13.0" if nvml else None
    healthy = Readings(
        gpus=found,
        link_bytes_per_s=450e9 if nvml else None,
        software=readings.Software(python="3.12.3", torch="2.11.0", torch_cuda=cuda, torch_hip=None, triton="3.7.1"),
        shm=readings.Shm(free_bytes=64 * GIB, total_bytes=64 * GIB),
        governors=("performance",),
        numa=readings.Numa(nodes=2, balancing=False),
        huge_pages="madvise",
        aslr=2,
        load=0.5,
        cpus=readings.Cpus(model="a processor", present=128, allowed=128, quota_cores=None),
        memory=readings.Memory(available_bytes=500 * GIB, total_bytes=512 * GIB),
        open_files=readings.OpenFiles(soft=65536, hard=65536),
        smoke=HEALTHY_SMOKE if nvml else Unread(why="not run; --smoke does"),
        disk=HEALTHY_DISK,
    )
    return dataclasses.replace(healthy, **changes)


def of(found: Readings, check: str) -> Finding:
    return next(one for one in doctor(found) if one.check == check)


def not_passed(found: Readings) -> list[tuple[str, str]]:
    return [(one.check, one.status) for one in doctor(found) if one.status != "pass"]


def printed(findings: Sequence[Finding], width: int = 80) -> str:
    text = io.StringIO()
    terminal.show(document_of(findings), Console(file=text, width=width))
    return text.getvalue()


def test_the_fake_has_only_what_the_drivers_library_has() -> None:
    """Else the other tests would prove nothing of a real machine."""
    pynvml = pytest.importorskip("pynvml")
    for name in vars(FakeNvml):
        if name.lower().startswith("nvml"):
            assert hasattr(pynvml, name), name
    for name in ("NVML_TEMPERATURE_THRESHOLD_SLOWDOWN", "NVML_MEMORY_ERROR_TYPE_UNCORRECTED", "NVML_VOLATILE_ECC"):
        assert getattr(FakeNvml, name) == getattr(pynvml, name)


def test_a_healthy_machine_of_8_gpus_passes_every_check() -> None:
    """And says what it found."""
    found = machine_of(FakeNvml())
    assert not_passed(found) == []
    assert of(found, "GPUs").found == "8 x NVIDIA H200"
    assert of(found, "driver").found == "driver 580.159.04, up to CUDA 13.0"
    assert of(found, "clocks").found == "SM 1980 of 1980 MHz, memory 3201 of 3201 MHz"
    assert of(found, "temperature").found == "33 C (slows down at 87 C)"
    assert of(found, "power").found == "76 of 700 W"
    assert of(found, "P2P").found == "all 28 pairs reach each other, 28 with atomics"
    assert of(found, "links").found == "18 NVLinks a GPU, version 4; 28 pairs by NVLink"
    assert short(doctor(found)) == ()
    assert printed(doctor(found)).splitlines()[-1] == f"{len(CHECKS)} pass, 0 warn, 0 fail"


@pytest.mark.parametrize(
    ("name", "value", "check", "status", "found"),
    [
        ("EventReasons", 0x48, "throttling", "fail", "hardware slowdown, hardware thermal slowdown"),
        ("EventReasons", 0x4, "throttling", "warn", "power cap"),
        ("EventReasons", 0x2, "throttling", "warn", "application clocks"),
        ("Temperature", 80, "temperature", "warn", "80 C (slows down at 87 C)"),
        ("Temperature", 88, "temperature", "fail", "88 C (slows down at 87 C)"),
        ("EnforcedPowerLimit", 500_000, "power", "warn", "76 of 500 W, by default 700 W"),
        ("TotalEccErrors", 3, "ECC", "fail", "on, 3 uncorrected errors"),
        ("EccMode", [0, 0], "ECC", "warn", "off, 0 uncorrected errors"),
        ("MigMode", [1, 1], "MIG", "fail", "MIG"),
        ("ComputeMode", 3, "compute mode", "fail", "exclusive process"),
        ("PersistenceMode", 0, "persistence", "warn", "off"),
        ("Busy", 97, "GPU processes", "warn", "none visible, up to 0.6 GiB and 97 % busy"),
        ("Memory", 40 * GIB, "GPU processes", "warn", "none visible, up to 40.0 GiB and 0 % busy"),
    ],
)
def test_one_ailing_gpu_of_8_is_named_with_the_fix(name: str, value: Any, check: str, status: str, found: str) -> None:
    """Nothing else is reported."""
    machine = machine_of(FakeNvml().set(name, value, gpu=5))
    assert not_passed(machine) == [(check, status)]
    finding = of(machine, check)
    assert finding.found.startswith(f"GPU 5: {found}; GPUs 0-4, 6-7: ")
    assert finding.fix
    (state,) = short(doctor(machine))
    assert (state.status, state.check, state.found) == (status, check, finding.found)


def test_a_machine_that_ails_everywhere_is_told_in_one_sentence() -> None:
    """MIG on all 8, without 8 times the same words."""
    finding = of(machine_of(FakeNvml().set("MigMode", [1, 1])), "MIG")
    assert (finding.status, finding.found) == ("fail", "MIG")


def test_two_gpus_are_one_pair() -> None:
    found = machine_of(FakeNvml(2))
    assert of(found, "P2P").found == "both reach each other, with atomics"
    assert of(found, "links").found == "18 NVLinks a GPU, version 4; 1 pair by NVLink"


def test_other_processes_on_a_gpu_are_named_and_our_own_are_not() -> None:
    """A name from elsewhere cannot style a terminal."""
    ours = SimpleNamespace(pid=os.getpid(), usedGpuMemory=50 * GIB)
    other = SimpleNamespace(pid=1, usedGpuMemory=None)
    alone = FakeNvml().set("Processes", [ours]).set("Memory", 51 * GIB)
    assert of(machine_of(alone), "GPU processes").found == "none"
    finding = of(machine_of(FakeNvml().set("Processes", [ours, other]).set("Memory", 51 * GIB)), "GPU processes")
    assert finding.status == "warn"
    assert "(1), up to 1.0 GiB" in finding.found
    assert str(os.getpid()) not in finding.found


def test_pairs_that_do_not_reach_each_other_are_named() -> None:
    """One GPU whose P2P is off is apart from all others."""
    finding = of(machine_of(FakeNvml(4).set("P2P", 5, gpu=3)), "P2P")
    assert (finding.status, finding.found) == ("warn", "3 of 6 pairs do not reach each other: 0-3, 1-3, 2-3")
    links = of(machine_of(FakeNvml(4).set("P2P", 5, gpu=3)), "links")
    assert (links.status, links.found) == ("warn", "18 NVLinks a GPU, version 4; 3 pairs by NVLink, 3 pairs by SYS")


def test_nvlinks_that_are_down_are_seen() -> None:
    """On the GPU that has them."""
    finding = of(machine_of(FakeNvml().set("NvLinks", 16, gpu=2)), "links")
    assert finding.status == "warn"
    assert "some are down on GPU 2" in finding.found


def test_gpus_of_different_models_and_hidden_gpus_are_seen() -> None:
    """Only what torch may use is judged."""
    mixed = FakeNvml().set("Name", "NVIDIA H100 80GB HBM3", gpu=7)
    assert of(machine_of(mixed), "GPUs").status == "warn"
    hidden = machine_of(mixed.set("Temperature", 95, gpu=7), {"CUDA_VISIBLE_DEVICES": "0,1,2,3"})
    assert not_passed(hidden) == []
    assert of(hidden, "GPUs").found == "4 x NVIDIA H200 (of 8; the environment hides the rest)"
    assert of(machine_of(FakeNvml(), {"CUDA_VISIBLE_DEVICES": ""}), "GPUs").status == "fail"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, (0, 1, 2)),
        ("", ()),
        ("2,0", (2, 0)),
        ("GPU-b, 0", (1, 0)),
        ("1,-1,2", (1,)),
        ("7", ()),
        ("GPU-", ()),
        ("0,\u00b2", (0,)),
    ],
)
def test_visible_devices_are_read_as_cuda_reads_them(text: str | None, expected: tuple[int, ...]) -> None:
    """Numbers or unambiguous beginnings of UUIDs, up to the first that names no GPU."""
    assert visible(["GPU-a", "GPU-b", "GPU-c"], text) == expected


def test_what_a_driver_does_not_tell_is_unknown_with_its_reason() -> None:
    """One reading that fails leaves all the others."""
    refused = FakeNvml.NVMLError("Insufficient Permissions")
    names = ("ClockInfo", "EventReasons", "Temperature", "PowerUsage", "EccMode", "Busy", "PersistenceMode")
    nvml = FakeNvml()
    for name in names:
        nvml.set(name, refused)
    machine = machine_of(nvml)
    checks = ["clocks", "temperature", "power", "ECC", "persistence", "GPU processes"]
    assert not_passed(machine) == [(check, "unknown") for check in ["clocks", "throttling", *checks[1:]]]
    assert of(machine, "power").found == "cannot be read: Insufficient Permissions"
    assert nvml.initialised == 0


def test_a_gpu_without_mig_or_a_known_slowdown_is_no_unknown() -> None:
    """Not supported there means no partition; without its own threshold 85 C is hot."""
    nvml = FakeNvml().set("MigMode", FakeNvml.NVMLError_NotSupported("Not Supported"))
    nvml.set("TemperatureThreshold", FakeNvml.NVMLError_NotSupported("Not Supported"))
    assert not_passed(machine_of(nvml)) == []
    assert of(machine_of(nvml.set("Temperature", 86)), "temperature").status == "warn"


def test_a_torch_that_cannot_use_the_gpus_fails() -> None:
    """Built for CPUs, or for a newer CUDA than the driver serves."""
    software = machine_of(FakeNvml()).software
    cpu_only = dataclasses.replace(software, torch="2.13.0+cpu", torch_cuda=None)
    assert of(machine_of(FakeNvml(), software=cpu_only), "software").status == "fail"
    newer = dataclasses.replace(software, torch_cuda="14.1")
    assert of(machine_of(FakeNvml(), software=newer), "driver").status == "fail"
    assert of(machine_of(software=cpu_only), "software").status == "pass"
    untested = dataclasses.replace(software, torch="2.4.1")
    assert of(machine_of(software=untested), "software").fix == "pip install 'torch>=2.11,<2.14'"


@pytest.mark.parametrize(
    ("changes", "check", "status"),
    [
        ({"shm": readings.Shm(free_bytes=64 << 20, total_bytes=64 << 20)}, "/dev/shm", "warn"),
        ({"governors": ("performance", "powersave")}, "CPU governor", "warn"),
        ({"numa": readings.Numa(nodes=2, balancing=True)}, "NUMA balancing", "warn"),
        ({"huge_pages": "always"}, "huge pages", "warn"),
        ({"aslr": 0}, "ASLR", "warn"),
        ({"load": 64.0}, "load", "warn"),
        ({"cpus": readings.Cpus(model="m", present=128, allowed=128, quota_cores=7.5)}, "CPU quota", "warn"),
        ({"cpus": readings.Cpus(model="m", present=128, allowed=8, quota_cores=None)}, "CPU cores", "warn"),
        ({"memory": readings.Memory(available_bytes=30 * GIB, total_bytes=512 * GIB)}, "memory", "warn"),
        ({"memory": readings.Memory(available_bytes=5 * GIB, total_bytes=512 * GIB)}, "memory", "fail"),
        ({"open_files": readings.OpenFiles(soft=512, hard=4096)}, "open files", "warn"),
        ({"open_files": readings.OpenFiles(soft=128, hard=4096)}, "open files", "fail"),
        ({"smoke": SmokeFailed(why="not done after 60 s")}, "collectives", "fail"),
        ({"disk": dataclasses.replace(HEALTHY_DISK, free_bytes=GIB)}, "disk", "warn"),
        ({"disk": dataclasses.replace(HEALTHY_DISK, queue_bytes=30 * GIB)}, "disk", "warn"),
        ({"smoke": dataclasses.replace(HEALTHY_SMOKE, all_gather_bytes_per_s=2e10)}, "collectives", "warn"),
        ({"shm": Unread(why="No such file")}, "/dev/shm", "unknown"),
    ],
)
def test_each_check_of_the_host_sees_what_it_is_for(changes: dict[str, Any], check: str, status: str) -> None:
    """Alone, with a fix unless nothing is known."""
    machine = machine_of(FakeNvml(), **changes)
    assert not_passed(machine) == [(check, status)]
    assert bool(of(machine, check).fix) == (status != "unknown")


def test_without_a_gpu_its_checks_are_said_not_to_apply_in_one_line() -> None:
    """The JSON has all of them, always in the same order; nothing fails."""
    findings = doctor(machine_of())
    assert [one.check for one in findings] == [name for name, _ in CHECKS]
    assert all((one.status, one.found) == ("unknown", "no GPU") for one in findings if one.check in ("ECC", "P2P"))
    text = printed(findings)
    assert "No GPU, so these do not apply: driver, clocks, throttling, " in text
    assert text.splitlines()[-1] == "13 pass, 0 warn, 0 fail, 1 unknown"


def test_gpus_that_cannot_be_asked_are_not_taken_for_none(tmp_path: Path) -> None:
    """A device node without NVML is a machine whose GPUs nobody can judge."""
    (tmp_path / "dev").mkdir()
    assert read_gpus(tmp_path, {}) is None
    (tmp_path / "dev" / "nvidia0").touch()
    found = read_gpus(tmp_path, {})
    if not isinstance(found, Gpus):  # a machine with GPUs reads them
        assert isinstance(found, Unread)
        findings = doctor(machine_of(gpus=found))
        assert {one.status for one in findings if one.check in ("GPUs", "ECC", "links")} == {"unknown"}
        assert "no GPU," not in printed(findings)


def test_the_table_fits_80_columns_and_ends_with_the_sum() -> None:
    """Fixes stand under what was found."""
    nvml = FakeNvml().set("ComputeMode", 3).set("EnforcedPowerLimit", 500_000, gpu=3)
    findings = doctor(machine_of(nvml, huge_pages="always"))
    text = printed(findings)
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "\x1b" not in text
    assert text.splitlines()[-1] == f"{len(CHECKS) - 3} pass, 2 warn, 1 fail" == summary(findings)
    lines = [line for line in text.splitlines() if line.startswith("compute mode")]
    assert lines[0].split() == ["compute", "mode", "fail", "exclusive", "process"]
    assert "fix: nvidia-smi -c DEFAULT" in text


def test_the_json_has_the_same_keys_on_every_machine() -> None:
    """With and without GPUs; it survives a round trip."""
    objects = [to_json(found, doctor(found)) for found in (machine_of(FakeNvml()), machine_of())]
    assert list(objects[0]) == list(objects[1]) == ["schema", "machine", "findings"]
    assert list(objects[0]["machine"]) == list(objects[1]["machine"])
    assert [one["check"] for one in objects[0]["findings"]] == [one["check"] for one in objects[1]["findings"]]
    assert all(list(one) == ["check", "status", "found", "fix"] for one in objects[0]["findings"])
    assert json.loads(json.dumps(objects)) == objects
    assert objects[0]["machine"]["gpus"] == ["NVIDIA H200"] * 8


def run(*arguments: str) -> int:
    return main.parse(["doctor", *arguments]).carry_out(Checkout.here())


def test_the_verb_runs_on_this_machine_whatever_it_is(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Table and JSON; the exit code is 1 only where a check fails."""
    code = run("--no-smoke", "--json", str(tmp_path / "doctor.json"))
    assert "pass" in capsys.readouterr().out.splitlines()[-1]
    findings = json.loads((tmp_path / "doctor.json").read_text())["findings"]
    assert code == (Exit.ERROR if any(one["status"] == "fail" for one in findings) else Exit.OK)
    run("--no-smoke", "--json")
    assert json.loads(capsys.readouterr().out)["schema"] == DOCTOR_SCHEMA
    with pytest.raises(UsageError, match=r"--json /no/such/file: cannot be written"):
        run("--no-smoke", "--json", "/no/such/file")


def test_a_failing_check_makes_the_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """A warning does not."""
    monkeypatch.setattr(doctor_verb, "read", lambda smoke, root: machine_of(FakeNvml().set("MigMode", [1, 1])))
    assert run("--json") == Exit.ERROR
    monkeypatch.setattr(doctor_verb, "read", lambda smoke, root: machine_of(FakeNvml().set("PersistenceMode", 0)))
    assert run("--json") == Exit.OK


def test_the_parents_modules_do_not_import_torch() -> None:
    """Doctor, sampler and roofline run in the parent."""
    modules = "harness.machine.doctor, harness.machine.sampler, harness.report.roofline"
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


# ---- the host's files ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/cpu.max": "max 100000\n"}, None),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/b/cpu.max": "400000 100000\n",
                "sys/fs/cgroup/a/cpu.max": "150000 100000\n",
            },
            1.5,
        ),
        (
            {
                "proc/self/cgroup": "2:cpuacct:/\n1:cpu:/x\n0::/\n",
                "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us": "200000\n",
                "sys/fs/cgroup/cpu/x/cpu.cfs_period_us": "100000\n",
            },
            2.0,
        ),
        ({"proc/self/cgroup": "nonsense\n"}, "unread"),
        ({}, None),
    ],
)
def test_the_narrowest_cpu_quota_of_all_groups_above_counts(
    tmp_path: Path, files: dict[str, str], expected: object
) -> None:
    """Of both versions of cgroups; nonsense is unread, not a traceback."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = readings.read_cpus(tmp_path)
    assert ("unread" if isinstance(found, Unread) else found.quota_cores) == expected


def test_a_container_without_proc_and_sys_is_unread_everywhere(tmp_path: Path) -> None:
    """Each reader guards itself."""
    for reader in (readings.read_shm, readings.read_governors, readings.read_huge_pages, readings.read_aslr):
        assert isinstance(reader(tmp_path), Unread)
    assert readings.read_numa(tmp_path) == readings.Numa(nodes=1, balancing=False)


# ---- the smoke test --------------------------------------------------------------------------------------------------


def test_the_smoke_test_moves_bytes_between_two_ranks(nothing_left: None) -> None:
    """With gloo, in a program of its own."""
    found = smoke.smoke("cpu", 2)
    assert isinstance(found, Collective), found
    assert found.all_reduce_bytes_per_s > 1e6
    assert found.all_gather_bytes_per_s > 1e6
    assert "gloo on 2 ranks, 4 MiB" in of(machine_of(smoke=found), "collectives").found


def test_a_smoke_test_past_its_deadline_leaves_no_rank_behind(nothing_left: None) -> None:
    """All of it is ended at once."""
    began, before = time.monotonic(), descendants(os.getpid())
    found = smoke.smoke("cpu", 2, deadline_s=0.3)
    assert found == SmokeFailed(why="not done after 0.3 s; its ranks were ended")
    assert time.monotonic() - began < smoke.DEADLINE_S
    until(lambda: descendants(os.getpid()) == before)


@pytest.mark.parametrize(
    ("lines", "errors", "why"),
    [
        (
            ["noise", '{"rank": 1, "error": "NCCL says no", "all_reduce_s": 0, "all_gather_s": 0}'],
            "",
            "rank 1: NCCL sa",
        ),
        (['{"rank": 0, "error": "", "all_reduce_s": 1, "all_gather_s": 1}'], "a\nkilled\n", "1 of 2 ranks came to the"),
        ([], "", "0 of 2 ranks came to the end: it said nothing"),
    ],
)
def test_a_smoke_test_that_went_wrong_says_how(lines: list[str], errors: str, why: str) -> None:
    """Whatever ranks and libraries printed."""
    found = smoke.judged("\n".join(lines), errors, "cuda", 2, 64, 0.0)
    assert isinstance(found, SmokeFailed)
    assert found.why.startswith(why)


def test_the_smoke_test_takes_the_slowest_rank() -> None:
    """Bus bandwidth: 2(W-1)/W of the buffer over its time, (W-1)/W for a gather."""
    line = '{{"rank": {}, "error": "", "all_reduce_s": {}, "all_gather_s": {}}}'
    found = smoke.judged("\n".join([line.format(0, 1.0, 2.0), line.format(1, 2.0, 1.0)]), "", "cuda", 2, 64, 0.0)
    assert isinstance(found, Collective)
    assert (found.all_reduce_bytes_per_s, found.all_gather_bytes_per_s) == (32.0, 16.0)


def test_multicast_stays_off_in_the_smoke_test() -> None:
    """In NCCL and in symmetric memory."""
    assert smoke.WITHOUT_MULTICAST == {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1"}


def test_read_runs_the_smoke_test_only_where_asked_or_on_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine without GPUs it is off unless asked for."""
    asked: list[tuple[str, int]] = []
    monkeypatch.setattr("harness.machine.doctor.smoke", lambda device, ranks, deadline_s: asked.append((device, ranks)))
    for count, environ in ((0, {}), (1, {}), (8, {}), (8, {"CUDA_VISIBLE_DEVICES": "1,2"})):
        found = read_nvidia(FakeNvml(count), environ)
        gpus = found if count else None
        monkeypatch.setattr("harness.machine.doctor.read_gpus", lambda gpus=gpus: gpus)
        read()
    read(False)
    assert asked == [("cuda", 8), ("cuda", 2)]
    monkeypatch.setattr("harness.machine.doctor.read_gpus", lambda: None)
    read(True)
    assert asked[2:] == [("cpu", 2)]


# ---- the sampler -----------------------------------------------------------------------------------------------------


def wait_for_samples(sampler: GpuSampler) -> Sampled:
    until(lambda: isinstance(sampler.record, Sampled))
    assert isinstance(sampler.record, Sampled)
    return sampler.record


def test_the_sampler_keeps_clocks_and_throttling_of_the_timed_blocks() -> None:
    """Only of the GPUs that are used; idling is no throttling."""
    nvml = FakeNvml().set("EventReasons", 0x45, gpu=3).set("ClockInfo", {1: 1200, 2: 3201}, gpu=3)
    with closing(GpuSampler([2, 3], interval_s=0.001, nvml=nvml)) as sampler:
        for _ in range(2):
            sampler.start()
            wait_for_samples(sampler)
            sampler.stop()
        found = sampler.record
        assert sampler.record == found
    assert isinstance(found, Sampled)
    assert [track.index for track in found.gpus] == [2, 3]
    assert (found.gpus[0].sm_mhz_min, found.gpus[1].sm_mhz_median) == (1980, 1200.0)
    assert [track.throttled for track in found.gpus] == [(), ("power cap", "hardware thermal slowdown")]
    assert all(track.energy_j is not None and track.energy_j > 0 for track in found.gpus)
    assert found.sampled_s > 0
    (warning,) = map(text_of, of_sampling(found))
    assert warning.startswith(
        "GPU 3 throttled while it was timed (power cap, hardware thermal slowdown): SM clock 1200"
    )
    assert nvml.initialised == 0


def test_the_sampler_tells_what_a_gpu_did_in_a_time() -> None:
    nvml = FakeNvml(2).set("EventReasons", 0x41, gpu=1)
    with closing(GpuSampler(interval_s=0.001, nvml=nvml)) as sampler:
        began_ns = time.monotonic_ns()
        assert sampler.between(0, began_ns) == ()
        sampler.start()
        wait_for_samples(sampler)
        between_ns = time.monotonic_ns()
        nvml.set("EventReasons", 0x1, gpu=1).set("ClockInfo", {1: 1200, 2: 3201})
        until(lambda: any(gpu.sm_mhz_min == 1200 for gpu in sampler.between(between_ns, time.monotonic_ns())))
        first = sampler.between(began_ns, between_ns)
        assert [(gpu.index, gpu.sm_mhz_median, gpu.throttled) for gpu in first] == [
            (0, 1980.0, ()),
            (1, 1980.0, ("hardware thermal slowdown",)),
        ]
        assert sampler.between(time.monotonic_ns() + 10**9, 2 * time.monotonic_ns()) == ()


def test_nothing_is_sampled_between_blocks() -> None:
    """stop() waits for the sample under way."""
    with closing(GpuSampler(interval_s=0.001, nvml=FakeNvml(1))) as sampler:
        sampler.start()
        wait_for_samples(sampler)
        sampler.stop()
        before = sampler.record
        time.sleep(0.05)
        assert sampler.record == before


def test_without_gpus_or_nvml_the_sampler_does_nothing_and_says_why() -> None:
    """start() and stop() are safe to call anywhere."""
    broken = FakeNvml(1).set("ClockInfo", FakeNvml.NVMLError("GPU is lost"))
    for nvml, why in ((FakeNvml(0), "no GPU"), (Unread(why="no pynvml"), "no pynvml")):
        with closing(GpuSampler(nvml=nvml)) as sampler:
            sampler.start()
            sampler.stop()
            assert sampler.record == NotSampled(why=why)
    with closing(GpuSampler(interval_s=0.001, nvml=broken)) as sampler:
        sampler.start()
        until(lambda: sampler.record == NotSampled(why="GPU is lost"))
        sampler.stop()
        assert sampler.record == NotSampled(why="GPU is lost")
    assert of_sampling(sampler.record) == ()
    with closing(GpuSampler([9], nvml=FakeNvml(1))) as sampler:
        sampler.start()
        assert sampler.record == NotSampled(why="Invalid Argument")
