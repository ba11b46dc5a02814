"""What makes a measurement doubtful without making it wrong: each check is a function from a report's parts to a
warning, and all of them stand in CHECKS. Pure rules; the reader is told, nothing is decided.
"""

from collections.abc import Callable, Sequence

from harness.core.records import CaseResult, Timed
from harness.core.stats import median, spread

RESOLUTION = 0.1  # part of the fastest time that an empty call may take
SPREAD = 0.5  # interquartile range over median, of the ratio to the reference: times differ with their inputs
Check = Callable[[Sequence[CaseResult], Sequence[float]], str | None]


def resolution(results: Sequence[CaseResult], empty_us: Sequence[float]) -> str | None:
    """The clock itself takes a good part of what it measured."""
    times_us = [median(result.outcome.samples_us) for result in results if isinstance(result.outcome, Timed)]
    if not times_us or not empty_us or median(empty_us) <= RESOLUTION * min(times_us):
        return None
    part = median(empty_us) / min(times_us)
    return (
        f"an empty call reads {median(empty_us):.0f} us, {part:.0%} of the fastest shape: speedups there are "
        "understated; fewer ranks than cores, or larger shapes, are seen more sharply"
    )


def unrest(results: Sequence[CaseResult], empty_us: Sequence[float]) -> str | None:
    """Other work on the machine, most likely."""
    spreads = [spread(_ratios(result.outcome)) for result in results if isinstance(result.outcome, Timed)]
    restless = sum(value > SPREAD for value in spreads)
    if not restless:
        return None
    return (
        f"in {restless} of {len(spreads)} shapes the ratio to the reference spreads by more than {SPREAD:.0%}: "
        "is the machine busy with other work?"
    )


def _ratios(timed: Timed) -> list[float]:
    return [ref / own for own, ref in zip(timed.samples_us, timed.ref_samples_us, strict=True)]


def published(results: Sequence[CaseResult], empty_us: Sequence[float]) -> str | None:
    """Right by our gate, and yet GPU MODE would refuse it."""
    refused = [
        result
        for result in results
        if result.verdicts and result.verdicts.strict.passed and not result.verdicts.gpumode.passed
    ]
    if not refused:
        return None
    first = refused[0].verdicts
    return (
        f"{len(refused)} cases pass the strict verdict and fail GPU MODE's published tolerance: "
        f"{first.gpumode.message if first else ''}"
    )


CHECKS: tuple[Check, ...] = (resolution, unrest, published)


def warnings(results: Sequence[CaseResult], empty_us: Sequence[float]) -> tuple[str, ...]:
    """All warnings, in the order of CHECKS."""
    return tuple(text for check in CHECKS if (text := check(results, empty_us)) is not None)
