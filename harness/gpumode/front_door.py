"""What GPU MODE's service checks of a file before it runs, and a file rewritten so that it passes.

After gpu-mode/kernelbot src/kernelbot/api/api_utils.py and src/libkernelbot/submission.py, and gpu-mode/popcorn-cli
src/utils/mod.rs (read 2026-11). Nothing is evaluated. What the service decides by its own state (deadlines, limits of
how often, rude names) is not known here.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from harness.core.errors import BadSubmissionError, UsageError
from harness.core.words import count_text
from harness.gpumode.plain_words import WORD, lines_with_word, without_word
from harness.judging.scoring import GPU_MODE, SCORINGS
from harness.problems.problem import Problem
from harness.problems.python_text import UNREADABLE, bound, called
from harness.problems.submission import MAX_BYTES, SUFFIXES, directives

SHOWN_LINES = 6
HEADER = re.compile(r"#!POPCORN\s")
NOTE = "# Merged: GPU MODE refuses files with a certain word, so names that contain it are written in two parts."
OWN_QUEUE = "# It makes a GPU queue of its own beside the current one."
MAKES_QUEUE = {"Stream", "ExternalStream"}
CREATES = re.compile(r"\b(?:cuda|hip|cu)StreamCreate", re.IGNORECASE)
CATCHES = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}


@dataclass(frozen=True, kw_only=True)
class Objection:
    """A fault of a file and how to mend it. `refused`: GPU MODE does not take or cannot import the file; otherwise it
    is a warning. `line` is None where it concerns the whole file."""

    text: str
    refused: bool = True
    line: int | None = None


def check_taken(problem: Problem, name: str) -> None:
    """Raises UsageError if GPU MODE has no place for the problem's submissions, because it is of another contest."""
    contest = SCORINGS[problem.ranking_by].contest
    if contest != GPU_MODE:
        raise UsageError(
            f"{problem.name} is of {contest}, so GPU MODE takes no submission for it and there is nothing to merge: "
            f"hand on {name} as it is; of a folder, all files with its build.sh"
        )


def findings(source: str, name: str, problem: Problem) -> tuple[Objection, ...]:
    """All that GPU MODE's service would find in the file `name`, by line. Of CUDA C++ the text alone is looked at."""
    found = [*_file(source, name, problem.lang), *_directives(source, problem), *_word(source, problem.lang)]
    if problem.lang == "py":
        try:
            tree = ast.parse(source)
        except UNREADABLE as error:
            return (Objection(line=getattr(error, "lineno", None), text=f"Python cannot read it: {error}"),)
        found += [*_entry_point(tree), *_imports(tree, problem), *_own_queue(source, tree)]
    return tuple(sorted(found, key=lambda one: (one.line or 0, one.text)))


# ---- the checks ------------------------------------------------------------------------------------------------------
def _file(source: str, name: str, lang: str) -> Iterator[Objection]:
    if not name.endswith(SUFFIXES[lang]):
        yield Objection(text=f"its name does not end with {' or '.join(SUFFIXES[lang])}; rename it")
    nbytes = len(source.encode())
    if not source:
        yield Objection(text="the file is empty")
    if nbytes > MAX_BYTES:
        yield Objection(
            text=f"{nbytes} bytes; at most {MAX_BYTES} are taken: compute its data instead of writing them out"
        )


def _entry_point(tree: ast.Module) -> Iterator[Objection]:
    if "custom_kernel" not in bound(tree):
        yield Objection(text="no custom_kernel at its top level; define `def custom_kernel(data)`")


def _directives(source: str, problem: Problem) -> Iterator[Objection]:
    try:
        said = directives(source, "the file")
    except BadSubmissionError as error:
        yield Objection(text=str(error))
        return
    if said.leaderboard is None:
        line = "#!POPCORN leaderboard NAME" if problem.is_upstream else f"#!POPCORN leaderboard {problem.leaderboard}"
        yield Objection(
            text=f"no leaderboard is named; begin the file with `{line}`, or give `--leaderboard` to popcorn-cli",
            refused=False,
        )
    elif said.leaderboard != problem.leaderboard and not problem.is_upstream:
        yield Objection(
            text=f"its header names the leaderboard {said.leaderboard}; "
            f"write `#!POPCORN leaderboard {problem.leaderboard}`"
        )
    known = ", ".join(problem.gpus)
    for gpu in said.gpus if problem.gpus else ():
        if gpu not in problem.gpus:
            fitting = _meant(gpu, problem.gpus)
            advice = f"write `#!POPCORN gpus {fitting}`" if fitting else "choose one of them"
            yield Objection(text=f"its header names the GPU {gpu}; the leaderboard takes {known}: {advice}")
    if said.gpus and not problem.gpus:
        yield Objection(
            text=f"whether the leaderboard takes {' and '.join(said.gpus)} is not known here", refused=False
        )
    if len(said.gpus) > 1:
        yield Objection(text=f"popcorn-cli submits to the first GPU alone, {said.gpus[0]}", refused=False)
    lines = source.split("\n")
    header = next((number for number, line in enumerate(lines) if not line.startswith(("#", "//"))), len(lines))
    for number, line in enumerate(lines[header:], start=header + 1):
        if re.match(r"(?:#|//)!POPCORN\s", line):
            yield Objection(
                line=number,
                text="a `!POPCORN` line below the first comment lines: popcorn-cli reads it, the service does not; "
                "move it to the top, or remove it",
            )


def _word(source: str, lang: str) -> Iterator[Objection]:
    if lines := lines_with_word(source):
        shown = ", ".join(map(str, lines[:SHOWN_LINES])) + (", ..." if len(lines) > SHOWN_LINES else "")
        cure = "`make merge` writes the file without it" if lang == "py" else "write it in another way"
        yield Objection(
            line=lines[0],
            text=f"the word `{WORD}` stands in {count_text(len(lines), 'line')} ({shown}); a file with it is refused "
            f"as work on another one, comments and names too; {cure}",
        )


def _imports(tree: ast.Module, problem: Problem) -> Iterator[Objection]:
    """Names imported from the problem's files exist in GPU MODE's, and no other file is needed."""
    known, attempted = importable(problem), _attempted(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or node in attempted:
            continue
        module = node.module or ""
        if node.level or module.partition(".")[0] == "common":
            yield Objection(line=node.lineno, text=f"`{ast.unparse(node)}`: one file is taken; `make merge` writes it")
        for name in (alias.name for alias in node.names):
            names = known.get(module)
            if node.level or names is None or name == "*" or name in names:
                continue
            other = next((one for one, others in known.items() if others and name in others), None)
            advice = f"write `from {other} import {name}`" if other else f"it defines {', '.join(sorted(names))}"
            yield Objection(line=node.lineno, text=f"GPU MODE's {module}.py of this problem has no {name}; {advice}")


def _own_queue(source: str, tree: ast.Module) -> Iterator[Objection]:
    for line in own_queue_lines(source, tree):
        yield Objection(
            line=line,
            text="makes a queue of the GPU beside the current one, which GPU MODE's rules do not allow and for which a "
            "submission may be disqualified; ask them before you hand it in, or leave it out",
            refused=False,
        )


def own_queue_lines(source: str, tree: ast.Module) -> list[int]:
    """Where a file makes a GPU queue of its own, also by getattr with the name in parts."""
    lines = {number for number, line in enumerate(source.split("\n"), start=1) if CREATES.search(line)}
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    return sorted(lines | {call.lineno for call in calls if _called(call) in MAKES_QUEUE})


def _called(call: ast.Call) -> object:
    match call.func:
        case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=value), *_]):
            return value
    return called(call)


def importable(problem: Problem) -> Mapping[str, frozenset[str] | None]:
    """The names in each of the problem's files as GPU MODE stages them, by module; None where they are not known."""
    here = {module: names for module, names in _here(problem).items() if module != "submission"}
    found = here if problem.is_upstream else dict.fromkeys(here)
    return found | {module: frozenset(names) for module, names in problem.upstream.items()}


def _defined(data: bytes) -> frozenset[str] | None:
    try:
        names = bound(ast.parse(data))
    except UNREADABLE:
        return None
    return None if "*" in names else frozenset(names)


def _attempted(tree: ast.Module) -> set[ast.AST]:
    """The statements in a `try` that catches a failing import."""
    found: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Try) and any(_catches(handler) for handler in node.handlers):
            found.update(inner for statement in node.body for inner in ast.walk(statement))
    return found


def _catches(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    return any(isinstance(node, ast.Name) and node.id in CATCHES for node in ast.walk(handler.type))


def _meant(gpu: str, known: Iterable[str]) -> str | None:
    """The only known GPU that the name can mean: in another case, or without how many there are (MI300 for MI300x8)."""
    fitting = [name for name in known if gpu.lower() in (name.lower(), re.sub(r"x\d+$", "", name.lower()))]
    return fitting[0] if len(fitting) == 1 else None


# ---- a file that passes ----------------------------------------------------------------------------------------------
def rewritten(source: str, problem: Problem) -> tuple[str, tuple[str, ...]]:
    """The program as GPU MODE takes it, as far as possible, and the changes."""
    try:
        tree = ast.parse(source)
    except UNREADABLE:
        return source, ()
    notes: list[str] = []
    text = _with_gpus(source, problem, notes)
    text = _with_imports(text, problem, notes)
    made = without_word(text)
    if made.text != text:
        told = []
        if made.reworded:
            told.append(f"{count_text(made.reworded, 'comment or docstring', 'comments and docstrings')} reworded")
        if made.renamed:
            told.append(", ".join(f"{old} is {new}" for old, new in made.renamed.items()))
        if made.split:
            told.append(f"{count_text(made.split, 'name or text', 'names and texts')} written in two parts")
        notes.append(f"the word `{WORD}`: {'; '.join(told)}")
        text = made.text
        if made.split:
            own = own_queue_lines(source, tree)
            text = _below_header(text, f"{NOTE}\n{OWN_QUEUE}" if own else NOTE)
    return text, tuple(notes)


def _with_gpus(source: str, problem: Problem, notes: list[str]) -> str:
    """The GPUs of the header under the leaderboard's names, where it is clear which are meant."""
    try:
        gpus = directives(source).gpus
    except BadSubmissionError:
        return source
    names = [gpu if gpu in problem.gpus else _meant(gpu, problem.gpus) or gpu for gpu in gpus]
    if names == list(gpus):
        return source
    lines = source.split("\n")
    for index, line in enumerate(lines):
        words = line.split()
        if words[:1] == ["#!POPCORN"] and len(words) > 1 and words[1].lower() in ("gpu", "gpus"):
            lines[index] = " ".join([*words[:2], *dict.fromkeys(names)])
            break
    notes.append(f"GPUs: {' '.join(gpus)} is {' '.join(dict.fromkeys(names))} on {problem.leaderboard}")
    return "\n".join(lines)


def _with_imports(source: str, problem: Problem, notes: list[str]) -> str:
    """Names imported from those of the problem's files that have them, here as well as at GPU MODE."""
    here, there = _here(problem), importable(problem)
    lines = source.split("\n")
    statements = [node for node in ast.parse(source).body if isinstance(node, ast.ImportFrom)]
    for node in reversed(statements):
        names = there.get(node.module or "")
        if names is None or node.level:
            continue
        moved: dict[str, list[ast.alias]] = {}
        for alias in node.names:
            other = next((one for one, others in there.items() if others and alias.name in others), None)
            if alias.name not in names and other is not None and alias.name in (here.get(other) or ()):
                moved.setdefault(other, []).append(alias)
        if not moved:
            continue
        gone = {alias for those in moved.values() for alias in those}
        kept = [alias for alias in node.names if alias not in gone]
        made = [ast.ImportFrom(module=module, names=those, level=0) for module, those in moved.items()]
        made += [ast.ImportFrom(module=node.module, names=kept, level=0)] if kept else []
        last = node.end_lineno or node.lineno
        before = lines[node.lineno - 1].encode()[: node.col_offset].decode()
        behind = lines[last - 1].encode()[node.end_col_offset :].decode()
        apart = "; " if (before + behind).strip() else "\n"  # statements that share its line stay there
        lines[node.lineno - 1 : last] = [before + apart.join(map(ast.unparse, made)) + behind]
        for module, those in moved.items():
            what = ", ".join(alias.name for alias in those)
            notes.insert(0, f"imports: {what} from {module}, where GPU MODE has it, not from {node.module}")
    return "\n".join(lines)


def _here(problem: Problem) -> dict[str, frozenset[str] | None]:
    return {file.removesuffix(".py"): _defined(data) for file, data in problem.staged().items() if file.endswith(".py")}


def _below_header(text: str, note: str) -> str:
    """The text with the note below the `#!POPCORN` lines that it begins with."""
    lines = text.split("\n")
    at = next((number for number, line in enumerate(lines) if not HEADER.match(line)), 0)
    return "\n".join([*lines[:at], note, *lines[at:]])
