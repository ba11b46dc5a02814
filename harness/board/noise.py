"""What evaluations of one source differ by, as far as that is known before the board's own launches are looked at; and
what is as dependent on the device.

Knows defaults, what launches on the board differed by, and what `bench/launches.py` measured on a machine. The order of
entries is board.places' to say.
"""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from harness.board.entries import Board, Earlier, Entry, Group
from harness.core.stats import LaunchNoise, Noise, pooled
from harness.judging.figures import usual_of

SESSION = timedelta(hours=12)  # launches on one machine that are no further apart share what the machine was doing
Judgement = Entry | Earlier
LEAST = 0.01  # a handful of launches may agree by chance: no measured standard deviation counts for less


@dataclass(frozen=True, kw_only=True)
class Usual:
    """The usual noise of a device: between evaluations, between launches of two files head to head (`settle`), and how
    many rounds of these it takes at most."""

    evaluations: Noise
    head_to_head: LaunchNoise
    rounds: int


USUAL = {
    # Evaluations on 2 cores of AMD EPYC, suite cpu, 8 ranks. Launches: 5 of a2a in a row, other work on the machine,
    # 6 % (2026-11-22). Sessions: 7 %, from means of a2a of 6.43, 5.54 (busy) and 6.80 (quiet; 2026-11-22 and 23,
    # docs/measurements.md and tests/evaluation/test_settle.py), and from evaluations of one source of a2a, gemm_rs and
    # ag_gemm two hours apart, 6.54 and 6.87, 5.68 and 5.91, 4.66 and 4.92 (leaderboard.yaml, 2026-11-22).
    # Head to head: 4 launches of a2a against its copy, both cores busy, read 1.000, 1.071, 1.070, 0.981 (2026-11-23).
    "cpu": Usual(
        evaluations=Noise(launch=LaunchNoise(sd=0.06, freedom=4), session=LaunchNoise(sd=0.07, freedom=5)),
        head_to_head=LaunchNoise(sd=0.04, freedom=4),
        rounds=64,
    ),
    # On the device's clock: rms_norm's evaluations on three H100 machines read 5.38, 5.38 and 5.37, its launches on one
    # differ by 0.43 %; gemm_rs's on two pairs of H100s read 1.37 and 1.36 (2026-11-25). Few as they are, sessions are
    # taken to differ by 1 %, and so are single launches.
    # Head to head: as launches beside the reference (judging.figures); another file in its place is launched as it is.
    "gpu": Usual(
        evaluations=Noise(launch=LaunchNoise(sd=0.01, freedom=4), session=LaunchNoise(sd=0.01, freedom=4)),
        head_to_head=usual_of("cuda"),
        rounds=16,
    ),
}


def usual(device: str) -> Usual:
    return USUAL["cpu" if device == "cpu" else "gpu"]


def known_noise(board: Board, problem: str, machine_class: str, device: str) -> Noise:
    """The noise between evaluations of a problem on a machine class: the usual one pooled with what was measured there,
    for that problem or else for the problem and the machine with the largest. Measurements of one session say nothing
    of the noise between sessions."""
    noise = usual(device).evaluations
    known = [one for one in board.launch_noise if one.machine_class == machine_class]
    if not known:
        return noise
    most = max([one for one in known if one.problem == problem] or known, key=lambda one: one.sd)
    launches, sessions = most.launches - 1, max(0, len(most.levels) - 1)
    level = max(LEAST, statistics.stdev(most.levels) if sessions else 0.0)
    return Noise(
        launch=pooled(noise.launch, launches * max(LEAST, most.sd) ** 2, launches),
        session=pooled(noise.session, sessions * level**2, sessions),
    )


def launch_sd(board: Board, group: Group, device: str) -> float | None:
    """What launches of one evaluation in the group differ by, in log(ratio): the median of what they differed by in
    those on the board and of what is usual. A median, since a single busy hour must not widen every later interval.
    None where no evaluation on the board had several launches."""
    entries = [entry for entry in board.entries if entry.group == group]
    found = [one.launch_sd for one in entries] + [past.launch_sd for entry in entries for past in entry.history]
    known = [sd for sd in found if sd is not None]
    return statistics.median([*known, usual_of(device).sd]) if known else None


def head_to_head(board: Board, group: Group, device: str) -> LaunchNoise:
    """What launches of two files of the group head to head differ by: as much as launches beside the reference, where
    evaluations on the board show that, and otherwise as usual."""
    found, known = usual(device).head_to_head, launch_sd(board, group, device)
    return found if known is None else replace(found, sd=known)


def sessions(judgements: Sequence[Judgement]) -> Iterator[list[Judgement]]:
    """The judgements by session: those on one machine within SESSION of the first of them. Ids that are not known are
    one machine, of which nothing else is known."""
    begun: dict[str | None, tuple[datetime, list[Judgement]]] = {}
    for one in sorted(judgements, key=_when):
        begin, session = begun.get(one.machine, (_when(one), []))
        if _when(one) - begin > SESSION:
            yield session
            begin, session = _when(one), []
        begun[one.machine] = (begin, [*session, one])
    yield from (session for _, session in begun.values())


def _when(one: Judgement) -> datetime:
    """Its date; of one that is no date the beginning of time, so that such judgements share a session."""
    try:
        found = datetime.fromisoformat(one.date)
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)
    return found if found.tzinfo else found.replace(tzinfo=UTC)
