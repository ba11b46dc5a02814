"""What a run leaves in runs/."""

from dataclasses import replace
from pathlib import Path

from harness import archive
from harness.records import Module
from tests import factories


def test_a_run_keeps_every_file_of_its_submission(tmp_path: Path) -> None:
    report = factories.report()
    modules = (
        Module(name="common.heap", file="submissions/common/heap.py", source="HEAP = 1\n"),
        Module(name="tuning", file="submissions/gemm_rs/tuning.py", source="TABLE = []\n"),
    )
    submission = replace(report.submission, source="from tuning import TABLE\n", modules=modules)
    folder = archive.store(replace(report, submission=submission), tmp_path)
    kept = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.py")}
    assert kept == {
        "submission.py": "from tuning import TABLE\n",
        "common/heap.py": "HEAP = 1\n",
        "tuning.py": "TABLE = []\n",
    }
