"""`contest submit` by another engine: entered here and now, evaluated there and later, with one outcome."""

import errno
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from contests import END, FILE, MINUTE, OPEN, REGISTRATION, Stage, contest, play

from harness.cli import main
from harness.contest import acts
from harness.contest.state import ContestEntry
from harness.core.checkout import ROOT, Checkout
from harness.core.errors import Exit
from harness.engine.base import EngineError

SUBMIT = "python -m harness contest submit class.yaml mine.py --problem gemm_rs --engine slurm -q"


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    for part in ("reference", "shapes"):
        shutil.copytree(ROOT / part, tmp_path / part)
    acts.register(contest(tmp_path, FILE), "owls", ("ada",), REGISTRATION, "ada", lambda: "secret")
    (tmp_path / "mine.py").write_text("# speedup 2.5\n\n\ndef custom_kernel(data):\n    return data\n")
    monkeypatch.chdir(tmp_path)
    play(monkeypatch)
    return Stage(tmp_path, now=OPEN, login="ada")


def the_entry(stage: Stage) -> ContestEntry:
    (entry,) = acts.opened(stage.root / "class.yaml").state().entries.values()
    return entry


def test_what_waits_for_a_node_over_the_deadline_is_in_time(stage: Stage) -> None:
    seen: list[Sequence[str]] = []

    def job(engine: str, command: Sequence[str], checkout: Checkout) -> int:
        assert engine == "slurm"
        assert the_entry(stage).state == "submitted"
        seen.append(command)
        stage.now, stage.login = END + MINUTE, "the node's user"
        code, printed = stage.run(shlex.join(["python", "-m", "harness", *command]))
        assert "1 of team owls: ranked" in printed
        return code

    stage.now, stage.elsewhere = END - MINUTE, job
    assert stage.run(SUBMIT) == (Exit.OK, "")
    entry = the_entry(stage)
    assert (entry.state, entry.member, entry.submitted_at) == ("ranked", "ada", END - MINUTE)
    code, printed = stage.run(shlex.join(["python", "-m", "harness", *seen[0]]))
    assert code == Exit.USAGE
    assert "mine.py is not what waits as entry 1" in printed, "it is evaluated once"


def test_a_rule_is_checked_before_a_job_is_submitted(stage: Stage) -> None:
    stage.now = END + MINUTE
    code, printed = stage.run(SUBMIT)
    assert code == Exit.USAGE
    assert "2027-01-29 18:00 UTC" in printed


@pytest.mark.parametrize("how", ["lost", "no result", "another file"])
def test_a_job_without_a_result_costs_no_submission_of_the_day(stage: Stage, how: str) -> None:
    def job(engine: str, command: Sequence[str], checkout: Checkout) -> int:
        if how == "lost":
            raise EngineError("the job was lost: NODE_FAIL")
        if how == "another file":
            Path("mine.py").write_text("# speedup 9\n\n\ndef custom_kernel(data):\n    return data\n")
            code, printed = stage.run(shlex.join(["python", "-m", "harness", *command]))
            assert "mine.py is not what waits as entry 1" in printed
            return code
        return 7

    stage.elsewhere = job
    code, _ = stage.run(SUBMIT)
    assert code != Exit.OK
    entry = the_entry(stage)
    assert (entry.state, entry.counts) == ("failed", False)
    assert entry.failure is not None
    assert entry.failure.kind == "not_run"


@pytest.mark.parametrize(
    ("error", "counts"),
    [
        (KeyboardInterrupt(), True),
        (BrokenPipeError(), True),
        (OSError(errno.ENOSPC, "No space left on device"), False),
        (MemoryError(), False),
    ],
)
def test_an_interrupted_one_counts_and_one_that_the_machine_ends_does_not(
    error: BaseException, counts: bool, stage: Stage
) -> None:
    """The progress of an interrupted one was seen."""

    def job(engine: str, command: Sequence[str], checkout: Checkout) -> int:
        raise error

    stage.elsewhere = job
    with pytest.raises(type(error)):
        stage.run(SUBMIT)
    assert (the_entry(stage).state, the_entry(stage).counts) == ("failed", counts)


def test_verify_top_is_a_whole_command(stage: Stage) -> None:
    asked = main.parse(["contest", "verify-top", "class.yaml", "gemm_rs", "--engine", "slurm"])
    assert asked.values.engine == "slurm"
