"""Every kind of problem, and how a name or a path becomes a problem."""

import os
from collections.abc import Collection
from pathlib import Path

from harness.core.checkout import Checkout
from harness.core.records import UsageError
from harness.gpumode.folder import FILE, read
from harness.problems.problem import Problem
from harness.problems.shape_file import find as find_named
from harness.problems.shape_file import problem_names


def find(name: str, checkout: Checkout) -> Problem:
    """The problem folder at that path, or else the checkout's problem of that name.

    Raises UsageError where there is neither, BadFileError where its files are bad.
    """
    path = Path(name).expanduser()
    path = path.parent if path.name == FILE else path
    folded = {known.lower().replace("-", "_") for known in problem_names(checkout)}
    is_path = os.sep in name or name in (".", "..")
    if (path / FILE).is_file() and (is_path or name.lower().replace("-", "_") not in folded):
        return read(path, checkout)
    if is_path:
        what = f"a folder without {FILE}, so no problem folder" if path.is_dir() else "no such folder"
        raise UsageError(
            f"{name}: {what}; name one of GPU MODE's, or a problem that `python -m harness problems` lists"
        )
    return find_named(name, checkout)


def find_name(text: str, recorded: Collection[str], checkout: Checkout) -> str:
    """The name under which boards have the problem that `text` means: one that is `recorded`, since a problem folder
    may be anywhere by now, or else as `find` has it. Raises what `find` does."""
    return text if text in recorded else find(text, checkout).name
