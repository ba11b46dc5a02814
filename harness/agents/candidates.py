"""Candidates: the submissions of a population, read from files, folders or JSON lines, and what is known of them unrun.

Python is parsed and nothing of it runs. Candidates that do the same have the same `code` (problems.same_code).
"""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.core.checkout import Checkout
from harness.core.errors import BadFileError, BadSubmissionError, UsageError, os_error_as
from harness.core.json_file import record_if_any
from harness.core.records import Submission
from harness.kinds.registry import read_submission, submissions_below
from harness.problems.problem import Problem
from harness.problems.same_code import imports, same_code
from harness.problems.submission import SUFFIXES, digest

ID_CHARS = 200
JSONL = (".jsonl", ".ndjson")


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A submission under the caller's name for it. `why` says why it cannot be one: then it has no text of ours."""

    id: str
    submission: Submission
    code: str
    why: BadSubmissionError | None = None


def read_all(places: Sequence[Path], problem: Problem, checkout: Checkout) -> list[Candidate]:
    """The candidates in these files, folders (all submissions in and below them) and JSONL files, in order. Raises
    UsageError for a place without one and for two candidates of one id, BadFileError for a line that is none."""
    found: list[Candidate] = []
    for place in places:
        if place.is_dir():
            paths = submissions_below(place, problem, suffixes_of(problem))
            found += [of_file(path, _name_in(place, path), problem, checkout) for path in paths]
        elif place.suffix in JSONL:
            found += [of_text(text, name, problem, checkout) for name, text in lines_of(place)]
        else:
            found.append(of_file(place, str(place), problem, checkout))
    if not found:
        raise UsageError(
            f"{' '.join(map(str, places))}: no submission there; name files, a folder of them, or a .jsonl"
        )
    check_ids(found)
    return found


def _name_in(place: Path, path: Path) -> str:
    """What a candidate of that folder is called."""
    return str(place) if path == place else str(path.relative_to(place))


def suffixes_of(problem: Problem) -> tuple[str, ...]:
    """What the names of its submissions end with."""
    return (*SUFFIXES[problem.lang], *problem.also)


def check_ids(candidates: Iterable[Candidate]) -> None:
    """Raises UsageError for two candidates of one id."""
    seen: set[str] = set()
    for one in candidates:
        if one.id in seen:
            raise UsageError(f"two candidates are called '{one.id}'; give each an id of its own")
        seen.add(one.id)


def of_file(path: Path, name: str, problem: Problem, checkout: Checkout) -> Candidate:
    """The candidate in that file, or that is that folder. Raises UsageError where there is no such file."""
    try:
        submission = read_submission(problem, path, checkout)
    except BadSubmissionError as error:
        return _none(name, path.read_bytes().decode(errors="replace") if path.is_file() else "", error)
    return Candidate(id=name, submission=submission, code=same_code(submission.source, submission.modules))


def of_text(text: str, name: str, problem: Problem, checkout: Checkout) -> Candidate:
    """The candidate with that text, which needs no file. It has no local modules. Half of a surrogate pair, which JSON
    and models' cut answers may have, is no character: it becomes a question mark."""
    text = text.encode(errors="replace").decode()
    with tempfile.TemporaryDirectory(prefix="kernel-eval-text-") as folder:
        path = Path(folder, "submission" + SUFFIXES[problem.lang][0])
        path.write_bytes(text.encode())
        try:
            submission = read_submission(problem, path, checkout)
        except BadSubmissionError as error:
            return _none(name, text, BadSubmissionError(str(error).replace(str(path), name)))
    submission = replace(submission, path=name, name=name)
    return Candidate(id=name, submission=submission, code=same_code(submission.source, submission.modules))


def _none(name: str, text: str, error: BadSubmissionError) -> Candidate:
    submission = Submission(path=name, name=name, source="", sha256=digest(text, ()))
    return Candidate(id=name, submission=submission, code=submission.sha256[:16], why=error)


def lines_of(path: Path) -> Iterator[tuple[str, str]]:
    """Id and text of each line: `{"id": "7", "source": "..."}`; `code` is taken for `source`, and the line's number
    where there is no id. Raises UsageError where the file cannot be read, BadFileError with the line's place."""
    with os_error_as(UsageError, f"{path}: cannot be read", "name another file"):
        lines = path.read_text(encoding="utf-8-sig").split("\n")  # not splitlines: texts may have U+2028 in them
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield _line(line, number, path)


def _line(line: str, number: int, path: Path) -> tuple[str, str]:
    value = record_if_any(dict[str, Any], line)
    if value is None:
        raise BadFileError(f'{path}:{number}: expected {{"id": "...", "source": "..."}}')
    name, text = value.get("id", number), value.get("source", value.get("code"))
    name = str(name) if isinstance(name, int) and not isinstance(name, bool) else name
    if not isinstance(text, str) or not isinstance(name, str):
        raise BadFileError(f"{path}:{number}: expected texts under `id` and `source`")
    if not 1 <= len(name) <= ID_CHARS or not name.isprintable():
        raise BadFileError(f"{path}:{number}: expected an id of 1 to {ID_CHARS} printable characters")
    return name, text


def firsts(candidates: Iterable[Candidate]) -> dict[str, str]:
    """For each candidate's id, the id of the first candidate with the same code and the same imports: one that nothing
    uses may still fail, and whoever takes it out has made another candidate."""
    by_code: dict[tuple[str, frozenset[str]], str] = {}
    return {one.id: by_code.setdefault((one.code, _imports(one.submission)), one.id) for one in candidates}


def _imports(submission: Submission) -> frozenset[str]:
    return frozenset().union(*map(imports, (submission.source, *(module.source for module in submission.modules))))
