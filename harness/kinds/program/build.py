"""Programs made ready to run and run: staged, built once and kept, confined."""

import contextlib
import math
import os
import shutil
import stat
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from harness.core.errors import HarnessError
from harness.core.files import remove, write_files
from harness.core.records import Crashed, Submission
from harness.core.words import TAIL_CHARS
from harness.kinds import staging
from harness.kinds.kind import Plan, SubmissionFailed
from harness.kinds.program.files import BUILD, PROGRAM, SCRIPT, command_of, needs_build, write_solver
from harness.process import answers
from harness.process.compile_cache import COMPILE_S

REFERENCE = "reference.py"
BUILD_BYTES = 64 << 20  # who has less for a build, with a compiler's own files, may have too little
BUILT_BYTES, BUILT_NAMES, BUILT_DEPTH = 1 << 30, 100_000, 64  # of what a build may leave: every run gets a copy
# By the beginning of a staged file's path in its folder, what it is called by its author; the first that fits.
Names = tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class ProgramPlan(Plan):
    """`cores` are those that every program runs on; `runs` is how often a benchmark of each instance is run."""

    cores: tuple[int, ...]
    memory_bytes: int
    runs: dict[str, int]


@dataclass(frozen=True, kw_only=True)
class BuiltProgram:
    """A program that is ready to run: `files` is a folder that each run gets a copy of, `names` what its files are
    called in what it prints."""

    name: str
    files: Path
    command: tuple[str, ...]
    names: Names = (("", ""),)


class Workshop(staging.StagedSession):
    """A session in whose folder programs are built and run. `logs` has the output of builds."""

    plan: ProgramPlan

    def reference(self) -> BuiltProgram:
        files = self.folder / "reference"
        write_files(files, self.plan.problem.staged())
        return BuiltProgram(name="reference", files=files, command=(sys.executable, REFERENCE))

    def side(self, role: str, submission: Submission) -> BuiltProgram:
        """Stages a submission, and builds it unless that of the same sources is there. Raises SubmissionFailed."""
        files = self.folder / role
        kept = self.cache / "built" if role == "candidate" else None  # an opponent's cache is not held
        if needs_build(submission) and kept is not None and kept.is_dir():
            shutil.copytree(kept, files, symlinks=True)
            self.logs["build"] = (self.cache / "build.log").read_text(errors="replace")
        else:
            files.mkdir()
            write_solver(submission, files)
            if needs_build(submission):
                self._build(files, kept, names_of(submission))
        command = command_of(files)
        if command is None:
            log = self.logs.get("build", "")[-TAIL_CHARS:]
            message = f"{BUILD} made neither ./submission nor submission.py"
            raise SubmissionFailed(Crashed(rank=0, message=message, log_tail=log))
        return BuiltProgram(name=submission.name, files=files, command=command, names=names_of(submission))

    def _build(self, files: Path, kept: Path | None, names: Names) -> None:
        """Runs build.sh in the folder, confined; what it made is kept for the next evaluation of these sources. Raises
        SubmissionFailed where it fails, HarnessError where the disk was too full before it began."""
        self.progress.phase("build")
        place = Path(tempfile.mkdtemp(prefix="build-", dir=self.folder))
        free = shutil.disk_usage(place).free
        with self.spending("build"):
            shutil.copytree(files, place / "work")
            # to standard error, of which the end is kept
            ended = self.run(("/bin/sh", "-c", f"exec ./{BUILD} 1>&2"), place, names, COMPILE_S, {})
        self.logs["build"] = ended.stderr
        late = f"had not finished after {COMPILE_S:g} s" if ended.is_late else ""
        why = ended.broke or ended.ended or late or unfit(place / "work")
        if why and free < BUILD_BYTES:
            raise HarnessError(
                f"{BUILD} {why} where no more than {free >> 20} MiB were free, so nobody knows whose fault that is; "
                f"make room in {tempfile.gettempdir()}, or set TMPDIR to a folder elsewhere"
            )
        if why:
            message, log = f"does not build: {BUILD} {why}", ended.stderr[-TAIL_CHARS:]
            raise SubmissionFailed(Crashed(rank=0, message=message, log_tail=log))
        shutil.rmtree(files)
        (place / "work").rename(files)
        if kept is not None:
            scratch = Path(tempfile.mkdtemp(prefix="built-", dir=self.cache))
            shutil.copytree(files, scratch, symlinks=True, dirs_exist_ok=True)
            (self.cache / "build.log").write_text(ended.stderr)
            with contextlib.suppress(OSError):  # another evaluation of the same sources was first
                scratch.rename(kept)
            remove(scratch)

    def run(
        self,
        arguments: tuple[str, ...],
        place: Path,
        names: Names,
        wall_s: float,
        more: dict[str, str],
        given: tuple[Path, ...] = (),
        answer_s: float = math.inf,
    ) -> answers.Finished:
        """Runs a command in `place`/work, with the variables `more`; what it prints has files by their `names`, since
        the copies are gone when it is read. Of this evaluation's other folders it can read those in `given`. Answers
        after `answer_s` do not count."""
        command = answers.Command(
            arguments=arguments,
            folder=place,
            cache=place / "cache",
            environ=staging.environ_of(place / "cache") | more,
            hidden=staging.hidden(self.plan.problem.root, self.folder),
            shown=given,
            confined=self.plan.confined,
        )
        plan = self.plan
        limits = answers.ProcessLimits(
            wall_s=wall_s, answer_s=answer_s, cores=plan.cores, memory_bytes=plan.memory_bytes
        )
        ran = answers.run(command, limits)
        return replace(ran, stderr=named(ran.stderr, place / "work", names))


def names_of(submission: Submission) -> Names:
    if needs_build(submission):
        return (("", f"{submission.name}/"),)
    return ((SCRIPT, submission.name), (PROGRAM, submission.name), ("", ""))


def named(text: str, folder: Path, names: Names) -> str:
    for staged, name in names:
        for beginning in (f"{folder}/", "./")[: 1 + bool(staged)]:  # a program is started as ./submission
            text = text.replace(beginning + staged, name)
    return text


def unfit(folder: Path) -> str:
    """A file that a build left in the folder and that the harness does not copy, in words; "" if there is none. A pipe
    or a socket cannot be copied, a link in place of the folder leads elsewhere, and a file with holes takes its full
    size once it is copied."""
    nbytes, names, todo = 0, 0, [(folder, 0)]
    if folder.is_symlink() or not folder.is_dir():
        return "removed its folder"
    while todo:
        place, depth = todo.pop()
        if depth > BUILT_DEPTH:
            return f"left folders more than {BUILT_DEPTH} deep"
        if not os.access(place, os.R_OK | os.X_OK):
            return f"left a folder that cannot be read ({place.name})"
        for entry in os.scandir(place):
            found, path = entry.stat(follow_symlinks=False), place / entry.name
            names, nbytes = names + 1, nbytes + found.st_size
            if stat.S_ISDIR(found.st_mode):
                todo.append((path, depth + 1))
            elif not (stat.S_ISLNK(found.st_mode) or (stat.S_ISREG(found.st_mode) and os.access(path, os.R_OK))):
                return f"left something that is no readable file, folder or link ({path.name})"
            if names > BUILT_NAMES or nbytes > BUILT_BYTES:
                return f"left more than {BUILT_NAMES:,} files or {BUILT_BYTES >> 30} GiB"
    return ""
