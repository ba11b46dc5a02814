"""What a problem is: its folder reference/<name>/, its shapes/<name>.yaml, its suites of cases and their cost.

Knows how these files look and refuses whatever does not fit, naming file, place and fix. Does not know torch,
ranks, submissions or any particular problem: reference/<name>/ with reference.py, task.py and params.py, beside
shapes/<name>.yaml, is a problem. Of these only params.py is imported here (`Params`, `cost`,
`depends_on`, without tensors).
"""

import contextlib
import dataclasses
import hashlib
import importlib.util
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, make_dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, get_type_hints

import yaml

from harness.decode import DecodeError, decode, did_you_mean
from harness.files import read_text
from harness.records import BadFileError, Case, Cost, GateName, Kind, Params, UsageError

ROOT = Path(__file__).resolve().parent.parent  # the checkout
FOLDER_FILES = ("reference.py", "task.py", "params.py")
OFFICIAL = "official"  # the suite that stands at the top of a shape file
MAX_INT = 2**31 - 1  # of a seed, and of any size
DEFAULT_BENCHMARK_S = 2.0  # about how long one benchmark is measured, where a suite does not say

Ranking = Literal["last", "mean", "geom"]
DependsOf = Callable[[Any, int, int], frozenset[int]]
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Suite:
    """Cases that are evaluated together. A timeout is for one whole phase (test, benchmark, ranked); `benchmark_s` is
    about how long one benchmark is measured."""

    name: str
    description: str
    tests: tuple[Case, ...]
    benchmarks: tuple[Case, ...]
    test_timeout_s: float
    benchmark_timeout_s: float
    ranked_timeout_s: float
    benchmark_s: float


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A problem, read and checked. `leaderboard` is GPU MODE's name for it."""

    name: str
    leaderboard: str
    description: str
    root: Path
    folder: Path
    shapes_path: Path
    submissions_folder: Path
    ranking_by: Ranking
    suites: dict[str, Suite]
    params_type: type[Any]
    cost_of: Callable[[Any, int], Cost] | None
    depends_of: DependsOf | None = None
    gate: GateName = "strict"  # by which rule outputs are judged

    def is_named(self, name: str) -> bool:
        """By its own name or GPU MODE's; case and '-' for '_' do not matter."""
        return _folded(name) in (_folded(self.name), _folded(self.leaderboard))

    def suite(self, name: str) -> Suite:
        """Raises UsageError for a name that the shape file does not have."""
        if name not in self.suites:
            known = ", ".join(self.suites)
            raise UsageError(f"{self.name} has no suite '{name}'{did_you_mean(name, self.suites)} (known: {known})")
        return self.suites[name]

    def staged(self) -> dict[str, bytes]:
        """The files that are staged side by side for every group of ranks, as GPU MODE stages a problem's, by name."""
        folders = (self.folder, self.root / "reference" / "common")
        return {path.name: path.read_bytes() for folder in folders for path in sorted(folder.glob("*.py"))}

    def staged_submission(self, source: str) -> dict[str, bytes]:
        """The same of a submission's text. Ranks import `submission`."""
        return {"submission.py": source.encode()}

    def default_submission(self) -> Path:
        """What is evaluated where no file is named."""
        return self.submissions_folder / "submission.py"

    @property
    def cache_name(self) -> str:
        """What the caches of the reference's compilers are kept under."""
        return self.name

    def check_runnable(self) -> None:
        """Raises UsageError where ranks of ours cannot run it."""

    def check_failure(self, message: str, device: str, cuda_is_cpu: bool, who: str = "") -> None:
        """Raises HarnessError where the reference, or else `who`, failed for a reason that is known: `message` is what
        it said."""

    def cost(self, case: Case) -> Cost:
        """What one rank must do at least in one call of `case`. Raises UsageError where the problem does not say."""
        if self.cost_of is None:
            raise UsageError(
                f"{self.name} does not say what a call costs (no cost() in a params.py): it has no roofline"
            )
        return self.cost_of(self.params_type(**case.params), case.world_size)

    def depends_on(self, case: Case, rank: int) -> frozenset[int]:
        """The other ranks without whose data this rank's result cannot be had, on a hardened input of `case`. Empty
        where the problem does not say."""
        params = self.params_type(**case.params)
        return self.depends_of(params, rank, case.world_size) if self.depends_of else frozenset()

    def with_world_size(self, suite: Suite, world_size: int) -> Suite:
        """The same suite on `world_size` ranks; published limits stay only where that is the case's own world size.

        Raises UsageError, naming the case's place in the shape file, where a case cannot be split that way.
        """
        if world_size < 1:
            raise UsageError(f"{world_size} ranks cannot run anything; choose 1 or more")
        try:
            return self._retargeted(suite, world_size)
        except DecodeError as error:
            fitting = ", ".join(str(ranks) for ranks in range(1, 65) if self._fits(suite, ranks))
            where = shown(self.shapes_path, self.root)
            advice = f"world sizes that fit suite '{suite.name}': {fitting or 'none up to 64'}"
            raise UsageError(f"{where}: {error} ({advice})") from None

    def _retargeted(self, suite: Suite, world_size: int) -> Suite:
        def moved(case: Case, index: int) -> Case:
            path = f"{_suite_path(suite.name)}.{case.kind}s[{index}]"
            _check_ranks(self.params_type(**case.params), world_size, path)
            published_us = case.published_us if world_size == case.world_size else None
            return replace(case, world_size=world_size, published_us=published_us)

        return replace(
            suite,
            tests=tuple(moved(case, index) for index, case in enumerate(suite.tests)),
            benchmarks=tuple(moved(case, index) for index, case in enumerate(suite.benchmarks)),
        )

    def _fits(self, suite: Suite, world_size: int) -> bool:
        try:
            self._retargeted(suite, world_size)
        except DecodeError:
            return False
        return True


def problem_names(root: Path = ROOT) -> list[str]:
    """Every problem of which at least a part is there, broken or not, in order."""
    folders = {path.parent.name for file in FOLDER_FILES for path in (root / "reference").glob(f"*/{file}")}
    return sorted(folders | {path.stem for path in (root / "shapes").glob("*.yaml")})


def find(name: str, root: Path = ROOT) -> Problem:
    """The problem of that name or GPU MODE leaderboard name; case and '-' for '_' do not matter.

    Raises UsageError for an unknown name and BadFileError where the problem's files are bad.
    """
    names = problem_names(root)
    for known in names:
        if _folded(known) == _folded(name):
            return _read_problem(known, root)
    problems: list[Problem] = []
    unreadable = ""
    for known in names:
        try:
            problems.append(_read_problem(known, root))
        except BadFileError as error:
            unreadable = f"; not readable: {error}"
    for problem in problems:
        if problem.is_named(name):
            return problem
    hint = did_you_mean(name.lower(), [*names, *(problem.leaderboard for problem in problems)])
    raise UsageError(f"no problem '{name}'{hint} (known: {', '.join(names) or f'none in {root}'}){unreadable}")


def shown(path: Path, root: Path = ROOT) -> str:
    """`path` as messages name it: relative to the checkout where it lies inside."""
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)


def read_yaml(
    kind: type[T], path: Path, root: Path = ROOT, prepare: Callable[[object], object] = lambda value: value
) -> T:
    """The YAML file at `path`, decoded strictly; a key that appears twice in a mapping is an error. `prepare` sees what
    the file holds before it is decoded.

    Raises BadFileError: `shapes/a2a.yaml: $.tests[2].m: ...`, or with line and column where it is not YAML.
    """
    where = shown(path, root)
    try:
        return decode(kind, prepare(_parsed(read_text(path))))
    except FileNotFoundError:
        raise BadFileError(f"{where}: no such file; write it (the other files of that folder show how)") from None
    except OSError as error:
        raise BadFileError(f"{where}: cannot be read: {error.strerror}; check its rights") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "somewhere"
        raise BadFileError(f"{where}: {at}: not YAML as expected here: {error.problem or error.context}") from None
    except RecursionError:
        raise BadFileError(f"{where}: nested too deeply; write it as the other files of that folder are") from None
    except (yaml.YAMLError, ValueError) as error:  # DecodeError; not UTF-8; a date or number that cannot be
        raise BadFileError(f"{where}: {error}") from None


def _parsed(text: str) -> object:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _refuse_repeated_keys(node)
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _refuse_repeated_keys(root: yaml.Node) -> None:
    stack, seen = [root], {id(root)}
    while stack:
        node = stack.pop()
        children = list(node.value) if isinstance(node, yaml.SequenceNode) else []
        if isinstance(node, yaml.MappingNode):
            keys: set[str] = set()
            for key, value in node.value:
                children += [key, value]
                if not isinstance(key, yaml.ScalarNode):
                    continue
                if key.value in keys:
                    problem = f"the key '{key.value}' appears twice in one mapping; remove one"
                    raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
                keys.add(key.value)
        for child in children:
            if id(child) not in seen:  # an alias may be of a node that holds it
                seen.add(id(child))
                stack.append(child)


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


def _read_problem(name: str, root: Path) -> Problem:
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
        path = f"{_suite_path(name)}.{kind}s"
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
    _check_ranks(row, row.world_size, path)
    return Case(kind=kind, params=params, seed=row.seed, world_size=row.world_size)


def _check_ranks(params: Any, world_size: int, path: str) -> None:
    if world_size < 1:
        raise DecodeError(f"{path}.world_size", f"expected 1 or more ranks, found {world_size}")
    try:
        params.check_world_size(world_size)
    except DecodeError as error:
        raise DecodeError(path + error.path, error.problem) from None


def _suite_path(name: str) -> str:
    return "$" if name == OFFICIAL else f"$.suites.{name}"


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
        return "cost(params, world_size) is missing; it returns a harness.records.Cost"
    return ""


@contextlib.contextmanager
def _as_bad_file(path: Path, root: Path) -> Iterator[None]:
    try:
        yield
    except DecodeError as error:
        raise BadFileError(f"{shown(path, root)}: {error}") from None


def _folded(name: str) -> str:
    return name.lower().replace("-", "_")
