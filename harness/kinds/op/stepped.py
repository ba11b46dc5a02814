"""Turns of stepped calls, by which GPUs' times are ranked: whose turn it is, on which inputs, what is made of them.

ranks.stepped makes such calls and ranks.device_witness says what they count. This module has what lies between these
and a case: the group that is on turn is the only one that runs, on an idle device, and every output is judged.
"""

import statistics
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from harness.core.errors import HarnessError
from harness.core.machine_records import BlockState, GpuTrack
from harness.core.records import Case, Failure
from harness.kinds.op.calls import Calls
from harness.kinds.op.check import Probe, expect_right, first_wrong
from harness.kinds.op.traffic import TrafficCount
from harness.ranks import clocks, failure, wire
from harness.ranks.device_witness import DeviceWitness
from harness.ranks.group import Group
from harness.ranks.stepped import BRIEF_PATIENCE_S, KERNEL, PATIENCE_S, Seen, StepOrder, Stepper

EMPTY_CALLS = 30
# Where either side's calls are shorter than that, a turn is so many blocks if memory has room for their inputs: to stop
# a group and let the other go on takes 15 ms, as long as seven calls.
SHORT_US, TURN_BLOCKS = 1000.0, 2
NOTHING: tuple[wire.Work, ...] = ("nothing",)
COPY: tuple[wire.Work, ...] = ("copy",)
OVERHEADS = 4 * NOTHING + 2 * COPY  # calls of the baseline's ranks in a turn


class Stepping:
    """The stepped calls of one launch, of that number. `empty_us` is what an empty call takes before anything is
    imported. `waited`: in which cases, by number, a group of that role waited for its device, in any launch so far;
    whoever did is not waited for as long in the next one."""

    def __init__(self, calls: Calls, launch: int, waited: set[tuple[wire.Role, int]]) -> None:
        self.calls, self.stepper, self.launch, self.waited = calls, Stepper(calls.trusted), launch, waited
        self.empty_us = 0.0
        self.idle: list[Seen] = []  # the baseline's calls of nothing beside others, of all cases
        self.before: Group | None = None  # the group that was on turn last
        self.waits: set[Group] = set()  # whose calls of this case wait for their device, and are not queued ahead
        self.is_short = False  # whether this case's calls are

    def measure_empty(self) -> tuple[float, ...]:
        """Makes empty calls on the baseline's ranks. Returns by how much those after the first differ (us)."""
        count = EMPTY_CALLS + 1
        for group in self.calls.baselines("empty"):
            empty = self.turn(group, StepOrder(indices=[-1] * count, work=count * NOTHING))[1:]
        self.empty_us = statistics.median(one.call_us for one in empty)
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
            patience_s = BRIEF_PATIENCE_S if (group.role, calls.at) in self.waited else PATIENCE_S
            made = replace(order, ahead=ahead, patience_s=patience_s, judged=calls.is_judged(group))
            seen = self.stepper.calls(group, made, calls.deadline)
        if order.ahead and not all(one.is_ahead for one in seen):
            self.waits.add(group)
            if calls.plan.opponent is None:  # else roles change from launch to launch
                self.waited.add((group.role, calls.at))
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

    def warm_up(self, case: Case) -> dict[Group, float]:
        """Two calls of either side, and all else that is made of them, with hosts that wait: nothing of it is loaded or
        compiled in a call that is queued ahead. In a launch's first case then empty calls: before anything was imported
        they may have taken another time. Returns how long the second call of each took as a whole (us)."""
        calls = self.calls
        self.waits.clear()
        calls.make(case, calls.fresh(1), stepped=True)
        groups = calls.both("stepped warm-up", calls.at)
        warm: dict[Group, Seen] = {}
        judged: list[tuple[Group, int]] = []
        for group in groups:
            has_waited = (group.role, calls.at) in self.waited
            work = 2 * KERNEL if group in calls.rivals else (*2 * KERNEL, "nothing", "copy")
            warm[group] = self.turn(group, StepOrder(indices=[0] * len(work), work=work, ahead=False))[1]
            if has_waited:  # whether it still does
                self.turn(group, StepOrder(indices=[0]))
            judged += [(group, 0)] * (2 + has_waited) * (group in calls.rivals)
        expect_right(calls, case, judged, "a call before the timed ones")
        if not self.idle and calls.baseline not in calls.rivals:
            empty = self.turn(calls.baseline, StepOrder(indices=[0] * EMPTY_CALLS, work=EMPTY_CALLS * NOTHING))
            self.idle += [one for one in empty if one.is_ahead]
        self.is_short = min(one.call_us for one in warm.values()) < SHORT_US
        return {group: one.call_us + one.around_us + one.copy_us for group, one in warm.items()}

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
        """The turns of that number in the case, each side's of a block, or of TURN_BLOCKS."""
        calls, witness = self.calls, samples.device
        assert witness is not None
        count = budget.block * (TURN_BLOCKS if self.is_short else 1)
        if count >= calls.room():
            count = budget.block
        late = probe.due(samples.count("device"), count)
        calls.make(case, calls.fresh(count + (late is not None)), stepped=True)
        is_counted = probe.counts(number)
        waiting = set(self.waits)
        sides: dict[bool, list[Seen]] = {}
        flipped = len(calls.rivals) > 1 and probe.secret("first") % 2
        place = number + self.launch - 1 + 2 * flipped  # a launch may have time for one turn of either side alone
        for is_baseline in (True, False) if place % 4 in (0, 3) else (False, True):  # ABBA
            group = calls.baseline if is_baseline else calls.candidate
            turn = partial(self._timed, group, count, witness if is_baseline and witness.is_trusted else None)
            sides[is_baseline] = traffic.turn(is_baseline, count, turn) if is_counted else turn()
        groups = [calls.baseline if is_baseline else calls.candidate for is_baseline in sides]
        judged = [(group, index) for group in groups if group in calls.rivals for index in range(count)]
        found: tuple[Group, Failure] | None = None
        if late is not None:
            order = StepOrder(indices=[count])
            found = probe.first_silent(late, lambda group, late: self.turn(group, replace(order, late=late)))
            judged += [(group, count) for group in probe.hold_s]
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
            own, baseline = sides[False], sides[True]
            samples.add_stepped(own, baseline, BlockState(own=self._gpus_in(own), baseline=self._gpus_in(baseline)))

    def _gpus_in(self, calls: Sequence[Seen]) -> tuple[GpuTrack, ...]:
        return self.calls.gpus.between(calls[0].began_ns, calls[-1].ended_ns) if self.calls.gpus else ()

    def _timed(self, group: Group, count: int, witness: DeviceWitness | None) -> list[Seen]:
        """The group's calls on so many inputs. With a witness, which is of the baseline's ranks, also their calls
        without a kernel: in the same turn, or where their host waits for the device, in one that is queued ahead. Then
        only the copies show what passes around calls that are queued ahead."""
        is_apart = group in self.waits
        work = () if witness is None else (count + 1) // 2 * NOTHING + count * COPY if is_apart else OVERHEADS
        further = [at % count for at in range(len(work))]
        if not is_apart:
            seen = self.turn(group, StepOrder(indices=[*range(count), *further], work=count * KERNEL + work))
        else:
            seen = self.turn(group, StepOrder(indices=range(count)))
            seen += self.turn(group, StepOrder(indices=further, work=work)) if work else []
        if witness is not None:
            found = [(one, what) for one, what in zip(seen[count:], work, strict=True) if one.is_ahead]
            self.idle += [one for one, what in found if what == "nothing"]
            witness.copies += [one for one, what in found if what == "copy"]
        return seen[:count]

    def on_inputs(self, group: Group, indices: Sequence[int]) -> list[float]:
        """The times of one turn's calls on these inputs, in us."""
        return [max(one.call_us - self.empty_us, 0.0) for one in self.turn(group, StepOrder(indices=indices))]
