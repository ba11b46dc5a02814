"""Where the checkout is, and how messages name a path in it."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent  # the checkout


def shown(path: Path, root: Path = ROOT) -> str:
    """`path` as messages name it: relative to the checkout where it lies inside."""
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)
