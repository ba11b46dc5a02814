"""A checkout of its own for a bench, so that nothing is recorded in this one."""

import shutil
from pathlib import Path

from figures import ROOT

from harness.core.checkout import Checkout

PARTS = ("harness", "reference", "shapes", "submissions")


def copied(root: Path) -> Checkout:
    """What evaluations need of this checkout, copied to `root`; without its leaderboard, runs and caches."""
    for part in PARTS:
        shutil.copytree(ROOT / part, root / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", root)
    return Checkout(root)
