"""What a change of the machine was worth: what two runs of one source, before and after it, had measured."""

from dataclasses import dataclass

from harness.core.errors import UsageError
from harness.core.records import EvalReport
from harness.core.stats import median, spread
from harness.judging import verdict


@dataclass(frozen=True, kw_only=True)
class Worth:
    """One thing that was measured in two runs: medians in `unit`, and interquartile ranges as fractions of them."""

    what: str
    unit: str
    before: float
    before_spread: float
    after: float
    after_spread: float


def worth(before: EvalReport, after: EvalReport) -> list[Worth]:
    """What changed between two runs of one source: empty calls on every clock, and the submission's and the reference's
    time in every shape. Raises UsageError for runs that do not compare."""
    for name in ("problem", "suite", "device", "world_size"):
        if (one := getattr(before, name)) != (other := getattr(after, name)):
            raise UsageError(f"the runs do not compare: the {name} is {one} before and {other} after")
    if before.submission.sha256 != after.submission.sha256:
        raise UsageError("the runs are of two sources; run the same file before and after a change of the machine")
    pairs = [
        (f"empty call, {clock}", "us", samples, after.empty_call_samples_us[clock])
        for clock, samples in before.empty_call_samples_us.items()
        if clock in after.empty_call_samples_us
    ]
    then = {result.case.title: measured.ranked for result, measured in verdict.measured_cases(before)}
    for result, measured in verdict.measured_cases(after):
        if (old := then.get(result.case.title)) is not None:
            new, label, unit = measured.ranked, result.case.title, measured.ranked.metric.unit
            pairs += [(label, unit, old.own, new.own), (f"{label}, reference", unit, old.baseline, new.baseline)]
    return [
        Worth(what=what, unit=unit, before=median(old), before_spread=spread(old),
              after=median(new), after_spread=spread(new))
        for what, unit, old, new in pairs
        if old and new
    ]  # fmt: skip
