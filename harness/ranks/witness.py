"""What calls on the ranked clock count, given what their ranks claim and what the parent saw. Pure rules over turns.

A rank's own figures are claims: a submission can patch the clock that it reads, and the program that reads it. What the
parent sees cannot be patched: from the moment when it lets ranks at their input to the moment when all outputs are
fixed. Part of that time passes outside the call, in the harness's own code: inputs are read, outputs written, messages
sent. The reference does the same with as many bytes, so its calls tell how long that takes.

EachCall is for ranks on CPU cores, whose calls come one by one. Bursts is for ranks on GPUs, whose calls follow each
other without the parent: there it can only say that claims are too short by much.
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from harness.ranks.wire import CallSample

SLACK_US, SLACK_PART = 10.0, 0.04  # by which claims may fall short of what was seen, whichever is more;
ERRORS, MOST_PART = 1.0, 0.15  # or so many standard errors, since it may be chance, but at most this part of a call
LEAST_PART = 0.1  # of a typical call, that every call counts, however little of it was seen
UNCLAIMED_US, UNCLAIMED_PART, UNCLAIMED_Z = 500.0, 0.5, 3.0  # what `doubt` lets pass


@dataclass(frozen=True, kw_only=True)
class Turn:
    """Consecutive calls of one group, by call and rank, and the parent's clock (CLOCK_MONOTONIC, the clock that ranks
    read too) before and after. `began_ns`: before it handed out the inputs. `ended_ns`: when it had seen that nobody
    could change the outputs any more, in sealed files or in trusted ranks' copies."""

    began_ns: int
    ended_ns: int
    called: tuple[tuple[CallSample, ...], ...]

    @property
    def seen_us(self) -> float:
        """The whole turn, per call."""
        return (self.ended_ns - self.began_ns) / 1000 / len(self.called)

    @property
    def unclaimed_us(self) -> float:
        """The time per call that passed outside the calls, if what the ranks claim is true."""
        return self.seen_us - statistics.fmean(map(wall_us, self.called))


def wall_us(called: Sequence[CallSample]) -> float:
    """The ranked clock: from the first rank's start to the last rank's end."""
    return (max(call.end_ns for call in called) - min(call.start_ns for call in called)) / 1000


class Witness(Protocol):
    """Has the turns of one case on the ranked clock."""

    own: list[Turn]
    ref: list[Turn]

    def counted_us(self, own_us: Sequence[float], ref_us: Sequence[float]) -> tuple[list[float], list[float]]:
        """What the calls of submission and baseline count, which claim these times."""

    def doubt(self, baseline: str) -> str:
        """Why the submission's claims cannot be believed at all, or ""."""


@dataclass(kw_only=True)
class EachCall:
    """Every turn is one call, of either side in pairs. The baseline's claims count if it runs our reference; an
    opponent's are held against what was seen as the submission's are."""

    is_trusted: bool  # the baseline
    own: list[Turn] = field(default_factory=list)
    ref: list[Turn] = field(default_factory=list)

    def counted_us(self, own_us: Sequence[float], ref_us: Sequence[float]) -> tuple[list[float], list[float]]:
        own, ref = ([turn.unclaimed_us for turn in turns] for turns in (self.own, self.ref))
        return borne_out(own_us, own, ref), list(ref_us) if self.is_trusted else borne_out(ref_us, ref, own)

    def doubt(self, baseline: str) -> str:
        """That most calls claim less than half of what they count, and that it is not chance. What an entry would gain
        is counted anyway, so that this only has to name the plain lie."""
        own_us, ref_us = ([wall_us(turn.called[0]) for turn in turns] for turns in (self.own, self.ref))
        claimed_us, counted_us = map(statistics.median, (own_us, self.counted_us(own_us, ref_us)[0]))
        more_us = counted_us - claimed_us
        if more_us <= max(UNCLAIMED_US, claimed_us) or not _longer_outside(self.own, self.ref):
            return ""
        return _doubt(claimed_us, more_us, baseline)


def borne_out(claims_us: Sequence[float], outside_us: Sequence[float], other_us: Sequence[float]) -> list[float]:
    """What calls count that claim so much, with so much outside of that; `other_us` is outside the other side's calls,
    in pairs.

    All claims count if, in their mean and their median, no more than the slack passed outside that did not in the other
    calls. Else what was seen counts of every call, less what is typically outside and the slack. So it does not matter
    which calls claim too little: their pattern changes nothing, and a lie gains no more than the slack.
    """
    typical_us = statistics.median(other_us)
    seen_us = [claim + outside - typical_us for claim, outside in zip(claims_us, outside_us, strict=True)]
    call_us = max(SLACK_US, statistics.median(seen_us))

    def within(values: Iterable[float]) -> list[float]:
        """No single call, which the machine may have stopped for a while, stands for more than one call's time."""
        return [min(max(value, -call_us), call_us) for value in values]

    more_us = within(outside - other for outside, other in zip(outside_us, other_us, strict=True))
    # Neither by more than the other side varies: nobody gains by varying much.
    error_us = min(_error_us(more_us), math.sqrt(2) * _error_us(within(other - typical_us for other in other_us)))
    slack_us = max(SLACK_US, SLACK_PART * call_us, min(ERRORS * error_us, MOST_PART * call_us))
    if max(statistics.fmean(more_us), statistics.median(more_us)) <= slack_us:
        return list(claims_us)
    return [max(seen - slack_us, LEAST_PART * call_us) for seen in seen_us]


def _error_us(values: Sequence[float]) -> float:
    """The standard error of their mean."""
    return statistics.stdev(values) / math.sqrt(len(values))


@dataclass(kw_only=True)
class Bursts:
    """Turns of several calls, of which the parent sees the whole. Claims count, unless they are in doubt."""

    own: list[Turn] = field(default_factory=list)
    ref: list[Turn] = field(default_factory=list)

    def counted_us(self, own_us: Sequence[float], ref_us: Sequence[float]) -> tuple[list[float], list[float]]:
        return list(own_us), list(ref_us)

    def doubt(self, baseline: str) -> str:
        """If the submission takes significantly longer outside its calls than the baseline does, it works there."""
        if not _longer_outside(self.own, self.ref):
            return ""
        claimed_us = statistics.median(wall_us(ranks) for turn in self.own for ranks in turn.called)
        more_us = _quartile(self.own) - _quartile(self.ref)
        return _doubt(claimed_us, more_us, baseline) if more_us > max(UNCLAIMED_US, UNCLAIMED_PART * claimed_us) else ""


def _longer_outside(own: Sequence[Turn], ref: Sequence[Turn]) -> bool:
    """Whether more passes outside the calls of `own`, by the Mann-Whitney test, because a busy machine adds to some of
    these times and takes from none. With few turns, every one must be longer than all of the others."""
    own_us, ref_us = ([turn.unclaimed_us for turn in turns] for turns in (own, ref))
    chance_z = min(UNCLAIMED_Z, 0.99 * _largest_z(len(own_us), len(ref_us)))
    return _larger_z(own_us, ref_us) > chance_z


def _doubt(claimed_us: float, more_us: float, baseline: str) -> str:
    return (
        f"its ranks say that a call takes {claimed_us:.0f} us, but {more_us:.0f} us more than around {baseline}'s "
        "calls passed between handing out the input and taking the result"
    )


def _quartile(turns: Sequence[Turn]) -> float:
    """The lower quartile of what passes outside their calls."""
    return sorted(turn.unclaimed_us for turn in turns)[len(turns) // 4]


def _larger_z(values: Sequence[float], others: Sequence[float]) -> float:
    """How many standard deviations the Mann-Whitney statistic of `values` lies above that of equal distributions."""
    wins = sum((value > other) + 0.5 * (value == other) for value in values for other in others)
    return _z(wins, len(values), len(others))


def _largest_z(count: int, others: int) -> float:
    """The value of that if every value is larger than every other."""
    return _z(count * others, count, others)


def _z(wins: float, count: int, others: int) -> float:
    pairs = count * others
    return (wins - pairs / 2) / math.sqrt(pairs * (count + others + 1) / 12)
