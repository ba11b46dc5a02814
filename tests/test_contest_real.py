"""A contest's submission that is evaluated for real, on the command line."""

import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from harness.board import leaderboard
from harness.contest import acts, standings
from harness.core.errors import Exit

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
    done = harness("contest", "submit", "today", "mine.py", "--member", "ada")
    assert done.returncode == Exit.OK, done.stderr
    assert done.stdout.splitlines()[-1] == "entry    1 of team owls: ranked"
    board = leaderboard.load(checkout / "leaderboard.yaml")
    assert [(one.author, one.file) for one in board.entries] == [("owls", "mine.py")]
    (problem,) = standings.full(found.rules, found.log.records(), board, datetime.now(UTC)).problems
    (row,) = problem.teams
    assert (row.team, row.row.place.text, row.entry.state) == ("owls", "1", "ranked")
