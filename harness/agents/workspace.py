"""The folder that an agent works in: the only place that a tool's call can name.

A file is opened once and only what was opened counts, so that a link put in its place meanwhile leads nowhere.
"""

import os
from pathlib import Path

from harness.core.errors import UsageError, os_error_as
from harness.core.files import open_ordinary
from harness.problems.submission import MAX_BYTES

NAME_CHARS = 400


class Workspace:
    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise UsageError(f"--workspace {root}: no such folder; make it, or name another")
        self.root = root.resolve()

    def read(self, name: str) -> str:
        """The text of a file in the folder. UsageError for any other place, and for what is no submission."""
        path = Path(name)
        if not name or len(name) > NAME_CHARS or "\0" in name or path.is_absolute() or ".." in path.parts:
            raise UsageError(f"{name[:NAME_CHARS]!r}: name a file in the workspace, by its path there")
        unread = os_error_as(UsageError, f"{name}: cannot be read in the workspace")
        with unread, open_ordinary(self.root / path) as file:
            is_inside = Path(os.readlink(f"/proc/self/fd/{file.fileno()}")).is_relative_to(self.root)
            data = file.read(MAX_BYTES + 1) if is_inside else b""
        if not is_inside:
            raise UsageError(f"{name}: it is no file in the workspace")
        if len(data) > MAX_BYTES:
            raise UsageError(f"{name}: larger than {MAX_BYTES} bytes, which a submission may have")
        return data.decode(errors="replace")
