"""Reads a problem of the checkout strictly: reference/<name>/ and shapes/<name>.yaml.

Of reference/<name>/ only params.py is imported here; it has no tensors. Every mistake is reported with its file, its
place and what to write instead.
"""

import dataclasses
import functools
import hashlib
import os
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass, field, make_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from harness.core.checkout import Checkout, shown
from harness.core.decode import DecodeError, did_you_mean
from harness.core.errors import BadFileError, UsageError
from harness.core.limits import Limit, Limited, Seconds, at_least
from harness.core.records import Case, Cost, Kind, Param
from harness.core.yaml_file import read_yaml
from harness.problems.problem import (
    DEFAULT_BENCHMARK_S,
    MAX_INT,
    OFFICIAL,
    PARAMS,
    Declared,
    DependsOf,
    NearOf,
    Problem,
    Published,
    Suite,
    as_params,
    check_ranks,
    folded,
    own_code,
    own_module,
    suite_path,
)

FOLDER_FILES = ("reference.py", "task.py", PARAMS)
FUNCTIONS = ("cost", "depends_on", "near")  # that a params.py may have
PARAM_TYPES = (int, bool, float, str, tuple[int, ...])
NO_CHECK = "Params.check_world_size(world_size) is missing; raise DecodeError in it where a case cannot be split"


def problem_names(checkout: Checkout) -> list[str]:
    """The names of all problems of which at least one file exists, complete or not, in order."""
    folders = {path.parent.name for file in FOLDER_FILES for path in checkout.reference.glob(f"*/{file}")}
    return sorted(folders | {path.stem for path in checkout.shapes.glob("*.yaml")})


def find(name: str, checkout: Checkout) -> Problem:
    """The problem of that name or GPU MODE leaderboard name; case and '-' for '_' do not matter.

    Raises UsageError for an unknown name and BadFileError where the problem's files are bad.
    """
    names = problem_names(checkout)
    for known in names:
        if folded(known) == folded(name):
            return read_problem(known, checkout.root)
    problems: list[Problem] = []
    unreadable = ""
    for known in names:
        try:
            problems.append(read_problem(known, checkout.root))
        except BadFileError as error:
            unreadable = f"; not readable: {error}"
    named = [problem for problem in problems if problem.is_named(name)]
    if len(named) > 1:  # a submission would go to whichever is read first
        both = " and ".join(f"shapes/{problem.name}.yaml" for problem in named)
        raise BadFileError(f"{both}: both have the leaderboard {named[0].leaderboard}; give one of them another name")
    if named:
        return named[0]
    hint = did_you_mean(name.lower(), [*names, *(problem.leaderboard for problem in problems)])
    raise UsageError(f"no problem '{name}'{hint} (known: {', '.join(names) or f'none in {checkout.root}'}){unreadable}")


NOT_EMPTY = Limit(bool, "the list is empty; write at least one case")


@dataclass(frozen=True, kw_only=True)
class _SuiteFile(Limited):
    """A suite as it stands in the file. Cases become records of the problem's own Params in `_file_type`."""

    description: str
    test_timeout: Seconds
    benchmark_timeout: Seconds
    ranked_timeout: Seconds
    tests: tuple[Any, ...]
    benchmarks: tuple[Any, ...]
    benchmark_seconds: Seconds = DEFAULT_BENCHMARK_S
    drawn: Annotated[int, at_least(0, " shapes")] = 0


@dataclass(frozen=True, kw_only=True)
class _ProblemFile(Declared, _SuiteFile):
    """A shape file: the official suite under KernelBot's task.yml keys, and the others under `suites`."""

    problem: str
    multi_gpu: bool
    published_us: tuple[float, ...] = ()
    published_on: str | None = None
    published_by: str | None = None
    suites: dict[str, _SuiteFile] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.published_us and len(self.published_us) != len(self.benchmarks):
            raise DecodeError(
                ".published_us",
                f"{len(self.published_us)} values for {len(self.benchmarks)} benchmarks; write one for each, in order, "
                "or leave the key out",
            )
        for index, value in enumerate(self.published_us):
            if value <= 0:
                raise DecodeError(f".published_us[{index}]", f"expected microseconds above 0, found {value}")
        for name in ("published_on", "published_by"):
            if self.published_us and not getattr(self, name):
                raise DecodeError(f".{name}", "is missing, and published_us has values; write whose they are, for what")
        for parameter, short in self.short.items():
            if not short or not short.isprintable() or " " in short:
                raise DecodeError(f".short.{parameter}", f"expected a short name without spaces, found {short!r}")
        if len(set(self.communication)) < len(self.communication):
            raise DecodeError(".communication", "a word stands there twice; write each once")
        for index, pattern in enumerate(self.data):
            if not pattern or Path(pattern).is_absolute() or ".." in Path(pattern).parts:
                raise DecodeError(f".data[{index}]", f"expected files of the problem's folder, found {pattern!r}")
        if OFFICIAL in self.suites:
            raise DecodeError(f".suites.{OFFICIAL}", "the name belongs to the suite at the top; choose another")


def _file_type(params_type: type[Any]) -> type[_ProblemFile]:
    """_ProblemFile whose cases have the fields of `params_type`, world_size and seed."""
    # Whether a case needs a world_size is for multi_gpu to say, which is in the same file.
    fields: list[Any] = [("world_size", int | None, field(default=None)), ("seed", int)]
    case = make_dataclass("CaseInFile", fields, bases=(params_type,), frozen=True, kw_only=True)
    several: Any = types.GenericAlias(tuple, (case, ...))
    list_of_cases: Any = Annotated[several, NOT_EMPTY]
    cases: list[tuple[str, Any]] = [("tests", list_of_cases), ("benchmarks", list_of_cases)]
    suite = make_dataclass("SuiteFile", cases, bases=(_SuiteFile,), frozen=True, kw_only=True)
    suites: tuple[str, Any, Any] = ("suites", types.GenericAlias(dict, (str, suite)), field(default_factory=dict))
    return make_dataclass("ProblemFile", [*cases, suites], bases=(_ProblemFile,), frozen=True, kw_only=True)


def read_problem(name: str, root: Path) -> Problem:
    folder, shapes_path = root / "reference" / name, root / "shapes" / f"{name}.yaml"
    for path in (*(folder / file for file in FOLDER_FILES), shapes_path):
        if not path.is_file():
            needs = f"reference/{name}/ with {', '.join(FOLDER_FILES)}, and shapes/{name}.yaml"
            raise BadFileError(f"{shown(path, root)}: no such file; a problem needs {needs}")
    try:
        return _read_problem(name, root, _content(folder / PARAMS), _content(shapes_path))
    except DecodeError as error:
        raise BadFileError(f"{shown(shapes_path, root)}: {error}") from None


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""  # reading it again says what is wrong


@functools.lru_cache(maxsize=64)  # pages, servers and searches by leaderboard name read every problem again and again
def _read_problem(name: str, root: Path, params: bytes, shapes: bytes) -> Problem:
    """`params` and `shapes` are what the two files hold now: a changed file is read anew. Raises DecodeError with the
    place in the shape file."""
    folder, shapes_path = root / "reference" / name, root / "shapes" / f"{name}.yaml"
    params_type, cost_of, depends_of, near_of = _load_params(folder / PARAMS, root)
    with own_code(folder / PARAMS, root, "Params of a case"):
        file = read_yaml(_file_type(params_type), shapes_path, root)
    if file.problem != name:
        raise DecodeError("$.problem", f"expected '{name}' as the file's name says, found '{file.problem}'")
    if file.multi_gpu and not callable(getattr(params_type, "check_world_size", None)):
        raise BadFileError(f"{shown(folder / PARAMS, root)}: {NO_CHECK}")
    if "delay" in file.communication and depends_of is None:
        where = shown(folder / PARAMS, root)
        raise DecodeError("$.communication", f"'delay' needs depends_on() in {where}, which is missing")
    for suite_name, suite in {OFFICIAL: file, **file.suites}.items():
        if suite.drawn and near_of is None:
            where = shown(folder / PARAMS, root)
            raise DecodeError(f"{suite_path(suite_name)}.drawn", f"needs near() in {where}, which is missing")
    _check_short(file.short, params_type)
    _check_shares(file.shares, name, root)
    with own_code(folder / PARAMS, root, "Params of a case"):
        official = _suite(OFFICIAL, file, file, params_type)
        others = {suite_name: _suite(suite_name, suite, file, params_type) for suite_name, suite in file.suites.items()}
    gpu, what = file.published_on, file.published_by
    limits = file.published_us or (None,) * len(official.benchmarks)
    benchmarks = zip(official.benchmarks, limits, strict=True)
    official = replace(official, benchmarks=tuple(replace(case, published_us=us) for case, us in benchmarks))
    return Problem(
        name=name,
        description=file.description,
        root=root,
        folder=folder,
        shapes_path=shapes_path,
        submissions_folder=root / "submissions" / name,
        suites={OFFICIAL: official, **others},
        params_type=params_type,
        cost_of=cost_of,
        depends_of=depends_of,
        near_of=near_of,
        multi_gpu=file.multi_gpu,
        published=Published(gpu=gpu, what=what) if gpu is not None and what is not None else None,
        **{item.name: getattr(file, item.name) for item in dataclasses.fields(Declared)},
    )


def declared(name: str, checkout: Checkout) -> Problem | None:
    """The problem of that name out of a report, by its present files; None if there is none to read."""
    if name not in problem_names(checkout):  # a name out of a report may be any text, a path among them
        return None
    try:
        return read_problem(name, checkout.root)
    except BadFileError:
        return None


def short_names(name: str, checkout: Checkout) -> dict[str, str]:
    """The short names of a problem's parameters; empty if there is no such problem now."""
    problem = declared(name, checkout)
    return problem.short if problem else {}


def communication_words(name: str, checkout: Checkout) -> str:
    """How communication is shown for a problem: `delay, data`; empty if it does not say."""
    problem = declared(name, checkout)
    return ", ".join(problem.communication) if problem else ""


def _check_short(short: dict[str, str], params_type: type[Any]) -> None:
    names = [item.name for item in dataclasses.fields(params_type)]
    for name in short:
        if name not in names:
            raise DecodeError(
                f"$.short.{name}", f"no such parameter{did_you_mean(name, names)} (known: {', '.join(names)})"
            )
    shown_names = [short.get(name, name) for name in names]
    for name, value in short.items():
        if shown_names.count(value) > 1:
            raise DecodeError(f"$.short.{name}", f"'{value}' already stands for another parameter; choose another")


def _check_shares(shares: tuple[str, ...], name: str, root: Path) -> None:
    known = sorted(path.parent.name for path in (root / "reference").glob(f"*/{FOLDER_FILES[0]}"))
    for index, shared in enumerate(shares):
        if shared not in known or shared == name:
            others = [one for one in known if one != name]
            raise DecodeError(
                f"$.shares[{index}]",
                f"no other problem '{shared}'{did_you_mean(shared, others)} (known: {', '.join(others)})",
            )


def _suite(name: str, suite: _SuiteFile, file: _ProblemFile, params_type: type[Any]) -> Suite:
    def cases(kind: Kind, listed: tuple[Any, ...]) -> tuple[Case, ...]:
        path = f"{suite_path(name)}.{kind}s"
        return tuple(_case(kind, case, file, params_type, f"{path}[{index}]") for index, case in enumerate(listed))

    return Suite(
        name=name,
        description=suite.description,
        tests=cases("test", suite.tests),
        benchmarks=cases("benchmark", suite.benchmarks),
        test_timeout_s=suite.test_timeout,
        benchmark_timeout_s=suite.benchmark_timeout,
        ranked_timeout_s=suite.ranked_timeout,
        benchmark_s=suite.benchmark_seconds,
        drawn=suite.drawn,
    )


def _case(kind: Kind, case: Any, file: _ProblemFile, params_type: type[Any], path: str) -> Case:
    params = as_params(case, params_type)
    if case.world_size is None and file.multi_gpu:
        raise DecodeError(path, "the key 'world_size' is missing")
    world_size = 1 if case.world_size is None else case.world_size
    for name, value in (params | {"world_size": world_size, "seed": case.seed}).items():
        _check_size(value, f"{path}.{name}")
    if case.seed < 0:
        raise DecodeError(f"{path}.seed", f"expected 0 to {MAX_INT}, found {case.seed}")
    check_ranks(case, world_size, file.multi_gpu, path)
    return Case(kind=kind, params=params, seed=case.seed, world_size=world_size, short=file.short)


def _check_size(value: Param, path: str) -> None:
    """Whole numbers are sizes or seeds, alone or in a list."""
    if isinstance(value, tuple):
        for index, item in enumerate(value):
            _check_size(item, f"{path}[{index}]")
    elif isinstance(value, int) and value > MAX_INT:
        raise DecodeError(path, f"too large; choose at most {MAX_INT}")


def _load_params(
    path: Path, root: Path
) -> tuple[type[Any], Callable[[Any, int], Cost] | None, DependsOf | None, NearOf | None]:
    """`Params`, `cost`, `depends_on` and `near` of a params.py."""
    name = "_params_" + hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:16]
    had_torch, where = "torch" in sys.modules, shown(path, root)
    module = own_module(path, name, where, f"; `python {where}` says where")
    with own_code(path, root, "Params"):
        wrong = _wrong_with(module)
    if "torch" in sys.modules and not had_torch:
        wrong = "it imports torch, and the parent process must not; import it in reference.py"
    if wrong:
        raise BadFileError(f"{where}: {wrong}")
    cost, depends_on, near = (getattr(module, name, None) for name in FUNCTIONS)
    return module.Params, cost, depends_on, near


def _wrong_with(module: types.ModuleType) -> str:
    params_type = getattr(module, "Params", None)
    settings = getattr(params_type, "__dataclass_params__", None)
    if not isinstance(params_type, type) or settings is None or not settings.frozen:
        return "Params is missing; write a @dataclass(frozen=True, kw_only=True) with generate_input's case arguments"
    hints = get_type_hints(params_type)
    for item in dataclasses.fields(params_type):
        if not item.kw_only or hints[item.name] not in PARAM_TYPES or item.name in ("rank", "world_size", "seed"):
            return (
                f"Params.{item.name}: expected keyword-only fields of type int, bool, float, str or tuple[int, ...], "
                "without rank, world_size and seed"
            )
    for name in FUNCTIONS:
        if hasattr(module, name) and not callable(getattr(module, name)):
            return f"{name} is no function; leave it out, or write `def {name}(...)`"
    return ""
