"""A case's samples on every clock: reference and submission in turn on the same fresh inputs, every output verified.

The parent trusts no time that a candidate rank reports: what cannot be true is held (ranks.credibility), and nothing
is believed to be faster than what the machine can do.
"""

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from harness.core.machine_records import Peaks
from harness.core.records import Bound, Case, Clock, Crashed, Failure, Held, Measured, Profile, Wrong
from harness.core.stats import median
from harness.judging.checkers import CHECKERS
from harness.kinds.op_calls import Calls
from harness.ranks import clocks, credibility, trace, wire

CACHE_PAIRS = 5  # inputs that are called on twice, after a benchmark was timed
Sampling = Callable[[], contextlib.AbstractContextManager[None]]


def measure(
    calls: Calls, case: Case, bound: Bound | None, peaks: Peaks | None, sampling: Sampling
) -> Measured | Failure:
    """The case's samples, unless something about them is impossible. What a busy machine may look like is looked at
    twice, and counts when it is seen twice: the second time with samples of its own. `sampling` is entered while calls
    are timed."""
    for _ in range(2):
        own, ref = clocks.Side(), clocks.Side()
        samples = _samples(calls, case, own, ref, sampling)
        if not isinstance(samples, clocks.Samples):
            return samples
        doubt = credibility.unaccounted(own, ref, calls.plan.baseline_name) or credibility.too_short(samples)
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
    return _believed(samples.measured(), bound, peaks)


def _samples(
    calls: Calls, case: Case, own_side: clocks.Side, ref_side: clocks.Side, sampling: Sampling
) -> clocks.Samples | Wrong | Held:
    """Samples of reference and submission in turn, on fresh inputs, until they suffice; every output verified."""
    plan = calls.plan
    calls.make(case, calls.fresh(1))
    budget = _budget(calls)
    samples = clocks.Samples(plan.clocks, budget.block)
    # Warm-up: first touches of this shape are not what is ranked; and for as many calls as checked the submission,
    # since on CPU ranks each of the first dozen in a process group is faster than the one before.
    while calls.ahead > 0:
        calls.turn(calls.baseline, [0])
    for clock in plan.clocks:
        calls.turn(calls.baseline, [0], clock)
        calls.turn(calls.candidate, [0], clock)
        if (wrong := _wrong(calls, [0], "a call before the timed ones")) is not None:
            return wrong
    # From here on, since a warm-up may take seconds: collectives connect the ranks of a new group one to one.
    before_us, began = _busy_us(calls), time.monotonic()
    with sampling():
        while not clocks.enough(budget, samples, time.monotonic() - began):
            for clock in clocks.due(plan.clocks, samples.count("wall") // budget.block):
                if (failure := _block(calls, case, budget, samples, clock, own_side, ref_side)) is not None:
                    return failure
    own_side.busy_us, ref_side.busy_us = (b - a for a, b in zip(before_us, _busy_us(calls), strict=True))
    return samples


def _block(
    calls: Calls,
    case: Case,
    budget: clocks.Budget,
    samples: clocks.Samples,
    clock: Clock,
    own_side: clocks.Side,
    ref_side: clocks.Side,
) -> Wrong | Held | None:
    """One block of samples on one clock; None where every call was right and possible."""
    turns = clocks.turns(budget, clock, samples.count(clock))
    # Of several that are handed out together, none can be read before it is its turn.
    masked = any(len(indices) > 1 for _, indices in turns)
    calls.make(case, calls.fresh(1 + max(index for _, indices in turns for index in indices), masked))
    own: dict[int, Sequence[wire.CallSample]] = {}
    ref: dict[int, Sequence[wire.CallSample]] = {}
    for reference, indices in turns:
        turn = calls.turn(calls.baseline if reference else calls.candidate, indices, clock)
        if not reference and (doubt := credibility.impossible(turn, clock)):
            return Held(check="clock", evidence=doubt)
        (ref if reference else own).update(zip(indices, turn.called, strict=True))
        if clock == "wall":
            (ref_side if reference else own_side).turns.append(turn)
    samples.add(clock, *(list(called.values())[-budget.block :] for called in (own, ref)))
    return _wrong(calls, list(own), f"a timed call ({clock} clock)")


def _wrong(calls: Calls, indices: Sequence[int], what: str) -> Wrong | None:
    """The first of the outputs taken next, as ones of these inputs, that is wrong."""
    wrong = (one.strict.message for one in calls.verify(*indices) if not one.strict.passed)
    return next((Wrong(message=f"{what}: {message}") for message in wrong), None)


def _budget(calls: Calls) -> clocks.Budget:
    """The plan's, with smaller blocks where inputs like the one that was just made are large, and then without a
    burst, which calls so long do not need."""
    budget = calls.plan.budget
    block = min(budget.block, calls.room() - clocks.WARM_CALLS)
    return budget if block >= budget.block else replace(budget, block=max(1, block), burst=budget.burst and block > 0)


def _busy_us(calls: Calls) -> tuple[float, float]:
    """CPU time so far of candidate and baseline; nan where it says little, since a device does the work."""
    if calls.plan.device != "cpu":
        return (math.nan, math.nan)
    return (calls.candidate.busy_us(), calls.baseline.busy_us())


def _cached(calls: Calls, case: Case) -> Wrong | Held | None:
    """Whether the submission seems to cache results for inputs that come again. No timed input does; a submission that
    caches results is optimising for the benchmark."""
    clock: Clock = "device" if "device" in calls.plan.clocks else "wall"
    is_pure = CHECKERS[calls.plan.checker].is_pure
    called: list[list[wire.CallSample]] = []
    while len(called) < 2 * CACHE_PAIRS:
        fresh = calls.fresh(max(1, min(CACHE_PAIRS, calls.room())))
        calls.make(case, fresh)
        calls.load(calls.candidate, range(len(fresh)))
        judged = []
        for index in range(len(fresh)):
            for is_again in (False, True):
                once = calls.call(calls.candidate, [index], clock)
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
        evidence=f"{time_us:.2f} us are less than the bound of {bound.value:.2f} us "
        f"({bound.by}, {peaks.source if peaks else ''})",
    )


def profile(calls: Calls, case: Case, workdirs: Sequence[Path]) -> Profile | Failure:
    """A warm-up and one more call under the profiler, verified too; the ranks' traces become one. `workdirs` are the
    candidate ranks' folders."""
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
    return Profile(
        ranks=tuple(trace.profile(rank, found) for rank, found in enumerate(traces)),
        trace_json=trace.merge(traces, f"{calls.plan.problem.name}: {case.label}"),
    )
