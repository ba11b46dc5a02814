"""What is staged for the ranks of an operator, and how they are launched: folders, caches, what each role runs."""

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from harness.core.files import remove
from harness.core.records import Submission
from harness.kinds import staging
from harness.kinds.plan import OpPlan
from harness.process import compile_cache
from harness.ranks import wire
from harness.ranks.launch import Launch
from harness.ranks.zygotes import OTHERS, ROLES


@contextlib.contextmanager
def staged_folder(plan: OpPlan, files: Callable[[wire.Role], dict[str, bytes]]) -> Iterator[Launch]:
    """A folder for each rank with the problem's files side by side, as GPU MODE stages them; gone afterwards."""
    top = Path(tempfile.mkdtemp(prefix="kernel-eval-"))
    held = contextlib.ExitStack()
    try:
        launch = launch_of(plan, top)
        for cache in launch.caches.values():
            held.enter_context(compile_cache.held(cache))
        stage(launch, files, ROLES)
        yield launch
    finally:
        held.close()
        remove(top)


def launch_of(plan: OpPlan, top: Path) -> Launch:
    """How the plan's ranks start, on this machine, in that folder."""
    return Launch(
        world_size=plan.world_size,
        device=plan.device,
        threads=plan.threads,
        cores=plan.cores,
        spin=plan.spin,
        folder=top,
        caches=_caches(plan),
        # The judges' and the opponent's files too.
        hidden=staging.hidden(plan.problem.root, top),
        judges=plan.hidden,
        checker=plan.problem.checker,
        cuda_is_cpu=plan.cuda_is_cpu,
        confined=plan.confined,
        kept_bytes=plan.kept_bytes,
    )


def stage(launch: Launch, files: Callable[[wire.Role], dict[str, bytes]], roles: Sequence[wire.Role]) -> None:
    """Writes what ranks of these roles find in their working folders."""
    for role in roles:
        staged = files(role)
        for rank in range(launch.world_size):
            staging.write(launch.workdir(role, rank), staged)


def entry_of(plan: OpPlan, role: wire.Role) -> Submission | None:
    """The submission that ranks of that role run, if any."""
    return {"candidate": None if plan.is_control else plan.submission, "baseline": plan.opponent}.get(role)


def _caches(plan: OpPlan) -> dict[wire.Role, Path]:
    if plan.fresh_caches:
        return {}  # each group's is in its own folder then
    entries: dict[wire.Role, Submission | None] = {role: entry_of(plan, role) for role in OTHERS}
    names = {role: entry.sha256 if entry else plan.problem.cache_name for role, entry in entries.items()}
    folders = {role: compile_cache.folder(plan.problem.root, name) for role, name in names.items()}
    return {role: folder for role, folder in folders.items() if folder is not None}
