"""A case's samples on every clock: reference and submission in turn on the same fresh inputs, every output verified.

The parent trusts no time that a candidate rank reports: what cannot be true is held (ranks.credibility), and nothing
is believed to be faster than what the machine can do.
"""

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from harness.core.machine_records import Peaks
from harness.core.records import Bound, Case, Clock, Crashed, Failure, Held, Measured, Profile, Wrong
from harness.core.stats import median
from harness.judging.checkers import CHECKERS
from harness.kinds import op_memory
from harness.kinds.op_calls import Calls
from harness.kinds.op_check import dependents, probe_s, silent
from harness.kinds.op_traffic import TrafficCount
from harness.ranks import clocks, credibility, trace, wire
from harness.ranks.group import Late
from harness.ranks.witness import wall_us

# A call is delayed among so many samples at first, and among so many later: each costs as much as several calls.
PROBE_FIRST, PROBE_EVERY = 16, 64
SLOW_S = 1.0  # to make an input and to judge its output: half the samples have to do; such calls differ little
FEWEST = 8  # samples, in two blocks, which an interval takes
LONG_US = 30_000  # a call beside which what a host's cold caches cost, half a millisecond, is little
OUTPUTS = 2  # that are judged for a sample on each clock: warm calls, and calls that look for caches, are judged too
IDLE_EVERY = 2  # inputs of a block, on one of which the baseline's ranks also make an idle call, on CPUs
COUNT_EVERY = 4  # blocks, of which the secret chooses one in which traffic is counted, and the first
CACHE_PAIRS = 5  # inputs that are called on twice, after a benchmark was timed
Sampling = Callable[[], contextlib.AbstractContextManager[None]]


def measure(
    calls: Calls, case: Case, bound: Bound | None, peaks: Peaks | None, sampling: Sampling
) -> Measured | Failure:
    """The case's samples, unless something about them is impossible. What a busy machine may look like is looked at
    twice, and counts when it is seen twice: the second time with samples of its own. `sampling` is entered while calls
    are timed."""
    for _ in range(2):
        samples = _samples(calls, case, sampling)
        if not isinstance(samples, clocks.Samples):
            return samples
        doubt = samples.doubt(calls.plan.baseline_name) or credibility.too_short(samples)
        if not doubt:
            break
    else:
        return Held(check="clock", evidence=doubt)
    for _ in range(2):
        found = _cached(calls, case)
        if not isinstance(found, Held):
            break
    if found is not None:
        return found
    memory = op_memory.measured(calls, case)
    if isinstance(memory, Wrong):
        return memory
    measured = samples.measured()
    if memory is not None:
        measured = replace(measured, series=(*measured.series, memory))
    return _believed(measured, bound, peaks)


def _samples(calls: Calls, case: Case, sampling: Sampling) -> clocks.Samples | Wrong | Held:
    """Samples of reference and submission in turn, on fresh inputs, until they suffice; every output verified."""
    plan = calls.plan
    warm_up = calls.fresh(1)
    calls.make(case, warm_up)
    # Warm-up: first touches of this shape are not what is ranked; and for as many calls as checked the submission,
    # since on CPU ranks each of the first dozen in a process group is faster than the one before.
    while calls.ahead > 0:
        calls.turn(calls.baseline, [0])
    for clock in plan.clocks:
        ref, own = (calls.turn(group, [0], clock) for group in (calls.baseline, calls.candidate))
        if (wrong := _wrong(calls, [0], "a call before the timed ones")) is not None:
            return wrong
    budget = _budget(calls, min(wall_us(turn.called[0]) for turn in (ref, own)))
    in_pairs = budget.burst or not calls.has_files
    samples = clocks.Samples(plan.clocks, budget.block, in_pairs, is_trusted=plan.opponent is None)
    # From here on, since a warm-up may take seconds: collectives connect the ranks of a new group one to one.
    began, probe = time.monotonic(), Probe(calls, case, probe_s(own), warm_up[0].seed)
    cost = plan.problem.cost(case) if plan.problem.cost_of else None
    traffic = TrafficCount(calls.links, cost.link_bytes if cost else 0)
    with sampling():
        while not clocks.enough(budget, samples, time.monotonic() - began):
            for clock in clocks.due(plan.clocks, samples.count("wall") // budget.block):
                if (failure := _block(calls, case, budget, samples, clock, probe, traffic)) is not None:
                    return failure
    samples.traffic = traffic.record()
    return traffic.doubt() or samples


def _block(
    calls: Calls,
    case: Case,
    budget: clocks.Budget,
    samples: clocks.Samples,
    clock: Clock,
    probe: "Probe",
    traffic: TrafficCount,
) -> Wrong | Held | None:
    """One block of samples on one clock; None where every call was right and possible."""
    turns = clocks.turns(budget, clock, samples.count(clock))
    late = probe.due(samples.count(clock), budget.block) if clock == "wall" else None
    if late is not None and budget.burst:
        if (failure := probe.burst(late, len(turns[0][1]))) is not None:
            return failure
        late = None
    place = probe.place(len(turns)) if late is not None else -1
    # Of several that are handed out together, none can be read before it is its turn.
    masked = any(len(indices) > 1 for _, indices in turns)
    count = 1 + max(index for _, indices in turns for index in indices)
    calls.make(case, calls.fresh(count + (late is not None), masked))
    number = samples.count(clock) // budget.block
    is_counted = clock == "wall" and (not number or probe.secret("counted", number) % COUNT_EVERY == 0)
    own: dict[int, Sequence[wire.CallSample]] = {}
    ref: dict[int, Sequence[wire.CallSample]] = {}
    judged: list[int] = []
    for number, (is_baseline, indices) in enumerate(turns):
        if late is not None and number == place:
            if (held := probe.call(late, count)) is not None:
                return held
            judged.append(count)
        work = partial(calls.turn, calls.baseline if is_baseline else calls.candidate, indices, clock)
        turn = traffic.turn(is_baseline, len(indices), work) if is_counted else work()
        if not is_baseline:
            judged += indices
            if doubt := credibility.impossible(turn, clock):
                return Held(check="clock", evidence=doubt)
        (ref if is_baseline else own).update(zip(indices, turn.called, strict=True))
        samples.saw(clock, turn, is_baseline)
        if is_baseline and _has_idle_call(calls, indices[0]):
            samples.saw_idle(calls.turn(calls.baseline, indices, clock, idle=True))
    samples.add(clock, *(list(called.values())[-budget.block :] for called in (own, ref)))
    return _wrong(calls, judged, f"a timed call ({clock} clock)")


def _has_idle_call(calls: Calls, index: int) -> bool:
    """Whether the baseline's ranks make a call on that input without the kernel, too. Those of an opponent would not be
    trusted with it."""
    return calls.has_files and calls.plan.opponent is None and index % IDLE_EVERY == 0


class Probe:
    """Delays a rank in a call among the timed ones, so that a submission does not communicate in checked calls alone.
    Which call it is, and which rank, follows from the run's secret. Its time does not count, and its output is judged
    like the others'. `hold_s` is how long a rank is kept out. `salt` is another secret number whenever a case is
    measured, since ranks that have seen one measurement would know the next one's."""

    def __init__(self, calls: Calls, case: Case, hold_s: float, salt: int) -> None:
        self.calls, self.case, self.hold_s, self.salt = calls, case, hold_s, salt
        self.number = 0  # of delayed calls

    def secret(self, *what: str | int) -> int:
        """A number that nobody can know ahead."""
        return self.calls.plan.seed("measured", self.salt, *what)

    def _secret(self, what: str, below: int) -> int:
        return self.secret("delayed", self.number, what) % below

    def due(self, first: int, block: int) -> Late | None:
        """The rank that is late in the block of samples from number `first` on, if any is."""
        begins, size = (PROBE_FIRST + PROBE_EVERY * (self.number - 1), PROBE_EVERY) if self.number else (0, PROBE_FIRST)
        if first + block <= begins + self._secret("call", size):
            return None
        ranks = range(self.calls.plan.world_size)
        probed = [rank for rank in ranks if dependents(self.calls.plan, self.case, rank)]
        if not probed:
            return None
        self.number += 1
        return Late(rank=probed[self._secret("rank", len(probed))], hold_s=self.hold_s)

    def place(self, count: int) -> int:
        """Before which of so many turns."""
        return self._secret("place", count)

    def call(self, late: Late, index: int) -> Held | None:
        """One call on that input."""
        calls = self.calls
        calls.turn(calls.candidate, [index], late=late)
        return silent(calls, late.rank, dependents(calls.plan, self.case, late.rank), late.hold_s)

    def burst(self, late: Late, count: int) -> Wrong | Held | None:
        """A burst of so many calls, one of which is delayed: not the first, since all ranks get that input at once."""
        calls = self.calls
        calls.make(self.case, calls.fresh(count, masked=True))
        late = replace(late, at=1 + self._secret("place", count - 1))
        calls.turn(calls.candidate, range(count), late=late)
        held = silent(calls, late.rank, dependents(calls.plan, self.case, late.rank), late.hold_s)
        return held or _wrong(calls, range(count), "a call in a burst with a late rank")


def _wrong(calls: Calls, indices: Sequence[int], what: str) -> Wrong | None:
    """The first of the outputs taken next, as ones of these inputs, that is wrong."""
    wrong = (one.strict.message for one in calls.verify(*indices) if not one.strict.passed)
    return next((Wrong(message=f"{what}: {message}") for message in wrong), None)


def _budget(calls: Calls, call_us: float) -> clocks.Budget:
    """The plan's, without bursts where even the shorter call of both sides takes long, `call_us`: a burst's warm-up
    would be of no use. With smaller blocks where inputs like the one that was just made are large, and then without a
    burst, which calls so long do not need. Where making an input and judging its output take long, or so long that the
    usual minimum would use up the case's share of its phase: half the minimum, in smaller blocks."""
    budget = calls.plan.budget
    budget = replace(budget, burst=budget.burst and call_us < LONG_US)
    outputs = OUTPUTS * len(calls.plan.clocks) * budget.min_samples
    if calls.making_s + calls.judging_s > min(SLOW_S, calls.share_s() / outputs):
        least = max(FEWEST, budget.min_samples // 2)
        if least < budget.min_samples:
            calls.shortened.add(calls.at)
        budget = replace(budget, min_samples=least, block=min(budget.block, least // 2))
    block = min(budget.block, calls.room() - clocks.WARM_CALLS)
    return budget if block >= budget.block else replace(budget, block=max(1, block), burst=budget.burst and block > 0)


def _cached(calls: Calls, case: Case) -> Wrong | Held | None:
    """Whether the submission seems to cache results for inputs that come again. No timed input does; a submission that
    caches results is optimising for the benchmark."""
    clock: Clock = "device" if "device" in calls.plan.clocks else "wall"
    is_pure = CHECKERS[calls.plan.checker].is_pure and not calls.plan.problem.in_place
    called: list[list[wire.CallSample]] = []
    while len(called) < 2 * CACHE_PAIRS:
        fresh = calls.fresh(max(1, min(CACHE_PAIRS, calls.room())))
        calls.make(case, fresh)
        calls.load(calls.candidate, range(len(fresh)))
        judged = []
        for index in range(len(fresh)):
            for is_again in (False, True):
                once = calls.call(calls.candidate, [index], clock, again=is_again)
                is_judged = is_pure or not is_again  # else the first call may have written to its input
                calls.take(calls.candidate, once, is_judged)
                judged += [index] * is_judged
                called += once
        calls.rest(calls.candidate)
        if (wrong := _wrong(calls, judged, "a call on an input, or on the same once more")) is not None:
            return wrong
    doubt = credibility.kept(called, clock)
    return Held(check="cache", evidence=doubt) if doubt else None


def _believed(measured: Measured, bound: Bound | None, peaks: Peaks | None) -> Measured | Held:
    """Nothing is faster than what the machine can do."""
    time_us = median(measured.against_bound.own)
    if bound is None or time_us >= bound.value:
        return measured
    return Held(
        check="roofline",
        evidence=f"{time_us:.2f} us are less than the limit of {bound.value:.2f} us "
        f"({bound.by}, {peaks.source if peaks else ''})",
    )


def profile(calls: Calls, case: Case, workdirs: Sequence[Path]) -> Profile | Failure:
    """A profile of one call; the ranks' traces become one. `workdirs` are the candidate ranks' folders."""
    traces = profiled(calls, case, workdirs)
    if not isinstance(traces, list):
        return traces
    return Profile(
        ranks=tuple(trace.profile(rank, found) for rank, found in enumerate(traces)),
        trace_json=trace.merge(traces, f"{calls.plan.problem.name}: {case.label}"),
    )


def profiled(calls: Calls, case: Case, workdirs: Sequence[Path]) -> list[trace.RankTrace] | Failure:
    """Each rank's trace of one call, behind a warm-up; both calls are verified."""
    calls.make(case, calls.fresh(2))
    calls.candidate.ask(wire.StartProfile(), wire.Done, calls.deadline)
    for index in range(2):
        calls.turn(calls.candidate, [index])
    calls.candidate.ask(wire.StopProfile(), wire.Done, calls.deadline)
    _, profiled = calls.verify(0, 1)  # the warm-up's is taken first
    if not profiled.strict.passed:
        return Wrong(message=f"profiled call: {profiled.strict.message}")
    traces: list[trace.RankTrace] = []
    for rank, folder in enumerate(workdirs):
        try:
            traces.append(trace.parse(trace.read(folder / trace.FILE)))
        except trace.TraceError as error:
            return Crashed(rank=rank, message=f"its trace {error}", log_tail="")
    return traces
