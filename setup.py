"""Puts what a checkout has beside the package into it: problems, shapes, submissions. All else is in pyproject.toml."""

import hashlib
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
PARTS = ("reference", "shapes", "submissions", "docs/problems.md", "docs/result.schema.json")


class BuildWithProblems(build_py):
    """An editable install needs none of it: its package is the checkout's."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        shipped = Path(self.build_lib, "harness", "shipped")
        shutil.rmtree(shipped, ignore_errors=True)
        digest = hashlib.sha256()
        for part in PARTS:
            top = ROOT / part
            for path in [top] if top.is_file() else sorted(top.rglob("*")):
                if path.is_file() and "__pycache__" not in path.parts:
                    target = shipped / path.relative_to(ROOT)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(path, target)
                    target.chmod(path.stat().st_mode & 0o755)
                    digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
        (shipped / ".version").write_text(digest.hexdigest())


setup(cmdclass={"build_py": BuildWithProblems})
