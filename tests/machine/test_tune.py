"""`tune` on a copy of /proc and /sys: applied, taken back, and restored after a kill at every write."""

import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from recorded import run, run_id
from rich.console import Console

from harness.board import runs
from harness.cli import main, result_files
from harness.cli import tune as tune_verb
from harness.cli.result_files import ResultFile
from harness.cli.tune import TuneHostOrder
from harness.core.checkout import ROOT, Checkout
from harness.core.errors import HarnessError, UsageError
from harness.judging.worth import worth
from harness.machine import tune
from harness.machine.tune import NAMES, SNAPSHOT, Choice, Value

CPU, KERNEL, HUGE = "sys/devices/system/cpu", "proc/sys/kernel", "sys/kernel/mm/transparent_hugepage"
FILES = {
    f"{CPU}/cpu0/cpufreq/scaling_governor": "powersave\n",
    f"{CPU}/cpu11/cpufreq/scaling_governor": "powersave\n",
    f"{CPU}/cpu0/cpuidle/state0/disable": "0\n",
    f"{CPU}/cpu0/cpuidle/state1/disable": "0\n",
    f"{CPU}/cpu0/cpuidle/state2/disable": "0\n",
    f"{CPU}/cpu0/cpuidle/state3/disable": "1\n",
    f"{KERNEL}/nmi_watchdog": "1\n",
    f"{KERNEL}/numa_balancing": "1\n",
    f"{KERNEL}/randomize_va_space": "2\n",
    f"{KERNEL}/random/boot_id": "4711\n",
    f"{HUGE}/enabled": "[always] madvise never\n",
    f"{HUGE}/defrag": "always defer defer+madvise [madvise] never\n",
    "proc/sys/vm/drop_caches": "",
    "sys/class/drm/card0/device/pp_dpm_sclk": "0: 132Mhz *\n",  # a GPU's clock
}
TUNED = {
    f"{CPU}/cpu0/cpufreq/scaling_governor": "performance",
    f"{CPU}/cpu11/cpufreq/scaling_governor": "performance",
    f"{CPU}/cpu0/cpuidle/state2/disable": "1",
    f"{KERNEL}/nmi_watchdog": "0",
    f"{KERNEL}/numa_balancing": "0",
    f"{HUGE}/enabled": "madvise",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


def values(root: Path) -> dict[str, str]:
    """What the kernel would use of each file: the word in brackets, or all of it."""
    texts = {name: (root / name).read_text().strip() for name in FILES}
    return {name: text.partition("[")[2].partition("]")[0] if "[" in text else text for name, text in texts.items()}


def test_what_differs_is_changed_and_written_back(root: Path) -> None:
    before = values(root)
    changes = tune.apply(root, Choice())
    assert {change.path: change.wanted for change in changes} == TUNED
    assert values(root) == before | TUNED | {"proc/sys/vm/drop_caches": "3"}
    tune.restore(root)
    assert values(root) == before | {"proc/sys/vm/drop_caches": "3"}
    assert not (root / SNAPSHOT).exists()
    with pytest.raises(UsageError, match="nothing has been applied"):
        tune.restore(root)


def test_the_first_values_are_kept_when_more_is_applied(root: Path) -> None:
    before = values(root)
    tune.apply(root, Choice(), ["governor"])
    assert values(root)["proc/sys/vm/drop_caches"] == ""
    tune.apply(root, Choice(aslr="off", huge_pages="always"), ["aslr", "governor", "defrag"])
    assert (values(root)[f"{KERNEL}/randomize_va_space"], values(root)[f"{HUGE}/defrag"]) == ("0", "always")
    tune.restore(root)
    assert values(root) == before


KILLED = """
import os, signal, sys
from pathlib import Path
from harness.machine import tune
root, left = Path(sys.argv[1]), int(sys.argv[2])
write = Path.write_text
def dying(path, text):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return write(path, text)
Path.write_text = dying
tune.apply(root, tune.Choice())
"""


@pytest.mark.parametrize("writes", [0, 1, 4, len(TUNED)])
def test_what_a_killed_apply_left_is_restored(root: Path, writes: int) -> None:
    before = values(root)
    command = [sys.executable, "-c", KILLED, str(root), str(writes)]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == -9
    assert sum(values(root)[name] == value for name, value in TUNED.items()) == writes
    if writes == 4:  # applied again over what is left, as somebody might
        tune.apply(root, Choice(), [*NAMES])
    tune.restore(root)
    assert values(root) == before


def refusing(monkeypatch: pytest.MonkeyPatch, refuses: Callable[[Path, str], bool]) -> None:
    """The kernel refuses some values."""
    write = Path.write_text

    def written(path: Path, text: str) -> int:
        if refuses(path, text):
            raise OSError(22, "Invalid argument")
        return write(path, text)

    monkeypatch.setattr(Path, "write_text", written)


def test_what_the_kernel_refuses_takes_everything_back(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = values(root)
    refusing(monkeypatch, lambda path, text: path.name == "numa_balancing" and text == "0\n")
    with pytest.raises(HarnessError, match=r"numa_balancing: the kernel refuses '0': Invalid argument; .* taken back"):
        tune.apply(root, Choice())
    assert values(root) == before
    assert not (root / SNAPSHOT).exists()


def test_a_file_that_keeps_another_value_is_an_error(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, write = values(root), Path.write_text
    monkeypatch.setattr(Path, "write_text",
                        lambda path, text: 0 if path.name == "nmi_watchdog" else write(path, text))  # fmt: skip
    with pytest.raises(HarnessError, match="nmi_watchdog: the kernel keeps '1' in place of '0'"):
        tune.apply(root, Choice())
    assert values(root) == before


def test_a_restore_that_is_refused_keeps_the_snapshot(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = values(root)
    tune.apply(root, Choice(), [*NAMES])
    with monkeypatch.context() as patch:
        refusing(patch, lambda path, text: path.name == "nmi_watchdog")
        with pytest.raises(HarnessError, match=r"5 files were restored, these were not: .*nmi_watchdog"):
            tune.restore(root)
    assert [change.path for change in tune.restore(root)] == [f"{KERNEL}/nmi_watchdog"]
    assert values(root) == before


def test_nothing_is_changed_where_one_file_cannot_be(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, unwritable = values(root), tune.unwritable
    monkeypatch.setattr(tune, "unwritable", lambda path: "read-only" if path.name == "enabled" else unwritable(path))
    with pytest.raises(UsageError, match=r"nothing was changed.* huge-pages: read-only. Without these: --apply --only"):
        tune.apply(root, Choice())
    assert values(root) == before
    assert not (root / SNAPSHOT).exists()
    tune.apply(root, Choice(), ["governor", "watchdog"])


def test_a_file_that_cannot_be_opened_is_said_to_be(tmp_path: Path) -> None:
    assert tune.unwritable(tmp_path / "none") == f"{tmp_path / 'none'} cannot be written: No such file or directory"


def test_a_snapshot_of_an_earlier_start_is_not_restored(root: Path) -> None:
    tune.apply(root, Choice(), ["aslr", "governor"])
    (root / tune.BOOT_ID).write_text("4712\n")
    with pytest.raises(UsageError, match="nothing has been applied since this machine started"):
        tune.restore(root)
    assert not (root / SNAPSHOT).exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is damaged"),
        ('{"boot_id": "4711", "values": {"etc/passwd": "x"}}', "names etc/passwd, which is no file of a setting"),
    ],
)
def test_a_snapshot_that_is_bad_is_not_written_back(root: Path, content: str, message: str) -> None:
    (root / SNAPSHOT).parent.mkdir(parents=True)
    (root / SNAPSHOT).write_text(content)
    for act in (tune.restore, lambda root: tune.apply(root, Choice())):
        with pytest.raises(HarnessError, match=message):
            act(root)


def ran(root: Path, act: str, uid: int = 0, only: tuple[str, ...] = ()) -> str:
    return shown(TuneHostOrder(apply=act == "apply", restore=act == "restore", only=only, root=root, uid=uid), root)


def shown(order: TuneHostOrder, root: Path, width: int = 100) -> str:
    """What the verb prints."""
    console = Console(width=width, file=io.StringIO(), record=True)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(result_files, "new_console", lambda: console)
        tune_verb.run(order, Checkout(root))
    return console.export_text()


def test_only_root_changes_anything_and_everybody_may_look(root: Path) -> None:
    before = values(root)
    shown = ran(root, "print", uid=1000)
    assert "6 files would change. Nothing was changed." in shown
    assert [line.split()[:2] for line in shown.splitlines() if line.startswith(("governor", "defrag", "caches"))] == [
        ["governor", "powersave"],
        ["defrag", "madvise"],
        ["caches", "-"],
    ]
    for act in ("apply", "restore"):
        with pytest.raises(UsageError, match=f"only root may: sudo python -m harness tune --{act}"):
            ran(root, act, uid=1000)
    assert values(root) == before
    assert not (root / "run").exists()
    assert f"/{KERNEL}/nmi_watchdog: 1 -> 0" in ran(root, "apply", only=("watchdog",))
    assert "Values from before are kept" in ran(root, "print")
    assert f"/{KERNEL}/nmi_watchdog: 0 -> 1" in ran(root, "restore")


def test_without_a_word_nothing_is_applied() -> None:
    order = main.parse(["tune"]).order
    assert not order.apply
    assert not order.restore
    with pytest.raises(SystemExit):
        main.parse(["tune", "--apply", "--restore"])


def test_no_setting_is_a_gpus() -> None:
    """Only the processor's own files and the kernel's switches."""
    for setting in tune.settings(Choice()):
        assert setting.pattern.startswith((f"{CPU}/cpu[0-9]*/cpu", f"{KERNEL}/", f"{HUGE}/"))


def test_what_is_printed_as_json_is_whole(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tune_verb.run(TuneHostOrder(only=("aslr",), json=ResultFile("json", "-"), root=root, uid=1), Checkout(root))
    found = json.loads(capsys.readouterr().out)
    assert [one["setting"]["name"] for one in found["settings"]] == ["aslr"]
    assert found["caches_blocked"] is None
    assert "caches" not in ran(root, "print", only=("aslr",))
    assert "caches" in ran(root, "print", only=("caches",))
    assert found["settings"][0]["values"] == [
        {"path": f"{KERNEL}/randomize_va_space", "now": "2", "wanted": "2"},
    ]
    assert tune.Reading(setting=tune.settings(Choice())[0], values=(Value(path="a", now="1", wanted="1"),),
                        blocked="").changes == ()  # fmt: skip


def test_two_runs_show_what_a_change_was_worth(tmp_path: Path) -> None:
    """A run whose calls take half as long, with the same reference and empty calls."""
    for number, times in ((1, 1.0), (2, 0.5)):
        runs.store(run(number, times), tmp_path)
    order = main.parse(["tune", "--worth", run_id(1), run_id(2)]).order
    lines = shown(order, tmp_path, width=120).splitlines()
    assert [line.split()[-1] for line in lines if "empty call" in line] == ["1.000"] * 3
    assert [line.split()[-1] for line in lines if "reference" in line] == ["1.000"] * 3
    assert [line.split()[-1] for line in lines[1:] if "empty" not in line and "reference" not in line] == ["0.500"] * 3
    assert re.search(r"empty call, wall +20.0 us +5.0% +20.0 us +5.0%", lines[1])
    with pytest.raises(UsageError, match="the runs do not compare: the world_size is 8 before and 4 after"):
        worth(run(1), run(2, ranks=4, world_size=4))
    with pytest.raises(UsageError, match="the runs are of two sources"):
        worth(run(1), replace(run(2), submission=replace(run(2).submission, sha256="1" * 64)))
