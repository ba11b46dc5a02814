"""The verb `settle`: in which order are the leading entries of a board?

Times their stored sources head to head, in rounds. In a round every file meets every other in a launch of its own
(compare.live), in turn on the same inputs; who takes the reference's place changes from round to round. What the
machine does at a moment is in both files of a launch, so launches here differ by far less than evaluations do.

The rule. A launch of files i and j gives log(j's time / i's time), the mean over shapes. Of all launches log-speeds are
fitted by least squares, which for complete rounds is a file's mean over its launches. Their residuals, pooled with what
is usual (USUAL), say what launches differ by. Two files are in order where their log-speeds differ
by more than `half`, the half width of an interval that holds for all pairs together (95 %, Student's t, Bonferroni over
pairs). It is looked at after 4, 8, 16 rounds and so on up to the last, each time at its share of the 5 % (Bonferroni
again), so that it may end as soon as all neighbours are in order.
"""

import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from harness.board import judgements, places, runs
from harness.board.digits import rounded
from harness.board.entries import Board, Entry, Group, SettledFile, Settlement, short_file
from harness.core.checkout import Checkout
from harness.core.errors import BadSubmissionError, UsageError
from harness.core.records import Submission
from harness.core.stats import CONFIDENCE, LaunchNoise, student_t
from harness.evaluation import compare, verify
from harness.kinds.kind import Order, Progress, Setting
from harness.kinds.registry import kind_of
from harness.machine import host

ROUNDS, FIRST_LOOK, FIRST_LOOK_AT_TWO = 16, 4, 8
TOP = 4
# What launches of two files differ by, as known beforehand: a few of them may agree by chance. 4 launches of a file
# against its copy on 2 busy CPU cores had ratios of 1.000, 1.071, 1.070 and 0.981 (a2a, 2026-11-23); on GPUs it is
# compare.MARGIN.
USUAL = {"cpu": LaunchNoise(sd=0.04, freedom=4), "gpu": LaunchNoise(sd=compare.MARGIN, freedom=4)}
DIGITS = 5  # of ratios that the board keeps


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


# ---- the rule --------------------------------------------------------------------------------------------------------
def looks(rounds: int, count: int) -> tuple[int, ...]:
    """After which rounds it is looked at: 4, 8, 16 ... and the last; two files, with one launch a round, begin at 8."""
    first = FIRST_LOOK if count > 2 else FIRST_LOOK_AT_TWO
    found = itertools.takewhile(lambda at: at < rounds, (first * 2**power for power in itertools.count()))
    return (*found, rounds)


def fit(meetings: Sequence[Meeting], count: int, usual: LaunchNoise, share: float = 1.0) -> Fit:
    """Log-speeds of `count` files by complete rounds of meetings, two rounds at least; `share` of the 5 % is what the
    intervals may miss."""
    pairs = count * (count - 1) // 2
    rounds = len(meetings) // pairs
    assert len(meetings) == rounds * pairs >= 2 * pairs, "complete rounds"
    sums = [0.0] * count
    for meeting in meetings:
        sums[meeting.one] += meeting.log
        sums[meeting.other] -= meeting.log
    logs = tuple(total / count / rounds for total in sums)
    left = math.fsum((one.log - logs[one.one] + logs[one.other]) ** 2 for one in meetings)
    freedom = len(meetings) - (count - 1) + usual.freedom
    error = math.sqrt(2 * (left + usual.freedom * usual.sd**2) / freedom / count / rounds)
    tail = (1 - CONFIDENCE) * share / 2 / pairs
    return Fit(logs=logs, half=student_t(1 - tail, freedom) * error)


def settled(
    count: int, rounds: int, usual: LaunchNoise, meet: Callable[[int, int, int], float]
) -> tuple[Fit, tuple[Meeting, ...]]:
    """The fit after as many rounds as it takes, and all launches. `meet(round, one, other)` is one of them, `usual`
    what they usually differ by."""
    meetings: list[Meeting] = []
    at = looks(rounds, count)
    for number in range(1, rounds + 1):
        for one, other in itertools.combinations(range(count), 2):
            meetings.append(Meeting(one=one, other=other, log=meet(number, one, other)))
        if number in at:
            found = fit(meetings, count, usual, 1 / len(at))
            if found.is_resolved:
                break
    return found, tuple(meetings)


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
    """The problem's group that this machine can run and that has two entries or more. Raises UsageError where there is
    none, or more than one."""
    known = [group for group in places.groups(board) if group[0] == problem]
    if not known:
        raise UsageError(f"no entry of {problem} is on the leaderboard: `make eval PROBLEM={problem}` makes the first")
    found, refused = [], []
    for group in known:
        if suite not in (None, group[1]) or ranks not in (None, group[3]):
            continue
        first = places.ranking(board, group)[0].entry
        try:
            verify.check_machine(first)
        except UsageError as error:
            refused.append(str(error))
            continue
        found.append(group)
    several = [group for group in found if len({entry.sha256 for entry in board.entries if entry.group == group}) > 1]
    if len(several) == 1:
        return several[0]
    if several:
        listed = "".join(f"\n  --suite {suite} --ranks {ranks} ({where})" for _, suite, where, ranks in several)
        raise UsageError(f"{problem} has several boards; name one:{listed}")
    there = ", ".join(dict.fromkeys(f"--suite {name} --ranks {count}" for _, name, _, count in known))
    why = (
        "it has one source only"
        if found
        else "; ".join(refused) or f"none has that suite and rank count; there is {there}"
    )
    raise UsageError(f"no board of {problem} to settle on this machine: {why}")


def contenders(
    board: Board, group: Group, top: int, problem: str | None, seconds: float | None, checkout: Checkout
) -> Contenders:
    """The leading `top` entries of the group that can be run: a source each, judged under today's problem. Raises
    UsageError where fewer than two are left."""
    entries: list[Entry] = []
    sources: list[Submission] = []
    left_out = []
    rows = places.ranking(board, group)
    setting = verify.setting_for(rows[0].entry, problem, seconds, checkout)
    version = judgements.problem_version(setting.problem, setting.suite)
    for entry in (row.entry for row in rows):
        if len(entries) == top:
            break
        if entry.sha256 in {one.sha256 for one in entries}:
            continue  # an identical source is in the order by that one
        name = f"{short_file(entry)} by {entry.author}, {entry.run_id}"
        if entry.problem_version != version:
            left_out.append(f"{name}: judged under another version of the problem; evaluate it again")
            continue
        try:
            sources.append(runs.load_source(entry.sha256, entry.file, checkout.root, entry.run_id))
        except (UsageError, runs.SourceError) as error:
            left_out.append(f"{name}: {error}")
            continue
        entries.append(entry)
    if len(entries) < 2:
        raise UsageError("fewer than two entries can be run here:" + "".join(f"\n  {why}" for why in left_out))
    return Contenders(
        setting=setting, version=version, entries=tuple(entries), sources=tuple(sources), left_out=tuple(left_out)
    )


def confined(meeting: Contenders, is_confined: bool) -> Contenders:
    """The same, inside the sandbox or outside it."""
    return replace(meeting, setting=replace(meeting.setting, confined=is_confined))


def launch(meeting: Contenders, number: int, one: int, other: int, progress: Progress) -> float:
    """A launch of two of them; in odd rounds the first is measured as the candidate, in even ones the second. What the
    candidate returns is judged in every call, so both are."""
    candidate, opponent = (one, other) if number % 2 else (other, one)
    order = Order(
        setting=meeting.setting,
        submission=meeting.sources[candidate],
        mode="benchmark",
        author=host.login(),
        opponent=meeting.sources[opponent],
    )
    plan = kind_of(meeting.setting).plan(order)
    try:
        found = compare.live(plan, compare.MARGIN, progress)
    except BadSubmissionError:  # checks that compare times hold an honest launch now and then; twice is no chance
        found = compare.live(plan, compare.MARGIN, progress)
    faster = statistics.fmean(row.difference.log for row in found.rows)  # the candidate's
    return faster if candidate == one else -faster


def settlement(meeting: Contenders, found: Fit, launches: Sequence[Meeting]) -> Settlement:
    """What the board keeps."""
    first = meeting.entries[0]
    slowest = min(found.logs)
    files = (
        SettledFile(
            author=meeting.entries[number].author,
            file=meeting.entries[number].file,
            sha256=meeting.entries[number].sha256,
            ratio=rounded(math.exp(found.logs[number] - slowest), DIGITS),
        )
        for number in found.order
    )
    return Settlement(
        problem=first.problem,
        suite=first.suite,
        machine_class=first.machine_class,
        world_size=first.world_size,
        machine=host.machine_id() or None,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        rounds=len(launches) // (len(found.logs) * (len(found.logs) - 1) // 2),
        resolves=rounded(math.expm1(found.half), 3) or 10**-DIGITS,
        problem_version=meeting.version,
        files=tuple(files),
    )


def applied(board: Board, new: Settlement) -> Board:
    """The board with the settlement in place of those of its group that had none but its files."""
    mine = {file.sha256 for file in new.files}
    kept = [
        old for old in board.settlements if old.group != new.group or not {file.sha256 for file in old.files} <= mine
    ]
    return replace(board, settlements=tuple(sorted([*kept, new], key=lambda one: (one.group, one.date))))
