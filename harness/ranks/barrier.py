"""The host barrier: all ranks wait at it, leave it together, and wait for each other again after the call.

A timed call therefore starts on all ranks at once, and a rank that is done early takes no core from the others.

Ranks and parent share one page of memory. Epochs in it only grow, so nothing is ever reset. If every rank has a core of
its own, ranks spin on the page and leave within a microsecond of each other. With fewer cores, spinning would take time
from ranks that still work, so ranks sleep in a futex that one system call wakes.
"""

import contextlib
import ctypes
import fcntl
import mmap
import os
import platform
import time
from collections.abc import Iterable

from harness.ranks import steps

FUTEX_WAIT, FUTEX_WAKE = 0, 1  # linux/futex.h
SYS_FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine())  # asm/unistd.h
POLL_S = 50e-6  # where the futex call's number is not known
RECHECK_NS = 2_000_000
# Whoever has waited long looks less often, after a 64th of that time again, and spins no more: ranks that the others
# never join have to sleep, or their group would never count as idle (ranks.idle).
SELDOM, MOST_RECHECK_NS, MOST_SPUN_NS = 64, 64_000_000, 1_000_000_000
RELEASED, FINISHED = 0, 8  # words of 8 bytes: what ranks are told in one cache line, what they tell in others
FIRST_MARK, MARKS_STRIDE = 16, 8  # then a cache line a rank: "has come", "has finished", its device's two, its key
DEVICE_MARK, DEVICE_HELD, KEY = 2, 3, 4
EPOCH_BITS, KEY_BITS = 20, 42  # of the word that holds a key and whose it is
_libc = ctypes.CDLL(None, use_errno=True)


class Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def make_barrier(world_size: int) -> int:
    """A new barrier as a file descriptor, which is passed to every rank of a group."""
    fd = os.memfd_create("barrier", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    # Written, so that its memory is taken now. Else the first rank to touch it would decide, for each group by chance,
    # which of the host's memory nodes it lies on, and so which devices hear of each other a little later.
    os.pwrite(fd, bytes(_nbytes(world_size)), 0)
    # A rank that cut it off would kill the parent, which has it mapped.
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return fd


class Barrier:
    """One process's end of a barrier. The parent calls `release`, `tell` and `stand_in`; ranks call `wait`, `open`,
    `finish` and `key`. All pass the epoch of the call. With `spin`, every rank has a core of its own.

    Waiting has no deadline here: the parent ends a process that waits too long.

    If ranks run on several nodes, each node has a page, and so has the parent. Every change signals `bell`, an eventfd,
    and nodes.relay.Page carries it to the other pages.
    """

    def __init__(self, fd: int, world_size: int, spin: bool, bell: int | None = None) -> None:
        self.page = mmap.mmap(fd, _nbytes(world_size))
        self.words = memoryview(self.page).cast("q")
        self.marks = range(FIRST_MARK, FIRST_MARK + MARKS_STRIDE * world_size, MARKS_STRIDE)
        self.spin, self.bell = spin, bell
        self.steps = steps.Steps(self.page, _steps_at(world_size), world_size)

    def memory(self) -> tuple[int, int]:
        """Address and size of the page. A device watches its first word, the released epoch. Devices read and write the
        low 32 bits of words."""
        return ctypes.addressof(ctypes.c_int32.from_buffer(self.page)), len(self.page)

    def close(self) -> None:
        """Gives the page back, which nobody here uses any more."""
        self.words.release()
        self.steps.words.release()
        self.page.close()

    def device_marks(self) -> tuple[int, int]:
        """The offset of rank 0's device mark in the page, and the distance between marks of consecutive ranks, in
        bytes. A mark has 32 bits; hosts do not write to it."""
        return 8 * (FIRST_MARK + DEVICE_MARK), 8 * MARKS_STRIDE

    def device_held(self, rank: int) -> int:
        """The offset of the word in which that rank's device says that it waits."""
        return 8 * (self.marks[rank] + DEVICE_HELD)

    def wait_device(self, rank: int, epoch: int) -> None:
        """Returns once that rank's device waits for `epoch`."""
        while self.words[self.marks[rank] + DEVICE_HELD] < epoch:
            pass

    def release(self, epoch: int) -> None:
        """Lets all ranks go that wait for `epoch`."""
        self._set(RELEASED, epoch)

    def tell(self, ranks: Iterable[int], epoch: int, key: int) -> None:
        """Gives these ranks the key of `epoch`, of KEY_BITS bits. They must have the key before it."""
        for rank in ranks:
            self._set(self.marks[rank] + KEY, key << EPOCH_BITS | epoch % (1 << EPOCH_BITS))

    def key(self, rank: int, epoch: int) -> int:
        """The rank's key of `epoch`; waits until the parent has written it."""
        word = self.marks[rank] + KEY
        while (seen := self.words[word]) % (1 << EPOCH_BITS) != epoch % (1 << EPOCH_BITS):
            self._sleep(word, seen)
        return seen >> EPOCH_BITS

    def stand_in(self, rank: int, epoch: int) -> None:
        """Has the other ranks believe that this one has come: they do not wait for it in `open`."""
        self.words[self.marks[rank]] = epoch
        self._ring()

    def all_finished(self, epoch: int) -> bool:
        """Whether all ranks have finished `epoch`. If they have not, returns a moment later."""
        if (seen := self.words[FINISHED]) < epoch:
            self._sleep(FINISHED, seen)
        return self.words[FINISHED] >= epoch

    def finished(self, epoch: int) -> list[int]:
        return [rank for rank, place in enumerate(self.marks) if self.words[place + 1] >= epoch]

    def wait(self, epoch: int) -> None:
        """Returns once `epoch` was released."""
        while (seen := self.words[RELEASED]) < epoch:
            self._sleep(RELEASED, seen)

    def open(self, rank: int, epoch: int) -> None:
        """Waits until every rank has called this with `epoch`, which is then released."""
        self._meet(rank, epoch, mark=0, word=RELEASED)

    def finish(self, rank: int, epoch: int) -> None:
        """Waits until every rank has called this with `epoch`."""
        self._meet(rank, epoch, mark=1, word=FINISHED)

    def _meet(self, rank: int, epoch: int, mark: int, word: int) -> None:
        words = self.words
        words[self.marks[rank] + mark] = epoch
        self._ring()
        # Whoever sees all marks wakes the rest. Two that come at once may each miss the other's mark (a store can
        # be seen late), hence the look again after RECHECK_NS. They have waited for no time then.
        began_ns = time.monotonic_ns()
        while (seen := words[word]) < epoch:
            if all(words[place + mark] >= epoch for place in self.marks):
                self._set(word, epoch)
            elif mark or not self.spin:  # nothing may hold ranks up that spin on an opening
                self._sleep(word, seen, time.monotonic_ns() - began_ns)

    def merge(self, changes: Iterable[tuple[int, int]]) -> None:
        """Takes in changed words of another page of this barrier, each by its place and value. Epochs only grow, so
        that the larger holds; a key has one writer, the parent."""
        for word, value in changes:
            if (word >= FIRST_MARK and (word - FIRST_MARK) % MARKS_STRIDE == KEY) or value > self.words[word]:
                self._set(word, value)
        for mark, word in enumerate((RELEASED, FINISHED)):
            if (all_marked := min(self.words[place + mark] for place in self.marks)) > self.words[word]:
                self._set(word, all_marked)

    def _ring(self) -> None:
        if self.bell is not None:
            with contextlib.suppress(BlockingIOError):  # it rings already
                os.eventfd_write(self.bell, 1)

    def _set(self, word: int, value: int) -> None:
        self.words[word] = value
        self._ring()
        if not self.spin and SYS_FUTEX is not None:
            _libc.syscall(SYS_FUTEX, self._address(word), FUTEX_WAKE, 2**31 - 1, None, None, 0)

    def _sleep(self, word: int, seen: int, waited_ns: int = 0) -> None:
        """Sleeps until the word changes from what was seen, or for a short time."""
        most_ns = max(RECHECK_NS, min(waited_ns // SELDOM, MOST_RECHECK_NS))
        if self.spin:
            if waited_ns > MOST_SPUN_NS:
                time.sleep(most_ns / 1e9)
            return
        if SYS_FUTEX is None:
            time.sleep(POLL_S)
            return
        # A futex is 32 bits: the low half of the word (both machines in SYS_FUTEX are little-endian).
        low, timeout = ctypes.c_int32(seen & 0xFFFFFFFF), Timespec(0, most_ns)
        _libc.syscall(SYS_FUTEX, self._address(word), FUTEX_WAIT, low, ctypes.byref(timeout), None, 0)

    def _address(self, word: int) -> object:
        return ctypes.byref(ctypes.c_int32.from_buffer(self.page, 8 * word))


def _steps_at(world_size: int) -> int:
    """The offset of the words of steps in the page, in bytes."""
    return 8 * (FIRST_MARK + MARKS_STRIDE * world_size)


def _nbytes(world_size: int) -> int:
    return _steps_at(world_size) + steps.nbytes(world_size)
