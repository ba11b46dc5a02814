"""What is said of an evaluation before it runs: whether the CPU stands in for CUDA, and the notes of its report."""

import contextlib

from harness.core.errors import BadSubmissionError
from harness.core.records import Submission, Warning
from harness.gpumode.folder import TaskProblem
from harness.kinds.kind import Setting
from harness.problems.submission import directives


def conditions(setting: Setting, submission: Submission) -> tuple[bool, tuple[Warning, ...]]:
    """Whether the CPU stands in for "cuda" where this submission is evaluated by our ranks, or by a folder's own
    evaluator, and what the report has to say of it all."""
    problem, notes = setting.problem, setting.notes
    if not isinstance(problem, TaskProblem):  # whose names at GPU MODE are not in their folders
        with contextlib.suppress(BadSubmissionError):  # lines that nobody follows hurt nobody
            named = directives(submission.source, submission.name).leaderboard
            if named is not None and not problem.is_named(named):
                notes += (Warning(code="other_problem", values={"named": named, "problem": problem.name}),)
        return False, notes
    if not setting.is_cpu_asked:
        return False, notes
    is_cuda = problem.mentions("cuda", submission.source)
    return is_cuda, (*notes, Warning(code="cuda_is_cpu")) if is_cuda else notes
