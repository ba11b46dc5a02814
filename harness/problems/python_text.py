"""Others' Python as text, which is never run: the names that it binds and uses, by its syntax tree."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from harness.core.checkout import shown
from harness.core.errors import BadFileError
from harness.core.files import read_bytes

UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)  # that ast.parse raises; the last two: nesting
GRAPHS = {"CUDAGraph", "do_bench_cudagraph", "make_graphed_callables"}
Import = ast.Import | ast.ImportFrom


def read_tree(path: Path) -> ast.Module:
    """The file's code. Raises BadFileError where it is no Python."""
    try:
        return ast.parse(read_bytes(path))  # as Python reads it, with a byte order mark or not
    except (OSError, *UNREADABLE) as error:
        raise BadFileError(f"{shown(path)}: Python cannot read it: {error}") from None


def nodes_of(source: str | bytes) -> list[ast.AST]:
    """All nodes of a file, or none where it is no Python."""
    try:
        return list(ast.walk(ast.parse(source)))
    except UNREADABLE:
        return []


def bound(tree: ast.Module) -> set[str]:
    """The names that are bound outside of functions and classes; `*` among them if only running it would tell all."""
    names: set[str] = set()
    nodes: list[ast.AST] = list(tree.body)
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
            continue  # what is in it is not at the top level
        if isinstance(node, Import):
            names.update(name for name, _ in imported(node))
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        nodes += ast.iter_child_nodes(node)
    return names


def imported(node: Import, local: Mapping[str, str] | None = None) -> Iterator[tuple[str, str]]:
    """The names that an import binds, and the dotted name of what each is then; `local` has other names for modules
    that names are imported from."""
    for alias in node.names:
        if isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield alias.asname or alias.name, f"{(local or {}).get(module, module)}.{alias.name}"
        elif alias.asname:
            yield alias.asname, alias.name
        else:
            yield (alias.name.partition(".")[0],) * 2  # `import a.b` binds a


def called(call: ast.Call) -> str:
    """`f` in f(...) and in a.b.f(...); "" in any other call."""
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def captures_graphs(evaluator: bytes) -> bool:
    """Whether an evaluator's text names what captures CUDA graphs, and so times those."""
    return any(getattr(node, "attr", getattr(node, "id", "")) in GRAPHS for node in nodes_of(evaluator))
