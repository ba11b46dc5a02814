"""Write a submission that passes at once: most call the reference. Beside it an AGENTS.md tells an agent
what to write, how it is judged and which commands there are, unless there is one."""

import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from harness.agents.guide import agents_text
from harness.cli import options
from harness.cli.declare import argument
from harness.cli.new import write
from harness.core.checkout import Checkout, shown
from harness.core.errors import Exit, UsageError
from harness.kinds.program.files import BUILD
from harness.kinds.registry import find
from harness.problems.skeleton import submission_text

AGENTS = "AGENTS.md"


@dataclass(frozen=True, kw_only=True)
class NewSubmissionOrder:
    problem: str = options.problem(f"{options.NAMED}, or the path of a problem folder or file", options.WHICH)
    file: Path | None = argument(
        "default: submissions/<problem>/mine.py, or <problem>_mine.py beside a folder that is one submission",
        default=None,
    )


def run(order: NewSubmissionOrder, checkout: Checkout) -> Exit:
    """`new-submission`: writes the file, never over one that is there."""
    problem = find(order.problem, checkout)
    folder = problem.submissions_folder
    is_one = (folder / BUILD).is_file()  # the folder is a submission, of which another file would become a part
    path = str(
        order.file
        or f"submissions/{problem.leaderboard if problem.is_upstream else problem.name}{'_' if is_one else '/'}mine.py"
    )
    if os.path.exists(checkout.root / path):
        raise UsageError(f"{path} is there already; name another file")
    write(checkout, path, submission_text(problem))
    name = shlex.quote(shown(problem.folder)) if problem.is_upstream else problem.name
    beside = Path(path).parent / AGENTS
    text = agents_text(problem, name, shlex.quote(path))
    if not (checkout.root / beside).exists():
        write(checkout, str(beside), text)
    elif not _begins_with(checkout.root / beside, text.partition("\n")[0]):
        print(f"{beside} is there already, and not of this problem: it stays as it is")
    print(f"Next: `python -m harness check {name} {shlex.quote(path)}`")
    return Exit.OK


def _begins_with(path: Path, line: str) -> bool:
    try:
        return path.read_text(errors="replace").startswith(line + "\n")
    except OSError:
        return False
