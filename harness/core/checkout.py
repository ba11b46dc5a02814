"""Where a checkout keeps what, and how messages name a path."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent  # for programs that find themselves; others are given a Checkout
SHIPPED = ROOT / "harness" / "shipped"  # of an installed package: the checkout's files, as setup.py put them there
HOME = "KERNEL_EVAL_HOME"  # the variable that names an installed package's checkout
VERSION = ".version"  # in it: of which package its files are


def shown(path: Path, root: Path | None = None) -> str:
    """`path` as messages name it: relative to `root`, or else to the current folder, where it lies inside."""
    root = root or Path.cwd()
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)


@dataclass(frozen=True)
class Checkout:
    """The folder that has harness/, reference/, shapes/ and submissions/, and what evaluations leave in it. The command
    line finds it once and passes it on; tests make one of their own."""

    root: Path

    @classmethod
    def here(cls) -> "Checkout":
        """The checkout that this file belongs to. Of an installed package it is a folder of the user's, made when it is
        first asked for: KERNEL_EVAL_HOME, or ~/.local/share/kernel-eval. Raises OSError where that cannot be made."""
        return cls(ROOT) if not SHIPPED.is_dir() else cls(_unpacked(SHIPPED, home()))

    @property
    def leaderboard(self) -> Path:
        return self.root / "leaderboard.yaml"

    @property
    def runs(self) -> Path:
        return self.root / "runs"

    @property
    def cache(self) -> Path:
        """The folder of files that are made again where they are missing: compiled kernels, measured peaks."""
        return self.root / ".cache"

    @property
    def reference(self) -> Path:
        return self.root / "reference"

    @property
    def shapes(self) -> Path:
        return self.root / "shapes"

    @property
    def submissions(self) -> Path:
        return self.root / "submissions"

    @property
    def build(self) -> Path:
        """Files that are made to be handed on: pages, bundles."""
        return self.root / "build"


def home() -> Path:
    """Where an installed package keeps its checkout."""
    data = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(os.environ.get(HOME) or Path(data, "kernel-eval")).absolute()


def _unpacked(shipped: Path, root: Path) -> Path:
    """The folder with the shipped files, written anew if of another version. Other files stay."""
    version = (shipped / VERSION).read_text()
    mark = root / VERSION
    if not mark.exists() or mark.read_text() != version:
        shutil.copytree(shipped, root, dirs_exist_ok=True, ignore=shutil.ignore_patterns(VERSION))
        mark.write_text(version)  # last: a copy that was cut off is made again
    return root
