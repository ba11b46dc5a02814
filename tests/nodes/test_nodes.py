"""Ranks on several nodes: how nodes meet, what is carried between them, and their clock. Nodes are played."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import COMMAND
from hypothesis import given, settings
from hypothesis import strategies as st
from places import ROOT
from waiting import in_time

from harness.cli import agent as agent_verb
from harness.cli.agent import AgentOrder
from harness.core.checkout import Checkout
from harness.core.decode import decode, encode
from harness.core.errors import HarnessError, UsageError
from harness.kinds.kind import Order, Progress
from harness.kinds.op.kind import OpSession
from harness.kinds.registry import kind_of, read_submission
from harness.kinds.settings import Asked, setting
from harness.nodes import meeting, start
from harness.nodes.agent import Agent
from harness.nodes.frames import HEAD, KEPT_ALIVE, Frame, FrameKind, Outbox, Peer, PeerGoneError
from harness.nodes.hub import Hub, _archive
from harness.nodes.relay import MORE_BYTES, BarrierPage, RankEnd, content_of, made_file
from harness.nodes.traits import traits
from harness.ranks import channel, launch, node_clock
from harness.ranks.barrier import FINISHED, RELEASED, Barrier, make_barrier
from harness.ranks.shared_buffer import sealed_file
from harness.ranks.wire import Call, CallSample
from harness.ranks.witness import wall_us
from harness.ranks.zygote_messages import GroupFrozen, NodeAnswered, message_of
from harness.ranks.zygotes import Zygotes

RANKS, NODES, LOCAL = 4, 2, 2


# ---- the clock -------------------------------------------------------------------------------------------------------


def samples(*times: tuple[int, int]) -> list[CallSample]:
    return [CallSample(start_ns=start, end_ns=end, device_us=None, output=None) for start, end in times]


@settings(max_examples=50)
@given(
    skew_ns=st.integers(0, 50_000),
    shift_ns=st.integers(-(10**15), 10**15),
    ends_ns=st.lists(st.integers(100_000, 10_000_000), min_size=RANKS, max_size=RANKS),
)
def test_the_clock_of_nodes_is_that_of_one_host_but_for_their_skew(
    skew_ns: int, shift_ns: int, ends_ns: list[int]
) -> None:
    """Whatever the other node's clock reads."""
    zero = 2 * 10**15
    starts = [zero, zero + 10, zero + skew_ns, zero + skew_ns + 10]
    one_host = samples(*((start, zero + end) for start, end in zip(starts, ends_ns, strict=True)))
    two = one_host[:LOCAL] + [
        replace(call, start_ns=call.start_ns + shift_ns, end_ns=call.end_ns + shift_ns) for call in one_host[LOCAL:]
    ]
    (moved,) = node_clock.aligned([two], NODES, [77_000])
    assert min(call.start_ns for call in moved) == 77_000
    less_ns = round(1000 * (wall_us(one_host) - wall_us(moved)))
    assert 0 <= less_ns <= skew_ns


def test_a_rank_gains_nothing_by_times_that_no_clock_has() -> None:
    """They stay times, and a call that seems to take for ever is as long as it claims."""
    (moved,) = node_clock.aligned([samples((5, 2**63 - 1), (5, 9), (3, 7), (3, 8))], NODES, [10**9])
    assert moved[0].end_ns == 2**63 - 1
    assert wall_us(moved) > 10**15


# ---- a barrier in several pages --------------------------------------------------------------------------------------


class Pages:
    """The hub's page and each node's, and what carries words between them, step by step."""

    def __init__(self) -> None:
        self.hub_end, *self.nodes = (self._barrier() for _ in range(1 + NODES))
        self.names = [object() for _ in range(NODES)]
        self.hub = BarrierPage(self.hub_end, self.names)  # type: ignore[arg-type]
        self.ends = [BarrierPage(barrier, [self.names[0]]) for barrier in self.nodes]  # type: ignore[list-item]

    def _barrier(self) -> Barrier:
        fd = make_barrier(RANKS)
        barrier = Barrier(fd, RANKS, spin=True, bell=os.eventfd(0, os.EFD_NONBLOCK))
        os.close(fd)
        return barrier

    def carry(self, node: int) -> None:
        """What one node has to say to the hub, and then the hub to all."""
        hub_name = self.names[0]
        self.hub.merge(self.names[node], self.ends[node].changes_for(hub_name))  # type: ignore[arg-type]
        for name, end in zip(self.names, self.ends, strict=True):
            end.merge(hub_name, self.hub.changes_for(name))  # type: ignore[arg-type]

    def mark(self, rank: int, epoch: int, mark: int) -> None:
        """As a rank does that has come (0) or finished (1)."""
        barrier = self.nodes[rank // LOCAL]
        barrier.words[barrier.marks[rank] + mark] = epoch


def test_ranks_of_all_nodes_leave_a_barrier_when_the_last_has_come() -> None:
    pages = Pages()
    for epoch in (1, 2):
        for mark, word in ((0, RELEASED), (1, FINISHED)):
            for rank in (2, 0, 3, 1):
                assert all(barrier.words[word] == epoch - 1 for barrier in (pages.hub_end, *pages.nodes))
                pages.mark(rank, epoch, mark)
                pages.carry(rank // LOCAL)
            assert all(barrier.words[word] == epoch for barrier in (pages.hub_end, *pages.nodes))
        assert pages.hub_end.finished(epoch) == [0, 1, 2, 3]


def test_a_key_and_a_release_of_the_parent_reach_each_node() -> None:
    """A later key is not a larger number."""
    pages = Pages()
    for epoch, key in ((1, 900), (2, 5)):
        pages.hub_end.tell([3], epoch, key)
        pages.hub_end.release(epoch)
        pages.carry(0)
        assert pages.nodes[1].key(3, epoch) == key
        pages.nodes[0].wait(epoch)
    assert os.eventfd_read(pages.hub_end.bell) > 0  # type: ignore[arg-type]


# ---- frames and files ------------------------------------------------------------------------------------------------


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    pair = socket.socketpair()
    yield pair
    for end in pair:
        end.close()


@pytest.fixture
def tcp() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
    with near, far:
        yield near, far


def test_frames_come_whole_in_order_however_much_is_sent(tcp: tuple[socket.socket, socket.socket]) -> None:
    waiting: list[bool] = []
    near, far = (Peer(sock, lambda peer, wants: waiting.append(wants)) for sock in tcp)
    sent = [(FrameKind.STREAM, 3, b""), (FrameKind.FILE, 1, b"x" * (20 << 20)), (FrameKind.LOG, 65535, b"end")]
    for frame in sent:
        near.send(*frame)
    assert near.is_full
    came = []
    while len(came) < len(sent):
        came += [(frame.kind, frame.number, frame.data) for frame in far.receive()]
        near.write_more()
    assert came == sent
    assert (waiting[0], waiting[-1], near.is_full) == (True, False, False)


@pytest.mark.parametrize("data", [HEAD.pack(250, 0, 0), b""])
def test_what_is_no_frame_ends_the_connection(tcp: tuple[socket.socket, socket.socket], data: bytes) -> None:
    near, far = tcp
    near.sendall(data)
    near.shutdown(socket.SHUT_WR)
    with pytest.raises(PeerGoneError):
        list(Peer(far, lambda peer, wants: None).receive())


def test_a_host_that_is_lost_without_a_word_is_noticed(tcp: tuple[socket.socket, socket.socket]) -> None:
    """By the kernel: no program's word comes from it. Else the ranks on the other side would stay for ever."""
    for sock in tcp:
        Peer(sock, lambda peer, wants: None)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        silent_s, between_s, count, unacknowledged_ms = (sock.getsockopt(socket.IPPROTO_TCP, one) for one in KEPT_ALIVE)
        assert silent_s + count * between_s == unacknowledged_ms / 1000 == 60


def test_a_file_is_carried_by_its_content_and_only_if_it_is_final() -> None:
    """One that can still change, or a descriptor that is no file, is not: the parent is to see that it is none."""
    sealed, _ = sealed_file("one", lambda buffer: os.pwrite(buffer.fd, b"content", 0))
    assert content_of(sealed) == b"content"
    assert content_of(made_file(b"content", is_sealed=True)) == b"content"
    assert content_of(made_file(b"content", is_sealed=False)) is None
    assert content_of(os.pipe()[0]) is None


def test_of_an_untrusted_ranks_file_no_more_is_read_than_the_calls_output_may_have() -> None:
    """An agent is not confined, and a file with holes takes no memory of its maker's."""
    ours, theirs = socket.socketpair()
    end = RankEnd(0, None, ours, Outbox(ours.fileno(), lambda writer, wants: None, ours), None)  # type: ignore[arg-type]
    end.distrust()
    file, _ = sealed_file("holes", lambda buffer: os.truncate(buffer.fd, 1 << 40))
    for limit in (5000, 0, 7000):  # 0: the call has none of its own, and the last one's holds
        end.send(channel.frame(Call(indices=(0,), epoch=1, clock="wall", output_limit=limit)))
        content = content_of(file, end.most_bytes)
        assert content is not None
        assert len(content) == (limit or 5000) + MORE_BYTES
    for sock in (ours, theirs):
        sock.close()


def test_a_group_is_frozen_when_it_is_on_every_node_and_ran_when_it_did_on_one(
    tcp: tuple[socket.socket, socket.socket],
) -> None:
    control, parent = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    hub = Hub(control, list(tcp))
    parent.setblocking(False)
    for peer, ran in zip(hub.peers, ("", "started a process"), strict=True):
        with pytest.raises(BlockingIOError):
            parent.recv(1 << 16)
        frozen = GroupFrozen(group="second", number=3, running=1, ran=ran)
        hub.heard(peer, Frame(FrameKind.CONTROL, 0, json.dumps(encode(frozen)).encode()))
    told = decode(GroupFrozen, json.loads(parent.recv(1 << 16)))
    assert told == GroupFrozen(group="second", number=3, running=2, ran="started a process")
    for sock in (control, parent):
        sock.close()


def test_a_node_that_is_stopped_or_cut_off_is_named_before_a_rank_is_blamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank there says nothing then, as one that hangs."""
    monkeypatch.setattr(launch, "ANSWER_S", 0.1)
    control, parent = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with contextlib.ExitStack() as closing, socket.create_server(("127.0.0.1", 0)) as listener:
        for sock in (control, parent):
            closing.enter_context(sock)
        near = [closing.enter_context(socket.create_connection(listener.getsockname())) for _ in range(NODES)]
        far = [closing.enter_context(listener.accept()[0]) for _ in range(NODES)]
        hub = Hub(control, near)
        agents = [Agent(sock, node, "127.0.0.1", tmp_path) for node, sock in enumerate(far)]
        zygotes = Zygotes()
        zygotes.controls["trusted"] = parent
        questions = launch.Questions(NODES)
        working = [agents[0]]

        def poll(seconds: float) -> None:
            """What hub, agents and parent do meanwhile."""
            parent.settimeout(0.01)
            with contextlib.suppress(BlockingIOError):
                control.setblocking(False)
                hub._on_control()
            for relay in (*working, hub):
                for peer in relay.peers:
                    for frame in peer.receive():
                        relay.heard(peer, frame)
            with contextlib.suppress(TimeoutError):
                answer = message_of(parent.recv(1 << 16))
                assert isinstance(answer, NodeAnswered)
                questions.heard(answer)

        with pytest.raises(HarnessError, match=r"node 1 did not answer for 0 s: its agent was stopped"):
            questions.ask(zygotes, poll)
        working.append(agents[1])  # it goes on, with the first question
        monkeypatch.setattr(launch, "ANSWER_S", WAIT_S)
        questions.ask(zygotes, poll)
        monkeypatch.setattr(agents[0].zygotes, "is_stopped", lambda: True)
        with pytest.raises(HarnessError, match=r"node 0: the process that ranks are forked from did not answer"):
            questions.ask(zygotes, poll)
        zygotes.log.close()


# ---- how nodes meet --------------------------------------------------------------------------------------------------

TOKEN = "of this evaluation"
WAIT_S = 60.0  # for what happens at once


class Node:
    """An agent in a thread of its own, as far as the meeting."""

    def __init__(self, port: int, number: int, token: str = TOKEN, has_link: bool = True) -> None:
        self.found: object = None
        self.thread = threading.Thread(target=self._run, args=(port, number, token, has_link), daemon=True)
        self.thread.start()

    def _run(self, port: int, number: int, token: str, has_link: bool) -> None:
        try:
            sock = meeting.connected("127.0.0.1", port, WAIT_S)
            self.found = meeting.agreed(sock, number, token, has_link, WAIT_S)
        except HarnessError as error:
            self.found = error

    def result(self) -> object:
        self.thread.join(2 * WAIT_S)
        return self.found


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        yield sock


def gather(listener: socket.socket, wait_s: float = WAIT_S, look: Callable[[], None] = lambda: None) -> int:
    return len(meeting.gathered(listener, NODES, TOKEN, confined=True, look=look, wait_s=wait_s))


def test_nodes_meet_in_any_order_and_who_does_not_know_the_token_is_nobody(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    stranger = Node(port, 0, token="another")
    nodes = [Node(port, number) for number in (1, 0)]
    assert gather(listener) == NODES
    assert [node.result() for node in nodes] == ["127.0.0.1", "127.0.0.1"]
    assert "KERNEL_EVAL_TOKEN" in str(stranger.result())


def said(message: dict[str, object]) -> bytes:
    data = json.dumps(message).encode()
    return meeting.LENGTH.pack(len(data)) + data


HELLO: dict[str, object] = {"type": "hello", "node": 0, "number": "1", "has_link": True}


@pytest.mark.parametrize(
    "words",
    [
        b"",  # and it stays
        meeting.LENGTH.pack(5000) + b"{",  # it goes on, but slowly
        meeting.LENGTH.pack(60_000) + b"[" * 60_000,
        said({**HELLO, "answer": "\u00e9", "traits": encode(traits())}),
        b"GET / HTTP/1.0\r\n\r\n",
    ],
    ids=["silent", "slow", "deep", "no ASCII", "another protocol"],
)
def test_strangers_neither_end_nor_delay_the_meeting(listener: socket.socket, words: bytes) -> None:
    port = listener.getsockname()[1]
    with contextlib.ExitStack() as strangers:
        for _ in range(2):
            strangers.enter_context(socket.create_connection(("127.0.0.1", port))).sendall(words)
        nodes = [Node(port, number) for number in range(NODES)]
        assert gather(listener) == NODES
        assert [node.result() for node in nodes] == ["127.0.0.1"] * NODES


def test_the_meeting_ends_in_time_however_slowly_a_stranger_speaks(listener: socket.socket) -> None:
    """And the error says who came."""
    over = threading.Event()
    with socket.create_connection(listener.getsockname()) as slow, contextlib.suppress(OSError):
        slow.sendall(meeting.LENGTH.pack(5000))

        def speak() -> None:
            with contextlib.suppress(OSError):
                while not over.wait(0.05):
                    slow.sendall(b" ")

        threading.Thread(target=speak, daemon=True).start()
        stranger = Node(listener.getsockname()[1], 0, token="another")
        try:
            with pytest.raises(HarnessError, match=r"turned away: 127\.0\.0\.1 has another KERNEL_EVAL_TOKEN"):
                gather(listener, 2.0)
        finally:
            over.set()
        assert "KERNEL_EVAL_TOKEN" in str(stranger.result())


def test_an_agent_that_ended_while_others_were_waited_for_may_come_again(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    with socket.create_connection(("127.0.0.1", port)) as first:
        nodes: list[Node] = []

        def look() -> None:  # called before anybody is let in, and then after the first is
            if len(asked) == 1:
                challenge = meeting.received(first, meeting.Challenge, WAIT_S)
                answer = meeting._answer(TOKEN, "agent", challenge.number)
                first.sendall(said({**HELLO, "answer": answer, "traits": encode(traits())}))
            elif len(asked) == 2:
                first.close()
                nodes.extend(Node(port, number) for number in range(NODES))
            asked.append(None)

        asked: list[None] = []
        assert gather(listener, look=look) == NODES
        assert [node.result() for node in nodes] == ["127.0.0.1"] * NODES


def test_an_agent_follows_nobody_who_does_not_know_the_token(listener: socket.socket) -> None:
    node = Node(listener.getsockname()[1], 0)
    sock, _ = listener.accept()
    with sock:
        sock.sendall(meeting.frame(meeting.Challenge(number="1")))
        meeting.received(sock, meeting.Hello, WAIT_S)
        sock.sendall(meeting.frame(meeting.Welcome(answer="0" * 64, master="127.0.0.1")))
        assert "has another KERNEL_EVAL_TOKEN" in str(node.result())


def test_a_node_of_another_class_or_version_is_refused_on_both_sides(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = traits()
    other = replace(here, torch="1.0", gpus=("NVIDIA H100",))
    turns = iter((other, here))  # the node says its own, then the parent looks at its own
    monkeypatch.setattr(meeting, "traits", lambda: next(turns))
    node = Node(listener.getsockname()[1], 1)
    with pytest.raises(UsageError, match=r"node 1 is not like this one.*torch: .* here, 1.0 there"):
        gather(listener)
    assert "NVIDIA H100" in str(node.result())


def test_a_node_that_cannot_confine_is_refused(listener: socket.socket) -> None:
    node = Node(listener.getsockname()[1], 0, has_link=False)
    with pytest.raises(UsageError, match="--unconfined leaves the sandbox out"):
        gather(listener)
    assert isinstance(node.result(), UsageError)


def test_two_nodes_of_one_number_are_refused(listener: socket.socket) -> None:
    nodes = [Node(listener.getsockname()[1], 1) for _ in range(2)]
    with pytest.raises(UsageError, match="node 1 is there already"):
        gather(listener)
    assert all(isinstance(node.result(), HarnessError) for node in nodes)


def test_a_node_that_never_comes_is_named_at_the_deadline(listener: socket.socket) -> None:

    def check(wait_s: float) -> None:
        node = Node(listener.getsockname()[1], 0)
        with pytest.raises(HarnessError, match=rf"of 2 nodes 1 came within {wait_s:.0f} s; missing: node 1\."):
            gather(listener, wait_s)
        assert isinstance(node.result(), HarnessError)

    in_time(check, 0.6, 6.0)


def test_agents_that_end_at_once_are_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    srun = tmp_path / "srun"
    srun.write_text("#!/bin/sh\necho 'Invalid partition' >&2\nexit 1\n")
    srun.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    job = os.environ | {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2"}
    with pytest.raises(HarnessError, match=r"exit code 1\): Invalid partition"), start.joined(2, True, print, job):
        pass
    with pytest.raises(UsageError, match="this Slurm job has 2 nodes"), start.joined(3, True, print, job):
        pass


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (Asked(problem="a2a", device="cpu", ranks=3, nodes=2), "3 ranks do not divide into 2 equal shares"),
        (Asked(problem="rms_norm", device="cpu", nodes=2), "rms_norm runs on one machine"),
        (Asked(problem="a2a", device="cpu", nodes=0), "1 to 250 nodes"),
    ],
)
def test_what_cannot_be_spread_is_refused(asked: Asked, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        setting(asked, Checkout(ROOT))


def test_who_waits_for_nodes_has_no_folder_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which nobody would remove, should it be killed."""
    made = setting(Asked(problem="a2a", suite="quick", device="cpu", ranks=4, nodes=2), Checkout(ROOT))
    submission = read_submission(made.problem, None, Checkout(ROOT))
    plan = kind_of(made).plan(Order(setting=made, submission=submission, mode="test", author="tester"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def joined(*_: object) -> None:
        assert [one.name for one in tmp_path.iterdir()] == []
        raise HarnessError("none came")

    monkeypatch.setattr(start, "joined", joined)
    with pytest.raises(HarnessError, match="none came"), OpSession(plan, Progress()).running():
        pass


# ---- real ranks ------------------------------------------------------------------------------------------------------


def agent(port: int, *prefix: str) -> "subprocess.Popen[str]":
    """A real one: its zygotes have its clock, and end with it."""
    command = [*prefix, sys.executable, "-m", "harness", "agent", "--node-rank", "1"]
    return subprocess.Popen(command, cwd=ROOT, env=environ_of(port), stderr=subprocess.PIPE, text=True)


def environ_of(port: int) -> dict[str, str]:
    given = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), meeting.TOKEN: TOKEN}
    return os.environ | given | {"NO_COLOR": "1", "COLUMNS": "100"}


def check(port: int, ranks: int, *file: str, program: Sequence[str] = COMMAND) -> "subprocess.Popen[str]":
    spread = ["--ranks", str(ranks), "--nodes", "2"]
    command = [*program, "harness", "check", "a2a", *file, *spread, "--suite", "quick"]
    return subprocess.Popen(
        command, cwd=ROOT, env=environ_of(port), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def free_port() -> int:
    """One that nobody listens on, below those that the system gives to whoever asks for any."""
    for port in range(20000 + os.getpid() % 5000, 30000):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("no port is free")


def test_ranks_on_two_nodes_whose_clocks_differ_are_right() -> None:
    """The shipped submission, which finds that there is no memory to share between hosts."""
    other_time = ["unshare", "--time", "--monotonic", "1000000", "--fork", "--kill-child"]
    has_time = shutil.which("unshare") and subprocess.run([*other_time, "true"], capture_output=True).returncode == 0
    port = free_port()
    there = agent(port, *(other_time if has_time else []))
    here = check(port, 4)
    out, err = here.communicate(timeout=120)
    assert here.returncode == 0, out + err
    assert there.wait(60) == 0, there.stderr.read() if there.stderr else ""


def test_an_agent_is_told_a_port_and_a_time_that_there_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNEL_EVAL_TOKEN", "t")
    order = AgentOrder(node_rank=1, master_addr="node0", master_port=99999)
    with pytest.raises(UsageError, match="--master-port 99999: ports are 1 to 65535"):
        agent_verb.run(order, Checkout.here())
    for wait in (float("nan"), float("inf"), -1.0):
        order = AgentOrder(node_rank=1, master_addr="node0", master_port=1, wait=wait)
        monkeypatch.setenv("KERNEL_EVAL_TOKEN", "t")
        with pytest.raises(UsageError, match=rf"--wait {wait:g}: expected 0 to 604800 seconds"):
            agent_verb.run(order, Checkout.here())


def test_an_agent_whose_disk_is_full_says_where(tcp: tuple[socket.socket, socket.socket], tmp_path: Path) -> None:
    here = Agent(tcp[0], 1, "127.0.0.1", tmp_path)
    here.unpacked = _archive(tmp_path)
    (tmp_path / "file").touch()  # in which no folder can be made, as on a full disk
    with pytest.raises(HarnessError, match=r"file/0: .*\. Make room, or set TMPDIR to another folder"):
        here._unpack(str(tmp_path / "file" / "0"))
    here.zygotes.log.close()


def test_a_node_that_is_lost_ends_the_evaluation_and_is_not_the_submissions_fault(tmp_path: Path) -> None:
    (tmp_path / "sleeps.py").write_text("import time\n\n\ndef custom_kernel(data):\n    time.sleep(600)\n")
    port = free_port()
    real = (sys.executable, "-m")  # whose zygotes end when a node does
    there, here = agent(port), check(port, 2, str(tmp_path / "sleeps.py"), program=real)
    assert there.stderr is not None
    assert here.stderr is not None
    while "import" not in (line := here.stderr.readline()):  # ranks run by then
        assert line, "it ended before"
    there.kill()
    _, err = here.communicate(timeout=300)
    assert here.returncode == 1, err
    assert "error: node 1 was lost in the middle of the evaluation" in err
