"""runs/: a folder for each evaluation, with the full report, what the ranks printed, the sources that ran, and the
traces of a run in profile mode; and runs/sources/, where each source lies once.

A source is runs/sources/<sha256>/: submission.py, its local modules, and modules.json with their names in the order in
which the sha256 goes over them. So what is there can always be checked against its own name, and is, whenever it is
read. Files of a run's folder are hard links to it (copies where the file system has none), so that runs of one source
take no room for it, and either folder may be deleted. They are read-only, since both names are one file.
"""

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path, PurePosixPath

from harness.board import report_json
from harness.board.entries import Board, Entry, Group, Judged, Standing
from harness.board.judgements import code_of, problem_version
from harness.core.checkout import Checkout, shown
from harness.core.decode import DecodeError, decode
from harness.core.errors import HarnessError, os_error_as
from harness.core.files import read_text, replace_file
from harness.core.records import EvalReport, Module, Submission
from harness.problems.shape_file import find
from harness.problems.submission import digest, read_submission

FOLDER = "runs"
SOURCES = "sources"
MAIN = "submission.py"
ORDER = "modules.json"
BESIDE = "files"  # the folder of files that are no modules of Python


class SourceError(HarnessError):
    """A stored source is missing, or is not what its sha256 says."""


def store(report: EvalReport, root: Path) -> Path:
    """Writes runs/<run id>/ and returns it. The source comes first and the report last, so a folder that has one is
    whole. Raises HarnessError where nothing can be written."""
    folder = root / FOLDER / report.run_id
    next_ = "nothing was recorded: make room or check rights there, then evaluate again"
    with os_error_as(HarnessError, f"{folder} cannot be written", next_):
        source = store_source(report.submission, root)
        folder.mkdir(parents=True, exist_ok=True)  # traces may be there already
        for name in _files(report.submission):
            _link(source / name, folder / name)
        for rank, text in report.logs.items():
            (folder / f"{rank.replace(' ', '-')}.log").write_text(text, encoding="utf-8", errors="replace")
        text = json.dumps(report_json.to_json(report), indent=2) + "\n"
        replace_file(folder / "report.json", text.encode())
    return folder


def store_source(submission: Submission, root: Path) -> Path:
    """Writes runs/sources/<sha256>/ unless it is there and intact, and returns it. A damaged one is replaced. Raises
    OSError where nothing can be written; nothing is left half-written then."""
    folder = root / FOLDER / SOURCES / submission.sha256
    with contextlib.suppress(SourceError):
        _read(folder, submission.sha256, submission.name)
        os.utime(folder)  # in use, so that `prune` leaves it
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{submission.sha256[:16]}.", dir=folder.parent))
    aside = scratch.with_suffix(".altered")
    try:
        scratch.chmod(0o755)
        for name, data in source_files(submission).items():
            path = scratch / name
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(path, data)
            if name != ORDER:
                path.chmod(0o444)
        if not _renamed(scratch, folder):
            with contextlib.suppress(SourceError):
                _read(folder, submission.sha256, submission.name)
                return folder  # another evaluation of the same source was first
            with contextlib.suppress(FileNotFoundError):
                folder.rename(aside)
            _renamed(scratch, folder)
    finally:
        for left in (scratch, aside):
            shutil.rmtree(left, ignore_errors=True)
    return folder


def load_source(sha256: str, name: str, root: Path, run_id: str = "") -> Submission:
    """The stored source of that sha256, as the submission `name`. Where runs/sources/ does not have it, the file `name`
    will do if it still is that source, byte for byte, or else the folder of `run_id`, which an older harness left.

    Raises SourceError where there is none of them, or where what is stored was altered; the message says which.
    """
    folder = root / FOLDER / SOURCES / sha256
    if folder.exists():
        return _read(folder, sha256, name)
    with contextlib.suppress(HarnessError):
        found = read_submission(root / name, root)
        if found.sha256 == sha256:
            return found
    with contextlib.suppress(HarnessError, OSError):
        found = _of_run(run_id, root)
        if found.sha256 == sha256:
            return replace(found, name=name)
    raise SourceError(
        f"the source of {name} with sha256 {sha256[:12]}... is not kept: {shown(folder, root)} is missing, and the "
        "file has changed or is gone; evaluate the file as it is now, or restore the folder"
    )


def has_source(sha256: str, name: str, root: Path, run_id: str = "") -> bool:
    try:
        load_source(sha256, name, root, run_id)
    except SourceError:
        return False
    return True


def with_source(report: EvalReport, root: Path) -> EvalReport:
    """A report that was read, with its submission's source where that is kept."""
    with contextlib.suppress(SourceError):
        submission = report.submission
        found = load_source(submission.sha256, submission.name, root, report.run_id)
        return replace(report, submission=replace(found, path=submission.path, title=submission.title))
    return report


def with_code(found: Board, root: Path) -> Board:
    """The board with what older harnesses did not record: the `code` of entries whose source is kept."""

    def filled(one: Entry) -> Entry:
        if one.code is None:
            with contextlib.suppress(SourceError):
                return replace(one, code=code_of(load_source(one.sha256, one.file, root, one.run_id)))
        return one

    return replace(found, entries=tuple(map(filled, found.entries)))


def standings(found: Board, root: Path) -> dict[str, Standing]:
    """The standing of each entry in this checkout, held or not, by run id."""
    versions: dict[Group, str | None] = {}
    for one in found.judged:
        if one.group not in versions:
            versions[one.group] = _version(one, root)
    return {
        one.run_id: Standing(
            reproducible=has_source(one.sha256, one.file, root, one.run_id),
            stale=None not in (one.problem_version, versions[one.group]) and one.problem_version != versions[one.group],
        )
        for one in found.judged
    }


def _version(one: Judged, root: Path) -> str | None:
    """The problem version of today; None where the problem, the suite or the split is not there any more."""
    try:
        problem = find(one.problem, Checkout(root))
        return problem_version(problem, problem.with_world_size(problem.suite(one.suite), one.world_size), one.device)
    except HarnessError:
        return None


def source_files(submission: Submission) -> dict[str, bytes]:
    """The files of a stored source by their path in its folder, which `source_from` reads."""
    order = json.dumps([module.name for module in submission.modules]) + "\n"
    return {name: text.encode() for name, text in _files(submission).items()} | {ORDER: order.encode()}


def source_from(read: Callable[[str], str], sha256: str, name: str, where: str, next_: str) -> Submission:
    """The source whose files `read` gives by their path, as the submission `name`. `where` is its folder for messages
    and `next_` what to do about a bad one. Raises SourceError where it is not whole, or not what its sha256 says."""
    try:
        order = decode(tuple[str, ...], json.loads(read(ORDER)))
        modules = tuple(
            Module(name=module, file=f"{where}/{file}", source=read(file))
            for module, file in ((module, _file(module)) for module in order)
        )
        source = read(MAIN)
    except (OSError, ValueError, DecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise SourceError(f"{where} is not whole: {reason}; {next_}") from None
    if digest(source, modules) != sha256:
        raise SourceError(f"{where} was altered: its content has another sha256 than its name says; {next_}")
    return Submission(path=f"{where}/{MAIN}", name=name, source=source, sha256=sha256, modules=modules)


def _read(folder: Path, sha256: str, name: str) -> Submission:
    found = source_from(
        lambda file: read_text(folder / file),
        sha256,
        name,
        f"{FOLDER}/{SOURCES}/{sha256}",
        f"restore it, or delete it and evaluate {name} again",
    )
    return replace(found, path=str(folder / MAIN))


def _of_run(run_id: str, root: Path) -> Submission:
    """The submission's files in a run's folder, laid out as they were below submissions/, so that its modules are found
    in the order in which they were. Raises SourceError where there is no such run."""
    folder = root / FOLDER / run_id
    if Path(run_id).name != run_id or not (folder / "report.json").is_file():
        raise SourceError(f"no run '{run_id}' in {FOLDER}/; `python -m harness history` lists what there is")
    with tempfile.TemporaryDirectory() as scratch:
        top = Path(scratch).resolve()
        (top / "reference").symlink_to(root / "reference")  # names there are not the submission's
        main = top / "submissions" / "run" / MAIN
        shutil.copytree(folder, main.parent, ignore=shutil.ignore_patterns("*.json", "*.log"))
        if (main.parent / "common").is_dir():
            (main.parent / "common").rename(main.parent.parent / "common")
        return read_submission(main, top)


def _files(submission: Submission) -> dict[str, str]:
    """The submission's files by their path below its folder."""
    return {MAIN: submission.source} | {_file(module.name): module.source for module in submission.modules}


def _file(module: str) -> str:
    """The path of the module of that dotted name, or a path that begins with `./`. ValueError for others."""
    if module.startswith("./"):
        path = PurePosixPath(module)
        if ".." in path.parts or not path.parts:
            raise ValueError(f"'{module}' is no path below a folder")
        return f"{BESIDE}/{path}"
    if not all(part.isidentifier() for part in module.split(".")):
        raise ValueError(f"'{module}' is no module's name")
    return module.replace(".", "/") + ".py"


def _renamed(scratch: Path, folder: Path) -> bool:
    """Whether `scratch` is `folder` now; False where there is one already."""
    try:
        scratch.rename(folder)
    except OSError:
        if folder.is_dir():  # ENOTEMPTY or EEXIST, as the file system likes
            return False
        raise
    return True


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())  # on the disk before the leaderboard speaks of it


def _link(source: Path, target: Path) -> None:
    """`target` becomes another name of the file `source`, or a copy where the file system knows no such thing."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        target.write_bytes(source.read_bytes())


def store_traces(report: EvalReport, folder: Path) -> EvalReport:
    """Writes each profiled case's merged trace to `folder`/trace-<index>.json, and a vendor's files to
    `folder`/profile-<index>-<name>; the report that says where. HarnessError where that fails."""
    results = list(report.results)
    for index, result in enumerate(results):
        if result.profile is None:
            continue
        files = {f"profile-{index}-{name}": data for name, data in result.profile.files.items()}
        path = folder / f"trace-{index}.json"
        trace = {path.name: result.profile.trace_json.encode()} if result.profile.trace_json else {}
        for name, data in (files | trace).items():
            with os_error_as(
                HarnessError, f"{folder / name} cannot be written", "name another folder with --trace DIR"
            ):
                folder.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(data)
        stored = replace(
            result.profile,
            trace=str(path.resolve()) if trace else None,
            reports=tuple(str((folder / name).resolve()) for name in files),
        )
        results[index] = replace(result, profile=stored)
    return replace(report, results=tuple(results))
