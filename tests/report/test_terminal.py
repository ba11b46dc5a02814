"""What scripts and odd terminals get: three lines, JSON alone, plain text in pipes; names and widths of any kind."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from conftest import COMMAND
from factories import report
from recorded import entry_for, run, store

from harness.board import leaderboard
from harness.core.checkout import ROOT
from harness.core.decode import encode

NAME = "submissions/gemm_rs/" + "提出" * 40 + ".py"
HARNESS = [*COMMAND, "harness"]


def harness(checkout: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command as a script calls it, with these variables set; text that is not UTF-8 is shown by its code."""
    return subprocess.run(
        [*HARNESS, *arguments],
        cwd=checkout,
        env={**os.environ, "COLUMNS": "80", **environment},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )


SEVERAL = """
import json, sys
from harness.cli.main import main
for arguments in json.loads(sys.argv[1]):
    try:
        main(arguments)
    except SystemExit as done:
        print("\\0", done.code, "\\0", sep="", flush=True)
"""


def several(checkout: Path, *verbs: Sequence[str], **environment: str) -> list[str]:
    """What each of these verbs prints, in one process, since starting it takes longest. None of them fails."""
    done = subprocess.run(
        [sys.executable, "-c", SEVERAL, json.dumps(verbs)],
        cwd=checkout,
        env={**os.environ, "COLUMNS": "80", **environment},
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    assert done.stderr == ""
    *printed, rest = done.stdout.split("\0\n")
    texts, codes = zip(*(text.split("\0") for text in printed), strict=True)
    assert (set(codes), len(codes), rest) == ({"0"}, len(verbs), "")
    return list(texts)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with a run of a long name in another script, on the board and in runs/, and a slower one."""
    root = tmp_path_factory.mktemp("recorded") / "checkout"
    shutil.copytree(ROOT / "harness", root / "harness", ignore=shutil.ignore_patterns("__pycache__"))
    for part in ("reference", "shapes", "submissions"):
        (root / part).symlink_to(ROOT / part)
    found = run(3, submission=replace(report().submission, name=NAME), author="提出者")
    store(root, found)
    store(root, run(4, 1.5))
    values = {"schema": 1, "entries": [encode(entry_for(found))]}
    (root / "leaderboard.yaml").write_text(yaml.safe_dump(values, allow_unicode=True), encoding="utf-8")
    assert leaderboard.load(root / "leaderboard.yaml").entries
    return root


ZEROS = "def custom_kernel(data):\n    return data[1].x * 0\n"


def test_quiet_prints_three_lines_and_nothing_else(checkout: Path) -> None:
    (checkout / "zeros.py").write_text(ZEROS)
    done = harness(checkout, "check", "a2a", "zeros.py", "--ranks", "2", "--quiet")
    assert (done.returncode, done.stderr) == (112, "")
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["verdict", "speedup", "place"]
    assert done.stdout.startswith("verdict  fail: wrong in test E ")


def test_quiet_still_says_what_cannot_be_done(checkout: Path) -> None:
    done = harness(checkout, "check", "a2a", "nowhere.py", "-q")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: no submission file nowhere.py; ")
    done = harness(checkout, "check", "a2a", "x" * 5000 + ".py", "-q")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: no submission file xxx")


def test_json_to_standard_output_is_alone_there(checkout: Path) -> None:
    done = harness(checkout, "check", "a2a", "--ranks", "2", "--json", "-")
    found = json.loads(done.stdout)
    assert (done.returncode, found["status"], found["exit_code"]) == (0, "pass", 0)
    assert "s] test, about " in done.stderr, "progress, a line a phase and case"
    assert done.stderr.replace("\n", "").isprintable(), "no control characters in a log"
    assert not (checkout / "-").exists()


def test_json_of_what_cannot_be_done_is_on_standard_output_and_the_error_is_not(checkout: Path) -> None:
    done = harness(checkout, "check", "a2b", "--json", "-")
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"] in done.stderr


def test_a_comparison_is_quiet_or_json_alone(recorded: Path) -> None:
    both = ("compare", run(3).run_id, run(4).run_id)
    quiet, as_json = several(recorded, (*both, "--quiet"), (*both, "--json", "-"))
    assert len(quiet.splitlines()) == 1
    assert quiet.startswith("summary  B is SLOWER")
    assert json.loads(as_json)["comparisons"][0]["summary"]["word"] == "SLOWER"


VERBS = (("board",), ("history",), ("problems",), ("roofline", "gemm_rs", "--hardware", "mi300x"))


def test_narrow_terminals_and_encodings_without_the_names_are_no_error(recorded: Path) -> None:
    printed = several(recorded, *VERBS, COLUMNS="40", PYTHONIOENCODING="ascii")
    assert all(text.isascii() and text.strip() for text in printed)
    assert "\\u63d0\\u51fa\\u8005" in printed[1], "a name that the encoding lacks is shown by its codes"


def test_history_for_programs_has_every_run(recorded: Path) -> None:
    verbs = (("history",), ("history", "--author", "提出者", "--format", "json"))
    text, as_json = several(recorded, *verbs, PYTHONIOENCODING="utf-8")
    assert "提出者" in text
    (line,) = json.loads(as_json)
    assert (line["author"], line["file"]) == ("提出者", NAME)
    assert [one["run_id"] for one in line["runs"]] == [run(3).run_id]


@pytest.mark.parametrize("verb", [("history",), ("board", "--format", "json")], ids=lambda verb: verb[0])
def test_a_reader_that_goes_away_is_no_traceback(verb: tuple[str, ...], recorded: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as gone:
        done = subprocess.run(
            [*HARNESS, *verb], cwd=recorded, stdout=gone, stderr=subprocess.PIPE, text=True, timeout=300, check=False
        )
    assert (done.returncode, done.stderr) == (1, "")
