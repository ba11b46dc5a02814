"""Messages on their way: frames over a stream socket, with file descriptors beside them.

A frame is a 4-byte big-endian length and that many bytes of JSON. The parent decodes a rank's frames strictly
(harness.core.decode), so that malformed messages of a submission only get it reported.
"""

import json
import socket
import struct
from collections import deque
from collections.abc import Sequence
from typing import Any

from harness.core.decode import DecodeError, decode, encode
from harness.ranks.wire import MAX_FILES, MAX_FRAME_BYTES, Reply


class ProtocolError(Exception):
    """The other side sent something that is not one of these messages."""


class Channel:
    """The ranks' side: blocking, frames over a stream socket. The parent reads through a Parser. File descriptors may
    come and go with a message."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.files: deque[int] = deque()  # that came

    def send(self, message: Any, files: Sequence[int] = ()) -> None:
        send_with(self.sock, frame(message), files)

    def receive(self, kind: Any) -> Any:
        """The next message of one of `kind`'s types. Raises EOFError when the other side is gone."""
        (length,) = struct.unpack(">I", self._exactly(4))
        return decode(kind, json.loads(self._exactly(length)))

    def _exactly(self, nbytes: int) -> bytes:
        data = bytearray()
        while len(data) < nbytes:
            chunk, files, _, _ = socket.recv_fds(self.sock, nbytes - len(data), MAX_FILES)
            self.files += files
            if not chunk:
                raise EOFError("the other side closed the channel")
            data += chunk
        return bytes(data)


class Parser:
    """Cuts a stream that arrives in pieces into replies; for the parent, which must not block on one rank."""

    def __init__(self) -> None:
        self.buffer = bytearray()

    def feed(self, data: bytes) -> list[Reply]:
        """The replies that `data` completes. Raises ProtocolError for anything else."""
        self.buffer += data
        replies: list[Reply] = []
        while len(self.buffer) >= 4:
            (length,) = struct.unpack(">I", self.buffer[:4])
            if length > MAX_FRAME_BYTES:
                raise ProtocolError(f"a frame of {length} bytes")
            if len(self.buffer) < 4 + length:
                break
            body = bytes(self.buffer[4 : 4 + length])
            del self.buffer[: 4 + length]
            try:
                replies.append(decode(Reply, json.loads(body)))  # type: ignore[arg-type]
            except (DecodeError, ValueError, RecursionError) as error:
                raise ProtocolError(f"not a reply: {error}") from None
        return replies


def send_with(sock: socket.socket, data: bytes, files: Sequence[int]) -> None:
    """Sends all of the data, with these file descriptors at its beginning."""
    sent = socket.send_fds(sock, [data], list(files)) if files else 0
    sock.sendall(data[sent:])


def frame(message: Any) -> bytes:
    """One message as bytes."""
    body = json.dumps(encode(message)).encode()
    return struct.pack(">I", len(body)) + body
