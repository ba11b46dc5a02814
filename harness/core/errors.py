"""The errors that end an evaluation, and the exit codes that they and a verdict have."""

import contextlib
import enum
from collections.abc import Iterator
from typing import ClassVar


class Exit(enum.IntEnum):
    """Exit codes; 112 to 114 have the meaning that GPU MODE's evaluator gives them."""

    OK = 0
    ERROR = 1  # the harness or the machine failed, not the user and not the submission
    USAGE = 2
    FAIL_IF = 3  # compare's word is one that --fail-if named
    INVALID = 112  # the submission is wrong, raised or crashed
    BAD_FILE = 113  # a problem, shape or leaderboard file is bad
    TIMED_OUT = 114
    INTERRUPTED = 130


class HarnessError(Exception):
    """Ends an evaluation. The message says what happened, where, and what to try next."""

    exit_code: ClassVar[Exit] = Exit.ERROR


class UsageError(HarnessError):
    """Something that was asked for cannot be done: no such problem, file, suite or rank count."""

    exit_code = Exit.USAGE


class BadFileError(HarnessError):
    """A problem, shape, leaderboard or bundle file, or a log, does not decode or is damaged."""

    exit_code = Exit.BAD_FILE


class BadSubmissionError(HarnessError):
    """The submission file cannot be a submission: no such syntax, no custom_kernel."""

    exit_code = Exit.INVALID


@contextlib.contextmanager
def os_error_as(kind: type[HarnessError], what: str, next_: str = "") -> Iterator[None]:
    """Raises that error in place of an OSError of the block: `x.json: cannot be read: Is a directory; name a file`; and
    where it read text that is none."""
    try:
        yield
    except OSError as error:
        raise kind(f"{what}: {error.strerror}{next_ and '; '}{next_}") from None
    except UnicodeDecodeError as error:
        raise kind(f"{what}: not UTF-8 at byte {error.start}{next_ and '; '}{next_}") from None
