"""Writes a problem of the checkout as a KernelBot problem folder: task.yml, the files that it names, a template.

The folder's eval.py starts `python -m harness.popcorn`, so whoever runs the folder needs this checkout. task.yml is
among its own files, because KernelBot's runner tells an evaluator nothing of the timeouts, which harness.popcorn reads
there.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from harness.core.decode import encode
from harness.core.errors import UsageError
from harness.core.records import Case
from harness.gpumode.folder import FILE, SUBMISSION
from harness.judging.scoring import GPU_MODE, SCORINGS
from harness.problems.problem import Problem, Suite
from harness.problems.skeleton import submission_text

EVAL, TEMPLATE = "eval.py", "template.py"
LINE_CHARS = 1000  # no case is folded
EVAL_TEXT = '''\
"""Evaluates the submission beside this file with kernel-eval (python -m harness.popcorn), as KernelBot's eval.py would.

KERNEL_EVAL is the checkout and KERNEL_EVAL_PYTHON the interpreter that runs it, where they are not those that wrote
this file.
"""

import os
import sys

CHECKOUT = os.environ.get("KERNEL_EVAL", {root!r})
PYTHON = os.environ.get("KERNEL_EVAL_PYTHON", {python!r})

os.environ["PYTHONPATH"] = CHECKOUT
os.execv(PYTHON, [PYTHON, "-P", "-m", "harness.popcorn", *sys.argv[1:]])
'''


def unfit(problem: Problem) -> str:
    """Why KernelBot has no place for the problem; empty if it has."""
    contest = SCORINGS[problem.ranking_by].contest
    if contest != GPU_MODE:
        return f"it is ranked as {contest} ranks ({problem.ranking_by}), and its submissions are no custom_kernel"
    return ""


def task_of(problem: Problem, suite: Suite) -> dict[str, Any]:
    """The task as KernelBot keeps it: task.yml's keys, with the texts of the files by their names. `suite` has the
    cases. Raises UsageError for a problem that cannot be such a task."""
    if why := unfit(problem):
        raise UsageError(f"{problem.name}: {why}")
    task = {
        "lang": problem.lang,
        "config": problem.config,
        "libraries": list(problem.libraries),
        **_common(problem, suite),
    }
    if (own := problem.own_task(suite)) is not None:
        return task | own
    staged = {name: data.decode() for name, data in problem.staged().items()}
    files = problem.staged_submission(SUBMISSION)
    texts = {name: data.decode() for name, data in files.items()} | staged
    texts[EVAL] = EVAL_TEXT.format(root=str(problem.root), python=sys.executable)
    return task | {"files": texts | {FILE: _task_yml(problem, suite, [*texts, FILE])}}


def files_of(problem: Problem, suite: Suite) -> dict[str, str]:
    """The folder's files by their names. Raises what `task_of` does, and UsageError for a folder."""
    if problem.is_upstream:
        raise UsageError(f"{problem.name}: it is a KernelBot problem folder already; copy it")
    texts: dict[str, str] = task_of(problem, suite)["files"]
    return {name: text for name, text in texts.items() if text != SUBMISSION} | {TEMPLATE: submission_text(problem)}


def write(folder: Path, files: dict[str, str]) -> None:
    """Writes the files into a new folder, or one that is empty. Raises UsageError where that cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if next(folder.iterdir(), None) is not None:
            raise UsageError(f"{folder}: not empty; name a new folder")
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{error.filename or folder}: cannot be written: {error.strerror}") from None


def _common(problem: Problem, suite: Suite) -> dict[str, Any]:
    """The keys of task.yml that name no file."""
    return {
        "tests": _cases(problem, suite.tests),
        "benchmarks": _cases(problem, suite.benchmarks),
        "test_timeout": _seconds(suite.test_timeout_s),
        "benchmark_timeout": _seconds(suite.benchmark_timeout_s),
        "ranked_timeout": _seconds(suite.ranked_timeout_s),
        "ranking_by": problem.ranking_by,
        "seed": None,
        "multi_gpu": problem.multi_gpu,
    }


def _task_yml(problem: Problem, suite: Suite, names: Sequence[str]) -> str:
    submitted = problem.staged_submission("")
    content = {
        "files": [{"name": name, "source": SUBMISSION if name in submitted else name} for name in names],
        "lang": problem.lang,
        "description": problem.description,
        "config": {"main": EVAL},
        "templates": {"Python": TEMPLATE},
        **_common(problem, suite),
        "gpus": list(problem.gpus),
    }
    return yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=LINE_CHARS)


def _cases(problem: Problem, cases: Sequence[Case]) -> list[dict[str, Any]]:
    return [
        ({"world_size": case.world_size} if problem.multi_gpu else {}) | encode(case.params) | {"seed": case.seed}
        for case in cases
    ]


def _seconds(limit_s: float) -> float:
    """A whole number where it is one, as KernelBot writes them."""
    return int(limit_s) if limit_s == int(limit_s) else limit_s
