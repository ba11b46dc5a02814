"""An installed package: it brings its problems, finds them from any folder, and keeps what its user wrote."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import copy_checkout

from harness.core.checkout import ROOT, Checkout
from harness.problems.shape_file import problem_names

Installed = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def installed(tmp_path: Path) -> Installed:
    """installed("problems") runs `python -m harness problems` of a built package, in another folder."""
    pytest.importorskip("setuptools", reason="builds the package, as pip does")
    words = ["setup.py", "--quiet", "build_py", "--build-lib", str(tmp_path / "site")]
    source = copy_checkout(tmp_path / "source")
    for name in ("setup.py", "pyproject.toml", "README.md", "docs"):
        (source / name).symlink_to(ROOT / name)
    subprocess.run([sys.executable, *words], cwd=source, check=True, capture_output=True, timeout=300)
    (tmp_path / "elsewhere").mkdir()
    environ = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "KERNEL_EVAL_HOME": str(tmp_path / "home")}

    def run(*words: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "harness", *words]
        return subprocess.run(
            command, cwd=tmp_path / "elsewhere", env=environ, capture_output=True, text=True, timeout=300, check=False
        )

    return run


def test_an_installed_package_finds_its_problems_from_any_folder(installed: Installed, tmp_path: Path) -> None:
    listed = installed("problems")
    assert listed.returncode == 0, listed.stderr
    assert all(re.search(rf"^{name} ", listed.stdout, re.MULTILINE) for name in problem_names(Checkout.here()))
    made = installed("new-submission", "rms_norm")
    assert made.returncode == 0, made.stderr
    home = tmp_path / "home"
    mine = home / "submissions" / "rms_norm" / "mine.py"
    assert "ref_kernel" in mine.read_text()
    assert "eval rms_norm submissions/rms_norm/mine.py" in (mine.parent / "AGENTS.md").read_text()
    mine.write_text("# edited\n")
    (home / ".version").write_text("an older one")
    (home / "shapes" / "rms_norm.yaml").write_text("broken")
    assert installed("roofline", "rms_norm", "--hardware", "h200").returncode == 0  # its own files are new again
    assert mine.read_text() == "# edited\n"
    assert not (tmp_path / "elsewhere").joinpath("reference").exists()
