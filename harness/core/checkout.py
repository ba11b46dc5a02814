"""Where a checkout keeps what, and how messages name a path."""

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent  # for programs that find themselves; others are given a Checkout


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
        """The checkout that this file belongs to."""
        return cls(ROOT)

    @property
    def leaderboard(self) -> Path:
        """The board's file, kept in git."""
        return self.root / "leaderboard.yaml"

    @property
    def runs(self) -> Path:
        """A folder for each evaluation."""
        return self.root / "runs"

    @property
    def cache(self) -> Path:
        """What is made again where it is missing: compiled kernels, measured peaks."""
        return self.root / ".cache"

    @property
    def reference(self) -> Path:
        """A folder for each problem."""
        return self.root / "reference"

    @property
    def shapes(self) -> Path:
        """A shape file for each problem."""
        return self.root / "shapes"

    @property
    def submissions(self) -> Path:
        """A folder for each problem's kernels."""
        return self.root / "submissions"

    @property
    def build(self) -> Path:
        """Files that are made to be handed on: pages, bundles."""
        return self.root / "build"
