"""The messages between the parent, the zygote that forks ranks, and its processes: typed records as JSON over a socket.

What the parent and a rank say to each other is in ranks.wire.
"""

from dataclasses import dataclass
from typing import Literal

from harness.ranks.wire import GroupName, RankOrder

FDS = ("channel", "log", "barrier", "bell")  # that go with a RankOrder, in this order; on one host there is no bell
MAX_MESSAGE_BYTES = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Freeze:
    """Stop every process of this group, until Thaw. Answer: Frozen."""

    group: GroupName
    number: int
    type: Literal["freeze"] = "freeze"


@dataclass(frozen=True, kw_only=True)
class Thaw:
    """Let the group's processes go on. No answer."""

    group: GroupName
    type: Literal["thaw"] = "thaw"


@dataclass(frozen=True, kw_only=True)
class ShowStacks:
    """Have each of the group's ranks write its Python stack into its log. No answer."""

    group: GroupName
    type: Literal["show_stacks"] = "show_stacks"


@dataclass(frozen=True, kw_only=True)
class Over:
    """End the group with all its processes. Ranks that are ordered for it later begin anew. Answer: Exited of each
    rank."""

    group: GroupName
    type: Literal["over"] = "over"


ZygoteOrder = RankOrder | Freeze | Thaw | ShowStacks | Over


@dataclass(frozen=True, kw_only=True)
class GroupFrozen:
    """The group's processes have stopped, as Freeze `number` wanted. `running` counts those that had not after some
    time; `ran` says what one did while they were frozen before, or is empty."""

    group: GroupName
    number: int
    running: int
    ran: str = ""
    type: Literal["frozen"] = "frozen"


@dataclass(frozen=True, kw_only=True)
class Confined:
    """The process that one group's ranks are forked from is confined. `lacking` names the layers that the kernel does
    not have. The interface of the group's own network between nodes, if it has one, comes with the message."""

    group: GroupName
    lacking: tuple[str, ...]
    type: Literal["confined"] = "confined"


@dataclass(frozen=True, kw_only=True)
class Started:
    """A rank was forked: its group, number and process id in the zygote's namespace."""

    group: GroupName
    rank: int
    pid: int
    type: Literal["started"] = "started"


@dataclass(frozen=True, kw_only=True)
class RankExited:
    """A rank's process has ended. `code` is as subprocess has it: minus the signal's number if a signal ended it."""

    pid: int
    code: int
    type: Literal["exited"] = "exited"


@dataclass(frozen=True, kw_only=True)
class NodeLost:
    """A node does not answer any more. No rank is to blame."""

    why: str
    type: Literal["node_lost"] = "node_lost"


ZygoteMessage = Confined | Started | RankExited | GroupFrozen | NodeLost
