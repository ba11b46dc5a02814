"""Applies what `doctor` finds in the kernel's settings, and takes it back.

Each setting is a file of /proc or /sys, or the same file of every core. Before the first change, all files that are
about to change are written with their values to a snapshot on the disk; `restore` writes those back, also after a crash
in the middle. The snapshot lies in /run, which a restart of the machine empties, as it resets the settings.

Every path is below a root folder, so that tests work on copies. Nothing here knows of GPUs: no clock, power limit or
MIG mode is ever touched.
"""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.core.decode import DecodeError, encode
from harness.core.errors import HarnessError, UsageError, os_error_as
from harness.core.files import locked, read_text, replace_file, text_if_any
from harness.core.json_file import record_of
from harness.machine.readings import printable

SNAPSHOT = "run/kernel-eval-tune.json"
BOOT_ID = "proc/sys/kernel/random/boot_id"
DROP_CACHES = "proc/sys/vm/drop_caches"
LOCK_S = 5.0  # for another `tune` to end
SHALLOW = 2  # idle states from this one on take tens of microseconds or more to leave: C2 and deeper
Aslr = Literal["full", "off"]
HugePages = Literal["madvise", "always"]


@dataclass(frozen=True, kw_only=True)
class LinuxSetting:
    """One setting: the files that hold it, as a pattern below the root folder, and the value it should have."""

    name: str
    pattern: str
    wanted: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The settings that depend on the user's purpose. Doctor's advice is the default: full randomisation, so that runs
    differ as they do elsewhere, and huge pages where a program asks for them."""

    aslr: Aslr = "full"
    huge_pages: HugePages = "madvise"


@dataclass(frozen=True, kw_only=True)
class Value:
    """A file of a setting: its path below the root folder, what it says, and what it should say."""

    path: str
    now: str
    wanted: str


@dataclass(frozen=True, kw_only=True)
class Reading:
    """A setting here: no `values` if the kernel lacks it; `blocked` says why its files cannot be written."""

    setting: LinuxSetting
    values: tuple[Value, ...]
    blocked: str

    @property
    def changes(self) -> tuple[Value, ...]:
        """The files that say something else than they should."""
        return tuple(value for value in self.values if value.now != value.wanted)


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The values before the first change, by path; `boot_id` is of the start of the machine that they belong to."""

    boot_id: str
    values: dict[str, str]


def settings(choice: Choice) -> tuple[LinuxSetting, ...]:
    core, kernel, huge = "sys/devices/system/cpu/cpu[0-9]*", "proc/sys/kernel", "sys/kernel/mm/transparent_hugepage"
    aslr = {"full": ("2", "every run has a layout of its own, so that the spread is honest"),
            "off": ("0", "every run has the same layout: less spread, which doctor warns of")}[choice.aslr]  # fmt: skip
    pages = {"madvise": "first touches vary less", "always": "fewer misses of the TLB, as AMD's scripts have it"}
    return (
        LinuxSetting(name="governor", pattern=f"{core}/cpufreq/scaling_governor", wanted="performance",
                     why="cores do not slow down while they wait"),
        LinuxSetting(name="idle-states", pattern=f"{core}/cpuidle/state[{SHALLOW}-9]/disable", wanted="1",
                     why="waiting cores wake up in a microsecond or two"),
        LinuxSetting(name="watchdog", pattern=f"{kernel}/nmi_watchdog", wanted="0",
                     why="no interrupts to look for hangs"),
        LinuxSetting(name="numa-balancing", pattern=f"{kernel}/numa_balancing", wanted="0",
                     why="the kernel does not move pages while ranks run"),
        LinuxSetting(name="aslr", pattern=f"{kernel}/randomize_va_space", wanted=aslr[0], why=aslr[1]),
        LinuxSetting(name="huge-pages", pattern=f"{huge}/enabled", wanted=choice.huge_pages,
                     why=pages[choice.huge_pages]),
        LinuxSetting(name="defrag", pattern=f"{huge}/defrag", wanted=choice.huge_pages,
                     why="the kernel looks for huge pages where enabled above"),
    )  # fmt: skip


NAMES = tuple(setting.name for setting in settings(Choice()))
CACHES = "caches"  # dropped once; there is nothing to restore


# ---- reading ---------------------------------------------------------------------------------------------------------
def read(root: Path, choice: Choice, only: Sequence[str] = ()) -> tuple[Reading, ...]:
    """The settings as they are; `only` names some of them, else all."""
    return tuple(_reading(root, setting) for setting in settings(choice) if not only or setting.name in only)


def _reading(root: Path, setting: LinuxSetting) -> Reading:
    values, blocked = [], ""
    for path in sorted(root.glob(setting.pattern)):
        try:
            now = _word(read_text(path))
        except (OSError, UnicodeDecodeError) as error:
            blocked = blocked or f"{path} cannot be read: {error}"
            continue
        values.append(Value(path=str(path.relative_to(root)), now=now, wanted=setting.wanted))
        blocked = blocked or unwritable(path)
    return Reading(setting=setting, values=tuple(values), blocked=blocked)


def _word(text: str) -> str:
    """A file's value; of `always [madvise] never` the word in brackets."""
    return printable(text.partition("[")[2].partition("]")[0] if "[" in text else text)


def unwritable(path: Path) -> str:
    """Why the file cannot be written, or "". Opens it and writes nothing: rights alone say little of /proc and /sys,
    which may be read-only in a container."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CLOEXEC))
    except OSError as error:
        return f"{path} cannot be written: {error.strerror}"
    return ""


def load_snapshot(root: Path) -> Snapshot | None:
    """What was applied since the machine started and not restored. HarnessError where it is damaged."""
    path = root / SNAPSHOT
    try:
        found = record_of(Snapshot, read_text(path))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        reason = error.problem if isinstance(error, DecodeError) else str(error)
        raise HarnessError(
            f"{path} is damaged ({reason}), so the values before are not known: set them by hand (`tune --print` lists "
            "the files) or restart the machine, then delete the file"
        ) from None
    known = {str(file.relative_to(root)) for one in settings(Choice()) for file in root.glob(one.pattern)}
    if unknown := sorted(set(found.values) - known):
        raise HarnessError(f"{path} names {unknown[0]}, which is no file of a setting: it was altered; delete it")
    return found if found.boot_id == _boot_id(root) else None


def _boot_id(root: Path) -> str:
    return text_if_any(root / BOOT_ID).strip()


# ---- changing --------------------------------------------------------------------------------------------------------
def check_root(uid: int, what: str) -> None:
    """Raises UsageError for anybody but root."""
    if uid != 0:
        raise UsageError(f"tune {what} changes the kernel's settings, which only root may: sudo python -m harness tune "
                         f"{what}")  # fmt: skip


def apply(root: Path, choice: Choice, only: Sequence[str] = ()) -> list[Value]:
    """Changes every file that says something else than it should; returns those, with what they said before. What fails
    in the middle is taken back. Raises UsageError, before anything is changed, where a file cannot be written."""
    with _alone(root):
        readings, drops = read(root, choice, only), not only or CACHES in only
        _check_writable(root, readings, drops)
        changes = [value for reading in readings for value in reading.changes]
        before = load_snapshot(root)
        earlier: Mapping[str, str] = before.values if before else {}
        if changes:
            _store(root, {value.path: value.now for value in changes} | dict(earlier))
        _change(root, changes, earlier)
        if drops:
            os.sync()  # or what is not yet written cannot be dropped
            (root / DROP_CACHES).write_text("3\n")
        return changes


def _check_writable(root: Path, readings: Sequence[Reading], drops: bool) -> None:
    reasons = {one.setting.name: one.blocked for one in readings if one.changes and one.blocked}
    if drops and (why := unwritable(root / DROP_CACHES)):
        reasons[CACHES] = why
    if reasons:
        told = "; ".join(f"{name}: {why}" for name, why in reasons.items())
        others = " ".join(f"--only {one.setting.name}" for one in readings if one.changes and not one.blocked)
        left = f". Without these: --apply {others}" if others else ""
        raise UsageError(
            f"nothing was changed, as some settings cannot be (in a container, use the host): {told}{left}"
        )


def _change(root: Path, changes: Sequence[Value], earlier: Mapping[str, str]) -> None:
    """Writes all, or none: raises what went wrong once it is taken back. `earlier` was in the snapshot before."""
    done: list[Value] = []
    try:
        for value in changes:
            done.append(value)
            _write(root / value.path, value.wanted)
    except BaseException as error:
        failed = []
        for value in reversed(done):
            try:
                _write(root / value.path, value.now)
            except OSError as refused:
                failed.append(str(refused))
        if failed:
            raise HarnessError(f"{error}; not taken back: {'; '.join(failed)}; try tune --restore") from error
        _store(root, earlier)
        if isinstance(error, OSError):
            raise HarnessError(f"{error}; what had been changed was taken back") from None
        raise


def restore(root: Path) -> list[Value]:
    """Writes the snapshot's values back and deletes it; returns the files that were changed. HarnessError where a file
    could not be written: the others are restored, the snapshot stays. UsageError without a snapshot."""
    with _alone(root):
        found = load_snapshot(root)
        if found is None:
            (root / SNAPSHOT).unlink(missing_ok=True)  # of an earlier start of the machine
            raise UsageError("nothing has been applied since this machine started, so there is nothing to restore")
        done, failed = [], []
        for name, value in reversed(found.values.items()):
            try:
                now = _word(read_text(root / name))
                if now != value:
                    _write(root / name, value)
                    done.append(Value(path=name, now=now, wanted=value))
            except OSError as error:
                failed.append(str(error))
        if failed:
            raise HarnessError(f"{len(done)} files were restored, these were not: {'; '.join(failed)}; try again")
        (root / SNAPSHOT).unlink()
        return done


@contextlib.contextmanager
def _alone(root: Path) -> Iterator[None]:
    """Two at a time could take each other's values for those before."""
    path = (root / SNAPSHOT).with_suffix(".lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path, LOCK_S):
            yield
    except PermissionError as error:
        raise HarnessError(f"nothing was changed: {path} cannot be written: {error.strerror}") from None


def _store(root: Path, values: Mapping[str, str]) -> None:
    """Makes these the snapshot, on the disk before it returns; no values: there is none."""
    path = root / SNAPSHOT
    if not values:
        path.unlink(missing_ok=True)
        return
    with os_error_as(HarnessError, f"nothing was changed: {path} cannot be written"):
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(encode(Snapshot(boot_id=_boot_id(root), values=dict(values))), indent=2)
        replace_file(path, text.encode() + b"\n")


def _write(path: Path, value: str) -> None:
    """Writes the value and looks whether the kernel took it. Raises OSError."""
    try:
        path.write_text(f"{value}\n")
    except OSError as error:
        raise OSError(error.errno, f"{path}: the kernel refuses {value!r}: {error.strerror}") from None
    if (now := _word(read_text(path))) != value:
        raise OSError(0, f"{path}: the kernel keeps {now!r} in place of {value!r}")
