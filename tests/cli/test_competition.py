"""`competition`: the file, its deadlines, which file is for which problem, and the summary."""

import io
import json
import re
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from factories import entry, report
from rich.console import Console

from harness.board.entries import Board
from harness.board.places import By, place_of
from harness.cli import competition, main
from harness.contest import rules
from harness.contest.rules import Competition, Listed, read
from harness.contest.times import closing, is_late
from harness.core.checkout import ROOT, Checkout
from harness.core.decode import DecodeError
from harness.core.errors import BadFileError, Exit, UsageError
from harness.evaluation import recorded
from harness.evaluation.recorded import Ran
from harness.problems.submission import read_submission
from harness.report.contest import list_document
from harness.report.render import terminal

Harness = Callable[..., subprocess.CompletedProcess[str]]

DISTRIBUTED = """\
name: Developer Challenge
deadline: "2025-10-14"
description: "three problems, eight ranks"
problems:
  - directory: amd_distributed/all2all
    name: amd-all2all
    deadline: "2025-10-15"
    gpus: [MI300x8]
  - directory: amd_distributed/gemm-rs
    name: amd-gemm-rs
    deadline: 2125-10-15 00:00:00
    gpus: [MI300x8]
"""
CORRECT = """#!POPCORN leaderboard {name}
from reference import ref_kernel as custom_kernel
"""
WRONG = """#!POPCORN leaderboard {name}
from reference import ref_kernel


def custom_kernel(data):
    return ref_kernel(data) * 0
"""


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "competition.yaml"
        path.write_text(text)
        return path

    return write


def test_a_competition_is_read_with_its_deadlines(written: Callable[[str], Path]) -> None:
    found = read(written(DISTRIBUTED))
    assert [listed.name for listed in found.problems] == ["amd-all2all", "amd-gemm-rs"]
    assert [found.closes(listed) for listed in found.problems] == [
        datetime(2025, 10, 15, tzinfo=UTC),
        datetime(2125, 10, 15, tzinfo=UTC),  # a date to YAML, since it stands there without quotes
    ]


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-03-15 03:00", datetime(2026, 3, 15, 3, tzinfo=UTC)),
        ("2025-10-15 12:30:15", datetime(2025, 10, 15, 12, 30, 15, tzinfo=UTC)),
        ("2025-10-15", datetime(2025, 10, 15, tzinfo=UTC)),
        ("", None),
        (" ", None),
    ],
)
def test_a_deadline_is_a_moment_in_utc_or_none(text: str, moment: datetime | None) -> None:
    assert closing(text) == moment


def test_a_problem_without_a_deadline_closes_with_the_whole() -> None:
    listed = Listed(directory="a", name="a")
    assert Competition(name="", problems=(listed,), deadline="2030-01-01").closes(listed) == datetime(
        2030, 1, 1, tzinfo=UTC
    )
    assert Competition(name="", problems=(listed,)).closes(listed) is None


def test_late_is_what_began_after_the_deadline() -> None:
    closes = closing("2026-01-01 12:00")
    assert is_late("2026-01-01T12:00:01+00:00", closes)
    assert not is_late("2026-01-01T12:00:00+00:00", closes)
    assert not is_late("2099-01-01T00:00:00+00:00", None)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("name: x\nproblems: []\n", r"\$\.problems: the list is empty"),
        ("name: x\nproblems: [{directory: a, name: b}, {directory: c, name: b}]\n", "'b' appears twice"),
        ("name: x\ndeadline: soon\nproblems: [{directory: a, name: b}]\n", r"\$\.deadline: expected YYYY-MM-DD"),
        (
            "name: x\nproblems: [{directory: a, name: b, deadline: 2025-02-30 1}]\n",
            r"\$\.problems\[0\]\.deadline: expected YYYY-MM-DD",
        ),
        ("name: x\nproblems: [{directory: a}]\n", r"\$\.problems\[0\]: the key 'name' is missing"),
        ("name: x\nproblem: []\n", "did you mean 'problems'"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_with_its_place(
    text: str, told: str, written: Callable[[str], Path]
) -> None:
    with pytest.raises(BadFileError, match=r"^competition\.yaml: .*" + told):
        read(written(text))


def test_an_unreadable_deadline_is_an_error() -> None:
    with pytest.raises(DecodeError, match="'in a week'"):
        closing("in a week")


def test_the_name_of_a_problem_here_goes_before_the_folder_unless_folders_are_asked_for(
    written: Callable[[str], Path],
) -> None:
    file = written(DISTRIBUTED)
    listed = read(file).problems[1]
    assert rules.problem_of(listed, file, folders=False, checkout=Checkout.here()).name == "gemm_rs"
    with pytest.raises(UsageError, match="gemm-rs"):
        rules.problem_of(listed, file, folders=True, checkout=Checkout.here())  # no such folder is beside the file


def test_a_submission_goes_to_the_problem_that_it_names(tmp_path: Path, written: Callable[[str], Path]) -> None:
    chosen = read(written(DISTRIBUTED)).problems

    def submission(name: str, source: str) -> Path:
        path = tmp_path / name
        path.write_text(source)
        return path

    def assigned(*paths: Path) -> dict[str, str]:
        found = competition._assigned([read_submission(path, ROOT) for path in paths], chosen)
        return {name: Path(one.path).name for name, one in found.items()}

    right = submission("right.py", CORRECT.format(name="amd-gemm-rs"))
    assert assigned(right) == {"amd-gemm-rs": "right.py"}
    with pytest.raises(UsageError, match=r"both for amd-gemm-rs"):
        assigned(right, submission("again.py", CORRECT.format(name="amd-gemm-rs")))
    with pytest.raises(UsageError, match=r"'amd-gemm' is not evaluated here; did you mean 'amd-gemm-rs'"):
        assigned(submission("other.py", CORRECT.format(name="amd-gemm")))
    with pytest.raises(UsageError, match=r"for which problem\? Begin it with a line `#!POPCORN leaderboard"):
        assigned(submission("none.py", "def custom_kernel(data): ...\n"))


def test_a_competition_is_evaluated_as_a_whole(harness: Harness, checkout: Path) -> None:
    """One problem's failure does not keep the next from being evaluated; late ones are marked."""
    (checkout / "competition.yaml").write_text(DISTRIBUTED)
    (checkout / "wrong.py").write_text(WRONG.format(name="amd-all2all"))
    (checkout / "right.py").write_text(CORRECT.format(name="amd-gemm-rs"))
    options = ("--suite", "quick", "--ranks", "2", "--seconds", "0.1", "--author", "ada", "--json", "result.json")
    done = harness("competition", "competition.yaml", "wrong.py", "right.py", *options)
    assert done.returncode == Exit.INVALID, done.stderr
    assert done.stdout.splitlines()[-2:][0] == "verdict  1 of 2 problems passed, 1 late"
    assert done.stdout.splitlines()[-1].startswith("speedup  ")
    summary = [" ".join(line.split()) for line in done.stdout.splitlines()[-6:-3]]
    assert summary[1].startswith("amd-all2all wrong.py fail")
    assert summary[1].endswith(" late")
    assert summary[2].startswith("amd-gemm-rs right.py pass")
    assert summary[2].endswith("x 1 of 1")
    result = json.loads((checkout / "result.json").read_text())
    assert [(one["name"], one["late"], one["report"]["status"]) for one in result["problems"]] == [
        ("amd-all2all", True, "fail"),
        ("amd-gemm-rs", False, "pass"),
    ]
    listing = harness("competition", "competition.yaml", "--list").stdout.splitlines()
    assert listing[0] == "Developer Challenge, ends 2025-10-14 00:00 UTC"
    assert (
        " ".join(next(line for line in listing if line.startswith("amd-all2all")).split())
        == "amd-all2all MI300x8 2025-10-15 00:00 closed none"
    )
    assert " ".join(next(line for line in listing if line.startswith("amd-gemm")).split()).startswith(
        "amd-gemm-rs MI300x8 2125-10-15 00:00 in"
    )
    assert re.search(r"in \d+ days [\d.]+x ada, suite quick, \d+ cores? ", " ".join(" ".join(listing[4:]).split()))


def test_a_place_is_told_by_scores_as_the_competition_ranks(
    written: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file with the best speedup and the second score was told to be behind itself, and to settle."""
    run = report()
    own = entry(score_s=0.004, ratio=2.0, ratio_ci=(1.9, 2.1), run_id=run.run_id, sha256=run.submission.sha256)
    board = Board(entries=(own, entry(author="bob", score_s=0.002, ratio=1.6, sha256="b" * 64)))

    def evaluated(*_: object, by: By, **__: object) -> Ran:
        return Ran(report=run, standing=board, place=place_of(board, own, by), unrecorded=None)

    monkeypatch.setattr(recorded, "evaluated", evaluated)
    words = ["competition", str(written(DISTRIBUTED)), "--only", "amd-gemm-rs", "--device", "cpu"]
    assert main.parse(words).carry_out(Checkout.here()) == Exit.OK
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("place "))
    assert line == "place    2 of 2 on the local leaderboard, 2.00x behind the first: 2 ms, bob's submission.py"


def test_only_names_problems_of_the_file(harness: Harness, checkout: Path) -> None:
    (checkout / "competition.yaml").write_text(DISTRIBUTED)
    done = harness("competition", "competition.yaml", "--only", "amd-gemmrs")
    assert done.returncode == Exit.USAGE
    assert "--only amd-gemmrs: no such problem in it; did you mean 'amd-gemm-rs'?" in done.stderr


def test_the_list_has_a_line_for_every_board_of_a_problem(written: Callable[[str], Path]) -> None:
    """Speedups of different machines and suites do not compare: none of them is `best`."""
    board = Board(
        entries=(
            entry(ratio=9.0, author="ada"),
            entry(ratio=2.0, author="bob", suite="official", machine_class="4x NVIDIA H200", device="cuda"),
        )
    )
    competition = read(written(DISTRIBUTED))
    console = Console(file=io.StringIO(), width=160)
    terminal.show(list_document(competition, competition.problems, board, Checkout.here()), console)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "9.00x ada, suite cpu, 2 cores of Example CPU" in text
    assert "2.00x bob, suite official, 4x NVIDIA H200" in text
