"""The launches of one evaluation by ranks: the processes that measure, and those that measure again.

Zygotes stay from launch to launch, which is what makes a launch cheap. All below them is new: processes, devices'
contexts, process groups, folders. Compiled files are kept.
"""

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace

from harness.core.records import Failure, Passed
from harness.kinds import staging
from harness.kinds.kind import Progress
from harness.kinds.op_calls import Calls
from harness.kinds.op_control import Guarded
from harness.kinds.op_stepped import Stepping
from harness.kinds.op_watch import Watch
from harness.kinds.plan import OpPlan
from harness.ranks import wire
from harness.ranks.launch import START_S, Launch, Ranks
from harness.ranks.zygotes import ROLES, Zygotes


class Launching(Guarded):
    """A session whose ranks can be started anew. `number` is that of the launch, `launched` what ends its ranks."""

    watch: Watch
    launched: contextlib.ExitStack

    def __init__(self, plan: OpPlan, progress: Progress) -> None:
        super().__init__(plan, progress)
        self.number = 1
        self.phases_s: dict[str, float] = {}
        self.logs: dict[str, str] = {}
        self.stepping: Stepping | None = None  # where the device's clock ranks

    def files(self, role: wire.Role) -> dict[str, bytes]:
        """What is staged for a rank of that role, by name."""
        raise NotImplementedError

    def start(self, zygotes: Zygotes | None) -> None:
        """Starts the groups of a launch."""
        self.ranks = self.launched.enter_context(Ranks(self.launch, zygotes))
        self.calls = Calls(self.plan, self.ranks)
        self.calls.links = self.watch.links
        if self.plan.is_stepped:
            self.stepping = Stepping(self.calls)

    def keep_logs(self) -> None:
        """What the ranks have printed, behind what those of earlier launches have."""
        for name, text in self.ranks.logs().items():
            self.logs[name] = self.logs.get(name, "") + text

    def again(self, is_control: bool = False) -> Passed | Failure:
        """Fresh processes in fresh folders. The groups change the order in which they start, import and meet."""
        self.number += 1
        self.plan = replace(self.plan, is_control=is_control)
        last = self.plan.launches
        self.progress.phase(f"launch {self.number} of {last}" if self.number <= last else "the reference beside itself")
        began, before = time.monotonic(), self.calls
        self.keep_logs()
        before.forget()
        self.ranks.end(keep_zygotes=True)
        top = self.launch.folder if self.number == 2 else self.launch.folder.parent
        self.launch = self.launch.again(top / str(self.number))
        stage(self.launch, self.files)
        self.start(self.ranks.zygotes)
        self.calls.inputs_timed = before.inputs_timed  # no launch sees another's inputs
        self.checked = len([case for phase in self.plan.phases for case in phase.cases if phase.then != "measure"])

        def work() -> Passed:
            calls = self.calls
            calls.begin(START_S)
            settings = calls.trusted.ask(wire.ImportKernel(), wire.Imported, calls.deadline)[0].settings
            if self.stepping is not None:
                self.stepping.measure_empty()
            groups = [getattr(calls, role) for role in self.launch.roles.values() if role != "trusted"]
            for group in groups:
                group.ask(wire.ImportKernel(settings=settings), wire.Imported, calls.deadline)
            calls.open(calls.trusted, *groups)
            calls.freeze(*groups)
            return Passed()

        found = self.guarded(work)
        self.phases_s["launches"] = self.phases_s.get("launches", 0.0) + time.monotonic() - began
        return found


def stage(launch: Launch, files: Callable[[wire.Role], dict[str, bytes]]) -> None:
    """Writes every rank's files."""
    for role in ROLES:
        staged = files(role)
        for rank in range(launch.world_size):
            staging.write(launch.workdir(role, rank), staged)
