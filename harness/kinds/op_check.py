"""Is a submission right in a case, and do its ranks communicate? Checked calls, and the probe."""

from harness.core.records import Case, Failure, Held, Passed, Verdicts, Wrong
from harness.kinds.kind import Checked
from harness.kinds.op_calls import Calls
from harness.ranks import clocks, wire

PROBE_S = (0.02, 0.3)  # at least and at most, how long a probe keeps a rank out of a call


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
    hold_s = 4e-6 * clocks.wall_us(turns[1].called[0])
    return Checked(outcome=_probe(calls, case, hold_s, probe_all), verdicts=verdicts)


def _probe(calls: Calls, case: Case, hold_s: float, probe_all: bool) -> Passed | Failure:
    """Calls that one rank enters late: no rank that needs its data may finish before."""
    plan = calls.plan
    ranks = range(plan.world_size)
    hold_s = min(max(hold_s, PROBE_S[0]), PROBE_S[1])
    for late in ranks if probe_all else [plan.seed("late", calls.at) % plan.world_size]:
        needed_by = {rank for rank in ranks if late in plan.problem.depends_on(case, rank)}
        if not needed_by:
            continue
        calls.make(case, [wire.InputSpec(seed=plan.seed("probe", calls.at, late), hardened=True)])
        calls.load(calls.candidate, [0])
        called, finished = calls.candidate.call_late(late, 0, hold_s, calls.deadline)
        calls.ahead += 1
        calls.take(calls.candidate, [called])
        calls.rest(calls.candidate)
        if early := needed_by.intersection(finished):
            return Held(
                check="communication",
                evidence=f"rank {late} was kept out of a call for {hold_s * 1000:.0f} ms, and rank {min(early)}, "
                "whose result depends on its data, finished meanwhile",
            )
        [verdicts] = calls.verify(0)
        if not verdicts.strict.passed:
            return Wrong(message=f"a call that rank {late} entered late: {verdicts.strict.message}")
    return Passed()
