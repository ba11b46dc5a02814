"""Groups of ranks that outlive an evaluation: each candidate gets a group of its own, all else is kept.

The trusted and baseline ranks have imported the reference and know the machine, the zygotes have imported torch. A
candidate's group is forked, confined and ended like that of an evaluation by itself; its folder is removed with it, and
its secret is its own. What a candidate could have harmed is not kept: after an evaluation that ended in anything but a
pass or a wrong result all groups are started anew, and after an error the zygotes too.
"""

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from harness.core.errors import UsageError
from harness.core.files import remove
from harness.core.records import Crashed, Held, Raised, TimedOut
from harness.kinds.kind import Checked, Plan, Progress, Session
from harness.kinds.op import Known, OpSession
from harness.kinds.op_calls import drop
from harness.kinds.op_staging import launch_of, stage
from harness.kinds.op_watch import Watch
from harness.kinds.plan import OpPlan
from harness.process import compile_cache
from harness.ranks.launch import Ranks
from harness.ranks.zygotes import ROLES

T = TypeVar("T")
BAD = (Raised, Crashed, TimedOut, Held)


class PooledSession(OpSession):
    """An evaluation on ranks of a pool. `is_clean`: it had nothing but passes and wrong results so far."""

    is_clean = True

    def guarded(self, work: Callable[[], T]) -> T | Raised | Crashed | TimedOut | Held:
        """As of any session; notes how it ended."""
        found = super().guarded(work)
        outcome = found.outcome if isinstance(found, Checked) else found
        self.is_clean = self.is_clean and not isinstance(outcome, BAD)
        return found

    def found(self) -> Known:
        """What its ranks told, for the next session."""
        return Known(
            settings=self.settings,
            device_model=self.device_model,
            empty_call_samples_us=self.empty_call_samples_us,
            limits=self.limits,
            opened=self.calls.opened,
            stepping=self.stepping,
        )


class OpPool:
    """A context that keeps ranks; leaving it ends them all. It serves one evaluation at a time."""

    def __init__(self) -> None:
        self._ranks: Ranks | None = None
        self._folder: Path | None = None
        self._cache = contextlib.ExitStack()  # in use by the candidate that runs
        self._watch: Watch | None = None
        self._known: Known | None = None
        self._for: tuple[object, ...] = ()

    def __enter__(self) -> "OpPool":
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.end()

    @contextlib.contextmanager
    def session(self, plan: Plan, progress: Progress) -> Iterator[Session]:
        """As a kind's session; what it starts ends with the next one, or with the pool."""
        assert isinstance(plan, OpPlan)
        if plan.nodes > 1:
            raise UsageError(f"--nodes {plan.nodes}: many candidates are evaluated on one machine; leave --nodes out")
        session = PooledSession(plan, progress)
        began = time.monotonic()
        progress.phase("start")
        try:
            self._provide(session)
            session.phases_s["start"] = time.monotonic() - began
            yield session
        except BaseException:
            self.end()
            raise
        assert self._ranks is not None
        session.logs = self._ranks.logs() | session.logs
        session.lacking = tuple(self._ranks.lacking)
        drop(session.calls)
        if self._ranks.is_over:  # a control run has ended them
            self.end()
        else:
            self._known = session.found() if session.is_clean else None

    def end(self) -> None:
        """Ends every process."""
        ranks, watch, folder = self._ranks, self._watch, self._folder
        self._ranks = self._watch = self._folder = self._known = None
        if watch is not None:
            watch.close()
        if ranks is not None:
            ranks.end()
        self._cache.close()
        if folder is not None:
            remove(folder)

    def _provide(self, session: PooledSession) -> None:
        """Gives the session its ranks. Raises HarnessError where they cannot be started."""
        plan = session.plan
        if self._ranks is None or self._for != _needs(plan):
            self.end()
            self._start(session)
        else:
            self._renew(session)
        assert self._ranks is not None
        assert self._watch is not None
        session.ranks, session.launch, session.watch = self._ranks, self._ranks.launch, self._watch
        session.known = self._known
        session.command()

    def _start(self, session: PooledSession) -> None:
        plan = session.plan
        self._watch = Watch(plan)
        self._folder = Path(tempfile.mkdtemp(prefix="kernel-eval-"))
        launch = launch_of(plan, self._folder)
        for cache in launch.caches.values():
            self._cache.enter_context(compile_cache.held(cache))
        stage(launch, session.files, ROLES)
        ranks = Ranks(launch)
        ranks.__enter__()
        self._ranks, self._for = ranks, _needs(plan)

    def _renew(self, session: PooledSession) -> None:
        """The candidate's group ends with all that it has left; so do the others where they may be harmed."""
        assert self._ranks is not None
        assert self._folder is not None
        assert self._watch is not None
        roles = ROLES if self._known is None else ("candidate",)
        self._ranks.retire(*roles)
        self._cache.close()
        for role in roles:
            remove(self._folder / role)
        launch = launch_of(session.plan, self._folder)
        for cache in launch.caches.values():
            self._cache.enter_context(compile_cache.held(cache))
        stage(launch, session.files, roles)
        self._watch.again()
        self._ranks.begin(launch, *roles)


def _needs(plan: OpPlan) -> tuple[object, ...]:
    """What ranks are started for; another plan needs others."""
    problem = plan.problem
    return (
        (problem.name, str(problem.folder), problem.checker),
        (plan.device, plan.world_size, plan.cuda_is_cpu, plan.confined, plan.fresh_caches),
        (plan.opponent.sha256 if plan.opponent else "", plan.threads, plan.kept_bytes, plan.in_flight_bytes),
    )
