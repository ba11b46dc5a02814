"""The result of a check of `doctor`, and the words that results are put in.

fail: ranks cannot run here, or their times mean nothing. warn: times vary or are worse than they could be.
unknown: the reading could not be made, so nothing is said.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar

from harness.machine.readings import Gpu, Gpus, Readings, Unread

GIB = 1 << 30
T = TypeVar("T")
Status = Literal["pass", "warn", "fail", "unknown"]
ORDER: tuple[Status, ...] = ("fail", "warn", "unknown", "pass")  # the worst first


@dataclass(frozen=True)
class CheckResult:
    """The result of one check; `fix` is empty where nothing is to be done."""

    status: Status
    found: str
    fix: str = ""


NO_GPU = CheckResult("unknown", "no GPU")


def warned(is_bad: bool, text: str, fix: str, status: Status = "warn") -> CheckResult:
    """A warning with the fix, or what else `status` says, where something is bad; otherwise a pass."""
    return CheckResult(status, text, fix) if is_bad else CheckResult("pass", text)


def of_reading(
    pick: Callable[[Readings], T | Unread],
) -> Callable[[Callable[[T, Readings], CheckResult]], Callable[[Readings], CheckResult]]:
    """Makes a check of one reading a check of all: where that reading could not be made, the result is unknown."""

    def made(check: Callable[[T, Readings], CheckResult]) -> Callable[[Readings], CheckResult]:
        def checked(found: Readings) -> CheckResult:
            value = pick(found)
            return CheckResult("unknown", value.why) if isinstance(value, Unread) else check(value, found)

        return checked

    return made


def used_gpus(found: Gpus | Unread | None) -> list[Gpu]:
    return [found.gpus[index] for index in found.visible] if isinstance(found, Gpus) else []


def version_numbers(version: str) -> tuple[int, int]:
    """The first two numbers of a version: 2.13.0+cu130 is (2, 13)."""
    numbers = [int(word) for word in re.findall(r"\d+", version)[:2]] + [0, 0]
    return numbers[0], numbers[1]
