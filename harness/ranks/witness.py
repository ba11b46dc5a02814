"""What calls on the host's clocks count, given what their ranks claim and what the parent saw. Pure rules over turns.

A rank's own figures are claims: a submission can patch the clock that it reads, and the program that reads it. What the
parent sees cannot be patched: from the moment when it lets ranks at their input to the moment when all outputs are
fixed. Part of that time passes outside the call, in the harness's own code: inputs are read, outputs written, messages
sent. Ranks that run the reference do the same with as many bytes, so they tell how long that takes.

EachCall is for ranks on CPU cores, whose calls come one by one. Bursts is for ranks on GPUs, whose calls follow each
other, where they are not too long: the parent sees when it gave each call its key and when all had finished it, and
when the whole burst's outputs were fixed.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from harness.ranks.wire import CallSample

SLACK_US, SLACK_PART = 10.0, 0.04  # by which claims may fall short of what was seen, whichever is more;
ERRORS, MOST_PART = 2.0, 0.15  # in bursts also so many standard errors, but at most this part of a call
LEAST_PART = 0.1  # of a typical call, that every call counts, however little of it was seen
UNCLAIMED_US, UNCLAIMED_Z = 500.0, 3.0  # what `doubt` lets pass

Claim = Callable[[Sequence[CallSample]], float]  # the time of a call (us), as its ranks tell it on a clock


@dataclass(frozen=True, kw_only=True)
class Turn:
    """Consecutive calls of one group, by call and rank, with the parent's clock readings around them (CLOCK_MONOTONIC,
    the clock that ranks read too).

    `began_ns`: before the parent handed out the inputs. `ended_ns`: after it had seen that the outputs could no longer
    be changed, in sealed files or in trusted ranks' copies. `told_ns`, for a burst: before it let the first call begin,
    before it handed out the key of each later call, and when all ranks had finished the last call.
    """

    began_ns: int
    ended_ns: int
    called: tuple[tuple[CallSample, ...], ...]
    told_ns: tuple[int, ...] = ()

    @property
    def seen_us(self) -> float:
        """The whole turn, per call."""
        return (self.ended_ns - self.began_ns) / 1000 / len(self.called)

    @property
    def end_us(self) -> float:
        """The time per call from the claimed end of the turn's last call to the end of the turn, in us."""
        return (self.ended_ns - self.told_ns[-1]) / 1000 / len(self.called) if self.told_ns else 0.0

    def unclaimed_us(self, claim: Claim) -> float:
        """The time per call that passed outside the calls, if what the ranks claim is true."""
        return self.seen_us - statistics.fmean(map(claim, self.called))

    def each(self) -> list["Turn"]:
        """Its calls as turns of their own. A rank that says too early that it has finished a call still works in the
        next one, or after the last: only the whole turn shows that."""
        if not self.told_ns:
            return [self]
        between = zip(self.told_ns, self.told_ns[1:], self.called, strict=False)
        return [Turn(began_ns=began_ns, ended_ns=ended_ns, called=(ranks,)) for began_ns, ended_ns, ranks in between]

    def last(self, count: int) -> "Turn":
        """So many calls at its end. Their inputs could not be read before the first of them was told its key."""
        if len(self.called) <= count:
            return self
        told_ns = self.told_ns[-count - 1 :]
        return Turn(began_ns=told_ns[0], ended_ns=self.ended_ns, called=self.called[-count:], told_ns=told_ns)


def wall_us(called: Sequence[CallSample]) -> float:
    """The ranked clock: from the first rank's start to the last rank's end."""
    return (max(call.end_ns for call in called) - min(call.start_ns for call in called)) / 1000


@dataclass(kw_only=True)
class EachCall:
    """Turns of one call each, of both sides in pairs. `idle` are calls without a kernel, of the baseline's ranks or, if
    an opponent is in the reference's place, of trusted ranks: they show the time that passes around any call. If the
    submission, or the opponent, would be shown better by its claims than by the observed times, no claim counts, on
    neither side: every call counts its observed time less what is typical around an idle call. On a busy machine idle
    calls may differ by more than a call takes, and their median may exceed a call's whole observed time. Then every
    call counts its observed time less what surely passes around an idle call."""

    claim: Claim
    is_trusted: bool  # the baseline
    own: list[Turn] = field(default_factory=list)
    ref: list[Turn] = field(default_factory=list)
    idle: list[Turn] = field(default_factory=list)

    def counted_us(self, own_us: Sequence[float], ref_us: Sequence[float]) -> tuple[list[float], list[float]]:
        """The times that count for the calls of submission and baseline, given the times that they claim (us)."""
        if not self.own:
            return list(own_us), list(ref_us)
        own, ref = (SeenTurns(turns, self._around(), self.claim) for turns in (self.own, self.ref))
        is_borne_out = own.bears_out([(ref.claims_us, ref.counted_us())]) and (
            self.is_trusted or ref.bears_out([(own.claims_us, own.counted_us())])
        )
        if is_borne_out:
            return list(own_us), list(ref_us)
        more_us = own.unsure_us if own.unsure_us > min(own.call_us, ref.call_us) else 0.0
        return own.counted_us(less_us=-more_us), ref.counted_us(less_us=-more_us)

    def _around(self) -> list[Turn]:
        """The turns that show the time that passes around any call: idle calls. More passes around the calls of a
        trusted reference, whose ranks wait for each other: if less does, somebody slowed down the idle calls alone, and
        the reference's turns show it."""
        known = [turns for turns in (self.idle, self.ref if self.is_trusted or not self.idle else []) if turns]
        return min(known, key=lambda turns: statistics.median(turn.unclaimed_us(self.claim) for turn in turns))

    def doubt(self, baseline: str, is_baseline: bool = False) -> str:
        """Why the submission's claims, or the opponent's in the baseline's place, cannot be believed at all, or "":
        evidence that most calls claim less than half of what they count, beyond chance. Times that do not
        count gain nothing anyway, so this names only the plain lie."""
        times_us = [[self.claim(ranks) for turn in turns for ranks in turn.called] for turns in (self.own, self.ref)]
        claimed_us, counted_us = (
            statistics.median(sides[is_baseline]) for sides in (times_us, self.counted_us(times_us[0], times_us[1]))
        )
        more_us = counted_us - claimed_us
        turns, others = (self.ref, self.own) if is_baseline else (self.own, self.ref)
        if not self.is_trusted:
            others, baseline = self.idle or others, "trusted ranks"
        if more_us <= max(UNCLAIMED_US, claimed_us) or not self._is_longer_outside(turns, others):
            return ""
        return (
            f"its ranks report {claimed_us:.0f} us a call, but from input to output the parent saw {more_us:.0f} us "
            f"more than around calls of {baseline}"
        )

    def _is_longer_outside(self, turns: Sequence[Turn], others: Sequence[Turn]) -> bool:
        """Whether more time passes outside the first turns' calls than outside the others', by the Mann-Whitney test,
        because a busy machine adds to some of these times and takes from none. With few turns, every one must be longer
        than all of the others."""
        own_us, ref_us = ([turn.unclaimed_us(self.claim) for turn in side] for side in (turns, others))
        chance_z = min(UNCLAIMED_Z, 0.99 * _z(len(own_us) * len(ref_us), len(own_us), len(ref_us)))
        return _larger_z(own_us, ref_us) > chance_z


class Bursts(EachCall):
    """Every turn is a burst of equally many calls, or one call.

    Claims must be borne out call by call, because one call of a burst could otherwise claim the time that others hide.
    They must also be borne out at the end of the burst, because a rank can say that it has finished while its device
    still works. If they are not, each call counts the mean observed time of its burst, but no less than the burst's
    mean claim.
    """

    def counted_us(self, own_us: Sequence[float], ref_us: Sequence[float]) -> tuple[list[float], list[float]]:
        if not self.own:
            return list(own_us), list(ref_us)
        own = self._each_by(own_us, self.own, self.ref)
        return own, list(ref_us) if self.is_trusted else self._each_by(ref_us, self.ref, self.own)

    def _each_by(self, claims_us: Sequence[float], turns: Sequence[Turn], others: Sequence[Turn]) -> list[float]:
        own, other = ([call for turn in side for call in turn.each()] for side in (turns, others))
        calls, bursts = (SeenTurns(*sides, self.claim, ERRORS) for sides in ((own, other), (turns, others)))
        own_end_us, other_end_us = ([turn.end_us for turn in side] for side in (turns, others))
        ends = Excess(own_end_us, other_end_us, bursts.call_us, ERRORS)
        beside = SeenTurns(other, other if self.is_trusted else own, self.claim)
        may_count = [(us, us) for us in (beside.claims_us, beside.counted_us())]  # of an opponent nobody knows: either
        if self.is_trusted:
            may_count = [(beside.claims_us, beside.counted_us())]
        if calls.bears_out(may_count) and ends.is_borne_out:
            return list(claims_us)
        counted_us = bursts.counted_us(less_us=bursts.excess.slack_us)
        claimed_us = (statistics.fmean(map(self.claim, turn.called)) for turn in turns)
        each_us = map(max, counted_us, claimed_us)
        return [us for us, turn in zip(each_us, turns, strict=True) for _ in turn.called]


class SeenTurns:
    """The observed times of one side's turns, less what typically passes outside other turns. With `errors` turns and
    others are pairs on the same inputs: claims are held against the observed time of a turn less what passed outside
    its pair (`against_us`), in which drift cancels."""

    def __init__(self, turns: Sequence[Turn], others: Sequence[Turn], claim: Claim, errors: float = 0.0) -> None:
        outside_us, other_us = ([turn.unclaimed_us(claim) for turn in side] for side in (turns, others))
        typical_us = statistics.median(other_us)
        self.unsure_us = typical_us - _least_median(other_us)
        self.claims_us = [turn.seen_us - us for turn, us in zip(turns, outside_us, strict=True)]
        self.seen_us = [turn.seen_us - typical_us for turn in turns]
        self.call_us = max(SLACK_US, statistics.median(self.seen_us))
        beside_us = other_us if errors else [typical_us] * len(turns)
        self.excess = Excess(outside_us, beside_us, self.call_us, errors)
        self.against_us = self._at_least(turn.seen_us - us for turn, us in zip(turns, beside_us, strict=True))

    def bears_out(self, others: Sequence[tuple[Sequence[float], Sequence[float]]]) -> bool:
        """Whether the claims are borne out: the mean, the median, and the median ratio to the other side's times on the
        same inputs are no better by claims than by observed times, beyond the slack. `others` are the other side's
        times by claims and by observation.

        The figures themselves are compared, and not the differences call by call: half of the calls may claim less and
        the other half as much more, which no sum of differences shows, but a ratio does.
        """
        slack_us, seen_us = self.excess.slack_us, self.against_us
        return (
            self.excess.mean_us <= slack_us
            and statistics.median(seen_us) - statistics.median(self.claims_us) <= slack_us
            and all(
                log_ratio(by_claims, self.claims_us) - log_ratio(by_seen, seen_us)
                <= math.log1p(slack_us / self.call_us)
                for by_claims, by_seen in others
            )
        )

    def counted_us(self, less_us: float = 0.0) -> list[float]:
        """The observed time per call of every turn, less `less_us`, which counts where claims do not."""
        return self._at_least(seen - less_us for seen in self.seen_us)

    def _at_least(self, times_us: Iterable[float]) -> list[float]:
        return [max(us, LEAST_PART * self.call_us) for us in times_us]


class Excess:
    """How much more time passes on one side, in pairs, and how much may be chance for calls of `call_us`."""

    def __init__(self, own_us: Sequence[float], other_us: Sequence[float], call_us: float, errors: float) -> None:
        def within(values: Iterable[float]) -> list[float]:
            """No single call, which the machine may have stopped for a while, stands for more than one call's time."""
            return [min(max(value, -call_us), call_us) for value in values]

        typical_us = statistics.median(other_us)
        more_us = within(own - other for own, other in zip(own_us, other_us, strict=True))
        # Neither by more than the other side varies: nobody gains by varying much.
        error_us = min(error_of(more_us), math.sqrt(2) * error_of(within(other - typical_us for other in other_us)))
        self.slack_us = max(SLACK_US, SLACK_PART * call_us, min(errors * error_us, MOST_PART * call_us))
        self.mean_us = statistics.fmean(more_us)
        self.is_borne_out = max(self.mean_us, statistics.median(more_us)) <= self.slack_us


def _least_median(values: Sequence[float]) -> float:
    """The lower end of the 95 % interval of their median, by order statistics; their minimum where they are few."""
    return sorted(values)[max(0, int((len(values) - 1.96 * math.sqrt(len(values))) / 2))]


def log_ratio(other_us: Sequence[float], own_us: Sequence[float]) -> float:
    """How many times as fast as the other side, as core.stats.ratio has it."""
    return statistics.median(math.log(other / own) for other, own in zip(other_us, own_us, strict=True))


def error_of(values: Sequence[float]) -> float:
    """The standard error of their mean, of which a single value says nothing."""
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.inf


def _larger_z(values: Sequence[float], others: Sequence[float]) -> float:
    """How many standard deviations the Mann-Whitney statistic of `values` lies above that of equal distributions."""
    wins = sum((value > other) + 0.5 * (value == other) for value in values for other in others)
    return _z(wins, len(values), len(others))


def _z(wins: float, count: int, others: int) -> float:
    pairs = count * others
    return (wins - pairs / 2) / math.sqrt(pairs * (count + others + 1) / 12)
