"""A problem folder of GPU MODE's KernelBot: task.yml and the files that it names, as a Problem.

Knows the format (after gpu-mode/kernelbot src/libkernelbot/task.py at 1aa92757 and the folders of
gpu-mode/reference-kernels, read 2026-11). What KernelBot's loader refuses is refused here with its place, and so is
what it takes although no run can pass; tests/data/kernelbot_tasks.yaml lists such values. The folder's Python is only
read as text, to see what it defines; ranks run it.

Such a problem has one suite, the official one. It has no cost, hence no roofline, and no hardened inputs. Its outputs
are judged by its own check_implementation (checker `folder`), unless its reference.py also has what the strict checker
needs.
"""

import hashlib
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from harness.core.checkout import Checkout, shown
from harness.core.decode import DecodeError, encode
from harness.core.errors import BadFileError, UsageError
from harness.core.files import read_bytes, read_text
from harness.core.limits import Limit, Limited, Seconds
from harness.core.records import Case, Kind, Param, Params
from harness.core.yaml_file import read_yaml
from harness.gpumode import result_lines
from harness.problems.problem import DEFAULT_BENCHMARK_S, MAX_INT, OFFICIAL, Problem, Suite
from harness.problems.python_text import bound, read_tree

FILE = "task.yml"
SUBMISSION = "@SUBMISSION@"  # the source of the user's own file
TIMEOUT_S = 180.0  # KernelBot's, where task.yml does not say
SEEDS = -(2**63), 2**64 - 1  # the least and the largest that torch.manual_seed takes
NULLABLE = ("gpus", "libraries", "multi_gpu")  # keys whose null KernelBot takes for nothing
NEEDED = ("generate_input", "check_implementation", "ref_kernel")  # of reference.py, to be timed by our clocks
STRICT = ("exact_kernel", "harden")  # what the strict checker needs beside them
ONLY_CUDA = "it is a CUDA C++ problem, whose evaluator is a program of its own"
NOT_OURS = "its reference.py defines no {}, without which our ranks can neither judge nor time"
THEIRS = "--eval theirs (EVAL=theirs) runs the folder's own eval.py"
# By language: the folder's own submission, if it has a name of its own; and templates, the first that there is.
DEFAULTS = {"py": ("submission.py", ("Python", "Triton")), "cu": ("", ("CUDA", "HIP"))}


@dataclass(frozen=True, kw_only=True)
class StagedFile:
    """One of `files`: its name beside the others, and the file that it is copied from, relative to task.yml."""

    name: str
    source: str

    def __post_init__(self) -> None:
        path = PurePosixPath(self.name)
        if not path.parts or path.is_absolute() or ".." in path.parts:
            raise DecodeError(".name", f"expected a name inside the staged folder, found {self.name!r}")


@dataclass(frozen=True, kw_only=True)
class PythonConfig:
    """The Python program of a folder: `main` is one of the staged files."""

    main: str
    type: Literal["py"] = "py"

    def check(self, names: Collection[str]) -> None:
        """Raises DecodeError if it does not fit the staged files of these names."""
        if self.main not in names:
            raise DecodeError(".main", f"'{self.main}' is not among the files")


@dataclass(frozen=True, kw_only=True)
class CudaConfig:
    """The CUDA program of a folder: nvcc compiles `sources`, which are staged files. The others are headers, which only
    `include_dirs` and the sources name."""

    sources: tuple[str, ...]
    include_dirs: tuple[str, ...] = ()
    defines: dict[str, str | int | None] = field(default_factory=dict)
    compile_flags: tuple[str, ...] = ()
    type: Literal["cu"] = "cu"

    def check(self, names: Collection[str]) -> None:
        """Raises DecodeError if it does not fit the staged files of these names."""
        if not self.sources:
            raise DecodeError(".sources", "the list is empty; name at least one of the files")
        for index, source in enumerate(self.sources):
            if source not in names:
                raise DecodeError(f".sources[{index}]", f"'{source}' is not among the files")
        for index, flag in enumerate(self.compile_flags):
            if not flag.startswith("-"):
                raise DecodeError(f".compile_flags[{index}]", f"expected a flag that begins with -, found {flag!r}")
        for name in self.defines:
            if not name.isidentifier():
                raise DecodeError(".defines", f"expected names of macros, found {name!r}")


@dataclass(frozen=True, kw_only=True)
class Validation(Limited):
    """A program that validates ranked entries by an application, relative to task.yml."""

    version: Annotated[str | int, Limit(bool, "expected a version, found {!r}")]
    script: str


@dataclass(frozen=True, kw_only=True)
class TaskFile(Limited):
    """The content of task.yml. Cases are as they stand there, with world_size and seed among their keys."""

    files: tuple[StagedFile, ...]
    lang: Literal["py", "cu"]
    config: PythonConfig | CudaConfig
    description: str
    libraries: tuple[str, ...] = ()
    templates: dict[str, str] | None = None
    validation: Validation | None = None
    tests: tuple[Params, ...] = ()
    benchmarks: tuple[Params, ...] = ()
    test_timeout: Seconds = TIMEOUT_S
    benchmark_timeout: Seconds = TIMEOUT_S
    ranked_timeout: Seconds = TIMEOUT_S
    ranking_by: Literal["last", "mean", "geom"] = "last"
    seed: int | None = None
    multi_gpu: bool = False
    gpus: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = [file.name for file in self.files]
        for index, name in enumerate(names):
            if name in names[:index]:
                raise DecodeError(f".files[{index}].name", f"'{name}' is staged twice; remove one")
        if SUBMISSION not in (file.source for file in self.files):
            raise DecodeError(".files", f"no file has the source {SUBMISSION}, so no submission would run")
        try:
            self.config.check(names)
        except DecodeError as error:
            raise DecodeError(f".config{error.path}", error.problem) from None
        if self.templates is not None:
            _check_templates(self.templates)
        super().__post_init__()
        for name in ("tests", "benchmarks"):
            if not getattr(self, name):
                raise DecodeError(f".{name}", "the list is empty; write at least one case")
            for index, case in enumerate(getattr(self, name)):
                _check_case(case, self.multi_gpu, f".{name}[{index}]")


@dataclass(frozen=True, kw_only=True)
class TaskProblem(Problem):
    """A problem folder. `sources` are its staged files without the submission. `entries` are the names that the
    submission gets. `missing` is what its reference.py lacks to be run by our ranks."""

    task: TaskFile
    sources: dict[str, Path]
    entries: tuple[str, ...]
    missing: tuple[str, ...]

    def staged(self) -> dict[str, bytes]:
        """The files as task.yml lists them. Raises BadFileError if one is gone."""
        try:
            return {name: read_bytes(path) for name, path in self.sources.items()}
        except OSError as error:
            raise BadFileError(f"{error.filename}: cannot be read: {error.strerror}") from None

    def staged_submission(self, source: str) -> dict[str, bytes]:
        main = ("submission.py",) if self.lang == "py" else ()  # which ranks import
        return {name: source.encode() for name in (*main, *self.entries)}

    def default_submission(self) -> Path:
        """The folder's own submission, or else a template of task.yml's. Raises UsageError if there is neither."""
        name, kinds = DEFAULTS[self.lang]
        own = self.folder / (name or self.entries[0])
        known = self.task.templates or {}
        templates = [self.folder / known[kind] for kind in kinds if kind in known]
        found = next((path for path in (own, *templates) if path.is_file()), None)
        if found is None:
            raise UsageError(
                f"{shown(self.folder)} has neither a {own.name} nor a {kinds[0]} template; name a file "
                "(SUBMISSION=path)"
            )
        return found

    def own_task(self, suite: Suite) -> dict[str, Any]:
        """The keys of the folder's task as KernelBot reads it, on as many ranks as the suite's cases have."""
        task, staged, validation = self.task, self.staged(), self.task.validation
        ranks = {"world_size": suite.benchmarks[0].world_size}
        files = [
            (one.name, SUBMISSION if one.source == SUBMISSION else staged[one.name].decode(errors="replace"))
            for one in task.files
        ]
        return {
            "files": dict(files),
            "tests": [encode(case | (ranks if "world_size" in case else {})) for case in task.tests],
            "benchmarks": [encode(case | (ranks if "world_size" in case else {})) for case in task.benchmarks],
            "seed": task.seed,
            "multi_gpu": task.multi_gpu,
            "validation": validation
            and {"version": validation.version, "source": read_text(self.folder / validation.script)},
        }

    @property
    def config(self) -> dict[str, Any]:
        return {name: value for name, value in encode(self.task.config).items() if name != "type"}

    @property
    def libraries(self) -> tuple[str, ...]:
        return self.task.libraries

    @property
    def cache_name(self) -> str:
        """A digest of what is staged, since another folder may have the same name."""
        digest = hashlib.sha256()
        for name, data in self.staged().items():
            digest.update(f"{name}\0{len(data)}\0".encode() + data)
        return digest.hexdigest()

    def check_runnable(self) -> None:
        if self.only_theirs:
            raise UsageError(f"{shown(self.folder)}: {self.only_theirs}; {THEIRS}")

    def advice(self, device: str, cuda_is_cpu: bool) -> str:
        if device != "cpu":
            return f"it is for {', '.join(self.gpus)}; evaluate it on such a GPU" if self.gpus else ""
        if self.mentions("cuda", "") and not cuda_is_cpu:
            return "DEVICE=cpu (--device cpu) puts the CPU in the place of CUDA, which this machine does not have"
        return "evaluate it on a machine with a GPU, if it needs one" if cuda_is_cpu else ""

    def mentions(self, word: str, submission: str) -> bool:
        """Whether the staged files or the submission's text contain this word."""
        return word in submission or any(word.encode() in data for data in self.staged().values())


class AnyParams:
    """The parameters of a case, whatever they are; generate_input says which rank counts it takes."""

    def __init__(self, **params: Param) -> None: ...

    def check_world_size(self, world_size: int) -> None: ...


def read(folder: Path, checkout: Checkout) -> TaskProblem:
    """The problem folder. Raises BadFileError, with file and place, if it does not fit the format."""
    folder = folder.resolve()
    path = folder / FILE
    where = shown(path)
    task = read_yaml(TaskFile, path, prepare=_prepared)
    sources: dict[str, Path] = {}
    for index, file in enumerate(task.files):
        source = folder / file.source
        if file.source != SUBMISSION:
            if not os.path.isfile(source):  # False for what cannot be a name, too
                raise BadFileError(f"{where}: $.files[{index}].source: there is no file {file.source} from there")
            sources[file.name] = source.resolve()
    needed = {f"templates.{kind}": name for kind, name in (task.templates or {}).items()}
    if task.validation:
        needed["validation.script"] = task.validation.script
    for key, name in needed.items():
        if not os.path.isfile(folder / name):
            raise BadFileError(f"{where}: $.{key}: there is no file {name} from there")
    if task.validation and not os.path.getsize(folder / task.validation.script):
        raise BadFileError(f"{where}: $.validation.script: {task.validation.script} is empty")
    names = _defined(sources["reference.py"]) if "reference.py" in sources else set()
    missing = () if names is None else tuple(name for name in NEEDED if name not in names)
    lacks = NOT_OURS.format(" and no ".join(missing)) if missing else ""
    return TaskProblem(
        name="".join(char if char.isprintable() else "?" for char in f"{folder.parent.name}/{folder.name}"),
        leaderboard=folder.name,
        description=" ".join(task.description.split()),
        root=checkout.root,
        folder=folder,
        shapes_path=path,
        submissions_folder=folder,
        ranking_by=task.ranking_by,
        suites={OFFICIAL: _suite(task)},
        params_type=AnyParams,
        cost_of=None,
        kind="folder",
        gpus=task.gpus,
        is_upstream=True,
        multi_gpu=all("world_size" in case for case in (*task.tests, *task.benchmarks)),
        checker="strict" if names is not None and names.issuperset(STRICT) else "folder",
        task=task,
        sources=sources,
        entries=tuple(file.name for file in task.files if file.source == SUBMISSION),
        missing=missing,
        lang=task.lang,
        only_theirs=ONLY_CUDA if task.lang == "cu" else lacks,
    )


def cases_text(cases: Sequence[Params]) -> str:
    """The cases as KernelBot's cases file: one line each, `key: value; key: value`."""
    return "".join(f"{result_lines.spec_of(case)}\n" for case in cases)


def _suite(task: TaskFile) -> Suite:
    return Suite(
        name=OFFICIAL,
        description="The cases of the folder's task.yml.",
        tests=tuple(_case("test", case) for case in task.tests),
        benchmarks=tuple(_case("benchmark", case) for case in task.benchmarks),
        test_timeout_s=task.test_timeout,
        benchmark_timeout_s=task.benchmark_timeout,
        ranked_timeout_s=task.ranked_timeout,
        benchmark_s=DEFAULT_BENCHMARK_S,
    )


def _case(kind: Kind, values: Params) -> Case:
    params = {key: value for key, value in values.items() if key not in ("seed", "world_size")}
    seed, world_size = values.get("seed", 0), values.get("world_size", 1)
    assert isinstance(seed, int)
    assert isinstance(world_size, int)
    return Case(kind=kind, params=params, seed=seed, world_size=world_size)


def _check_case(case: Params, multi_gpu: bool, path: str) -> None:
    for key, least, most in (("seed", *SEEDS), ("world_size", 1, MAX_INT)):
        if key not in case:
            continue
        value = case[key]
        if type(value) is not int or not least <= value <= most:
            raise DecodeError(f"{path}.{key}", f"expected a whole number from {least} to {most}, found {value!r}")
    if multi_gpu and "world_size" not in case:
        raise DecodeError(path, "the key 'world_size' is missing, which every case needs where multi_gpu is true")


def _check_templates(templates: Mapping[str, str]) -> None:
    known = ("CUDA", "Python", "Triton", "HIP", "CuteDSL")
    if not templates:
        raise DecodeError(".templates", "the mapping is empty; leave the key out")
    for kind in templates:
        if kind not in known:
            raise DecodeError(f".templates.{kind}", f"expected one of {', '.join(known)}")


def _prepared(value: object) -> object:
    """The content without what KernelBot ignores: keys of a file other than name and source, and some nulls."""
    if not isinstance(value, Mapping):
        return value
    found: dict[Any, Any] = dict(value)
    if "templates" in found and found["templates"] is None:
        found["templates"] = {}  # refused: KernelBot's loader fails on either
    if isinstance(found.get("config"), Mapping):  # whose keys go by the language
        found["config"] = {"type": "cu" if found.get("lang") == "cu" else "py", **found["config"]}
    if isinstance(found.get("files"), list):
        found["files"] = [
            {key: item for key, item in file.items() if key in ("name", "source")}
            if isinstance(file, Mapping)
            else file
            for file in found["files"]
        ]
    if "description" in found and found["description"] is None:
        found["description"] = ""
    return {key: item for key, item in found.items() if item is not None or key not in NULLABLE}


def _defined(path: Path) -> set[str] | None:
    """The names that a file binds at its top level; None if only running it would tell (`from x import *`)."""
    names = bound(read_tree(path))
    return None if "*" in names else names
