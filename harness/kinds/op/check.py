"""Is a submission right in a case, and do its ranks communicate? Checked calls, and the probe."""

from collections.abc import Sequence

from harness.core.records import Case, Held, Verdicts, Wrong
from harness.kinds.kind import SubmissionFailed
from harness.kinds.op.calls import Calls
from harness.kinds.op.plan import OpPlan
from harness.ranks import wire
from harness.ranks.group import Group, Late
from harness.ranks.witness import Turn

PROBE_S = (0.02, 0.3)  # at least and at most, how long a probe keeps a rank out of a call
PROBE_CALLS = 4  # so many times as long as a call, in between


def check(calls: Calls, case: Case, probe_all: bool) -> Verdicts:
    """One call on the case's published input and one on a fresh hardened one, both verified; then the probe, of every
    rank where `probe_all` says so, else of one that nobody can foresee. Of each rival, on the same inputs."""
    groups = calls.in_order("check", calls.at)
    fresh = wire.InputSpec(seed=calls.plan.seed("check", calls.at), hardened=True)
    turns: dict[Group, Turn] = {}
    found: dict[Group, list[Verdicts]] = {group: [] for group in groups}
    for spec in (wire.InputSpec(seed=case.seed, hardened=False), fresh):  # one by one, since they may be large
        calls.make(case, [spec])
        for group in groups:
            turns[group] = calls.turn(group, [0])
            found[group] += calls.verify(0, published=not spec.hardened)
    failed = {group: failure for group in groups if (failure := _failure(found[group])) is not None}
    if calls.baseline in failed:
        raise calls.blamed(calls.baseline, case, failed[calls.baseline])
    as_published, hardened = found[calls.candidate]
    strict = hardened.strict if as_published.strict.passed and not hardened.strict.passed else as_published.strict
    verdicts = Verdicts(strict=strict, gpumode=as_published.gpumode)
    if calls.candidate in failed:
        raise SubmissionFailed(failed[calls.candidate], verdicts)
    try:
        _probe(calls, case, {group: probe_s(turn) for group, turn in turns.items()}, probe_all)
    except SubmissionFailed as failure:
        raise SubmissionFailed(failure.outcome, verdicts) from None
    return verdicts


def _failure(found: list[Verdicts]) -> Wrong | None:
    """The first strict verdict that is not passed."""
    return next((Wrong(message=one.strict.message) for one in found if not one.strict.passed), None)


def _probe(calls: Calls, case: Case, hold_s: dict[Group, float], probe_all: bool) -> None:
    """Calls that one rank enters late, by `hold_s`: no rank that needs its data may finish before."""
    plan = calls.plan
    ranks = range(plan.world_size)
    for late in ranks if probe_all else [plan.seed("late", calls.at) % plan.world_size]:
        needed_by = dependents(plan, case, late)
        if not needed_by:
            continue
        calls.make(case, [wire.InputSpec(seed=plan.seed("probe", calls.at, late), hardened=True)])
        for group in hold_s:
            calls.turn(group, [0], late=Late(rank=late, hold_s=hold_s[group]))
            if held := silent(group, late, needed_by, hold_s[group]):
                raise calls.blamed(group, case, held)
            expect_right(calls, case, [(group, 0)], f"a call that rank {late} entered late")


def dependents(plan: OpPlan, case: Case, late: int) -> set[int]:
    """The ranks whose results depend on that one's data."""
    return {rank for rank in range(plan.world_size) if late in plan.problem.depends_on(case, rank)}


def probe_s(turn: Turn) -> float:
    """The seconds to delay a rank, from the observed time of such a call: the time that ranks claim may be too
    short."""
    return min(max(1e-6 * PROBE_CALLS * turn.seen_us, PROBE_S[0]), PROBE_S[1])


def silent(group: Group, late: int, needed_by: set[int], hold_s: float) -> Held | None:
    """Whether a rank finished the group's last call before the rank that it depends on began."""
    early = needed_by.intersection(group.early)
    if not early:
        return None
    return Held(
        check="communication",
        evidence=f"rank {late} was kept out of a call for {hold_s * 1000:.0f} ms, and rank {min(early)}, "
        "whose result depends on its data, finished meanwhile",
    )


def first_wrong(calls: Calls, judged: Sequence[tuple[Group, int]], what: str) -> tuple[Group, Wrong] | None:
    """The first wrong one of the outputs taken next, each a rival's for an input, and whose it is."""
    for (group, _), one in zip(judged, calls.verify(*(index for _, index in judged)), strict=True):
        if not one.strict.passed:
            return group, Wrong(message=f"{what}: {one.strict.message}")
    return None


def expect_right(calls: Calls, case: Case, judged: Sequence[tuple[Group, int]], what: str) -> None:
    """Raises SubmissionFailed or OpponentFailed if one of the outputs taken next is wrong."""
    if found := first_wrong(calls, judged, what):
        raise calls.blamed(found[0], case, found[1])
