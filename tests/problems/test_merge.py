"""Submissions of several files: which files belong to one, what ranks get, and the one file that comes out."""

import ast
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from factories import ordered

from harness.core.checkout import ROOT, Checkout
from harness.core.errors import BadSubmissionError, Exit
from harness.core.records import Submission
from harness.judging.scoring import GPU_MODE, SCORINGS
from harness.kinds.kind import Progress
from harness.kinds.op.kind import OpSession, _staged
from harness.kinds.op.plan import make_plan
from harness.problems import submission
from harness.problems.merge import addressed, merged
from harness.problems.shape_file import find, problem_names
from harness.problems.submission import read_submission

Harness = Callable[..., subprocess.CompletedProcess[str]]

ENTRY = "submissions/p/submission.py"
KERNEL = "def custom_kernel(data):\n    return data\n"


def read(root: Path, files: dict[str, str], entry: str = ENTRY) -> Submission:
    """The submission of a checkout that has these files, and a problem p."""
    staged = {f"reference/p/{name}.py": "" for name in ("task", "reference", "params")}
    for file, source in (staged | {"reference/common/utils.py": ""} | files).items():
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_bytes(source.encode())
    return read_submission(root / entry, root)


def sources(entry: str, /, **modules: str) -> dict[str, str]:
    """`common_heap="..."` is submissions/common/heap.py, `tuning="..."` submissions/p/tuning.py."""
    places = {
        name: name.replace("common_", "common/") if name.startswith("common_") else f"p/{name}" for name in modules
    }
    return {ENTRY: entry} | {f"submissions/{places[name]}.py": source for name, source in modules.items()}


# ---- which files belong to a submission ------------------------------------------------------------------------------


def test_the_modules_of_a_submission_come_with_it_each_behind_those_that_it_imports(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        sources(
            "from common.launch import launch\nfrom tuning import TABLE\n",
            common_launch="import torch\nfrom common.signals import wait\nfrom common.heap import Heap\n",
            common_signals="from common.heap import Heap\n",
            common_heap="class Heap: ...\n",
            common_unused="",
            tuning="from common.heap import Heap\nTABLE = {}\n",
        ),
    )
    assert [module.name for module in found.modules] == ["common.heap", "common.signals", "common.launch", "tuning"]
    assert [module.file for module in found.modules][-2:] == ["submissions/common/launch.py", "submissions/p/tuning.py"]
    assert found.modules[0].source == "class Heap: ...\n"


def test_the_hash_of_one_file_is_that_of_its_bytes_and_of_several_covers_all(tmp_path: Path) -> None:
    alone = read(tmp_path / "alone", sources(KERNEL))
    assert alone.modules == ()
    assert alone.sha256 == hashlib.sha256(KERNEL.encode()).hexdigest()
    entry = "from common.a import x\nfrom b import y\n"
    variants = [
        sources(entry, common_a="x = 1\n", b="y = 1\n"),
        sources(entry, common_a="x = 2\n", b="y = 1\n"),
        sources(entry, common_a="x = 1\n", b="y = 2\n"),
        sources(entry + "\n", common_a="x = 1\n", b="y = 1\n"),
    ]
    hashes = {read(tmp_path / str(index), files).sha256 for index, files in enumerate([*variants, variants[0]])}
    assert len(hashes) == len(variants)


def test_a_file_elsewhere_is_one_file_whatever_it_imports(tmp_path: Path) -> None:
    entry = "import tuning\nfrom common.heap import Heap as H\nfrom . import x\n"
    files = {"mine.py": entry, "tuning.py": "", "submissions/common/heap.py": "class Heap: ...\n"}
    assert read(tmp_path, files, "mine.py").modules == ()


def test_what_the_problem_stages_is_not_the_file_of_that_name_beside_the_submission(tmp_path: Path) -> None:
    entry = "import utils\nfrom reference import ref_kernel as custom_kernel\nfrom task import *\n"
    assert read(tmp_path, sources(entry, reference="x = 1\n", utils="", task="")).modules == ()


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("import common.heap\n", r"submission\.py:1: import common\.heap: a local module is imported only as `from"),
        ("import os, tuning\n", r"import os, tuning: a local module is imported only as"),
        ("from tuning import TABLE as T\n", "without `as` or"),
        ("from common.heap import *\n", r"without `as` or `\*`"),
        ("x = 1\n\nfrom tuning import TABLE\n", r"submission\.py:3: from tuning import TABLE: .* above all other code"),
        ("def f():\n    from tuning import TABLE\n", r"submission\.py:2: .*move it to the top"),
        ("try:\n    from tuning import TABLE\nexcept ImportError:\n    pass\n", "above all other code"),
        ("import importlib\nm = importlib.import_module('tuning')\n", r"submission\.py:2: .*imported only as"),
        ("from common import heap\n", r"ranks have no packages around it; write `from common\."),
        ("from submissions.common.heap import Heap\n", "no packages around it"),
        ("from .tuning import TABLE\n", "no packages around it"),
        ("from . import tuning\n", "no packages around it"),
        ("from tuning.tables import TABLE\n", "no packages around it"),
        ("from common.heep import Heap\n", r"there is no submissions/common/heep\.py; did you mean 'heap'\?"),
        ("from common.zzz import Heap\n", r"there is no submissions/common/zzz\.py \(known: heap, local\)"),
        ("from submission import f\n", r"to a rank `submission` is not the submission\.py here"),
        ("import queue\n", r"submission\.py:1: import queue: to a rank `queue` is not the queue\.py here; rename"),
        ("from common.local import x\n", r"submissions/common/local\.py:2: .*move tuning\.py to submissions/common/"),
        ("from bad import x\n", r"submissions/p/bad\.py:1: "),
        ("from one import x\n", r"submissions/p/two\.py:1: one imports two imports one; move what both need"),
        ("from own import x\n", r"submissions/p/own\.py:1: own imports own"),
    ],
)
def test_any_other_way_to_another_file_is_refused_with_its_place(entry: str, says: str, tmp_path: Path) -> None:
    files = sources(
        entry,
        common_heap="class Heap: ...\n",
        common_local="import queue\nfrom tuning import TABLE\n",
        tuning="TABLE = {}\n",
        queue="",
        bad="x = (\n",
        one="from two import y\nx = 1\n",
        two="from one import x\ny = 1\n",
        own="from own import x\n",
    )
    with pytest.raises(BadSubmissionError, match=says):
        read(tmp_path, files)


def test_a_dynamic_import_of_what_is_not_local_is_nobodys_business(tmp_path: Path) -> None:
    entry = (
        "import importlib\nm = importlib.import_module('.nn', 'torch'), importlib.import_module(name), f(1)('tuning')\n"
    )
    assert read(tmp_path, sources(entry, tuning="")).modules == ()


def test_the_limit_of_size_is_for_all_files_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = sources("from a import x\n", a="x = 1  # é\n")
    monkeypatch.setattr(submission, "MAX_BYTES", 28)
    read(tmp_path, files)
    monkeypatch.setattr(submission, "MAX_BYTES", 27)
    with pytest.raises(BadSubmissionError, match="28 bytes with its modules; a submission has at most 27"):
        read(tmp_path, files)


# ---- what ranks get --------------------------------------------------------------------------------------------------


def test_candidate_ranks_alone_get_the_modules_and_no_installed_package_comes_before_them(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        sources(
            "from common.heap import x\nfrom tuning import y\nprint(x, y)\n", common_heap="x = 1\n", tuning="y = 2\n"
        ),
    )
    (tmp_path / "installed" / "common").mkdir(parents=True)
    for name in ("__init__.py", "heap.py"):
        (tmp_path / "installed" / "common" / name).write_text("x = 'installed'\n")
    problem = find("a2a", Checkout.here())
    plan = make_plan(ordered(problem, problem.suite("quick"), found, "test", "cpu", 2))
    with _staged(plan, OpSession(plan, Progress()).files, None) as launch:
        assert not (launch.workdir("baseline", 0) / "tuning.py").exists()
        assert not (launch.workdir("trusted", 0) / "common").exists()
        for rank in range(2):
            result = subprocess.run(
                [sys.executable, "-c", "import submission"],
                cwd=launch.workdir("candidate", rank),  # first in sys.path, as on a rank
                env={**os.environ, "PYTHONPATH": str(tmp_path / "installed")},
                capture_output=True,
                text=True,
                check=True,
            )
            assert result.stdout == "1 2\n"


def test_a_submission_of_several_files_is_evaluated_and_its_modules_stay_out_of_what_is_recorded(
    harness: Harness, checkout: Path
) -> None:
    (checkout / "submissions/common").mkdir(exist_ok=True)
    (checkout / "submissions/common/shared.py").write_text(
        "from reference import ref_kernel\n\nMARK = 'mark of shared'\n"
    )
    (checkout / "submissions/a2a/beside.py").write_text("MARK_TOO = 'mark of beside'\n")
    (checkout / "submissions/a2a/mine.py").write_text(
        "from beside import MARK_TOO\nfrom common.shared import MARK, ref_kernel\n\n\n"
        "def custom_kernel(data):\n    assert MARK and MARK_TOO\n    return ref_kernel(data)\n"
    )
    few = ("--suite", "quick", "--ranks", "2", "--seconds", "0.05")
    result = harness("eval", "a2a", "submissions/a2a/mine.py", *few, "--json", "out.json")
    assert result.returncode == Exit.OK, result.stdout + result.stderr
    (report,) = (checkout / "runs").glob("*/report.json")
    for file in (checkout / "out.json", checkout / "leaderboard.yaml", report):
        assert "mark of" not in file.read_text()


# ---- the one file ----------------------------------------------------------------------------------------------------

HEAP = '''#!POPCORN leaderboard nothing
"""Memory that all ranks map.

Flags, then data.
"""

from __future__ import annotations

import os
from math import ceil, floor

# loaded before torch
import numpy as np

LINE = 128  # bytes


def lines(nbytes: int) -> int:
    """How many lines that is."""
    return ceil(nbytes / LINE) + floor(np.log2(1)) * len(os.sep)
'''
TUNING = "# Measured.\nTABLE = {1: 2}\n"
MINE = '''#!POPCORN leaderboard amd-p
#!POPCORN gpus MI300
"""The submission."""

import math
from math import ceil, pi

import torch.nn.functional as F
from common.heap import (
    LINE,
    lines,
)
from task import input_t
from tuning import TABLE  # ours


# The kernel.
def custom_kernel(data: input_t) -> object:
    return F, lines(data), ceil(pi), math.e, TABLE[1], LINE
'''
MERGED = '''#!POPCORN leaderboard amd-p
#!POPCORN gpus MI300
"""The submission."""

from __future__ import annotations

import math
import os
from math import ceil, floor, pi

import torch.nn.functional as F
import numpy as np
from task import input_t


# ---- submissions/common/heap.py ----
# Memory that all ranks map.
#
# Flags, then data.
# loaded before torch


LINE = 128  # bytes


def lines(nbytes: int) -> int:
    """How many lines that is."""
    return ceil(nbytes / LINE) + floor(np.log2(1)) * len(os.sep)


# ---- submissions/p/tuning.py ----


# Measured.
TABLE = {1: 2}


# ---- submissions/p/submission.py ----


# The kernel.
def custom_kernel(data: input_t) -> object:
    return F, lines(data), ceil(pi), math.e, TABLE[1], LINE
'''


def test_a_merged_file_is_the_files_one_after_another_below_their_merged_imports(tmp_path: Path) -> None:
    assert merged(read(tmp_path, sources(MINE, common_heap=HEAP, tuning=TUNING))) == MERGED


def test_the_merged_file_of_formatted_files_is_formatted(tmp_path: Path) -> None:
    pytest.importorskip("ruff")
    many = f"from math import {', '.join(f'name_{index}' for index in range(20))}\n"
    files = sources(MINE, common_heap=HEAP.replace("import os\n", f"import os\n{many}"), tuning=TUNING)
    (tmp_path / "merged.py").write_text(merged(read(tmp_path, files)))
    for command in (["format", "--check"], ["check", "--select", "E,F", "--ignore", "F401"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--isolated", "--line-length", "120", "merged.py"]
        result = subprocess.run(ruff, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stdout


def test_a_submission_without_modules_is_its_own_merged_file(tmp_path: Path) -> None:
    source = "'''odd'''; import os\r\n\r\n\r\nfrom math import *\r\n"
    assert merged(read(tmp_path, sources(source))) == source


def test_files_in_one_do_what_they_did_apart(tmp_path: Path) -> None:
    """Other line ends, form feeds, imports below code, names of the same spelling in functions, no docstrings."""
    files = sources(
        "import sys\nfrom tuning import TABLE, grown\nfrom common.heap import Heap, os\n\x0c\n"
        "lines = 7\nimport json\n\n\ndef custom_kernel(data):\n    count = data\n"
        "    return Heap(count).count, grown(2), json.dumps(TABLE), os.sep, lines\n",
        common_heap="import os\r\nimport os.path as path\r\nclass Heap:\r\n    '''a\r\nb'''\r\n    lines = 3\r\n"
        "    def __init__(self, count):\r\n        TABLE = 1\r\n        self.count = count + TABLE + len(path.sep)\r\n",
        tuning="# why\nfrom common.heap import Heap\n_state = 0\nTABLE = {'a': 1}\n"
        "def grown(by):\n    global _state\n    _state += by\n    return _state, Heap.lines\n",
    )
    found = read(tmp_path, files)
    text = merged(found)
    assert text == merged(read_submission(tmp_path / ENTRY, tmp_path))
    imported = [node.module for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
    assert imported == []

    together: dict[str, Any] = {}
    exec(compile(text, "merged.py", "exec"), together)
    apart = subprocess.run(
        [sys.executable, "-c", "import submission as s; print(s.custom_kernel(1), s.custom_kernel(1))"],
        cwd=tmp_path / "submissions" / "p",
        env={**os.environ, "PYTHONPATH": str(tmp_path / "submissions")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert apart.stdout == "{} {}\n".format(*(together["custom_kernel"](1) for _ in range(2)))


@pytest.mark.parametrize(
    ("entry", "heap", "says"),
    [
        ("x = 1\n", "x = 1\n", r"submissions/common/heap\.py:2 and submissions/p/submission\.py:2 both bind `x`"),
        ("def x(): ...\n", "class x: ...\n", "both bind `x`"),
        ("for x in (): ...\n", "if 1:\n    x: int = 1\n", "both bind `x`"),
        ("import math as x\n", "x = 1\n", "both bind `x`"),
        (
            "x = 1\n",
            "def f():\n    global x\n    x = 1\n",
            r"heap\.py:2 and submissions/p/submission\.py:2 both bind `x`",
        ),
        ("from a import x\n", "from b import x\n", "both bind `x`"),
        ("import a as x\n", "from b import a as x\n", "both bind `x`"),
        ("from a import x\nfrom b import x\n", "", r"submission\.py:2 and submissions/p/submission\.py:3 both bind"),
        ("from math import sin\n", "def f():\n    return sin(1)\n", r"heap\.py:2: uses `sin`, which the file neither"),
        (
            "import math\nmax = math.pi\n",
            "def f():\n    return max(1, 2)\n",
            r"uses `max`, .* submissions/p/submission\.py:3; import it",
        ),
        ("from math import *\n", "", r"submission\.py:2: from math import \*: nobody can tell"),
        ("import math; x = 1\n", "", r"submission\.py:2: put `x = 1` on a line of its own"),
        ("def f(a, a): ...\n", "", r"submission\.py:2: Python cannot compile it: duplicate argument"),
    ],
)
def test_what_would_mean_something_else_in_one_file_is_refused(
    entry: str, heap: str, says: str, tmp_path: Path
) -> None:
    files = sources(f"from common.heap import thing\n{entry}", common_heap=f"thing = 1\n{heap}")
    with pytest.raises(BadSubmissionError, match=says):
        merged(read(tmp_path, files))


@pytest.mark.parametrize(
    ("heap", "says"),
    [
        (
            "things = 1\n",
            r"submission\.py:1: submissions/common/heap\.py has no `thing` at its top; did you mean 'things'",
        ),
        ("def thing():\n    other = 1\n\n\ndef f():\n    global thing\n    thing = 1\n", r"heap\.py:5, `global`"),
    ],
)
def test_an_imported_name_has_to_be_there_and_to_stay_as_it_is(heap: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(BadSubmissionError, match=says):
        merged(read(tmp_path, sources("from common.heap import thing\n", common_heap=heap)))


@pytest.mark.parametrize("same", ["import torch.nn", "import torch", "from torch import nn", "import torch.nn as nn"])
def test_one_import_may_stand_in_several_files_in_several_forms(same: str, tmp_path: Path) -> None:
    files = sources(f"from common.heap import y\n{same}\n", common_heap="import torch\nfrom torch import nn\ny = 1\n")
    lines = merged(read(tmp_path, files)).splitlines()
    assert lines.count("import torch") == lines.count("from torch import nn") == lines.count(same) == 1


def test_the_header_names_the_leaderboard_of_the_problem() -> None:
    """As GPU MODE's service reads it: only in the comment that the file begins with, and only once."""
    right = '#!POPCORN gpus MI300\n# mine\n#!POPCORN leaderboard amd-p\n"""doc"""\n'
    assert addressed(right, "amd-p", "s.py") == right
    for source in (KERNEL, "", "#!POPCORN gpus MI300\n", "#\n\n#!POPCORN leaderboard other\n"):
        assert addressed(source, "amd-p", "s.py") == f"#!POPCORN leaderboard amd-p\n{source}"
    with pytest.raises(BadSubmissionError, match=r"s\.py: its header names the leaderboard amd-p, but .* is amd-q"):
        addressed(right, "amd-q", "s.py")
    with pytest.raises(BadSubmissionError, match=r"s\.py:2: a second line `#!POPCORN leaderboard`"):
        addressed("#!POPCORN leaderboard amd-p\n" * 2, "amd-p", "s.py")


# ---- the command -----------------------------------------------------------------------------------------------------


def test_make_writes_the_merged_file_and_says_what_to_do_with_it(checkout: Path) -> None:
    (checkout / "Makefile").write_text((ROOT / "Makefile").read_text())
    mine = checkout / "submissions/a2a/mine.py"
    mine.write_text(KERNEL)

    def make(*variables: str) -> subprocess.CompletedProcess[str]:
        command = [
            "make",
            "--no-print-directory",
            "merge",
            "PROBLEM=a2a",
            f"SUBMISSION={mine}",
            f"PYTHON={sys.executable}",
            *variables,
        ]
        return subprocess.run(command, cwd=checkout, capture_output=True, text=True, timeout=300, check=False)

    result = make()
    assert result.returncode == 0, result.stderr
    assert (checkout / "build/amd-all2all-mine.py").read_text() == f"#!POPCORN leaderboard amd-all2all\n{KERNEL}"
    assert result.stdout.splitlines() == [
        "build/amd-all2all-mine.py: submissions/a2a/mine.py",
        "evaluate it here   make eval PROBLEM=a2a SUBMISSION=build/amd-all2all-mine.py",
        "hand it in         popcorn-cli submit build/amd-all2all-mine.py",
    ]
    assert make("OUT=a b/c.py").returncode == 0
    assert (checkout / "a b/c.py").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["a2a", "submissions/gemm_rs/submission.py"], Exit.INVALID, "but the problem's is amd-all2all"),
        (["a2a", "nowhere.py"], Exit.USAGE, "no submission file"),
        (["a2b"], Exit.USAGE, "did you mean 'a2a'?"),
        (["a2a", "-o", "submissions/a2a/submission.py"], Exit.USAGE, "the merged file is made of this one"),
        (["a2a", "-o", "."], Exit.USAGE, "cannot be written"),
    ],
)
def test_what_cannot_be_merged_is_said(
    arguments: list[str], code: int, says: str, harness: Harness, checkout: Path
) -> None:
    for problem, board in (("a2a", "amd-all2all"), ("gemm_rs", "amd-gemm-rs")):
        (checkout / f"submissions/{problem}/submission.py").write_text(f"#!POPCORN leaderboard {board}\n{KERNEL}")
    result = harness("merge", *arguments)
    assert (result.returncode, result.stdout) == (code, "")
    assert says in result.stderr
    assert not (checkout / "build").exists()


KERNELS = [
    name
    for name in problem_names(Checkout.here())
    if SCORINGS[find(name, Checkout.here()).ranking_by].contest == GPU_MODE
]


EVALUATED = ("a2a", "ag_gemm", "attention")  # always: the longest and most modules, of several ranks and of one


@pytest.mark.parametrize("problem", KERNELS)
def test_the_merged_file_of_a_shipped_submission_imports_none_of_its_modules(problem: str) -> None:
    found = read_submission(ROOT / "submissions" / problem / "submission.py", ROOT)
    tree = ast.parse(merged(found))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert found.modules
    assert not imported & {module.name for module in found.modules}


@pytest.mark.parametrize(
    "problem", [pytest.param(one, marks=[] if one in EVALUATED else pytest.mark.slow) for one in KERNELS]
)
def test_the_merged_file_of_a_shipped_submission_passes_on_its_own(
    problem: str, harness: Harness, tmp_path: Path
) -> None:
    alone = tmp_path / "elsewhere" / "merged.py"
    made = harness("merge", problem, "--out", str(alone))
    assert made.returncode == Exit.OK, made.stderr
    ranks = "2" if find(problem, Checkout.here()).multi_gpu else "1"
    result = harness("check", problem, str(alone), "--suite", "quick", "--ranks", ranks)
    assert result.returncode == Exit.OK, result.stdout + result.stderr


def test_a_long_plain_import_stays_on_its_line(tmp_path: Path) -> None:
    """Only `from x import a, b` can be broken."""
    name = "x" * 120
    (tmp_path / "long.py").write_text(f"import torch as {name}\n\n\ndef custom_kernel(data):\n    return {name}\n")
    assert f"import torch as {name}\n" in merged(read_submission(tmp_path / "long.py", tmp_path))
