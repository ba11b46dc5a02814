"""A contest's rules: its file, every refusal with its rule and its time, standings, the freeze, awards."""

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from contests import (
    DAY,
    END,
    FILE,
    MINUTE,
    OPEN,
    REGISTRATION,
    contest,
    evaluation,
    ranked,
    register,
    reproduced,
    submit,
)

from harness.board.entries import Board, MeasuredNoise
from harness.cli import contest_verbs
from harness.contest import acts, rules, standings
from harness.contest.acts import Contest
from harness.contest.awards import missed
from harness.contest.lifecycle import EvaluationFailed, EvaluationHeld, EvaluationRanked
from harness.contest.rules import Competition, Listed, Target
from harness.contest.times import closing, shown_time
from harness.core.checkout import ROOT, Checkout
from harness.core.decode import DecodeError
from harness.core.errors import BadFileError, UsageError

NOISE = MeasuredNoise(problem="gemm_rs", machine_class="2 cores of Example CPU @ 2.00GHz", machine=None,
                      date="2027-01-01", launches=20, sd=0.01, levels=(0.0,) * 40)  # fmt: skip
BOARD = Board(launch_noise=(NOISE,))
ADAS = acts.NewEntry(member="ada", problem="gemm_rs", file="a.py", sha256="5e")


@pytest.fixture
def found(tmp_path: Path) -> Contest:
    made = contest(tmp_path)
    register(made, "owls", "ada", "bob")
    register(made, "cats", "cy")
    return made


# ---- the file --------------------------------------------------------------------------------------------------------
def test_times_are_utc_whether_or_not_that_is_written() -> None:
    moment = datetime(2027, 1, 29, 18, tzinfo=UTC)
    assert {closing(text) for text in ("2027-01-29 18:00", "2027-01-29 18:00 UTC", "2027-01-29 18:00:00Z")} == {moment}
    assert shown_time(moment) == "2027-01-29 18:00 UTC"
    with pytest.raises(DecodeError, match="in UTC, found '2027-01-29 18:00 CET'"):
        closing("2027-01-29 18:00 CET")


def test_a_time_with_another_zone_in_yaml_is_that_moment(tmp_path: Path) -> None:
    """YAML reads it as a time with its zone, which must not be dropped."""
    found = contest(tmp_path, FILE.replace("freeze: 2027-01-28 18:00", "freeze: 2027-01-28 18:00:00+02:00"))
    assert closing(found.rules.freeze) == datetime(2027, 1, 28, 16, tzinfo=UTC)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("members: 3", "members: 0", r"\$\.teams\.members: expected 1 or more"),
        ("members: 3", "member: 3", r"\$\.teams\.member: unknown key; did you mean 'members'"),
        ("per_day: 3", "per_day: many", r"\$\.quota\.per_day: expected a whole number"),
        ("closes: 2027-01-15", "closes: 2026-01-15", r"\$\.registration\.closes: expected a time after `opens`"),
        ("deadline: 2027-01-27", "deadline: 2027-01-17", r"\$\.problems\[1\]\.deadline: expected a time after `opens`"),
        ("speedup: 1.5", "speedup: 0", r"\$\.problems\[0\]\.targets\[0\]\.speedup: expected a number above 0"),
        (", speedup: 1.5", "", r"\$\.problems\[0\]\.targets\[0\]: a target needs one of time_us, speedup and limit"),
        ("problem: gemm_rs}", "problem: gemm}", r"\$\.awards\[2\]\.problem: no problem 'gemm'; did you mean"),
        ("name: sole", "name: first", r"\$\.awards\[1\]\.name: 'first' appears twice"),
        ("teams:", "setting: {ranks: 0}\nteams:", r"\$\.setting\.ranks: expected 1 or more, found 0"),
        ("teams:", "setting: {seconds: -1}\nteams:", r"\$\.setting\.seconds: expected a number above 0, found -1"),
        ("teams:", "setting: {device: gpu}\nteams:", r"\$\.setting\.device: expected one of cpu, cuda, rocm, found"),
        ("freeze: 2027-01-28 18:00", "freeze: soon", r"\$\.freeze: expected YYYY-MM-DD"),
        ("freeze: 2027-01-28 18:00", "freeze: 0001-01-01 00:00:00+02:00", r"\$\.freeze: expected YYYY-MM-DD"),
        ("deadline: 2027-01-29 18:00\n", "private: true\n", r"\$\.private: .* needs an end: give a `deadline`"),
    ],
)
def test_a_mistake_in_the_file_is_told_with_its_place(old: str, new: str, told: str, tmp_path: Path) -> None:
    assert old in FILE
    with pytest.raises(BadFileError, match=r"^class\.yaml: " + told):
        contest(tmp_path, FILE.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("teams:", "setting: {suite: quik}\nteams:", r"\$\.setting\.suite: gemm_rs has no suite 'quik'; did you mean"),
        ("teams:", "setting: {suite: cpu, ranks: 7}\nteams:", r"\$\.setting\.ranks: .* not divisible by .* 7"),
        (
            "{shape: {m: 64}, speedup",
            "{shape: {m: 65}, speedup",
            r"\$\.problems\[0\]\.targets\[0\]\.shape: no benchmark has \{m: 65\}, so no entry could reach the target; "
            r"one has \{m: 64, n: ",
        ),
        (
            "teams:",
            "setting: {suite: quick}\nteams:",
            r"\$\.problems\[0\]\.targets\[0\]\.shape: no benchmark has \{m: 64\}",
        ),
        (
            "{directory: ag_gemm, name: ag_gemm,",
            "{directory: x, name: ag_gem,",
            r"\$\.problems\[1\]: no problem 'ag_gem'",
        ),
    ],
)
def test_what_every_submission_would_fail_at_is_told_before_a_team_registers(
    old: str, new: str, told: str, tmp_path: Path
) -> None:
    assert old in FILE
    checkout = Checkout(ROOT)
    rules.check(contest(tmp_path, FILE).rules, tmp_path / "class.yaml", checkout)
    bad = contest(tmp_path, FILE.replace(old, new))
    with pytest.raises(BadFileError, match=r"class\.yaml: " + told):
        rules.check(bad.rules, bad.file, checkout)


def test_a_file_that_is_not_there_is_named_whole(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=re.escape(f"{tmp_path}/none.yaml: no such file; name the file of a contest")):
        rules.read(tmp_path / "none.yaml")


def test_a_folder_is_no_contest(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=re.escape(f"{tmp_path}: a folder; name the contest's file in it")):
        contest_verbs.contest_of(str(tmp_path), Checkout(ROOT))


def test_kernelbots_file_is_a_contest_that_forbids_nothing(tmp_path: Path) -> None:
    made = contest(tmp_path, "name: x\nproblems: [{directory: a, name: gemm_rs}]\n")
    register(made, "owls", "ada", now=datetime(1999, 1, 1, tzinfo=UTC))
    assert submit(made, "ada", datetime(2099, 1, 1, tzinfo=UTC)).number == 1


# ---- refusals --------------------------------------------------------------------------------------------------------
Act = Callable[[Contest], object]
REFUSALS: dict[str, tuple[Act, str]] = {
    "registration has not begun": (
        lambda found: register(found, "dogs", "di", now=REGISTRATION - MINUTE),
        r"registration opens at 2027-01-04 09:00 UTC \(rule `registration\.opens`; it is 2027-01-04 08:59 UTC\)",
    ),
    "registration is over": (
        lambda found: register(found, "dogs", "di", now=OPEN + 5 * DAY),
        r"registration closed at 2027-01-15 18:00 UTC \(rule `registration\.closes`; it is 2027-01-16 09:00 UTC\)",
    ),
    "too many members": (
        lambda found: register(found, "owls", "di", "ed"),
        r"owls would have 4 members, at most 3 are allowed \(rule `teams\.members`",
    ),
    "a member of two teams": (
        lambda found: register(found, "dogs", "ada"),
        r"ada is in team owls already, and a member is in one team \(rule `teams`",
    ),
    "the problem is not open": (
        lambda found: submit(found, "ada", OPEN - timedelta(seconds=1)),
        r"too early: gemm_rs opens at 2027-01-11 09:00 UTC \(rule `opens`; it is 2027-01-11 08:59:59 UTC\)",
    ),
    "the problem is not open yet, by its own time": (
        lambda found: submit(found, "ada", OPEN, "ag_gemm"),
        r"too early: ag_gemm opens at 2027-01-18 09:00 UTC \(rule `problems\[ag_gemm\]\.opens`",
    ),
    "the problem is closed": (
        lambda found: submit(found, "ada", END + timedelta(seconds=1)),
        r"too late: gemm_rs closed at 2027-01-29 18:00 UTC \(rule `deadline`; it is 2027-01-29 18:00:01 UTC\)",
    ),
    "an unknown member": (
        lambda found: submit(found, "adah"),
        r"unknown member 'adah'; did you mean 'ada'\?; `contest register` adds one to a team \(rule `teams`",
    ),
    "an unknown team": (
        lambda found: acts.submit(found, replace(ADAS, team="owl"), OPEN),
        r"unknown team 'owl'; did you mean 'owls'\?",
    ),
    "another team": (
        lambda found: acts.submit(found, replace(ADAS, team="cats"), OPEN),
        r"ada is in team owls, not in cats",
    ),
    "another team's entry": (
        lambda found: acts.withdraw(found, submit(found, "ada").number, OPEN, "cy"),
        r"entry 1 is team owls's, and cy is in team cats",
    ),
    "somebody who is no organiser": (
        lambda found: acts.disqualify(found, submit(found, "ada").number, "no", OPEN, "ada"),
        r"ada is no organiser of Kernel class 2027 \(grace may do this\) \(rule `organisers`",
    ),
    "a freeze of what is frozen": (
        lambda found: acts.freeze(found, END, "grace", frozen=True),
        r"the standings are frozen already, since 2027-01-28 18:00 UTC \(rule `freeze`; it is 2027-01-29 18:00 UTC\)",
    ),
    "an unfreezing of what is not": (
        lambda found: acts.freeze(found, OPEN, "grace", frozen=False),
        r"the standings are not frozen \(rule `freeze`",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_names_its_rule_and_the_time_and_records_nothing(name: str, found: Contest) -> None:
    act, told = REFUSALS[name]
    before = len(found.log.records())
    with pytest.raises(UsageError, match=r"^refused: " + told):
        act(found)
    own = [record.event.type for record in found.log.records()[before:]]
    assert own in ([], ["submitted"])  # what the act itself had to prepare


def test_only_participants_may_register_where_the_file_lists_them(tmp_path: Path) -> None:
    made = contest(tmp_path, FILE.replace("members: 3}", "members: 3, participants: [ada, bob]}"))
    register(made, "owls", "ada")
    with pytest.raises(UsageError, match=r"'adda' is not on the list of participants; did you mean 'ada'\?"):
        register(made, "cats", "adda")


@pytest.mark.parametrize("name", ["", "a b", "../x", "-x", "x" * 33, "é"])
def test_a_name_that_cannot_be_a_folder_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be used: expected up to 32 letters"):
        register(contest(tmp_path), name, "ada")


def test_the_quota_is_of_a_team_and_a_day_in_utc_and_not_of_what_could_not_run(found: Contest) -> None:
    last = datetime(2027, 1, 11, 23, 59, 59, tzinfo=UTC)
    lost = submit(found, "ada", last)
    acts.settle(found, acts.not_run(lost.number, "the disk is full"), last, "harness")
    for member in ("ada", "bob", "ada"):
        submit(found, member, last)
    with pytest.raises(
        UsageError,
        match=r"team owls has used its 3 submissions of 2027-01-11 \(3\); the next day begins at 2027-01-12 00:00 UTC "
        r"\(rule `quota\.per_day`; it is 2027-01-11 23:59:59 UTC\)",
    ):
        submit(found, "bob", last)
    submit(found, "cy", last)
    submit(found, "bob", last + timedelta(seconds=1))


# ---- standings and the freeze ----------------------------------------------------------------------------------------
def teams(shown: standings.Standings, problem: str = "gemm_rs") -> list[tuple[str, str, int]]:
    rows = next(one.teams for one in shown.problems if one.problem == problem)
    return [(one.team, one.row.place.text, one.entry.number) for one in rows]


def test_a_team_stands_with_its_best_source_and_ties_share_a_range(found: Contest) -> None:
    register(found, "dogs", "di")
    ranked(found, "ada", 1.2)
    ranked(found, "bob", 3.0)
    ranked(found, "cy", 2.0)
    ranked(found, "di", 2.01)
    assert teams(standings.full(found.rules, found.log.records(), BOARD, OPEN)) == [
        ("owls", "1", 2),
        ("dogs", "2-3", 4),
        ("cats", "2-3", 3),
    ]


def test_one_source_submitted_often_does_not_stand_for_its_luckiest_launch(found: Contest) -> None:
    """Its launches are one estimate, as on the board."""
    for speedup in (2.0, 2.9, 2.1):
        ranked(found, "ada", speedup, sha256="aa" * 32)
    shown = standings.full(found.rules, found.log.records(), BOARD, OPEN)
    row = shown.problems[0].teams[0].row
    assert row.launches == 3
    assert row.ratio is not None
    assert 2.0 < row.ratio.value < 2.5


def test_withdrawing_an_unlucky_launch_does_not_better_the_estimate(found: Contest) -> None:
    for speedup in (2.0, 2.9):
        ranked(found, "ada", speedup, sha256="aa" * 32)
    acts.withdraw(found, 1, OPEN, "ada")
    (row,) = standings.full(found.rules, found.log.records(), BOARD, OPEN).problems[0].teams
    assert row.row.launches == 2
    assert row.entry.number == 2
    acts.withdraw(found, 2, OPEN, "ada")
    assert teams(standings.full(found.rules, found.log.records(), BOARD, OPEN)) == []


def test_the_public_sees_the_standings_as_they_were_at_the_freeze(found: Contest) -> None:
    freeze = datetime(2027, 1, 28, 18, tzinfo=UTC)
    ranked(found, "ada", 2.0)
    ranked(found, "cy", 3.0, now=freeze + MINUTE)
    acts.disqualify(found, 1, "it reads the judge's inputs", freeze + 2 * MINUTE, "grace")

    def public(now: datetime) -> standings.Standings:
        return standings.public(found.rules, found.log.records(), BOARD, now)

    assert teams(public(freeze - MINUTE)) == [("cats", "1", 2)], "not frozen yet: as it is now"
    assert teams(public(END)) == [("owls", "1", 1)]
    assert public(END).frozen_at == freeze
    assert teams(standings.full(found.rules, found.log.records(), BOARD, END)) == [("cats", "1", 2)]
    acts.freeze(found, END + MINUTE, "grace", frozen=False)
    assert teams(public(END + 2 * MINUTE)) == [("cats", "1", 2)]
    assert public(END + 2 * MINUTE).frozen_at is None


def test_an_unfreezing_before_the_planned_freeze_does_not_call_that_off(found: Contest) -> None:
    def since(now: datetime) -> datetime | None:
        return standings.frozen_since(found.rules, found.state(), now)

    acts.freeze(found, OPEN, "grace", frozen=True)
    assert since(OPEN + MINUTE) == OPEN
    acts.freeze(found, OPEN + DAY, "grace", frozen=False)
    assert since(OPEN + 2 * DAY) is None
    assert since(END) == datetime(2027, 1, 28, 18, tzinfo=UTC)


def test_of_freezings_the_last_one_of_the_log_counts_whatever_the_clock_said(found: Contest) -> None:
    """It was set back in between, or both are of one moment."""
    for back in (timedelta(0), MINUTE):
        acts.freeze(found, OPEN, "grace", frozen=True)
        state = found.state()
        assert standings.frozen_since(found.rules, state, OPEN - back) == OPEN, "what is frozen stays so"
        acts.freeze(found, OPEN - back, "grace", frozen=False)
        assert standings.frozen_since(found.rules, found.state(), OPEN + DAY) is None
    assert standings.frozen_since(found.rules, found.state(), END) == closing(found.rules.freeze)


def test_private_standings_open_when_the_contest_ends(tmp_path: Path) -> None:
    made = contest(tmp_path, FILE + "private: true\n")
    register(made, "owls", "ada")
    ranked(made, "ada", 2.0)
    hidden = standings.public(made.rules, made.log.records(), BOARD, END)
    assert hidden.is_hidden
    assert teams(hidden) == []
    acts.freeze(made, END, "grace", frozen=False)
    assert teams(standings.public(made.rules, made.log.records(), BOARD, END + MINUTE)) == [("owls", "1", 1)]


# ---- awards ----------------------------------------------------------------------------------------------------------
def through(found: Contest, number: int, ratio: float = 2.0) -> None:
    """Reproduced and reviewed."""
    acts.settle(found, reproduced(number, ratio), END, "grace")
    acts.review(found, number, END, "grace")


def award(found: Contest, number: int, name: str = "first", now: datetime = END + MINUTE) -> None:
    acts.award(found, number, name, BOARD, now, "grace")


def test_the_first_that_reached_its_targets_and_was_verified_is_awarded(found: Contest) -> None:
    ranked(found, "ada", 2.0)
    ranked(found, "cy", 1.6)
    with pytest.raises(
        UsageError, match=r"too early: 'first' is awarded after gemm_rs closes, at 2027-01-29 18:00 UTC"
    ):
        award(found, 1, now=END)
    with pytest.raises(UsageError, match="entry 1 is ranked, so it cannot be awarded: an award needs a verified entry"):
        award(found, 1)
    acts.settle(found, reproduced(1), END, "grace")
    with pytest.raises(UsageError, match="entry 1 is reproduced, so it cannot be awarded"):
        award(found, 1)
    acts.review(found, 1, END, "grace", "read it")
    through(found, 2)
    with pytest.raises(UsageError, match=r"entry 2 has place 2 of gemm_rs, 'first' is for place 1 \(rule `awards\[fir"):
        award(found, 2)
    award(found, 1)
    assert found.state().entry(1).awards == ("first",)
    with pytest.raises(UsageError, match="'first' went to entry 1 already"):
        award(found, 1)
    award(found, 2, "second")
    with pytest.raises(UsageError, match="no award 'frist' in Kernel class 2027; did you mean 'first'"):
        award(found, 1, "frist")
    acts.disqualify(found, 1, "its source is a copy", END + DAY, "grace")
    award(found, 2, now=END + 2 * DAY)  # now it is the first
    assert found.state().entry(2).awards == ("second", "first")
    with pytest.raises(UsageError, match="ada is no organiser"):
        acts.reinstate(found, 1, "please", END + 3 * DAY, "ada")
    with pytest.raises(UsageError, match="why\\?"):
        acts.reinstate(found, 1, " ", END + 3 * DAY, "grace")
    one = acts.reinstate(found, 1, "the copy was the other one", END + 3 * DAY, "grace")
    assert (one.state, one.awards, one.why) == ("verified", (), "reinstated: the copy was the other one")
    with pytest.raises(UsageError, match="'first' went to entry 2 already"):
        award(found, 1, now=END + 3 * DAY)
    with pytest.raises(UsageError, match="entry 1 is verified, so it cannot be reinstated"):
        acts.reinstate(found, 1, "once more", END + 3 * DAY, "grace")


def test_rank_1_below_its_target_is_not_awardable(found: Contest) -> None:
    ranked(found, "ada", 1.4)
    through(found, 1, 1.4)
    with pytest.raises(
        UsageError,
        match=r"entry 1 is below its target: m 64 .*: 1\.4\dx, the target is 1\.50x "
        r"\(rule `problems\[gemm_rs\]\.targets`; it is 2027-01-29 18:01 UTC\)",
    ):
        award(found, 1)
    award(found, 1, "sole")  # for which targets do not count


def test_a_shared_place_is_awarded_to_all_or_to_nobody(found: Contest) -> None:
    ranked(found, "ada", 2.0)
    ranked(found, "cy", 2.01)
    through(found, 1)
    through(found, 2)
    advice = "`contest settle CONTEST gemm_rs --top 2` runs them head to head"
    with pytest.raises(UsageError, match=rf"place 1-2 of gemm_rs is shared: .*; {advice}"):
        award(found, 1, "sole")
    award(found, 1)
    award(found, 2)


def test_identical_sources_are_not_sent_to_settle(found: Contest) -> None:
    for member in ("ada", "cy"):
        ranked(found, member, 2.0, sha256="5e" * 32)
    through(found, 1)
    with pytest.raises(UsageError, match=r"place 1-2 of gemm_rs is shared: .*'sole' is not shared \(rule"):
        award(found, 1, "sole")


def test_an_entry_that_is_not_its_teams_best_has_no_place(found: Contest) -> None:
    ranked(found, "ada", 3.0)
    ranked(found, "bob", 2.0)
    through(found, 2)
    with pytest.raises(UsageError, match="entry 2 is not its team's best, so it has no place"):
        award(found, 2)


def test_a_held_entry_has_no_place_until_it_is_reproduced(found: Contest) -> None:
    one = submit(found, "ada")
    acts.settle(
        found, EvaluationHeld(entry=one.number, check="roofline", evidence="faster than light", run_id="r"), OPEN, "ada"
    )
    assert teams(standings.full(found.rules, found.log.records(), BOARD, OPEN)) == []
    released = replace(reproduced(one.number), evaluation=acts.slim(evaluation(1, 2.0)))
    acts.settle(found, released, OPEN, "grace")
    assert teams(standings.full(found.rules, found.log.records(), BOARD, OPEN)) == [("owls", "1", 1)]


def test_one_evaluation_has_one_result(found: Contest) -> None:
    """A result that comes twice, as after a server's restart, is refused."""
    one = ranked(found, "ada", 2.0)
    with pytest.raises(UsageError, match="entry 1 is ranked, so it cannot be ranked"):
        acts.settle(found, EvaluationRanked(entry=one.number, evaluation=evaluation(9, 9.0)), OPEN, "harness")
    with pytest.raises(UsageError, match="so it cannot be failed"):
        acts.settle(found, EvaluationFailed(entry=one.number, kind="wrong", why="no"), OPEN, "harness")
    assert found.state().entry(1).state == "ranked"


@pytest.mark.parametrize(
    ("target", "told"),
    [
        (Target(shape={"m": 64}, speedup=1.9), []),
        (Target(shape={"m": 64}, time_us=700), ["823 us, the target is 700 us"]),
        (Target(shape={"m": 64}, limit=0.5), ["14.6% of the limit, the target is 50.0%"]),
        (Target(shape={"m": 65}, speedup=1.0), ["no such shape was measured"]),
        (Target(speedup=2.5), ["the target is 2.50x"] * 3),
    ],
)
def test_a_target_is_of_the_shapes_that_have_its_parameters(target: Target, told: list[str]) -> None:
    found = missed(Listed(directory="", name="gemm_rs", targets=(target,)), evaluation(1, 2.0).cases)
    assert [said in line for said, line in zip(told, found, strict=True)] == [True] * len(told), found


def test_a_contest_is_over_when_its_last_problem_is(tmp_path: Path) -> None:
    found = rules.read(contest(tmp_path).file)
    assert found.ends == END
    assert isinstance(found, Competition)
    assert not found.is_over(END)
    assert found.is_over(END + MINUTE)
