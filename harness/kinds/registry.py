"""Every kind of problem, one line each, and how a name or a path becomes a problem."""

import contextlib
import errno
import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import get_type_hints

from harness.core.checkout import Checkout, shown
from harness.core.decode import did_you_mean
from harness.core.errors import BadFileError, UsageError
from harness.core.records import Submission
from harness.gpumode.folder import FILE
from harness.judging.scoring import mismatch
from harness.kinds.checkers import CHECKERS
from harness.kinds.external.kind import ExternalKind
from harness.kinds.folder.kind import FolderKind
from harness.kinds.folder.known import recalled, remember
from harness.kinds.kernelbench.kind import KernelBenchKind
from harness.kinds.kind import TORCH, Kind, Order, Plan, SessionPool, Setting
from harness.kinds.model.kind import ModelKind
from harness.kinds.op.kind import OpKind
from harness.kinds.op.pool import OpPool
from harness.kinds.parallelkernelbench.kind import ParallelKernelBenchKind
from harness.kinds.program.kind import ProgramKind
from harness.kinds.trace.kind import TraceKind
from harness.kinds.train.kind import TrainKind
from harness.kinds.vendor_tool.kind import VendorKind
from harness.machine import hardware
from harness.problems.problem import PARAMS, Problem, folded
from harness.problems.python_text import read_tree
from harness.problems.shape_file import find as find_named
from harness.problems.shape_file import problem_names

KINDS: dict[str, Kind] = {
    "op": OpKind(),
    "folder": FolderKind(),
    "external": ExternalKind(),
    "vendor": VendorKind(),
    "program": ProgramKind(),
    "train": TrainKind(),
    "model": ModelKind(),
    "kernelbench": KernelBenchKind(),
    "parallelkernelbench": ParallelKernelBenchKind(),
    "trace": TraceKind(),
}


def find(name: str, checkout: Checkout) -> Problem:
    """The problem folder at that path, or else the checkout's problem of that name, or else the problem folder that has
    this name on boards and was last named by its path.

    Raises UsageError where there is neither, BadFileError where its files are bad or no Python.
    """
    # What evaluates a problem is not for harness.problems to know; so what a shape file says of it is checked here.
    path = Path(os.path.expanduser(name))  # Path's own raises where there is no such user
    path = path.parent if path.name == FILE else path
    try:
        os.lstat(path)
    except (OSError, ValueError) as error:  # ValueError: a NUL
        if getattr(error, "errno", errno.ENAMETOOLONG) == errno.ENAMETOOLONG:
            return named(name, checkout)  # that is no path
    is_path = os.sep in name or name in (".", "..")
    if not is_path and folded(name) in map(folded, problem_names(checkout)):
        return named(name, checkout)
    if (claimed := _claiming(path)) is not None:
        return _read(claimed, path, checkout)
    if (folder := _recalled(name, checkout)) is not None:
        return folder
    if path.is_file():
        if path.suffix == ".py":
            read_tree(path)  # which raises where Python cannot read it
        raise UsageError(
            f"{name}: a file, and no problem; name a problem that `python -m harness problems` lists, and behind it "
            "the submission if this is one. Files of other benchmarks that are problems: KernelBench's (Model, "
            "get_inputs, get_init_inputs and no ModelNew), ParallelKernelBench's and FlashInfer-Trace's, as "
            "docs/problems.md says"
        )
    if is_path:
        what = f"a folder without {FILE}, so no problem folder" if path.is_dir() else "no such file or folder"
        raise UsageError(
            f"{name}: {what}; name one of GPU MODE's, or a problem that `python -m harness problems` lists"
        )
    return named(name, checkout)


def is_problem(path: Path) -> bool:
    return _claiming(path) is not None


def _claiming(path: Path) -> Kind | None:
    return next((kind for kind in KINDS.values() if kind.claims(path)), None)


def _read(kind: Kind, path: Path, checkout: Checkout) -> Problem:
    """The problem at that path. A problem folder is found by its names from now on."""
    found = kind.read(path, checkout)
    if kind.checkers:
        return checked(found)
    remember({found.name: found.folder, found.leaderboard: found.folder}, checkout)
    return found  # not of a shape file


def _recalled(name: str, checkout: Checkout) -> Problem | None:
    folder = recalled(name, checkout)
    claimed = _claiming(folder) if folder else None
    return claimed.read(folder, checkout) if claimed and folder else None


def named(name: str, checkout: Checkout, folder: Problem | None = None) -> Problem:
    """The checkout's problem of that name, here or at GPU MODE, else `folder`, else as `find` has it, which raises."""
    try:
        return checked(find_named(name, checkout))
    except UsageError:
        if (found := folder or _recalled(name, checkout)) is not None:
            return found
        raise


def beside(file: Path, checkout: Checkout) -> Problem | None:
    """The problem folder that the file lies in, or in a folder below it such as solutions/; or None."""
    folders = file.resolve().parents[:3]
    folder = next((folder for folder in folders if os.path.isfile(folder / FILE)), None)
    return find(str(folder), checkout) if folder else None


def checked(problem: Problem) -> Problem:
    """The problem of a shape file. Raises BadFileError where the file names a kind that there is not, a checker or
    data that its kind has not, a score of another unit than is measured, or a GPU without known peaks."""
    place = shown(problem.shapes_path, problem.root)
    kinds = {name: kind.checkers for name, kind in KINDS.items() if kind.checkers}
    for key, said, known in (
        ("kind", problem.kind, tuple(kinds)),
        ("checker", problem.checker, kinds.get(problem.kind, ())),
    ):
        if said not in known:
            whose = f"kind '{problem.kind}' has no" if key == "checker" else "no"
            raise BadFileError(
                f"{place}: $.{key}: {whose} {key} '{said}'{did_you_mean(said, known)} (known: {', '.join(known)})"
            )
    for name, wanted in KINDS[problem.kind].parameters.items():
        if get_type_hints(problem.params_type).get(name) is not wanted:
            file = shown(problem.folder / PARAMS, problem.root)
            raise BadFileError(f"{file}: Params.{name}: kind '{problem.kind}' needs it, as `{name}: {wanted.__name__}`")
    if problem.takes_data and not KINDS[problem.kind].takes_data:
        able = ", ".join(name for name, kind in KINDS.items() if kind.takes_data)
        raise BadFileError(
            f"{place}: $.takes_data: kind '{problem.kind}' has no --data (kind {able} has); leave it out"
        )
    if why := mismatch(problem.ranking_by, CHECKERS[problem.checker].unit):
        raise BadFileError(f"{place}: $.ranking_by: {why}")
    if problem.published:
        try:
            hardware.peaks(problem.published.gpu)
        except UsageError as error:
            raise BadFileError(f"{place}: $.published_on: {error}") from None
    return problem


def kind_of(setting: Setting) -> Kind:
    """The kind that evaluates what was asked for: the problem's own, unless the folder's own evaluator or a vendor's
    profiler is to run. Raises UsageError for a profiler that cannot be put around the problem's calls."""
    own = KINDS[setting.problem.kind]
    if setting.tool != TORCH:
        if not own.takes_tools:
            raise UsageError(
                f"--tool {setting.tool} profiles one call of a kernel, and a submission to {setting.problem.name} is "
                "none; leave --mode and --tool out"
            )
        return KINDS["vendor"]
    return KINDS["external"] if setting.evaluator == "theirs" else own


def pool_of(setting: Setting) -> contextlib.AbstractContextManager[SessionPool]:
    """The pool for many evaluations in that setting; the kind itself if it keeps nothing. Raises as `kind_of`."""
    kind = kind_of(setting)
    return OpPool() if kind.is_pooled else contextlib.nullcontext(kind)


def plan_of(order: Order) -> Plan:
    """The plan of an evaluation, by the kind that evaluates it. Raises what that kind's `plan` does."""
    return kind_of(order.setting).plan(order)


def read_submission(problem: Problem, path: Path | None, checkout: Checkout) -> Submission:
    """The problem's submission at that path, or its default one; raises what its kind does."""
    return KINDS[problem.kind].submission(path, problem, checkout)


def submissions_below(folder: Path, problem: Problem, suffixes: Collection[str]) -> list[Path]:
    """The files with one of these endings in and below the folder, and the folders that are one submission each, whose
    files are none; in order. The folder itself where it is one."""
    mark = KINDS[problem.kind].folder_file
    whole = {path.parent for path in folder.rglob(mark)} if mark else set()
    whole = {path for path in whole if whole.isdisjoint(path.parents)}
    files = (path for path in folder.rglob("*") if path.suffix in suffixes and path.is_file())
    return sorted([*whole, *(path for path in files if whole.isdisjoint(path.parents))])


def find_name(text: str, recorded: Collection[str], checkout: Checkout) -> str:
    """The name under which boards have the problem that `text` means: one that is `recorded`, since a problem folder
    may be anywhere by now, or else as `find` has it. Raises what `find` does."""
    return text if text in recorded else find(text, checkout).name


def set_members(name: str) -> list[Path] | None:
    """The problems of the set at that path; None for one problem, or its name. UsageError for a folder without any."""
    path = Path(os.path.expanduser(name))
    return problems_below(path) if os.path.isdir(path) and not is_problem(path) else None


def problems_below(path: Path) -> list[Path]:
    """The problem folders and the problem files at and below the path, in order, numbers by their value; hidden ones
    are left out. Raises UsageError if there is none."""
    if is_problem(path) and path.is_file():
        return [path]
    if not path.is_dir():
        what = "a file" if path.exists() else "no such folder"
        raise UsageError(
            f"{path}: {what}; name a folder with problem folders (task.yml), or problem files of another benchmark, in "
            "or below it. The problems of a competition file are listed by `python -m harness competition FILE --list`"
        )
    found: list[Path] = []
    for folder, names, files in os.walk(path):
        names[:] = sorted((name for name in names if not name.startswith(".")), key=_in_order)
        if FILE in files:
            found.append(Path(folder))
        else:
            inside = [Path(folder, name) for name in sorted(files, key=_in_order) if not name.startswith(".")]
            found += filter(is_problem, inside)
    if not found:
        raise UsageError(
            f"{path}: nothing at or below it is a problem: no folder has a {FILE}, and no file is a problem of "
            "KernelBench, ParallelKernelBench or FlashInfer-Trace"
        )
    return found


def _in_order(name: str) -> list[tuple[int, str]]:
    """A key by which `9_x` comes before `10_x`."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
