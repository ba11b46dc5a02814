"""Turns of stepped calls, by which GPUs' times are ranked: whose turn it is, on which inputs, what is made of them.

ranks.stepped makes such calls and ranks.device_witness says what they count. This module has what lies between these
and a case: the group that is on turn is the only one that runs, on an idle device, and every output is judged.
"""

import statistics
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from harness.core.errors import HarnessError
from harness.core.records import Case, Failure
from harness.kinds.op.calls import Calls
from harness.kinds.op.check import Probe, expect_right, first_wrong
from harness.kinds.op.traffic import TrafficCount
from harness.ranks import clocks, failure, wire
from harness.ranks.device_witness import DeviceWitness
from harness.ranks.group import Group
from harness.ranks.stepped import Seen, StepOrder, Stepper

EMPTY_CALLS = 30
OVERHEADS: tuple[wire.Work, ...] = ("nothing", "nothing", "copy", "copy")  # calls of the baseline's ranks in a block


class Stepping:
    """The stepped calls of one evaluation. `empty_us` is what an empty call takes before anything is imported."""

    def __init__(self, calls: Calls) -> None:
        self.calls, self.stepper = calls, Stepper(calls.trusted)
        self.empty_us = 0.0
        self.idle: list[Seen] = []  # the baseline's calls of nothing, of all cases: what they take is the machine's
        self.before: Group | None = None  # the group that was on turn last
        self.waits: set[Group] = set()  # whose calls of this case wait for their device, and are not queued ahead

    def measure_empty(self) -> tuple[float, ...]:
        """Makes empty calls on the baseline's ranks. Returns by how much those after the first differ (us)."""
        count = EMPTY_CALLS + 1
        for group in self.calls.baselines("empty"):
            empty = self.turn(group, StepOrder(indices=[-1] * count, work=["nothing"] * count))[1:]
        self.empty_us = statistics.median(one.call_us for one in empty)
        self.idle += empty
        return tuple(abs(one.call_us - self.empty_us) for one in empty)

    def turn(self, group: Group, order: StepOrder) -> list[Seen]:
        """Makes these calls of the group. Nobody else runs meanwhile, and the devices are idle when it begins. Outputs
        are kept for judging as Calls.take has it."""
        calls = self.calls
        calls.freeze(calls.baseline, calls.candidate)
        group.processes.wait_frozen()
        self._drain()
        self.before = group
        calls.regain(group)
        if max(order.indices) >= 0:
            calls.load(group, range(len(calls.made[0].inputs)), stepped=True)
        calls.reads_of(group)
        with calls.phase.spent_on(f"calls of {calls.name_of(group)}"):
            ahead = order.ahead and (bool(order.work) or group not in self.waits)
            made = replace(order, ahead=ahead, judged=calls.is_judged(group))
            seen = self.stepper.calls(group, made, calls.deadline)
        if order.ahead and not all(one.is_ahead for one in seen):
            self.waits.add(group)
        calls.rest(group)
        return seen

    def _drain(self) -> None:
        """Waits for what the group that was on turn has left on the devices."""
        if self.stepper.drain(self.calls.deadline):
            return
        if self.before is not None and self.before.role != "trusted":
            raise failure.crashed(
                self.before.members[0],
                "ran while not on turn: work that it left on its device did not end in 2 s, or other processes keep "
                "the device busy (`nvidia-smi` shows them)",
            )
        raise HarnessError("a device is busy with other processes' work; which ones, `nvidia-smi` shows")

    def warm_up(self, case: Case) -> None:
        """A call of either side, and all else that is made of them, with hosts that wait: nothing of it is loaded or
        compiled in a call that is queued ahead."""
        calls = self.calls
        self.waits.clear()
        calls.make(case, calls.fresh(1), stepped=True)
        groups = calls.both("stepped warm-up", calls.at)
        for group in groups:
            if group in calls.rivals:
                self.turn(group, StepOrder(indices=[0], ahead=False))
            else:
                self.turn(group, StepOrder(indices=[0, 0, 0], work=["call", "nothing", "copy"], ahead=False))
        judged = [(group, 0) for group in groups if group in calls.rivals]
        expect_right(calls, case, judged, "a call before the timed ones")

    def witness(self) -> DeviceWitness:
        """The witness for the calls of one case."""
        return DeviceWitness(is_trusted=self.calls.plan.opponent is None, empty_us=self.empty_us, idle=self.idle)

    def block(
        self,
        number: int,
        case: Case,
        budget: clocks.Budget,
        samples: clocks.Samples,
        probe: Probe,
        traffic: TrafficCount,
    ) -> None:
        """The case's block of that number."""
        calls, witness, count = self.calls, samples.device, samples.count("device")
        assert witness is not None
        late = probe.due(count, budget.block)
        calls.make(case, calls.fresh(budget.block + (late is not None)), stepped=True)
        is_counted = probe.counts(number)
        waiting = set(self.waits)
        sides: dict[bool, list[Seen]] = {}
        flipped = len(calls.rivals) > 1 and probe.secret("first") % 2
        for is_baseline in (True, False) if (number + 2 * flipped) % 4 in (0, 3) else (False, True):  # ABBA
            group = calls.baseline if is_baseline else calls.candidate
            turn = partial(self.turn, group, StepOrder(indices=range(budget.block)))
            sides[is_baseline] = traffic.turn(is_baseline, budget.block, turn) if is_counted else turn()
            if is_baseline and witness.is_trusted:
                indices = [at % budget.block for at in range(len(OVERHEADS))]
                overheads = self.turn(group, StepOrder(indices=indices, work=OVERHEADS))
                self.idle += [one for one, what in zip(overheads, OVERHEADS, strict=True) if what == "nothing"]
                witness.copies += [one for one, what in zip(overheads, OVERHEADS, strict=True) if what == "copy"]
        groups = [calls.baseline if is_baseline else calls.candidate for is_baseline in sides]
        judged = [(group, index) for group in groups if group in calls.rivals for index in range(budget.block)]
        found: tuple[Group, Failure] | None = None
        if late is not None:
            order = StepOrder(indices=[budget.block])
            found = probe.first_silent(late, lambda group, late: self.turn(group, replace(order, late=late)))
            judged += [(group, budget.block) for group in probe.hold_s]
        found = found or first_wrong(calls, judged, "a timed call (device clock)")
        if found is not None and found[0] not in waiting:
            # The submission's streams may not wait for the stream that it is called on, which is right where inputs are
            # ready before a call. Such calls are made when their input is there. A call whose host waits for its device
            # is known by now, but has been called ahead in this block.
            self.waits.add(found[0])
        elif found is not None:
            raise calls.blamed(found[0], case, found[1])
        if waiting != self.waits:
            samples.restart()
            probe.restart()
        else:
            samples.add_stepped(sides[False], sides[True])

    def on_inputs(self, group: Group, indices: Sequence[int]) -> list[float]:
        """The times of one turn's calls on these inputs, in us."""
        return [max(one.call_us - self.empty_us, 0.0) for one in self.turn(group, StepOrder(indices=indices))]
