"""Where the checkout lies and, in it, what tests read."""

from pathlib import Path

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
DATA = TESTS / "data"
FIXTURES = TESTS / "fixtures"
FOLDERS = TESTS / "folders"  # problem folders in KernelBot's format
SINGLE = FOLDERS / "single"  # those of one GPU
HOSTILE = TESTS / "hostile"
SNAPSHOTS = TESTS / "snapshots"
