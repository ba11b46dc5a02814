"""README and docs/ match the code: commands run, tables are complete, links resolve, shown output is this version's."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import copy_checkout

from harness.core.checkout import ROOT, Checkout
from harness.core.errors import Exit
from harness.problems.shape_file import find, problem_names

README = (ROOT / "README.md").read_text()
USAGE = (ROOT / "docs" / "usage.md").read_text()
PAGES = (
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "AGENTS")),
    *sorted((ROOT / "docs").rglob("*.md")),
)


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


RUNS = pytest.mark.xdist_group("readme")  # once, for seconds


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple["subprocess.CompletedProcess[str]", Path]:
    """What the README's first command did, and where: as make would run it, on the smallest suite; the Makefile and its
    variables included."""
    command = blocks("sh")[0].splitlines()[0].partition("#")[0].split()
    assert command == ["make", "eval", "PROBLEM=a2a"]
    root = copy_checkout(tmp_path_factory.mktemp("readme") / "checkout")
    (root / "Makefile").write_text((ROOT / "Makefile").read_text())
    command += ["SUITE=quick", "RANKS=2", "ARGS=--seconds 0.1", "AUTHOR=reader", "JSON=out.json"]
    command += [f"PYTHON={sys.executable}"]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120, check=False), root


@RUNS
def test_the_first_command_of_the_readme_passes(first: tuple["subprocess.CompletedProcess[str]", Path]) -> None:
    result, root = first
    assert result.returncode == 0, result.stderr
    assert (root / "out.json").exists()
    assert "reader" in (root / "leaderboard.yaml").read_text()


def test_the_second_command_is_what_ci_runs() -> None:
    second = blocks("sh")[0].splitlines()[1].partition("#")[0].strip()
    assert second == "make test"
    assert second in (ROOT / ".ci" / "run").read_text()


def test_the_example_submission_passes(
    harness: Callable[..., subprocess.CompletedProcess[str]], checkout: Path
) -> None:
    (example,) = blocks("python")
    (checkout / "my.py").write_text(example)
    assert harness("check", "gemm_rs", "my.py", "--suite", "quick", "--ranks", "2").returncode == 0


@RUNS
def test_the_output_shown_has_every_line_of_a_real_one(
    first: tuple["subprocess.CompletedProcess[str]", Path],
) -> None:
    """Same labels in the same order, so that a change of the output is a change of the README."""
    (shown,) = blocks("text")
    printed = first[0].stdout
    label = re.compile(r"^(shape|geometric mean|tests|benchmarks|verdicts|score|roofline|clock|machine|run|verdict"
                       r"|speedup|place)\b", re.MULTILINE)  # fmt: skip
    assert label.findall(shown) == label.findall(printed)


def test_the_tables_of_problems_and_exit_codes_are_complete() -> None:
    for name in problem_names(Checkout.here()):
        assert f"| `{name}` | {find(name, Checkout.here()).leaderboard} |" in README
    assert sorted(int(code) for code in re.findall(r"^\| (\d+) \|", USAGE, re.MULTILINE)) == sorted(map(int, Exit))


def test_the_table_of_verbs_is_complete(harness: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    listed = re.findall(r"^    ([a-z-]+)\b", harness("--help").stdout, re.MULTILINE)
    assert "eval" in listed
    table, _, _ = USAGE.partition("\n## ")
    assert sorted(re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE)) == sorted(listed)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_links_to_is_there(page: Path) -> None:
    """Files, and headings in them by GitHub's anchors."""
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if not target.startswith("https://"):
            file, _, anchor = target.partition("#")
            linked = page.parent / file if file else page
            assert linked.exists(), target
            assert not anchor or anchor in anchors(linked.read_text()), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_files_of_the_harness_that_a_page_names_are_there(page: Path) -> None:
    """But those that it shows, as examples, in a block below their name."""
    named = re.findall(r"`((?:harness|tests|bench)/[\w/.-]+\.py)`(?!:\n)", page.read_text())
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_table_of_packages_is_complete() -> None:
    table = (ROOT / "docs" / "architecture.md").read_text().partition("| package of harness/ |")[2].partition("\n\n")[0]
    listed = [name for row in re.findall(r"^\| ([a-z; ]+) \|", table, re.MULTILINE) for name in row.split("; ")]
    assert sorted(listed) == sorted(path.parent.name for path in (ROOT / "harness").glob("*/__init__.py"))


def test_pre_commit_runs_what_make_lint_runs() -> None:
    hooks = re.findall(r"entry: make (\w+)", (ROOT / ".pre-commit-config.yaml").read_text())
    assert f"\nlint: {' '.join(hooks)}\n" in (ROOT / "Makefile").read_text()


def anchors(text: str) -> list[str]:
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_line_but_a_table_is_wider_than_the_code(page: Path) -> None:
    if page.name != "measurements.md":  # made of data files
        for number, line in enumerate(page.read_text().splitlines(), 1):
            assert len(line) <= 120 or line.startswith("|"), number


def test_no_document_has_a_place_that_was_never_filled_in() -> None:
    for path in (ROOT / "CHANGELOG.md", *PAGES):
        assert re.findall(r"@(?!SUBMISSION@)[A-Z]+@", path.read_text()) == [], path.name
