"""The result of a check of `doctor`, and the words that results are put in.

fail: ranks cannot run here, or their times mean nothing. warn: times vary or are worse than they could be.
unknown: the reading could not be made, so nothing is said.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from harness.machine.readings import Gpu, Gpus, Unread

GIB = 1 << 30
MOST_WORDS = 6
Status = Literal["pass", "warn", "fail", "unknown"]
ORDER: tuple[Status, ...] = ("fail", "warn", "unknown", "pass")  # the worst first


@dataclass(frozen=True)
class CheckResult:
    """The result of one check; `fix` is empty where nothing is to be done."""

    status: Status
    found: str
    fix: str = ""


NO_GPU = CheckResult("unknown", "no GPU")


def used_gpus(found: Gpus | Unread | None) -> list[Gpu]:
    """The GPUs that torch may use."""
    return [found.gpus[index] for index in found.visible] if isinstance(found, Gpus) else []


# ---- words -------------------------------------------------------------------------------------------------------
def span(values: Sequence[float]) -> str:
    low, high = f"{min(values):.0f}", f"{max(values):.0f}"
    return low if low == high else f"{low} to {high}"


def gpu_list(indices: Sequence[int]) -> str:
    """`GPU 3`, `GPUs 0-2, 5`"""
    runs: list[list[int]] = []
    for index in sorted(indices):
        if runs and runs[-1][-1] == index - 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    words = ", ".join(f"{one[0]}" if len(one) == 1 else f"{one[0]}-{one[-1]}" for one in runs)
    return f"GPU{'' if len(indices) == 1 else 's'} {words}"


def some_of(words: Sequence[str]) -> str:
    more = len(words) - MOST_WORDS
    return ", ".join(words[:MOST_WORDS]) + (f" and {more} more" if more > 0 else "")


def version_numbers(version: str) -> tuple[int, int]:
    """The first two numbers of a version: 2.13.0+cu130 is (2, 13)."""
    numbers = [int(word) for word in re.findall(r"\d+", version)[:2]] + [0, 0]
    return numbers[0], numbers[1]
