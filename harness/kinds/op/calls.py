"""Calls of the three groups of ranks, as the parent commands them: inputs made, handed out, called on, outputs judged.

Inputs come from trusted ranks, and outputs go back to them as bytes; the parent sees neither.
"""

import time
from collections.abc import Sequence
from dataclasses import replace

from harness.core.records import Case, Clock, Params, Verdict, Verdicts
from harness.core.words import count_text
from harness.kinds.op.groups import JUDGING, MAKING, Groups
from harness.kinds.op.plan import OpPlan
from harness.machine.nvml import LinkCounters
from harness.machine.sampler import GpuSampler
from harness.ranks import clocks, wire
from harness.ranks.group import CallOrder, Group, close
from harness.ranks.launch import Ranks
from harness.ranks.witness import Turn

EMPTY_CALLS = 30
# Of each input and output of a block, at most, on one device: made, in its buffer, loaded on either side; in both
# sides' buffers, and taken from each that is judged.
INPUT_COPIES, OUTPUT_COPIES = 4, 2


class Calls(Groups):
    """The groups of one evaluation and the inputs that they have."""

    def __init__(self, plan: OpPlan, ranks: Ranks) -> None:
        super().__init__(plan, ranks)
        self.files: list[list[int]] = []  # of the inputs that were made last, by rank
        self.loaded: Sequence[int] = []  # which of them the group on turn has, or will have at the gate
        self.unjudged: list[tuple[list[tuple[wire.Output, ...]], list[list[int]]]] = []  # with their files, by rank
        self.made: list[wire.InputsMade] = []
        self.params: Params | None = None  # of the case whose inputs were made last
        self.links: LinkCounters | None = None  # of the GPUs that these calls run on, if they are several
        self.gpus: GpuSampler | None = None  # samples them while calls are timed
        self.making_s = 0.0  # how long the inputs that were made last took
        self.judging_s = 0.0  # how long judging one of their outputs took, at most
        self.checked_s = 0.0  # how long an input of the last check took: made, called on and judged
        self.shortened: set[int] = set()  # cases with fewer samples, since making or judging takes long
        self.inputs_timed = 0
        self._keys: list[int] = []  # of the inputs that were made last
        self._taken = 0  # outputs judged, of those taken since these inputs were made

    def call(self, group: Group, order: CallOrder) -> list[list[wire.CallSample]]:
        """Calls on loaded inputs, by call and rank. A single one on an input in a file is gated."""
        for other in (self.baseline, self.candidate):
            if other is not group:
                self.freeze(other)
        if self.has_files and len(order.indices) == 1:
            [index] = order.indices
            order = replace(order, indices=[min(0, index)], gated=True)
            if index >= 0:
                files = [files[self.loaded[index]] for files in self.files]
                order = replace(order, files=files, output_limit=max(rank.output_limit for rank in self.made))
        with self.phase.spent_on(f"calls of {self.name_of(group)}"):
            return group.call(order, self.deadline)

    def room(self) -> int:
        """The number of inputs like those just made, with their outputs, that memory has room for."""
        outputs = OUTPUT_COPIES + len(self.rivals)
        return min(
            min(rank.spare_bytes, self.plan.in_flight_bytes)
            // (INPUT_COPIES * rank.inputs[0].nbytes + outputs * rank.output_limit)
            for rank in self.made
        )

    def fresh(self, count: int, masked: bool = False) -> list[wire.InputSpec]:
        """Specifications of `count` inputs that no call has seen."""
        self.inputs_timed += count
        plan = self.plan
        return [
            wire.InputSpec(seed=plan.seed("timed", number), hardened=True, key=plan.key(number) if masked else 0)
            for number in range(self.inputs_timed, self.inputs_timed - count, -1)
        ]

    def forget(self) -> None:
        """Closes the files of inputs and of outputs that were not judged, which are nobody's any more."""
        close(self.files)
        close(files for _, by_rank in self.unjudged for files in by_rank)
        self.files, self.unjudged = [], []

    def make(self, case: Case, inputs: Sequence[wire.InputSpec], stepped: bool = False) -> None:
        """Trusted ranks make these inputs, for stepped calls or others. No other rank gets one before its call."""
        renew = self.plan.device != "cpu" and case.params != self.params  # so that no case keeps another's memory
        self.params = case.params
        if renew:
            self.trusted.ask(wire.Yield(), wire.Done, self.deadline)
            for group in (self.baseline, self.candidate):
                group.send(wire.Yield(case=True))
            for group in (self.baseline, self.candidate):
                group.gather(wire.Done, self.deadline)
        judged = sum(map(self.is_judged, (self.baseline, self.candidate)))
        command = wire.MakeInputs(params=case.params, inputs=tuple(inputs), renew=renew, stepped=stepped, judged=judged)
        self.forget()
        began = time.monotonic()
        with self.phase.spent_on(MAKING):
            self.made = self.trusted.ask(command, wire.InputsMade, self.phase.judged_by_s)
        self.making_s, self.judging_s = time.monotonic() - began, 0.0
        if self.has_files:
            self.files = self.trusted.take_files(len(inputs))
        self._keys = [spec.key for spec in inputs]
        self._taken = 0

    def load(self, group: Group, indices: Sequence[int], stepped: bool = False) -> None:
        """Hands these inputs to the group in place of its earlier ones. Inputs in files are handed out at the barrier
        instead, unless they are masked; those of stepped calls lie in the buffer when their call comes."""
        self.loaded = list(indices)
        if self.has_files and not any(self._keys[index] for index in indices):
            return
        commands = [
            wire.LoadInputs(
                inputs=tuple(rank.inputs[index] for index in indices),
                buffers=rank.buffers,
                output_limit=rank.output_limit,
                stepped=stepped,
            )
            for rank in self.made
        ]
        group.send(commands, [[files[index] for index in indices] for files in self.files])
        group.gather(wire.Done, self.deadline)

    def turn(self, group: Group, order: CallOrder, watched: bool = False) -> Turn:
        """Makes these calls of the group's kernel, on inputs of those made last, which the group gets just before.

        The results are fixed at once: they are in sealed files, or trusted ranks copy them. After the baseline's calls
        as many bytes are copied, so that the next calls find the machine in the same state. The group then rests until
        its next turn. `watched`: measure the memory of the first call (see `memory_of`). The output of an idle call, a
        copy of the last one (of trusted ranks: of the last one judged), is not judged.
        """
        indices, idle = order.indices, order.idle
        self.regain(group)  # before the turn begins, since it takes a while
        began_ns = time.monotonic_ns()
        self.load(group, indices)
        keys = [self._keys[index] for index in indices if self._keys[index]]
        if watched:
            group.ask(wire.Do(what="watch_memory"), wire.Done, self.deadline)
        called = self.call(group, replace(order, indices=range(len(indices)), keys=keys))
        if not idle:
            self.ahead += len(indices) if group is self.candidate else -len(indices)
        if self.has_files and not keys:
            began_ns = group.opened_ns  # nobody had any input before
        if self.has_files:
            ended_ns = group.sealed_ns()
            self.freeze(group)
        self.take(group, called, judged=not idle)
        if not self.has_files:
            # What it still had to do when its rank replied is done by now, or the outputs are wrong.
            ended_ns = time.monotonic_ns()
        self.rest(group)  # after its turn, since freeing many GiB takes milliseconds, more of them for who had more
        return Turn(
            began_ns=began_ns, ended_ns=ended_ns, called=tuple(map(tuple, called)), told_ns=tuple(group.told_ns)
        )

    def take(self, group: Group, called: Sequence[Sequence[wire.CallSample]], judged: bool = True) -> None:
        """Keeps the results of these calls for `verify`: trusted ranks copy them, or they stay in their files. The
        reference's results are kept only if the checker judges them. With `judged` false nothing is kept."""
        judged = judged and self.is_judged(group)
        outputs = [tuple(call.output or wire.NO_OUTPUT for call in calls) for calls in zip(*called, strict=True)]
        if not self.has_files:
            self.reads_of(group)
            commands = [wire.TakeOutputs(outputs=each, judged=judged) for each in outputs]
            self.trusted.ask(commands, wire.Done, self.deadline)
            return
        files = group.take_files(len(called))
        if judged:
            self.unjudged.append((outputs, files))
        else:
            close(files)

    def verify(self, *indices: int, published: bool = False) -> list[Verdicts]:
        """The verdicts on the next outputs taken, for the inputs of these indices: passed when on every rank."""
        return [
            Verdicts(
                strict=_over_ranks([rank.verdicts.strict for rank in ranks]),
                gpumode=_over_ranks([rank.verdicts.gpumode for rank in ranks]),
            )
            for ranks in self.judge(*indices, published=published)
        ]

    def judge(self, *indices: int, published: bool = False) -> list[list[wire.Verified]]:
        """Each trusted rank's own verdicts on the next outputs taken, for the inputs of these indices."""
        began = time.monotonic()
        unjudged, self.unjudged = self.unjudged, []
        self.has_read = self.has_read or bool(unjudged)
        for outputs, files in unjudged:
            self.trusted.send([wire.TakeOutputs(outputs=each, judged=True) for each in outputs], files)
            close(files)
        # All at once, since they need not wait for us between two; those of one input one after the other, since what
        # is right is then found once.
        order = sorted(range(len(indices)), key=lambda place: indices[place])
        for place in order:
            taken, last = self._taken + place, place == order[-1]
            self.trusted.send(wire.Verify(index=indices[place], taken=taken, published=published, last=last))
        self._taken += len(indices)
        by_s = self.phase.judged_by_s
        with self.phase.spent_on(JUDGING):
            for _ in unjudged:
                self.trusted.gather(wire.Done, by_s)
            verified = {place: self.trusted.gather(wire.Verified, by_s) for place in order}
        if indices:
            self.judging_s = max(self.judging_s, (time.monotonic() - began) / len(indices))
        return [verified[place] for place in range(len(indices))]


def empty_samples_us(calls: Calls, clock: Clock) -> tuple[float, ...]:
    """The times of empty calls of the baseline, in a burst or one by one as a case's, without those that warm up."""
    times: list[list[int]]
    times, warm = [[-1] * (clocks.WARM_CALLS + EMPTY_CALLS)], clocks.WARM_CALLS
    if clock == "device" or not calls.plan.budget.burst:
        times, warm = [[-1]] * (1 + EMPTY_CALLS), 1
    for group in calls.baselines("empty"):
        found = [called for indices in times for called in calls.call(group, CallOrder(indices=indices, clock=clock))]
    return tuple(map(clocks.SAMPLE_US[clock], found[warm:]))


def _over_ranks(verdicts: Sequence[Verdict]) -> Verdict:
    wrong = [f"rank {rank}: {verdict.message}" for rank, verdict in enumerate(verdicts) if not verdict.passed]
    if not wrong:
        return Verdict(passed=True, note=next((verdict.note for verdict in verdicts if verdict.note), ""))
    more = f" (and {count_text(len(wrong) - 1, 'more rank')})" if len(wrong) > 1 else ""
    return Verdict(passed=False, message=wrong[0] + more)
