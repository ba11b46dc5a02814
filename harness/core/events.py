"""What an evaluation reports while it runs: typed events, and the JSON lines in which they are passed on.

Knows how an event is written and read. Does not know who reports events or what is shown of them.
"""

from dataclasses import dataclass, replace
from typing import Literal

from harness.core.json_file import record_if_any
from harness.core.words import clean_line


@dataclass(frozen=True, kw_only=True)
class PhaseBegan:
    """A phase ("test", say) began, `at_s` seconds after the evaluation did."""

    type: Literal["phase_began"] = "phase_began"
    at_s: float
    name: str


@dataclass(frozen=True, kw_only=True)
class CaseBegan:
    """Case `index` (from 0) of the running phase's `count` cases began, `at_s` seconds after the evaluation did."""

    type: Literal["case_began"] = "case_began"
    at_s: float
    label: str
    index: int
    count: int

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count:
            raise ValueError(f"case {self.index} of {self.count}: an index from 0 to below the count is needed")


Event = PhaseBegan | CaseBegan


@dataclass(frozen=True, kw_only=True)
class RunningStage:
    """How far a running evaluation is, for those who wait: its phase and case, a line each."""

    phase: str = "start"
    case: str = ""

    def after(self, event: Event) -> "RunningStage":
        match event:
            case PhaseBegan(name=name):
                return RunningStage(phase=_one_line(name))
            case CaseBegan(label=label, index=index, count=count):
                return replace(self, case=_one_line(f"{index + 1}/{count} {label}"))

    @property
    def text(self) -> str:
        return f"{self.phase} {self.case}".strip()


def event_of(line: str) -> Event | None:
    """The event that a line holds; None for a malformed line."""
    return record_if_any(Event, line)  # type: ignore[arg-type]  # a type parameter does not take a union


def _one_line(text: str) -> str:
    return " ".join(clean_line(text).split())
