"""runs/: a folder for each evaluation, with the full report, what the ranks printed, the sources that ran, and the
traces of a run in profile mode."""

import json
from dataclasses import replace
from pathlib import Path

from harness import render
from harness.records import EvalReport, HarnessError

FOLDER = "runs"


def store(report: EvalReport, root: Path) -> Path:
    """Writes runs/<run id>/ and returns it. The report comes last, so a folder that has one is whole. Raises
    HarnessError where nothing can be written."""
    folder = root / FOLDER / report.run_id
    try:
        folder.mkdir(parents=True, exist_ok=True)  # traces may be there already
        (folder / "submission.py").write_text(report.submission.source)
        for module in report.submission.modules:
            path = folder.joinpath(*module.name.split(".")).with_suffix(".py")
            path.parent.mkdir(exist_ok=True)
            path.write_text(module.source)
        for rank, text in report.logs.items():
            (folder / f"{rank.replace(' ', '-')}.log").write_text(text)
        scratch = folder / "report.json.part"
        scratch.write_text(json.dumps(render.to_json(report), indent=2) + "\n")
        scratch.rename(folder / "report.json")
    except OSError as error:
        raise HarnessError(f"{folder} cannot be written: {error.strerror}; nothing was recorded") from None
    return folder


def store_traces(report: EvalReport, folder: Path) -> EvalReport:
    """Writes each profiled case's merged trace to `folder`/trace-<index>.json; the report that says where they are.
    Raises HarnessError where nothing can be written."""
    results = list(report.results)
    for index, result in enumerate(results):
        if result.profile is None:
            continue
        path = folder / f"trace-{index}.json"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(result.profile.trace_json)
        except OSError as error:
            raise HarnessError(f"{path} cannot be written: {error.strerror}") from None
        results[index] = replace(result, profile=replace(result.profile, trace=str(path.resolve())))
    return replace(report, results=tuple(results))
