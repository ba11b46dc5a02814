"""KernelBot problem folders, run by our ranks and clocks: an operator whose checker is the folder's own."""

import os
from pathlib import Path

from harness.core.checkout import Checkout
from harness.gpumode import folder
from harness.kinds.op import OpKind
from harness.problems.problem import Problem


class FolderKind(OpKind):
    """A folder with KernelBot's task.yml."""

    def claims(self, place: Path) -> bool:
        """A folder that has a task.yml."""
        return os.path.isfile(place / folder.FILE)

    def read(self, place: Path, checkout: Checkout) -> Problem:
        """The problem folder. Raises BadFileError for one that does not fit; UsageError for one in another language."""
        return folder.read(place, checkout)
