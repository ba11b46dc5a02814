"""A problem folder is found by the names that hints and boards have for it, once its path was named."""

import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from places import FOLDERS, SINGLE

from harness.cli.main import main
from harness.core.checkout import Checkout
from harness.core.errors import UsageError
from harness.kinds.folder.known import recalled, remember
from harness.kinds.registry import find, named
from harness.problems.skeleton import submission_text

CALLS = "from reference import ref_kernel as custom_kernel\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """One without problems of its own."""
    (tmp_path / "shapes").mkdir()
    return Checkout(tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of `single/scale`, as a set of its own. The checkout remembers its name for all tests that run at a time,
    so that no other has it."""
    place = tmp_path / "at_home" / f"my_set_{time.time_ns()}"
    shutil.copytree(SINGLE, place)
    return place / "scale"


def exit_code(*words: str) -> object:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    return ended.value.code


def test_a_folder_is_found_by_its_board_name_and_its_leaderboard_name(folder: Path, checkout: Checkout) -> None:
    full = f"{folder.parent.name}/scale"
    for name in (full, "scale"):
        with pytest.raises(UsageError):
            find(name, checkout)
    find(str(folder), checkout)
    for name in (full, "scale", full.title().replace("_", "-")):
        assert find(name, checkout).folder == folder


def test_commands_at_the_same_time_forget_nothing_of_each_other(checkout: Checkout) -> None:
    """As happened to the hint of `merge`: another command wrote what it had read before that."""
    names = [f"folder_{number}" for number in range(24)]
    with ThreadPoolExecutor(8) as commands:
        list(commands.map(lambda name: remember({name: FOLDERS}, checkout), names))
    assert [recalled(name, checkout) for name in names] == [FOLDERS] * len(names)


def test_a_folder_that_is_gone_is_not_found(folder: Path, checkout: Checkout) -> None:
    find(str(folder), checkout)
    shutil.rmtree(folder)
    with pytest.raises(UsageError, match="no problem 'scale'"):
        find("scale", checkout)
    remember({"other": FOLDERS}, checkout)
    assert recalled("scale", checkout) is None
    assert recalled("other", checkout) == FOLDERS


def test_a_checkouts_problem_comes_before_a_folder_of_its_name(folder: Path) -> None:
    other = find(str(folder), Checkout.here())
    assert named("amd-all2all", Checkout.here(), other).name == "a2a"


def test_a_spoilt_memory_is_no_memory(checkout: Checkout) -> None:
    checkout.cache.mkdir()
    (checkout.cache / "folders.json").write_text("[")
    assert recalled("scale", checkout) is None


@pytest.mark.parametrize("place", ["submission.py", "solutions/correct/mine.py"])
def test_a_file_in_a_folder_is_for_that_folder(place: str, folder: Path) -> None:
    """Also if its `#!POPCORN` line has the leaderboard's own name."""
    file = folder / place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!POPCORN leaderboard scale_v2\n{CALLS}")
    assert exit_code("check", str(file), "--device", "cpu", "--quiet") == 0


def test_names_of_a_competition_are_known_once_its_file_was_read(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    yaml, name = folder.parent.parent / "set.yaml", f"scale_{time.time_ns()}"
    place = f"{folder.parent.name}/scale"
    yaml.write_text(f"name: S\nproblems: [{{directory: {place}, name: {name}, deadline: 2030-01-01, gpus: [L4]}}]\n")
    file = yaml.parent / "mine.py"
    file.write_text(f"#!POPCORN leaderboard {name}\n{CALLS}")
    assert exit_code("check", str(file), "--device", "cpu", "--quiet") == 2
    assert exit_code("competition", str(yaml), "--list") == 0
    assert exit_code("check", str(file), "--device", "cpu", "--quiet") == 0


def test_the_hint_of_merge_can_be_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(folder / "merged.py")
    assert exit_code("merge", str(folder), str(folder / "template.py"), "-o", out) == 0
    [hint] = [line for line in capsys.readouterr().out.splitlines() if "make eval" in line]
    problem, file = (word.partition("=")[2] for word in hint.split()[-2:])
    assert exit_code("check", problem, file, "--device", "cpu", "--quiet") == 0


@pytest.mark.parametrize("has_types", [True, False])
def test_a_new_submission_for_a_folder_calls_its_reference(has_types: bool, folder: Path, tmp_path: Path) -> None:
    if not has_types:
        reference = (folder / "reference.py").read_text()
        (folder / "task.py").write_text("")
        plain = reference.replace("from task import input_t, output_t", "input_t = output_t = object")
        (folder / "reference.py").write_text(plain)
    text = submission_text(find(str(folder), Checkout.here()))
    assert "from reference import ref_kernel" in text
    assert ("from task import" in text) == has_types
    (tmp_path / "mine.py").write_text(text)
    assert exit_code("check", str(folder), str(tmp_path / "mine.py"), "--device", "cpu", "--quiet") == 0
