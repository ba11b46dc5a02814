"""Models: a submission builds one, and generates with it; what is timed is a prompt's first token and a generation.

An op problem whose call is a generation (its adapter says how), with parameters `batch`, `prompt` and `new`. A case is
measured in two lengths: one new token, which is the time to first token, and all of them. Neither can be made to look
better by the other: the rate is of the whole generation. It may speculate: the logits that it ends with count.
"""

from dataclasses import replace

from harness.core.errors import UsageError
from harness.core.metrics import MEMORY, STEP, TOKENS, TTFT
from harness.core.records import Bound, Case, Measured, Series
from harness.core.stats import median
from harness.kinds.kind import Order
from harness.kinds.model.own_kernels import defined, is_own, share, shares
from harness.kinds.op import measure as op_measure
from harness.kinds.op.calls import Calls
from harness.kinds.op.kind import OpKind, OpSession
from harness.kinds.op.plan import OpPlan
from harness.machine import hardware
from harness.ranks import trace

LEAST_SAMPLES = 8  # of a generation, which is long beside a kernel
LONGER = 3  # times as long as a benchmark is measured a case takes: two lengths and the profiled generations
PROFILED_STEPS = 4  # beyond the first token: traces of long generations are too large to read


class ModelSession(OpSession):
    """The groups of one evaluation: checks are an op's, measurements a model's."""

    def measured_case(self, case: Case) -> Measured:
        """First tokens, whole generations, memory, and the share of own kernels."""
        first_case = with_new(case, 1)
        first, whole = self.sampled(first_case), self.sampled(case)
        kernels: tuple[float | None, dict[str, float]] = None, {}
        if self.plan.opponent is None:  # the profiler would show a file its role, and a comparison does not need it
            kernels = self._own_kernels(case)
        memory = whole.by_name.get(MEMORY.name) or _memory(self.calls)
        bounds = {TTFT.name: self._time(first_case), STEP.name: self._step(case)}
        return Measured(
            series=(*series_of(case, first.ranked, whole.ranked), memory),
            bounded=TOKENS.name,
            bounds={name: bound for name, bound in bounds.items() if bound is not None},
            own_kernels=kernels[0],
            kernels=kernels[1],
        )

    def bound(self, case: Case) -> Bound | None:
        """The most tokens a second without speculation: all steps' limits, one after the other."""
        limit = self._time(case) if case.kind == "benchmark" else None
        return None if limit is None else Bound(value=_tokens(case) / limit.value * 1e6, by=limit.by)

    def least(self, case: Case) -> Bound | None:
        """The least time in us of any generation: that of all flops, or of the prompt's bytes, since one pass over the
        weights may be for as many tokens as were guessed right. Of a first token there is nothing to guess."""
        if not _steps(case):
            return self._time(case)
        if self.peaks is None:
            return None
        whole, prompt = (self.plan.problem.cost(one) for one in (case, with_new(case, 1)))
        least = replace(whole, hbm_bytes=prompt.hbm_bytes, link_bytes=prompt.link_bytes)
        return hardware.limit(least, self.peaks)

    def _time(self, case: Case) -> Bound | None:
        """The least time in us of a generation that does not speculate: the prompt's, and each step's after it."""
        if self.peaks is None:
            return None
        prompt, step = hardware.limit(self.plan.problem.cost(with_new(case, 1)), self.peaks), self._step(case)
        if prompt is None or step is None:
            return prompt
        steps_us = _steps(case) * step.value
        return Bound(value=prompt.value + steps_us, by=prompt.by if prompt.value > steps_us else step.by)

    def _step(self, case: Case) -> Bound | None:
        """The least time of a step in us: the mean over the steps after the first token."""
        steps = _steps(case)
        if self.peaks is None or not steps:
            return None
        whole, prompt = (self.plan.problem.cost(one) for one in (case, with_new(case, 1)))
        names = ("flops", "hbm_bytes", "link_bytes")
        each = replace(whole, **{name: (getattr(whole, name) - getattr(prompt, name)) / steps for name in names})
        return hardware.limit(each, self.peaks)

    def _own_kernels(self, case: Case) -> tuple[float, dict[str, float]]:
        """The share of own kernels and what it is made of, by two profiled generations, whose outputs are judged as
        well. A claim: a submission can tell these calls from timed ones, and the profile is of its own process."""
        steps, names = _steps(case), defined(self.plan.submission)
        further = min(PROFILED_STEPS, steps)
        spent: list[trace.Spent] = []
        for count in (1, 1 + further):
            [found] = op_measure.profiled(self.calls, with_new(case, count), [self.launch.workdir("candidate", 0)])
            spent.append(trace.spent(found, lambda name: is_own(name, names)))
        times = steps / further if further else 0
        first, longer = spent
        return share(first, longer, times), shares(first, longer, times)


class ModelKind(OpKind):
    """Problems whose shape file says `kind: model`."""

    session_type = ModelSession
    checkers: tuple[str, ...] = ("logits",)
    is_pooled = False

    def plan(self, order: Order) -> OpPlan:
        """Our ranks' plan, on the host's clock alone. Raises UsageError where a case lacks a parameter."""
        # One launch: what a further one measures again are times of calls, and a model's series are rates.
        plan = super().plan(replace(order, setting=replace(order.setting, launches=1)))
        for case in (case for phase in plan.phases for case in phase.cases):
            if lacking := [name for name in ("batch", "prompt", "new") if name not in case.params]:
                raise UsageError(f"{plan.problem.name}: {case.label} has no {lacking[0]}, which a model's cases need")
        budget = replace(plan.budget, min_samples=LEAST_SAMPLES, block=min(plan.budget.block, LEAST_SAMPLES // 2))
        phases = tuple(replace(phase, case_s=LONGER * phase.case_s) for phase in plan.phases)
        return replace(plan, clocks=plan.clocks[:1], budget=budget, has_controls=False, phases=phases)


def with_new(case: Case, new: int) -> Case:
    """The same prompt, with `new` tokens to generate."""
    return replace(case, params=case.params | {"new": new})


def _steps(case: Case) -> int:
    """How many tokens a sequence gets after its first."""
    return int(case.params["new"]) - 1  # type: ignore[arg-type]


def _tokens(case: Case) -> int:
    """The number of tokens generated, over all sequences."""
    return int(case.params["batch"]) * (1 + _steps(case))  # type: ignore[arg-type]


def series_of(case: Case, first: Series, whole: Series) -> tuple[Series, ...]:
    """The series of a case, from the times in us of first tokens and of whole generations. A step's time is what a
    generation takes beyond a typical first token; it is left out where that cannot be told."""
    rate = replace(
        whole,
        metric=TOKENS,
        own=tuple(_tokens(case) / one * 1e6 for one in whole.own),
        baseline=tuple(_tokens(case) / one * 1e6 for one in whole.baseline),
        own_claims=(),
    )
    found = [rate, replace(first, metric=TTFT)]
    steps = _steps(case)
    if steps:
        firsts = median(first.own), median(first.baseline)
        own, baseline = (
            tuple((one - typical) / steps for one in samples)
            for samples, typical in zip((whole.own, whole.baseline), firsts, strict=True)
        )
        if min(own + baseline) > 0:
            found.append(Series(metric=STEP, own=own, baseline=baseline, block=whole.block))
    return tuple(found)


def _memory(calls: Calls) -> Series:
    """Either side's peak resident memory so far: on CPU cores a single call's memory cannot be measured."""
    own, ref = (float(calls.peak_of(group)) for group in (calls.candidate, calls.baseline))
    return Series(metric=MEMORY, own=(own,), baseline=(ref,))
