"""Reading a problem of the checkout strictly: reference/<name>/ and shapes/<name>.yaml, with the place of a mistake."""

import contextlib
import dataclasses
import hashlib
import importlib.util
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, make_dataclass, replace
from pathlib import Path
from typing import Any, get_type_hints

from harness.core.checkout import Checkout, shown
from harness.core.decode import DecodeError, did_you_mean
from harness.core.records import BadFileError, Case, Cost, Kind, Params, UsageError
from harness.core.yaml_file import read_yaml
from harness.problems.problem import (
    DEFAULT_BENCHMARK_S,
    MAX_INT,
    OFFICIAL,
    DependsOf,
    Problem,
    Ranking,
    Suite,
    check_ranks,
    folded,
    suite_path,
)

FOLDER_FILES = ("reference.py", "task.py", "params.py")


def problem_names(checkout: Checkout) -> list[str]:
    """Every problem of which at least a part is there, broken or not, in order."""
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
    for problem in problems:
        if problem.is_named(name):
            return problem
    hint = did_you_mean(name.lower(), [*names, *(problem.leaderboard for problem in problems)])
    raise UsageError(f"no problem '{name}'{hint} (known: {', '.join(names) or f'none in {checkout.root}'}){unreadable}")


@dataclass(frozen=True, kw_only=True)
class _SuiteFile:
    """A suite as it stands in the file. Cases become rows of the problem's own Params in `_file_type`."""

    description: str
    test_timeout: float
    benchmark_timeout: float
    ranked_timeout: float
    tests: tuple[Any, ...]
    benchmarks: tuple[Any, ...]
    benchmark_seconds: float = DEFAULT_BENCHMARK_S

    def __post_init__(self) -> None:
        for name in ("test_timeout", "benchmark_timeout", "ranked_timeout", "benchmark_seconds"):
            if getattr(self, name) <= 0:
                raise DecodeError(f".{name}", f"expected seconds above 0, found {getattr(self, name)}")
        for name in ("tests", "benchmarks"):
            if not getattr(self, name):
                raise DecodeError(f".{name}", "the list is empty; write at least one case")


@dataclass(frozen=True, kw_only=True)
class _ProblemFile(_SuiteFile):
    """A shape file: the official suite under KernelBot's task.yml keys, and the others under `suites`."""

    problem: str
    leaderboard: str
    multi_gpu: bool
    ranking_by: Ranking
    published_us: tuple[float, ...] = ()
    suites: dict[str, _SuiteFile] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.multi_gpu:
            raise DecodeError(".multi_gpu", "every problem here runs on several ranks; write true")
        if self.published_us and len(self.published_us) != len(self.benchmarks):
            raise DecodeError(
                ".published_us",
                f"{len(self.published_us)} values for {len(self.benchmarks)} benchmarks; write one for each, in order, "
                "or leave the key out",
            )
        for index, value in enumerate(self.published_us):
            if value <= 0:
                raise DecodeError(f".published_us[{index}]", f"expected microseconds above 0, found {value}")
        if OFFICIAL in self.suites:
            raise DecodeError(f".suites.{OFFICIAL}", "the name belongs to the suite at the top; choose another")


def _file_type(params_type: type[Any]) -> type[_ProblemFile]:
    """_ProblemFile whose cases have the fields of `params_type`, world_size and seed."""
    row = make_dataclass("Row", [("world_size", int), ("seed", int)], bases=(params_type,), frozen=True, kw_only=True)
    rows = types.GenericAlias(tuple, (row, ...))
    cases: list[tuple[str, Any]] = [("tests", rows), ("benchmarks", rows)]
    suite = make_dataclass("SuiteFile", cases, bases=(_SuiteFile,), frozen=True, kw_only=True)
    suites: tuple[str, Any, Any] = ("suites", types.GenericAlias(dict, (str, suite)), field(default_factory=dict))
    return make_dataclass("ProblemFile", [*cases, suites], bases=(_ProblemFile,), frozen=True, kw_only=True)


def read_problem(name: str, root: Path) -> Problem:
    folder, shapes_path = root / "reference" / name, root / "shapes" / f"{name}.yaml"
    for path in (*(folder / file for file in FOLDER_FILES), shapes_path):
        if not path.is_file():
            needs = f"reference/{name}/ with {', '.join(FOLDER_FILES)}, and shapes/{name}.yaml"
            raise BadFileError(f"{shown(path, root)}: no such file; a problem needs {needs}")
    params_type, cost_of, depends_of = _load_params(folder / "params.py", root)
    file = read_yaml(_file_type(params_type), shapes_path, root)
    with _as_bad_file(shapes_path, root):
        if file.problem != name:
            raise DecodeError("$.problem", f"expected '{name}' as the file's name says, found '{file.problem}'")
        official = _suite(OFFICIAL, file, params_type)
        published = file.published_us or (None,) * len(official.benchmarks)
        benchmarks = zip(official.benchmarks, published, strict=True)
        official = replace(official, benchmarks=tuple(replace(case, published_us=us) for case, us in benchmarks))
        others = {suite_name: _suite(suite_name, suite, params_type) for suite_name, suite in file.suites.items()}
    return Problem(
        name=name,
        leaderboard=file.leaderboard,
        description=file.description,
        root=root,
        folder=folder,
        shapes_path=shapes_path,
        submissions_folder=root / "submissions" / name,
        ranking_by=file.ranking_by,
        suites={OFFICIAL: official, **others},
        params_type=params_type,
        cost_of=cost_of,
        depends_of=depends_of,
    )


def _suite(name: str, file: _SuiteFile, params_type: type[Any]) -> Suite:
    def cases(kind: Kind, rows: tuple[Any, ...]) -> tuple[Case, ...]:
        path = f"{suite_path(name)}.{kind}s"
        return tuple(_case(kind, row, params_type, f"{path}[{index}]") for index, row in enumerate(rows))

    return Suite(
        name=name,
        description=file.description,
        tests=cases("test", file.tests),
        benchmarks=cases("benchmark", file.benchmarks),
        test_timeout_s=file.test_timeout,
        benchmark_timeout_s=file.benchmark_timeout,
        ranked_timeout_s=file.ranked_timeout,
        benchmark_s=file.benchmark_seconds,
    )


def _case(kind: Kind, row: Any, params_type: type[Any], path: str) -> Case:
    params: Params = {item.name: getattr(row, item.name) for item in dataclasses.fields(params_type)}
    for name, value in (params | {"world_size": row.world_size, "seed": row.seed}).items():
        if value > MAX_INT:
            raise DecodeError(f"{path}.{name}", f"too large; choose at most {MAX_INT}")
    if row.seed < 0:
        raise DecodeError(f"{path}.seed", f"expected 0 to {MAX_INT}, found {row.seed}")
    check_ranks(row, row.world_size, path)
    return Case(kind=kind, params=params, seed=row.seed, world_size=row.world_size)


def _load_params(path: Path, root: Path) -> tuple[type[Any], Callable[[Any, int], Cost], DependsOf | None]:
    """`Params`, `cost` and `depends_on` of a params.py, imported under a name of its own: every problem has one."""
    name = "_params_" + hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and get_type_hints look there
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever a half-written file may do
        del sys.modules[name]
        raise BadFileError(
            f"{shown(path, root)}: cannot be imported: {type(error).__name__}: {error}; "
            f"`python {shown(path, root)}` says where"
        ) from error
    wrong = _wrong_with(module)
    if wrong:
        raise BadFileError(f"{shown(path, root)}: {wrong}")
    return module.Params, module.cost, getattr(module, "depends_on", None)


def _wrong_with(module: types.ModuleType) -> str:
    params_type, cost_of = getattr(module, "Params", None), getattr(module, "cost", None)
    settings = getattr(params_type, "__dataclass_params__", None)
    if not isinstance(params_type, type) or settings is None or not settings.frozen:
        return "Params is missing; write a @dataclass(frozen=True, kw_only=True) with generate_input's case arguments"
    hints = get_type_hints(params_type)
    for item in dataclasses.fields(params_type):
        if not item.kw_only or hints[item.name] not in (int, bool) or item.name in ("rank", "world_size", "seed"):
            return f"Params.{item.name}: expected keyword-only int or bool fields, without rank, world_size and seed"
    if not callable(getattr(params_type, "check_world_size", None)):
        return "Params.check_world_size(world_size) is missing; raise DecodeError in it where a case cannot be split"
    if not callable(cost_of):
        return "cost(params, world_size) is missing; it returns a harness.core.records.Cost"
    return ""


@contextlib.contextmanager
def _as_bad_file(path: Path, root: Path) -> Iterator[None]:
    try:
        yield
    except DecodeError as error:
        raise BadFileError(f"{shown(path, root)}: {error}") from None
