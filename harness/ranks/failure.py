"""How a rank ends an evaluation, in words: it raised, its process ended, or it was not done at the deadline."""

import importlib
import re
from collections.abc import Sequence
from pathlib import Path

from harness.core.records import Crashed, Raised, TimedOut
from harness.core.words import TAIL_CHARS
from harness.ranks import wire
from harness.ranks.rank import Rank

IN_COLLECTIVE = "torch/distributed/"  # in the stack of a rank that waits in one
HARNESS, IMPORTS = (re.escape(str(path)) for path in (Path(__file__).parent.parent, Path(importlib.__file__).parent))
# A stack that faulthandler wrote, the innermost frame first: its head, and its frames.
STACK = re.compile(r'^((?:Current thread|Thread) 0x.*\n)((?:  File ".*", line .*\n?)+)', re.MULTILINE)
OURS = re.compile(rf'  File "(?:{HARNESS}/|{IMPORTS}/|<frozen (?:runpy|importlib)|<string>", line 1 in <module>)')
OUTSIDE = "outside of your code: its call has returned, or not begun"

OPENED = (
    "; the harness opens the process group after it has imported the file, once for many calls: use the group in calls "
    "alone, and leave it open"
)
HINTS = (  # by what a candidate's exception says: how ranks differ from a process of the author's own
    (
        "PermissionError: [Errno 13]",  # what Landlock answers to a write; a read fails so by the file's rights
        "; in the sandbox (docs/trust.md) a submission may read what its user may, and write only below "
        "tempfile.gettempdir() and to /dev/shm",
    ),
    ("[Errno -3]", "; ranks have no network: a submission can download nothing"),
    ("process group has not been initialized", OPENED),
    ("torch.distributed using env:// rendezvous", OPENED),
)


class RankFailure(Exception):
    """A rank of `role` ended the evaluation: how (`outcome`), and the cause in a word (`reason`)."""

    def __init__(self, role: wire.Role, outcome: Raised | Crashed | TimedOut, reason: wire.Reason = "") -> None:
        super().__init__(role, outcome, reason)
        self.role, self.outcome, self.reason = role, outcome, reason


def crashed(rank: Rank, message: str) -> RankFailure:
    """The failure of a rank whose process is gone, or that sent something that is no reply."""
    log = rank.log.text()
    tail = (log if rank.role == "trusted" else without_ours(log))[-TAIL_CHARS:]
    outcome = Crashed(rank=rank.rank, message=message, log_tail=tail)
    return RankFailure(rank.role, outcome, reason="memory" if rank.was_killed else "")


def raised(failures: Sequence[tuple[Rank, wire.Failed]]) -> RankFailure:
    """Some ranks raised; the first is shown, with the numbers of those that raised the same."""
    rank, first = failures[0]
    alike = [other.rank for other, reply in failures if reply.message == first.message]
    others = f" (and rank{'s' * (len(alike) > 2)} {', '.join(map(str, alike[1:]))})" if alike[1:] else ""
    hints = (hint for said, hint in HINTS if rank.role == "candidate" and said in first.message)
    message = first.message + others + next(hints, "")
    outcome = Raised(rank=rank.rank, message=message, traceback=first.traceback, alike=tuple(alike[1:]))
    return RankFailure(rank.role, outcome, first.reason)


def timed_out(role: wire.Role, waiting: Sequence[Rank], stacks: tuple[str, ...], why: str = "") -> RankFailure:
    """The ranks in `waiting` were not done at the deadline, or given up before, for `why`, with the group's stacks."""
    whose = "" if role == "candidate" else f"{role} "  # then it may not be the submission's fault
    message = f"{whose}{_numbered([rank.rank for rank in waiting])} timed out{why}"
    elsewhere = [rank.rank for rank in waiting if IN_COLLECTIVE not in stacks[rank.rank]]
    if 0 < len(elsewhere) < len(waiting):
        message += f"; {_numbered(elsewhere)} did not wait for the others in a collective, so look there first"
    return RankFailure(role, TimedOut(message=message, stacks=tuple(map(without_ours, stacks))))


def without_ours(text: str) -> str:
    """A log whose stacks end where the author's begin, without the harness's frames that called them."""

    def theirs(found: re.Match[str]) -> str:
        frames = found[2].splitlines(keepends=True)
        while frames and OURS.match(frames[-1]):
            frames.pop()
        return found[1] + ("".join(frames) or f"  ({OUTSIDE})\n")

    return STACK.sub(theirs, text)


def _numbered(ranks: Sequence[int]) -> str:
    numbers = ", ".join(map(str, ranks))
    return f"rank {numbers}" if len(ranks) == 1 else f"ranks {numbers}"
