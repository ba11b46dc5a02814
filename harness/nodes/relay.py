"""What the hub and an agent have in common: one loop that carries what ranks and the parent send each other.

Each has a near end of every rank: its channel, its log, its group's barrier page. What comes out of one of these goes
to the far end as frames, and the other way round. Files go by their content and are made anew, sealed. Pages are kept
alike: see Page. Nothing that ranks say is looked at. Of what the parent says to an untrusted rank, the limit of its
outputs is, as its files are read into this process.
"""

import contextlib
import fcntl
import os
import selectors
import socket
import struct
from collections.abc import Callable, Sequence

from harness.nodes.frames import Frame, FrameKind, Outbox, Peer
from harness.ranks import wire
from harness.ranks.barrier import Barrier
from harness.ranks.channel import MessageParser
from harness.ranks.zygotes import GROUPS

READ_BYTES = 1 << 17
PACKET_BYTES = 1 << 16
WORD = struct.Struct(">Hq")  # its place in the page, and its value
LOST_LOG_BYTES = 1 << 20  # unsent, from which on more of a log is not kept
MORE_BYTES = 1 << 20  # that a file may have beyond its output: alignment and description


def number_of(group: wire.GroupName, rank: int, world_size: int) -> int:
    return GROUPS.index(group) * world_size + rank


class BarrierPage:
    """A near barrier page and, of each far one, the words that it is known to have."""

    def __init__(self, barrier: Barrier, peers: Sequence[Peer]) -> None:
        self.barrier = barrier
        self.known = {peer: [0] * len(barrier.words) for peer in peers}

    def merge(self, peer: Peer, data: bytes) -> None:
        """Takes in the words that have changed on the far page."""
        changes = list(WORD.iter_unpack(data))
        for word, value in changes:
            self.known[peer][word] = value
        self.barrier.merge(changes)

    def changes_for(self, peer: Peer) -> bytes:
        """The words that have changed here and that the far page lacks; they count as known there from now on."""
        known = self.known[peer]
        changed = [(word, value) for word, value in enumerate(self.barrier.words) if value != known[word]]
        for word, value in changed:
            known[word] = value
        return b"".join(WORD.pack(word, value) for word, value in changed)


class RankEnd:
    """The near end of one rank, behind `peer`: its channel, and the log that is written to (hub) or read (agent)."""

    def __init__(self, number: int, peer: Peer, channel: socket.socket, writer: Outbox, log: Outbox | None) -> None:
        self.number, self.peer, self.channel, self.writer, self.log = number, peer, channel, writer, log
        self.files: list[int] = []  # that go with the next bytes
        self.commands: MessageParser | None = None  # of those that an untrusted rank gets
        self.most_bytes: int | None = None  # that are read of a file of its

    def distrust(self) -> None:
        """From now on its files are read up to the limit of outputs in the last command that has one."""
        self.commands, self.most_bytes = MessageParser(wire.Command), MORE_BYTES

    def send(self, data: bytes) -> None:
        """Passes on the bytes that the far end sent, with the files before them."""
        files, self.files = self.files, []
        self.writer.write(data, files)
        for command in self.commands.feed(data) if self.commands else ():
            if isinstance(command, wire.Call | wire.LoadInputs) and command.output_limit:
                self.most_bytes = command.output_limit + MORE_BYTES


class Relay:
    """Moves frames between far and near ends; CONTROL, FOLDER and PACKET frames are the hub's and the agent's."""

    def __init__(self, sockets: Sequence[socket.socket]) -> None:
        self.selector = selectors.DefaultSelector()
        self.peers = [Peer(sock, lambda peer, wants: self._modify(peer.fd, wants)) for sock in sockets]
        self.ends: dict[int, RankEnd] = {}
        self.pages: dict[wire.GroupName, BarrierPage] = {}
        for peer in self.peers:
            self.selector.register(peer.sock, selectors.EVENT_READ, lambda mask, peer=peer: self._on_peer(peer, mask))

    def run(self) -> None:
        """Carries everything until a connection ends, which PeerGoneError, EOFError or an end of a process tells."""
        while True:
            for key, mask in self.selector.select():
                key.data(mask)

    def heard(self, peer: Peer, frame: Frame) -> None:
        """A frame that is not the relay's own."""
        raise NotImplementedError

    # ---- what is watched

    def watch_read(self, source: int | socket.socket, read: Callable[[], None]) -> None:
        """From now on `read` is called when something can be read there."""
        self.selector.register(source, selectors.EVENT_READ, lambda mask: read())

    def add_rank(self, number: int, peer: Peer, channel: socket.socket, log: int, writes_log: bool) -> RankEnd:
        """The near end of a rank. Its log is written to, or else read."""
        writer = Outbox(channel.fileno(), self._watch_channel, channel)
        end = RankEnd(number, peer, channel, writer, Outbox(log, self._watch_log) if writes_log else None)
        self.ends[number] = end
        self.selector.register(channel, selectors.EVENT_READ, lambda mask: self._on_channel(end, mask))
        if not writes_log:
            os.set_blocking(log, False)
            self.watch_read(log, lambda: self._on_log(end, log))
        return end

    def add_page(self, group: wire.GroupName, barrier: Barrier) -> None:
        """The near page of a group, which has a bell."""
        assert barrier.bell is not None
        bell = barrier.bell
        self.pages[group] = BarrierPage(barrier, self.peers)
        self.watch_read(bell, lambda: self._on_bell(group, bell))

    def _watch_channel(self, writer: Outbox, wants_write: bool) -> None:
        with contextlib.suppress(KeyError):  # closed meanwhile
            self._modify(writer.fd, wants_write)

    def _watch_log(self, writer: Outbox, wants_write: bool) -> None:
        if wants_write:
            self.selector.register(writer.fd, selectors.EVENT_WRITE, lambda mask: writer.write_more())
        else:
            self.selector.unregister(writer.fd)

    def _modify(self, source: int | socket.socket, wants_write: bool) -> None:
        key = self.selector.get_key(source)
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if wants_write else 0)
        self.selector.modify(source, events, key.data)

    # ---- what happens

    def _on_peer(self, peer: Peer, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            peer.write_more()
        if mask & selectors.EVENT_READ:
            for frame in peer.receive():
                self._on_frame(peer, frame)

    def _on_frame(self, peer: Peer, frame: Frame) -> None:
        if frame.kind == FrameKind.WORDS:
            group = GROUPS[frame.number]
            self.pages[group].merge(peer, frame.data)
            self._tell_pages(group)
        elif frame.kind in (FrameKind.CONTROL, FrameKind.FOLDER, FrameKind.PACKET):
            self.heard(peer, frame)
        elif (end := self.ends.get(frame.number)) is not None:
            self._on_rank(end, frame)

    def _on_rank(self, end: RankEnd, frame: Frame) -> None:
        """Handles bytes that the far end of a rank sent."""
        if frame.kind == FrameKind.STREAM:
            end.send(frame.data)
        elif frame.kind in (FrameKind.FILE, FrameKind.UNSEALED):
            end.files.append(made_file(frame.data, frame.kind == FrameKind.FILE))
        elif frame.kind == FrameKind.LOG and end.log is not None and end.log.unsent_bytes < LOST_LOG_BYTES:
            end.log.write(frame.data)
        elif frame.kind == FrameKind.CLOSED:
            with contextlib.suppress(OSError):
                end.channel.shutdown(socket.SHUT_WR)

    def _on_channel(self, end: RankEnd, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            end.writer.write_more()
        if not mask & selectors.EVENT_READ:
            return
        try:
            data, fds, _, _ = socket.recv_fds(end.channel, READ_BYTES, wire.MAX_FILES)
        except BlockingIOError:
            return
        except OSError:
            data, fds = b"", []
        for fd in fds:
            content = content_of(fd, end.most_bytes)
            end.peer.send(FrameKind.UNSEALED if content is None else FrameKind.FILE, end.number, content or b"")
            os.close(fd)
        end.peer.send(FrameKind.STREAM if data else FrameKind.CLOSED, end.number, data)
        if not data:
            self.selector.unregister(end.channel)

    def _on_log(self, end: RankEnd, log: int) -> None:
        data = os.read(log, READ_BYTES)
        if not data:
            self.selector.unregister(log)
        elif not end.peer.is_full:
            end.peer.send(FrameKind.LOG, end.number, data)

    def _on_bell(self, group: wire.GroupName, bell: int) -> None:
        with contextlib.suppress(BlockingIOError):  # a rank may have taken it
            os.eventfd_read(bell)
        self._tell_pages(group)

    def _tell_pages(self, group: wire.GroupName) -> None:
        page = self.pages[group]
        for peer in self.peers:
            if changes := page.changes_for(peer):
                peer.send(FrameKind.WORDS, GROUPS.index(group), changes)


def content_of(fd: int, most_bytes: int | None = None) -> bytes | None:
    """The bytes of a sealed file; None for a file that could still change, or is no regular file. Of a larger file the
    first `most_bytes`: its description does not fit then, and the output is wrong."""
    try:
        if fcntl.fcntl(fd, fcntl.F_GET_SEALS) & wire.SEALS != wire.SEALS:
            return None
    except OSError:
        return None
    parts, size, at = [], os.fstat(fd).st_size, 0
    size = size if most_bytes is None else min(size, most_bytes)
    while at < size:
        parts.append(os.pread(fd, min(size - at, 1 << 30), at))
        at += len(parts[-1])
    return b"".join(parts)


def made_file(content: bytes, is_sealed: bool) -> int:
    """A file with that content, in memory, as its far end was."""
    fd = os.memfd_create("carried", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view[: 1 << 30]) :]
    if is_sealed:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, wire.SEALS)
    return fd
