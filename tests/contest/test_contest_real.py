"""A contest's submission that is evaluated for real, on the command line."""

import json
import stat
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from harness.board import leaderboard
from harness.contest import acts, standings
from harness.core.errors import Exit
from harness.core.files import lock_of
from harness.process import sandbox

FILE = """\
name: Today
setting: {suite: quick, ranks: 2, device: cpu, seconds: 0.1}
problems: [{directory: gemm_rs, name: gemm_rs}]
"""


def test_a_submission_is_evaluated_recorded_and_placed(
    harness: Callable[..., subprocess.CompletedProcess[str]], checkout: Path
) -> None:
    (checkout / "contests").mkdir()
    (checkout / "contests" / "today.yaml").write_text(FILE)
    (checkout / "mine.py").write_text(
        "#!POPCORN leaderboard gemm_rs\nfrom reference import ref_kernel as custom_kernel\n"
    )
    found = acts.opened(checkout / "contests" / "today.yaml")
    acts.register(found, "owls", ("ada",), datetime.now(UTC), "ada", lambda: "secret")
    done = harness("contest", "submit", "today", "mine.py", "--member", "ada")  # as the owner of the contest's file
    assert done.returncode == Exit.OK, done.stderr
    assert done.stdout.splitlines()[-1] == "entry    1 of team owls: ranked"
    board = leaderboard.load(checkout / "leaderboard.yaml")
    assert [(one.author, one.file) for one in board.entries] == [("owls", "mine.py")]
    (problem,) = standings.full(found.rules, found.log.records(), board, datetime.now(UTC)).problems
    (row,) = problem.teams
    assert (row.team, row.row.place.text, row.entry.state) == ("owls", "1", "ranked")


SPY = """\
from pathlib import Path
from reference import ref_kernel

LOG = Path({log!r})


def custom_kernel(data):
    found = LOG.read_bytes()
    assert not found, found[:100]
    assert LOG.with_name("." + LOG.name + ".lock").stat().st_ino != {lock}, "a lock that can be opened can be held"
    return ref_kernel(data)
"""


@pytest.mark.skipif(not sandbox.has_namespaces(), reason="this system permits no namespaces")
def test_a_log_outside_of_the_checkout_is_empty_to_a_submission(
    harness: Callable[..., subprocess.CompletedProcess[str]], checkout: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The log is there and written while the submission runs, and `eval` hides it as well as `contest submit`. Outside
    the sandbox the same file finds it, which shows that it looks in the right place."""
    outside = tmp_path_factory.mktemp("organisers")
    file = outside / "today.yaml"
    file.write_text(FILE)
    found = acts.opened(file)
    acts.register(found, "owls", ("ada",), datetime.now(UTC), "ada", lambda: "secret")
    log = found.log.path
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    (checkout / "spy.py").write_text(SPY.format(log=str(log), lock=lock_of(log).stat().st_ino))
    submitted = harness("contest", "submit", str(file), "spy.py", "--problem", "gemm_rs", "--member", "ada")
    assert submitted.returncode == Exit.OK, submitted.stdout
    assert json.loads((checkout / ".cache" / "unseen.json").read_text()) == [str(log)]
    assert stat.S_IMODE((checkout / "leaderboard.yaml").stat().st_mode) & stat.S_IRWXO == 0
    asked = ("eval", "gemm_rs", "spy.py", "--suite", "quick", "--ranks", "2", "--mode", "test")
    assert harness(*asked).returncode == Exit.OK
    assert harness(*asked, "--unconfined").returncode == Exit.INVALID
