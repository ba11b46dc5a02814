"""What a submission does, apart from how it is written: a digest that a copy has in common with its original.

Of Python it is a syntax tree without comments, blank lines, docstrings and statements that do nothing. A name that the
file binds is a number, by scope and in order of use; an imported name is what it was imported as, wherever and under
whatever name. Names of attributes stay. Of any other language, and of kernels inside strings, it is the text without
comments and white space. No code of a submission runs.
"""

import ast
import hashlib
import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from harness.core.records import Module
from harness.problems.python_text import UNREADABLE, imported, nodes_of

DIGITS = 16
ENTRY = "custom_kernel"  # used from outside, so that it counts what it was imported as
ENTRIES = ("ModelNew", "solution", "run", "build", "train")  # other names for it, in files without ENTRY
# Raise it where more is left out: digests of two versions do not compare. Where less is, those of before match nothing.
VERSION = 1
# What is not closed goes to the end: otherwise a text of openings would take the square of its length.
COMMENTS = re.compile(r""""(?:\\.|[^"\\\n])*"?|//[^\n]*|/\*.*?(?:\*/|\Z)|\s+""", re.DOTALL)
LEFT_OUT = ("ctx", "kind", "type_comment")  # fields that say nothing or repeat what is around them
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Params = Mapping[str, str]  # words for the names of parameters, where strings and keywords name them


def same_code(source: str, modules: Sequence[Module] = ()) -> str:
    """The digest, as 16 hexadecimal digits. The names of local modules count for nothing, nor does their order."""
    order = _from_imports(source)[::-1] if modules else []
    first = {node.module: -place for place, node in enumerate(order)}
    modules = sorted(modules, key=lambda module: first.get(module.name, 1))
    local = {module.name: f"local {number}" for number, module in enumerate(modules)}
    named = _named([source, *(module.source for module in modules)]) if modules else frozenset()
    parts = [_text(source, local), *(_path(module) + _text(module.source, local, named) for module in modules)]
    return hashlib.sha256("\0".join([str(VERSION), *parts]).encode()).hexdigest()[:DIGITS]


def imports(source: str) -> frozenset[str]:
    """What a file imports anywhere, used or not: the one part of it that counts for nothing above and can yet fail."""
    nodes = nodes_of(source)
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    named = {what for node in nodes if isinstance(node, ast.ImportFrom) for _, what in imported(node)}
    return frozenset(plain | named)


def _from_imports(source: str) -> list[ast.ImportFrom]:
    return [node for node in nodes_of(source) if isinstance(node, ast.ImportFrom)]


def _path(module: Module) -> str:
    """The name of a file that no import can have: a build names it."""
    return "" if module.name.replace(".", "").isidentifier() else f"{module.name} "


def _named(sources: Iterable[str]) -> frozenset[str]:
    """What these files import by name or take as an attribute, of any module."""
    found = set[str]()
    for source in sources:
        found |= {alias.name for node in _from_imports(source) for alias in node.names}
        found |= {node.attr for node in nodes_of(source) if isinstance(node, ast.Attribute)}
    return frozenset(found)


def _text(source: str, local: Mapping[str, str], named: Collection[str] = ()) -> str:
    """What a file does; `named`: what others may use of it, by these names."""
    try:
        tree = ast.parse(source)
        scope = _Scope(tree.body, None, local)
        words = " ".join(_all(tree.body, scope, {}))
        if not words:
            return ast.dump(tree)  # imports alone: they are all that it does
        entries = [] if scope.find(ENTRY) is not None else [*ENTRIES]
        used = [name for name in (*entries, *sorted({*named, *_told(tree)})) if scope.find(name)]
        return " ".join([words, scope.word(ENTRY), *(f"{name} {scope.word(name)}" for name in used)])
    except UNREADABLE:
        return _plain(source)


def _told(tree: ast.Module) -> Iterator[str]:
    """The texts of an assignment that ends a file: there a Solution of FlashInfer-Trace names its entry."""
    if tree.body and isinstance(tree.body[-1], ast.Assign):
        texts = (node.value for node in ast.walk(tree.body[-1]) if isinstance(node, ast.Constant))
        yield from (text for text in texts if isinstance(text, str))


def _plain(text: str) -> str:
    """A text of a language like C without comments and white space; what is between quotes stays."""
    return COMMENTS.sub(lambda found: found[0] if found[0].startswith('"') else "", text)


class _Scope:
    """The names that a module, function, class or comprehension binds. A class's are attributes, and stay as they are;
    functions inside it do not see them."""

    def __init__(
        self,
        body: Iterable[ast.AST],
        outer: "_Scope | None",
        local: Mapping[str, str],
        names: Iterable[str] = (),
        is_class: bool = False,
    ) -> None:
        self.outer, self.local, self.is_class = outer, local, is_class
        self.depth: int = 0 if outer is None else outer.depth + 1
        self.numbers: dict[str, int] = {}
        self.imported: dict[str, str] = {}
        self.functions: dict[str, Params] = {}  # the parameters of each, made once: calls may be many
        self.bound, elsewhere = set(names), set[str]()
        for node in _own(body):
            if isinstance(node, ast.Global | ast.Nonlocal):
                elsewhere.update(node.names)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                self.imported.update(imported(node, local))
            else:
                self.bound.update(_bound(node))
            if isinstance(node, FUNCTIONS):
                self.functions[node.name] = _params(node.args)
        self.bound -= elsewhere
        for name in self.bound & self.imported.keys():  # `try: import x` beside `x = None`
            del self.imported[name]

    def find(self, name: str, inner: bool = False) -> "_Scope | None":
        """The scope that the name belongs to. `inner`: asked from a scope inside this one."""
        if (name in self.bound or name in self.imported) and not (self.is_class and inner):
            return self
        return self.outer.find(name, inner=True) if self.outer else None

    def word(self, name: str) -> str:
        scope = self.find(name)
        if scope is None or scope.is_class:
            return name
        if name in scope.imported:
            return scope.imported[name]
        return f"{scope.depth}:{scope.numbers.setdefault(name, len(scope.numbers))}"

    def called(self, node: ast.expr) -> Params:
        """The parameters of the function of this file that a call's `f(...)` or `f[grid](...)` calls, as far as that
        is plain."""
        node = node.value if isinstance(node, ast.Subscript) else node
        scope = self.find(node.id) if isinstance(node, ast.Name) else None
        return scope.functions.get(node.id, {}) if scope is not None and isinstance(node, ast.Name) else {}


def _own(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The nodes of a scope, without those of scopes inside it. Of a comprehension, what binds a name outside of it."""
    for node in body:
        yield node
        if isinstance(node, (*FUNCTIONS, ast.Lambda)):
            defaults = (*node.args.defaults, *filter(None, node.args.kw_defaults))
            inside: Iterable[ast.AST] = [*getattr(node, "decorator_list", ()), *defaults]
        elif isinstance(node, ast.ClassDef):
            inside = [*node.decorator_list, *node.bases, *node.keywords]
        elif isinstance(node, COMPREHENSIONS):
            inside = [found.target for found in ast.walk(node) if isinstance(found, ast.NamedExpr)]
        else:
            inside = ast.iter_child_nodes(node)
        yield from _own(inside)


def _bound(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
        yield node.name
    elif isinstance(node, ast.MatchMapping) and node.rest:
        yield node.rest


def _arguments(node: ast.arguments) -> list[ast.arg]:
    variable = [one for one in (node.vararg, node.kwarg) if one is not None]
    return [*node.posonlyargs, *node.args, *node.kwonlyargs, *variable]


def _params(node: ast.arguments) -> Params:
    return {one.arg: f"parameter {number}" for number, one in enumerate(_arguments(node))}


def _words(node: ast.AST, scope: _Scope, params: Params) -> Iterator[str]:
    """The node's words, in order. `params` are those of a function that strings and keywords here may name."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        kept = [(name, what) for name, what in imported(node, scope.local) if name == "*" or name in scope.bound]
        yield from (f"import {what} {scope.word(name)}" for name, what in kept)
        return
    if isinstance(node, ast.Pass | ast.Global | ast.Nonlocal):
        return
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return
    yield f"({type(node).__name__}"
    if isinstance(node, ast.Name):
        yield scope.word(node.id)
    elif isinstance(node, ast.Constant):
        yield _constant(node.value, params)
    elif isinstance(node, ast.Call):
        named = scope.called(node.func)
        yield from _words(node.func, scope, named)
        yield from _all(node.args, scope, params)
        for keyword in node.keywords:
            yield named.get(keyword.arg or "", params.get(keyword.arg or "", str(keyword.arg)))
            yield from _words(keyword.value, scope, params)
    elif isinstance(node, (*FUNCTIONS, ast.Lambda)):
        yield from _function(node, scope, params)
    elif isinstance(node, COMPREHENSIONS):
        yield from _comprehension(node, scope, params)
    elif isinstance(node, ast.ClassDef):
        yield scope.word(node.name)
        yield from _all([*node.decorator_list, *node.bases, *node.keywords], scope, params)
        yield from _all(node.body, _Scope(node.body, scope, scope.local, is_class=True), {})
    else:
        for name, value in ast.iter_fields(node):
            if name not in LEFT_OUT:
                yield from _field(node, name, value, scope, params)
    yield ")"


def _field(node: ast.AST, name: str, value: object, scope: _Scope, params: Params) -> Iterator[str]:
    if isinstance(value, ast.AST):
        yield f".{name}"
        yield from _words(value, scope, params)
    elif isinstance(value, list):
        if value:
            yield f".{name}"
            yield from _all(value, scope, params)
    elif value is not None:
        yield scope.word(value) if isinstance(value, str) and value in [*_bound(node)] else str(value)


def _all(values: Iterable[object], scope: _Scope, params: Params) -> Iterator[str]:
    for value in values:
        yield from _words(value, scope, params) if isinstance(value, ast.AST) else (str(value),)


def _function(
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, scope: _Scope, params: Params
) -> Iterator[str]:
    own = _arguments(node.args)
    body: list[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else [*node.body]
    inside = _Scope(body, scope, scope.local, names=(one.arg for one in own))
    if not isinstance(node, ast.Lambda):
        yield scope.word(node.name)
        yield from _all(node.decorator_list, scope, _params(node.args))  # which may name them: a kernel's block sizes
        yield from _all(filter(None, [node.returns]), scope, params)
    counts = (len(node.args.posonlyargs), len(node.args.args), len(node.args.kwonlyargs))
    yield f"{counts} {node.args.vararg is not None} {node.args.kwarg is not None}"
    for one in own:
        yield inside.word(one.arg)
        yield from _all(filter(None, [one.annotation]), scope, params)
    yield from _all([*node.args.defaults, *node.args.kw_defaults], scope, params)
    yield from _all(body, inside, {} if not isinstance(node, ast.Lambda) else params)


def _comprehension(
    node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp, scope: _Scope, params: Params
) -> Iterator[str]:
    targets = itertools.chain.from_iterable(ast.walk(one.target) for one in node.generators)
    inside = _Scope((), scope, scope.local, names=(one.id for one in targets if isinstance(one, ast.Name)))
    for number, one in enumerate(node.generators):
        yield f"for {one.is_async}"
        yield from _words(one.iter, scope if number == 0 else inside, params)
        yield from _words(one.target, inside, params)
        yield from _all(one.ifs, inside, params)
    made: Collection[ast.expr] = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
    yield from _all(made, inside, params)


def _constant(value: object, params: Params) -> str:
    if isinstance(value, str):
        return params.get(value) or repr(_plain(value) if "\n" in value.strip() else value)
    return f"{type(value).__name__} {value!r}"
