"""A node's agent: starts the ranks of one evaluation that run here, and carries what they and the parent say.

It has zygotes of its own, to which it is what the parent is elsewhere: ranks are confined, frozen and ended as on one
machine. It ends with the evaluation, and everything below it.
"""

import contextlib
import io
import json
import os
import socket
import tarfile
from dataclasses import replace
from functools import partial
from pathlib import Path

from harness.core.decode import decode, encode
from harness.core.errors import HarnessError
from harness.core.files import new_folder, remove
from harness.nodes.frames import Frame, FrameKind, PeerGoneError
from harness.nodes.relay import PACKET_BYTES, Relay, number_of
from harness.process import sandbox
from harness.process.link import INTERFACE, interface_of
from harness.ranks import wire
from harness.ranks.barrier import Barrier, make_barrier
from harness.ranks.zygote_messages import MAX_MESSAGE_BYTES, Confined, NodeAnswered, order_of
from harness.ranks.zygotes import GROUPS, Zygotes

ADDRESSES = "10.77.0.{}"  # in each group's own network, which nobody else is in: node 0 has 1
IPV4 = 4


class Agent(Relay):
    """The agent of number `node`, with its files below `folder`; `sock` leads to the hub, `master` is node 0."""

    def __init__(self, sock: socket.socket, node: int, master: str, folder: Path) -> None:
        super().__init__([sock])
        self.node, self.master, self.folder = node, master, folder
        self.interface = interface_of(sock.getsockname()[0])
        self.hub = self.peers[0]
        self.zygotes = Zygotes()
        self.links: dict[wire.GroupName, int] = {}  # descriptors of the groups' own networks
        self.barriers: dict[wire.GroupName, int] = {}
        self.bells: dict[wire.GroupName, int] = {}

    def heard(self, peer: object, frame: Frame) -> None:
        """Orders for the zygote, and what a rank needs to start."""
        if frame.kind == FrameKind.PACKET:
            with contextlib.suppress(OSError, KeyError):  # IP's packets may be lost
                os.write(self.links[GROUPS[frame.number]], frame.data)
        elif frame.kind == FrameKind.FOLDER:
            self.unpacked = frame.data  # the order follows at once
        else:
            order = order_of(frame.data)
            if isinstance(order, wire.RankOrder):
                self._start(order)
            elif order.what == "ask":
                answer = NodeAnswered(node=self.node, number=order.number, is_stopped=self.zygotes.is_stopped())
                self.hub.send(FrameKind.CONTROL, 0, json.dumps(encode(answer)).encode())
            else:
                self.zygotes.tell(order)

    def _start(self, order: wire.RankOrder) -> None:
        if not self.zygotes.processes:
            self.zygotes.start(self.folder, order.threads, log=2)
            for control in self.zygotes.each_control():
                self.watch_read(control, partial(self._on_zygote, control))
        if order.group not in self.barriers:
            self.barriers[order.group] = make_barrier(order.world_size)
            self.bells[order.group] = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            fds = self.barriers[order.group], order.world_size, order.spin, self.bells[order.group]
            self.add_page(order.group, Barrier(*fds))
        here = self._here(order)
        self._unpack(here.workdir)
        ours, channel = socket.socketpair()
        log, their_log = os.pipe()
        number = number_of(order.group, order.rank, order.world_size)
        end = self.add_rank(number, self.hub, ours, log, writes_log=False)
        if order.group != "trusted":
            end.distrust()
        self.zygotes.tell(here, [channel.fileno(), their_log, self.barriers[order.group], self.bells[order.group]])
        channel.close()
        os.close(their_log)

    def _unpack(self, workdir: str) -> None:
        try:
            with tarfile.open(fileobj=io.BytesIO(self.unpacked)) as archive:
                archive.extractall(workdir, filter="data")
        except OSError as error:
            raise HarnessError(
                f"{workdir}: {error.strerror or error}; ranks have their files there. Make room, or set TMPDIR to "
                "another folder"
            ) from None

    def _here(self, order: wire.RankOrder) -> wire.RankOrder:
        """The order with this node's folders and network."""
        group, there = self.folder / order.group, Path(order.workdir).parents[1]
        network = wire.Network(master=self.master, interface=self.interface)
        if has_own_network(order.confined, order.device):
            own = ADDRESSES.format(self.node + 1)
            network = wire.Network(master=ADDRESSES.format(1), interface=INTERFACE, own=own)
        return replace(
            order,
            workdir=str(group / str(order.rank)),
            cache=str(group / "cache"),
            hidden=(*(path for path in order.hidden if path != str(there)), str(self.folder)),
            network=network,
        )

    def _on_zygote(self, control: socket.socket) -> None:
        message, fds, _, _ = socket.recv_fds(control, MAX_MESSAGE_BYTES, 1)
        if not message:
            raise EOFError
        if fds:
            self._open(decode(Confined, json.loads(message)).group, fds[0])
        self.hub.send(FrameKind.CONTROL, 0, message)

    def _open(self, group: wire.GroupName, link: int) -> None:
        """Opens the link of a group, from which the traffic of its ranks to other nodes is read."""
        self.links[group] = link
        os.set_blocking(link, False)
        self.watch_read(link, lambda: self._on_packet(GROUPS.index(group), link))

    def _on_packet(self, number: int, link: int) -> None:
        with contextlib.suppress(BlockingIOError):
            packet = os.read(link, PACKET_BYTES)
            if packet[:1] and packet[0] >> 4 == IPV4 and not self.hub.is_full:
                self.hub.send(FrameKind.PACKET, number, packet)


def has_own_network(confined: bool, device: str) -> bool:
    """Whether ranks have no network but their group's; see Sandbox.enter."""
    return confined and device != "rocm"


def can_link() -> bool:
    """Whether groups can have networks of their own here."""
    tried = sandbox.Sandbox(folder=Path("/"), cache=Path("/"), device="cpu", link=ADDRESSES.format(1))
    return sandbox.has_namespaces(tried)


def serve(sock: socket.socket, node: int, master: str) -> None:
    """Takes part in one evaluation, to its end. Raises HarnessError where this node is what ended it."""
    folder = new_folder("kernel-eval-")
    sandbox.hide(True)
    agent = Agent(sock, node, master, folder)
    try:
        agent.run()
    except PeerGoneError:
        pass  # the evaluation is done
    except (EOFError, BrokenPipeError, ConnectionResetError):
        raise HarnessError("the process that ranks are forked from ended; is the machine out of memory?") from None
    finally:
        agent.zygotes.stop()
        sock.close()
        sandbox.hide(False)
        remove(folder)
