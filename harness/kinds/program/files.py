"""A solver's files: one Python file, one file with a shebang, one executable, or a folder with a build.sh.

A Submission is text. An executable is kept as base64 behind a first line; a folder as its build.sh, with every other
file as a module whose name is its path behind `./`.
"""

import ast
import base64
import os
import stat
import sys
from pathlib import Path

from harness.core.errors import BadSubmissionError, UsageError, os_error_as
from harness.core.files import read_bytes, write_files
from harness.core.records import Module, Submission
from harness.problems.submission import MAX_BYTES, digest, inside, parsed, shown_path, without_nul

ENCODED = "#!base64 of an executable\n"
BUILD = "build.sh"
PROGRAM, SCRIPT = "submission", "submission.py"  # what is run, in this order of preference
HERE = "./"
ELF = b"\x7fELF"
IGNORED = ("__pycache__", ".git")
MOST_FILES = 10_000  # and folders, of a submission


def read_solver(path: Path, root: Path) -> Submission:
    """The submission at that path. Raises UsageError where there is none, BadSubmissionError if it cannot be run."""
    name = shown_path(path, root)
    if not os.path.exists(path):
        raise UsageError(f"no submission {name}; write it, or name another file")
    if path.is_dir():
        return _folder(path, name)
    source = _program(path, name)
    return Submission(path=str(path), name=name, source=source, sha256=digest(source, ()))


def _program(path: Path, name: str) -> str:
    data = _bytes(path, name)
    if data.startswith(ELF):
        return ENCODED + base64.encodebytes(data).decode()
    text = _text(data, name)
    if path.suffix != ".py" and not text.startswith("#!/"):
        raise BadSubmissionError(
            f"{name}: neither Python (.py) nor an executable, and without a first line `#!/path/of/an/interpreter`"
        )
    if not text.startswith("#!"):
        parsed(text.removeprefix("\ufeff"), name, ast.parse)
    return text


def _folder(path: Path, name: str) -> Submission:
    files = _files_below(path, name)
    build = path / BUILD
    if build not in files:
        raise BadSubmissionError(
            f"{name}: a folder needs a {BUILD}, which makes ./{PROGRAM} or {SCRIPT}; where there is nothing to build, "
            "name the file"
        )
    source = _text(_bytes(build, f"{name}/{BUILD}"), f"{name}/{BUILD}")
    modules = tuple(
        Module(
            name=HERE + str(file.relative_to(path)),
            file=f"{name}/{file.relative_to(path)}",
            source=_text(_bytes(file, f"{name}/{file.name}"), f"{name}/{file.relative_to(path)}"),
        )
        for file in files
        if file != build
    )
    if not modules:
        raise BadSubmissionError(f"{name}: the folder has nothing beside its {BUILD}")
    return Submission(path=str(path), name=name, source=source, sha256=digest(source, modules), modules=modules)


def _files_below(folder: Path, name: str) -> list[Path]:
    """The folder's files by their paths, read by nobody yet. Raises BadSubmissionError where they are too large or too
    many, or one is a link out of the folder."""
    found, nbytes, todo = [], 0, [folder]
    while todo:
        for path in todo.pop().iterdir():
            if path.name in IGNORED:
                continue
            if path.is_dir() and not path.is_symlink():
                todo.append(path)
            elif path.is_file():
                try:
                    found.append(inside(path, folder))
                except ValueError as error:
                    raise BadSubmissionError(f"{name}: {error}") from None
                nbytes += path.stat().st_size
        if nbytes > MAX_BYTES or len(found) + len(todo) > MOST_FILES:
            raise BadSubmissionError(
                f"{name}: more than {MAX_BYTES} bytes or {MOST_FILES} files; a submission has at most that"
            )
    return sorted(found)


def _bytes(path: Path, name: str) -> bytes:
    with os_error_as(UsageError, f"{name} cannot be read", "check its rights"):
        data = read_bytes(path)
    if len(data) > MAX_BYTES:
        raise BadSubmissionError(f"{name}: {len(data)} bytes; a submission has at most {MAX_BYTES}")
    return data


def _text(data: bytes, name: str) -> str:
    try:
        return without_nul(data.decode(), name)
    except UnicodeDecodeError as error:
        raise BadSubmissionError(f"{name}: not UTF-8 at byte {error.start}; a folder holds sources, as text") from None


def needs_build(submission: Submission) -> bool:
    """Whether it is a folder."""
    return any(module.name.startswith(HERE) for module in submission.modules)


def is_executed(submission: Submission) -> bool:
    """Whether it, or its build, is a program by itself, and no script that Python runs."""
    return needs_build(submission) or submission.source.startswith(("#!/", ENCODED))


def write_solver(submission: Submission, folder: Path) -> None:
    """Writes its files there; each can be executed."""
    main = BUILD if needs_build(submission) else PROGRAM if is_executed(submission) else SCRIPT
    files = {main: _decoded(submission.source)}
    files |= {module.name.removeprefix(HERE): module.source.encode() for module in submission.modules}
    write_files(folder, files)
    for name in files:
        (folder / name).chmod(0o755)


def _decoded(source: str) -> bytes:
    return base64.decodebytes(source[len(ENCODED) :].encode()) if source.startswith(ENCODED) else source.encode()


def command_of(folder: Path) -> tuple[str, ...] | None:
    """The command that runs what lies in the folder, in it; None where there is neither program nor script."""
    program = folder / PROGRAM
    if program.is_file() and program.stat().st_mode & stat.S_IXUSR:
        return (f"./{PROGRAM}",)
    return (sys.executable, SCRIPT) if (folder / SCRIPT).is_file() else None
