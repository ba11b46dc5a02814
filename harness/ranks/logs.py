"""What a process prints, of which the end is kept. Nothing here knows what the text means."""

import contextlib
import fcntl
import os

LOG_TAIL_BYTES = 64 << 10  # of what a process prints, the end is kept
READ_BYTES = 1 << 20


class LogPipe:
    """A pipe that someone prints to, of which the end is kept."""

    def __init__(self) -> None:
        self.fd, self.write_fd = os.pipe()
        with contextlib.suppress(OSError):  # past the user's share of pipe memory
            fcntl.fcntl(self.fd, fcntl.F_SETPIPE_SZ, READ_BYTES)  # a rank that prints much waits less for us
        os.set_blocking(self.fd, False)
        self.tail = bytearray()
        self.total_bytes = 0

    def read(self) -> bool:
        """Takes the bytes that are there; False at the end of the pipe."""
        with contextlib.suppress(BlockingIOError):
            data = os.read(self.fd, READ_BYTES)
            self.tail += data
            self.total_bytes += len(data)
            del self.tail[:-LOG_TAIL_BYTES]
            return bool(data)
        return True

    def close(self) -> None:
        os.close(self.fd)
        os.close(self.write_fd)

    def text(self, since_bytes: int = 0) -> str:
        """The text after the first `since_bytes` bytes, as far as it was kept."""
        fresh = self.total_bytes - since_bytes
        return self.tail[max(0, len(self.tail) - fresh) :].decode(errors="replace")
