"""Recorded runs, read back: runs/<run id>/report.json, for whatever shows more than one of them. Knows where reports
lie; board.report_json knows what is in one."""

import json
import os
from dataclasses import replace
from pathlib import Path

from harness.board.report_json import from_json
from harness.board.runs import FOLDER
from harness.core.checkout import Checkout, shown
from harness.core.decode import did_you_mean
from harness.core.errors import BadFileError, UsageError
from harness.core.files import read_text
from harness.core.records import EvalReport
from harness.problems.shape_file import short_names

FILE = "report.json"


def load(path: Path, root: Path) -> EvalReport:
    """The report in the file; `root` is the checkout, whose shape files have short names for reports that were written
    before reports had them. Raises BadFileError, which names the place in it, for one that cannot be read."""
    try:
        return _with_short_names(from_json(json.loads(read_text(path))), Checkout(root))
    except FileNotFoundError:
        raise BadFileError(
            f"{shown(path)}: no such file; `python -m harness history` lists the runs that there are"
        ) from None
    except OSError as error:
        raise BadFileError(f"{shown(path)}: cannot be read: {error.strerror}; check its rights") from None
    except RecursionError:
        raise BadFileError(f"{shown(path)}: nested too deeply; is it a report that `eval` wrote?") from None
    except json.JSONDecodeError as error:
        raise BadFileError(f"{shown(path)}: not JSON, as if cut off or edited: {error}") from None
    except ValueError as error:  # DecodeError; not UTF-8
        raise BadFileError(f"{shown(path)}: {error}") from None


def _with_short_names(report: EvalReport, checkout: Checkout) -> EvalReport:
    if any(result.case.short for result in report.results):
        return report
    short = short_names(report.problem, checkout)
    results = (replace(result, case=replace(result.case, short=short)) for result in report.results)
    return replace(report, results=tuple(results)) if short else report


def load_all(root: Path) -> tuple[tuple[EvalReport, ...], tuple[str, ...]]:
    """Every report below root/runs by time, and a message for each one that cannot be read: one broken file must not
    hide the others. A run that was recorded has its report in the folder of its id; another place is not believed."""
    reports, unreadable = [], []
    for path in sorted((root / FOLDER).glob(f"*/{FILE}")):
        try:
            report = load(path, root)
            if report.run_id != path.parent.name:
                raise BadFileError(f"{shown(path, root)}: $.run_id: expected '{path.parent.name}', as its folder says")
            reports.append(report)
        except BadFileError as error:
            unreadable.append(str(error))
    return tuple(sorted(reports, key=lambda report: (report.started_at, report.run_id))), tuple(unreadable)


def find(run: str, root: Path) -> EvalReport:
    """The run of that id, or of that beginning of one, or of that folder or report file.

    Raises UsageError where there is none or more than one, BadFileError where it cannot be read.
    """
    path = Path(run)
    if os.path.isfile(path / FILE):  # False, not an error, for a name that is too long
        return load(path / FILE, root)
    if os.path.isfile(path):
        return load(path, root)
    runs = sorted(path.parent.name for path in (root / FOLDER).glob(f"*/{FILE}"))
    found = [name for name in runs if name == run] or [name for name in runs if run and name.startswith(run)]
    if len(found) == 1:
        return load(root / FOLDER / found[0] / FILE, root)
    if found:
        raise UsageError(f"'{run}' begins {len(found)} run ids ({found[0]} ... {found[-1]}); give more of it")
    latest = f"; the latest is {runs[-1]}" if runs else "; `make eval PROBLEM=a2a` makes the first"
    raise UsageError(f"no run '{run}' in {FOLDER}/{did_you_mean(run, runs) or latest}")
