"""A training problem's rules.yaml: which hyperparameters are free in which ranges, and the reference's convergence.

Reads a submission's HYPERPARAMETERS out of its text: nothing of it runs before they are checked.
"""

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from harness.core.checkout import shown
from harness.core.decode import DecodeError, did_you_mean
from harness.core.errors import BadFileError, BadSubmissionError
from harness.core.records import Case, Params
from harness.core.words import cut_line
from harness.core.yaml_file import read_yaml
from harness.problems.problem import Problem

FILE = "rules.yaml"
NAME = "HYPERPARAMETERS"
SHOWN_CHARS = 100  # of what a file says, in a message
BATCH = "batch_size"  # a hyperparameter that every problem of the kind has
Hyperparameters = dict[str, int | float]


@dataclass(frozen=True, kw_only=True)
class Range:
    """The allowed values of a hyperparameter: one of `values`, or from `least` to `most`, `whole` numbers or any."""

    values: tuple[int, ...] = ()
    least: float = 0.0
    most: float = 0.0
    whole: bool = False

    def __post_init__(self) -> None:
        if not self.values and not self.least < self.most:
            raise DecodeError(".most", "expected `values: [...]`, or `least` below `most`")

    @property
    def words(self) -> str:
        """`one of 32, 64`, `a number from 0.001 to 0.1`."""
        if self.values:
            return f"one of {', '.join(map(str, self.values))}"
        return f"a {'whole ' if self.whole else ''}number from {self.least:g} to {self.most:g}"

    def has(self, value: object) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        if self.values:
            return isinstance(value, int) and value in self.values  # which 64.0 is too
        return self.least <= value <= self.most and (isinstance(value, int) or not self.whole)


@dataclass(frozen=True, kw_only=True)
class Convergence:
    """How many sequences runs of the reference needed to a case's target, with that batch size."""

    size: str
    target: float
    batch_size: int
    samples: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.samples) < 2:
            raise DecodeError(".samples", f"expected two runs or more, found {len(self.samples)}")


@dataclass(frozen=True, kw_only=True)
class Text:
    """How a user's text is cut for a model: into sequences of `sequence` tokens, of which `held_out` are held out."""

    sequence: int
    held_out: int


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The file. `text` is by the model's size; empty where a user's text cannot be trained on."""

    hyperparameters: dict[str, Range]
    convergence: tuple[Convergence, ...] = ()
    text: dict[str, Text] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if BATCH not in self.hyperparameters:
            raise DecodeError(".hyperparameters", f"the key '{BATCH}' is missing")
        if not self.hyperparameters[BATCH].values:
            raise DecodeError(f".hyperparameters.{BATCH}", "expected `values: [...]`, as each has to divide `every`")

    def reference_samples(self, params: Params, batch_size: float) -> tuple[int, ...]:
        """The sequences that each of the reference's runs needed in that case; empty where it is not known."""
        wanted = (params["size"], params["target"], batch_size)
        found = (one.samples for one in self.convergence if (one.size, one.target, one.batch_size) == wanted)
        return next(found, ())


def read_rules(problem: Problem) -> Rules:
    """The rules of the problem's file. Raises BadFileError."""
    return read_yaml(Rules, problem.folder / FILE, problem.root)


def check_cases(problem: Problem, cases: Iterable[Case], rules: Rules) -> None:
    """Raises BadFileError for a case that is evaluated in the middle of a batch."""
    for case in cases:
        every = case.params["every"]
        assert isinstance(every, int)
        if bad := [size for size in rules.hyperparameters[BATCH].values if every % size]:
            raise BadFileError(
                f"{shown(problem.shapes_path, problem.root)}: {case.label}: every is {every}, which {BATCH} {bad[0]} "
                f"of {shown(problem.folder / FILE, problem.root)} does not divide; choose a multiple of all"
            )


def hyperparameters(source: str, name: str, rules: Rules, defaults: Mapping[str, int | float]) -> Hyperparameters:
    """The hyperparameters that a submission names, and `defaults` for the rest. `name` is the file's. Raises
    BadSubmissionError, with the place, for one that is unknown or out of range."""
    node = next((node for node in ast.parse(source).body if _is_table(node)), None)
    if node is None:
        return dict(defaults)
    where = f"{name}:{node.lineno}: {NAME}"
    try:
        given = ast.literal_eval(node.value)  # type: ignore[attr-defined]
    except (ValueError, TypeError, SyntaxError):
        given = None
    if not isinstance(given, dict):
        raise BadSubmissionError(f"{where}: expected a dict of names and plain numbers, as it is read and not run")
    for key, value in given.items():
        if key not in rules.hyperparameters:
            said = cut_line(str(key), SHOWN_CHARS)
            hint = did_you_mean(said, rules.hyperparameters)
            known = ", ".join(rules.hyperparameters)
            raise BadSubmissionError(f"{where}: there is no '{said}' to choose{hint} (known: {known})")
        if not rules.hyperparameters[key].has(value):
            said = cut_line(repr(value), SHOWN_CHARS)
            raise BadSubmissionError(f"{where}: {key} is {said}; it has to be {rules.hyperparameters[key].words}")
    return {**defaults, **given}


def reference_hyperparameters(problem: Problem, rules: Rules) -> Hyperparameters:
    """The reference's, which names all of them. Raises BadFileError where it does not."""
    path = problem.folder / "train.py"
    where = shown(path, problem.root)
    try:
        found = hyperparameters(path.read_text(encoding="utf-8"), where, rules, {})
    except (OSError, ValueError) as error:
        raise BadFileError(f"{where}: cannot be read: {error}") from None
    except (BadSubmissionError, SyntaxError) as error:
        raise BadFileError(f"{where}: {error}") from None
    if lacking := rules.hyperparameters.keys() - found.keys():
        raise BadFileError(f"{where}: {NAME} lacks {', '.join(sorted(lacking))}, which {FILE} has")
    return found


def _is_table(node: ast.stmt) -> bool:
    if isinstance(node, ast.AnnAssign):
        return isinstance(node.target, ast.Name) and node.target.id == NAME and node.value is not None
    return isinstance(node, ast.Assign) and any(isinstance(one, ast.Name) and one.id == NAME for one in node.targets)
