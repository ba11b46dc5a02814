"""A case's samples on every clock: reference and submission in turn on the same fresh inputs, every output verified.

The parent trusts no time that a candidate rank reports: what cannot be true is held (ranks.credibility), and nothing
is believed to be faster than what the machine can do.
"""

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from harness.core.machine_records import Peaks
from harness.core.metrics import MEMORY
from harness.core.records import Bound, Case, Clock, Crashed, Held, Measured, Profile, Series, Wrong
from harness.core.stats import median
from harness.judging.figures import case_figures
from harness.kinds.kind import OpponentFailed, SubmissionFailed
from harness.kinds.op.calls import Calls
from harness.kinds.op.check import Probe, expect_right, probe_s
from harness.kinds.op.stepped import Stepping
from harness.kinds.op.traffic import TrafficCount
from harness.ranks import clocks, credibility, trace, wire
from harness.ranks.group import CallOrder, Group
from harness.ranks.witness import Turn, wall_us

SLOW_S = 1.0  # to make an input and to judge its output: half the samples have to do; such calls differ little
FEWEST = 8  # samples, in two blocks, which an interval takes
LONG_US = 30_000  # a call beside which what a host's cold caches cost, half a millisecond, is little
OUTPUTS = 2  # that are judged for a sample on each clock: warm calls, and calls that look for caches, are judged too
IDLE_EVERY = 2  # inputs of a block, on one of which ranks that are trusted with it also make an idle call, on CPUs
CACHE_INPUTS, FEWER_INPUTS = 5, 3  # that are called on twice, after a benchmark was timed; where judging is slow
CACHE_LOOKS, CACHE_AGAIN = 3, 2  # further looks, if that one shows caching, and calls on an input after its first
MEMORY_PAIRS = 3  # calls of either side: a peak does not vary as times do, and each call costs a fresh input
Sampling = Callable[[], contextlib.AbstractContextManager[None]]
Tell = Callable[[float], None]


def untold(left_s: float) -> None:
    """Tells nobody."""


class CaseMeasurement:
    """The measurement of one case. `stepping` makes the calls that rank on GPUs. `sampling` is entered while calls are
    timed. `tell` is told about how many seconds the measurement will still take."""

    def __init__(
        self, calls: Calls, case: Case, stepping: Stepping | None, sampling: Sampling, tell: Tell = untold
    ) -> None:
        self.calls, self.case, self.stepping, self.sampling, self.tell = calls, case, stepping, sampling, tell
        self.looks = True  # at more than the ranked clock: for caches, and at memory

    def measured(self, bound: Bound | None, peaks: Peaks | None, again: bool = False) -> Measured:
        """The case's samples. Raises SubmissionFailed or OpponentFailed if an output is wrong or something is
        impossible. What a busy machine may look like is looked at twice, and counts when it is seen twice: the second
        time with samples of its own. `again`: on the ranked clock alone, since an earlier launch has looked at the case
        in full, or a later evaluation will."""
        calls = self.calls
        self.looks = not again
        samples = self._credible(calls.plan.clocks[:1] if again else calls.plan.clocks)
        memory = None
        if not again:
            for group in calls.in_order("cached", calls.at):
                if doubt := self.cached(group):
                    raise self._held(group, check="cache", evidence=doubt)
            memory = memory_of(calls, self.case)
        measured = samples.measured()
        if memory is not None:
            measured = replace(measured, series=(*measured.series, memory))
        for group in calls.rivals:
            if held := beyond(measured, bound, peaks, is_baseline=group is calls.baseline):
                raise calls.blamed(group, self.case, held)
        return measured

    def _held(self, group: Group, check: str, evidence: str) -> SubmissionFailed | OpponentFailed:
        return self.calls.blamed(group, self.case, Held(check=check, evidence=evidence))

    def _credible(self, on: Sequence[Clock]) -> clocks.Samples:
        """Samples that are possible. A submission that is the reference and reads otherwise is timed once more."""
        calls = self.calls
        for attempt in range(2):
            samples = self.samples(on)
            doubted = _doubted(calls, samples)
            if doubted is None and (attempt or not calls.plan.is_reference or _is_one(samples.measured())):
                return samples
        assert doubted is not None, "it was doubted twice"
        raise self._held(doubted[0], check="clock", evidence=doubted[1])

    def samples(self, on: Sequence[Clock]) -> clocks.Samples:
        """Samples of both sides in turn on these clocks, on fresh inputs, until they suffice; every output verified."""
        calls, case, stepping = self.calls, self.case, self.stepping
        plan = calls.plan
        warm_up = calls.fresh(1)
        calls.make(case, warm_up)
        # Warm-up: first touches of this shape are not what is ranked; and for as many calls as checked the submission,
        # since on CPU ranks each of the first dozen in a process group is faster than the one before.
        while calls.ahead > 0:
            calls.turn(calls.baseline, CallOrder(indices=[0]))
        sides = calls.both("warm-up", calls.at)
        warm: dict[Group, Turn] = {}
        for clock in on[1:] if stepping else on:
            warm = {group: calls.turn(group, CallOrder(indices=[0], clock=clock)) for group in sides}
            judged = [(group, 0) for group in sides if group in calls.rivals]
            expect_right(calls, case, judged, "a call before the timed ones")
        calls_us = [wall_us(turn.called[0]) for turn in warm.values()]
        seen_us = {group: turn.seen_us for group, turn in warm.items()}
        if stepping is not None:
            seen_us = stepping.warm_up(case)
        budget = _budget(calls, case, min(calls_us, default=0.0))
        in_pairs = budget.burst or not calls.has_files
        device = stepping.witness() if stepping else None
        samples = clocks.Samples(on, budget.block, in_pairs, plan.opponent is None, device)
        # From here on, since a warm-up may take seconds: collectives connect the ranks of a new group one to one.
        began = time.monotonic()
        hold_s = {group: probe_s(us) for group, us in seen_us.items() if group in calls.rivals}
        probe = Probe(calls, case, hold_s, warm_up[0].seed)
        cost = plan.problem.cost(case) if plan.problem.cost_of else None
        least_bytes = (cost.link_bytes if cost.mean_link_bytes is None else cost.mean_link_bytes) if cost else 0
        traffic = TrafficCount(calls.links, least_bytes, is_trusted=plan.opponent is None)
        warm_s = calls.making_s + calls.judging_s + 1e-6 * sum(calls_us or seen_us.values())
        each_s = math.sqrt(warm_s * calls.checked_s)  # slower than the last input, faster than the first ones
        number, took_s = 0, 0.0
        with self.sampling():
            while not clocks.enough(budget, samples, took_s):
                if number or self.looks:  # else an earlier launch tells more
                    self.tell(clocks.left_s(budget, samples, took_s, each_s) + self._looks_s(each_s))
                for clock in clocks.due(on, number):
                    if stepping is not None and clock == "device":
                        stepping.block(number, case, budget, samples, probe, traffic)
                    else:
                        self.block(budget, samples, clock, probe, traffic)
                number, took_s = number + 1, time.monotonic() - began
                each_s = took_s / max(1, samples.count(samples.ranked))
        self.tell(self._looks_s(each_s))
        samples.traffic = traffic.record()
        for group in calls.rivals:
            if doubt := traffic.doubt(group is calls.baseline):
                raise calls.blamed(group, case, doubt)
        return samples

    def block(
        self, budget: clocks.Budget, samples: clocks.Samples, clock: Clock, probe: Probe, traffic: TrafficCount
    ) -> None:
        """A block of samples on that clock."""
        calls, case = self.calls, self.case
        turns = clocks.turns(budget, clock, samples.count(clock))
        flipped = len(calls.rivals) > 1 and probe.secret("first") % 2 == 1
        late = probe.due(samples.count(clock), budget.block) if clock == samples.ranked else None
        if late is not None and budget.burst:
            probe.burst(late, len(turns[0][1]))
            late = None
        place = probe.place(len(turns)) if late is not None else -1
        # Of several that are handed out together, none can be read before it is its turn.
        masked = any(len(indices) > 1 for _, indices in turns)
        count = 1 + max(index for _, indices in turns for index in indices)
        calls.make(case, calls.fresh(count + (late is not None), masked))
        number = samples.count(clock) // budget.block
        is_counted = clock == samples.ranked and probe.counts(number)
        own: dict[int, Sequence[wire.CallSample]] = {}
        ref: dict[int, Sequence[wire.CallSample]] = {}
        judged: list[tuple[Group, int]] = []
        for number, (is_reference, indices) in enumerate(turns):
            if late is not None and number == place:
                probe.call(late, [count])
                judged += [(group, count) for group in probe.hold_s]
            is_baseline = is_reference != flipped
            group = calls.baseline if is_baseline else calls.candidate
            order = CallOrder(indices=indices, clock=clock)
            work = partial(calls.turn, group, order)
            turn = traffic.turn(is_baseline, len(indices), work) if is_counted else work()
            if group in calls.rivals:
                judged += [(group, index) for index in indices]
                if doubt := credibility.impossible(turn, clock):
                    raise self._held(group, check="clock", evidence=doubt)
            (ref if is_baseline else own).update(zip(indices, turn.called, strict=True))
            samples.saw(clock, turn, is_baseline)
            if calls.has_files and is_reference and indices[0] % IDLE_EVERY == 0:
                samples.saw_idle(calls.turn(calls.idlers, replace(order, idle=True)))
        samples.add(clock, *(list(called.values())[-budget.block :] for called in (own, ref)))
        expect_right(calls, case, judged, f"a timed call ({clock} clock)")

    def cached(self, group: Group) -> str:
        """Why a submission caches results for inputs that come again, or "". No timed input does; a submission that
        caches results is optimising for the benchmark.

        A busy machine may look like it in a first look, so three further ones on other inputs have to show it as well,
        and our reference, which caches nothing, must not. The rate of errors, where chance alone slows calls down: the
        first call on an input is the slowest of three on one input in three, so a further look shows caching with a
        probability of 0.045 at most, and a file that caches nothing is held in 17 of a million cases at most (46 with 3
        inputs in the first look)."""
        calls = self.calls
        if not self.repeated(group, self._inputs, 1):
            return ""
        if calls.plan.opponent is None and self.repeated(calls.baseline):
            return ""
        doubt = ""
        for _ in range(CACHE_LOOKS):
            if not (doubt := self.repeated(group)):
                break
        return doubt

    @property
    def _inputs(self) -> int:
        """The number of inputs in the first look for caches."""
        return FEWER_INPUTS if self.calls.at in self.calls.shortened else CACHE_INPUTS

    def _looks_s(self, each_s: float) -> float:
        """About how long it takes to look for caches and to measure memory, if a sample takes so many seconds."""
        pairs = 0 if self.calls.has_files else MEMORY_PAIRS
        return (len(self.calls.rivals) * self._inputs + pairs) * each_s if self.looks else 0.0

    def repeated(self, group: Group, inputs: int = CACHE_INPUTS, again: int = CACHE_AGAIN) -> str:
        """What calls on so many fresh inputs, and `again` more on each, say of caching. Each call has a copy of its
        input of its own, since a call may use its inputs as scratch. All outputs are judged."""
        calls, case, stepping = self.calls, self.case, self.stepping
        clock: Clock = "device" if "device" in calls.plan.clocks else "wall"
        times_us: list[float] = []
        while len(times_us) < (1 + again) * inputs:
            fresh = calls.fresh(max(1, min(inputs, 2 * calls.room() // (1 + again))))  # no more outputs than at first
            indices = [index for index in range(len(fresh)) for _ in range(1 + again)]
            calls.make(case, fresh, stepped=stepping is not None)
            if stepping is not None:
                times_us += stepping.on_inputs(group, indices)
            else:
                for index in indices:
                    calls.load(group, [index])
                    once = calls.call(group, CallOrder(indices=[0], clock=clock))
                    calls.take(group, once)
                    times_us += map(clocks.SAMPLE_US[clock], once)
                calls.rest(group)
            judged = [(group, index) for index in indices if calls.is_judged(group)]
            expect_right(calls, case, judged, "a call on an input, or on the same once more")
        return credibility.kept(times_us, again)


def _doubted(calls: Calls, samples: clocks.Samples) -> tuple[Group, str] | None:
    """The rival whose claims on the host's clocks cannot be believed at all, and why."""
    for group in calls.rivals:
        is_baseline = group is calls.baseline
        doubt = samples.doubt(calls.plan.baseline_name, is_baseline) or credibility.too_short(samples, is_baseline)
        if doubt:
            return group, doubt
    return None


def _is_one(measured: Measured) -> bool:
    """Whether the case's speedup may be 1, by its interval."""
    ratio = case_figures(measured, None).ratio
    return ratio is not None and ratio.ci is not None and ratio.ci[0] <= 1 <= ratio.ci[1]


def _budget(calls: Calls, case: Case, call_us: float) -> clocks.Budget:
    """The plan's, without bursts where even the shorter call of both sides takes long, `call_us`: a burst's warm-up
    would be of no use. With smaller blocks where inputs like the one that was just made are large, and then without a
    burst, which calls so long do not need. Where making an input and judging its output take long, or so long that the
    usual minimum would use up the case's share of its phase: half the minimum, in smaller blocks. A drawn shape, which
    does not rank, is measured for as long as a benchmark in one of four launches."""
    budget = calls.plan.budget
    if case.kind == "drawn":
        seconds, least = min(budget.seconds, calls.plan.suite.benchmark_s / 4), min(budget.min_samples, FEWEST)
        budget = replace(budget, seconds=seconds, min_samples=least)
    budget = replace(budget, burst=budget.burst and call_us < LONG_US)
    outputs = OUTPUTS * len(calls.plan.clocks) * budget.min_samples
    if calls.making_s + calls.judging_s > min(SLOW_S, calls.share_s() / outputs):
        least = max(FEWEST, budget.min_samples // 2)
        if least < budget.min_samples:
            calls.shortened.add(calls.at)
        budget = replace(budget, min_samples=least, block=min(budget.block, least // 2))
    block = min(budget.block, calls.room() - clocks.WARM_CALLS)
    return budget if block >= budget.block else replace(budget, block=max(1, block), burst=budget.burst and block > 0)


def memory_of(calls: Calls, case: Case) -> Series | None:
    """Calls of either side on the same fresh inputs, one by one. None on CPU cores, where nothing tells a call's memory
    from the process's.

    A call's memory is the most that its process holds of the device during the call, input and result and all that a
    submission keeps between calls included, the harness's own memory not. Ranks say it, so it is a claim.
    """
    if calls.has_files:
        return None
    own: list[float] = []
    ref: list[float] = []
    least = 0.0
    for _ in range(MEMORY_PAIRS):
        calls.make(case, calls.fresh(1))
        sides = calls.both("memory", calls.at)
        turns = {group: calls.turn(group, CallOrder(indices=[0]), watched=True) for group in sides}
        rivals = [group for group in sides if group in calls.rivals]
        expect_right(calls, case, [(group, 0) for group in rivals], "a call whose memory was measured")
        own.append(float(calls.memory_of(calls.candidate)))
        ref.append(float(calls.memory_of(calls.baseline)))
        results = [call.output.nbytes if call.output else 0 for call in turns[calls.candidate].called[0]]
        inputs = [rank.inputs[0].nbytes for rank in calls.made]
        least = max(least, *map(float, map(sum, zip(inputs, results, strict=True))))
    if not all(own) or not all(ref):
        return None
    problem = calls.plan.problem
    told = problem.cost(case).held_bytes if problem.cost_of is not None else 0
    return Series(metric=MEMORY, own=tuple(own), baseline=tuple(ref), least=told or least)


def beyond(measured: Measured, bound: Bound | None, peaks: Peaks | None, is_baseline: bool) -> Held | None:
    """Holds a side that is faster than what the machine can do."""
    series = measured.against_bound
    times_us = series.baseline if is_baseline else series.own
    if bound is None or not times_us or (time_us := median(times_us)) >= bound.value:
        return None
    limit = f"{bound.value:.2f} us ({bound.by}, {peaks.source if peaks else ''})"
    return Held(check="roofline", evidence=f"{time_us:.2f} us are less than the limit of {limit}")


def profile(calls: Calls, case: Case, workdirs: Sequence[Path]) -> Profile:
    """A profile of one call; the ranks' traces become one. `workdirs` are the candidate ranks' folders."""
    traces = profiled(calls, case, workdirs)
    return Profile(
        ranks=tuple(trace.profile(rank, found) for rank, found in enumerate(traces)),
        trace_json=trace.merge(traces, f"{calls.plan.problem.name}: {case.label}"),
    )


def profiled(calls: Calls, case: Case, workdirs: Sequence[Path]) -> list[trace.RankTrace]:
    """Each rank's trace of one call, behind a warm-up; both calls are verified."""
    calls.make(case, calls.fresh(2))
    calls.candidate.ask(wire.Do(what="start_profile"), wire.Done, calls.deadline)
    for index in range(2):
        calls.turn(calls.candidate, CallOrder(indices=[index]))
    calls.candidate.ask(wire.Do(what="stop_profile"), wire.Done, calls.deadline)
    _, profiled = calls.verify(0, 1)  # the warm-up's is taken first
    if not profiled.strict.passed:
        raise SubmissionFailed(Wrong(message=f"profiled call: {profiled.strict.message}"))
    traces: list[trace.RankTrace] = []
    for rank, folder in enumerate(workdirs):
        try:
            traces.append(trace.parse(trace.read(folder / trace.FILE)))
        except trace.TraceError as error:
            raise SubmissionFailed(Crashed(rank=rank, message=f"its trace {error}", log_tail="")) from None
    return traces
