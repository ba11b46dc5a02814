"""How many digits of a record leaderboard.yaml keeps, and whether two records agree to these."""

from dataclasses import MISSING, fields, is_dataclass, replace
from typing import TypeVar, cast

from harness.board.entries import Entry, EntryCase

T = TypeVar("T")
DIGITS = 6  # significant digits that are kept; timing repeats to two or three
EXACT = ("params", "peaks", "history", "holds")  # fields that are no measurements, or were rounded when they were new
# What an older harness did not record of a case.
DETAILS = {field.name: field.default for field in fields(EntryCase) if field.default is not MISSING}


def rounded(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")


def round_off(value: T) -> T:
    """The record with its numbers rounded to the digits that leaderboard.yaml keeps."""
    found: object = value
    if isinstance(value, float):
        found = rounded(value, DIGITS)
    elif isinstance(value, tuple):
        found = tuple(map(round_off, value))
    elif isinstance(value, dict):
        found = {key: round_off(item) for key, item in value.items()}
    elif is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in fields(value) if field.name not in EXACT]
        found = replace(value, **{name: round_off(getattr(value, name)) for name in names})
    return cast(T, found)


def same_figures(one: Entry, other: Entry) -> bool:
    """Whether two entries agree to the digits that are kept, in what both recorded."""
    are_whole = bool(one.cases and other.cases)
    return _compared(round_off(one), are_whole) == _compared(round_off(other), are_whole)


def _compared(entry: Entry, is_whole: bool) -> Entry:
    score = replace(entry.score, value=1.0) if entry.score.relative_by else entry.score  # others move it
    entry = replace(entry, score=score, peaks=None, phases_s={})
    if not is_whole:
        return replace(entry, cases=(), fraction_ci=None)
    return replace(entry, cases=tuple(replace(case, **DETAILS) for case in entry.cases))
