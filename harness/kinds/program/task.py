"""What a problem says of its instances and answers: its task.py, trusted code that the parent imports.

Knows which functions such a file has, and turns what they raise into the harness's errors.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol, cast

from harness.core.checkout import shown
from harness.core.errors import BadFileError, HarnessError, UsageError
from harness.problems.problem import Problem, own_code, own_module

FUNCTIONS = ("grace_s", "find", "content", "load", "cost", "bound", "best", "known")
NUMBERS = ("CORES", "MEMORY_BYTES")
FILE = "task.py"


class TaskModule(Protocol):
    """The names that a task.py defines. What a file or an answer has wrong is a ValueError, which names the place; any
    other error of its own is a BadFileError."""

    CORES: int
    MEMORY_BYTES: int

    def grace_s(self, limit_s: float) -> float:
        """How long a solver may overrun its limit."""
        ...

    def find(self, name: str) -> Path:
        """The path of the instance of that name."""
        ...

    def content(self, path: Path) -> bytes:
        """Its text as solvers get it."""
        ...

    def load(self, text: bytes) -> Any:
        """Reads and checks an instance."""
        ...

    def cost(self, instance: Any, line: str) -> int:
        """The cost of the answer on a line."""
        ...

    def bound(self, name: str, text: bytes) -> tuple[int, str] | None:
        """A proved lower bound of the cost, and how it was found."""
        ...

    def best(self, name: str) -> int | None:
        """The least cost that the score counts besides those of the run."""
        ...

    def known(self, name: str) -> int | None:
        """The least cost that is known today from anywhere."""
        ...


@dataclass(frozen=True, kw_only=True)
class Instance:
    """An instance as solvers get it and as the checker has it. `bound` is a proved lower bound with its source, `best`
    the least cost that the score counts besides those of the run, `known` the least cost known from anywhere."""

    name: str
    text: bytes
    loaded: Any
    bound: tuple[int, str] | None
    best: int | None
    known: int | None


def load_task(problem: Problem) -> TaskModule:
    """The problem's task.py. Raises BadFileError for one that cannot be imported or lacks a name."""
    path = problem.folder / FILE
    module = own_module(path, f"_task_{problem.name}", shown(path))
    lacking = [name for name in (*NUMBERS, *FUNCTIONS) if not hasattr(module, name)]
    if lacking:
        raise BadFileError(f"{shown(path)}: {', '.join(lacking)} missing; docs/programs.md says what it defines")
    functions = {name: _watched(getattr(module, name), path, problem.root) for name in FUNCTIONS}
    return cast(TaskModule, SimpleNamespace(**{name: getattr(module, name) for name in NUMBERS}, **functions))


def _watched(function: Callable[..., Any], path: Path, root: Path) -> Callable[..., Any]:
    def called(*arguments: Any) -> Any:
        with own_code(path, root, f"{function.__name__}()", refuses=ValueError):
            return function(*arguments)

    return called


def load_instance(task: TaskModule, name: str) -> Instance:
    """The instance of that name. Raises UsageError where it is not here, BadFileError where it is not right."""
    try:
        path = task.find(name)
    except ValueError as error:
        raise UsageError(str(error)) from None
    try:
        text = task.content(path)
        loaded = task.load(text)
    except ValueError as error:
        raise BadFileError(f"{shown(path)}: {error}") from None
    except MemoryError:
        raise HarnessError(f"{shown(path)}: not enough memory to check answers") from None
    bound, best, known = task.bound(name, text), task.best(name), task.known(name)
    return Instance(name=name, text=text, loaded=loaded, bound=bound, best=best, known=known)


def check_here(task: TaskModule, names: Sequence[str]) -> None:
    """Raises what load_instance does for an instance that is not on this machine or not whole, before anything runs.
    Each instance is read again when its case is run."""
    for name in names:
        try:
            task.find(name)
        except ValueError as error:
            raise UsageError(str(error)) from None
    for name in dict.fromkeys(names):
        load_instance(task, name)
