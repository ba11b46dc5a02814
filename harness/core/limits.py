"""Limits that stand beside the type of a record's field, and the base of records that keep them.

@dataclass(frozen=True, kw_only=True)
class Quota(Limited):
    per_day: Annotated[int, at_least(1)] | None = None
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, cast, get_args, get_type_hints

from harness.core.decode import DecodeError


@dataclass(frozen=True)
class Limit:
    """What a value has to be, and what is said of one that is not: `{!r}` in it is the value."""

    holds: Callable[[Any], bool]
    says: str


class Limited:
    """A dataclass whose fields keep the limits beside their types; None keeps any. Raises DecodeError."""

    def __post_init__(self) -> None:
        for name, limit in _limits(cast(Any, type(self))):
            value = getattr(self, name)
            if value is not None and not limit.holds(value):
                raise DecodeError(f".{name}", limit.says.format(value))


@cache
def _limits(kind: type) -> list[tuple[str, Limit]]:
    """The limits of each field, those of a type that may be None too."""
    return [
        (name, limit)
        for name, hint in get_type_hints(kind, include_extras=True).items()
        for part in (hint, *get_args(hint))
        for limit in getattr(part, "__metadata__", ())
    ]


def above_0(what: str = "a number") -> Limit:
    return Limit(lambda value: value > 0, f"expected {what} above 0, found {{!r}}")


def at_least(least: int, more: str = "", next_: str = "") -> Limit:
    """A number from `least` on: `expected 3 or more<more>, found 2<next_>`."""
    return Limit(lambda value: value >= least, f"expected {least} or more{more}, found {{!r}}{next_}")


def one_of(values: Sequence[str]) -> Limit:
    return Limit(values.__contains__, f"expected one of {', '.join(values)}, found {{!r}}")


Count = Annotated[int, above_0()]
Positive = Annotated[float, above_0()]
Seconds = Annotated[float, above_0("seconds")]
FromZero = Annotated[float, Limit(lambda value: value >= 0, "expected a number from 0, found {!r}")]
Share = Annotated[float, Limit(lambda value: 0 <= value <= 1, "expected a share from 0 to 1, found {!r}")]
Interval95 = Annotated[
    tuple[float, float], Limit(lambda ends: 0 < ends[0] <= ends[1], "expected [low, high], both above 0")
]
# Other texts would not come back from YAML as they were.
Printable = Annotated[str, Limit(str.isprintable, "expected printable characters, found {!r}")]
