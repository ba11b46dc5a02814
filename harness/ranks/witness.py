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
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from harness.ranks.wire import CallSample

SLACK_US, SLACK_PART = 10.0, 0.05  # by which claims may fall short of what was seen on average, whichever is more
ERRORS = 2.0  # or so many standard errors of the difference between the two sides, if that is more
NORMAL = statistics.NormalDist()
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
    """Every turn is one call."""

    own: list[Turn] = field(default_factory=list)
    ref: list[Turn] = field(default_factory=list)

    def counted_us(self, own_us: Sequence[float], ref_us: Sequence[float]) -> tuple[list[float], list[float]]:
        outside = Outside.of(*([turn.unclaimed_us for turn in turns] for turns in (self.own, self.ref)))
        own, ref = ([turn.seen_us - outside.typical_us for turn in turns] for turns in (self.own, self.ref))
        return borne_out(own_us, own, outside), borne_out(ref_us, ref, outside)

    def doubt(self, baseline: str) -> str:
        claims_us = [wall_us(turn.called[0]) for turn in self.own]
        counted_us, _ = self.counted_us(claims_us, [wall_us(turn.called[0]) for turn in self.ref])
        return _doubt(
            statistics.median(claims_us), statistics.median(counted_us) - statistics.median(claims_us), baseline
        )


@dataclass(frozen=True, kw_only=True)
class Outside:
    """What passes outside the calls: typically, by how much more by chance, and by how much two medians of it differ by
    chance."""

    typical_us: float
    noise_us: float = 0.0
    error_us: float = 0.0

    @classmethod
    def of(cls, own_us: Sequence[float], ref_us: Sequence[float]) -> "Outside":
        """An opponent in the baseline's place can claim less than the truth too, which only makes it seem more: the
        side where it is less counts. The spread is the baseline's."""
        quantiles = statistics.quantiles(ref_us, n=20, method="inclusive")
        low_us, middle_us, high_us = quantiles[4], quantiles[9], quantiles[14]
        deviation_us = (high_us - low_us) / (2 * NORMAL.inv_cdf(0.75))
        return cls(
            typical_us=min(statistics.median(own_us), middle_us),
            noise_us=quantiles[17] - middle_us,
            error_us=ERRORS * deviation_us * math.sqrt(math.pi / len(ref_us)),  # of one median: sqrt(pi / 2 n)
        )


def borne_out(claims_us: Sequence[float], seen_us: Sequence[float], outside: Outside) -> list[float]:
    """What calls count that claim so much and that trusted processes saw take so much.

    A claim counts, unless the call was seen to take longer by more than the noise. If the claims still fall short of
    what was seen by more than the slack, in their mean or their median, then all calls are counted longer by the rest.
    So no pattern of claims gains more than the slack, and noise, which goes both ways, costs an honest one nothing.
    """
    slack_us = max(SLACK_US, SLACK_PART * statistics.median(seen_us), outside.error_us)
    off_us = max(outside.noise_us, slack_us)
    counted = [max(claim, seen - off_us) for claim, seen in zip(claims_us, seen_us, strict=True)]
    short = [max(seen - us, -off_us) for us, seen in zip(counted, seen_us, strict=True)]
    rest_us = max(statistics.fmean(short), statistics.median(short)) - slack_us
    return [us + max(0.0, rest_us) for us in counted]


@dataclass(kw_only=True)
class Bursts:
    """Turns of several calls, of which the parent sees the whole. Claims count, unless they are in doubt."""

    own: list[Turn] = field(default_factory=list)
    ref: list[Turn] = field(default_factory=list)

    def counted_us(self, own_us: Sequence[float], ref_us: Sequence[float]) -> tuple[list[float], list[float]]:
        return list(own_us), list(ref_us)

    def doubt(self, baseline: str) -> str:
        """If the submission takes significantly longer outside its calls than the baseline does, it works there.

        Significance is judged by the Mann-Whitney test, because a busy machine adds to some of these times and takes
        from none. With few turns, every turn must be longer than all of the baseline's.
        """
        own_us, ref_us = ([turn.unclaimed_us for turn in turns] for turns in (self.own, self.ref))
        chance_z = min(UNCLAIMED_Z, 0.99 * _largest_z(len(own_us), len(ref_us)))
        if _larger_z(own_us, ref_us) <= chance_z:
            return ""
        claimed_us = statistics.median(wall_us(ranks) for turn in self.own for ranks in turn.called)
        return _doubt(claimed_us, _quartile(own_us) - _quartile(ref_us), baseline)


def _doubt(claimed_us: float, more_us: float, baseline: str) -> str:
    if more_us <= max(UNCLAIMED_US, UNCLAIMED_PART * claimed_us):
        return ""
    return (
        f"its ranks say that a call takes {claimed_us:.0f} us, but {more_us:.0f} us more than around {baseline}'s "
        "calls passed between handing out the input and taking the result"
    )


def _quartile(values: Sequence[float]) -> float:
    """The lower quartile."""
    return sorted(values)[len(values) // 4]


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
