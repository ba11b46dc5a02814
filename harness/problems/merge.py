"""A submission and its local modules as one self-contained file, which is what GPU MODE takes.

The files are merged as text, each behind those that it imports, so that comments stay and Triton finds the source of
its kernels. They then share one namespace. Code whose meaning would change by that (a name defined twice, say) is
rejected. Two differences remain: the imports of all files come first, and a `from __future__` holds for all.
"""

import ast
import inspect
import itertools
import re
import symtable
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.core.decode import did_you_mean
from harness.core.errors import BadSubmissionError
from harness.core.records import Submission
from harness.problems.python_text import Import, imported
from harness.problems.submission import directives, leading

MAX_COLUMNS = 120
DIRECTIVE = "#!POPCORN"  # GPU MODE's service reads these lines in the comment that a file begins with


@dataclass(frozen=True, kw_only=True)
class Binding:
    """A name bound at a file's top level, to an import's `meaning` (dotted) or its own code (None)."""

    name: str
    file: str
    line: int
    meaning: str | None = None

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}"

    def clashes_with(self, other: "Binding") -> bool:
        if self.meaning and other.meaning:
            return self.meaning != other.meaning
        return self.file != other.file


@dataclass(frozen=True, kw_only=True)
class MergedFile:
    """One of the files. `imports` are those above all other code; `local` are those of them that import local modules.
    `uses` has the names that the file reads from its top level or from Python, and `reset` the names that its functions
    bind with `global`; both with the line of the first statement that does so."""

    file: str
    lines: Sequence[str]
    docstring: ast.Expr | None
    imports: Sequence[Import]
    local: Sequence[ast.ImportFrom]
    bindings: Sequence[Binding]
    uses: Mapping[str, int]
    reset: Mapping[str, int]

    @property
    def names(self) -> set[str]:
        imported = (alias.name for node in self.local for alias in node.names)
        return {*imported, *(binding.name for binding in self.bindings)}


def merged(submission: Submission) -> str:
    """The one file; the submission itself if it has no modules. The same submission gives the same text.

    Raises BadSubmissionError, with the places, if merging would change the meaning of the code.
    """
    if not submission.modules:
        return submission.source
    local = {module.name for module in submission.modules}
    modules = {module.name: _part(module.file, module.source, local) for module in submission.modules}
    entry = _part(submission.name, submission.source, local)
    parts = [*modules.values(), entry]
    for part in parts:
        _check_imported(part, modules)
        _check_uses(part, parts)
    _check_meanings(parts)

    # Its header and docstring begin the file.
    above = _lines_of(entry.docstring)[-1] if entry.docstring else entry.imports[0].lineno - 1
    top = ["\n".join(entry.lines[:above]).strip("\n"), *_merged(_foreign_imports(entry, modules, set()))]
    sections = [*map(_section, modules.values()), _section(entry, above)]
    return "\n\n".join(filter(None, top)) + "".join(f"\n\n\n{section}" for section in sections) + "\n"


def addressed(source: str, leaderboard: str, name: str) -> str:
    """The text of the file `name`, with a header that names the leaderboard; added if the file has none.

    Raises BadSubmissionError if the file names another leaderboard.
    """
    named = directives(source, name).leaderboard
    if named is None:
        return f"{DIRECTIVE} leaderboard {leaderboard}\n{source}"
    if named != leaderboard:
        raise BadSubmissionError(
            f"{name}: its header names the leaderboard {named}, but the problem's is {leaderboard}; "
            f"write `{DIRECTIVE} leaderboard {leaderboard}` once, or choose the problem that the file is for"
        )
    return source


# ---- taking a file apart ---------------------------------------------------------------------------------------------
def _part(file: str, source: str, local: Collection[str]) -> MergedFile:
    tree = ast.parse(source)
    above = leading(tree)
    first = tree.body[0] if tree.body else None
    docstring = first if isinstance(first, ast.Expr) and ast.get_docstring(tree, clean=False) is not None else None
    for one, other in itertools.pairwise(tree.body):
        if other.lineno in _lines_of(one) and (one is docstring or one in above or other in above):
            raise BadSubmissionError(f"{file}:{other.lineno}: put `{ast.unparse(other)}` on a line of its own")
    of_modules = [node for node in above if isinstance(node, ast.ImportFrom) and node.module in local]
    bindings: list[Binding] = []
    uses: dict[str, int] = {}
    reset: dict[str, int] = {}
    for statement in tree.body:
        line = statement.lineno
        if isinstance(statement, Import):
            if statement not in of_modules:
                bindings += [
                    Binding(name=name, file=file, line=line, meaning=meaning)
                    for name, meaning in _meanings(statement, f"{file}:{line}")
                ]
            continue
        for symbol, inside in _symbols(_table(statement, f"{file}:{line}")):
            name = symbol.get_name()
            if symbol.is_assigned() or symbol.is_imported():
                bindings.append(Binding(name=name, file=file, line=line))
                if inside:
                    reset.setdefault(name, line)
            if symbol.is_referenced():
                uses.setdefault(name, line)
    return MergedFile(
        file=file,
        lines=re.split(r"\r\n?|\n", source),  # as Python counts them
        docstring=docstring,
        imports=above,
        local=of_modules,
        bindings=bindings,
        uses=uses,
        reset=reset,
    )


def _lines_of(statement: ast.stmt) -> range:
    """The numbers of its lines, from 1."""
    return range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)


def _meanings(statement: Import, where: str) -> Iterator[tuple[str, str]]:
    """The names that an import binds, and the dotted name of what each is then."""
    if any(alias.name == "*" for alias in statement.names):
        what = ast.unparse(statement)
        raise BadSubmissionError(f"{where}: {what}: nobody can tell which names this brings; import them by name")
    return imported(statement)


def _table(statement: ast.stmt, where: str) -> symtable.SymbolTable:
    try:
        return symtable.symtable(ast.unparse(statement), where, "exec")
    except (SyntaxError, RecursionError) as error:  # not all that parses compiles
        raise BadSubmissionError(f"{where}: Python cannot compile it: {getattr(error, 'msg', error)}") from None


def _symbols(table: symtable.SymbolTable, inside: bool = False) -> Iterator[tuple[symtable.Symbol, bool]]:
    """The symbols of the file's top level, or of Python's own names, and whether it is a function that has them."""
    for symbol in table.get_symbols():
        if symbol.is_global():
            yield symbol, inside
    for child in table.get_children():
        yield from _symbols(child, inside=True)


# ---- what one namespace would change ---------------------------------------------------------------------------------
def _check_imported(part: MergedFile, modules: Mapping[str, MergedFile]) -> None:
    """Names imported from a local module exist there, and keep the value that they had when they were imported."""
    for node in part.local:
        module = modules[node.module or ""]
        for name in (alias.name for alias in node.names):
            if name not in module.names:
                hint = did_you_mean(name, module.names)
                raise BadSubmissionError(f"{part.file}:{node.lineno}: {module.file} has no `{name}` at its top{hint}")
            if name in module.reset:
                raise BadSubmissionError(
                    f"{part.file}:{node.lineno}: `{name}` is bound anew by a function ({module.file}:"
                    f"{module.reset[name]}, `global`), which only a merged file would see here; import a function "
                    "that returns it"
                )


def _check_uses(part: MergedFile, parts: Sequence[MergedFile]) -> None:
    """No name of one file is read as another file's, or as Python's own if another file defines one like it."""
    foreign = {binding.name: binding for other in parts for binding in other.bindings}
    for name, line in part.uses.items():
        if name in foreign and name not in part.names:
            raise BadSubmissionError(
                f"{part.file}:{line}: uses `{name}`, which the file neither binds nor imports; in the merged file it "
                f"would be that of {foreign[name].where}; import it, or rename one"
            )


def _check_meanings(parts: Sequence[MergedFile]) -> None:
    """A name means the same in all files that bind it."""
    bindings = defaultdict(list)
    for part in parts:
        for binding in part.bindings:
            bindings[binding.name].append(binding)
    for name, those in bindings.items():
        for one, other in itertools.combinations(those, 2):
            if one.clashes_with(other):
                raise BadSubmissionError(
                    f"{one.where} and {other.where} both bind `{name}`, and a merged file has one namespace; rename "
                    "one, or let one file import it from the other"
                )


# ---- putting them together -------------------------------------------------------------------------------------------
def _foreign_imports(part: MergedFile, modules: Mapping[str, MergedFile], seen: set[str]) -> Iterator[Import]:
    """The imports of modules that are not local, in the order in which Python would reach them in separate files."""
    for node in part.imports:
        if node not in part.local:
            yield node
        elif isinstance(node, ast.ImportFrom) and node.module and node.module not in seen:
            seen.add(node.module)
            yield from _foreign_imports(modules[node.module], modules, seen)


def _merged(imports: Iterable[Import]) -> list[str]:
    """Every import once: `from __future__`, Python's modules, then others in their order."""
    merged: dict[str, set[str]] = {}  # by "import a" or "from a import", which is followed by these
    for node in imports:
        for named in map(ast.unparse, node.names):
            if isinstance(node, ast.Import):
                merged[f"import {named}"] = set()
            else:
                merged.setdefault(f"from {node.module} import", set()).add(named)
    groups: dict[str, list[str]] = {"future": [], "python": [], "others": []}
    for start, names in merged.items():
        module = start.split()[1].partition(".")[0]
        group = "future" if module == "__future__" else "python" if module in sys.stdlib_module_names else "others"
        groups[group].append(_import_line(start, sorted(names)))
    groups["python"].sort(key=lambda line: (line.startswith("from"), line))
    return ["\n".join(lines) for lines in groups.values()]


def _import_line(start: str, names: Sequence[str]) -> str:
    line = " ".join([start, ", ".join(names)]).rstrip()
    if not names or len(line) <= MAX_COLUMNS:  # `import x as y` has no form of several lines
        return line
    return f"{start} (\n" + "".join(f"    {name},\n" for name in names) + ")"


def _section(part: MergedFile, above: int = 0) -> str:
    """A file's code below its first `above` lines; a docstring becomes comments."""
    taken = [*part.imports, *([part.docstring] if part.docstring else [])]
    moved = {number for statement in taken for number in _lines_of(statement)}
    begin = max(moved | {above})
    comments = [] if part.docstring is None or part.docstring.lineno <= above else _as_comments(part.docstring)
    comments += [
        line
        for number, line in enumerate(part.lines[above:begin], above + 1)
        if number not in moved and line.strip() and not line.startswith(DIRECTIVE)
    ]
    head = "\n".join([f"# ---- {part.file} ----", *comments])
    body = "\n".join(part.lines[begin:]).strip("\n")
    return f"{head}\n\n\n{body}" if body else head


def _as_comments(docstring: ast.Expr) -> list[str]:
    assert isinstance(docstring.value, ast.Constant)
    return [f"# {line}".rstrip() for line in inspect.cleandoc(str(docstring.value.value)).splitlines()]
