"""`contest settle`: the sources that share a place meet, whatever stands on the leaderboard by then."""

import shutil
from dataclasses import replace
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any

import pytest
from contests import DAY, END, MINUTE, OPEN, REGISTRATION, Stage, contest, play, reproduced

from harness.board import leaderboard
from harness.board.entries import Board
from harness.contest import acts, standings
from harness.core.checkout import ROOT
from harness.core.errors import Exit
from harness.evaluation import meetings, settle

KERNEL = "WHAT = '# speedup {speedup}'\n\n\ndef custom_kernel(data):\n    return data\n"
FREEZE = END - DAY
SETTLE = "python -m harness contest settle class.yaml gemm_rs --quiet"


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """A contest whose teams owls and elks share the first place. A later mine.py of owls is slower."""
    for part in ("reference", "shapes"):
        shutil.copytree(ROOT / part, tmp_path / part)
    found = contest(tmp_path)
    monkeypatch.chdir(tmp_path)
    play(monkeypatch)
    stage = Stage(tmp_path, now=OPEN)
    for member, team in (("ada", "owls"), ("jun", "elks")):
        acts.register(found, team, (member,), REGISTRATION, member, lambda: "secret")
    for member, speedup in (("ada", 2.5), ("jun", 2.51), ("ada", 1.2)):
        (tmp_path / "mine.py").write_text(KERNEL.format(speedup=speedup))
        stage.login, stage.now = member, stage.now + MINUTE
        assert stage.run("python -m harness contest submit class.yaml mine.py --problem gemm_rs -q")[0] == Exit.OK
    stage.login, stage.now = "grace", END + DAY
    return stage


def meet(monkeypatch: pytest.MonkeyPatch, ended: BaseException | None = None) -> list[set[str]]:
    """Launches are played: what is faster by its text wins by 10 %. They say who met."""
    met: list[set[str]] = []

    def launches(meeting: Any, number: int, one: int, other: int, count: int, progress: object) -> tuple[float, ...]:
        if ended is not None:
            raise ended
        sources = [meeting.sources[each].source for each in (one, other)]
        met.append(set(sources))
        return (0.1 if sources[0] > sources[1] else -0.1,)

    monkeypatch.setattr(meetings, "launches", launches)
    return met


class Later(datetime):
    """The clock of orders that are settled after the freeze."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> "Later":
        return cls.fromisoformat((FREEZE + MINUTE).isoformat())


def teams(stage: Stage) -> list[tuple[str, str]]:
    found = acts.opened(stage.root / "class.yaml")
    shown = standings.full(found.rules, found.log.records(), board(stage), stage.now)
    return [(one.team, one.row.place.text) for one in shown.problems[0].teams]


def board(stage: Stage) -> Board:
    return leaderboard.load(stage.root / "leaderboard.yaml")


def test_the_best_sources_meet_though_the_leaderboard_has_a_later_file(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sorted(teams(stage)) == [("elks", "1-2"), ("owls", "1-2")]
    before = board(stage)
    assert sorted(round(one.ratio or 0, 1) for one in before.entries) == [1.2, 2.5]
    found = acts.opened(stage.root / "class.yaml")
    for number in (1, 2):
        acts.settle(found, reproduced(number, 2.5), stage.now, "grace")
        acts.review(found, number, stage.now, "grace")
    award = "python -m harness contest award class.yaml 2 sole"
    code, printed = stage.run(award)
    assert (code, "`contest settle CONTEST gemm_rs --top 2` runs them head to head" in printed) == (Exit.USAGE, True)

    met = meet(monkeypatch)
    assert stage.run(SETTLE)[0] == Exit.OK
    assert met
    assert all(one == {KERNEL.format(speedup=2.5), KERNEL.format(speedup=2.51)} for one in met)
    assert teams(stage) == [("elks", "1"), ("owls", "2")]
    now = board(stage)
    assert (now.entries, now.held) == (before.entries, before.held), "only the order is new"
    (settled,) = now.settlements
    assert [(one.author, one.file) for one in settled.files] == [("elks", "mine.py"), ("owls", "mine.py")]
    assert stage.run(award)[0] == Exit.OK


def test_what_is_settled_after_the_freeze_does_not_move_the_frozen_standings(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    meet(monkeypatch)
    assert stage.run(SETTLE)[0] == Exit.OK
    found, now = acts.opened(stage.root / "class.yaml"), board(stage)

    def shown(settled_at: datetime) -> list[tuple[str, str]]:
        (settled,) = now.settlements
        then = replace(now, settlements=(replace(settled, date=settled_at.isoformat()),))
        frozen = standings.public(found.rules, found.log.records(), then, stage.now)
        assert frozen.frozen_at == FREEZE
        return [(one.team, one.row.place.text) for one in frozen.problems[0].teams]

    assert shown(FREEZE - MINUTE) == [("elks", "1"), ("owls", "2")]
    assert [place for _, place in shown(FREEZE + MINUTE)] == ["1-2", "1-2"]


def test_what_was_settled_before_the_freeze_stands_for_the_public_when_it_is_continued(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    met = meet(monkeypatch)
    assert stage.run(SETTLE)[0] == Exit.OK
    (first,) = board(stage).settlements
    before = replace(first, date=(FREEZE - MINUTE).isoformat())
    leaderboard.change(stage.root / "leaderboard.yaml", lambda now: replace(now, settlements=(before,)))
    monkeypatch.setattr(settle, "datetime", Later)
    for _ in range(2):
        assert stage.run(SETTLE)[0] == Exit.OK
    one, continued = board(stage).settlements
    assert one == before
    assert before.rounds < continued.rounds == len(met)
    found = acts.opened(stage.root / "class.yaml")
    frozen = standings.public(found.rules, found.log.records(), board(stage), stage.now)
    assert [(one.team, one.row.place.text) for one in frozen.problems[0].teams] == [("elks", "1"), ("owls", "2")]
    acts.freeze(found, stage.now, "grace", frozen=False)
    assert stage.run(SETTLE)[0] == Exit.OK
    assert len(board(stage).settlements) == 1


def test_what_another_settle_kept_meanwhile_counts_too(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.now = FREEZE - MINUTE
    met = meet(monkeypatch)
    launches, others = meetings.launches, list[Any]()

    def beside_another(*args: Any) -> tuple[float, ...]:
        if not others:  # the second begins and ends while the first one's first launch runs
            others.append(None)
            assert stage.run(SETTLE)[0] == Exit.OK
            others[0] = board(stage).settlements
        return launches(*args)

    monkeypatch.setattr(meetings, "launches", beside_another)
    assert stage.run(SETTLE)[0] == Exit.OK
    (theirs,), (both,) = others[0], board(stage).settlements
    assert 0 < theirs.rounds < both.rounds == len(met)
    assert theirs.looks < both.looks


def test_what_ends_it_leaves_the_leaderboard_as_it_was(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    meet(monkeypatch, KeyboardInterrupt())
    before = (stage.root / "leaderboard.yaml").read_bytes()
    with pytest.raises(KeyboardInterrupt):
        stage.run(SETTLE)
    assert (stage.root / "leaderboard.yaml").read_bytes() == before


def test_its_advice_is_no_option_that_it_lacks(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meetings, "launches", lambda meeting, number, *_: (0.2 if number % 4 < 2 else -0.2,))
    code, printed = stage.run(SETTLE)
    assert code == Exit.OK
    assert "or take more `seconds` in the contest's `setting`" in " ".join(printed.split())


def test_only_organisers_settle(stage: Stage) -> None:
    stage.login = "ada"
    code, printed = stage.run(SETTLE)
    assert (code, "ada is no organiser" in printed) == (Exit.USAGE, True)
