"""What kinds of problem share that run submissions in processes: staged files, folders, variables."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from harness.core.checkout import SHIPPED, Checkout, shown
from harness.core.files import lock_of, replace_file, scratch
from harness.core.records import Submission
from harness.core.unseen import unseen
from harness.kinds.kind import Session
from harness.problems.problem import Problem
from harness.process import compile_cache, sandbox
from harness.process.child import search_path

FAILED_LOG = "failed.log"  # in runs/: what the last evaluation printed that had no report


def files_of(problem: Problem, submission: Submission | None) -> dict[str, bytes]:
    """The problem's files and the submission's, by their names in a staged folder."""
    files = dict(problem.staged())
    if submission is None:
        return files
    files |= problem.staged_submission(submission.source)
    if submission.modules:
        files["common/__init__.py"] = b""  # without it any installed package `common` would come first
    for module in submission.modules:
        files[module.name.replace(".", "/") + ".py"] = module.source.encode()
    return files


def hidden(root: Path, *more: Path) -> tuple[Path, ...]:
    """The folders that a submission to a problem of the checkout at `root` may not see: that checkout, this harness's,
    the files that they keep outside of themselves, with the locks of these, and `more`."""
    roots = (root, Checkout.here().root)
    more = (*more, SHIPPED) if SHIPPED.is_dir() else more
    # A lock that a submission could open it could also hold.
    outside = (one for root in roots for file in unseen(Checkout(root)) for one in (file, lock_of(file)))
    return tuple(dict.fromkeys((*roots, *more, *outside)))


def kept(problem: Problem, printed: str) -> str:
    """Keeps what an evaluation without a report has printed, as its only log. Where, as the end of a message."""
    path = problem.root / "runs" / FAILED_LOG
    try:
        path.parent.mkdir(exist_ok=True)
        replace_file(path, printed.encode(errors="replace"))
    except OSError:
        return ""
    return f"; its traceback is in {shown(path)}"


class StagedSession(Session):
    """A session whose processes have a new folder, gone when the `with` ends, and the submission's compile cache, which
    is in that folder if it has to be fresh."""

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        plan = self.plan
        kept = None if plan.fresh_caches else compile_cache.folder(plan.problem.root, plan.submission.sha256)
        with scratch("kernel-eval-") as self.folder:
            self.cache = kept or self.folder / "cache"
            self.cache.mkdir(exist_ok=True)
            with compile_cache.held(self.cache):
                yield


def environ_of(cache: Path) -> dict[str, str]:
    """The user's variables, without what a submission has no business to know, and with the cache for compilers."""
    caches = {name: str(cache / sub) for name, sub in sandbox.CACHES.items()}
    return sandbox.environment(os.environ) | caches | {"PATH": search_path()}
