"""Moments of a contest. All are UTC and shown with that zone. Nothing here reads a clock: callers pass the time."""

import re
from datetime import UTC, datetime

from harness.core.decode import DecodeError

FORMATS = ("%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S")
ZONE = re.compile(r"\s*(UTC|Z)$")  # may stand behind a moment; no other zone may


def closing(deadline: str, where: str = ".deadline") -> datetime | None:
    """The moment that a text means, in UTC; None for an empty one. A date alone means its first second, as KernelBot
    reads it. DecodeError, with the place `where`, for any other text."""
    if not deadline.strip():
        return None
    for form in FORMATS:
        try:
            return datetime.strptime(ZONE.sub("", deadline.strip()), form).replace(tzinfo=UTC)
        except ValueError:
            continue
    raise DecodeError(where, f"expected YYYY-MM-DD or YYYY-MM-DD HH:MM, in UTC, found {deadline!r}")


def is_late(moment: str, closes: datetime | None) -> bool:
    """Whether an ISO 8601 moment lies behind the deadline."""
    return closes is not None and datetime.fromisoformat(moment) > closes


def shown_time(moment: datetime) -> str:
    """`2027-01-29 18:00 UTC`; with seconds where there are any."""
    moment = moment.astimezone(UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC" if moment.second else f"{moment:%Y-%m-%d %H:%M} UTC"


def written(moment: datetime) -> str:
    """The moment as the audit log has it: ISO 8601, UTC, to the millisecond."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds")


def read_moment(text: str) -> datetime:
    """The inverse of `written`. ValueError for a text without a zone, or that is no moment."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"expected a time with its zone, found {text!r}")
    return moment
