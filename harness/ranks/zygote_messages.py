"""The messages between the parent, the zygote that forks ranks, and its processes: typed records as JSON over a socket.

What the parent and a rank say to each other is in ranks.wire.
"""

import json
from dataclasses import dataclass
from typing import Literal, cast

from harness.core.decode import decode
from harness.ranks.wire import GroupName, RankOrder

FDS = ("channel", "log", "barrier", "bell")  # that go with a RankOrder, in this order; on one host there is no bell
MAX_MESSAGE_BYTES = 1 << 16


What = Literal["freeze", "thaw", "show_stacks", "over", "ask"]


@dataclass(frozen=True, kw_only=True)
class GroupOrder:
    """What becomes of the processes of a group.

    freeze        stop them all, until `thaw`; answer: GroupFrozen with this `number`
    show_stacks   have each rank write its Python stack into its log
    over          end them; ranks that are ordered for the group later begin anew. Answer: RankExited of each rank
    ask           of the nodes' agents alone, whatever the group: do they work? Answer: NodeAnswered of each
    """

    group: GroupName
    what: What
    number: int = 0
    type: Literal["group"] = "group"


ZygoteOrder = RankOrder | GroupOrder


@dataclass(frozen=True, kw_only=True)
class GroupFrozen:
    """The group's processes have stopped, as GroupOrder `number` wanted. `running` counts those that had not after some
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


@dataclass(frozen=True, kw_only=True)
class NodeAnswered:
    """That node's answer to the GroupOrder `number`. `is_stopped`: a process that its ranks are forked from is."""

    node: int
    number: int
    is_stopped: bool
    type: Literal["answered"] = "answered"


ZygoteMessage = Confined | Started | RankExited | GroupFrozen | NodeLost | NodeAnswered


def order_of(data: bytes) -> ZygoteOrder:
    return decode(cast("type[ZygoteOrder]", ZygoteOrder), json.loads(data))


def message_of(data: bytes) -> ZygoteMessage:
    return decode(cast("type[ZygoteMessage]", ZygoteMessage), json.loads(data))
