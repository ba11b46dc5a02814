"""How long an evaluation will still take: an estimate from its plan, mended by what its cases have taken so far.

Knows the plan's phases, its cases and the seconds that each benchmark is timed for; knows no clock and shows nothing.
What is not known beforehand (to start ranks, to check a case) has a value for a usual machine until a case is done.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from harness.kinds.kind import Plan

START_S = {"cpu": 4.0, "gpu": 9.0}  # before the first case; docs/measurements.md, start, import and clock
CHECK_S = {"cpu": 0.5, "gpu": 2.0}  # to check a case, before one was; docs/measurements.md, test over its cases
END_S = {"cpu": 0.4, "gpu": 1.4}
OVERDUE = 2.0  # times what was expected of a case: the estimate is wrong then, and says so


@dataclass(frozen=True, kw_only=True)
class Remaining:
    """What a plan will take. `cases` a phase and `timed_s` a case are in the order in which phases run."""

    cases: dict[str, int]
    timed_s: dict[str, float]
    limit_s: dict[str, float]  # for the whole phase
    device: str

    def left_s(
        self, phase: str, index: int, phase_s: float, case_s: float, took_s: Mapping[str, Sequence[float]]
    ) -> float | None:
        """Seconds to the end, about; None where this case takes so long that nothing can be said.

        `index` is the case of `phase` that runs (from 0), for `case_s` so far; of a phase without cases only
        `phase_s` counts, from the start of the evaluation. `took_s` has what cases took that are done, by phase.
        """
        kind = "cpu" if self.device == "cpu" else "gpu"
        phases = list(self.cases)
        later = phases[phases.index(phase) + 1 :] if phase in self.cases else phases
        left_s = END_S[kind] + sum(self.cases[one] * self._case_s(one, took_s) for one in later)
        if phase not in self.cases:
            return left_s + max(0.0, START_S[kind] - phase_s)
        expected_s = self._case_s(phase, took_s)
        if case_s > OVERDUE * expected_s + 1:
            return None
        return left_s + max(0.0, expected_s - case_s) + (self.cases[phase] - index - 1) * expected_s

    def _case_s(self, phase: str, took_s: Mapping[str, Sequence[float]]) -> float:
        """What a case of the phase takes: the mean of those that are done, or its budget and a check before."""
        if took_s.get(phase):
            return fmean(took_s[phase])
        checks_s = [max(0.0, one - self.timed_s[other]) for other in self.cases for one in took_s.get(other, ())]
        prior_s = CHECK_S["cpu" if self.device == "cpu" else "gpu"]
        return self.timed_s[phase] + (fmean(checks_s) if checks_s else prior_s)


def of(plan: Plan) -> Remaining:
    """What that plan will take."""
    return Remaining(
        cases={phase.name: len(phase.cases) for phase in plan.phases},
        timed_s={phase.name: phase.case_s for phase in plan.phases},
        limit_s={phase.name: phase.limit_s for phase in plan.phases},
        device=plan.device,
    )


def told(seconds: float) -> str:
    """In no more digits than an estimate has: `about 7 s`, `about 25 s`, `about 3 min`."""
    if seconds < 9.5:
        return f"about {max(1, round(seconds))} s"
    return f"about {5 * round(seconds / 5)} s" if seconds < 117.5 else f"about {round(seconds / 60)} min"
