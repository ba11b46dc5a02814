"""The parent's end of one rank: its socket, its log, the replies that have come and not been asked for yet."""

import contextlib
import errno
import fcntl
import os
import signal
import socket
import time
from collections import deque
from collections.abc import Iterator

from harness.process.child import end_text
from harness.ranks import channel, wire
from harness.ranks.logs import LogPipe

READ_BYTES = 1 << 17
SEND_S = 30.0  # for a rank to take a message in
# Of replies that nobody has asked for yet: bytes, and how many an untrusted rank may send ahead; it never owes as many.
MOST_UNPARSED_BYTES, MOST_REPLIES = 8 * wire.MAX_FRAME_BYTES, 16


class Rank:
    """The parent's end of one rank."""

    def __init__(self, role: wire.Role, rank: int) -> None:
        self.role, self.rank, self.pid = role, rank, 0
        self.sock, self.their_sock = socket.socketpair()
        self.sock.setblocking(False)
        self.log = LogPipe()
        self.parser = channel.MessageParser()
        self._inbox: deque[wire.Reply] = deque()
        self.unparsed = bytearray()
        self.files: list[int] = []  # that came with its replies, sealed
        self.sealed_ns = 0  # when the last of them had come (CLOCK_MONOTONIC)
        self.gone = ""  # why nothing more will come from it
        self.was_killed = False  # by SIGKILL

    def read(self) -> bool:
        """Takes the bytes that have come, for `inbox`; False at the end of the connection."""
        try:
            data, files, _, _ = socket.recv_fds(self.sock, READ_BYTES, wire.MAX_FILES)
        except BlockingIOError:
            return True
        except ConnectionError:
            return False
        self.files += files
        if not self._has_sealed(files):
            self.gone = "sent a file that it can still change"
            return False
        if files:
            self.sealed_ns = time.monotonic_ns()
        self.unparsed += data
        if len(self.unparsed) > MOST_UNPARSED_BYTES:
            self.gone = f"sent more than {MOST_UNPARSED_BYTES >> 20} MiB that nobody asked for"
            return False
        return bool(data)

    def _has_sealed(self, files: list[int]) -> bool:
        """Whether all these files are sealed, and no more than one reply may bring, since each takes memory here."""
        try:
            sealed = all(fcntl.fcntl(fd, fcntl.F_GET_SEALS) & wire.SEALS == wire.SEALS for fd in files)
        except OSError:  # it is not even a file in memory
            return False
        return sealed and len(self.files) <= wire.MAX_FILES

    def exited(self, code: int) -> None:
        """Notes that the rank's process has ended with that code."""
        self.was_killed = not self.gone and code == -signal.SIGKILL
        self.gone = self.gone or exit_text(code)

    @property
    def inbox(self) -> deque[wire.Reply]:
        """The replies that have come in full. Parsed here, not in `read`, so that others' files are noticed at once."""
        if self.unparsed:
            try:
                self._inbox += self.parser.feed(bytes(self.unparsed))
            except channel.ProtocolError as error:
                self.gone = f"sent something that is no reply ({str(error)[:300]})"
            self.unparsed.clear()
            if self.role != "trusted" and len(self._inbox) > MOST_REPLIES:
                self.gone = self.gone or f"sent more than {MOST_REPLIES} replies that nobody asked for"
        return self._inbox

    @contextlib.contextmanager
    def sending(self) -> Iterator[None]:
        """Makes the socket blocking while the context lasts. Errors of a rank that is gone or stopped are ignored here:
        whoever waits for its reply reports them. The kernel counts the files that a user's processes have sent and
        nobody has received yet; a submission may have so many of them that this rank can be sent none."""
        self.sock.settimeout(SEND_S)  # messages are small, a rank that obeys takes them at once
        try:
            yield
        except (ConnectionError, TimeoutError):
            pass
        except OSError as error:
            if error.errno != errno.ETOOMANYREFS:
                raise
            self.gone = f"could not be sent a file ({error.strerror})"
        finally:
            self.sock.setblocking(False)

    def close(self) -> None:
        """Closes the socket, the log and the files that are open for this rank in the parent."""
        self.sock.close()
        os.close(self.log.fd)
        for fd in self.take_files():
            os.close(fd)

    def take_files(self) -> list[int]:
        """The files that have come since the last time; they are the caller's to close."""
        taken, self.files = self.files, []
        return taken


def exit_text(code: int) -> str:
    """A process's end in words; `code` as subprocess has it."""
    if code == -signal.SIGKILL:
        return "was killed by SIGKILL (often the kernel's answer to running out of memory)"
    return end_text(code) + (" in the middle of the evaluation" if code >= 0 else "")
