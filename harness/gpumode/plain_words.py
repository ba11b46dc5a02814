"""A source without a word that GPU MODE's service refuses anywhere in a file, and with the same meaning.

The service refuses every file whose text contains "stream", to keep work off other CUDA streams. So it also refuses a
kernel that asks for the current stream, or a comment. `without_word` changes the text only:
- comments and docstrings: the word becomes "queue";
- the file's own names: renamed, `stream` to `strm`, everywhere in the file;
- attributes: `torch.cuda.Stream` becomes `getattr(torch.cuda, "Str" "eam")`, an assignment `setattr(...)`;
- arguments by keyword: `f(stream=x)` becomes `f(**{"str" "eam": x})`;
- other texts: cut in two parts, which Python joins.

What cannot be changed without a risk stays: imported names, names in a class's body, names in a file that looks names
up by text (globals(), eval), parameters that a call may name in a way that the text does not show, expressions in
f-strings, attributes in a jit function.
"""

import ast
import io
import itertools
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass

from harness.problems.python_text import Import, called, imported

WORD = "stream"
FOUND = re.compile(WORD, re.IGNORECASE)
ALONE = re.compile(rf"(?<![A-Za-z0-9_]){WORD}(s?)(?![A-Za-z0-9_])", re.IGNORECASE)
BY_TEXT = {"globals", "locals", "vars", "eval", "exec"}  # calls that find names by their spelling
RAW_F_STRING = re.compile(r"\b(?:[rR][fF]|[fF][rR])[\"']")
OPENING = re.compile(r"""([A-Za-z]*)("{3}|'{3}|["'])""")  # of a string: its prefix and its quotes
Function = ast.FunctionDef | ast.AsyncFunctionDef
Edit = tuple[int, int, str]  # of a source in bytes: from, to, what stands there then


@dataclass(frozen=True, kw_only=True)
class Changed:
    """The text after the change. `renamed` has the file's own names, old to new. `reworded` are how many comments and
    docstrings changed, `split` how many attributes, arguments and texts."""

    text: str
    renamed: dict[str, str]
    reworded: int
    split: int


def lines_with_word(text: str) -> tuple[int, ...]:
    """The numbers of the lines that contain the word, in any case, from 1."""
    return tuple(number for number, line in enumerate(text.split("\n"), start=1) if FOUND.search(line))


def without_word(text: str) -> Changed:
    """The text without the word, as far as its meaning stays the same. `text` must be Python."""
    if not FOUND.search(text):
        return Changed(text=text, renamed={}, reworded=0, split=0)
    rewriter = _Rewriter(text)
    changed = rewriter.changed()
    ast.parse(changed)  # an assertion: what was Python is Python
    return Changed(text=changed, renamed=rewriter.names, reworded=len(rewriter.prose), split=rewriter.split)


class _Names:
    """What a file defines itself, and under which names that can be."""

    def __init__(self, nodes: list[ast.AST]) -> None:
        self.nodes = nodes
        self.functions = [node for node in nodes if isinstance(node, Function)]
        self.lambdas = [node for node in nodes if isinstance(node, ast.Lambda)]
        self.classes = {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}
        self.parameters = {node.name: _parameters(node) for node in self.functions}

    def renamed(self, text: str) -> dict[str, str]:
        """The new names of those that the file binds itself, and that nothing outside of it knows."""
        nodes = self.nodes
        if any(
            isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in BY_TEXT for node in nodes
        ):
            return {}
        bound = {node.id for node in nodes if isinstance(node, ast.Name) and not _is_read(node)}
        bound |= {node.arg for node in nodes if isinstance(node, ast.arg)}
        bound |= {node.name for node in nodes if isinstance(node, Function | ast.ClassDef)}
        known = {name for node in nodes if isinstance(node, ast.ClassDef) for name in _of_class(node)}
        known |= {name for node in nodes if isinstance(node, Import) for name, _ in imported(node)}
        known |= {name for name in bound if FOUND.search(name) and self._may_be_a_keyword(name)}
        known |= {
            name
            for node in nodes
            if isinstance(node, ast.MatchAs | ast.MatchStar | ast.ExceptHandler) and (name := node.name)
        }
        in_f_strings = (one for node in nodes if isinstance(node, ast.FormattedValue) for one in ast.walk(node))
        known |= {one.id for one in in_f_strings if isinstance(one, ast.Name)}
        words = set(re.findall(r"\w+", text))
        made: dict[str, str] = {}
        for name in sorted(name for name in bound - known if FOUND.search(name)):
            new = FOUND.sub(_shortened, name)
            while new in words:
                new += "_"
            made[name] = new
            words.add(new)
        return made

    def _may_be_a_keyword(self, name: str) -> bool:
        """Whether a call may give a parameter of that name by keyword in a way that the text does not show: to a
        function that has another name by then, or out of a dict."""
        nodes = self.nodes
        taking = [node for node in (*self.functions, *self.lambdas) if name in _keywords(node)]
        if not taking:
            return False
        known = {node.name for node in taking if isinstance(node, Function)}
        known |= {own for own in self.classes if name in self.taken_by(own)}
        calls = [node for node in nodes if isinstance(node, ast.Call)]
        heads = {id(call.func) for call in calls}
        has_more_names = any(
            (isinstance(node, Function) and not all(map(_is_jit_decorator, node.decorator_list)))
            or (isinstance(node, ast.Lambda) and id(node) not in heads)
            for node in taking
        ) or any(
            (isinstance(node, ast.Name) and node.id in known and not (_is_read(node) and id(node) in heads))
            or (isinstance(node, ast.Attribute) and node.attr in known and id(node) not in heads)
            for node in nodes
        )
        for call in calls:
            takes = called(call) in known
            if takes and any(keyword.arg is None for keyword in call.keywords):
                return True
            gives = any(keyword.arg in (name, None) for keyword in call.keywords)
            if has_more_names and gives and not (takes and isinstance(call.func, ast.Name)):
                return True
        return False

    def taken_by(self, name: str) -> set[str]:
        """The parameters of the file's function or class of that name."""
        if name in self.classes:
            inits = [one for one in self.classes[name].body if isinstance(one, Function) and one.name == "__init__"]
            return set[str]().union(*map(_parameters, inits))
        return self.parameters.get(name, set())


class _Rewriter:
    """Collects edits of one text; none overlaps another."""

    def __init__(self, text: str) -> None:
        self.text, self.source = text, text.encode()
        self.lines = self.source.splitlines(keepends=True)  # of bytes: \n, \r and \r\n alone, as Python's parser
        self.starts = list(itertools.accumulate(map(len, self.lines), initial=0))
        nodes = list(ast.walk(ast.parse(text)))
        self.own = _Names(nodes)
        self.names = self.own.renamed(self.text)
        parts = [node for node in nodes if isinstance(node, ast.FormattedValue)]
        inner = {id(node) for part in parts for node in ast.walk(part)}  # format specifications are f-strings, too
        f_strings = [node for node in nodes if isinstance(node, ast.JoinedStr) and id(node) not in inner]
        self.f_strings = [self._range(node) for node in f_strings]
        self.patterns = [self._range(node) for node in nodes if isinstance(node, ast.pattern)]
        self.in_jit = [
            self._range(node) for node in self.own.functions if any(map(_is_jit_decorator, node.decorator_list))
        ]
        self.binds_getattr = any(
            isinstance(node, ast.Name) and node.id == "getattr" and not _is_read(node) for node in nodes
        )
        self.split, self.prose = 0, self._prose()
        self.edits: list[Edit] = [*self.prose]
        for node in nodes:
            self._visit(node)
        for f_string in f_strings:
            self._visit_f_string(f_string)
        self._visit_texts()

    def changed(self) -> str:
        made, at = [], 0
        for start, end, new in sorted(self.edits, key=lambda edit: edit[:2]):
            made += [self.source[at:start], new.encode()]
            at = end
        return b"".join([*made, self.source[at:]]).decode()

    def _visit(self, node: ast.AST) -> None:
        if hasattr(node, "lineno") and self._in(self.f_strings, node):
            return
        match node:
            case ast.Name() if node.id in self.names:
                self._replace(node, self.names[node.id])
            case ast.arg() if node.arg in self.names:
                start = self._at(node)
                self.edits.append((start, start + len(node.arg.encode()), self.names[node.arg]))
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() if node.name in self.names:
                start = self.source.index(node.name.encode(), self._at(node))
                self.edits.append((start, start + len(node.name.encode()), self.names[node.name]))
            case ast.Global() | ast.Nonlocal() if any(name in self.names for name in node.names):
                words = [self.names.get(name, name) for name in node.names]
                self._replace(node, f"{type(node).__name__.lower()} {', '.join(words)}")
            case ast.Attribute() if FOUND.search(node.attr) and isinstance(node.ctx, ast.Load) and self._is_free(node):
                self._begin_attribute("getattr", node)
                self.edits.append((self._dot(node), self._end(node), f", {_in_parts(node.attr)})"))
                self.split += 1
            case ast.Assign(targets=[ast.Attribute() as target]) if FOUND.search(target.attr) and self._is_free(target):
                equals = self.source.index(b"=", self._end(target)) + 1
                wrapped = isinstance(node.value, ast.Tuple | ast.Yield | ast.YieldFrom | ast.Await)
                self._begin_attribute("setattr", target)
                self.edits.append(
                    (self._dot(target), equals, f", {_in_parts(target.attr)}," + (" (" if wrapped else ""))
                )
                self.edits.append((self._end(node), self._end(node), "))" if wrapped else ")"))
                self.split += 1
            case ast.Call():
                for keyword in node.keywords:
                    if keyword.arg and FOUND.search(keyword.arg):
                        self._visit_keyword(node, keyword, keyword.arg)

    def _is_free(self, node: ast.Attribute) -> bool:
        """Whether getattr with the attribute's name means the same there."""
        private = node.attr.startswith("__") and not node.attr.endswith("__")  # Python changes it in a class
        return not private and not self.binds_getattr and not self._in([*self.in_jit, *self.patterns], node)

    def _begin_attribute(self, function: str, node: ast.Attribute) -> None:
        start = self._at(node)
        self.edits.append((start, start, f"{function}("))

    def _dot(self, node: ast.Attribute) -> int:
        value_end = self._end(node.value)
        return value_end + self.source[value_end : self._end(node)].rindex(b".")

    def _visit_keyword(self, call: ast.Call, keyword: ast.keyword, name: str) -> None:
        start, value = self._at(keyword), self._at(keyword.value)
        equals = self.source.index(b"=", start) + 1
        named = call.func.id if isinstance(call.func, ast.Name) else None
        if named is not None and name in self.own.taken_by(named):
            self.edits.append((start, start + len(name.encode()), self.names.get(name, name)))
            return
        reached = {call.func.attr} if isinstance(call.func, ast.Attribute) else set()
        reached |= {one.id for one in call.args if isinstance(one, ast.Name)}
        if any(name in self.own.parameters.get(one, ()) for one in reached) or self._in(self.in_jit, call):
            return  # it may reach a parameter of that name, which has another name by now
        assert value >= equals
        self.edits.append((start, equals, f"**{{{_in_parts(name)}: "))
        self.edits.append((self._end(keyword), self._end(keyword), "}"))
        self.split += 1

    # ---- texts
    def _visit_f_string(self, node: ast.JoinedStr) -> None:
        segment = self.source[slice(*self._range(node))].decode()
        inside = [ast.unparse(part.value) for part in ast.walk(node) if isinstance(part, ast.FormattedValue)]
        if FOUND.search(segment) and not any(map(FOUND.search, inside)) and not RAW_F_STRING.search(segment):
            self._replace(node, FOUND.sub(lambda found: f"\\x{ord(found[0][0]):02x}{found[0][1:]}", segment))
            self.split += 1

    def _visit_texts(self) -> None:
        edited = [(start, end) for start, end, _ in self.prose]
        for kind, token, start in self._tokens():
            if kind != tokenize.STRING or not FOUND.search(token):
                continue
            opening = OPENING.match(token)
            assert opening is not None
            prefix, quote = opening.groups()
            taken = [*edited, *self.f_strings, *self.in_jit]
            if "f" in prefix.lower() or any(begin <= start < end for begin, end in taken):
                continue
            cut = FOUND.sub(lambda found: f"{found[0][:3]}{quote} {prefix}{quote}{found[0][3:]}", token)  # noqa: B023
            self.edits.append((start, start + len(token.encode()), cut))
            self.split += 1

    def _prose(self) -> list[Edit]:
        """Comments, and texts that stand alone."""
        texts = [
            self._range(node)
            for node in self.own.nodes
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        ]
        found = []
        for kind, token, start in self._tokens():
            alone = kind == tokenize.STRING and any(begin <= start < end for begin, end in texts)
            if FOUND.search(token) and (kind == tokenize.COMMENT or alone):
                found.append((start, start + len(token.encode()), self._reworded(token)))
        return found

    def _reworded(self, text: str) -> str:
        text = re.sub(
            r"\w+", lambda word: self.names.get(word[0], word[0]) if not ALONE.fullmatch(word[0]) else word[0], text
        )
        text = ALONE.sub(lambda word: ("Queue" if word[0][0].isupper() else "queue") + word[1], text)
        return FOUND.sub(_shortened, text)

    # ---- places
    def _tokens(self) -> Iterator[tuple[int, str, int]]:
        for token in tokenize.generate_tokens(io.StringIO(self.text, newline="").readline):
            row, column = token.start
            if row <= len(self.lines):
                nbytes = len(self.lines[row - 1].decode()[:column].encode())
                yield token.type, token.string, self.starts[row - 1] + nbytes

    def _replace(self, node: ast.AST, text: str) -> None:
        self.edits.append((*self._range(node), text))

    def _at(self, node: ast.AST) -> int:
        return self.starts[getattr(node, "lineno", 1) - 1] + int(getattr(node, "col_offset", 0))

    def _end(self, node: ast.AST) -> int:
        return self.starts[getattr(node, "end_lineno", 1) - 1] + int(getattr(node, "end_col_offset", 0))

    def _range(self, node: ast.AST) -> tuple[int, int]:
        return self._at(node), self._end(node)

    def _in(self, ranges: list[tuple[int, int]], node: ast.AST) -> bool:
        return any(start <= self._at(node) < end for start, end in ranges)


def _shortened(found: "re.Match[str]") -> str:
    """`strm`, in the same case."""
    return found[0][:3] + found[0][5]


def _in_parts(name: str) -> str:
    """The name as a text that Python joins out of parts."""
    return FOUND.sub(lambda found: f'{found[0][:3]}" "{found[0][3:]}', f'"{name}"')


def _is_read(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Load)


def _parameters(node: Function | ast.Lambda) -> set[str]:
    return {one.arg for one in node.args.posonlyargs} | _keywords(node)


def _keywords(node: Function | ast.Lambda) -> set[str]:
    """The parameters that a call can name."""
    return {one.arg for one in (*node.args.args, *node.args.kwonlyargs)}


def _of_class(node: ast.ClassDef) -> Iterator[str]:
    """The names that stand in a class's body, which are attributes."""
    nodes: list[ast.AST] = list(node.body)
    for one in nodes:
        if isinstance(one, Function | ast.ClassDef):
            yield one.name
        elif isinstance(one, ast.Name) and not _is_read(one):
            yield one.id
        elif not isinstance(one, ast.Lambda):
            nodes += ast.iter_child_nodes(one)


def _is_jit_decorator(node: ast.expr) -> bool:
    return "jit" in ast.unparse(node)
