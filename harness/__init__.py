"""Evaluates kernels, solvers, models and training runs: correctness, speed, distance from the limit.

For programs: `from harness import evaluate` (docs/agents.md). What is public is imported when it is asked for.
"""

import importlib
from typing import TYPE_CHECKING, Any

from harness.core.version import __version__

if TYPE_CHECKING:
    from harness.agents.api import Pool, evaluate, stream
    from harness.agents.result import Result
    from harness.core.errors import BadFileError, HarnessError, UsageError

__all__ = ["BadFileError", "HarnessError", "Pool", "Result", "UsageError", "__version__", "evaluate", "stream"]
_HOMES = {
    **dict.fromkeys(("Pool", "evaluate", "stream"), "harness.agents.api"),
    "Result": "harness.agents.result",
    **dict.fromkeys(("BadFileError", "HarnessError", "UsageError"), "harness.core.errors"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'harness' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
