"""What the hub and an agent send each other: frames over one TCP connection. Neither side waits for the other."""

import enum
import os
import socket
import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

HEAD = struct.Struct(">BHQ")  # kind, number, bytes that follow
READ_BYTES = 1 << 20
# A host that has lost its power or its network says nothing of it: the connection ends a minute later, and with it the
# ranks on the other side. Seconds, but for the probes' count, and milliseconds for what is sent and not acknowledged.
KEPT_ALIVE = {
    socket.TCP_KEEPIDLE: 30,
    socket.TCP_KEEPINTVL: 10,
    socket.TCP_KEEPCNT: 3,
    socket.TCP_USER_TIMEOUT: 60_000,
}
FULL_BYTES = 8 << 20  # unsent, from which on what can be lost is not sent


class FrameKind(enum.IntEnum):
    """What a frame carries. Its number is a rank's (`relay.number_of`) or a group's (its place in zygotes.GROUPS)."""

    CONTROL = 0  # JSON of the zygote's protocol (ranks.wire)
    FOLDER = 1  # of a rank that is to be started: a tar archive of its working folder
    STREAM = 2  # bytes of a rank's channel, with the files before
    FILE = 3  # a sealed file of it
    UNSEALED = 4  # a descriptor came that is no sealed file
    CLOSED = 5  # nothing more will come of the channel
    LOG = 6  # what a rank printed
    WORDS = 7  # changes of a group's barrier page
    PACKET = 8  # of a group's own network


@dataclass(frozen=True)
class Frame:
    kind: FrameKind
    number: int
    data: bytes


class PeerGoneError(Exception):
    """The connection has ended, or sent bytes that are none of these frames."""


class Outbox:
    """What is to be written to a descriptor, a socket's where descriptors go with it, which is never waited for. Data
    for a reader that is gone is dropped. `wants_write` is called when that there is something unsent begins or ends."""

    def __init__(
        self, fd: int, wants_write: Callable[["Outbox", bool], None], sock: socket.socket | None = None
    ) -> None:
        self.fd, self.wants_write, self.sock = fd, wants_write, sock
        os.set_blocking(fd, False)
        self.unsent: deque[tuple[memoryview, list[int]]] = deque()
        self.unsent_bytes = 0

    def write(self, data: bytes, fds: Sequence[int] = ()) -> None:
        """Writes it now or as soon as there is room, with these descriptors, which are closed then."""
        self.unsent.append((memoryview(data), list(fds)))
        self.unsent_bytes += len(data)
        if len(self.unsent) == 1:
            self._flush()
            if self.unsent:
                self.wants_write(self, True)

    def write_more(self) -> None:
        """Called when there is room again."""
        self._flush()
        if not self.unsent:
            self.wants_write(self, False)

    def _flush(self) -> None:
        try:
            while self.unsent:
                data, fds = self.unsent[0]
                sent = socket.send_fds(self.sock, [data], fds) if self.sock and fds else os.write(self.fd, data)
                for fd in fds:
                    os.close(fd)
                self.unsent_bytes -= sent
                if sent < len(data):
                    self.unsent[0] = (data[sent:], [])
                else:
                    self.unsent.popleft()
        except BlockingIOError:
            return
        except OSError as error:
            self._is_gone(error)

    def _is_gone(self, error: OSError) -> None:
        self.unsent.clear()


class Peer(Outbox):
    """One end of the connection."""

    sock: socket.socket

    def __init__(self, sock: socket.socket, wants_write: Callable[[Outbox, bool], None]) -> None:
        super().__init__(sock.fileno(), wants_write, sock)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # a barrier's word is a few bytes
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in KEPT_ALIVE.items():
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
        self._received = bytearray()

    @property
    def is_full(self) -> bool:
        """Whether so much is unsent that packets and logs had better be lost."""
        return self.unsent_bytes > FULL_BYTES

    def send(self, kind: FrameKind, number: int, data: bytes = b"") -> None:
        """Sends the frame, now or as soon as there is room. Raises PeerGoneError."""
        self.write(HEAD.pack(kind, number, len(data)) + data)

    def _is_gone(self, error: OSError) -> None:
        raise PeerGoneError(str(error)) from None

    def receive(self) -> Iterator[Frame]:
        """The frames that have come in full. Raises PeerGoneError."""
        try:
            data = self.sock.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            raise PeerGoneError(str(error)) from None
        if not data:
            raise PeerGoneError("it closed the connection")
        self._received += data
        at = 0
        while len(self._received) >= at + HEAD.size:
            kind, number, nbytes = HEAD.unpack_from(self._received, at)
            if kind not in FrameKind.__members__.values():
                raise PeerGoneError(f"it sent a frame of kind {kind}")
            end = at + HEAD.size + nbytes
            if len(self._received) < end:
                break
            yield Frame(FrameKind(kind), number, bytes(self._received[at + HEAD.size : end]))
            at = end
        del self._received[:at]


def has_ended(sock: socket.socket) -> bool:
    """Whether the other side of a socket that does not block has closed it, or is lost."""
    try:
        return sock.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
