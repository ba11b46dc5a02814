"""What stepped calls count on GPUs, given what the parent saw of them. Pure rules over ranks.stepped.Seen.

A call's time is what passes from the word that lets the devices go to the last device's word that it is done, less what
an empty call takes. The second word is set by the submission's own stream, so it may come too early; what was left out
then passes later, before the device switches back to the trusted rank, and is seen in what passes around the call. So
that time counts while no more passes around the submission's calls than around the baseline's at about that time.
Otherwise calls count all that passed, less what passes around the baseline's and what is allowed.

Work that was left out and is longer than a process's turn on the device goes on while the output is copied, so a copy
that takes longer than the baseline's counts as well, beyond what caches make of it: they hold other lines of the output
behind other calls.
"""

import math
import operator
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from harness.ranks.stepped import Seen
from harness.ranks.witness import log_ratio

# By how much more may pass around calls: SLACK_US, or so many standard errors if these are more, but at most that part
# of a call; and always SLACK_PART.
SLACK_US, ERRORS, MOST_PART, SLACK_PART = 1.0, 3.0, 0.1, 0.02
CLEAR = 5.0  # times as much as is allowed passes by no chance
MEDIANS = 1.25  # the standard error of a median, in that of a mean
COPY_US, COPY_PART = 5.0, 0.01  # by which a copy may take longer, in us and as a part of the baseline's
GAP_US, GAP_PART = 4.0, 0.01  # by which a stamp may be wrong, in us or as a part of the call
LEAST_PART = 0.1  # of an empty call, that every call counts
FEWEST_ALIKE = 4  # calls of the baseline that are queued as the submission's are, to know what passes around these
NEIGHBOURS = 5  # of them that a call is compared with


@dataclass(kw_only=True)
class DeviceWitness:
    """The stepped calls of one case. `own` and `ref` are pairs on the same inputs; `idle` and `copies` are calls of the
    baseline's ranks that do nothing, and that copy a result. An opponent in the reference's place is not trusted with
    these: `empty_us` is then from before anything was imported, and either side is held against the other. What passes
    around calls that are queued ahead is known by `copies` where the baseline's wait for their device."""

    is_trusted: bool
    empty_us: float
    own: list[Seen] = field(default_factory=list)
    ref: list[Seen] = field(default_factory=list)
    idle: list[Seen] = field(default_factory=list)
    copies: list[Seen] = field(default_factory=list)

    @property
    def none_us(self) -> float:
        """The time of an empty call, in us."""
        is_known = self.is_trusted and len(self.idle) >= FEWEST_ALIKE
        return statistics.median(one.call_us for one in self.idle) if is_known else self.empty_us

    def claims_us(self, calls: Sequence[Seen]) -> list[float]:
        """The calls' times, if their devices' words are believed."""
        none_us = self.none_us
        return [max(one.call_us - none_us, LEAST_PART * none_us) for one in calls]

    def ranks_us(self, one: Seen) -> list[float]:
        """The call's time on each rank."""
        return [max(us - self.none_us, 0.0) for us in one.ranks_us()]

    def counted_us(self) -> tuple[list[float], list[float]]:
        """The times that count of the calls of submission and baseline, in us."""
        own, ref = self._counted()
        return own[0], ref[0]

    @property
    def is_unsure(self) -> bool:
        """Whether claims do not count though what passes around calls differs by too much to tell: more calls will."""
        return any(is_unsure for _, is_unsure in self._counted())

    def _counted(self) -> tuple[tuple[list[float], bool], tuple[list[float], bool]]:
        """Of submission and baseline, the times that count, and whether that is unsure."""
        own_us, ref_us = self.claims_us(self.own), self.claims_us(self.ref)
        own = self._counted_beside(self.own, own_us, self.ref, ref_us)
        return own, (ref_us, False) if self.is_trusted else self._counted_beside(self.ref, ref_us, self.own, own_us)

    def _counted_beside(
        self, calls: Sequence[Seen], claims_us: list[float], others: Sequence[Seen], others_us: list[float]
    ) -> tuple[list[float], bool]:
        if not calls:
            return claims_us, False
        more_us = self._more_us(calls, others)
        claimed_us = statistics.median(claims_us)
        call_us = max(claimed_us, statistics.median(map(operator.add, claims_us, more_us)))
        within_us = [min(max(us, -call_us), call_us) for us in more_us]  # no single call stands for more than itself
        alike = self._alike(calls[0].is_ahead, others)
        middle_us, own_error_us = middle_of(within_us)
        _, other_error_us = middle_of(self._more_us(alike, others))
        error_us = MEDIANS * math.hypot(own_error_us, other_error_us)
        # Who hides work now and then makes his own differ by more. That is no reason to allow the mean more.
        mean_error_us = MEDIANS * other_error_us * math.sqrt(1 + len(alike) / len(calls))
        slack_us, rough_us = allowed_us(mean_error_us, call_us), allowed_us(error_us, call_us)
        seen_us = [claim + more for claim, more in zip(claims_us, within_us, strict=True)]
        is_borne_out = (
            middle_us <= slack_us
            and statistics.median(seen_us) - claimed_us <= rough_us
            and log_ratio(others_us, claims_us) - log_ratio(others_us, _positive(seen_us, call_us))
            <= math.log1p(rough_us / call_us)
        )
        if is_borne_out:
            return claims_us, False
        most_us = MOST_PART * call_us
        is_unsure = ERRORS * error_us > most_us and middle_us - ERRORS * mean_error_us <= slack_us
        # Less what is allowed, since honest calls are doubted by chance, but the less of it the clearer it is.
        chance = min(1.0, (CLEAR - middle_us / slack_us) / (CLEAR - 1))
        less_us = max(min(SLACK_US, most_us), chance * slack_us)
        return _positive([us - less_us for us in seen_us], call_us), is_unsure

    def _alike(self, ahead: bool, others: Sequence[Seen]) -> Sequence[Seen]:
        """Calls of the baseline's ranks that were queued ahead as well, or were not: the copies if its own are others,
        since more passes around calls that wait."""
        own = [one for one in others if one.is_ahead == ahead]
        return own if len(own) >= FEWEST_ALIKE else self.copies or others

    def _more_us(self, calls: Sequence[Seen], others: Sequence[Seen]) -> list[float]:
        """By how much more passes around each of these calls than around the baseline's at about that time, in us: the
        median of those nearest to its place, since that drifts."""
        alike = {ahead: self._alike(ahead, others) for ahead in (True, False)}
        found = []
        for place, one in enumerate(calls):
            pool = alike[one.is_ahead]
            first = min(place * len(pool) // len(calls) - NEIGHBOURS // 2, len(pool) - NEIGHBOURS)
            near = pool[max(0, first) :][:NEIGHBOURS]
            most_copy_us = (1 + COPY_PART) * statistics.median(other.copy_us for other in near) + COPY_US
            around_us = one.around_us - statistics.median(other.around_us for other in near)
            found.append(around_us + max(0.0, one.copy_us - most_copy_us))
        return found


def allowed_us(error_us: float, call_us: float) -> float:
    """By how much more may pass around calls of that length, where it is known with that standard error."""
    return max(SLACK_PART * call_us, min(max(SLACK_US, ERRORS * error_us), MOST_PART * call_us))


def middle_of(values: Sequence[float]) -> tuple[float, float]:
    """The mean of the middle half, and its standard error (Tukey and McLaughlin's, from winsorised values), of which
    less than three values say nothing. One call in ten is 10 us late or more, for its device's sake; and who hides work
    in less than a quarter of the calls does not shift what ranks, their median."""
    ordered, cut = sorted(values), len(values) // 4
    middle = ordered[cut : len(ordered) - cut]
    if len(values) < 3:
        return statistics.fmean(middle), math.inf
    spread = statistics.stdev(min(max(value, middle[0]), middle[-1]) for value in ordered)
    return statistics.fmean(middle), spread / (1 - 2 * cut / len(values)) / math.sqrt(len(values))


def is_sharp(one: Seen) -> bool:
    """Whether the parent was there when the call began and ended. It loses its core on a busy machine, whatever the
    submission does."""
    return one.gap_ns / 1000 <= max(GAP_US, GAP_PART * one.call_us)


def _positive(times_us: Sequence[float], call_us: float) -> list[float]:
    return [max(us, LEAST_PART * call_us) for us in times_us]
