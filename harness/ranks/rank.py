"""The parent's end of one rank: its socket, its log, the replies that have come and not been asked for yet."""

import socket
from collections import deque

from harness.ranks import wire
from harness.ranks.logs import READ_BYTES, Log


class Rank:
    """The parent's end of one rank."""

    def __init__(self, role: wire.Role, rank: int) -> None:
        self.role, self.rank, self.pid = role, rank, 0
        self.sock, self.their_sock = socket.socketpair()
        self.sock.setblocking(False)
        self.log = Log()
        self.parser = wire.Parser()
        self.inbox: deque[wire.Reply] = deque()
        self.gone = ""  # why nothing more will come from it

    def read(self) -> bool:
        """Takes the replies that are there; False at the end of them."""
        try:
            data = self.sock.recv(READ_BYTES)
            self.inbox += self.parser.feed(data)
        except BlockingIOError:
            return True
        except ConnectionError:
            return False
        except wire.ProtocolError as error:
            self.gone = f"sent something that is no reply ({str(error)[:300]})"
            return False
        return bool(data)
