"""How many digits of a record leaderboard.yaml keeps, and whether two records agree to these."""

from dataclasses import replace
from typing import Any, overload

from harness.board.entries import Entry, EntryCase, EntrySeries, HeldEntry, Judged

DIGITS = 6  # significant digits that are kept; timing repeats to two or three


def rounded(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")


def round_off(one: Judged) -> Judged:
    """The record with its numbers rounded to the digits that leaderboard.yaml keeps, so that a record reads as it was
    written."""
    score = replace(one.score, value=rounded(one.score.value, DIGITS)) if one.score else None
    if isinstance(one, HeldEntry):
        return replace(one, score=score, ratio=_short(one.ratio))
    found = one.verified
    if found:
        found = replace(
            found,
            score=rounded(found.score, DIGITS),
            score_ci=_shorts(found.score_ci),
            ratio=rounded(found.ratio, DIGITS),
            ratio_ci=_shorts(found.ratio_ci),
        )
    assert score is not None
    return replace(
        one,
        score=score,
        ratio=_short(one.ratio),
        ratio_ci=_shorts(one.ratio_ci),
        fraction=_short(one.fraction),
        fraction_ci=_shorts(one.fraction_ci),
        verified=found,
        cases=tuple(_short_case(case) for case in one.cases),
        phases_s={name: rounded(value, DIGITS) for name, value in one.phases_s.items()},
    )


def _short_case(case: EntryCase) -> EntryCase:
    return replace(
        case,
        value=rounded(case.value, DIGITS),
        baseline=_short(case.baseline),
        ratio=_short(case.ratio),
        ratio_ci=_shorts(case.ratio_ci),
        fraction=_short(case.fraction),
        fraction_ci=_shorts(case.fraction_ci),
        bound=replace(case.bound, value=rounded(case.bound.value, DIGITS)) if case.bound else None,
        series=tuple(_short_series(one) for one in case.series),
        rank_ends_us=tuple(rounded(value, DIGITS) for value in case.rank_ends_us),
        best=_short(case.best),
        own_kernels=_short(case.own_kernels) if case.own_kernels else case.own_kernels,
    )


def _short_series(one: EntrySeries) -> EntrySeries:
    names = ("low", "value", "high", "baseline_low", "baseline", "baseline_high", "empty", "least")
    shortened: dict[str, Any] = {name: _short(getattr(one, name)) for name in names}
    return replace(one, **shortened)


def same_figures(one: Entry, other: Entry) -> bool:
    """Whether two entries say the same to the digits that are kept. Figures that an older harness did not record are
    not compared."""
    a, b = round_off(one), round_off(other)
    assert isinstance(a, Entry)
    assert isinstance(b, Entry)
    if a.cases and b.cases:
        return _without_details(a) == _without_details(b)
    return _recorded_before(a) == _recorded_before(b)


def _without_details(entry: Entry) -> Entry:
    cases = (
        replace(case, samples=None, bounded="", bound=None, series=(), rank_ends_us=(), best=None, own_kernels=None)
        for case in entry.cases
    )
    score = replace(entry.score, value=1.0) if entry.score.relative_by else entry.score  # others move it
    return replace(entry, score=score, cases=tuple(cases), peaks=None, phases_s={})


def _recorded_before(entry: Entry) -> Entry:
    return replace(_without_details(entry), cases=(), fraction_ci=None)


def _short(value: float | None) -> float | None:
    return None if value is None else rounded(value, DIGITS)


@overload
def _shorts(values: tuple[float, float]) -> tuple[float, float]: ...
@overload
def _shorts(values: None) -> None: ...
def _shorts(values: tuple[float, float] | None) -> tuple[float, float] | None:
    return (rounded(values[0], DIGITS), rounded(values[1], DIGITS)) if values else None
