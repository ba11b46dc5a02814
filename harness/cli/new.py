"""Write the files of a new problem: complete, commented, and evaluated at once. They are those of the
example in docs/problems.md, which says what to change."""

import contextlib
from dataclasses import dataclass
from pathlib import Path

from harness.cli.declare import argument
from harness.core.checkout import Checkout
from harness.core.errors import Exit, UsageError, os_error_as
from harness.core.files import replace_file
from harness.problems.problem import Problem
from harness.problems.shape_file import find
from harness.problems.skeleton import problem_files


@dataclass(frozen=True, kw_only=True)
class NewOrder:
    name: str = argument("the problem's name: lower-case letters, digits and _", metavar="NAME")


def run(order: NewOrder, checkout: Checkout) -> Exit:
    """`new`: writes the files, none over one that is there."""
    files = problem_files(order.name, checkout)
    there = [path for path in files if (checkout.root / path).exists()]
    if there:
        raise UsageError(f"{there[0]} is there already; choose another name, or delete it")
    if (called := _called(order.name, checkout)) is not None:
        raise UsageError(f"{order.name} is the leaderboard's name of problem {called.name}; choose another name")
    with contextlib.ExitStack() as half:  # on a full disk, say, nothing of a problem stays
        for path, text in files.items():
            half.callback(_unwrite, checkout.root / path)
            write(checkout, path, text)
        half.pop_all()
    print(f"Next: `python -m harness eval {order.name} --suite quick`, then change the files as docs/problems.md says")
    return Exit.OK


def _called(name: str, checkout: Checkout) -> Problem | None:
    try:
        return find(name, checkout)
    except UsageError:
        return None


def _unwrite(path: Path) -> None:
    """Deletes a file that was just written, and its folder if that is empty."""
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
        path.parent.rmdir()


def write(checkout: Checkout, path: str, text: str) -> None:
    """Writes a file of the checkout and says so. Raises UsageError where that fails."""
    target = checkout.root / path
    with os_error_as(UsageError, f"{path}: cannot be written", "check rights there"):
        target.parent.mkdir(parents=True, exist_ok=True)
        replace_file(target, text.encode())
    print(path)
