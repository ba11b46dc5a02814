"""Messages on their way: frames over a stream socket, and file descriptors.

A frame is a 4-byte big-endian length and that many bytes of JSON. Files go with a frame of no bytes, which is no
message: what is timed does not wait for JSON. The parent decodes a rank's frames strictly
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

NOTHING = struct.pack(">I", 0)  # a frame of no bytes


class ProtocolError(Exception):
    """The other side sent bytes that are none of these messages."""


class Channel:
    """The ranks' side: blocking, frames over a stream socket. The parent reads through a Parser."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.files: deque[int] = deque()  # that came

    def send(self, message: Any) -> None:
        self.sock.sendall(frame(message))

    def send_files(self, files: Sequence[int]) -> None:
        send_files(self.sock, files)

    def receive(self, kind: Any) -> Any:
        """The next message of one of `kind`'s types. Raises EOFError when the other side is gone."""
        while not (length := self._length()):
            pass  # files, which are kept
        return decode(kind, json.loads(self._exactly(length)))

    def receive_files(self) -> None:
        """Waits for files, or for an empty frame without any."""
        if self._length():
            raise ProtocolError("a message where files were due")

    def _length(self) -> int:
        return int(struct.unpack(">I", self._exactly(4))[0])

    def _exactly(self, nbytes: int) -> bytes:
        data = bytearray()
        while len(data) < nbytes:
            chunk, files, _, _ = socket.recv_fds(self.sock, nbytes - len(data), MAX_FILES)
            self.files += files
            if not chunk:
                raise EOFError("the other side closed the channel")
            data += chunk
        return bytes(data)


class MessageParser:
    """Cuts a stream into messages of one of `kind`'s types; for the parent, which must not block on one rank."""

    def __init__(self, kind: Any = Reply) -> None:
        self.kind = kind
        self.buffer = bytearray()

    def feed(self, data: bytes) -> list[Any]:
        """The messages that `data` completes. Raises ProtocolError for anything else."""
        self.buffer += data
        messages: list[Any] = []
        while len(self.buffer) >= 4:
            (length,) = struct.unpack(">I", self.buffer[:4])
            if length > MAX_FRAME_BYTES:
                raise ProtocolError(f"a frame of {length} bytes")
            if len(self.buffer) < 4 + length:
                break
            body = bytes(self.buffer[4 : 4 + length])
            del self.buffer[: 4 + length]
            if not body:  # files
                continue
            try:
                messages.append(decode(self.kind, json.loads(body)))
            except (DecodeError, ValueError, RecursionError) as error:
                raise ProtocolError(f"not a message: {error}") from None
        return messages


def send_files(sock: socket.socket, files: Sequence[int]) -> None:
    """Sends these file descriptors, or an empty frame alone."""
    sent = socket.send_fds(sock, [NOTHING], files) if files else 0
    if rest := NOTHING[sent:]:
        sock.sendall(rest)


def frame(message: Any) -> bytes:
    """The message as a frame: its length (4 bytes, big-endian), then its JSON."""
    body = json.dumps(encode(message)).encode()
    return struct.pack(">I", len(body)) + body
