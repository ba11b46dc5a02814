"""Whether a submission is the reference by its text: it calls that and does nothing else, or it has the same code.

Such a file is as fast as the reference, so that its measured speedup says how good the measurement was. No code of a
submission runs. A file that is the reference in another way is not recognised.
"""

import ast
from collections.abc import Iterator

from harness.problems.python_text import UNREADABLE, imported
from harness.problems.same_code import ENTRY, same_code

KERNEL = "ref_kernel"
MODULE = "reference"
HARMLESS = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)  # where nothing uses what they define


def is_reference(source: str, reference: str) -> bool:
    """Whether custom_kernel in `source` is ref_kernel of the module `reference`, which has that text. Comments,
    docstrings and annotations do not matter; a statement that sets something (torch's settings, say) does."""
    try:
        submission, original = ast.parse(source), ast.parse(reference)
        own = _essence(submission, ENTRY, strict=True)
        return _calls_it(submission) or (own is not None and own == _essence(original, KERNEL))
    except UNREADABLE:
        return False


def _calls_it(tree: ast.Module) -> bool:
    known = {  # what ref_kernel is called here
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module == MODULE
        for alias in node.names
        if alias.name == KERNEL
    }
    if not known:
        return False
    for node in tree.body:
        match node:
            case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant()):
                continue
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Name(id=kernel)):
                is_it = name == ENTRY and kernel in known
            case ast.FunctionDef(
                name=name, args=ast.arguments(posonlyargs=[], args=[one], defaults=[]), decorator_list=[], body=body
            ):
                last = [statement for statement in body if not _is_text(statement)]
                is_it = name == ENTRY and len(last) == 1 and _returns_call(last[0], known, one.arg)
            case _:
                is_it = False
        if not is_it:
            return False
        known.add(ENTRY)
    return ENTRY in known


def _returns_call(node: ast.stmt, known: set[str], argument: str) -> bool:
    match node:
        case ast.Return(value=ast.Call(func=ast.Name(id=kernel), args=[ast.Name(id=given)], keywords=[])):
            return kernel in known and given == argument
    return False


def _essence(tree: ast.Module, entry: str, strict: bool = False) -> str | None:
    """A digest of the function of that name and of what it uses of its file; None where there is none. `strict`: None
    too where the file does more than define things."""
    binding: dict[str, list[int]] = {}  # statements, by the names that they bind
    for number, node in enumerate(tree.body):
        for name in _binds(node):
            binding.setdefault(name, []).append(number)
    needed, wanted = set[int](), [entry]
    while wanted:
        for number in binding.pop(wanted.pop(), ()):
            if number not in needed:
                needed.add(number)
                wanted += [one.id for one in ast.walk(tree.body[number]) if isinstance(one, ast.Name)]
    kept = [node for number, node in enumerate(tree.body) if number in needed]
    rest = [node for number, node in enumerate(tree.body) if number not in needed]
    if not any(isinstance(node, ast.FunctionDef) and node.name == entry for node in kept):
        return None
    if strict and not all(isinstance(node, HARMLESS) or _is_text(node) for node in rest):
        return None
    return same_code(ast.unparse(_Plain(entry).visit(ast.Module(body=kept, type_ignores=[]))))


def _binds(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield from (name for name, _ in imported(node))
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name))


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


class _Plain(ast.NodeTransformer):
    """Leaves out annotations, and calls the entry what a submission's is called."""

    def __init__(self, entry: str) -> None:
        self.entry = entry

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.arg(arg=node.arg, annotation=None)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        node.name = ENTRY if node.name == self.entry else node.name
        return self.generic_visit(node)
