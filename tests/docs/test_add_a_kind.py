"""docs/problems.md, "Add a kind", followed: its wing and its two lines are added to a copy of the checkout."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness.core.checkout import ROOT

SECTION = (ROOT / "docs" / "problems.md").read_text().partition("\n## Add a kind\n")[2].partition("\n## ")[0]
FILES = re.findall(r"^`([\w/.]+)`:\n\n```py\n(.*?)^```", SECTION, re.DOTALL | re.MULTILINE)
KIND_LINE, CHECKER_LINE = re.findall(r"^```text\n(    \"\w+\": \w+\(.*?\),\n)```", SECTION, re.DOTALL | re.MULTILINE)
SHAPES = """\
problem: fruit
leaderboard: fruit
multi_gpu: false
kind: text
checker: words
device: cpu
ranking_by: relative
submission_file: submission.txt
description: a text that names all fruit
test_timeout: 10
benchmark_timeout: 10
ranked_timeout: 10
tests:
  - {words: "plum peach", seed: 1}
benchmarks:
  - {words: "plum peach apple", seed: 2}
"""
PARAMS = """\
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Params:
    words: str

    def check_world_size(self, world_size: int) -> None:
        pass
"""


def replaced(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert text.count(old) == 1, (file, old)
    file.unlink()  # a link
    file.write_text(text.replace(old, new))


@pytest.fixture
def added(checkout: Path) -> Path:
    """A checkout that has the kind, and a problem of it."""
    files = {
        **dict(FILES),
        "shapes/fruit.yaml": SHAPES,
        "reference/fruit/params.py": PARAMS,
        "reference/fruit/task.py": "",
        "reference/fruit/reference.py": "",
        "submissions/fruit/submission.txt": "plumpeachapple\n",
    }
    for name, text in files.items():
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text(text)
    kinds = checkout / "harness" / "kinds"
    replaced(kinds / "registry.py", "KINDS: dict[str, Kind] = {\n", f"KINDS: dict[str, Kind] = {{\n{KIND_LINE}")
    replaced(kinds / "registry.py", "\n\nKINDS", "\nfrom harness.kinds.text.kind import TextKind\n\nKINDS")
    replaced(kinds / "checkers.py", "CHECKERS = {\n", f"CHECKERS = {{\n{CHECKER_LINE}")
    return checkout


def test_a_wing_and_two_lines_are_a_kind(added: Path) -> None:
    def harness(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "harness", *arguments]
        return subprocess.run(command, cwd=added, capture_output=True, text=True, timeout=120, check=False)

    assert sorted(name for name, _ in FILES) == ["harness/kinds/text/__init__.py", "harness/kinds/text/kind.py"]
    done = harness("eval", "fruit", "--json", "out.json", "--author", "ada")
    assert done.returncode == 0, done.stdout + done.stderr
    last = json.loads((added / "out.json").read_text())["cases"][-1]
    assert last["figures"]["value"] == 14.0
    assert last["figures"]["ratio"]["value"] == pytest.approx(16 / 14)

    short = added / "mine.txt"
    short.write_text("plumpeachapple"[:9])
    done = harness("eval", "fruit", str(short), "--no-record")
    assert done.returncode == 112
    assert "the word 'apple' is missing" in done.stdout

    done = harness("board", "fruit", "--json", "-")
    assert '"author": "ada"' in done.stdout
    done = harness("verify", "submission.txt", "--problem", "fruit")
    assert done.returncode == 0, done.stdout + done.stderr
    done = harness("page", "--out", "board.html")
    assert done.returncode == 0, done.stderr
    assert "fruit" in (added / "board.html").read_text()
