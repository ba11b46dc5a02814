"""Who somebody is on the command line of a contest: the account that is logged in, and nobody else without an
organiser. Each attack is beside what is honest."""

import os
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest
from contests import FILE, OPEN, Stage, play
from places import ROOT

from harness.cli import main
from harness.contest import acts
from harness.core.accounts import account, owner
from harness.core.checkout import Checkout
from harness.core.errors import Exit
from harness.core.files import replace_file
from harness.core.records import EvalReport
from harness.evaluation import verify

KERNEL = "WHAT = '# speedup 2.5'\n\n\ndef custom_kernel(data):\n    return data\n"


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """A contest with the teams owls (ada, ben) and cats (cy), and an entry of ada's."""
    play(monkeypatch)
    monkeypatch.chdir(tmp_path)
    for name in ("reference", "shapes"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "contests").mkdir()
    (tmp_path / "contests" / "c.yaml").write_text(FILE)
    (tmp_path / "mine.py").write_text(KERNEL)
    stage = Stage(tmp_path, login="ada")
    assert did(stage, "ada", "register c owls ada ben")[0] == Exit.OK
    assert did(stage, "cy", "register c cats cy")[0] == Exit.OK
    stage.now = OPEN
    assert did(stage, "ada", SUBMIT)[0] == Exit.OK
    return stage


SUBMIT = "submit -q c mine.py --problem gemm_rs"


def did(stage: Stage, login: str, line: str) -> tuple[int, str]:
    stage.login = login
    return stage.run(f"python -m harness contest {line}")


def count(stage: Stage) -> int:
    return len(acts.opened(stage.root / "contests" / "c.yaml").log.records())


@pytest.mark.parametrize(
    ("login", "line"),
    [
        ("cy", f"{SUBMIT} --member ada"),
        ("cy", "withdraw c 1 --member ada"),
        ("cy", "withdraw c 1"),
        ("ada", f"{SUBMIT} --member ben"),
        ("cy", "disqualify c 1 --why envy --by grace"),
        ("cy", "freeze c --by grace"),
        ("cy", "standings c --full --by grace"),
        ("cy", "stats c --full --by grace"),
        ("cy", "show c --by grace --log"),
        ("cy", "settle c gemm_rs --by grace"),
        ("cy", "verify-top c gemm_rs --by grace"),
        ("mallory", "register c owls mallory"),
        ("mallory", "register c owls mallory --by ada"),
        ("mallory", "register c bats dora"),
    ],
)
def test_nobody_acts_as_somebody_else(stage: Stage, login: str, line: str) -> None:
    before = count(stage)
    code, out = did(stage, login, line)
    assert (code, count(stage)) == (Exit.USAGE, before)
    assert out.startswith("error: refused: "), out
    assert "(rule `organisers`" in out or "(rule `teams`" in out, out


@pytest.mark.parametrize(
    ("login", "line"),
    [
        ("ben", SUBMIT),
        ("ben", "withdraw c 1"),
        ("ben", "withdraw c 1 --member ben"),
        ("grace", f"{SUBMIT} --member cy"),
        ("grace", "withdraw c 1 --member ada"),
        ("grace", "register c bats dora"),
        ("ben", "register c owls cleo"),
        ("grace", "disqualify c 1 --why copied"),
    ],
)
def test_a_member_acts_for_the_own_team_and_an_organiser_for_others(stage: Stage, login: str, line: str) -> None:
    before = count(stage)
    code, out = did(stage, login, line)
    assert code == Exit.OK, out
    assert count(stage) > before


def test_without_organisers_the_owner_of_the_file_is_one(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(FILE.replace("organisers: [grace]\n", ""))
    assert acts.opened(file).rules.organisers == (owner(file),) == (account(),)


def test_a_variable_makes_nobody_somebody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    before = account()
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "ada")
    assert account() == before != "ada"


@pytest.mark.parametrize("name", ["gemm_rs", "amd-gemm-rs", "GEMM-RS"])
def test_a_file_may_name_its_problem_as_the_checkout_calls_it(stage: Stage, name: str) -> None:
    """`new-submission` writes GPU MODE's name, which only `serve` took for the contest's problem."""
    (stage.root / "mine.py").write_text(f"#!POPCORN leaderboard {name}\n{KERNEL}")
    code, printed = did(stage, "ben", "submit -q c mine.py")
    assert code == Exit.OK, printed
    assert acts.opened(stage.root / "contests" / "c.yaml").state().entry(2).problem == "gemm_rs"


def test_logs_and_boards_are_not_for_everybody(stage: Stage) -> None:
    log, board = stage.root / "contests" / "c.log.jsonl", stage.root / "leaderboard.yaml"
    assert [stat.S_IMODE(file.stat().st_mode) for file in (log, board)] == [0o600, 0o600]
    for file in (log, board):
        file.chmod(0o664)  # as an older harness left them, and an owner who lets a group write
    assert did(stage, "ben", SUBMIT)[0] == Exit.OK
    assert [stat.S_IMODE(file.stat().st_mode) for file in (log, board)] == [0o660, 0o660]
    other = stage.root / "page.html"
    other.touch(0o644)
    os.chmod(other, 0o644)
    replace_file(other, b"public")
    assert stat.S_IMODE(other.stat().st_mode) == 0o644


def test_entries_of_a_problem_that_the_file_does_not_list_any_more_end_nothing(stage: Stage) -> None:
    """Where one had failed, `contest stats`, `page` and the page of `serve` ended with a traceback."""
    for kind in ("wrong", "held"):
        (stage.root / "mine.py").write_text(KERNEL.replace("speedup 2.5", kind))
        assert did(stage, "ada", SUBMIT)[0] == Exit.INVALID
    file = stage.root / "contests" / "c.yaml"
    kept = [line for line in file.read_text().splitlines() if "gemm_rs" not in line or "ag_gemm" in line]
    file.write_text("\n".join(kept))
    for verb in ("stats c", "stats c --full", "standings c", "show c", "show c 1"):
        code, out = did(stage, "grace", verb)
        assert code == Exit.OK, out
    assert "gemm_rs" in did(stage, "grace", "stats c")[1]
    command = main.parse(["page", "-o", str(stage.root / "page.html")])
    assert command.carry_out(Checkout(stage.root)) == Exit.OK


def test_where_every_entry_is_withdrawn_there_is_nothing_to_verify(stage: Stage) -> None:
    assert did(stage, "ada", "withdraw c 1")[0] == Exit.OK
    code, out = did(stage, "grace", "verify-top c gemm_rs")
    assert code == Exit.USAGE
    assert "no entry of gemm_rs has a place" in out


@pytest.mark.parametrize("how", ["withdrawn", "without a source"])
def test_an_entry_of_which_nothing_can_be_said_keeps_no_other_from_its_verification(
    how: str, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is withdrawn while its launches run, say. What they reached is shown all the same."""
    (stage.root / "slow.py").write_text(KERNEL.replace("2.5", "2.0"))
    assert did(stage, "cy", "submit -q c slow.py --problem gemm_rs")[0] == Exit.OK
    launches = verify.launches

    def meanwhile(*arguments: Any) -> list[EvalReport]:
        ran = launches(*arguments)
        if len(verified) == 0 and how == "withdrawn":
            assert did(stage, "ada", "withdraw c 1")[0] == Exit.OK
            stage.login = "grace"
        verified.append(len(ran))
        return ran

    verified: list[int] = []
    monkeypatch.setattr(verify, "launches", meanwhile)
    if how == "without a source":
        found = acts.opened(stage.root / "contests" / "c.yaml").state().entry(1).evaluation
        assert found is not None
        shutil.rmtree(stage.root / "runs" / "sources" / found.sha256)
        shutil.rmtree(stage.root / "runs" / found.run_id)
        (stage.root / "mine.py").unlink()
    code, out = did(stage, "grace", "verify-top c gemm_rs")
    assert code == (Exit.USAGE if how == "withdrawn" else Exit.ERROR), out
    assert "entry 1 of team owls: not decided: " in out
    assert ("refused: entry 1 is withdrawn" in out) == (how == "withdrawn")
    assert out.count("5 launches reach") == len(verified)
    assert acts.opened(stage.root / "contests" / "c.yaml").state().entry(2).state == "reproduced"
