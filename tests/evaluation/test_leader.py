"""`compare --against leader`: A is the source that leads the board, as it was evaluated, or it says why not."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from launches import ENTRY_RUN, MINE, alice, launch, loaded, prepared

from harness.board import judgements, leaderboard, runs
from harness.board.entries import Board
from harness.cli import compare as verb
from harness.cli import main
from harness.core.checkout import Checkout
from harness.core.errors import Exit, UsageError
from harness.evaluation import compare, compare_runs
from harness.evaluation.leader import leading
from harness.kinds.kind import Setting
from harness.problems.shape_file import find

NAME = "submissions/gemm_rs/new.py"
GEMM = find("gemm_rs", Checkout.here())
SUITE = GEMM.suite("cpu")
SETTING = Setting(problem=GEMM, suite=SUITE, device="cpu", world_size=8)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout where alice leads bob; her file has been changed since."""
    root = prepared(tmp_path)
    for name in (NAME, MINE.name):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("def custom_kernel(data):\n    return 2\n")
    monkeypatch.chdir(root)
    return root


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The plans of launches, which are not run; B takes twice as long as A."""
    planned: list[Any] = []

    def live(plan: Any, margin: float, progress: object) -> compare.Comparison:
        planned.append(plan)
        b = plan.submission
        row = compare_runs.recorded(launch(8), launch(9, 2.0), margin)
        return replace(
            row,
            a=compare.Side(name=plan.opponent.name, sha256=plan.opponent.sha256),
            b=compare.Side(name=b.name, sha256=b.sha256),
        )

    monkeypatch.setattr(verb, "live", live)
    return planned


def run_compare(root: Path, *arguments: str) -> int:
    return main.parse(["compare", *arguments, "--device", "cpu"]).carry_out(Checkout(root))


@pytest.mark.parametrize("named", [("gemm_rs", NAME), (NAME, "--problem", "gemm_rs")])
def test_the_files_are_compared_with_the_stored_source_of_the_leader(
    named: tuple[str, ...], root: Path, plans: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_compare(root, *named, "--against", "leader", "--fail-if", "slower") == Exit.FAIL_IF
    [timed] = plans
    assert timed.opponent.source == MINE.source, "not the file as it is now"
    assert timed.submission.name == NAME
    out = capsys.readouterr().out
    assert f"A  {MINE.name}, run {ENTRY_RUN}" in out
    assert "B is SLOWER" in out


def test_a_file_that_names_its_problem_needs_nothing_else(root: Path, plans: list[Any]) -> None:
    (root / NAME).write_text("#!POPCORN leaderboard amd-gemm-rs\ndef custom_kernel(data):\n    return 2\n")
    assert run_compare(root, NAME, "--against", "leader") == Exit.OK
    assert plans[-1].submission.name == NAME


def test_a_board_without_entries_is_said_with_those_that_there_are() -> None:
    with pytest.raises(UsageError, match=r"no entry of gemm_rs leads suite cpu on 8 ranks .*make eval PROBLEM=gemm_rs"):
        leading(Board(), SETTING)
    one = judgements.entry_of(launch(1, suite="official"))
    assert one is not None
    with pytest.raises(UsageError, match=r"there is\n  suite official, 8 ranks, "):
        leading(Board(entries=(one,)), SETTING)


def test_the_board_is_that_of_the_machines_gpus() -> None:
    made = judgements.entry_of(launch(1))
    assert made is not None
    entries = tuple(replace(made, device="cuda", machine_class=f"8x {name}", author=name) for name in ("H100", "H200"))
    on_gpus = replace(SETTING, device="cuda")
    assert leading(Board(entries=entries), on_gpus, ("H200",) * 8).author == "H200"
    with pytest.raises(UsageError, match="a GPU that the driver does not name"):
        leading(Board(entries=entries), on_gpus, ())


def test_a_leader_whose_source_is_not_kept_is_said(root: Path, plans: list[Any]) -> None:
    found = alice(loaded(root))
    folder = root / "runs" / runs.SOURCES / found.sha256
    folder.rename(folder.with_name("away"))
    (root / "runs" / ENTRY_RUN / "submission.py").unlink()
    with pytest.raises(UsageError, match=rf"the leader {ENTRY_RUN} cannot be run: the source of .* is not kept"):
        run_compare(root, "gemm_rs", NAME, "--against", "leader")
    assert plans == []


def test_a_leader_of_another_version_of_the_problem_is_said(root: Path, plans: list[Any]) -> None:
    def aged(board: Board) -> Board:
        return replace(board, entries=tuple(replace(one, problem_version="0" * 12) for one in board.entries))

    leaderboard.change(root / "leaderboard.yaml", aged)
    with pytest.raises(UsageError, match=rf"rejudge --entry {ENTRY_RUN} --apply` first"):
        run_compare(root, "gemm_rs", NAME, "--against", "leader")
