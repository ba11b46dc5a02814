"""The process that does the zygote's job for ranks on nodes: `python -m harness.nodes.hub FD FOLDER SOCKET...`.

The parent starts it with the zygote's socket (FD) and folder, and a connection to each node's agent. An order for a
rank goes to the rank's node, with what is in its working folder; an order for a group goes to all. A node that is lost
ends the evaluation, and so does the hub's own end.
"""

import io
import json
import os
import signal
import socket
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

from harness.core.decode import encode
from harness.core.files import remove
from harness.nodes.frames import Frame, FrameKind, Peer, PeerGoneError, has_ended
from harness.nodes.relay import Relay, number_of
from harness.process.sandbox import hide
from harness.ranks import wire, zygote_messages
from harness.ranks.barrier import Barrier
from harness.ranks.zygote_messages import FDS, MAX_MESSAGE_BYTES, ZygoteMessage

PID_BITS = 22  # of a process id: PID_MAX_LIMIT, linux/threads.h
NODE_AT = 19  # in an IPv4 packet: the last byte of its destination, which is the node's number from 1


class Hub(Relay):
    """`control` is the parent's, `sockets` are the nodes', in their order."""

    def __init__(self, control: socket.socket, sockets: list[socket.socket]) -> None:
        super().__init__(sockets)
        self.control = control
        # What nodes answered to each Freeze so far.
        self.frozen: dict[tuple[wire.GroupName, int], list[zygote_messages.GroupFrozen]] = {}
        self.watch_read(control, self._on_control)

    def _on_control(self) -> None:
        message, fds, _, _ = socket.recv_fds(self.control, MAX_MESSAGE_BYTES, len(FDS))
        if not message:
            raise EOFError
        order = zygote_messages.order_of(message)
        if not isinstance(order, wire.RankOrder):
            for peer in self.peers:
                peer.send(FrameKind.CONTROL, 0, message)
            return
        peer, number = self.peers[order.rank // order.local_size], number_of(order.group, order.rank, order.world_size)
        self._add(order, number, peer, dict(zip(FDS, fds, strict=True)))
        peer.send(FrameKind.FOLDER, number, _archive(Path(order.workdir)))
        peer.send(FrameKind.CONTROL, number, message)

    def _add(self, order: wire.RankOrder, number: int, peer: Peer, fds: dict[str, int]) -> None:
        self.add_rank(number, peer, socket.socket(fileno=fds["channel"]), fds["log"], writes_log=True)
        if order.group in self.pages:
            os.close(fds["bell"])
        else:
            self.add_page(order.group, Barrier(fds["barrier"], order.world_size, order.spin, fds["bell"]))
        os.close(fds["barrier"])

    def heard(self, peer: Peer, frame: Frame) -> None:
        """Packets go to their node, and what a zygote says to the parent."""
        if frame.kind == FrameKind.PACKET:
            node = frame.data[NODE_AT] - 1 if len(frame.data) > NODE_AT else -1
            if 0 <= node < len(self.peers) and not self.peers[node].is_full:  # IP's packets may be lost
                self.peers[node].send(FrameKind.PACKET, frame.number, frame.data)
            return
        message = zygote_messages.message_of(frame.data)
        if isinstance(message, zygote_messages.Started | zygote_messages.RankExited):  # nodes may have the same pids
            message = replace(message, pid=self.peers.index(peer) << PID_BITS | message.pid)
        if isinstance(message, zygote_messages.GroupFrozen):
            answers = self.frozen.setdefault((message.group, message.number), [])
            answers.append(message)
            if len(answers) < len(self.peers):
                return
            del self.frozen[message.group, message.number]
            ran = next((answer.ran for answer in answers if answer.ran), "")
            message = replace(message, running=sum(answer.running for answer in answers), ran=ran)
        self.tell(message)

    def tell(self, message: ZygoteMessage) -> None:
        self.control.send(json.dumps(encode(message)).encode())

    def lost(self) -> zygote_messages.NodeLost:
        """The error that names the node whose connection has ended."""
        gone = [node for node, peer in enumerate(self.peers) if has_ended(peer.sock)]
        which = f"node {gone[0]}" if gone else "a node"
        return zygote_messages.NodeLost(
            why=f"{which} was lost in the middle of the evaluation: its agent ended, or the network between did; "
            "what the agent printed there says more. Nothing is recorded; evaluate again"
        )


def _archive(folder: Path) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(folder, arcname=".")
    return packed.getvalue()


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    hide(True)
    hub = Hub(control, [socket.socket(fileno=int(fd)) for fd in sys.argv[3:]])
    try:
        hub.run()
    except PeerGoneError:
        hub.tell(hub.lost())
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # the parent is done, or gone
    finally:
        remove(Path(sys.argv[2]))  # the parent would, but nothing stops a kill of it


if __name__ == "__main__":
    main()
