"""The first files of a new problem, and of a new submission for one.

A new problem begins as the complete example of docs/problems.md under another name, so that there is one such example,
which tests evaluate. Writes nothing.
"""

import re

from harness.core.checkout import Checkout, shown
from harness.core.errors import BadFileError, UsageError, os_error_as
from harness.core.files import read_text
from harness.problems.problem import Problem

PAGE = "docs/problems.md"
EXAMPLE = "ar_norm"
NAME = re.compile(r"[a-z][a-z0-9_]{0,40}")
SHARED = "common"  # the folder beside the problems' own, in reference/ and in submissions/, of what they share
START = "start.txt"  # in a problem's folder; not .py, which would be staged and be part of the problem's version
CALLED = "def ref_kernel("
SHOWN = re.compile(r"^`([\w/.]+)`:\n\n```\w+\n(.*?)^```", re.DOTALL | re.MULTILINE)  # a file of the page
SUBMISSION = '''\
#!POPCORN leaderboard {leaderboard}
"""A submission for {name}: {description}

`data` is what generate_input in {reference} returns for this rank; the result must be what ref_kernel returns there.
torch.distributed is initialised before the first call.
"""

from reference import ref_kernel
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    return ref_kernel(data)  # start here, then make it fast
'''


def problem_files(name: str, checkout: Checkout) -> dict[str, str]:
    """The texts of the example's files by their paths in the checkout, for a problem of that name.

    Raises UsageError for a name that no problem may have, BadFileError where the page has no such example.
    """
    if not NAME.fullmatch(name):
        raise UsageError(
            f"'{name}': a problem's name is lower-case letters, digits and _, at most 41, and begins with a letter"
        )
    if name == SHARED:
        raise UsageError(f"'{name}' is the folder of what problems share; choose another name")
    page = checkout.root / PAGE
    with os_error_as(BadFileError, f"{PAGE}: cannot be read", f"`git checkout {PAGE}`"):
        shown = dict(SHOWN.findall(read_text(page)))
    files = {path: text for path, text in shown.items() if re.search(rf"(^|/){EXAMPLE}(/|\.yaml$)", path)}
    if len(files) < 5:
        raise BadFileError(f"{PAGE}: its example {EXAMPLE} is not complete; `git checkout {PAGE}`")
    own = {path.replace(EXAMPLE, name): text.replace(EXAMPLE, name) for path, text in files.items()}
    dashed = EXAMPLE.replace("_", "-"), name.replace("_", "-")
    return {path: text.replace(*dashed) for path, text in own.items()}


def submission_text(problem: Problem) -> str:
    """A submission that is right: the problem's own START, a call of ref_kernel, or the reference's training program.
    Raises BadFileError where the problem has none of them."""
    if text := problem.start():
        return text
    reference = problem.folder / "reference.py"
    own, program = problem.folder / START, problem.folder / "train.py"
    staged = {name: data.decode(errors="replace") for name, data in problem.staged().items()}
    if not own.is_file() and CALLED in staged.get("reference.py", ""):
        text = SUBMISSION.format(
            leaderboard=problem.leaderboard,
            name=problem.name,
            description=" ".join(problem.description.split()).rstrip(".").replace('"""', "''") + ".",
            reference="the folder's reference.py" if problem.is_upstream else shown(reference, problem.root),
        )
        if problem.is_upstream:  # whose leaderboard has a name of its own
            text = text.partition("\n")[2]
        if "input_t" not in staged.get("task.py", ""):
            text = text.replace("from task import input_t, output_t\n", "")
            text = text.replace("data: input_t) -> output_t", "data)")
        return text
    found = next((path for path in (own, program) if path.is_file()), None)
    if found is None:
        raise BadFileError(
            f"{shown(own, problem.root)}: no such file; write the text of a first submission there: "
            f"{shown(reference, problem.root)} has no ref_kernel that one could call"
        )
    return f"#!POPCORN leaderboard {problem.leaderboard}\n{read_text(found)}"
