"""What happens in a contest, as records, and the states of an entry. Pure functions; knows no rules, files or clocks.

    submitted -> ranked -> reproduced -> verified -> awarded
        |           |          |            |
        +-> failed  +----------+------------+--> held -> reproduced

`failed`: the evaluation did not pass, or could not be carried out. `held`: right but not believed; launches that
reproduce it release it. An entry that is not over may be withdrawn by its team until it is awarded, and every entry
that is not over, an awarded one too, may be disqualified. A disqualified one may be reinstated, to where it was, but
without its awards: another entry may have them by then.
"""

from dataclasses import dataclass
from typing import Literal, get_args

from harness.board.entries import Entry, Verification
from harness.core.decode import DecodeError
from harness.core.errors import UsageError
from harness.core.limits import Limited, Printable

State = Literal[
    "submitted", "ranked", "reproduced", "verified", "awarded", "held", "failed", "disqualified", "withdrawn"
]
STATES: tuple[State, ...] = get_args(State)
PLACED: tuple[State, ...] = ("ranked", "reproduced", "verified", "awarded")  # in the standings, the furthest last
Via = Literal["command line", "serve"]


# ---- what happens to a contest ---------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class Member(Limited):
    """A member of a team. `id_sha256` is of the X-Popcorn-Cli-Id that the member submits with; the id itself is shown
    once, at registration, and not kept."""

    name: Printable
    id_sha256: Printable


@dataclass(frozen=True, kw_only=True)
class Registered(Limited):
    """A team with its first members, or further members of one."""

    type: Literal["registered"] = "registered"
    team: Printable
    members: tuple[Member, ...]


@dataclass(frozen=True, kw_only=True)
class Frozen:
    """From now on the public standings stay as they are."""

    type: Literal["frozen"] = "frozen"


@dataclass(frozen=True, kw_only=True)
class Unfrozen:
    """The public standings follow again."""

    type: Literal["unfrozen"] = "unfrozen"


@dataclass(frozen=True, kw_only=True)
class Repaired:
    """The line before this record was cut off while it was written: its first `bytes` bytes are all there is of it."""

    type: Literal["repaired"] = "repaired"
    bytes: int


# ---- what happens to an entry ----------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class OfEntry(Limited):
    """`entry` is the entry's number, from 1, in the order of submission."""

    entry: int


@dataclass(frozen=True, kw_only=True)
class Submitted(OfEntry):
    """A member submitted a file for a problem; the evaluation follows."""

    type: Literal["submitted"] = "submitted"
    team: Printable
    member: Printable
    problem: Printable  # by its name in the contest's file
    file: Printable
    sha256: str
    via: Via = "command line"


@dataclass(frozen=True, kw_only=True)
class EvaluationRanked(OfEntry):
    """The evaluation passed. `evaluation` is the board's entry without the fields for charts."""

    type: Literal["ranked"] = "ranked"
    evaluation: Entry


@dataclass(frozen=True, kw_only=True)
class EvaluationFailed(OfEntry):
    """The evaluation did not pass: `kind` is a failure's type (wrong, raised, crashed, timed_out), or `not_run` where
    the harness or the machine failed. Such an entry is not counted against the quota (`counts`). `run_id` is the run's
    in runs/; null where there is none, and in logs of older harnesses."""

    type: Literal["failed"] = "failed"
    kind: Printable
    why: Printable
    counts: bool = True
    run_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class EvaluationHeld(OfEntry):
    """A check does not believe the result, or launches did not reproduce it."""

    type: Literal["held"] = "held"
    check: Printable
    evidence: Printable
    run_id: str


@dataclass(frozen=True, kw_only=True)
class Reproduced(OfEntry):
    """Launches reached what the entry claims. `evaluation` is the entry's, if it was held at once."""

    type: Literal["reproduced"] = "reproduced"
    verified: Verification
    evaluation: Entry | None = None


@dataclass(frozen=True, kw_only=True)
class Reviewed(OfEntry):
    """An organiser read the source and found nothing against it."""

    type: Literal["reviewed"] = "reviewed"
    note: Printable = ""


@dataclass(frozen=True, kw_only=True)
class Awarded(OfEntry):
    type: Literal["awarded"] = "awarded"
    award: Printable


@dataclass(frozen=True, kw_only=True)
class Decided(OfEntry):
    """An organiser decided about the entry, for that reason."""

    why: Printable

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.why.strip():
            raise DecodeError(".why", "a decision about an entry needs a reason")


@dataclass(frozen=True, kw_only=True)
class Disqualified(Decided):
    type: Literal["disqualified"] = "disqualified"


@dataclass(frozen=True, kw_only=True)
class Reinstated(Decided):
    type: Literal["reinstated"] = "reinstated"


@dataclass(frozen=True, kw_only=True)
class Withdrawn(OfEntry):
    type: Literal["withdrawn"] = "withdrawn"


EntryEvent = (
    EvaluationRanked
    | EvaluationFailed
    | EvaluationHeld
    | Reproduced
    | Reviewed
    | Awarded
    | Disqualified
    | Reinstated
    | Withdrawn
)
Event = Registered | Frozen | Unfrozen | Repaired | Submitted | EntryEvent


# ---- the states of an entry ------------------------------------------------------------------------------------------
Happening = Literal[
    "ranked", "failed", "held", "reproduced", "reviewed", "awarded", "disqualified", "reinstated", "withdrawn"
]
# From which states, and to which; None: to where it was.
TRANSITIONS: dict[Happening, tuple[tuple[State, ...], State | None]] = {
    "ranked": (("submitted",), "ranked"),
    "failed": (("submitted",), "failed"),
    "held": (("submitted", "ranked", "reproduced", "verified"), "held"),
    "reproduced": (("ranked", "held", "reproduced"), "reproduced"),
    "reviewed": (("reproduced",), "verified"),
    "awarded": (("verified", "awarded"), "awarded"),  # a further award
    "disqualified": (("submitted", "ranked", "reproduced", "verified", "awarded", "held"), "disqualified"),
    "reinstated": (("disqualified",), None),
    "withdrawn": (("submitted", "ranked", "reproduced", "verified", "held"), "withdrawn"),
}
NEEDED: dict[Happening, str] = {  # what is said where the state is not one of those
    "ranked": "only a submission that waits for its result can be ranked",
    "failed": "only a submission that waits for its result can fail",
    "held": "an entry that is awarded or over is not held; disqualify it",
    "reproduced": "only a ranked or held entry can be reproduced",
    "reviewed": "it has to be reproduced first: `contest verify-top`",
    "awarded": "an award needs a verified entry: `contest verify-top`, then `contest review`",
    "disqualified": "it is over already",
    "reinstated": "only a disqualified entry can be",
    "withdrawn": "an entry that is awarded or over cannot be withdrawn",
}


def transition(state: State, happening: Happening, entry: int = 0, before: State = "submitted") -> State:
    """The next state; `before` is that of a disqualified entry. UsageError if it cannot happen."""
    sources, target = TRANSITIONS[happening]
    if state not in sources:
        raise UsageError(f"refused: entry {entry} is {state}, so it cannot be {happening}: {NEEDED[happening]}")
    return target or ("verified" if before == "awarded" else before)
