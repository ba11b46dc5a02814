"""What the kinds of this package share: a file as a problem, read without running it."""

import ast
import hashlib
import importlib.util
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core.checkout import shown
from harness.core.errors import BadFileError, BadSubmissionError, UsageError
from harness.core.records import Case, Cost, Kind, Param, Params, Ranking, Submission
from harness.gpumode.folder import AnyParams
from harness.problems.problem import DEFAULT_BENCHMARK_S, OFFICIAL, Problem, Suite
from harness.problems.python_text import bound, read_tree

TIMEOUT_S = 600.0  # of each phase on GPUs
CPU_TIMEOUT_S = 3600.0  # on CPU cores, where published shapes take seconds a call
CPU_BENCHMARK_S = 0.9  # too short for the controls of a longer one, which double what it takes
LABEL_PARAMS = 6  # of a file's constants, that are a case's parameters, and that for its batch
SMALL = "small"  # the suite of a problem that says how large its batch is
PARTS = 16  # of a batch, of which that suite has one
RANKS, JUDGING = "harness.kinds.{}.rank", "harness.kinds.benchmarks.rank_judging"
FUNCTIONS = "generate_input", "harden", "ref_kernel", "exact_kernel", "check_implementation", "rounded"


@dataclass(frozen=True, kw_only=True)
class BenchmarkProblem(Problem):
    """A problem of another benchmark. `files` are staged, by name; `needed` are those that are imported whatever is
    evaluated. `entry` is the name that a submission has to define, `theirs` the one that the problem's own file has."""

    files: Mapping[str, bytes]
    needed: tuple[str, ...]
    entry: str
    theirs: str
    ranking_by: Ranking = "geom"
    params_type: type[Any] = AnyParams
    cost_of: Callable[[Any, int], Cost] | None = None
    is_upstream: bool = True
    checker: str = "benchmark"

    def staged(self) -> dict[str, bytes]:
        return dict(self.files)

    def told_file(self, staged: str) -> str:
        if staged != self.needed[0]:
            return staged
        return shown(self.folder) + (": $.reference" if self.folder.suffix == ".json" else "")

    def default_submission(self) -> Path:
        raise UsageError(
            f"{self.name}: which submission? Name a file that defines {self.entry} (SUBMISSION=path, or the argument)"
        )

    @property
    def cache_name(self) -> str:
        """A digest of what is staged, since another file may have the same name."""
        digest = hashlib.sha256()
        for name, data in sorted(self.files.items()):
            digest.update(f"{name}\0{len(data)}\0".encode() + data)
        return digest.hexdigest()

    def start(self) -> str:
        """The problem's own file, with the name that submissions have for what it defines."""
        text = self.files[self.needed[0]].decode(errors="replace")
        return re.sub(rf"\b{self.theirs}\b", self.entry, text) if self.theirs != self.entry else text

    def mentions(self, word: str) -> bool:
        return word.encode() in self.files[self.needed[0]]

    @property
    def has_cuda(self) -> bool:
        """Whether it names the device, so that on CPU cores these have to stand in for it."""
        return self.mentions("cuda")

    def check_runnable(self) -> None:
        """Raises UsageError for a file that imports a package which is not installed."""
        for name in self.needed:
            if lacking := next(lacking_modules(ast.parse(self.files[name]), self.files), None):
                raise UsageError(
                    f"{shown(self.folder)}: {name} imports {lacking}, which is not installed; `pip install {lacking}` "
                    "into this environment, or evaluate another problem"
                )

    def advice(self, device: str, cuda_is_cpu: bool) -> str:
        has_kernels = device == "cpu" and self.mentions("triton")
        return "it has Triton kernels, which only a GPU runs: evaluate it there" if has_kernels else ""


def glue(module: str, *more: str) -> dict[str, bytes]:
    """The files that make ranks call that module of this package. `more`: functions that not all of them have."""
    home = RANKS.format(module)
    imported = f"from {JUDGING} import called\nfrom {home} import {', '.join(('Reference', *more))}\n"
    return {
        "reference.py": f"{imported}\n{', '.join(FUNCTIONS)} = called(Reference, {FUNCTIONS})\n".encode(),
        "adapter.py": f"from {home} import adapt\n".encode(),
    }


def defined(tree: ast.Module) -> set[str]:
    """The classes, functions and plain names that a file defines at its top level."""
    names = {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
    return names


def is_python_that(path: Path, defines: set[str], lacks: str = "") -> bool:
    """Whether a Python file defines these names at its top level, and not `lacks`. False for what cannot be read."""
    if path.suffix != ".py" or not path.is_file():
        return False
    try:
        names = defined(read_tree(path))
    except BadFileError:
        return False
    return defines <= names and lacks not in names


def lacking_modules(tree: ast.Module, staged: Mapping[str, bytes]) -> Iterator[str]:
    """The packages that a file imports at its top level and that are not installed, nor `staged`."""
    own = {name.partition("/")[0].removesuffix(".py") for name in staged}
    for node in tree.body:
        if isinstance(node, ast.Import):
            tops = [alias.name.partition(".")[0] for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            tops = [(node.module or "").partition(".")[0]]
        else:
            continue
        yield from (top for top in tops if top not in own and importlib.util.find_spec(top) is None)


def constants(tree: ast.Module) -> Params:
    """The sizes that a file sets at its top level, by name: whole numbers, their sums and products, tuples of them."""
    found = _numbers(tree, {})
    batch = batch_of(found)
    return dict(list(found.items())[:LABEL_PARAMS]) | ({batch: found[batch]} if batch else {})


def smaller(tree: ast.Module, sizes: Params) -> list[Params]:
    """These constants with a part of the batch, and what the file computes from it; empty where none is the batch."""
    batch = batch_of(sizes)
    part: Params = {batch: max(1, int(sizes[batch]) // PARTS)} if batch else {}  # type: ignore[arg-type]
    found = _numbers(tree, part)
    return [{name: found[name] for name in sizes}] if batch else []


def _numbers(tree: ast.Module, given: Params) -> dict[str, Param]:
    """All such sizes, those `given` as they are there."""
    found: dict[str, Param] = {}
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                number = given.get(name, _number(value, found))
                if number is not None and number != ():
                    found[name] = number
    return found


def _number(node: ast.expr, known: Mapping[str, Param]) -> Param:
    match node:
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            return value
        case ast.Name(id=name):
            return known.get(name)
        case ast.Tuple(elts=elements):
            values = [_number(one, known) for one in elements]
            return tuple(one for one in values if isinstance(one, int)) if None not in values else None
        case ast.BinOp(left=left, op=ast.Mult() | ast.Add() | ast.Sub() as op, right=right):
            one, other = _number(left, known), _number(right, known)
            if isinstance(one, int) and isinstance(other, int):
                return one * other if isinstance(op, ast.Mult) else one + other * (-1 if isinstance(op, ast.Sub) else 1)
    return None


def batch_of(params: Params) -> str:
    """The constant for a problem's batch size: the first above 1 that is named so, else the first large one, or ""."""
    sizes = {name: value for name, value in params.items() if isinstance(value, int) and value > 1}
    large = (name for name, value in sizes.items() if value >= PARTS)
    return next((name for name in sizes if "batch" in name.lower()), next(large, ""))


def suites_of(
    cases: Sequence[Params], seed: int, world_size: int, *, on_cpu: Sequence[Params] = (), small: Sequence[Params] = ()
) -> dict[str, Suite]:
    """The suites of a problem whose shapes are published: `official`; `cpu`, which has the same shapes, or those
    `on_cpu`, and more time; and `small` where there are such shapes, with a part of the batch."""

    def suite(name: str, description: str, limit_s: float, seconds: float, shapes: Sequence[Params]) -> Suite:
        def made(kind: Kind) -> tuple[Case, ...]:
            return tuple(Case(kind=kind, params=params, seed=seed, world_size=world_size) for params in shapes)

        return Suite(
            name=name,
            description=description,
            tests=made("test"),
            benchmarks=made("benchmark"),
            test_timeout_s=limit_s,
            benchmark_timeout_s=limit_s,
            ranked_timeout_s=limit_s,
            benchmark_s=seconds,
        )

    cases = [params or {"shapes": "published"} for params in cases]
    at_leisure = CPU_TIMEOUT_S, CPU_BENCHMARK_S
    found = [
        suite(OFFICIAL, "The published shapes.", TIMEOUT_S, DEFAULT_BENCHMARK_S, cases),
        suite("cpu", "The published shapes, with the time that CPU cores take.", *at_leisure, on_cpu or cases),
    ]
    if small:
        found.append(suite(SMALL, f"The published shapes with a {PARTS}th of the batch.", *at_leisure, small))
    return {one.name: one for one in found}


def check_defines(submission: Submission, problem: BenchmarkProblem) -> None:
    """Raises BadSubmissionError for a submission that does not define the problem's entry."""
    names = bound(ast.parse(submission.source))
    if problem.entry in names or "*" in names:
        return
    has = f"it defines {problem.theirs}, as the problem's own file does" if problem.theirs in names else "it has none"
    raise BadSubmissionError(
        f"{submission.name}: a submission to {problem.name} defines {problem.entry} at its top level, and {has}"
    )
