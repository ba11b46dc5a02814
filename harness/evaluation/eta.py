"""Estimates how long an evaluation will still take: from its plan, corrected by how long its steps have taken so far.

Receives the events of an evaluation and shows nothing. A step is the start of processes, or a case. A case takes the
time for which it is measured, which the plan has, and more: inputs are made and outputs judged. How much more follows
from the cases that are done, and from what the running one tells (`case_left`); before that, typical values stand in.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean

from harness.evaluation.controls import looked_at
from harness.kinds.kind import Plan, Progress

# Seconds to start, and to start another launch (rms_norm on an H100, 2026-11-25; 2 ranks take 3.3).
START_S, AGAIN_S = {"cpu": 4.0, "gpu": 9.0}, {"cpu": 0.6, "gpu": 2.7}
# Seconds to check a case (docs/measurements.md, test over its cases), and to end.
CHECK_S, END_S = {"cpu": 0.5, "gpu": 2.0}, {"cpu": 0.4, "gpu": 1.4}
CHECKS = 3  # times as long as a test a benchmark takes beside the time for which it is measured
AGAIN_PART = {"cpu": 0.9, "gpu": 0.45}  # of a benchmark's time in the first launch, what it takes in another one
DRAWN_PART = 0.25  # of a benchmark's time, for which a drawn shape is measured at most
LATEST = 2  # cases, by which the next is estimated: the first one compiles, and sizes often grow
OVERDUE = 2.0  # a case that takes this many times its estimate (and 1 s more) shows that the estimate is wrong


@dataclass(frozen=True, kw_only=True)
class PlannedStep:
    """Steps of a `name` take `timed_s` seconds, and about the same time more; or, if each is the repetition of the
    case `of` that number, the same part of what that took."""

    name: str
    timed_s: float = 0.0
    of: int | None = None


START, LAUNCH = PlannedStep(name="start"), PlannedStep(name="launch")


class Eta(Progress):
    """The time left of the evaluation whose events this receives. `clock` tells seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._steps: list[PlannedStep] = []  # in their order; none before the plan is known
        self._pair: list[PlannedStep] = []  # which follow where the reference was slower beside the submission
        self._took_s: list[float] = []  # of the steps that are done; the next one runs
        self._began_s = clock()  # the running step
        self._told_s: float | None = None  # how long that takes in all, if it has told
        self._is_new = False  # whether it is the first case of a phase, and that has not been told

    def expect(self, plan: Plan) -> None:
        self._phases = [phase.name for phase in plan.phases]
        self._device = "cpu" if plan.device == "cpu" else "gpu"
        steps, again = [START], []
        for phase in plan.phases:
            for case in phase.cases:
                part = min(1 / plan.launches, DRAWN_PART if case.kind == "drawn" else 1)
                if case.kind == "benchmark":
                    again.append(PlannedStep(name="again", of=len(steps)))
                steps.append(PlannedStep(name=phase.name, timed_s=part * phase.case_s))
        control = [LAUNCH, *(again[at] for at in looked_at(len(again), plan.secret))] if plan.has_controls else []
        self._steps = [*steps, *[LAUNCH, *again] * (plan.launches - 1), *control]
        self._pair = [*[LAUNCH, *again] * plan.launches, *control] if control else []
        self._took_s, self._began_s, self._told_s = [], self._clock(), None

    def phase(self, name: str) -> None:
        at = len(self._took_s)
        if at + 1 == len(self._steps):
            self._steps += self._pair
        is_launch = self._steps[at + 1 : at + 2] == [LAUNCH] and self._steps[at] not in (START, LAUNCH)
        self._is_new = bool(self._steps) and name in self._phases
        if self._is_new or is_launch:
            self._next()

    def case(self, label: str, index: int, count: int) -> None:
        if not self._is_new:
            self._next()
        self._is_new = False

    def case_left(self, seconds: float) -> None:
        self._told_s = self._clock() - self._began_s + seconds

    def _next(self) -> None:
        """The next step begins, if one is to come."""
        if len(self._took_s) + 1 < len(self._steps):
            now_s = self._clock()
            self._took_s.append(now_s - self._began_s)
            self._began_s, self._told_s = now_s, None

    @property
    def text(self) -> str:
        """`about 20 s left`; "" if the plan is not known."""
        if not self._steps:
            return ""
        left_s = self.left_s
        return "longer than expected" if left_s is None else f"{eta_text(left_s)} left"

    @property
    def left_s(self) -> float | None:
        """About how many seconds are left; None if the running case has taken so long that this is not known."""
        running, *later = self._steps[len(self._took_s) :]
        took_s, expected_s = self._clock() - self._began_s, self._step_s(len(self._took_s))
        if took_s > OVERDUE * expected_s + 1 and running not in (START, LAUNCH):
            return None
        return max(0.0, expected_s - took_s) + sum(map(self._like, later)) + END_S[self._device]

    def _step_s(self, at: int) -> float:
        """How long the step of that number took or, by what it tells or by others, takes."""
        known_s = self._known_s
        return known_s[at] if at < len(known_s) else self._like(self._steps[at])

    @property
    def _known_s(self) -> list[float]:
        """How long the steps take that are done, and the running one if it has told."""
        return self._took_s if self._told_s is None else [*self._took_s, self._told_s]

    def _like(self, step: PlannedStep) -> float:
        """How long such a step takes: by the latest of its name, or typically, before there is one."""
        alike = [
            (one, took_s) for one, took_s in zip(self._steps, self._known_s, strict=False) if one.name == step.name
        ]
        if step.of is not None:
            first_s = sum(self._step_s(one.of) for one, _ in alike if one.of is not None)
            part = sum(took_s for _, took_s in alike) / first_s if first_s else AGAIN_PART[self._device]
            return part * self._step_s(step.of)
        if alike:
            return max(0.0, step.timed_s + fmean(took_s - one.timed_s for one, took_s in alike[-LATEST:]))
        if step in (START, LAUNCH):
            return (START_S if step == START else AGAIN_S)[self._device]
        tests_s = [took_s for one, took_s in zip(self._steps, self._took_s, strict=False) if one.name == "test"]
        return step.timed_s + (CHECKS * fmean(tests_s[-LATEST:]) if tests_s else CHECK_S[self._device])


def eta_text(seconds: float) -> str:
    """With only the digits that an estimate has: `about 7 s`, `about 25 s`, `about 3 min`."""
    if seconds < 9.5:
        return f"about {max(1, round(seconds))} s"
    return f"about {5 * round(seconds / 5)} s" if seconds < 117.5 else f"about {round(seconds / 60)} min"
