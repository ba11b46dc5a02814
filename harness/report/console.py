"""Where the command line's words go: one console for a terminal, a pipe and a file."""

import io
import os
import re
import sys

from rich.console import Console

LEAST = 60  # columns that lines are laid out for, however narrow the terminal is
UNBROKEN = 10_000  # columns where nobody watches: other programs and files get whole lines
BLANKS = re.compile(r"[ \t]+(?=\n|\Z)")  # tables fill up their last column


class WholeLines(io.TextIOBase):
    """Standard output or error, whichever that is by then, without blanks at the ends of lines."""

    def __init__(self, is_stderr: bool) -> None:
        self.is_stderr = is_stderr

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """What rich asks for before it draws lines."""
        return str(getattr(self._stream, "encoding", None) or "utf-8")

    @property
    def _stream(self) -> io.TextIOBase:
        return sys.stderr if self.is_stderr else sys.stdout  # type: ignore[return-value]

    def write(self, text: str) -> int:
        """Writes the lines; a text of rich's ends with a line."""
        self._stream.write(BLANKS.sub("", text))
        return len(text)

    def flush(self) -> None:
        self._stream.flush()


def new_console(stderr: bool = False) -> Console:
    """The console of standard output or error, as wide as COLUMNS or the terminal, else as its lines."""
    found = Console(stderr=stderr)
    if found.is_terminal:
        found.width = max(found.width, LEAST)
        return found
    width = found.width if os.environ.get("COLUMNS", "").isdigit() else UNBROKEN
    return Console(file=WholeLines(stderr), width=max(width, LEAST))  # type: ignore[arg-type]
