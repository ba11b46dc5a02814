"""What our reader of task.yml takes and refuses, beside what KernelBot's takes and refuses."""

import copy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from places import DATA

from harness.core.checkout import Checkout
from harness.core.errors import BadFileError
from harness.gpumode.folder import read
from harness.gpumode.task_folder import task_of

STORED = yaml.safe_load((DATA / "kernelbot_tasks.yaml").read_text())
TASK: dict[str, Any] = {
    "files": [{"name": "submission.py", "source": "@SUBMISSION@"}, {"name": "eval.py", "source": "eval.py"}],
    "lang": "py",
    "description": "Copies.",
    "config": {"main": "eval.py"},
    "tests": [{"size": 1, "seed": 1}],
    "benchmarks": [{"size": 1, "seed": 1}],
}
OURS = {"t": True, "r": False, "d": False}
THEIRS = {"t": True, "r": False, "d": True}
LISTS = {"both take": "t", "both refuse": "r", "only theirs takes": "d"}


def variants() -> Iterator[tuple[str, dict[str, Any], str]]:
    """A name, the content of task.yml, and the letter that says what becomes of it."""
    for key, letters in STORED["keys"].items():
        for value, letter in zip(STORED["values"], letters.split(), strict=True):
            task = {name: item for name, item in TASK.items() if name != key}
            yield f"{key}={value!r}", task if value == "absent" else task | {key: value}, letter
    for heading, letter in LISTS.items():
        for change in STORED[heading]:
            changes = {key: item for key, item in change.items() if key != "why"}
            yield str(changes), TASK | changes, letter


VARIANTS = list(variants())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with all files that the variants name, but those called missing."""
    for name in ("eval.py", "template.py", "validate.py"):
        (tmp_path / name).write_text("pass\n")
    (tmp_path / "empty.py").write_text("")
    return tmp_path


def written(folder: Path, task: Mapping[str, Any]) -> Path:
    (folder / "task.yml").write_text(yaml.safe_dump(copy.deepcopy(dict(task)), sort_keys=False))
    return folder


@pytest.mark.parametrize(("name", "task", "letter"), VARIANTS, ids=[name for name, _, _ in VARIANTS])
def test_our_reader_takes_what_the_list_says(name: str, task: dict[str, Any], letter: str, folder: Path) -> None:
    """A refusal names the file and the place of what is wrong."""
    written(folder, task)
    if OURS[letter]:
        assert read(folder, Checkout.here()).task is not None
    else:
        with pytest.raises(BadFileError, match=r"task\.yml: \$"):
            read(folder, Checkout.here())


def test_their_loader_takes_what_the_list_says(folder: Path) -> None:
    """Runs where their package is on Python's path (PYTHONPATH=kernelbot/src)."""
    theirs = pytest.importorskip("libkernelbot.task", reason="needs gpu-mode/kernelbot's src on PYTHONPATH")

    def takes(task: Mapping[str, Any]) -> bool:
        try:
            theirs.make_task_definition(written(folder, task))
        except Exception:
            return False
        return True

    assert [name for name, task, letter in VARIANTS if takes(task) != THEIRS[letter]] == []
    for name, task, letter in VARIANTS:
        if OURS[letter]:  # both read the same
            found = theirs.make_task_definition(written(folder, task)).task.to_dict()
            problem = read(folder, Checkout.here())
            own = task_of(problem, problem.suite("official"))
            assert found == own | {key: None for key, value in found.items() if value is None}, name


def test_values_of_cases_arrive_as_they_stand(folder: Path) -> None:
    """Lists are tuples, texts and null stay what they are, seeds are as large as torch's."""
    case = {"how": ["fp8", 0.5, None, 2], "size": None, "seed": 2**64 - 1}
    found = read(written(folder, TASK | {"tests": [case]}), Checkout.here()).suite("official").tests[0]
    assert found.params == {"how": ("fp8", 0.5, None, 2), "size": None}
    assert found.seed == 2**64 - 1
    assert found.label == "how [fp8,0.5,none,2]  size none"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-8"])
def test_a_reference_with_a_byte_order_mark_is_read_as_python_reads_it(folder: Path, encoding: str) -> None:
    written(folder, TASK | {"files": [*TASK["files"], {"name": "reference.py", "source": "reference.py"}]})
    (folder / "reference.py").write_text("def ref_kernel(data): ...\n", encoding=encoding)
    assert read(folder, Checkout.here()).missing == ("generate_input", "check_implementation")


def test_a_task_that_is_not_utf8_says_where_and_what_to_do(folder: Path) -> None:
    written(folder, TASK)
    (folder / "task.yml").write_bytes(b"lang: \xe9\n")
    with pytest.raises(BadFileError, match=r"task\.yml: not UTF-8 at byte 6; save it as UTF-8"):
        read(folder, Checkout.here())
