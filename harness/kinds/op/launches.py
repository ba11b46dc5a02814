"""The launches of one evaluation by ranks: the processes that measure, and those that measure again.

Zygotes stay from launch to launch, which is what makes a launch cheap. All below them is new: processes, devices'
contexts, process groups, folders. Compiled files are kept.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from harness.core.files import remove, write_files
from harness.core.records import Measured, NotRun
from harness.kinds.kind import OpponentFailed, Progress, SubmissionFailed
from harness.kinds.op.calls import Calls
from harness.kinds.op.control import Guarded
from harness.kinds.op.plan import OpPlan
from harness.kinds.op.stepped import Stepping
from harness.kinds.op.watch import MachineWatch
from harness.ranks import wire
from harness.ranks.launch import START_S, Launch, Ranks
from harness.ranks.zygotes import ROLES, Zygotes

SWAPPED: dict[wire.Role, wire.Role] = {"baseline": "candidate", "candidate": "baseline"}


class Launching(Guarded):
    """A session whose ranks can be started anew. `number` is that of the launch, `launched` what ends its ranks."""

    watch: MachineWatch
    launched: contextlib.ExitStack

    def __init__(self, plan: OpPlan, progress: Progress) -> None:
        super().__init__(plan, progress)
        self.number = 1
        self.stepping: Stepping | None = None  # where the device's clock ranks
        self.waited: set[tuple[wire.Role, int]] = set()  # as Stepping has it
        self.zygotes: Zygotes | None = None  # that a pool keeps
        self.place: Path | None = None  # a new folder to make, below the one that these zygotes remove at their end

    def files(self, role: wire.Role) -> dict[str, bytes]:
        """The files that are staged for a rank of that role, by name."""
        raise NotImplementedError

    def start(self, zygotes: Zygotes | None) -> None:
        self.ranks = self.launched.enter_context(Ranks(self.launch, zygotes))
        self.calls = Calls(self.plan, self.ranks)
        self.calls.links, self.calls.gpus = self.watch.links, self.watch.sampler
        if self.plan.is_stepped:
            self.stepping = Stepping(self.calls, self.number, self.waited)

    def keep_logs(self) -> None:
        """Appends what the ranks have printed to the logs of earlier launches."""
        for name, text in self.ranks.logs().items():
            self.logs[name] = self.logs.get(name, "") + text

    @property
    def is_swapped(self) -> bool:
        """Whether two files that meet have changed roles, which they do from launch to launch."""
        return self.plan.opponent is not None and self.number % 2 == 0

    @contextlib.contextmanager
    def as_planned(self) -> Iterator[None]:
        """Lets a failure within be that of the submission as planned, whatever its role in this launch."""
        try:
            yield
        except OpponentFailed as failure:
            if self.is_swapped:
                raise SubmissionFailed(failure.outcome) from None
            raise
        except SubmissionFailed as failure:
            if self.is_swapped and not isinstance(failure.outcome, NotRun):
                raise OpponentFailed("in another launch", failure.outcome) from None
            raise

    def for_planned(self, measured: Measured) -> Measured:
        """What was measured, with the ranked series' own side that of the submission that was planned."""
        if not self.is_swapped:
            return measured
        ranked = measured.ranked
        ranked = replace(
            ranked,
            own=ranked.baseline,
            baseline=ranked.own,
            own_claims=(),
            own_ranks=ranked.baseline_ranks,
            baseline_ranks=ranked.own_ranks,
        )
        blocks = tuple(replace(one, own=one.baseline, baseline=one.own) for one in measured.blocks)
        return replace(measured, series=(ranked, *measured.series[1:]), blocks=blocks)

    def again(self, is_control: bool = False) -> None:
        """Fresh processes in fresh folders. Groups change the order of starts and imports; files that meet, roles."""
        self.number += 1
        self.plan = replace(self.plan, is_control=is_control)
        if self.plan.opponent is not None:
            self.plan = replace(self.plan, submission=self.plan.opponent, opponent=self.plan.submission)
            caches = {role: self.launch.caches[other] for role, other in SWAPPED.items() if other in self.launch.caches}
            self.launch = replace(self.launch, caches=caches)
        last = self.plan.launches
        self.progress.phase(f"launch {self.number} of {last}" if self.number <= last else "the reference beside itself")
        began, before = time.monotonic(), self.calls
        self.keep_logs()
        before.forget()
        self.ranks.end(keep_zygotes=True)
        for role in ROLES:  # else the disk that a submission has filled would be full in the next launch too
            remove(self.launch.workdir(role, 0).parent)
        top = self.launch.folder if self.number == 2 else self.launch.folder.parent
        self.launch = self.launch.again(top / str(self.number))
        stage(self.launch, self.files)
        self.start(self.ranks.zygotes)
        self.calls.inputs_timed = before.inputs_timed  # no launch sees another's inputs
        self.checked = len([case for phase in self.plan.phases for case in phase.cases if phase.then != "measure"])
        calls = self.calls
        with self.as_planned(), self.guarded():
            calls.begin(START_S)
            settings = calls.trusted.ask(wire.ImportKernel(), wire.Imported, calls.deadline)[0].settings
            if self.stepping is not None:
                self.stepping.measure_empty()
            groups = [getattr(calls, role) for role in self.launch.roles.values() if role != "trusted"]
            for group in groups:
                group.ask(wire.ImportKernel(settings=settings), wire.Imported, calls.deadline)
            calls.open(calls.trusted, *groups)
            calls.freeze(*groups)
        self.count_s("launches", time.monotonic() - began)


def stage(launch: Launch, files: Callable[[wire.Role], dict[str, bytes]]) -> None:
    for role in ROLES:
        staged = files(role)
        for rank in range(launch.world_size):
            write_files(launch.workdir(role, rank), staged)
