"""What a problem is: its suites of cases, their cost, and the files that are staged for it.

Knows no torch, ranks, submissions or any particular problem. shape_file.py reads the problems of a checkout,
gpumode/folder.py those of KernelBot.
"""

import contextlib
import importlib.util
import math
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from harness.core.checkout import shown
from harness.core.decode import DecodeError, did_you_mean
from harness.core.errors import BadFileError, HarnessError, UsageError
from harness.core.records import Case, Cost, Params, Ranking

OFFICIAL = "official"  # the suite that stands at the top of a shape file
MAX_INT = 2**31 - 1  # of a seed, and of any size
PARAMS = "params.py"  # of a problem's folder
ADAPTER = "adapter.py"  # of a problem whose submissions define something else than custom_kernel
DEFAULT_BENCHMARK_S = 2.0  # about how long one benchmark is measured, where a suite does not say
Shown = Literal["delay", "data"]  # how the harness knows that ranks communicate
DependsOf = Callable[[Any, int, int], frozenset[int]]
NearOf = Callable[[Any, int, Callable[..., int]], Any]


@dataclass(frozen=True, kw_only=True)
class Suite:
    """Cases that are evaluated together. Each timeout is for one whole phase (test, benchmark, ranked). One benchmark
    is measured for about `benchmark_s`. `drawn`: to how many more shapes a run draws from its secret."""

    name: str
    description: str
    tests: tuple[Case, ...]
    benchmarks: tuple[Case, ...]
    test_timeout_s: float
    benchmark_timeout_s: float
    ranked_timeout_s: float
    benchmark_s: float
    drawn: int = 0


@dataclass(frozen=True, kw_only=True)
class Published:
    """Where the published limits of the official benchmarks come from: `gpu` as the hardware table names it, and `what`
    they are (`GPU MODE's speed of light`)."""

    gpu: str
    what: str


@dataclass(frozen=True, kw_only=True)
class Marks:
    """A staged reference.py is this problem's if a name in it begins with `has` and none is `lacks`."""

    has: str
    lacks: str | None = None


@dataclass(frozen=True, kw_only=True)
class Declared:
    """The part of a problem that its shape file says as it is. `leaderboard` is GPU MODE's name for it. `short` has the
    parameters' short names. `gpus` are the GPU names that GPU MODE's leaderboard takes; empty if they are not known.
    `upstream` has the names that GPU MODE's own staged files define, by module, where they differ from the files here.
    `communication` says how that is shown: by `delay`, as a rank that depends on a delayed one cannot finish first, and
    by `data`, as a right result needs data that only other ranks have; empty where the problem does not say. `device`:
    what it runs on whatever the machine has, where that is so. `data` are patterns of files in its folder that its
    cases are made of; `shares` are problems whose modules are staged beside its own. `in_place`: a call may write its
    result into its input. `takes_data`: a user's own data can take the place of what it makes (--data)."""

    leaderboard: str
    ranking_by: Ranking
    short: dict[str, str] = field(default_factory=dict)
    communication: tuple[Shown, ...] = ()
    marks: Marks | None = None
    gpus: tuple[str, ...] = ()
    upstream: dict[str, tuple[str, ...]] = field(default_factory=dict)
    kind: str = "op"  # of kinds.registry, which knows the names
    checker: str = "strict"  # by which rule outputs are judged
    device: Literal["cpu"] | None = None
    data: tuple[str, ...] = ()
    shares: tuple[str, ...] = ()
    in_place: bool = False
    takes_data: bool = False
    submission_file: str = "submission.py"  # of the folder of submissions, evaluated if none is named


@dataclass(frozen=True, kw_only=True)
class Problem(Declared):
    """A problem, read and checked. `cost_of` is None where its files do not say what a call costs: then it has no
    bound. `near_of` draws a shape near another one (problems.drawn). `is_upstream`: the files are GPU MODE's own, and
    `leaderboard` is only their folder's name."""

    name: str
    description: str
    root: Path
    folder: Path
    shapes_path: Path
    submissions_folder: Path
    suites: dict[str, Suite]
    params_type: type[Any]
    cost_of: Callable[[Any, int], Cost] | None
    depends_of: DependsOf | None = None
    near_of: NearOf | None = None
    multi_gpu: bool = True  # else it runs on one rank
    published: Published | None = None
    is_upstream: bool = False
    lang: Literal["py", "cu"] = "py"  # of a submission
    also: tuple[str, ...] = ()  # suffixes of files that hold a submission in another form
    is_one_file: bool = False  # `folder` is a file that needs no other
    only_theirs: str = ""  # why nothing but a folder's own evaluator can run it, where that is so

    def is_named(self, name: str) -> bool:
        """Whether `name` is the problem's own name or GPU MODE's; case and '-' for '_' do not matter."""
        return folded(name) in (folded(self.name), folded(self.leaderboard))

    def suite(self, name: str) -> Suite:
        """Raises UsageError for a name that the shape file does not have."""
        if name not in self.suites:
            known = ", ".join(self.suites)
            raise UsageError(f"{self.name} has no suite '{name}'{did_you_mean(name, self.suites)} (known: {known})")
        return self.suites[name]

    def read_by_judges(self) -> tuple[Path, ...]:
        """Files of the problem's own that are too large to be staged: judges read them, a submission cannot."""
        return ()

    def staged(self) -> dict[str, bytes]:
        """The files that are staged side by side for every group of ranks, by name, as GPU MODE stages a problem's."""
        reference = self.root / "reference"
        folders = (*(reference / name for name in self.shares), self.folder, reference / "common")
        return {path.name: path.read_bytes() for folder in folders for path in sorted(folder.glob("*.py"))}

    def versioned(self) -> dict[str, bytes]:
        """All files that a judgement depends on, by name: what is staged, and the cases' data."""
        found = sorted({path for pattern in self.data for path in self.folder.glob(pattern)})
        return self.staged() | {str(path.relative_to(self.folder)): path.read_bytes() for path in found}

    def staged_submission(self, source: str) -> dict[str, bytes]:
        """The files that a submission's text is staged as, by name. Ranks import `submission`."""
        return {"submission.py": source.encode()}

    def told_file(self, staged: str) -> str:
        """What messages call the file that is staged under that name."""
        return staged

    def default_submission(self) -> Path:
        return self.submissions_folder / self.submission_file

    def workload(self, case: Case) -> dict[str, Any] | None:
        """What a trace of FlashInfer-Trace says of the case: definition and workload; None for any other problem."""
        return None

    def start(self) -> str:
        """The text of a first submission, which is right; "" where harness.problems.skeleton makes it."""
        return ""

    def own_task(self, suite: Suite) -> dict[str, Any] | None:
        """What its task has as KernelBot keeps it, for a problem that is a task of KernelBot's; None for any other."""
        return None

    @property
    def config(self) -> dict[str, Any]:
        """The program that GPU MODE runs of the staged files, as task.yml has it."""
        return {"main": "eval.py"}

    @property
    def libraries(self) -> tuple[str, ...]:
        return ()

    @property
    def cache_name(self) -> str:
        return self.name

    def check_runnable(self) -> None:
        """Raises UsageError if our ranks cannot run the problem."""

    def advice(self, device: str, cuda_is_cpu: bool) -> str:
        """Advice if the problem or a submission fails on that device of this machine, where the device may be the
        reason; or "". `cuda_is_cpu`: the CPU stands in for CUDA already."""
        return ""

    def cost(self, case: Case) -> Cost:
        """One rank's least work in a call of `case`. UsageError without cost(), BadFileError for a bad one."""
        if self.cost_of is None:
            raise UsageError(
                f"{self.name} does not say what a call costs (no cost() in a params.py): it has no roofline"
            )
        with self.own_code(f"cost() of {case.label}"):
            cost = self.cost_of(self.params_type(**case.params), case.world_size)
        where = f"{shown(self.folder / PARAMS, self.root)}: cost() of {case.label}"
        if not isinstance(cost, Cost):
            raise BadFileError(f"{where}: expected a Cost, found {cost!r}; write `return Cost(flops=...)`")
        terms = (cost.flops, cost.hbm_bytes, cost.link_bytes)
        others = (cost.held_bytes, 0 if cost.mean_link_bytes is None else cost.mean_link_bytes)
        is_number = all(isinstance(term, int | float) and 0 <= term < math.inf for term in (*terms, *others))
        if not is_number or not any(terms):
            raise BadFileError(f"{where}: expected terms of 0 or more, one above, found {cost}")
        return cost

    def depends_on(self, case: Case, rank: int) -> frozenset[int]:
        """The other ranks whose data this rank's result needs, hardened; empty if the problem does not say. Raises
        BadFileError where its depends_on() fails."""
        params = self.params_type(**case.params)
        with self.own_code(f"depends_on() of rank {rank} of {case.label}"):
            return self.depends_of(params, rank, case.world_size) if self.depends_of else frozenset()

    def own_code(self, what: str) -> contextlib.AbstractContextManager[None]:
        """A block that runs the problem's params.py."""
        return own_code(self.folder / PARAMS, self.root, what)

    def with_world_size(self, suite: Suite, world_size: int) -> Suite:
        """The same suite on `world_size` ranks. Published limits stay only if that is the case's own world size.

        Raises UsageError, with the case's place in the shape file, if a case cannot be split that way.
        """
        if world_size < 1:
            raise UsageError(f"{world_size} ranks cannot run anything; choose 1 or more")
        try:
            return self._retargeted(suite, world_size)
        except DecodeError as error:
            fitting = ", ".join(str(ranks) for ranks in range(1, 65) if self._fits(suite, ranks))
            where = shown(self.shapes_path, self.root)
            advice = f"--ranks that fit suite '{suite.name}': {fitting or 'none up to 64'}"
            raise UsageError(f"{where}: {error} ({advice})") from None

    def _retargeted(self, suite: Suite, world_size: int) -> Suite:
        def moved(case: Case, index: int) -> Case:
            path = f"{suite_path(suite.name)}.{case.kind}s[{index}]"
            with self.own_code(f"Params of {case.label}"):
                check_ranks(self.params_type(**case.params), world_size, self.multi_gpu, path)
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


def own_module(path: Path, name: str, where: str, hint: str = "") -> ModuleType:
    """A problem's own file, imported under that name, since other problems have files of the same names. Raises
    BadFileError, which begins with `where` and ends with the hint, if it cannot be imported."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and get_type_hints look there
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever a half-written file may do
        del sys.modules[name]
        raise BadFileError(f"{where}: cannot be imported: {type(error).__name__}: {error}{hint}") from error
    return module


@contextlib.contextmanager
def own_code(path: Path, root: Path, what: str, refuses: type[ValueError] = DecodeError) -> Iterator[None]:
    """A block that runs a problem's own file, at `path`. What that raises becomes a BadFileError with its line;
    `refuses`, by which it refuses a value, the harness's own errors and a lack of memory stay."""
    try:
        yield
    except (refuses, HarnessError, MemoryError):
        raise
    except Exception as error:  # whatever a half-written file may do
        lines = [
            str(frame.lineno) for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)
        ]
        where = ":".join((shown(path, root), *lines[-1:]))
        raise BadFileError(f"{where}: {what}: {type(error).__name__}: {error}; correct it there") from error


def as_params(record: Any, params_type: type[Any]) -> Params:
    """The arguments of a case, in order, of a record that has the fields of `params_type`. A text that is empty by
    default stands for none: the case does not have it."""
    given = ((item, getattr(record, item.name)) for item in fields(params_type))
    return {item.name: value for item, value in given if (value, item.default) != ("", "")}


def check_ranks(params: Any, world_size: int, multi_gpu: bool, path: str) -> None:
    """Raises DecodeError, whose path begins with `path`, if a case cannot run on that many ranks."""
    if world_size < 1:
        raise DecodeError(f"{path}.world_size", f"expected 1 or more ranks, found {world_size}")
    if not multi_gpu:
        if world_size != 1:
            raise DecodeError(path, f"a case of one GPU runs on 1 rank, not on {world_size}")
        return
    try:
        params.check_world_size(world_size)
    except DecodeError as error:
        raise DecodeError(path + error.path, error.problem) from None


def suite_path(name: str) -> str:
    return "$" if name == OFFICIAL else f"$.suites.{name}"


def folded(name: str) -> str:
    """The name as names are compared: case and '-' for '_' do not matter."""
    return name.lower().replace("-", "_")
