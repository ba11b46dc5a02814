"""The plan: fresh seeds nobody can foresee, shares of the machine, and submissions read as text."""

import dataclasses
from pathlib import Path

import pytest
from factories import ordered

from harness.core.checkout import Checkout
from harness.core.errors import BadSubmissionError, UsageError
from harness.core.records import Submission
from harness.kinds.op.plan import make_plan
from harness.kinds.phases import PHASES, phases
from harness.machine import host
from harness.problems.shape_file import find
from harness.problems.submission import read_submission

SUBMISSION = Submission(path="s.py", name="s.py", source="", sha256="0" * 64)


def plan_of(mode: str = "leaderboard"):
    problem = find("a2a", Checkout.here())
    return make_plan(ordered(problem, problem.suite("quick"), SUBMISSION, mode, "cpu", 8))


def test_every_place_of_a_run_has_a_seed_of_its_own_and_no_two_runs_share_them() -> None:
    one, other = plan_of(), plan_of()
    seeds = [one.seed("timed", index) for index in range(500)] + [one.seed("check", index) for index in range(500)]
    assert len(set(seeds)) == 1000
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert one.seed("timed", 3) == one.seed("timed", 3)
    assert one.secret != other.secret
    assert one.seed("timed", 3) != other.seed("timed", 3)
    hidden = {one.hidden_seed("run", index) for index in range(100)} | {other.hidden_seed("run", 0)}
    assert len(hidden) == 101
    assert all(len(text) == 128 // 4 for text in hidden)


def test_the_leaderboard_mode_tests_before_it_ranks() -> None:
    assert PHASES["leaderboard"] == ("test", "benchmark")


def test_ranks_spin_only_where_each_has_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, spin in ((2, False), (24, False), (25, True)):
        monkeypatch.setattr("harness.kinds.op.plan.cores", lambda cores=cores: cores)
        plan = plan_of()
        assert plan.spin is spin
        assert bool(plan.cores) is spin, "with fewer cores every rank runs where there is room"


def test_ranks_share_the_cores_evenly_and_keep_to_one_memory_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two nodes whose cores are numbered in turns, as on some boards with two sockets."""
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(3, 20)))
    monkeypatch.setattr(host, "_memory_node", lambda core: core % 2)
    shares = host.near_cores(4)
    assert [len(share) for share in shares] == [4, 4, 4, 4]
    assert len({core for share in shares for core in share}) == 16
    assert shares[0] == (4, 6, 8, 10)
    assert {core % 2 for core in shares[0]} == {0}
    assert {core % 2 for core in shares[3]} == {1}


def test_the_limit_of_a_phase_is_that_of_the_mode() -> None:
    suite = find("a2a", Checkout.here()).suite("official")
    suite = dataclasses.replace(suite, benchmark_timeout_s=7, ranked_timeout_s=9)
    limits = {mode: {phase.name: phase.limit_s for phase in phases(suite, mode)} for mode in PHASES}
    assert limits == {
        "test": {"test": suite.test_timeout_s},
        "benchmark": {"benchmark": 7},
        "leaderboard": {"test": suite.test_timeout_s, "benchmark": 9},
        "profile": {"profile": 7},
    }


def test_a_plan_has_the_phases_of_its_mode_and_what_follows_a_right_case() -> None:
    plan = plan_of()
    assert [(phase.name, phase.then) for phase in plan.phases] == [("test", "check"), ("benchmark", "measure")]
    assert [phase.cases for phase in plan.phases] == [plan.suite.tests, plan.suite.benchmarks]
    (profiled,) = plan_of("profile").phases
    assert (profiled.name, profiled.then) == ("profile", "profile")
    assert [case.params for case in profiled.cases] == [case.params for case in plan.suite.benchmarks]
    assert {case.kind for case in profiled.cases} == {"profile"}


def test_a_submission_is_named_by_its_place_in_the_checkout(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("x = 1\n")
    assert read_submission(tmp_path / "mine.py", tmp_path).name == "mine.py"
    assert read_submission(tmp_path / "mine.py", tmp_path / "elsewhere").name == str(tmp_path / "mine.py")


def test_a_submission_is_never_run_by_reading_it(tmp_path: Path) -> None:
    (tmp_path / "trap.py").write_text("raise SystemExit('imported')\n")
    assert "imported" in read_submission(tmp_path / "trap.py", tmp_path).source


def test_what_is_no_submission_says_why(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no submission file"):
        read_submission(tmp_path / "none.py", tmp_path)
    (tmp_path / "bad.py").write_text("def f(:\n")
    with pytest.raises(BadSubmissionError, match=r"bad\.py:1"):
        read_submission(tmp_path / "bad.py", tmp_path)


def test_gpus_are_those_that_torch_may_see(monkeypatch: pytest.MonkeyPatch) -> None:
    """A build of torch without GPUs has none, whatever the machine has; *_VISIBLE_DEVICES hides some."""
    names = ["nvidia0", "nvidia1", "nvidia2", "nvidia3", "nvidiactl", "nvidia-uvm", "tty"]
    monkeypatch.setattr(host.os, "listdir", lambda path: names)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(host, "installed", lambda package: "2.11.0")
    assert (host.gpus().device, host.gpus().count) == ("cuda", 4)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,3")
    assert host.gpus().count == 2
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert host.gpus().device == "cpu"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr(host, "installed", lambda package: "2.13.0+cpu")
    assert host.gpus().told == "no GPU that this torch can use"
