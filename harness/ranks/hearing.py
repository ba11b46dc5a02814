"""What the parent hears of ranks and of the processes that they are forked from: replies, printed text, ends.

One selector for all of it, see ranks.launch. Knows nothing of how processes are started and ended.
"""

import contextlib
import json
import os
import selectors
import socket
from typing import cast

from harness.core.decode import decode
from harness.core.errors import HarnessError
from harness.ranks import wire
from harness.ranks.logs import Log
from harness.ranks.rank import Rank
from harness.ranks.zygote_messages import (
    MAX_MESSAGE_BYTES,
    Confined,
    Exited,
    Frozen,
    NodeLost,
    Retired,
    ZygoteMessage,
)
from harness.ranks.zygotes import ROLES

ENDED = "ended with the process that ranks are forked from"


def log_name(role: wire.Role, rank: int) -> str:
    """What a report calls the log of a rank."""
    return f"{role} rank {rank}"


class Hearing:
    """The ranks of all groups, and what has come from them. `frozen` has the groups that do not run, each by the number
    of its last Freeze, and `freezing` those of them that have not answered yet. `retired`: groups of which no process
    is left. `lacking`: what this kernel does not give to confine ranks with. `is_lost`: a zygote has ended."""

    def __init__(self, world_size: int) -> None:
        self.ranks = {role: [Rank(role, rank) for rank in range(world_size)] for role in ROLES}
        self.by_pid: dict[int, Rank] = {}
        self.frozen: dict[wire.Role, int] = {}
        self.freezing: dict[wire.Role, int] = {}
        self.retired: set[wire.Role] = set()
        self.lacking: list[str] = []
        self.is_lost = False
        self.log = Log()
        self.selector = selectors.DefaultSelector()
        self.watch(self.log.fd, self.log.read)
        for rank in self.all_ranks():
            self.watch_rank(rank)

    def all_ranks(self) -> list[Rank]:
        return [rank for role in ROLES for rank in self.ranks[role]]

    def logs(self) -> dict[str, str]:
        """What each rank printed (the end of it), where it printed anything."""
        return {log_name(rank.role, rank.rank): rank.log.text() for rank in self.all_ranks() if rank.log.tail}

    def poll(self, timeout_s: float) -> None:
        """Takes in whatever has arrived, waiting at most `timeout_s` for something."""
        for key, _ in self.selector.select(min(max(0.0, timeout_s), 3600.0)):
            if not key.data():  # it has come to its end
                self.selector.unregister(key.fileobj)

    def watch(self, source: int | socket.socket, read: object) -> None:
        """`poll` calls `read` when there is something to read; it returns False at the end."""
        self.selector.register(source, selectors.EVENT_READ, read)

    def watch_rank(self, rank: Rank) -> None:
        """Hears a rank that is about to start."""
        self.watch(rank.sock, rank.read)
        self.watch(rank.log.fd, rank.log.read)

    def forget(self, rank: Rank) -> None:
        """Hears nothing more of a rank that has ended, and closes what it had."""
        self.by_pid.pop(rank.pid, None)
        for source in (rank.sock, rank.log.fd):
            with contextlib.suppress(KeyError):  # it has come to its end
                self.selector.unregister(source)
        for fd in rank.take_files():
            os.close(fd)
        rank.sock.close()
        os.close(rank.log.fd)

    def read_control(self, control: socket.socket) -> bool:
        """Takes in a message of a zygote; False at its end. Raises HarnessError where a node is lost."""
        try:
            data = control.recv(MAX_MESSAGE_BYTES)
        except ConnectionError:
            data = b""
        if not data:
            self.is_lost = True
            for rank in self.all_ranks():
                rank.gone = rank.gone or ENDED
            return False
        message: ZygoteMessage = decode(cast("type[ZygoteMessage]", ZygoteMessage), json.loads(data))
        if isinstance(message, NodeLost):
            raise HarnessError(message.why)
        if isinstance(message, Confined):
            self.lacking += [text for text in message.lacking if text not in self.lacking]
        elif isinstance(message, Frozen):
            rank = self.ranks[message.role][0]
            if message.running:
                rank.gone = rank.gone or f"left {message.running} processes that do not stop while it is not timed"
            elif message.ran:
                rank.gone = rank.gone or f"ran while not on turn: the {message.role} {message.ran} while it was stopped"
            if self.freezing.get(message.role) == message.number:
                del self.freezing[message.role]
        elif isinstance(message, Retired):
            self.retired.add(message.role)
        elif isinstance(message, Exited):
            self.by_pid[message.pid].exited(message.code)
        else:
            rank = self.ranks[message.role][message.rank]
            rank.pid = message.pid
            self.by_pid[message.pid] = rank
        return True
