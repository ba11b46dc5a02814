"""The order of entries on a noisy machine: what the board claims by itself is right, and `settle` resolves the rest.

Launches are played. What they differ by was recorded on 2 busy CPU cores, 8 ranks, a2a, suite cpu.
"""

import itertools
import json
import math
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories import entry, measured, report, results
from launches import HERE, MINE, alice, launch, loaded, prepared

from harness.board import judgements, leaderboard, places, runs
from harness.board.entries import Board, Entry
from harness.cli import main
from harness.core.checkout import Checkout
from harness.core.errors import BadSubmissionError, Exit, UsageError
from harness.core.records import Estimate
from harness.evaluation import compare, settle
from harness.evaluation.settle import Fit, Meeting, fit, looks, settled
from harness.problems.shape_file import find

# Ten evaluations of one file in a row, 2026-11-23, other work on the machine: the speedup and the 95 % interval by the
# samples of that launch alone.
RECORDED = (
    (5.224, 4.857, 5.822),
    (5.926, 5.326, 6.365),
    (5.905, 5.422, 6.164),
    (5.489, 5.009, 5.767),
    (5.143, 4.566, 5.522),
    (6.537, 5.534, 7.219),
    (5.336, 4.763, 5.953),
    (5.647, 5.212, 6.078),
    (5.023, 4.744, 5.384),
    (5.336, 4.836, 5.821),
)
EARLIER = (6.78, 5.92, 6.92, 6.40, 6.19)  # five more of another version, 2026-11-22
NAMES = "abcde"
BUSY, QUIET = settle.USUAL["cpu"], settle.USUAL["gpu"]


def effects() -> list[float]:
    """What these launches differ by: log(speedup) less the mean of its series."""
    found = []
    for series in ([row[0] for row in RECORDED], EARLIER):
        mean = math.fsum(map(math.log, series)) / len(series)
        found += [math.log(one) - mean for one in series]
    return found


class NoisyMachine:
    """Evaluates files whose true speedup is known. Its speed drifts, single calls take up to five times as long, and
    each launch favours one side by a recorded effect."""

    def __init__(self, seed: int) -> None:
        self.chance, self.level, self.count = random.Random(seed), 0.0, 0
        self.effects = effects()

    def samples(self, speedup: float) -> tuple[list[float], list[float]]:
        own, baseline = [], []
        for _ in range(24):
            self.level += self.chance.gauss(0, 0.05)
            slow = math.exp(self.level)
            for side, time in ((own, 1000 / speedup), (baseline, 1000.0)):
                spike = self.chance.uniform(1, 5) if self.chance.random() < 0.04 else 1.0
                side.append(time * slow * spike * math.exp(self.chance.gauss(0, 0.06)))
        return own, baseline

    def evaluated(self, name: str, speedup: float) -> Entry:
        self.count += 1
        own, baseline = self.samples(speedup * math.exp(self.chance.choice(self.effects)))
        made = judgements.entry_of(report(results([], [measured(own, baseline)])))
        assert made is not None
        return replace(made, author=name, sha256=name * 64, run_id=f"run-{self.count}")

    def met(self, one: float, other: float) -> float:
        """A launch head to head: log(how many times as fast). What is favoured is a group of ranks; its effect was not
        more than 5 % in 6 launches of the reference against itself."""
        return math.log(one / other) + self.chance.choice([-0.03, -0.02, -0.01, 0.0, 0.0, 0.01, 0.02, 0.03])

    def met_when_busy(self, one: float, other: float) -> float:
        """The same with 4 launches of one file against its copy, recorded while other work kept both cores busy."""
        recorded = [math.log(ratio) for ratio in (1.0, 1.0712, 1.07, 0.9808)]
        mean = sum(recorded) / len(recorded)
        return math.log(one / other) + self.chance.choice([-1, 1]) * (self.chance.choice(recorded) - mean)


# ---- the board -------------------------------------------------------------------------------------------------------


def test_intervals_of_one_launch_cover_what_launches_differ_by() -> None:
    """By their own samples 3 of these 45 pairs do not overlap, and more of other recordings."""
    noise = places.DEFAULT_NOISE["cpu"]
    made = [places.one_launch(Estimate(value=value, ci=(low, high)), noise).ci for value, low, high in RECORDED]
    pairs = list(itertools.combinations([ci for ci in made if ci], 2))
    assert sum(a[0] <= b[1] and b[0] <= a[1] for a, b in pairs) >= 0.9 * len(pairs)


@pytest.mark.parametrize("seed", range(8))
def test_the_board_never_claims_an_order_that_is_wrong(seed: int, tmp_path: Path) -> None:
    """Files 0, 1, 3 and 10 % apart, evaluated one to five times each, in any order."""
    machine, speedups = NoisyMachine(seed), dict(zip(NAMES, (5.0, 5.0, 5.05, 5.2, 5.72), strict=True))
    found = Board()
    queue = [name for name in NAMES for _ in range(machine.chance.randint(1, 5))]
    machine.chance.shuffle(queue)
    for name in queue:
        found = judgements_with(found, machine.evaluated(name, speedups[name]))
    rows = places.ranking(found, found.entries[0].group)
    for one, other in itertools.permutations(rows, 2):
        if one.place.last < other.place.place:
            assert speedups[one.entry.author] > speedups[other.entry.author]


def judgements_with(board: Board, one: Entry) -> Board:
    return judgements.with_judged(board, one)


def test_the_board_tells_files_apart_that_are_far_enough() -> None:
    machine, found = NoisyMachine(1), Board()
    for _ in range(4):
        for name, speedup in (("a", 5.0), ("b", 8.0)):
            found = judgements_with(found, machine.evaluated(name, speedup))
    assert [(row.entry.author, row.place.text) for row in places.ranking(found, found.entries[0].group)] == [
        ("b", "1"),
        ("a", "2"),
    ]


# ---- the rule --------------------------------------------------------------------------------------------------------


def order_of(found: Fit) -> set[tuple[int, int]]:
    """The orders that are claimed."""
    pairs = itertools.permutations(range(len(found.logs)), 2)
    return {(a, b) for a, b in pairs if found.logs[a] - found.logs[b] > found.half}


@pytest.mark.parametrize("gap", [0.0, 0.01, 0.03, 0.1])
@pytest.mark.parametrize("count", [2, 4])
def test_a_settled_order_is_right_and_is_reached_from_3_percent_on(gap: float, count: int) -> None:
    trials, wrong, resolved = 100, 0, 0
    for seed in range(trials):
        machine = NoisyMachine(seed)
        speeds = [(1 + gap) ** -number for number in range(count)]
        found, _ = settled(count, settle.ROUNDS, QUIET, lambda _, a, b, s=speeds, m=machine: m.met(s[a], s[b]))
        wrong += any(speeds[a] <= speeds[b] for a, b in order_of(found))
        resolved += found.is_resolved
    assert wrong <= 0.05 * trials
    if gap > 0:
        assert wrong == 0
    if gap >= 0.03:
        assert resolved >= 0.9 * trials


@pytest.mark.parametrize("gap", [0.0, 0.01, 0.03])
def test_on_a_busy_machine_it_takes_more_rounds(gap: float) -> None:
    trials, wrong, resolved = 60, 0, 0
    for seed in range(trials):
        machine = NoisyMachine(seed)
        found, _ = settled(2, 64, BUSY, lambda _, a, b, m=machine: m.met_when_busy((1 + gap) ** -a, (1 + gap) ** -b))
        wrong += any(a >= b or not gap for a, b in order_of(found))
        resolved += found.is_resolved
    assert wrong <= (0 if gap else 0.05 * trials)
    if gap >= 0.03:
        assert resolved >= 0.9 * trials


def test_log_speeds_of_complete_rounds_are_the_least_squares_fit() -> None:
    true = (0.3, -0.1, -0.2)
    meetings = [
        Meeting(one=a, other=b, log=true[a] - true[b]) for _ in range(2) for a, b in itertools.combinations(range(3), 2)
    ]
    found = fit(meetings, 3, QUIET)
    assert found.logs == pytest.approx(true)
    assert 0 < found.half < 0.1, "launches that agree may do so by chance"
    assert found.order == (0, 1, 2)


def test_it_is_looked_at_after_4_8_16_rounds_and_the_last() -> None:
    assert [looks(rounds, 3) for rounds in (2, 4, 6, 8, 20)] == [(2,), (4,), (4, 6), (4, 8), (4, 8, 16, 20)]
    assert looks(20, 2) == (8, 16, 20)


def test_rounds_end_as_soon_as_all_neighbours_are_in_order() -> None:
    _, launches = settled(2, settle.ROUNDS, BUSY, lambda number, a, b: 0.5 + 0.01 * (number % 2))
    assert len(launches) == 8


# ---- the verb --------------------------------------------------------------------------------------------------------

GEMM = find("gemm_rs", Checkout.here())
NOW = judgements.problem_version(GEMM, GEMM.suite("cpu"))
THEIRS = replace(MINE, name="submissions/gemm_rs/theirs.py", source="# b\n" + MINE.source)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout with entries by alice and bob of two sources, both under today's problem."""
    root = prepared(tmp_path)
    from harness.problems.submission import digest

    theirs = replace(THEIRS, sha256=digest(THEIRS.source, ()))
    other = launch(3, 1.01, author="bob", submission=theirs)
    runs.store(other, root)
    made = judgements.entry_of(other)
    assert made is not None
    mine = alice(loaded(root))
    entries = tuple(replace(one, problem_version=NOW) for one in (mine, made))
    leaderboard.change(root / "leaderboard.yaml", lambda now: Board(entries=entries))
    return root


def played(monkeypatch: pytest.MonkeyPatch, log: Callable[[Any], float]) -> list[Any]:
    """Launches are not run: the candidate is by `log` of the plan faster than the opponent."""
    plans: list[Any] = []

    def live(plan: Any, margin: float, progress: object) -> Any:
        plans.append(plan)
        value = log(plan)
        difference = compare.Difference(log=value, variance=0.0, freedom=1.0)
        row = compare.Row(label="x", params={}, a=(1.0,), b=(1.0,), difference=difference)
        return type("Found", (), {"rows": (row,)})()

    monkeypatch.setattr(compare, "live", live)
    return plans


def run_settle(root: Path, *arguments: str) -> int:
    namespace = main.parser("settle").parse_args(["settle", "gemm_rs", *arguments])
    return int(namespace.verb(namespace, Checkout(root)))


def test_a_settled_order_is_stored_with_date_and_machine_and_shown_as_such(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert {row.place.text for row in places.ranking(loaded(root), alice(loaded(root)).group)} == {"1-2"}
    plans = played(
        monkeypatch, lambda plan: 0.05 + 0.001 * len(plans) if plan.submission.name.endswith("theirs.py") else -0.05
    )
    assert run_settle(root, "--json", str(root / "out.json"), "-q") == Exit.OK
    assert "the order is settled" in capsys.readouterr().out
    found = loaded(root)
    (one,) = found.settlements
    assert ([file.author for file in one.files], one.rounds, one.machine_class) == (
        ["bob", "alice"],
        8,
        HERE.machine_class,
    )
    assert {plan.submission.name for plan in plans} == {MINE.name, THEIRS.name}, "each is the candidate in some launch"
    assert [(row.entry.author, row.place.text) for row in places.ranking(found, one.group)] == [
        ("bob", "1"),
        ("alice", "2"),
    ]
    told = json.loads((root / "out.json").read_text())
    assert [file["place"] for file in told["files"]] == [1, 2]
    assert len(told["launches"]) == 8


def test_a_launch_that_is_held_is_run_once_more(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fails = iter([True, False, False, False, False, True, True])

    def log(plan: Any) -> float:
        if next(fails, False):
            raise BadSubmissionError("held")
        return 0.0

    plans = played(monkeypatch, log)
    with pytest.raises(BadSubmissionError):
        run_settle(root, "-q")
    assert len(plans) == 7
    assert loaded(root).settlements == ()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--top", "1"], "needs at least 2 entries"),
        (["--rounds", "1"], "at least 2 are needed"),
        (["--suite", "official"], "no board of gemm_rs to settle on this machine"),
    ],
)
def test_what_cannot_be_settled_is_said(root: Path, arguments: list[str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        run_settle(root, *arguments)


def test_an_entry_that_cannot_be_run_is_left_out_and_named(root: Path) -> None:
    def older(now: Board) -> Board:
        return replace(now, entries=tuple(replace(one, problem_version=None) for one in now.entries))

    leaderboard.change(root / "leaderboard.yaml", older)
    with pytest.raises(UsageError, match="fewer than two entries can be run here") as caught:
        run_settle(root)
    assert "mine.py by alice" in str(caught.value)
    assert "evaluate it again" in str(caught.value)


def test_a_later_settlement_of_the_same_files_takes_the_place_of_the_earlier() -> None:
    files = settle.SettledFile(author="a", file="a.py", sha256="a" * 64, ratio=1.0)
    one = settle.Settlement(
        problem="p",
        suite="s",
        machine_class="m",
        world_size=1,
        machine=None,
        date="2026-01-01",
        rounds=2,
        resolves=0.1,
        problem_version="v",
        files=(files,),
    )
    later = replace(one, date="2026-01-02")
    other = replace(one, files=(files, replace(files, sha256="b" * 64)))
    assert settle.applied(Board(settlements=(one,)), later).settlements == (later,)
    assert settle.applied(Board(settlements=(other,)), later).settlements == (other, later)
    assert entry().group not in {found.group for found in (one, later)}
