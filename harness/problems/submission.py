"""A submission as the parent sees it: text. Only candidate ranks import it.

Below the checkout's submissions/ it may consist of several files: the submission, modules beside it, and modules in
submissions/common/. All are found by reading. A file may import another only in the form FORM and above all other code,
because harness.problems.merge merges the files, and other forms could then change their meaning.
"""

import ast
import functools
import hashlib
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from harness.core.decode import did_you_mean
from harness.core.errors import BadSubmissionError, UsageError, os_error_as
from harness.core.files import open_ordinary
from harness.core.records import Module, Submission
from harness.problems.python_text import called

T = TypeVar("T")
MAX_BYTES = 1_000_000  # GPU MODE's service takes no larger file
SUFFIXES = {"py": (".py",), "cu": (".cu", ".cuh", ".cpp")}  # of a submission's file, by its language
LINE_CHARS = 200  # of a line of it in a message
FOLDER = "submissions"
COMMON = "common"
FORM = "`from common.<file> import <name>, ...`, or `from <file> import <name>, ...` for a file beside the submission"
# What these names mean to a rank, whatever lies beside the submission: it is staged as submission.py itself.
TAKEN = sys.stdlib_module_names | {"submission", "harness", "numpy", "torch", "triton"}


def read_submission(path: Path, root: Path, lang: Literal["py", "cu"] = "py") -> Submission:
    """The file at `path` with the local modules that it needs; in CUDA C++ (`cu`) it is one file. UsageError if there
    is no such file, BadSubmissionError if a file is not Python or has imports of another form than FORM."""
    shown = shown_path(path, root)
    if not os.path.exists(path):  # False, not an error, for a name that is too long
        raise UsageError(f"no submission file {shown}; write it, or name another file")
    if not path.is_file():
        raise UsageError(f"{shown} is not a file; a submission is one file")
    if lang == "cu":
        source = _text(path, shown)
        return Submission(path=str(path), name=shown, source=source, sha256=digest(source, ()), modules=())
    source, imports = _read(path, shown, imports_of)
    local = LocalModules(path.resolve(), root)
    if local.folder.is_relative_to(root / FOLDER):
        local.collect(imports, shown, (local.name(path.resolve()),))
    modules = tuple(local.found.values())
    nbytes = sum(len(text.encode()) for text in (source, *(module.source for module in modules)))
    if nbytes > MAX_BYTES:
        raise BadSubmissionError(
            f"{shown}: {nbytes} bytes with its modules; a submission has at most {MAX_BYTES}: compute "
            "its data instead of writing them out"
        )
    return Submission(path=str(path), name=shown, source=source, sha256=digest(source, modules), modules=modules)


def digest(source: str, modules: Iterable[Module]) -> str:
    sha256 = hashlib.sha256(source.encode())
    for module in modules:
        sha256.update(f"\0{module.name}\0{module.source}".encode())  # no source has \0, so no two splits look alike
    return sha256.hexdigest()


def shown_path(path: Path, root: Path) -> str:
    """The path relative to the checkout if it lies inside, or else the whole path."""
    full = Path(os.path.realpath(path))  # which takes a link to itself
    return str(full.relative_to(root)) if full.is_relative_to(root) else str(full)


def leading(tree: ast.Module) -> list[ast.Import | ast.ImportFrom]:
    """The imports that stand above all other code; a docstring is not counted as code."""
    imports = []
    for statement in tree.body[ast.get_docstring(tree, clean=False) is not None :]:
        if not isinstance(statement, ast.Import | ast.ImportFrom):
            break
        imports.append(statement)
    return imports


@dataclass(frozen=True, kw_only=True)
class Directives:
    """A submission's `#!POPCORN` lines: the leaderboard it is for, and the GPUs it is to run on."""

    leaderboard: str | None = None
    gpus: tuple[str, ...] = ()


def directives(source: str, name: str = "the submission") -> Directives:
    """The `#!POPCORN` lines in the comment at the top of a file. As at GPU MODE, a line that is neither `leaderboard
    NAME` nor `gpus A B` (or `gpu A`), or that comes twice, raises BadSubmissionError. `name` is the file's name."""
    found: dict[str, list[str]] = {}
    for number, line in enumerate(source.splitlines(), start=1):
        if not line.startswith(("#", "//")):
            break
        word, *rest = line.split()
        if word not in ("#!POPCORN", "//!POPCORN"):
            continue
        key = rest[0].lower() if rest else ""
        key = "gpus" if key == "gpu" else key
        if key not in ("leaderboard", "gpus") or len(rest) < 2:
            raise BadSubmissionError(f"{name}:{number}: expected `#!POPCORN leaderboard NAME` or `#!POPCORN gpus A B`")
        if key in found:
            raise BadSubmissionError(f"{name}:{number}: a second line `#!POPCORN {key}`; remove one")
        found[key] = rest[1:]
    return Directives(leaderboard=found.get("leaderboard", [None])[0], gpus=tuple(found.get("gpus", ())))


@dataclass(frozen=True, kw_only=True)
class Imports:
    """A file's imports with the modules that they name, and those above all other code."""

    targets: tuple[tuple[ast.stmt | ast.expr, str], ...]
    above: tuple[ast.stmt, ...]


def imports_of(source: str) -> Imports:
    """Raises what ast.parse raises."""
    tree = ast.parse(source)
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.stmt | ast.expr))
    return Imports(
        targets=tuple((node, target) for node in nodes for target in _targets(node)), above=tuple(leading(tree))
    )


imports_of_module = functools.lru_cache(maxsize=128)(imports_of)  # the entries of a board have most modules in common


class LocalModules:
    """The local modules of one submission. In `found`, each stands behind those that it imports."""

    def __init__(self, entry: Path, root: Path) -> None:
        self.root, self.folder, self.common = root, entry.parent, root / FOLDER / COMMON
        # What problems stage is the problem's: submissions/<problem>/reference.py is not what `reference` means.
        self.staged = {file.stem for file in (root / "reference").glob("*/*.py")}
        self.found: dict[str, Module] = {}

    def name(self, path: Path) -> str:
        return f"{COMMON}.{path.stem}" if path.parent == self.common else path.stem

    def collect(self, imports: Imports, shown: str, chain: tuple[str, ...]) -> None:
        """Adds what the file `shown` needs; `chain` is how it came to be needed, from the submission to itself."""
        for node, path in self.local(imports, shown, shared=chain[-1].startswith(f"{COMMON}.")):
            name = self.name(path)
            if name in chain:
                circle = " imports ".join([*chain[chain.index(name) :], name])
                raise BadSubmissionError(
                    f"{shown}:{node.lineno}: {circle}; move what both need to a file that imports neither"
                )
            if name not in self.found:
                file = shown_path(path, self.root)
                source, imported = _read(path, file, imports_of_module)
                self.collect(imported, file, (*chain, name))
                self.found[name] = Module(name=name, file=file, source=source)

    def local(self, imports: Imports, shown: str, shared: bool) -> Iterator[tuple[ast.ImportFrom, Path]]:
        """The imports of local modules, with their files; those at the top level come first, in order."""
        for node, target in imports.targets:
            if not self.is_local(target, shared):
                continue
            try:
                path, checked = self.path(target, shared), _checked(node, imports.above)
            except ValueError as error:
                raise BadSubmissionError(f"{shown}:{node.lineno}: {ast.unparse(node)}: {error}") from None
            yield checked, path

    def is_local(self, target: str, shared: bool) -> bool:
        """Whether the module `target`, dotted, would have to be a local one. `shared`: for a file in common/."""
        top = target.partition(".")[0]
        if top in ("", FOLDER, COMMON):  # "": relative
            return True
        if top in self.staged or (shared and top in TAKEN):
            return False
        # os.path's answer is no where `top` is longer than a file's name can be
        return self.folder != self.common and os.path.isfile(self.folder / f"{top}.py")

    def path(self, target: str, shared: bool) -> Path:
        """Where the local module `target` lies; ValueError where there is none that can be imported."""
        top, _, rest = target.partition(".")
        if top == COMMON and rest:
            known = sorted(path.stem for path in self.common.glob("*.py"))
            if rest not in known:
                hint = did_you_mean(rest, known) or f" (known: {', '.join(known) or 'none'})"
                raise ValueError(f"there is no {FOLDER}/{COMMON}/{rest}.py{hint}")
            return inside(self.common / f"{rest}.py", self.common)
        if top in ("", FOLDER, COMMON) or rest:
            raise ValueError(f"a local module is a file, and ranks have no packages around it; write {FORM}")
        if shared:
            raise ValueError(f"files in {COMMON}/ import only each other; move {top}.py to {FOLDER}/{COMMON}/")
        if top in TAKEN:
            raise ValueError(f"to a rank `{top}` is not the {top}.py here; rename it, or move what is needed elsewhere")
        return inside(self.folder / f"{top}.py", self.folder)


def inside(path: Path, folder: Path) -> Path:
    """The path. Raises ValueError where it is a link out of the folder: what lies elsewhere would be read by whoever
    evaluates, and shown to the submission."""
    if not path.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{path.name} is a link that leads out of its folder; put the file itself there")
    return path


def _text(path: Path, shown: str) -> str:
    with os_error_as(UsageError, f"{shown} cannot be read", "check its rights"), open_ordinary(path) as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise BadSubmissionError(
            f"{shown}: {path.stat().st_size} bytes; a submission has at most {MAX_BYTES}: compute its data instead of "
            "writing them out"
        )
    try:
        return without_nul(data.decode("utf-8-sig"), shown)  # as Python does, and some editors write
    except UnicodeDecodeError as error:
        raise BadSubmissionError(f"{shown}: not UTF-8 at byte {error.start}; save it as UTF-8") from None


def without_nul(source: str, shown: str) -> str:
    """The source. Raises BadSubmissionError for one with a NUL character, by which `digest` tells files apart."""
    if (at := source.find("\0")) >= 0:
        number = source.count("\n", 0, at) + 1
        raise BadSubmissionError(f"{shown}:{number}: a NUL character; remove it")
    return source


def _read(path: Path, shown: str, parse: Callable[[str], Imports]) -> tuple[str, Imports]:
    source = _text(path, shown)
    return source, parsed(source, shown, parse)


def parsed(source: str, shown: str, parse: Callable[[str], T]) -> T:
    """What `parse` makes of Python. Raises BadSubmissionError, with the place in the file `shown`, where it is none."""
    try:
        return parse(source)
    except SyntaxError as error:
        line = (error.text or "").strip()
        line = line if len(line) <= LINE_CHARS else f"{line[:LINE_CHARS]}... ({len(line)} characters)"
        raise BadSubmissionError(f"{shown}:{error.lineno}: {error.msg}\n    {line}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise BadSubmissionError(
            f"{shown}: Python cannot read it: {error}; `python -m py_compile` says where"
        ) from None


def _targets(node: ast.AST) -> list[str]:
    """The modules that a node imports, if any. A relative one begins with a dot."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return ["." * node.level + (node.module or "")]
    if isinstance(node, ast.Call) and called(node) in ("import_module", "__import__"):
        names = [item.value for item in node.args[:1] if isinstance(item, ast.Constant)]
        return [name for name in names if isinstance(name, str) and not name.startswith(".")]
    return []


def _checked(node: ast.AST, above: Collection[ast.AST]) -> ast.ImportFrom:
    """The node if it is a right import of a local module. Raises ValueError if it is not."""
    if not isinstance(node, ast.ImportFrom) or any(alias.asname or alias.name == "*" for alias in node.names):
        raise ValueError(f"a local module is imported only as {FORM}, without `as` or `*`")
    if node not in above:
        raise ValueError("a local module is imported above all other code; move it to the top of the file")
    return node
