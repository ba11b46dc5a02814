"""Is a submission right in a case, and do its ranks communicate? Checked calls, and the probe."""

from collections.abc import Sequence

from harness.core.records import Case, Failure, Held, Passed, Verdicts, Wrong
from harness.kinds.kind import Checked
from harness.kinds.op_calls import Calls
from harness.kinds.plan import OpPlan
from harness.ranks import wire
from harness.ranks.group import Late
from harness.ranks.witness import Turn

PROBE_S = (0.02, 0.3)  # at least and at most, how long a probe keeps a rank out of a call
PROBE_CALLS = 4  # so many times as long as a call, in between


def check(calls: Calls, case: Case, probe_all: bool) -> Checked:
    """One call on the case's published input and one on a fresh hardened one, both verified; then the probe, of every
    rank where `probe_all` says so, else of one that nobody can foresee."""
    fresh = wire.InputSpec(seed=calls.plan.seed("check", calls.at), hardened=True)
    turns, found = [], []
    for spec in (wire.InputSpec(seed=case.seed, hardened=False), fresh):  # one by one, since they may be large
        calls.make(case, [spec])
        turns.append(calls.turn(calls.candidate, [0]))
        found += calls.verify(0, published=not spec.hardened)
    as_published, hardened = found
    strict = hardened.strict if as_published.strict.passed and not hardened.strict.passed else as_published.strict
    verdicts = Verdicts(strict=strict, gpumode=as_published.gpumode)
    if not strict.passed:
        return Checked(outcome=Wrong(message=strict.message), verdicts=verdicts)
    return Checked(outcome=_probe(calls, case, probe_s(turns[1]), probe_all), verdicts=verdicts)


def _probe(calls: Calls, case: Case, hold_s: float, probe_all: bool) -> Passed | Failure:
    """Calls that one rank enters late: no rank that needs its data may finish before."""
    plan = calls.plan
    ranks = range(plan.world_size)
    for late in ranks if probe_all else [plan.seed("late", calls.at) % plan.world_size]:
        needed_by = dependents(plan, case, late)
        if not needed_by:
            continue
        calls.make(case, [wire.InputSpec(seed=plan.seed("probe", calls.at, late), hardened=True)])
        calls.turn(calls.candidate, [0], late=Late(rank=late, hold_s=hold_s))
        if held := silent(calls, late, needed_by, hold_s):
            return held
        [verdicts] = calls.verify(0)
        if not verdicts.strict.passed:
            return Wrong(message=f"a call that rank {late} entered late: {verdicts.strict.message}")
    return Passed()


def dependents(plan: OpPlan, case: Case, late: int) -> set[int]:
    """The ranks whose results depend on that one's data."""
    return {rank for rank in range(plan.world_size) if late in plan.problem.depends_on(case, rank)}


def probe_s(turn: Turn) -> float:
    """For how long to delay a rank. By what the parent saw of such a call, since what ranks claim may be too short."""
    return min(max(1e-6 * PROBE_CALLS * turn.seen_us, PROBE_S[0]), PROBE_S[1])


def silent(calls: Calls, late: int, needed_by: set[int], hold_s: float) -> Held | None:
    """Whether a rank finished the last call before the rank that it depends on began."""
    early = needed_by.intersection(calls.candidate.early)
    if not early:
        return None
    return Held(
        check="communication",
        evidence=f"rank {late} was kept out of a call for {hold_s * 1000:.0f} ms, and rank {min(early)}, "
        "whose result depends on its data, finished meanwhile",
    )


def wrong(calls: Calls, indices: Sequence[int], what: str) -> Wrong | None:
    """The first of the outputs taken next, as ones of these inputs, that is wrong."""
    messages = (one.strict.message for one in calls.verify(*indices) if not one.strict.passed)
    return next((Wrong(message=f"{what}: {message}") for message in messages), None)
