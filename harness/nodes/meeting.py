"""How the parent and the nodes' agents find each other, by torchrun's convention: MASTER_ADDR, MASTER_PORT, node ranks.

Agents connect to the parent. Each side proves to the other that it knows the evaluation's token, which never crosses
the network: whoever could speak for either would run programs as this user. What follows is not encrypted.
"""

import contextlib
import hashlib
import hmac
import json
import secrets
import selectors
import socket
import struct
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, cast

from harness.core.decode import DecodeError, decode
from harness.core.errors import HarnessError, UsageError
from harness.nodes.frames import has_ended
from harness.nodes.traits import Traits, difference, traits
from harness.ranks.channel import frame

TOKEN = "KERNEL_EVAL_TOKEN"  # the variable that has it: other users see a command's words, but not its variables
WAIT_S = 120.0  # for all nodes to come
SAY_S = 10.0  # for one that has come to say something
RETRY_S = 0.2  # an agent may be there before the parent listens
MAX_BYTES = 1 << 16
LENGTH = struct.Struct(">I")  # of a message, before it
MOST_UNKNOWN = 64  # connections that are asked at a time who they are
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Challenge:
    """Parent to agent, first: a number to answer."""

    number: str
    type: Literal["challenge"] = "challenge"


@dataclass(frozen=True, kw_only=True)
class Hello:
    """The agent's answer, with a number of its own. `has_link`: groups can have networks of their own there."""

    node: int
    answer: str
    number: str
    traits: Traits
    has_link: bool
    type: Literal["hello"] = "hello"


@dataclass(frozen=True, kw_only=True)
class Welcome:
    """When all have come. `master` is node 0's address."""

    answer: str
    master: str
    type: Literal["welcome"] = "welcome"


@dataclass(frozen=True, kw_only=True)
class Refused:
    """Why that node cannot take part."""

    answer: str
    why: str
    type: Literal["refused"] = "refused"


def gathered(
    listener: socket.socket, count: int, token: str, confined: bool, look: Callable[[], None], wait_s: float = WAIT_S
) -> tuple[socket.socket, ...]:
    """The connections to `count` nodes' agents, by node. `look` is called again and again, and may raise. Raises
    HarnessError where not all come in `wait_s`, UsageError where a node is not like this one."""
    until = time.monotonic() + wait_s
    come: dict[int, tuple[socket.socket, Hello]] = {}
    with _Door(listener, token) as door, contextlib.ExitStack() as closing:
        while len(come) < count:
            look()
            for node in [node for node, (sock, _) in come.items() if has_ended(sock)]:
                del come[node]  # it may come again
            if time.monotonic() > until:
                missing = ", ".join(str(node) for node in range(count) if node not in come)
                raise HarnessError(
                    f"of {count} nodes {len(come)} came within {wait_s:.0f} s; missing: node {missing}. Does its agent "
                    f"run, and does it reach this machine's port?{door.turned_away()}"
                )
            for sock, hello in door.wait(RETRY_S):
                closing.callback(sock.close)
                _check(sock, hello, come, count, token, confined)
                come[hello.node] = sock, hello
        master = come[0][0].getpeername()[0]
        for node, (sock, hello) in come.items():
            try:
                sock.settimeout(SAY_S)
                sock.sendall(frame(Welcome(answer=_answer(token, "parent", hello.number), master=master)))
            except OSError as error:
                raise HarnessError(f"node {node} was lost before the evaluation began: {error}") from None
        closing.pop_all()
    return tuple(come[node][0] for node in range(count))


@dataclass(frozen=True, kw_only=True)
class _Unknown:
    """A connection that has not said yet who it is."""

    number: str
    until_s: float  # by the monotonic clock
    received: bytearray = field(default_factory=bytearray)


class _Door:
    """Lets in who knows the token, and asks all others at the same time: a stranger who says nothing, or slowly, keeps
    nobody waiting."""

    def __init__(self, listener: socket.socket, token: str) -> None:
        self.listener, self.token = listener, token
        self.unknown: dict[socket.socket, _Unknown] = {}
        self.why: dict[str, str] = {}  # by address: why somebody from there was turned away, at last
        self.selector = selectors.DefaultSelector()
        listener.setblocking(False)
        self.selector.register(listener, selectors.EVENT_READ)

    def __enter__(self) -> "_Door":
        return self

    def __exit__(self, *error: object) -> None:
        for sock in self.unknown:
            sock.close()
        self.selector.close()

    def turned_away(self) -> str:
        """Who came and was turned away, as the end of a message; "" if nobody was."""
        told = "; ".join(f"{address} {why}" for address, why in self.why.items())
        return told and f" Who came and was turned away: {told}"

    def wait(self, seconds: float) -> list[tuple[socket.socket, Hello]]:
        """The agents that have come within that time, and what they say; they do not block."""
        found = []
        for key, _ in self.selector.select(seconds):
            if key.fileobj is self.listener:
                self._accept()
            elif (hello := self._heard(cast(socket.socket, key.fileobj))) is not None:
                found.append((cast(socket.socket, key.fileobj), hello))
        late = [sock for sock, unknown in self.unknown.items() if time.monotonic() > unknown.until_s]
        for sock in late:
            self._turn_away(sock, f"did not say within {SAY_S:.0f} s who it is")
        return found

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # it has left already, or the machine has no more descriptors
            sock, _ = self.listener.accept()
            if len(self.unknown) >= MOST_UNKNOWN:
                self._turn_away(next(iter(self.unknown)), "came with too many others")
            sock.setblocking(False)
            number = secrets.token_hex(16)
            self.unknown[sock] = _Unknown(number=number, until_s=time.monotonic() + SAY_S)
            self.selector.register(sock, selectors.EVENT_READ)
            with contextlib.suppress(OSError):
                sock.sendall(frame(Challenge(number=number)))

    def _heard(self, sock: socket.socket) -> Hello | None:
        """What it says, if that is complete and right."""
        unknown = self.unknown.get(sock)
        if unknown is None:  # turned away meanwhile
            return None
        try:
            data = sock.recv(MAX_BYTES)
            unknown.received.extend(data)
            hello = _message(unknown.received, Hello)
        except OSError:
            data, hello = b"", None
        except DecodeError:
            self._turn_away(sock, "says what no agent of this version of the harness does")
            return None
        if hello is not None:
            if _is_answer(hello.answer, self.token, "agent", unknown.number):
                self._forget(sock)
                return hello
            self._turn_away(sock, f"has another {TOKEN}")
        elif not data:
            self._turn_away(sock, "left without a word")
        return None

    def _turn_away(self, sock: socket.socket, why: str) -> None:
        with contextlib.suppress(OSError):
            if len(self.why) < MOST_UNKNOWN:
                self.why[str(sock.getpeername()[0])] = why
        self._forget(sock)
        sock.close()

    def _forget(self, sock: socket.socket) -> None:
        del self.unknown[sock]
        self.selector.unregister(sock)


def _check(sock: socket.socket, hello: Hello, come: Collection[int], count: int, token: str, confined: bool) -> None:
    """Raises UsageError, after it has told the agent, where this node cannot take part."""
    node, why = hello.node, ""
    if not 0 <= node < count or node in come:
        why = f"node {node} came, but {f'node {node} is there already' if node in come else f'there are {count}'}"
    elif differs := difference(traits(), hello.traits):
        why = f"node {node} is not like this one, and figures of both together would mean nothing: {differs}"
    elif confined and not hello.has_link:
        why = (
            f"node {node} cannot give the submission a network of its own between nodes, which takes user namespaces "
            "and /dev/net/tun; --unconfined leaves the sandbox out"
        )
    if why:
        with contextlib.suppress(OSError):
            sock.sendall(frame(Refused(answer=_answer(token, "parent", hello.number), why=why)))
        raise UsageError(why)


def connected(address: str, port: int, wait_s: float = WAIT_S) -> socket.socket:
    """An agent's connection to the parent. Raises HarnessError where it cannot be had in `wait_s`."""
    until = time.monotonic() + wait_s
    while True:
        try:
            return socket.create_connection((address, port), timeout=SAY_S)
        except OSError as error:
            if time.monotonic() > until:
                why = error.strerror or error
                raise HarnessError(f"{address}:{port} could not be reached for {wait_s:.0f} s: {why}") from None
            time.sleep(RETRY_S)


def agreed(sock: socket.socket, node: int, token: str, has_link: bool, wait_s: float = WAIT_S) -> str:
    """The agent's side of the meeting; returns node 0's address. Raises HarnessError where it comes to nothing."""
    number = secrets.token_hex(16)
    try:
        challenge = received(sock, Challenge, SAY_S)
        answer = _answer(token, "agent", challenge.number)
        sock.sendall(frame(Hello(node=node, answer=answer, number=number, traits=traits(), has_link=has_link)))
        told = received(sock, cast("type[Welcome | Refused]", Welcome | Refused), wait_s)
    except (OSError, EOFError, DecodeError) as error:
        why = str(error) or "it closed the connection"
        raise HarnessError(
            f"the evaluation has not taken this node: {why}. Did it end? If not, check {TOKEN}, and whether both "
            "checkouts are of one version"
        ) from None
    if not _is_answer(told.answer, token, "parent", number):
        raise HarnessError(f"the evaluation at that address has another {TOKEN}")
    if isinstance(told, Refused):
        raise UsageError(told.why)
    return told.master


def received(sock: socket.socket, kind: type[T], wait_s: float) -> T:
    """The next message, if it is one of this kind and comes in that time. Raises EOFError, OSError or DecodeError."""
    until, data = time.monotonic() + wait_s, bytearray()
    while (found := _message(data, kind)) is None:
        if (left := until - time.monotonic()) <= 0:
            raise TimeoutError(f"no answer within {wait_s:.0f} s")
        sock.settimeout(left)
        if not (more := sock.recv(MAX_BYTES)):
            raise EOFError
        data += more
    return found


def _message(data: bytearray, kind: type[T]) -> T | None:
    """The message at the start of the data, if it has all come; the other side says no more until it is answered.
    Raises DecodeError."""
    if len(data) < LENGTH.size:
        return None
    (nbytes,) = LENGTH.unpack_from(data)
    if nbytes > MAX_BYTES:
        raise DecodeError("", f"a message of {nbytes} bytes")
    if len(data) < LENGTH.size + nbytes:
        return None
    try:
        found: Any = json.loads(data[LENGTH.size : LENGTH.size + nbytes])
    except (ValueError, RecursionError) as error:
        raise DecodeError("", f"no JSON: {error}") from None
    return decode(kind, found)


def _is_answer(given: str, token: str, who: str, number: str) -> bool:
    return hmac.compare_digest(given.encode(errors="replace"), _answer(token, who, number).encode())


def _answer(token: str, who: str, number: str) -> str:
    return hmac.new(token.encode(), f"{who} {number}".encode(), hashlib.sha256).hexdigest()
