"""What processes use, where no cgroup counts it: their memory, shared and unmapped files of memory included, and their
threads."""

import os
from collections.abc import Iterable

from harness.core import processes

FILES = ("/memfd:", "/dev/shm/", "/dev/zero", "/SYSV")  # of memory, as links of descriptors name them
SHM = "/dev/shm"
BLOCK = 512  # bytes, of st_blocks


def tasks(pid: int) -> int:
    """How many threads the process has; 0 if it has ended."""
    try:
        return len(os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return 0


def processor(pid: int) -> tuple[float, str]:
    """The processor seconds that the process and its children that have ended have used, and its first thread's state
    as /proc has it; 0 and Z if it has ended."""
    fields = processes.stat(pid)
    return (sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK"), fields[0]) if fields else (0.0, "Z")


def peak_resident(pid: int) -> int:
    """The most bytes that the process has had resident, as the kernel counts them; 0 if it has ended. A process may set
    the count back to what it has resident at that moment (/proc/self/clear_refs)."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            return next((int(line.split()[1]) << 10 for line in file if line.startswith(b"VmHWM:")), 0)
    except (OSError, ValueError, IndexError):
        return 0


def memory(pids: Iterable[int]) -> int:
    """The bytes of the machine's memory that these processes have together.

    Each counts with its part of what it has mapped. Files of memory that it has open, and what lies in a /dev/shm of
    its own, take memory whether they are mapped or not, so the larger counts: what is allocated or what is mapped."""
    own = mapped = 0
    files: dict[tuple[int, int], int] = {}
    stores: dict[int, int] = {}
    for pid in pids:
        private, shared = _mapped(pid)
        own, mapped = own + private, mapped + shared
        files |= _open_files(pid)
        stores |= _own_store(pid)
    unlinked = sum(size for (device, _), size in files.items() if device not in stores)
    return own + max(mapped, unlinked + sum(stores.values()))


def _mapped(pid: int) -> tuple[int, int]:
    """Its mapped memory, without and of files of memory; all that is resident if it hides."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            parts = {line.split(b":")[0]: int(line.split()[1]) << 10 for line in file if line.startswith(b"Pss")}
        return parts[b"Pss"] - parts[b"Pss_Shmem"], parts[b"Pss_Shmem"]
    except (OSError, ValueError, KeyError):
        try:
            with open(f"/proc/{pid}/statm", "rb") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE"), 0
        except (OSError, ValueError, IndexError):  # it has ended
            return 0, 0


def _open_files(pid: int) -> dict[tuple[int, int], int]:
    """The bytes allocated to each file of memory that it has open, by device and inode."""
    found = {}
    folder = f"/proc/{pid}/fd"
    try:
        for name in os.listdir(folder):
            if os.readlink(f"{folder}/{name}").startswith(FILES):
                status = os.stat(f"{folder}/{name}")
                found[status.st_dev, status.st_ino] = status.st_blocks * BLOCK
    except OSError:  # it has ended, or closed one, or hides
        pass
    return found


def _own_store(pid: int) -> dict[int, int]:
    """The bytes in use in its /dev/shm by device, if that is not the machine's."""
    try:
        device = os.stat(f"/proc/{pid}/root{SHM}").st_dev
        if device == os.stat(SHM).st_dev:
            return {}
        used = os.statvfs(f"/proc/{pid}/root{SHM}")
        return {device: (used.f_blocks - used.f_bfree) * used.f_frsize}
    except OSError:
        return {}
