"""How the parent and the nodes' agents find each other, by torchrun's convention: MASTER_ADDR, MASTER_PORT, node ranks.

Agents connect to the parent. Each side proves to the other that it knows the evaluation's token, which never crosses
the network: whoever could speak for either would run programs as this user. What follows is not encrypted.
"""

import contextlib
import hashlib
import hmac
import json
import secrets
import socket
import struct
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, cast

from harness.core.decode import DecodeError, decode
from harness.core.errors import HarnessError, UsageError
from harness.nodes.traits import Traits, difference, traits
from harness.ranks.channel import frame

TOKEN = "KERNEL_EVAL_TOKEN"  # the variable that has it: other users see a command's words, but not its variables
WAIT_S = 120.0  # for all nodes to come
SAY_S = 10.0  # for one that has come to say something
RETRY_S = 0.2  # an agent may be there before the parent listens
MAX_BYTES = 1 << 16
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
    with contextlib.ExitStack() as closing:
        while len(come) < count:
            look()
            if time.monotonic() > until:
                missing = ", ".join(str(node) for node in range(count) if node not in come)
                raise HarnessError(
                    f"of {count} nodes {len(come)} came within {wait_s:.0f} s; missing: node {missing}. Does its agent "
                    "run, and does it reach this machine's port?"
                )
            if (one := _accepted(listener, token)) is not None:
                sock, hello = one
                closing.callback(sock.close)
                _check(sock, hello, come, count, token, confined)
                come[hello.node] = one
        master = come[0][0].getpeername()[0]
        for sock, hello in come.values():
            sock.sendall(frame(Welcome(answer=_answer(token, "parent", hello.number), master=master)))
        closing.pop_all()
    return tuple(come[node][0] for node in range(count))


def _accepted(listener: socket.socket, token: str) -> tuple[socket.socket, Hello] | None:
    """The next agent that knows the token, and what it says; None if nobody has come for a moment, or somebody else."""
    listener.settimeout(RETRY_S)
    with contextlib.suppress(OSError, EOFError, DecodeError, ValueError), contextlib.ExitStack() as closing:
        sock, _ = listener.accept()
        closing.callback(sock.close)
        sock.settimeout(SAY_S)
        number = secrets.token_hex(16)
        sock.sendall(frame(Challenge(number=number)))
        hello = received(sock, Hello)
        if hmac.compare_digest(hello.answer, _answer(token, "agent", number)):
            closing.pop_all()
            return sock, hello
    return None


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
        challenge = received(sock, Challenge)
        answer = _answer(token, "agent", challenge.number)
        sock.sendall(frame(Hello(node=node, answer=answer, number=number, traits=traits(), has_link=has_link)))
        sock.settimeout(wait_s)
        told = received(sock, cast("type[Welcome | Refused]", Welcome | Refused))
    except (OSError, EOFError, DecodeError, ValueError) as error:
        raise HarnessError(f"the evaluation rejected this node: {error or 'it ended'}; check {TOKEN}") from None
    if not hmac.compare_digest(told.answer, _answer(token, "parent", number)):
        raise HarnessError(f"the evaluation at that address has another {TOKEN}")
    if isinstance(told, Refused):
        raise UsageError(told.why)
    return told.master


def received(sock: socket.socket, kind: type[T]) -> T:
    """The next message, if it is one of this kind. Raises EOFError, OSError or DecodeError."""
    (nbytes,) = struct.unpack(">I", _exactly(sock, 4))
    if nbytes > MAX_BYTES:
        raise DecodeError("", f"a message of {nbytes} bytes")
    found: Any = json.loads(_exactly(sock, nbytes))
    return decode(kind, found)


def _exactly(sock: socket.socket, nbytes: int) -> bytes:
    data = b""
    while len(data) < nbytes:
        if not (more := sock.recv(nbytes - len(data))):
            raise EOFError
        data += more
    return data


def _answer(token: str, who: str, number: str) -> str:
    return hmac.new(token.encode(), f"{who} {number}".encode(), hashlib.sha256).hexdigest()
