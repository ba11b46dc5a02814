"""Limits that the kernel keeps: a control group (cgroup) for the processes of one untrusted program or group of ranks.

Version 2 where it has the controllers, else version 1. A group is made below the harness's own, or below the nearest
one above it that permits it; what others have set up is not changed. Which limits the kernel then keeps, `kept` says.
Sources: Linux, Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/.
"""

import contextlib
import os
import secrets
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.core.files import text_if_any

END_S, LOOK_S = 5.0, 0.01  # for a group's last processes to go; between two looks
PREFIX = "kernel-eval-"
CORES, MEMORY, TASKS = "cpuset", "memory", "pids"  # controllers
EVENTS = (  # by version 2 or 1 of cgroups, or both
    (MEMORY, "memory.events", "oom_kill"),
    (MEMORY, "memory.oom_control", "oom_kill"),
    (TASKS, "pids.events", "max"),
)
MEMBERS, CHILDREN, TYPE = "cgroup.procs", "cgroup.subtree_control", "cgroup.type"


@dataclass(frozen=True, kw_only=True)
class Most:
    """The limits of all processes of a group together: cores, memory with what they share, processes and threads."""

    cores: tuple[int, ...]
    memory_bytes: int
    tasks: int


@dataclass(frozen=True)
class _Place:
    """A group below which one may be made, and the controllers that it would have."""

    folder: Path
    version: int
    controllers: tuple[str, ...]


@dataclass
class Cgroup:
    """A group. `kept` are the controllers whose limits the kernel keeps."""

    kept: tuple[str, ...] = ()
    folders: dict[str, Path] = field(default_factory=dict)  # by controller; one folder in version 2

    @property
    def places(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(map(str, self.folders.values())))

    def used_bytes(self) -> int | None:
        """Memory that could only be swapped out: anonymous, shared, files of memory. None if not counted."""
        if MEMORY not in self.kept:
            return None
        with contextlib.suppress(OSError, ValueError):
            found = _counters(self.folders[MEMORY] / "memory.stat")
            return found["anon"] + found["shmem"] if "anon" in found else found["total_rss"] + found["total_shmem"]
        return 0

    def hit(self) -> set[str]:
        """The controllers whose limit was met: a process was killed, or refused."""
        found = set()
        for controller, name, counter in EVENTS:
            with contextlib.suppress(OSError, ValueError, KeyError):
                if _counters(self.folders[controller] / name)[counter]:
                    found.add(controller)
        return found

    def end(self) -> None:
        deadline = time.monotonic() + END_S
        for folder in dict.fromkeys(self.folders.values()):
            while folder.exists() and time.monotonic() < deadline:
                with contextlib.suppress(OSError):
                    pids = map(int, (folder / MEMBERS).read_text().split())
                    for pid in filter(None, pids):  # 0: of another PID namespace; to kill, 0 means our own group
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
                    folder.rmdir()
                    break
                time.sleep(LOOK_S)


def make(most: Most) -> Cgroup:
    """A new group with these limits, as far as this machine permits; one that keeps none where it permits none."""
    made = Cgroup()
    name = f"{PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
    for place in _places():
        wanted = [one for one in place.controllers if one not in made.kept]
        folder = place.folder / name
        if not wanted:
            continue
        _remove_left(place.folder)
        try:
            folder.mkdir()
        except OSError:
            continue
        for controller in wanted:
            if _limited(folder, controller, place, most):
                made.kept += (controller,)
                made.folders[controller] = folder
        if folder not in made.folders.values():
            folder.rmdir()
    return made


def join(places: tuple[str, ...]) -> None:
    """Moves this process into a group with these folders; its children are born there. Raises OSError."""
    for place in places:
        (Path(place) / MEMBERS).write_text("0")


def _limited(folder: Path, controller: str, place: _Place, most: Most) -> bool:
    """Sets the controller's limits in the new group. Returns whether the kernel took the first of them."""
    cores = ",".join(map(str, most.cores))
    settings: Mapping[tuple[str, int], dict[str, str]] = {
        (CORES, 2): {"cpuset.cpus": cores},
        (CORES, 1): {"cpuset.cpus": cores, "cpuset.mems": text_if_any(place.folder / "cpuset.mems")},
        (MEMORY, 2): {"memory.max": str(most.memory_bytes), "memory.swap.max": "0"},
        (MEMORY, 1): {
            "memory.limit_in_bytes": str(most.memory_bytes),
            "memory.memsw.limit_in_bytes": str(most.memory_bytes),
        },
        (TASKS, 2): {"pids.max": str(most.tasks)},
        (TASKS, 1): {"pids.max": str(most.tasks)},
    }
    taken = []
    for name, value in settings[controller, place.version].items():
        try:
            (folder / name).write_text(value)
            taken.append(True)
        except OSError:  # swap is not counted everywhere
            taken.append(False)
    return taken[0] and (taken[-1] or controller == MEMORY)


def _places() -> Iterator[_Place]:
    """Where a group may be made: the nearest place of version 2 that has controllers, then those of version 1."""
    wanted = (CORES, MEMORY, TASKS)
    for top, folder, names in _own_groups():
        if names:
            yield _Place(folder, 1, tuple(name for name in wanted if name in names))
            continue
        # Only the root, which alone has no type, may have processes and pass controllers on: below any other group that
        # does, none can be joined. What groups above pass on is somebody else's to say.
        for name in () if (folder / TYPE).exists() else wanted:
            with contextlib.suppress(OSError):
                (folder / CHILDREN).write_text(f"+{name}")
        for above in (folder, *folder.parents):
            passed_on = text_if_any(above / CHILDREN).split()
            if text_if_any(above / TYPE) not in ("", "domain\n"):  # nothing but threads may be below it
                continue
            if top in (above, *above.parents) and set(passed_on) & set(wanted) and os.access(above, os.W_OK):
                yield _Place(above, 2, tuple(name for name in wanted if name in passed_on))
                break


def _own_groups() -> list[tuple[Path, Path, tuple[str, ...]]]:
    """Top and own group of each hierarchy, version 2 first; of version 1 with its controllers."""
    own = {}
    for line in text_if_any("/proc/self/cgroup").splitlines():
        _, names, path = line.split(":", 2)
        own[names] = path
    found = []
    for line in text_if_any("/proc/self/mountinfo").splitlines():
        fields, _, kind = line.partition(" - ")
        root, top = fields.split()[3:5]
        version, _, options = kind.split(" ", 2)
        mounted = {*options.split(",")} if version == "cgroup" else set()
        names = next((one for one in own if one and {*one.split(",")} <= mounted), "")
        if version == "cgroup2" or (version == "cgroup" and names):
            path = os.path.relpath(own.get(names, "/"), root)
            folder = Path(os.path.normpath(Path(top) / path))
            if folder.is_dir() and not path.startswith(".."):
                found.append((Path(top), folder, tuple(filter(None, names.split(",")))))
    return sorted(found, key=lambda one: bool(one[2]))


def _remove_left(place: Path) -> None:
    for folder in place.glob(f"{PREFIX}*"):
        pid = folder.name.removeprefix(PREFIX).partition("-")[0]
        if not Path("/proc", pid).exists():
            with contextlib.suppress(OSError):
                folder.rmdir()


def _counters(path: Path) -> dict[str, int]:
    return {name: int(value) for name, value in map(str.split, path.read_text().splitlines())}
