"""Write a submission and its local modules as one file that GPU MODE takes and that runs without this
checkout. Where GPU MODE's service would refuse the file (names of GPUs, imports, the word that it looks for), the
merged file is rewritten with the same meaning, and what was changed is printed. Exits with 112 where the file would be
refused all the same; `check --for gpumode` says why of any file."""

import shlex
from dataclasses import dataclass
from pathlib import Path

from harness.cli import options
from harness.cli.check import finding_lines
from harness.core.checkout import Checkout
from harness.core.errors import Exit, UsageError
from harness.gpumode.front_door import check_taken, findings, rewritten
from harness.kinds import settings
from harness.problems.merge import addressed, merged
from harness.problems.submission import read_submission, shown_path


@dataclass(frozen=True, kw_only=True)
class MergeOrder(options.OfSubmission):
    out: Path | None = options.out(
        "where to (default: build/<GPU MODE's name>-<file>; - is standard output)", metavar="OUT"
    )


def run(order: MergeOrder, checkout: Checkout) -> Exit:
    """`merge`: writes the file and says what to do with it.

    Raises UsageError where its file cannot be written, or is one that it is made of."""
    problem, file, _ = settings.named(options.asked(order), checkout)
    check_taken(problem, shown_path(file or problem.submissions_folder, checkout.root))
    if problem.lang != "py":
        raise UsageError(
            f"{problem.name} takes CUDA C++, a single file already: hand it in as it is; "
            "`check --for gpumode` says whether GPU MODE would take it"
        )
    submission = read_submission(file or problem.default_submission(), checkout.root)
    source, changes = rewritten(addressed(merged(submission), problem.leaderboard, submission.name), problem)
    out = order.out or checkout.build / f"{problem.leaderboard}-{Path(submission.path).name}"
    made_of = (Path(submission.path), *(checkout.root / module.file for module in submission.modules))
    if out.resolve() in (path.resolve() for path in made_of):
        raise UsageError(f"--out {out}: the merged file is made of this one; name another")
    sources = (checkout.submissions, checkout.reference, checkout.root / "harness")
    if out.is_file() and any(out.resolve().is_relative_to(folder) for folder in sources):
        raise UsageError(f"--out {out}: a source of this checkout is there; name another")
    words = options.write_out(out, source.encode(), make_folder=True, replaces=".py")
    modules = ", ".join(module.name for module in submission.modules)
    shown = shlex.quote(shown_path(out, checkout.root))
    print(f"{shown}: {submission.name}" + (f" with {modules}" if modules else ""), file=words)
    for change in changes:
        print(f"changed            {change}", file=words)
    found = findings(source, Path(submission.path).name if out == options.STDOUT else out.name, problem)
    for line in finding_lines(found):
        print(line, file=words)
    if any(finding.refused for finding in found):
        return Exit.INVALID
    if out == options.STDOUT:
        return Exit.OK
    print(f"evaluate it here   make eval PROBLEM={shlex.quote(problem.name)} SUBMISSION={shown}")
    print(f"hand it in         popcorn-cli submit {shown}")
    return Exit.OK
