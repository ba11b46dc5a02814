"""Makes a bundle of a recorded run: everything that an auditor needs, out of runs/, the board and this machine."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from harness.board import bundles, runs
from harness.board.bundles import LOGS, MANIFEST, README, REPORT, SOURCE, STACK, SYSTEM, Claim, Manifest
from harness.board.entries import Board, printable
from harness.core.checkout import Checkout
from harness.core.decode import did_you_mean, part
from harness.core.errors import BadFileError, HarnessError, UsageError, os_error_as
from harness.core.files import read_bytes
from harness.core.records import EvalReport
from harness.core.version import __version__
from harness.judging import verdict
from harness.machine import host, system_description
from harness.machine.system_description import FIELDS

PACKAGES = ("torch", "triton", "numpy", "scipy")  # what of the stack changes results
HERE = ("machine", "machine_class", "cpu", "cores", "memory_bytes")  # of a machine; not every one has an id
LOG_NAMES = ("*.log", "*.txt")

README_TEXT = """\
A result of kernel-eval: run {run_id} of problem {problem}.

    python -m harness bundle check DIR        is everything there and unaltered, and do the figures follow from samples?
    python -m harness bundle reproduce DIR    runs source/ again here: does the claim lie within the noise?

DIR is this folder, or the archive. The run itself was started with:

    {command}
"""


@dataclass(frozen=True, kw_only=True)
class Made:
    """A bundle's files by path; the `empty` fields of its system description, and what else it lacks."""

    run_id: str
    files: Mapping[str, bytes]
    empty: tuple[str, ...]
    notes: tuple[str, ...]


def make(report: EvalReport, board: Board, given: Mapping[str, str], checkout: Checkout) -> Made:
    """The bundle of that run. `given` fills fields of the system description. Raises UsageError for a field that there
    is not and for a run on a user's own data, SourceError where the source is not kept, HarnessError where the report
    was altered since."""
    if report.data:
        raise UsageError(f"run {report.run_id} is on data of the user's own, which a bundle does not have")
    if unknown := [name for name in given if name not in FIELDS]:
        raise UsageError(f"the system description has no field '{unknown[0]}'{did_you_mean(unknown[0], FIELDS)}")
    folder = checkout.runs / report.run_id
    source = runs.load_source(report.submission.sha256, report.submission.name, checkout.root, report.run_id)
    files = {f"{SOURCE}/{name}": data for name, data in runs.source_files(source).items()}
    files |= {f"{LOGS}/{path.name}": read_bytes(path) for pattern in LOG_NAMES for path in folder.glob(pattern)}
    with os_error_as(HarnessError, f"{folder / bundles.REPORT} cannot be read", "evaluate it again"):
        files[REPORT] = read_bytes(folder / bundles.REPORT)
    has_logs = any(path.startswith(f"{LOGS}/") for path in files)
    notes = ["the run's logs are not kept"] if report.logs and not has_logs else []
    system, is_here = _system(report, given)
    if not is_here:
        notes.append("the run was not on this machine, so the system description has what its report says and no more")
    judged_under = version_of(board, report.run_id)
    if judged_under is None:
        notes.append("the version of the problem was not recorded: the board does not have the run, or not its version")
    command = command_of(report)
    readme = README_TEXT.format(run_id=report.run_id, problem=printable(report.problem), command=command)
    files |= {SYSTEM: bundles.json_bytes(system), STACK: bundles.json_bytes(_stack(report, is_here))}
    files[README] = readme.encode()
    manifest = part(
        report,
        Manifest,
        schema=bundles.SCHEMA,
        problem_version=judged_under,
        file=report.submission.name,
        sha256=report.submission.sha256,
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
        harness=__version__,
        command=command,
        seeds=tuple(result.case.seed for result in report.results),
        claim=claim_of(report),
        files={path: bundles.sha256_of(data) for path, data in sorted(files.items())},
    )
    files[MANIFEST] = bundles.json_bytes(manifest)
    empty = tuple(name for name in FIELDS if not system[name])
    return Made(run_id=report.run_id, files=files, empty=empty, notes=tuple(notes))


def claim_of(report: EvalReport) -> Claim:
    figures = report.figures
    ratio = figures.ratio if figures else None
    return Claim(
        status=verdict.status(report),
        score=figures.score if figures else None,
        ratio=ratio.value if ratio else None,
        ratio_ci=ratio.ci if ratio else None,
    )


def command_of(report: EvalReport) -> str:
    """The command that evaluates the same again in a checkout that has the file."""
    words = ["eval", report.problem, report.submission.name, "--suite", report.suite]
    words += ["--ranks", str(report.world_size), "--device", report.device, "--mode", report.mode]
    return printable(shlex.join(["python", "-m", "harness", *words, *([] if report.confined else ["--unconfined"])]))


def version_of(board: Board, run_id: str) -> str | None:
    for one in board.judged:
        for past in (one, *one.history, *one.holds):
            if past.run_id == run_id and past.problem_version is not None:
                return past.problem_version
    return None


def read_fields(path: Path) -> dict[str, str]:
    """Fields of the system description from a JSON file. Raises BadFileError where it is not a mapping of texts."""
    with os_error_as(BadFileError, f"{path}: cannot be read"):
        return bundles.decoded(dict[str, str], {path.name: read_bytes(path)}, path.name)


def _system(report: EvalReport, given: Mapping[str, str]) -> tuple[dict[str, str], bool]:
    """The system description, and whether it is of this machine, which can then say more of it."""
    found, is_here = dict.fromkeys(FIELDS, "") | {"submitter": report.author}, False
    if report.environment is not None:
        here = host.environment(report.device_model, report.world_size)
        is_here = all(getattr(here, name) == getattr(report.environment, name) for name in HERE)
        found = system_description.of_report(
            report.environment, report.device_model, report.world_size, printable(report.author)
        )
        found |= system_description.of_this_machine() if is_here else {}
    return found | dict(given), is_here


def _stack(report: EvalReport, is_here: bool) -> dict[str, str]:
    """Versions that the report recorded; of packages that it does not, those that are installed where it ran here."""
    environment = report.environment
    known = {} if environment is None else {
        "python": environment.python, "torch": environment.torch, "triton": environment.triton or "none",
        "platform": environment.platform, "harness": environment.harness,
    }  # fmt: skip
    for package in PACKAGES if is_here else ():
        known.setdefault(package, host.installed(package) or "none")
    return known
