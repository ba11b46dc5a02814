"""runs/: a folder for each evaluation, with the full report, what the ranks printed, and the source that ran."""

import json
from pathlib import Path

from harness import render
from harness.records import EvalReport, HarnessError

FOLDER = "runs"


def store(report: EvalReport, root: Path) -> Path:
    """Writes runs/<run id>/ and returns it. The report comes last, so a folder that has one is whole. Raises
    HarnessError where nothing can be written."""
    folder = root / FOLDER / report.run_id
    try:
        folder.mkdir(parents=True)
        (folder / "submission.py").write_text(report.submission.source)
        for rank, text in report.logs.items():
            (folder / f"{rank.replace(' ', '-')}.log").write_text(text)
        scratch = folder / "report.json.part"
        scratch.write_text(json.dumps(render.to_json(report), indent=2) + "\n")
        scratch.rename(folder / "report.json")
    except OSError as error:
        raise HarnessError(f"{folder} cannot be written: {error.strerror}; nothing was recorded") from None
    return folder
