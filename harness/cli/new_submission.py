"""The verb `new-submission`: a submission that is right, to begin with."""

import argparse
import shlex
from pathlib import Path

from harness.agents.guide import agents_text
from harness.cli import options
from harness.cli.new import write
from harness.core.checkout import Checkout, shown
from harness.core.errors import Exit, UsageError
from harness.kinds.program.files import BUILD
from harness.kinds.registry import find
from harness.problems.skeleton import submission_text

DESCRIPTION = """Write a submission that passes at once: most call the reference. Beside it an AGENTS.md tells an agent
what to write, how it is judged and which commands there are, unless there is one."""
AGENTS = "AGENTS.md"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb `new-submission`."""
    options.add_problem(parser, "its name (see `problems`), or GPU MODE's name for it")
    parser.add_argument(
        "file",
        nargs="?",
        metavar="FILE",
        help="default: submissions/<problem>/mine.py, or <problem>_mine.py beside a folder that is one submission",
    )


def run(namespace: argparse.Namespace, checkout: Checkout) -> Exit:
    """`new-submission`: writes the file, never over one that is there."""
    asked = options.asked(namespace)
    problem = find(asked.problem, checkout)
    folder = problem.submissions_folder
    is_one = (folder / BUILD).is_file()  # the folder is a submission, of which another file would become a part
    path = str(
        asked.file
        or f"submissions/{problem.leaderboard if problem.is_upstream else problem.name}{'_' if is_one else '/'}mine.py"
    )
    if (checkout.root / path).exists():
        raise UsageError(f"{path} is there already; name another file")
    write(checkout, path, submission_text(problem))
    name = shlex.quote(shown(problem.folder)) if problem.is_upstream else problem.name
    beside = Path(path).parent / AGENTS
    if not (checkout.root / beside).exists():
        write(checkout, str(beside), agents_text(problem, name, shlex.quote(path)))
    print(f"Next: `python -m harness check {name} {path}`")
    return Exit.OK
