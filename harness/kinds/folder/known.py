"""Where problem folders were last seen, by the names that boards, hints and `#!POPCORN` lines have for them.

A folder's name on boards (`amd/identity`) says nothing of where it lies. What the user has named by its path is found
by such a name afterwards; a name that two folders share means the one that was named last.
"""

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path

from harness.core.checkout import Checkout
from harness.core.files import LockedError, lock_of, locked, replace_file
from harness.core.json_file import file_if_any
from harness.problems.problem import folded

FILE = "folders.json"
LOCK_WAIT_S = 5.0  # a writer holds the lock for milliseconds


def remember(folders: Mapping[str, Path], checkout: Checkout) -> None:
    """Keeps the folders of these names for `recalled`, beside those that other commands keep at the same time. Does
    nothing where the checkout cannot be written."""
    path = checkout.cache / FILE
    if _with(folders, _known(checkout)) is None:
        return
    with contextlib.suppress(OSError, LockedError):
        checkout.cache.mkdir(exist_ok=True)
        with locked(lock_of(path), LOCK_WAIT_S):
            if (new := _with(folders, _known(checkout))) is not None:
                replace_file(path, json.dumps(new, indent=1, sort_keys=True).encode(), is_alone=True)


def _with(folders: Mapping[str, Path], known: Mapping[str, str]) -> dict[str, str] | None:
    """What is known with these folders and without those that are gone; None where that changes nothing."""
    new = {name: folder for name, folder in known.items() if Path(folder).exists()}
    new |= {folded(name): str(folder.resolve()) for name, folder in folders.items()}
    return new if new != known else None


def recalled(name: str, checkout: Checkout) -> Path | None:
    """The folder of that name; None where none was named, or it is gone."""
    found = _known(checkout).get(folded(name))
    return Path(found) if found and Path(found).exists() else None


def _known(checkout: Checkout) -> dict[str, str]:
    return file_if_any(dict[str, str], checkout.cache / FILE) or {}
