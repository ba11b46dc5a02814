"""`verify`: whether an entry's stored source does again what the entry claims, and what becomes of the entry.

Evaluations are played here but for one test, which runs them.
"""

import json
import math
import os
import random
import re
import signal
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from factories import FAILURES, HELD, TIMES, failed_benchmark, failed_test, report
from launches import (
    ENTRY_RUN,
    FEW,
    HERE,
    MINE,
    NAME,
    SOURCE,
    Launches,
    add_tiny,
    alice,
    launch,
    loaded,
    played,
    prepared,
)
from places import SINGLE
from recorded import entry_for, gpu, run_id, slower

from harness.board import judgements, leaderboard, places, runs
from harness.board.entries import Board
from harness.cli import main
from harness.cli import verify as verb
from harness.core.checkout import ROOT, Checkout
from harness.core.errors import Exit, HarnessError, UsageError
from harness.core.records import EvalReport, Held, Score
from harness.evaluation import verify
from harness.evaluation.verify import EntryClaim
from harness.kinds.gpu_only import GpuOnlyError
from harness.machine import host
from harness.problems.shape_file import find
from harness.problems.submission import read_submission


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Launches:
    return played(monkeypatch)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return prepared(tmp_path)


def verified(root: Path, *arguments: str) -> int:
    return main.parse(["verify", *arguments]).carry_out(Checkout(root))


# ---- the rule --------------------------------------------------------------------------------------------------------


def claim(ratio: float, ci: tuple[float, float] | None = None) -> EntryClaim:
    return EntryClaim(score=Score(value=1.0, unit="s", better="less"), ratio=ratio, ci=ci)


def test_the_olympic_mean_is_without_the_fastest_and_the_slowest() -> None:
    assert verify.olympic_mean([9.0, 1.0, 5.0]) == 5.0
    assert verify.olympic_mean([3.0, 100.0, 2.0, 4.0, 0.0]) == 3.0
    assert verify.olympic_mean([2.0, 2.0, 2.0]) == 2.0


@pytest.mark.parametrize(
    ("claimed", "speedups", "word"),
    [
        (2.00, [2.0, 2.0, 2.0, 2.0, 2.0], "verified"),
        (2.08, [2.0, 2.0, 2.0, 2.0, 2.0], "verified"),  # 4 % too much is no matter, however still the machine
        (2.20, [2.0, 2.0, 2.0, 2.0, 2.0], "held"),
        (2.20, [1.9, 1.95, 2.0, 2.05, 2.1], "verified"),  # launches differ by as much
        (2.60, [1.9, 1.95, 2.0, 2.05, 2.1], "held"),
        (0.50, [1.9, 1.95, 2.0, 2.05, 2.1], "verified"),  # claims less than it does
        (2.60, [1.0, 1.5, 2.0, 2.5, 4.0], "undecided"),  # here launches differ by more than anybody may claim too much
        (2.40, [1.0, 1.5, 2.0, 2.5, 4.0], "verified"),
        (99.0, [1.0, 1.5, 2.0, 2.5, 4.0], "held"),  # but not by everything
        (2.00, [2.0, 2.0, 0.1, 2.0, 2.0], "verified"),  # one launch went wrong for reasons of its own
    ],
)
def test_a_claim_holds_unless_it_exceeds_the_launches_by_more_than_they_differ(
    claimed: float, speedups: list[float], word: str
) -> None:
    found = verify.decide(claim(claimed), [2 / value for value in speedups], speedups)
    assert found.word == word
    assert f"than the entry's claim of {claimed:.4g}x" in found.why
    assert found.ratio is not None
    low, high = found.ratio.ci
    assert low <= found.ratio.value <= high


def test_the_entrys_own_interval_counts_where_it_is_wider_than_launches_differ() -> None:
    speedups = [2.0, 2.0, 2.0, 2.0, 2.0]
    assert verify.decide(claim(2.3, (2.25, 2.35)), speedups, speedups).word == "held"
    assert verify.decide(claim(2.3, (1.8, 2.9)), speedups, speedups).word == "verified"


def test_a_slower_machine_slows_the_reference_too_and_holds_nothing() -> None:
    """All times are 1.5 times the recorded ones, the speedup is not."""
    found = verify.decide(claim(2.0), [1.5, 1.51, 1.49, 1.5, 1.5], [2.0, 2.01, 1.99, 2.0, 2.0])
    assert found.word == "verified"
    assert "the machine, reference included, was about 50% slower than then" in found.why
    same = verify.decide(claim(2.0), [1.0, 1.01, 0.99, 1.0, 1.0], [2.0, 2.01, 1.99, 2.0, 2.0])
    assert "the machine" not in same.why


@pytest.mark.parametrize("count", [3, 5, 9])
@pytest.mark.parametrize("spread", [0.02, 0.05, 0.1])
def test_honest_entries_are_held_as_rarely_as_the_rule_says(count: int, spread: float) -> None:
    """An honest entry is one more launch. At most 2.5 % of them are held (here: of 400, so up to 5 % by chance)."""
    chance = random.Random(count)

    def drawn() -> float:
        return math.exp(chance.gauss(0, spread))

    held = 0
    for _ in range(400):
        speedups = [drawn() for _ in range(count)]
        held += verify.decide(claim(drawn()), speedups, speedups).word == "held"
    assert held <= 20


def test_entries_that_claim_double_are_found_out() -> None:
    chance = random.Random(5)
    found = 0
    for _ in range(200):
        speedups = [math.exp(chance.gauss(0, 0.1)) for _ in range(5)]
        found += verify.decide(claim(2 * math.exp(chance.gauss(0, 0.1))), speedups, speedups).word == "held"
    assert found >= 190


def test_without_a_claim_it_is_enough_to_pass() -> None:
    found = verify.decide(None, [1.0, 2.0, 3.0], [3.0, 2.0, 1.0])
    assert (found.word, found.why) == ("verified", "3 launches passed every check")


# ---- what becomes of the entry ---------------------------------------------------------------------------------------


def test_an_entry_that_is_reproduced_is_verified_and_its_launches_are_kept(root: Path, launches: Launches) -> None:
    """From the stored source, whatever the file says by now."""
    launches.script = [launch(11), launch(12, 1.02), launch(13, 0.97)]
    (root / "submissions" / "gemm_rs").mkdir(parents=True)
    (root / NAME).write_text("raise SystemExit\n")
    before = alice(loaded(root))
    out = root / "out.json"
    assert verified(root, ENTRY_RUN, "--launches", "3", "--json", str(out)) == Exit.OK
    assert [one.source for one in launches.ran] == [SOURCE] * 3
    assert all((root / "runs" / run_id(number) / "report.json").is_file() for number in (11, 12, 13))
    now = alice(loaded(root))
    assert now.verified is not None
    assert (now.status, now.verified.launches) == ("verified", 3)
    assert now.verified.run_ids == (run_id(11), run_id(12), run_id(13))
    assert now.verified.score == pytest.approx(before.score.value, rel=1e-4)  # the middle one of three
    assert now.verified.score_ci[0] < now.verified.score < now.verified.score_ci[1]
    assert now.verified.ratio == pytest.approx(before.ratio, rel=1e-4)
    suite = find("gemm_rs", Checkout.here()).suite("cpu")
    assert now.problem_version == judgements.problem_version(find("gemm_rs", Checkout.here()), suite, "cpu")
    assert replace(now, verified=None, problem_version=None) == before
    told = json.loads(out.read_text())
    assert (told["decision"]["word"], told["exit_code"], len(told["launches"])) == ("verified", 0, 3)
    assert told["entry"]["run_id"] == ENTRY_RUN


def test_quiet_prints_the_decision_alone_and_json_nothing_else(
    root: Path, launches: Launches, capsys: pytest.CaptureFixture[str]
) -> None:
    launches.script = [launch(10 + number) for number in range(6)]
    assert verified(root, ENTRY_RUN, "--launches", "3", "--quiet") == Exit.OK
    assert re.fullmatch(r"verified: .*\n", capsys.readouterr().out)
    assert verified(root, ENTRY_RUN, "--launches", "3", "--json", "-") == Exit.OK
    assert json.loads(capsys.readouterr().out)["decision"]["word"] == "verified"


def test_an_entry_that_is_not_reproduced_is_held_with_the_evidence(
    root: Path, launches: Launches, capsys: pytest.CaptureFixture[str]
) -> None:
    launches.script = [launch(10 + number, 2 + number / 100) for number in range(5)]
    assert places.place_of(loaded(root), alice(loaded(root))).place == 1
    assert verified(root, ENTRY_RUN) == Exit.INVALID
    found = loaded(root)
    assert [one.author for one in found.entries] == ["bob"]
    (held,) = found.held
    assert (held.author, held.check, held.run_id, len(held.run_ids)) == ("alice", "verify", ENTRY_RUN, 5)
    assert re_numbers(held.evidence)[0] == "5"
    assert "noise explains 5%" in held.evidence
    assert [(one.run_id, one.why) for one in held.history] == [(ENTRY_RUN, "verify did not reproduce it")]
    shown = capsys.readouterr().out
    assert "held: 5 launches reach" in shown
    assert "Olympic mean" in shown


def re_numbers(text: str) -> list[str]:
    return [word for word in text.split() if word.isdigit()]


@pytest.mark.parametrize("outcome", FAILURES, ids=lambda outcome: outcome.type)
def test_a_launch_that_does_not_pass_holds_the_entry_at_once(outcome: Any, root: Path, launches: Launches) -> None:
    failed = failed_benchmark if outcome is HELD else failed_test
    bad = replace(failed(outcome), environment=HERE, submission=MINE, run_id=run_id(12))
    launches.script = [launch(11), bad]
    assert verified(root, ENTRY_RUN) == Exit.INVALID
    assert len(launches.ran) == 2
    (held,) = loaded(root).held
    assert held.check == (HELD.check if outcome is HELD else "verify")
    assert held.evidence.startswith("launch 2 of 5")
    assert (root / "runs" / run_id(12) / "report.json").is_file()


def by_chance(number: int, check: str = "clock") -> EvalReport:
    """A launch that a check of times held."""
    outcome = Held(check=check, evidence="700 us more passed around its calls")
    return replace(failed_benchmark(outcome), environment=HERE, submission=MINE, run_id=run_id(number))


@pytest.mark.parametrize("check", verify.BY_CHANCE)
def test_one_launch_that_a_check_of_times_held_is_run_again(
    check: str, root: Path, launches: Launches, capsys: pytest.CaptureFixture[str]
) -> None:
    launches.script = [launch(11), by_chance(12, check), launch(13), launch(14)]
    assert verified(root, ENTRY_RUN, "--launches", "3") == Exit.OK
    now = alice(loaded(root)).verified
    assert now is not None
    assert (now.launches, len(now.run_ids)) == (3, 4)
    assert f"one launch more was held ({check}), which a busy machine can cause" in capsys.readouterr().out


def test_two_launches_that_a_check_of_times_held_are_no_chance(root: Path, launches: Launches) -> None:
    launches.script = [by_chance(11), launch(12), by_chance(13), launch(14)]
    assert verified(root, ENTRY_RUN, "--launches", "3") == Exit.INVALID
    (held,) = loaded(root).held
    assert (held.check, held.evidence) == ("clock", "launch 3 of 3: 700 us more passed around its calls")
    assert len(launches.ran) == 3


def test_launches_that_differ_too_much_decide_nothing(
    root: Path, launches: Launches, capsys: pytest.CaptureFixture[str]
) -> None:
    launches.script = [launch(11 + number, times) for number, times in enumerate([1.0, 3.0, 1.4, 2.0, 1.5])]
    before = (root / "leaderboard.yaml").read_bytes()
    assert verified(root, ENTRY_RUN) == Exit.ERROR
    assert (root / "leaderboard.yaml").read_bytes() == before
    assert "undecided" in capsys.readouterr().out
    assert (root / "runs" / run_id(15)).is_dir()


def test_a_held_evaluation_that_is_reproduced_becomes_an_entry_and_keeps_what_it_was_held_for(
    root: Path, launches: Launches
) -> None:
    held = judgements.held_of(replace(failed_benchmark(HELD), environment=HERE, submission=MINE, run_id=run_id(7)))
    assert held is not None
    leaderboard.record(root / "leaderboard.yaml", held)
    assert judgements.doubted(loaded(root), alice(loaded(root))) is not None
    launches.script = [launch(11, 1.3), launch(12, 1.2), launch(13, 1.1)]
    assert verified(root, run_id(7), "--launches", "3") == Exit.OK
    found = loaded(root)
    assert found.held == ()
    now = alice(found)
    assert (now.run_id, now.status) == (run_id(12), "verified")
    assert [one.run_id for one in now.history] == [ENTRY_RUN]
    assert [(one.run_id, one.why) for one in now.holds] == [(run_id(7), "verified: 3 launches passed every check")]


def test_verifying_an_entry_settles_the_doubt_about_its_source(root: Path, launches: Launches) -> None:
    held = judgements.held_of(replace(failed_benchmark(HELD), environment=HERE, submission=MINE, run_id=run_id(7)))
    assert held is not None
    leaderboard.record(root / "leaderboard.yaml", held)
    launches.script = [launch(11), launch(12), launch(13)]
    assert verified(root, ENTRY_RUN, "--launches", "3") == Exit.OK
    found = loaded(root)
    assert (found.held, alice(found).status, [one.run_id for one in alice(found).holds]) == (
        (),
        "verified",
        [run_id(7)],
    )


def test_evaluating_again_is_a_new_claim_that_nobody_has_verified(root: Path, launches: Launches) -> None:
    launches.script = [launch(11), launch(12), launch(13)]
    verified(root, ENTRY_RUN, "--launches", "3")
    leaderboard.record(root / "leaderboard.yaml", entry_for(launch(20, 0.9)))
    now = alice(loaded(root))
    assert (now.status, [one.status for one in now.history]) == ("ranked", ["verified"])


# ---- what can be asked for -------------------------------------------------------------------------------------------


@pytest.fixture
def elsewhere(root: Path) -> Callable[..., None]:
    def record(**changes: Any) -> None:
        one = replace(entry_for(launch(30)), run_id="elsewhere", file="submissions/gemm_rs/there.py", **changes)
        leaderboard.record(root / "leaderboard.yaml", one)

    return record


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"machine_class": "4 cores of Other CPU"},
            "was measured on 4 cores of Other CPU .*; this one is .*run it there",
        ),
        ({"device": "cuda", "machine_class": "8x NVIDIA H200"}, r"was measured on 8x NVIDIA H200 .*this machine has"),
        ({"problem": "retired"}, "no problem 'retired'"),
        ({"suite": "retired"}, "has no suite 'retired'"),
        ({"world_size": 7}, "is not divisible by the world size 7"),
        (
            {"problem_version": "0" * 16},
            "another version of gemm_rs.*`python -m harness rejudge --entry elsewhere --apply` first",
        ),
        ({"sha256": "0" * 64}, "the source of submissions/gemm_rs/there.py .* is not kept"),
        ({"ratio": None, "ratio_ci": None, "suite": "theirs"}, "there is no speedup to reproduce"),
    ],
)
def test_what_cannot_be_run_again_here_is_refused_before_anything_runs(
    changes: dict[str, Any], says: str, elsewhere: Callable[..., None], root: Path, launches: Launches
) -> None:
    if host.gpus().count and "device" in changes:
        pytest.skip("this machine has such GPUs")
    elsewhere(**changes)
    before = (root / "leaderboard.yaml").read_bytes()
    with pytest.raises(HarnessError, match=says):
        verified(root, "elsewhere")
    assert launches.ran == []
    assert (root / "leaderboard.yaml").read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["mine.py"], r"'mine.py' matches 2 entries; name one by its run id:\n .*alice.*\n .*bob"),
        (["nobody.py"], "no entry 'nobody.py'"),
        ([ENTRY_RUN, "--problem", "a2a"], "no entry of a2a"),
        ([ENTRY_RUN, "--launches", "2"], "--launches 2: at least 3 are needed"),
        ([ENTRY_RUN, "--seconds", "0"], "seconds above 0"),
    ],
)
def test_what_cannot_be_asked_for_is_said_before_anything_runs(
    arguments: list[str], says: str, root: Path, launches: Launches
) -> None:
    other = replace(entry_for(launch(3)), author="bob")
    leaderboard.record(root / "leaderboard.yaml", other)
    (root / "runs" / other.run_id).mkdir(exist_ok=True)
    with pytest.raises(UsageError, match=says):
        verified(root, *arguments)
    assert launches.ran == []


def test_seconds_reach_the_evaluation(root: Path, launches: Launches) -> None:
    launches.script = [launch(11), launch(12), launch(13)]
    verified(root, ENTRY_RUN, "--launches", "3", "--seconds", "0.25")
    assert [(one.suite.benchmark_s, one.suite.name, one.world_size) for one in launches.settings] == [
        (0.25, "cpu", 8)
    ] * 3


def test_a_stored_source_that_was_altered_is_not_run(root: Path, launches: Launches) -> None:
    stored = root / "runs" / "sources" / MINE.sha256 / "submission.py"
    stored.unlink()
    stored.write_text("def custom_kernel(data): return 'another'\n")
    with pytest.raises(HarnessError, match="was altered"):
        verified(root, ENTRY_RUN)
    assert launches.ran == []


def test_a_launch_that_turns_out_to_be_on_another_gpu_is_refused(root: Path, launches: Launches) -> None:
    """Which model a GPU is, is known only once ranks have it."""
    launches.script = [replace(launch(11), environment=replace(HERE, machine_class="8x Another GPU"))]
    before = (root / "leaderboard.yaml").read_bytes()
    with pytest.raises(UsageError, match="this is 8x Another GPU"):
        verified(root, ENTRY_RUN)
    assert (root / "leaderboard.yaml").read_bytes() == before


# ---- what goes wrong meanwhile ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [KeyboardInterrupt(), HarnessError("the reference failed")])
def test_what_ends_a_launch_leaves_the_board_as_it_was(error: BaseException, root: Path, launches: Launches) -> None:
    launches.script = [launch(11), error]
    before = (root / "leaderboard.yaml").read_bytes()
    with pytest.raises(type(error)):
        verified(root, ENTRY_RUN)
    assert (root / "leaderboard.yaml").read_bytes() == before
    assert (root / "runs" / run_id(11) / "report.json").is_file()


@pytest.mark.parametrize("is_machine", [True, False])
@pytest.mark.parametrize(
    "error",
    [HarnessError("judging took too long"), UsageError("refused"), GpuOnlyError("it has CUDA code", may_run=False)],
)
def test_who_ends_each_launch_with_an_error_is_held_unless_the_reference_does_so_too(
    error: HarnessError, is_machine: bool, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else whoever can cause one would stay undecided for ever. One alone is nobody's fault."""
    asked = []

    def evaluated(plan: Any, progress: object) -> EvalReport:
        asked.append(plan.submission.source)
        if is_machine or plan.submission.source == SOURCE:
            raise error
        assert "ref_kernel(data)" in plan.submission.source
        return launch(11, author="nobody")

    monkeypatch.setattr(verify, "evaluate", evaluated)
    before = loaded(root)
    if is_machine:
        with pytest.raises(type(error), match=str(error)):
            verified(root, ENTRY_RUN)
        assert loaded(root) == before
        return
    assert verified(root, ENTRY_RUN) == Exit.INVALID
    (held,) = loaded(root).held
    assert held.check == "broke its judge"
    assert f"launch 2 of 5: its evaluation ended with an error, and that of the reference passes: {error}" in (
        held.evidence
    )
    assert len(asked) == 4
    assert len(held.run_ids) == 2
    assert all((root / "runs" / one / "report.json").is_file() for one in held.run_ids)


def test_a_file_that_needs_tritons_interpreter_is_not_held_where_that_is_off(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launches = played(monkeypatch)
    launches.script = [GpuOnlyError("it needs a GPU (TRITON_INTERPRET=1)", may_run=True)]
    monkeypatch.setattr(verify, "reference_passes", lambda *order: True)
    with pytest.raises(UsageError, match="TRITON_INTERPRET"):
        verified(root, ENTRY_RUN)


def test_a_kill_in_the_middle_leaves_the_board_as_it_was_and_the_next_works(root: Path, launches: Launches) -> None:
    before = (root / "leaderboard.yaml").read_bytes()
    pid = os.fork()
    if pid == 0:
        launches.script = [launch(11)] * 5
        launches.during = lambda: os.kill(os.getpid(), signal.SIGKILL) if len(launches.ran) == 3 else None
        verified(root, ENTRY_RUN)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    assert (root / "leaderboard.yaml").read_bytes() == before
    launches.script = [launch(11), launch(12), launch(13)]
    assert verified(root, ENTRY_RUN, "--launches", "3") == Exit.OK


def test_an_entry_that_is_deleted_meanwhile_stays_deleted(root: Path, launches: Launches) -> None:
    others = tuple(one for one in loaded(root).entries if one.author == "bob")
    launches.script = [launch(11), launch(12), launch(13)]
    launches.during = lambda: leaderboard.change(root / "leaderboard.yaml", lambda now: Board(entries=others))
    out = root / "out.json"
    with pytest.raises(HarnessError, match=r"was changed in the leaderboard meanwhile \(it was deleted\)"):
        verified(root, ENTRY_RUN, "--launches", "3", "--json", str(out))
    assert loaded(root) == Board(entries=others)
    assert json.loads(out.read_text())["decision"]["word"] == "verified"


def test_an_entry_that_is_evaluated_anew_meanwhile_keeps_the_new_claim(root: Path, launches: Launches) -> None:
    launches.script = [launch(11, 3.0), launch(12, 3.0), launch(13, 3.0)]
    launches.during = lambda: leaderboard.record(root / "leaderboard.yaml", entry_for(launch(20)))
    with pytest.raises(HarnessError, match=f"now stands there: {run_id(20)}"):
        verified(root, ENTRY_RUN, "--launches", "3")
    assert (alice(loaded(root)).run_id, loaded(root).held) == (run_id(20), ())


def test_another_entry_that_is_recorded_meanwhile_is_not_lost(root: Path, launches: Launches) -> None:
    launches.script = [launch(11), launch(12), launch(13)]
    launches.during = lambda: leaderboard.record(root / "leaderboard.yaml", entry_for(launch(20, author="carol")))
    assert verified(root, ENTRY_RUN, "--launches", "3") == Exit.OK
    assert sorted(one.author for one in loaded(root).entries) == ["alice", "bob", "carol"]
    assert alice(loaded(root)).status == "verified"


@pytest.mark.parametrize(
    ("first", "second", "ends"),
    [(1.0, 1.0, "verified"), (1.0, 3.0, "held"), (3.0, 1.0, "held")],
    ids=["both reproduce it", "the later one does not", "the earlier one does not"],
)
def test_of_two_at_once_one_that_does_not_reproduce_it_is_enough(
    first: float, second: float, ends: str, root: Path, launches: Launches
) -> None:
    """The other one's decision is on the board when this one comes to its own."""
    inner = [launch(20 + number, first) for number in range(3)]
    launches.script = [launch(11, second), launch(12, second), launch(13, second)]

    def other() -> None:
        if len(launches.ran) == 3:
            old = next(one for one in loaded(root).entries if one.run_id == ENTRY_RUN)
            decision = verify.decision_of(old, inner, 3)
            leaderboard.change(
                root / "leaderboard.yaml", lambda now: verify.applied(now, old, decision, inner, "0123456789abcdef")
            )

    launches.during = other
    if first > 1:
        with pytest.raises(HarnessError, match=r"now stands there: .*held"):
            verified(root, ENTRY_RUN, "--launches", "3")
    else:
        verified(root, ENTRY_RUN, "--launches", "3")
    found = loaded(root)
    assert [one.status for one in (*found.entries, *found.held) if one.author == "alice"] == [ends]


def test_a_full_disk_when_the_board_is_written_changes_nothing_and_shows_the_result(
    root: Path, launches: Launches, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    launches.script = [launch(11), launch(12), launch(13)]
    before = (root / "leaderboard.yaml").read_bytes()

    def full(path: Path, data: bytes, is_alone: bool, mode: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(leaderboard, "replace_file", full)
    with pytest.raises(HarnessError, match="was not written: No space left on device"):
        verified(root, ENTRY_RUN, "--launches", "3")
    assert (root / "leaderboard.yaml").read_bytes() == before
    assert "verified: 3 launches" in capsys.readouterr().out


def test_a_full_disk_when_a_launch_is_kept_ends_it_before_the_next(
    root: Path, launches: Launches, monkeypatch: pytest.MonkeyPatch
) -> None:
    launches.script = [launch(11)] * 5
    before = (root / "leaderboard.yaml").read_bytes()

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(runs.os, "fsync", full)
    with pytest.raises(HarnessError, match="No space left on device"):
        verified(root, ENTRY_RUN)
    assert len(launches.ran) == 1
    assert (root / "leaderboard.yaml").read_bytes() == before


def test_the_example_reports_are_alike_but_for_their_times() -> None:
    """What this file rests on: `times` is the part by which the speedup falls."""
    two = entry_for(launch(1)), entry_for(launch(2, 2.0))
    assert two[0].ratio == pytest.approx(2 * two[1].ratio)
    assert [gpu(slower(one, 1.0)).ranked.own for one in TIMES] == [one.ranked.own for one in TIMES]
    assert report().author == "alice"


# ---- for real --------------------------------------------------------------------------------------------------------


def test_an_evaluation_is_held_to_what_it_claims(
    harness: Callable[..., subprocess.CompletedProcess[str]], checkout: Path
) -> None:
    """Evaluated, then held for a claim of somebody who edits the leaderboard, from the stored source: the file itself
    is gone."""
    file = "submissions/gemm_rs/mine.py"
    (checkout / file).write_text((ROOT / "submissions/gemm_rs/reference.py").read_text())
    add_tiny(checkout)
    made = harness("eval", "gemm_rs", file, "--suite", "tiny", "--author", "ada", *FEW)
    assert made.returncode == 0, made.stdout + made.stderr
    (checkout / file).unlink()
    path = checkout / "leaderboard.yaml"
    text = yaml.safe_load(path.read_text())
    text["entries"][0].update(ratio=1e9, ratio_ci=[0.99e9, 1.01e9])  # whatever three short launches differ by
    path.write_text(yaml.safe_dump(text))
    result = harness("verify", "mine.py", "--launches", "3", "--json", "out.json", *FEW)
    assert result.returncode == Exit.INVALID, result.stdout + result.stderr
    told = json.loads((checkout / "out.json").read_text())
    assert told["decision"]["word"] == "held"
    assert len({one["run_id"] for one in told["launches"]}) == len(told["launches"])
    for one in told["launches"]:
        kept = json.loads((checkout / "runs" / one["run_id"] / "report.json").read_text())
        assert (kept["submission"]["path"], kept["author"]) == (file, "ada")
        assert kept["submission"]["sha256"] == text["entries"][0]["sha256"]
    shown = harness("board").stdout
    assert "held" in shown
    assert "mine.py by ada" in shown
    now = yaml.safe_load(path.read_text())
    assert (now["entries"], [one["author"] for one in now["held"]]) == ([], ["ada"])


FRAGILE = SINGLE / "fragile"
BREAKS = """
import os
from reference import ref_kernel

def custom_kernel(data):
    return ref_kernel(data) * (float("nan") if os.path.exists({!r}) else 1.0)
"""


def test_a_file_that_ends_its_judge_in_launches_is_held_by_two_of_them(
    harness: Callable[..., subprocess.CompletedProcess[str]], checkout: Path, tmp_path: Path
) -> None:
    """It was ranked, and knows by a file of its author's that it is verified now. The launches cannot be judged."""
    mark, file = tmp_path / "now", checkout / "mine.py"
    file.write_text(BREAKS.format(str(mark)))
    setting = ("--device", "cpu", "--author", "ada", *FEW)
    made = harness("eval", str(FRAGILE), str(file), *setting)
    assert made.returncode == 0, made.stdout + made.stderr
    mark.touch()
    result = harness("verify", "mine.py", "--problem", str(FRAGILE), "--launches", "3", *FEW)
    assert result.returncode == Exit.INVALID, result.stdout + result.stderr
    (held,) = leaderboard.load(checkout / "leaderboard.yaml").held
    assert held.check == "broke its judge"
    assert "launch 2 of 3: a judge (trusted rank 0) failed: was killed by SIGABRT" in held.evidence


def test_launches_have_caches_in_which_nothing_of_an_earlier_one_is(
    harness: Callable[..., subprocess.CompletedProcess[str]], checkout: Path
) -> None:
    """Unlike another evaluation of the same file."""
    file = checkout / "mine.py"
    file.write_text((ROOT / "tests/hostile/break_its_judge_when_run_again.py").read_text())
    setting = ("--device", "cpu", "--author", "ada", *FEW)
    assert harness("eval", str(FRAGILE), str(file), *setting).returncode == 0
    result = harness("verify", "mine.py", "--problem", str(FRAGILE), "--launches", "3", "--json", "out.json", *FEW)
    assert "SIGABRT" not in result.stdout + result.stderr
    told = json.loads((checkout / "out.json").read_text())
    assert len(told["launches"]) >= 3, result.stdout
    again = harness("eval", str(FRAGILE), str(file), *setting, "--no-record")
    assert again.returncode == Exit.INVALID
    assert "broke its judge" in again.stdout


def test_launches_without_a_reference_decide_nothing(root: Path, launches: Launches, capsys: Any) -> None:
    """A reference solver that found no answer in its time, say; `verify` ended with a traceback."""
    lone = launch(11)
    assert lone.figures is not None
    launches.script = [launch(10), replace(lone, figures=replace(lone.figures, ratio=None)), launch(12)]
    before = loaded(root)
    assert verified(root, ENTRY_RUN, "--launches", "3") == Exit.ERROR
    shown = capsys.readouterr().out
    assert "1 of 3 launches have no figures of the reference" in shown
    assert "no reference" in shown
    assert loaded(root) == before


def test_readmes_next_commands_mean_the_users_entry_beside_the_shipped_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine of every class that the shipped board has CPU entries of, and on every other one."""
    file = "submissions/a2a/submission.py"
    shipped = leaderboard.load(ROOT / "leaderboard.yaml")
    theirs = [one for one in shipped.entries if (one.file, one.suite) == (file, "cpu")]
    assert theirs
    for machine_class in {one.machine_class for one in theirs} | {"another machine"}:
        source = read_submission(ROOT / file, ROOT)
        mine = replace(
            theirs[0], author="ada", run_id="20270101T000000-abc123", sha256=source.sha256, machine_class=machine_class
        )
        (tmp_path / "runs" / mine.run_id).mkdir(parents=True, exist_ok=True)
        runs.store_source(source, tmp_path)
        here = replace(host.environment("", 0), machine_class=machine_class)
        monkeypatch.setattr(host, "environment", lambda model, ranks, here=here: here)
        board = replace(shipped, entries=(*shipped.entries, mine))
        assert verb.chosen(board, file, None, Checkout(tmp_path)) is mine
