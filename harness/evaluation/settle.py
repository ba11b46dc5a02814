"""The verb `settle`: in which order are the leading entries of a board?

Times their stored sources head to head, in rounds. In a round every file meets every other in a launch of its own
(compare.live), in turn on the same inputs; who takes the reference's place changes from round to round, so rounds come
in pairs. What the machine does at a moment is in both files of a launch, so launches here differ by far less than
evaluations do.

The rule. A launch of files i and j gives log(j's time / i's time), the mean over shapes. To all launches log-speeds are
fitted by least squares, which for complete rounds is a file's mean over its launches. Their residuals, pooled with what
is usual (board.noise), say what launches differ by. Two files are in order where their log-speeds differ by more than
`half`, the half width of an interval that holds for all pairs together (Tukey's, stats.students_range).

It is looked at several times (`looks`), so that it may end as soon as all neighbours are in order; each look has a
`share` of the 5 %. A later call with the same files goes on with the rounds of the earlier ones, and looks at any two
files are counted over all calls: whoever repeats it until it says an order finds a wrong one no more often.

Two files whose ratio depends on who plays the baseline are held (`apart`), both, unless one of them shows that with
more files than the other: somebody has found a way to tell.
"""

import itertools
import math
import shlex
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from harness.board import judgements, places, runs
from harness.board.digits import rounded
from harness.board.entries import Board, Entry, Group, SettledFile, Settlement, short_file
from harness.core.checkout import Checkout
from harness.core.decode import part
from harness.core.errors import BadSubmissionError, HarnessError, UsageError
from harness.core.records import Submission
from harness.core.stats import CONFIDENCE, LaunchNoise, student_t, students_range, with_usual
from harness.core.words import make_text
from harness.evaluation import verify
from harness.evaluation.leader import class_here
from harness.kinds.kind import Setting
from harness.machine import host

FIRST_LOOK, FIRST_LOOK_AT_TWO = 4, 8
TOP = 4
ROLES_CHANCE = 2000  # settlements of equal files, in one of which two are held for a ratio that differs by role
ROLES_APART = 0.1  # log; by 5 % in either role one group of ranks was favoured when the reference met itself
LAST_SHARE = 40  # looks, of which all later ones have the part
MOST_HALF = 700.0  # log: of a larger one the exponential is no float
DIGITS = 5  # of ratios that the board keeps, and of their squares


@dataclass(frozen=True, kw_only=True)
class Meeting:
    """One launch of two files, by their numbers: `log` is log(the other's time / the one's time)."""

    one: int
    other: int
    log: float


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Each file's log-speed, of which the sum is 0, and by how much two of them must differ to be in order."""

    logs: tuple[float, ...]
    half: float

    @property
    def order(self) -> tuple[int, ...]:
        """The files' numbers, fastest first."""
        return tuple(sorted(range(len(self.logs)), key=lambda number: -self.logs[number]))

    @property
    def is_resolved(self) -> bool:
        """Whether all neighbours are in order."""
        return all(self.logs[a] - self.logs[b] > self.half for a, b in itertools.pairwise(self.order))


@dataclass(frozen=True, kw_only=True)
class RoundsTally:
    """The sums over complete rounds that a fit needs: each file's log-speed by them, and the sum of the squared logs.
    `looks` is how often an order was looked for."""

    logs: tuple[float, ...]
    squares: float
    rounds: int
    looks: int

    def plus(self, meetings: Sequence[Meeting]) -> "RoundsTally":
        count = len(self.logs)
        rounds = self.rounds + len(meetings) // math.comb(count, 2)
        sums = [log * count * self.rounds for log in self.logs]
        for meeting in meetings:
            sums[meeting.one] += meeting.log
            sums[meeting.other] -= meeting.log
        logs = tuple(total / count / rounds for total in sums) if rounds else self.logs
        return replace(self, logs=logs, squares=self.squares + math.fsum(one.log**2 for one in meetings), rounds=rounds)


def nothing(count: int, looks: int = 0) -> RoundsTally:
    """The tally of `count` files that have not met."""
    return RoundsTally(logs=(0.0,) * count, squares=0.0, rounds=0, looks=looks)


class Dropped(Exception):
    """A file, by its number, does not meet others any more, and why."""

    def __init__(self, number: int, error: HarnessError) -> None:
        super().__init__(str(error))
        self.number, self.error = number, error


@dataclass(frozen=True, kw_only=True)
class Settled:
    """How far it came: of the files `numbers` their fit and their tally with what was known before, and the launches of
    this call. `dropped` are others, each with the reason; `ended` is what ended it before its time."""

    numbers: tuple[int, ...]
    fit: Fit
    tally: RoundsTally
    meetings: tuple[Meeting, ...]
    dropped: tuple[Dropped, ...] = ()
    ended: BaseException | None = None


# ---- the rule --------------------------------------------------------------------------------------------------------
def apart(meetings: Sequence[Meeting], usual: LaunchNoise, pairs: int) -> str:
    """How much the ratio of two files differs between their roles, if that is more than chance and ROLES_APART allow:
    `meetings` are theirs in pairs of rounds. Of ROLES_CHANCE settlements of equal files one holds two, by a t test for
    each of `pairs` pairs. Launches differ by what is usual or by what these show, whichever excuses more, so two
    launches say nothing."""
    logs = [one.log for one in meetings]
    odd, even = logs[::2], logs[1::2]
    if len(logs) < 4:
        return ""
    means = statistics.fmean(odd), statistics.fmean(even)
    squares = math.fsum((log - mean) ** 2 for side, mean in zip((odd, even), means, strict=True) for log in side)
    own, more = len(logs) - 2, usual.freedom
    half = max(
        student_t(1 - 1 / (2 * ROLES_CHANCE * pairs), freedom) * math.sqrt(total / freedom * 4 / len(logs))
        for freedom, total in ((own, squares), (own + more, squares + more * usual.sd**2))
    )
    if abs(means[0] - means[1]) <= half + ROLES_APART:
        return ""
    ratios = " and ".join(f"{math.exp(mean):.3f}x" for mean in means)
    return f"held: the ratio of the two depends on which of them plays the baseline: {ratios} in {len(logs)} launches"


def looks(before: int, rounds: int, count: int) -> tuple[int, ...]:
    """After which of `rounds` further rounds it is looked at: where 4, 8, 16 ... are complete, with those `before`, and
    at the last; two files, with one launch a round, begin at 8."""
    first = FIRST_LOOK if count > 2 else FIRST_LOOK_AT_TWO
    found = itertools.takewhile(lambda at: at < before + rounds, (first * 2**power for power in itertools.count()))
    return (*(at - before for at in found if at > before), rounds)


def share(look: int) -> float:
    """The part of the 5 % that look number `look` (from 1) has: 1/4, 1/4, 3/16, 1/8 ..., whose sum is 1. Those from
    LAST_SHARE on have what that one has, since 1 less much smaller parts is 1: ten million of them come to 0.02 %."""
    look = min(look, LAST_SHARE)
    return float(look / 2 ** (look + 1))


def fit(tally: RoundsTally, usual: LaunchNoise, part: float = 1.0) -> Fit:
    """Log-speeds by complete rounds, two at least; `part` of the 5 % is what the intervals may miss.

    The squared residuals of rounds are the squared logs less the squared differences of log-speeds, once a round.
    """
    count, rounds = len(tally.logs), tally.rounds
    assert rounds >= 2, "one round does not show what launches differ by"
    pairs = math.fsum((a - b) ** 2 for a, b in itertools.combinations(tally.logs, 2))
    left = max(0.0, tally.squares - rounds * pairs)  # below 0 by rounding
    seen = rounds * math.comb(count, 2) - (count - 1)
    variance, freedom = with_usual(left / seen, seen, usual)
    error = math.sqrt(2 * variance / count / rounds)
    return Fit(logs=tally.logs, half=students_range(1 - (1 - CONFIDENCE) * part, count, freedom) * error)


def settled(
    before: RoundsTally,
    rounds: int,
    usual: LaunchNoise,
    meet: Callable[[int, int, int], float],
    suffices: Callable[[Fit], bool] = lambda found: found.is_resolved,
) -> Settled:
    """Runs as many of `rounds` further rounds as it takes until a fit `suffices`. `meet(round, one, other)` is a
    launch, `usual` what these usually differ by. A file that `meet` drops is left out with all its launches, and the
    others go on; they begin anew, since what was known before is of other files. So are two whose ratio depends on
    their roles.

    Whatever else `meet` raises ends it. The complete pairs of rounds count, and if there is none, it is raised.
    """
    rounds += rounds % 2
    numbers, looked = tuple(range(len(before.logs))), before.looks
    meetings: list[list[Meeting]] = []  # of each round
    dropped: list[Dropped] = []
    ended: BaseException | None = None
    found: tuple[Fit, RoundsTally] | None = None

    def drop(*gone: Dropped) -> None:
        nonlocal numbers, meetings, before, found
        dropped.extend(gone)
        numbers = tuple(each for each in numbers if each not in {one.number for one in gone})
        meetings = [[each for each in of if {each.one, each.other} <= set(numbers)] for of in meetings]
        before, found = nothing(len(numbers)), None
        if len(numbers) < 2:
            raise gone[0].error from None

    for number in range(1, rounds + 1):
        meetings.append([])
        for one, other in itertools.combinations(numbers, 2):
            if {one, other} <= set(numbers) and ended is None:
                try:
                    meetings[-1].append(Meeting(one=one, other=other, log=meet(number, one, other)))
                except Dropped as gone:
                    drop(gone)
                except (HarnessError, KeyboardInterrupt) as error:
                    ended = error
        if ended is not None:
            del meetings[(number - 1) // 2 * 2 :]
            if not meetings and found is None:
                raise ended
        at = before.rounds + len(meetings)
        is_new = found is None or found[1].rounds < at
        if is_new and (ended is not None or number in looks(before.rounds, rounds, len(numbers))):
            looked += 1
            if held := _held(meetings, usual):
                drop(*held)
            tally = before.plus([one for of in meetings for one in _numbered(of, numbers)])
            found = fit(tally, usual, share(looked)), replace(tally, looks=looked)
        if ended is not None or (found is not None and suffices(found[0])):
            break
    assert found is not None, "it is looked at after the last round"
    return Settled(
        numbers=numbers,
        fit=found[0],
        tally=found[1],
        meetings=tuple(one for of in meetings for one in of),
        dropped=tuple(dropped),
        ended=ended,
    )


def _held(rounds: Sequence[Sequence[Meeting]], usual: LaunchNoise) -> list[Dropped]:
    """The files whose ratio to another one depends on their roles."""
    pairs: dict[tuple[int, int], list[Meeting]] = {}
    for meeting in itertools.chain.from_iterable(rounds):
        pairs.setdefault((meeting.one, meeting.other), []).append(meeting)
    suspects = {pair: why for pair, meetings in pairs.items() if (why := apart(meetings, usual, len(pairs)))}
    found: list[Dropped] = []
    while suspects:
        counts = Counter(itertools.chain.from_iterable(suspects))
        worst = {number for number, count in counts.items() if count == max(counts.values())}
        for number in sorted(worst):
            found.append(
                Dropped(number, BadSubmissionError(next(suspects[pair] for pair in suspects if number in pair)))
            )
        suspects = {pair: why for pair, why in suspects.items() if not worst & {*pair}}
    return found


def _numbered(meetings: Sequence[Meeting], numbers: Sequence[int]) -> list[Meeting]:
    """The meetings with the files' positions among those that are left."""
    return [replace(one, one=numbers.index(one.one), other=numbers.index(one.other)) for one in meetings]


# ---- who meets -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class Contenders:
    """Entries of one group with their sources, best first; `left_out` says which others could not be run, and why."""

    setting: Setting
    version: str
    entries: tuple[Entry, ...]
    sources: tuple[Submission, ...]
    left_out: tuple[str, ...]


def group_of(board: Board, problem: str, suite: str | None, ranks: int | None) -> Group:
    """The problem's one group of several entries that this machine can run. Raises UsageError for none or several."""
    known = [group for group in places.groups(board) if group[0] == problem]
    if not known:
        raise UsageError(f"no entry of {problem} is on the leaderboard: {make_text('eval', problem)} makes the first")
    found, refused = [], []
    for group in known:
        if suite not in (None, group[1]) or ranks not in (None, group[3]):
            continue
        first = places.ranking(board, group)[0].entry
        try:
            verify.check_machine(first)
            check_class(first)
        except UsageError as error:
            refused.append(str(error))
            continue
        found.append(group)
    several = [group for group in found if len({row.code for row in places.ranking(board, group)}) > 1]
    if len(several) == 1:
        return several[0]
    if several:
        listed = "".join(f"\n  --suite {suite} --ranks {ranks} ({where})" for _, suite, where, ranks in several)
        raise UsageError(f"{problem} has several boards; name one:{listed}")
    there = ", ".join(dict.fromkeys(f"--suite {name} --ranks {count}" for _, name, _, count in known))
    why = (
        f"it has one source only; evaluate another (`make eval PROBLEM={shlex.quote(problem)} SUBMISSION=path`)"
        if found
        else "; ".join(refused) or f"none has that suite and rank count; there is {there}"
    )
    raise UsageError(f"no board of {problem} to settle on this machine: {why}")


def check_class(one: Entry, gpus: tuple[str, ...] | None = None) -> None:
    """Raises UsageError if the entry is of other GPUs than this machine's, named `gpus` (None: ask the driver)."""
    if (here := class_here(one.device, one.world_size, gpus)) != one.machine_class:
        why = f"this machine is {here}, and figures of two machines do not compare"
        raise UsageError(f"{verify.measured_on(one)}; {why}: run it there")


def contenders(
    board: Board, group: Group, top: int, problem: str | None, seconds: float | None, checkout: Checkout
) -> Contenders:
    """The leading `top` entries that can be run: a source each, under today's problem. UsageError for less than two."""
    entries: list[Entry] = []
    sources: list[Submission] = []
    left_out = []
    taken: set[str] = set()
    rows = places.ranking(board, group)
    setting = verify.setting_for(rows[0].entry, problem, seconds, checkout)
    version = judgements.problem_version(setting.problem, setting.suite, setting.device)
    for row in rows:
        entry = row.entry
        if len(entries) == top:
            break
        if row.code in taken:
            continue  # a copy is in the order by that one
        name = _name(entry)
        if entry.problem_version != version:
            left_out.append(f"{name}: judged under another version of the problem; evaluate it again")
            continue
        try:
            sources.append(runs.load_source(entry.sha256, entry.file, checkout.root, entry.run_id))
        except (UsageError, runs.SourceError) as error:
            left_out.append(f"{name}: {error}")
            continue
        entries.append(entry)
        taken.add(row.code)
    if len(entries) < 2:
        raise UsageError("fewer than two entries can be run here:" + "".join(f"\n  {why}" for why in left_out))
    return Contenders(
        setting=setting, version=version, entries=tuple(entries), sources=tuple(sources), left_out=tuple(left_out)
    )


def confined(meeting: Contenders, is_confined: bool) -> Contenders:
    """The same, inside the sandbox or outside it."""
    return replace(meeting, setting=replace(meeting.setting, confined=is_confined))


def without(meeting: Contenders, dropped: Sequence[Dropped]) -> Contenders:
    """The same, saying of those that were dropped why they are left out."""
    names = (meeting.entries[gone.number] for gone in dropped)
    told = (f"{_name(entry)}: {gone}" for entry, gone in zip(names, dropped, strict=True))
    return replace(meeting, left_out=(*meeting.left_out, *told))


def _name(entry: Entry) -> str:
    return f"{short_file(entry)} by {entry.author}, {entry.run_id}"


def known(board: Board, meeting: Contenders) -> RoundsTally:
    """What settlements on the board know of the contenders: the tally of the one that had the very same files, problem,
    machine and sandbox. Its looks, and those of any other settlement that two of them were in, are counted on."""
    first, own = meeting.entries[0], [entry.sha256 for entry in meeting.entries]
    there = [
        one
        for one in board.settlements
        if one.both_judged
        and one.group == first.group
        and one.problem_version == meeting.version
        and len({file.sha256 for file in one.files} & set(own)) > 1
    ]
    tally = nothing(len(own), max((one.looks for one in there), default=0))
    here = (host.machine_id() or None, meeting.setting.confined)
    for one in there:
        ratios = {file.sha256: math.log(file.ratio) for file in one.files}
        if ratios.keys() == set(own) and one.squares is not None and (one.machine, one.confined) == here:
            mean = statistics.fmean(ratios.values())
            logs = tuple(ratios[sha256] - mean for sha256 in own)
            tally = replace(tally, logs=logs, squares=one.squares, rounds=one.rounds)
    return tally


def merged(was: Board, now: Board, meeting: Contenders, found: Settled, usual: LaunchNoise) -> Settled:
    """What was found since the board `was`, with the rounds and looks of others that were recorded on it meanwhile."""
    left = replace(meeting, entries=tuple(meeting.entries[number] for number in found.numbers))
    theirs = known(now, left)
    if theirs == known(was, left):
        return found
    looks = theirs.looks + found.tally.looks - known(was, meeting).looks
    tally = replace(theirs.plus(_numbered(found.meetings, found.numbers)), looks=looks)
    return replace(found, fit=fit(tally, usual, share(looks)), tally=tally)


def settlement(meeting: Contenders, found: Settled) -> Settlement:
    """The settlement that the board keeps."""
    first, fitted = meeting.entries[0], found.fit
    slowest = min(fitted.logs)
    entries = [meeting.entries[number] for number in found.numbers]
    files = (
        part(entries[place], SettledFile, ratio=rounded(math.exp(fitted.logs[place] - slowest), DIGITS))
        for place in fitted.order
    )
    return part(
        first,
        Settlement,
        machine=host.machine_id() or None,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        rounds=found.tally.rounds,
        resolves=rounded(math.expm1(min(fitted.half, MOST_HALF)), 3) or 10**-DIGITS,
        problem_version=meeting.version,
        files=tuple(files),
        looks=found.tally.looks,
        squares=rounded(found.tally.squares, DIGITS),
        confined=meeting.setting.confined,
        both_judged=True,
    )


def applied(board: Board, new: Settlement, frozen: datetime | None = None) -> Board:
    """The board with the new settlement. It replaces those settlements of its group whose files it all covers, but for
    those of before `frozen`: since then the public sees these, and not the new one."""
    mine = {file.sha256 for file in new.files}
    kept = [
        old
        for old in board.settlements
        if old.group != new.group
        or not {file.sha256 for file in old.files} <= mine
        or (frozen is not None and datetime.fromisoformat(old.date) <= frozen)
    ]
    return replace(board, settlements=tuple(sorted([*kept, new], key=lambda one: (one.group, one.date))))
