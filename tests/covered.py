"""Coverage of the packages whose tests time nothing, by what these tests execute in their own process.

`make test` ends with it, see CONTRIBUTING.md. A tracer slows Python down, and with it what tests of the other packages
time: they run without one, and so do the commands and ranks that any test starts, and tests that are marked `untraced`,
which say what takes seconds at most.

    python -m pytest -p tests.covered      measures
    python tests/covered.py                shows the figures; fails where they are too small
"""

import io
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from coverage import Coverage

TESTS = Path(__file__).parent
PACKAGES = ("board", "cli", "contest", "core", "gpumode", "machine", "problems", "report", "serve")
LEAST = 86.0  # percent of the lines of these packages
TRACER = Coverage(data_suffix=True)
TRACER.set_option("run:patch", [])  # this process alone
TRACER.set_option("run:disable_warnings", ["no-data-collected"])  # pytest-xdist's first process runs no test


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    TRACER.start()  # before conftest.py imports the harness


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    if item.path.relative_to(TESTS).parts[0] in PACKAGES and not item.get_closest_marker("untraced"):
        return (yield)
    TRACER.stop()
    try:
        return (yield)
    finally:
        TRACER.start()


def pytest_sessionfinish() -> None:
    TRACER.stop()
    TRACER.save()


def percent(*packages: str) -> float:
    """Of these packages' lines, those that were executed."""
    return TRACER.report(include=[f"harness/{package}/*" for package in packages], file=io.StringIO())


def main() -> int:
    TRACER.combine()
    total = percent(*PACKAGES)
    each = ", ".join(f"{package} {percent(package):.0f} %" for package in PACKAGES)
    print(f"coverage: {total:.1f} % of the lines of these packages (at least {LEAST:g} %): {each}")
    return int(total < LEAST)


if __name__ == "__main__":
    sys.exit(main())
