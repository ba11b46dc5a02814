"""FlashInfer-Trace: a Definition with its Workloads is a problem, a Solution in Python or Triton a submission.

definitions/**/<name>.json has the definition; workloads/**/<name>.jsonl beside it the workloads, one case each. After
flashinfer-bench's docs/flashinfer-trace, read 2026-11. Ranks read the same files (rank.py).
"""

import ast
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from harness.core.checkout import Checkout, shown
from harness.core.errors import BadFileError, BadSubmissionError, UsageError, os_error_as
from harness.core.files import read_text
from harness.core.json_file import file_if_any
from harness.core.records import Case, Module, Params, Submission
from harness.kinds.benchmarks.kind import BenchmarkKind
from harness.kinds.benchmarks.problem import BenchmarkProblem, glue, suites_of
from harness.kinds.trace import schema
from harness.kinds.trace.schema import CUSTOM, DEFINITION, WORKLOADS
from harness.problems.problem import Problem
from harness.problems.python_text import bound
from harness.problems.submission import MAX_BYTES, digest, parsed, shown_path, without_nul

NEEDED = {"name", "axes", "inputs", "outputs", "reference"}
ENTRY = "run"
LANGUAGES = ("python", "triton")
DOCUMENTS = (".md", ".txt", ".toml")  # that a solution may bring along, and that no call needs
STAGED = "problem_file.py"
MOST_BYTES = 8 << 20  # of a definition's or a solution's file
HEADER_BYTES = 100 << 20  # of a safetensors file, by its format
SPEC = "\n\nKERNEL_EVAL_SPEC = {}\n"
SOURCES = {"random": (), "scalar": (), "safetensors": ("path", "tensor_key"), "custom": ()}  # texts that each needs
POINTER = b"version https://git-lfs"


@dataclass(frozen=True, kw_only=True)
class TraceProblem(BenchmarkProblem):
    """A definition. `workloads` are those that a trace is written of, by the name that cases have for them."""

    definition: str
    workloads: Mapping[str, Mapping[str, Any]]

    def workload(self, case: Case) -> dict[str, Any] | None:
        found = self.workloads.get(str(case.params.get("workload")))
        return {"definition": self.definition, "workload": dict(found)} if found else None

    def stored(self) -> Iterator[tuple[str, dict[str, int], str, dict[str, str]]]:
        """The stored tensors: the workload's name and axes, the input, and its source, with the whole path."""
        rooted: dict[str, Any] = json.loads(self.files[WORKLOADS])
        for name, workload in rooted.items():
            for key, source in workload["inputs"].items():
                if source["type"] == "safetensors":
                    yield name, workload["axes"], key, source

    def read_by_judges(self) -> tuple[Path, ...]:
        return tuple(dict.fromkeys(Path(source["path"]) for *_, source in self.stored()))

    def check_runnable(self) -> None:
        """Raises UsageError for a missing package, and for a workload's file that cannot be read."""
        super().check_runnable()
        made = json.loads(self.files[DEFINITION])
        for name, axes, key, source in self.stored():
            sizes = schema.sizes(made["axes"], axes)
            if why := unreadable(Path(source["path"]), source["tensor_key"], made["inputs"][key], sizes):
                raise UsageError(
                    f"{self.name}: workload {name}, input {key}: {source['path']}: {why}; fetch the data set's files "
                    "(`git lfs pull`), or take the workload out of the .jsonl"
                )


class TraceKind(BenchmarkKind):
    """A definition's file."""

    def claims(self, place: Path) -> bool:
        """A JSON file with a definition's keys."""
        if place.suffix != ".json" or not place.is_file() or place.stat().st_size > MOST_BYTES:
            return False
        found = file_if_any(dict[str, Any], place)
        return found is not None and set(found) >= NEEDED

    def read(self, place: Path, checkout: Checkout) -> Problem:
        """The definition, with the workloads beside it. Raises BadFileError where they do not fit the format."""
        place = place.resolve()
        made = json.loads(read_text(place))
        check_definition(made, place)
        root = next((one.parent for one in place.parents if one.name == "definitions"), place.parent)
        workloads = dict(_named(read_workloads(root, made, place)))
        cases = [{**one["axes"], "workload": name} for name, one in workloads.items()]
        rooted = {name: _rooted(one, root) for name, one in workloads.items()}
        return TraceProblem(
            name=f"trace/{made['name']}",
            leaderboard=made["name"],
            description=" ".join(str(made.get("description") or made["name"]).split()),
            root=checkout.root,
            folder=place,
            shapes_path=place,
            submissions_folder=place.parent,
            suites=suites_of(cases, 0, 1, on_cpu=_spread(cases)),
            multi_gpu=False,
            kind="trace",
            also=(".json",),
            checker="choice" if schema.choice(made) else "benchmark",
            files=glue("trace")
            | {
                STAGED: made["reference"].encode(),
                DEFINITION: json.dumps(made).encode(),
                WORKLOADS: json.dumps(rooted).encode(),
            },
            needed=(STAGED,),
            entry=ENTRY,
            theirs=ENTRY,
            definition=made["name"],
            workloads=workloads,
        )

    def submission(self, path: Path | None, problem: Problem, checkout: Checkout) -> Submission:
        """A Solution's file, or a Python file that defines run. BadSubmissionError: another definition or language."""
        if path is None or path.suffix != ".json":
            return super().submission(path, problem, checkout)
        assert isinstance(problem, TraceProblem)
        return solution(path, problem, checkout)


def check_definition(made: Mapping[str, Any], place: Path) -> None:
    """Raises BadFileError, with the place of the mistake, for what is no definition."""

    def wrong(path: str, what: str) -> BadFileError:
        return BadFileError(f"{shown(place)}: $.{path}: {what}")

    if not isinstance(made["name"], str) or not re.fullmatch(r"[\w.-]+", made["name"]):
        raise wrong("name", f"expected letters, digits, `_`, `-` and `.`, found {made['name']!r}")
    for key in ("axes", "inputs", "outputs"):
        if not isinstance(made[key], dict) or not made[key]:
            raise wrong(key, "expected an object with at least one entry")
    for name, axis in made["axes"].items():
        if not isinstance(axis, dict) or axis.get("type") not in ("const", "var", "expr"):
            raise wrong(f"axes.{name}", "expected an axis of type const, var or expr")
        if axis["type"] == "const" and (type(axis.get("value")) is not int or axis["value"] < 0):
            raise wrong(f"axes.{name}.value", f"expected a whole number, 0 or above, found {axis.get('value')!r}")
        if axis["type"] == "expr" and not isinstance(axis.get("expression"), str):
            raise wrong(f"axes.{name}.expression", f"expected a text, found {axis.get('expression')!r}")
    for key in ("inputs", "outputs"):
        for name, spec in made[key].items():
            if not isinstance(spec, dict) or not isinstance(spec.get("shape", ""), list | None):
                raise wrong(f"{key}.{name}", "expected a shape (a list of axes, or null) and a dtype")
            if str(spec.get("dtype")) not in schema.DTYPES:
                known = ", ".join(schema.DTYPES)
                raise wrong(f"{key}.{name}.dtype", f"tensors of {spec.get('dtype')!r} cannot be made here; of {known}")
            for axis in spec["shape"] or ():
                is_named = isinstance(axis, str) and axis in made["axes"]
                if not is_named and not str(axis).isdecimal():
                    raise wrong(f"{key}.{name}.shape", f"there is no axis {axis!r}")
    if not isinstance(made["reference"], str) or f"def {ENTRY}(" not in made["reference"]:
        raise wrong("reference", f"expected Python that defines {ENTRY}")
    entry = made.get(CUSTOM)
    if entry is not None and f"def {entry}(" not in made["reference"]:
        raise wrong(CUSTOM, f"the reference defines no {entry}")


def read_workloads(root: Path, made: Mapping[str, Any], place: Path) -> list[dict[str, Any]]:
    """The definition's workloads. Raises BadFileError for a line that is none, and where there is none at all."""
    name = made["name"]
    files = set((root / "workloads").rglob(f"{name}.jsonl")) or set(root.glob(f"{name}.jsonl"))
    if place.name == "definition.json":
        files |= set(root.glob("workload.jsonl"))
    found: list[dict[str, Any]] = []
    for file in sorted(files):
        with os_error_as(BadFileError, f"{shown(file)}: cannot be read"):
            lines = read_text(file).split("\n")  # not splitlines: texts may have U+2028 in them
        for number, line in enumerate(lines, start=1):
            try:
                found += [read_workload(line, made)] if line.strip() else []
            except (KeyError, TypeError, AttributeError, RecursionError, json.JSONDecodeError):
                raise BadFileError(f"{shown(file)}:{number}: no workload; see FlashInfer-Trace's Workload") from None
            except ValueError as error:
                raise BadFileError(f"{shown(file)}:{number}: $.workload.{error}") from None
    if not found:
        where = shown(root / "workloads")
        raise BadFileError(f"{shown(place)}: no workload; expected {where}/**/{name}.jsonl, a line each")
    return found


def read_workload(line: str, made: Mapping[str, Any]) -> dict[str, Any]:
    """The workload of a trace, or one by itself: its id, its inputs, and the sizes of the axes that vary. ValueError
    says what does not fit the definition; KeyError, TypeError, AttributeError: it is no workload."""
    trace = json.loads(line)
    workload = trace.get("workload", trace)
    axes, inputs, uuid = workload["axes"], workload["inputs"], str(workload["uuid"])
    wanted = {axis for axis, one in made["axes"].items() if one["type"] == "var"}
    given = {axis: size for axis, size in axes.items() if axis in wanted}
    if any(type(size) is not int or size < 0 for size in given.values()) or set(given) != wanted:
        raise ValueError(f"axes: expected sizes of {sorted(wanted)}")
    try:
        schema.sizes(made["axes"], given)
    except ValueError as error:
        raise ValueError(f"axes: {error}") from None
    for name, source in inputs.items():
        if name not in made["inputs"] or source["type"] not in SOURCES:
            raise ValueError(f"inputs: no such input, or no such type: {name}")
        if not all(isinstance(source[key], str) for key in SOURCES[source["type"]]):
            raise TypeError
        if source["type"] == "scalar" and not isinstance(source["value"], int | float):
            raise ValueError(f"inputs.{name}.value: expected a number, found {source['value']!r}")
        if source["type"] == "custom" and made.get(CUSTOM) is None:
            raise ValueError(f"inputs.{name}: the definition has no {CUSTOM}, which makes custom inputs")
    return {"uuid": uuid, "axes": given, "inputs": inputs}


def _named(workloads: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The workloads by the beginning of their ids, or by all of an id where beginnings are alike."""
    short = [one["uuid"][:8] for one in workloads]
    for name, one in zip(short, workloads, strict=True):
        yield (name if short.count(name) == 1 else one["uuid"]), one


def _rooted(workload: Mapping[str, Any], root: Path) -> dict[str, Any]:
    inputs = {
        name: source | ({"path": str(root / source["path"])} if source["type"] == "safetensors" else {})
        for name, source in workload["inputs"].items()
    }
    return {**workload, "inputs": inputs}


def _spread(cases: list[Params]) -> list[Params]:
    """Cases for CPU cores: the smallest, and up to one of the middle."""

    def size(case: Params) -> int:
        return math.prod(value for value in case.values() if isinstance(value, int))

    ordered = sorted(cases, key=size)
    return [ordered[place] for place in sorted({0, len(ordered) // 4, len(ordered) // 2})]


def unreadable(path: Path, key: str, spec: Mapping[str, Any], sizes: Mapping[str, int]) -> str:
    """Why a tensor of a safetensors file cannot be read as the definition has it; "" where it can."""
    try:
        with path.open("rb") as file:
            start = file.read(len(POINTER))
            if start == POINTER:
                return "a pointer of Git LFS, and not the file"
            length = int.from_bytes(start[:8], "little")
            if not 0 < length <= HEADER_BYTES:
                return "no safetensors file"
            file.seek(8)
            header = json.loads(file.read(length))
        if key not in header:
            return f"it has no tensor '{key}'"
        dtype, shape = schema.STORED.get(header[key]["dtype"], header[key]["dtype"]), header[key]["shape"]
    except OSError as error:
        return str(error.strerror)
    except (ValueError, KeyError, TypeError):
        return "no safetensors file"
    wanted, size = schema.OLD_NAMES.get(spec["dtype"], spec["dtype"]), list(schema.shape_of(spec, sizes) or ())
    return "" if (dtype, shape) == (wanted, size) else f"its '{key}' is {dtype} {shape}; expected {wanted} {size}"


def solution(path: Path, problem: TraceProblem, checkout: Checkout) -> Submission:
    """The Solution in that file as a submission: its files, and what it says of its entry point."""
    name = shown_path(path, checkout.root)
    try:
        if path.stat().st_size > MOST_BYTES:
            raise BadSubmissionError(f"{name}: more than {MOST_BYTES} bytes")
        made = json.loads(read_text(path))
        sources = {str(one["path"]): without_nul(str(one["content"]), name) for one in made["sources"]}
        spec, definition, title = made["spec"], made["definition"], made["name"]
        language, (file, _, entry) = spec["language"], str(spec["entry_point"]).partition("::")
        fills = spec.get("destination_passing_style")
        nbytes = sum(len(text.encode()) for text in sources.values())
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror}; name a Solution's file") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadSubmissionError(f"{name}: no Solution of FlashInfer-Trace: {type(error).__name__}: {error}") from None
    if not isinstance(title, str) or not title:
        raise BadSubmissionError(f"{name}: $.name: expected the solution's name, found {title!r}")
    if definition != problem.definition:
        raise BadSubmissionError(f"{name}: a solution of {definition}, and not of {problem.definition}")
    if language not in LANGUAGES:
        raise BadSubmissionError(f"{name}: its language is {language}; solutions in python and triton are run here")
    if file not in sources or not entry.isidentifier():
        raise BadSubmissionError(f"{name}: $.spec.entry_point: expected <file of sources>::<function>")
    sources = {one: text for one, text in sources.items() if not one.endswith(DOCUMENTS)}
    bad = [one for one in sources if not _is_module(one)]
    if bad:
        raise BadSubmissionError(f"{name}: $.sources: {bad[0]}: expected a relative path of a Python file")
    for one, text in sources.items():
        tree = parsed(text, f"{name}: {one}", ast.parse)
        if one == file and not {entry, "*"} & bound(tree):
            raise BadSubmissionError(f"{name}: $.spec.entry_point: {file} defines no {entry}")
    said = SPEC.format({"entry": entry, "fills": fills if isinstance(fills, bool) else None})
    is_within = "/" in file  # then it may import relative to its folder
    source = (f"from {_module(file)} import {entry}" if is_within else sources.pop(file)) + said
    modules = tuple(Module(name=_module(one), file=one, source=text) for one, text in sorted(sources.items()))
    if nbytes > MAX_BYTES:
        raise BadSubmissionError(f"{name}: more than {MAX_BYTES} bytes of source")
    main = "" if is_within else file
    sha256 = digest(source, modules)
    return Submission(path=str(path), name=name, source=source, sha256=sha256, modules=modules, title=title, main=main)


def _is_module(path: str) -> bool:
    return path.endswith(".py") and all(part.isidentifier() for part in PurePosixPath(path).with_suffix("").parts)


def _module(path: str) -> str:
    return ".".join(PurePosixPath(path).with_suffix("").parts)
