"""Zygotes that outlive an evaluation: they have imported torch, and every candidate's groups are forked from them.

All below the zygotes is an evaluation's own, as it is one launch's (kinds.op.launches): processes, cells, folders,
secrets. So nothing that a candidate did is left for the next one to meet.
"""

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path

from harness.core.errors import UsageError
from harness.core.files import new_folder, remove
from harness.kinds.kind import Plan, Progress, Session
from harness.kinds.op.kind import OpSession
from harness.kinds.op.plan import OpPlan
from harness.ranks.zygotes import Zygotes


class OpPool(contextlib.AbstractContextManager["OpPool"]):
    """A context that keeps zygotes; leaving it ends them. It serves one evaluation at a time."""

    def __init__(self) -> None:
        self._zygotes: Zygotes | None = None
        self._folder: Path | None = None
        self._threads = 0

    def __exit__(self, *error: object) -> None:
        self.end()

    @contextlib.contextmanager
    def session(self, plan: Plan, progress: Progress) -> Iterator[Session]:
        assert isinstance(plan, OpPlan)
        if plan.nodes > 1:
            raise UsageError(f"--nodes {plan.nodes}: many candidates are evaluated on one machine; leave --nodes out")
        session = OpSession(plan, progress)
        session.zygotes = self._provided(plan.threads)
        if self._folder is not None:  # below it, since zygotes remove it where this process is killed
            session.place = self._folder / str(secrets.randbelow(10**9))  # which does not tell how many came before
        try:
            with session.running():
                yield session
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        zygotes, folder = self._zygotes, self._folder
        self._zygotes = self._folder = None
        if zygotes is not None and zygotes.is_open:
            zygotes.stop()
        if folder is not None:
            remove(folder)

    def _provided(self, threads: int) -> Zygotes:
        """Zygotes that live. A control run has ended those before it."""
        if self._zygotes is not None and self._zygotes.is_open and self._threads == threads:
            return self._zygotes
        self.end()
        self._folder, self._threads = new_folder("kernel-eval-"), threads
        self._zygotes = Zygotes()
        self._zygotes.start(self._folder, threads)
        return self._zygotes
