"""Estimates how long an evaluation will still take: from its plan, corrected by how long its cases have taken so far.

Knows the plan's phases, its cases and the seconds for which each benchmark is timed. Reads no clock and shows nothing.
The time to start the ranks and to check a case is unknown beforehand: until a case is done, a typical value stands in.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from harness.kinds.kind import Plan

START_S = {"cpu": 4.0, "gpu": 9.0}  # before the first case; docs/measurements.md, start, import and clock
CHECK_S = {"cpu": 0.5, "gpu": 2.0}  # to check a case, before one was; docs/measurements.md, test over its cases
END_S = {"cpu": 0.4, "gpu": 1.4}
AGAIN_S = {"cpu": 0.6, "gpu": 2.7}  # to start another launch: rms_norm on an H100, 2026-11-25; 2 ranks take 3.3
AGAIN_PART = 0.6  # of a benchmark's time in the first launch, what it takes in another one
OVERDUE = 2.0  # a case that takes this many times its estimate (and 1 s more) shows that the estimate is wrong


@dataclass(frozen=True, kw_only=True)
class Eta:
    """How long a plan is estimated to take. The phases of `cases` (how many) and `timed_s` (seconds a case is timed)
    are in the order in which they run; the last one is repeated in each of `launches`, but for `once` of its cases."""

    cases: dict[str, int]
    timed_s: dict[str, float]
    device: str
    launches: int = 1
    once: int = 0

    def left_s(
        self, phase: str, index: int, phase_s: float, case_s: float, took_s: Mapping[str, Sequence[float]]
    ) -> float | None:
        """About how many seconds are left; None if the running case has taken so long that the estimate is worthless.

        Case `index` (from 0) of `phase` has been running for `case_s` seconds. In a phase without cases only `phase_s`
        counts, the seconds since the evaluation began. `took_s` has the seconds of the finished cases by phase, from
        which follows which launch runs.
        """
        launch = 1
        if self.cases:
            *_, (name, count) = self.cases.items()
            again = len(took_s.get(name, ())) - count
            launch += again >= 0 and 1 + again // self._repeated
        again_s = self._again_s(took_s)
        launches_s = max(0, self.launches - launch) * (AGAIN_S[self._kind] + self._repeated * again_s)
        if launch > 1:
            cases = self._repeated - index if phase in self.cases else self._repeated
            return END_S[self._kind] + launches_s + max(0.0, cases * again_s - case_s)
        left_s = self._first_s(phase, index, phase_s, case_s, took_s)
        return None if left_s is None else left_s + launches_s

    @property
    def _kind(self) -> str:
        return "cpu" if self.device == "cpu" else "gpu"

    @property
    def _repeated(self) -> int:
        return list(self.cases.values())[-1] - self.once if self.cases else 0

    def _again_s(self, took_s: Mapping[str, Sequence[float]]) -> float:
        """What a case takes in another launch than the first."""
        if not self.cases:
            return 0.0
        *_, (name, count) = self.cases.items()
        again = took_s.get(name, ())[count:]
        return fmean(again) if again else AGAIN_PART * self._case_s(name, took_s)

    def _first_s(
        self, phase: str, index: int, phase_s: float, case_s: float, took_s: Mapping[str, Sequence[float]]
    ) -> float | None:
        """What is left of the first launch."""
        kind = self._kind
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
            return fmean(took_s[phase][: self.cases[phase]])
        checks_s = [max(0.0, one - self.timed_s[other]) for other in self.cases for one in took_s.get(other, ())]
        prior_s = CHECK_S[self._kind]
        return self.timed_s[phase] + (fmean(checks_s) if checks_s else prior_s)


def eta_of(plan: Plan) -> Eta:
    """The estimate for that plan before anything has run."""
    return Eta(
        cases={phase.name: len(phase.cases) for phase in plan.phases},
        timed_s={phase.name: phase.case_s / plan.launches for phase in plan.phases},
        device=plan.device,
        launches=plan.launches,
        once=sum(case.kind == "drawn" for phase in plan.phases for case in phase.cases),
    )


def eta_text(seconds: float) -> str:
    """With only the digits that an estimate has: `about 7 s`, `about 25 s`, `about 3 min`."""
    if seconds < 9.5:
        return f"about {max(1, round(seconds))} s"
    return f"about {5 * round(seconds / 5)} s" if seconds < 117.5 else f"about {round(seconds / 60)} min"
