"""The server's connections: how long a client may take, and whose connection ends when there are too many.

Knows uvicorn's protocol and no route. A connection waits for its client until a whole request has come, while more of
an answer is to be taken than fits into the buffers, and between requests. Only connections that wait can be in the way:
a request is never refused for the sake of half a request that came before it.
"""

import asyncio
import contextlib
import ipaddress
import json
from collections import Counter
from typing import Any, Literal

import h11
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from harness.serve.guard import HEADERS

CONNECTIONS, OF_PEER = 512, 256  # open at a time: in all, and of one peer
BACKLOG = 64  # connections that asyncio accepts at once, before it reads from any
HEADERS_S, BODY_S = 10.0, 60.0  # for all of a request's headers to come, and for all of its body
TAKE_S = 30.0  # for a client to take what is in the buffers of an answer; uvicorn ends idle connections after 5 s
BUSY = "Too many connections are open, and this one has waited longest for the rest of its request."
ENDS = "The server is shutting down."
State = Literal["headers", "body", "answer", "take", "idle"]
SECONDS: dict[State, float | None] = {
    "headers": HEADERS_S,
    "body": BODY_S,
    "answer": None,  # the server's to give
    "take": TAKE_S,
    "idle": TAKE_S,
}


def peer_of(host: str) -> str:
    """Whom an address counts for: itself, or with IPv6 its network of 64 bits, which is one customer's."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        mapped = address.ipv4_mapped
        return str(mapped or ipaddress.ip_network((address, 64), strict=False))
    return str(address)


class Connection(H11Protocol):
    """A connection with a deadline for each state. `since` is when its state began, by the event loop's clock."""

    state: State = "headers"
    since = 0.0
    peer = ""
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.peer = peer_of(self.client[0] if self.client else "")
        self._enter("headers")
        if (slow := self._in_the_way()) is not None:
            slow.refuse(503, BUSY)

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._follow()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._follow()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._follow()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._follow()

    def shutdown(self) -> None:
        """Called by uvicorn when the server ends. Answers that are being given are given; no client is waited for."""
        if self.state == "answer":
            super().shutdown()
        else:
            self.refuse(503, ENDS)

    def refuse(self, status: int, detail: str) -> None:
        """Ends the connection at once, with this answer unless another one has begun or nothing was asked."""
        self.connections.discard(self)
        self._expect(None)
        is_asked = self.conn.their_state is not h11.IDLE or self.conn.trailing_data[0]
        if self.state in ("headers", "body") and is_asked:
            if self.cycle is not None:
                self.cycle.disconnected = True  # the application's answer comes too late
            body = json.dumps({"detail": detail}).encode()
            lines = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *HEADERS]
            head = h11.Response(
                status_code=status, headers=[*lines, (b"connection", b"close")], reason=STATUS_PHRASES[status]
            )
            with contextlib.suppress(h11.LocalProtocolError):  # an answer has begun, or HEAD takes no body
                for event in (head, h11.Data(data=body), h11.EndOfMessage()):
                    self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
        if self.transport.get_write_buffer_size():
            self.transport.abort()

    def _follow(self) -> None:
        if (found := self._found()) != self.state:
            self._enter(found)

    def _found(self) -> State:
        if self.conn.their_state is h11.IDLE:
            return "headers" if self.conn.trailing_data[0] or self.cycle is None else "idle"
        if self.cycle is None or self.cycle.response_complete:
            return "idle"  # the rest of a body that was answered already
        if self.conn.their_state is h11.SEND_BODY:
            return "body"
        return "take" if self.flow.write_paused else "answer"

    def _enter(self, state: State) -> None:
        self.state, self.since = state, self.loop.time()
        self._expect(SECONDS[state])

    def _expect(self, seconds: float | None) -> None:
        """Ends the connection in so many seconds unless it is told otherwise; None: never."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self._expire, seconds)

    def _expire(self, seconds: float) -> None:
        if self.state in ("headers", "body"):
            self.refuse(408, f"The request's {self.state} had not all come after {seconds:g} s.")
        else:
            self.transport.abort()

    def _in_the_way(self) -> "Connection | None":
        """The connection that has to end for this new one; None where there is room. Of the peer with the most
        connections, it is the one that has waited longest in the middle of a request or an answer, else between
        requests; this one itself where no other waits."""
        open_: list[Any] = list(self.connections)  # all of this class
        count = Counter(one.peer for one in open_)
        if count[self.peer] > OF_PEER:
            open_ = [one for one in open_ if one.peer == self.peer]
        elif len(open_) <= CONNECTIONS:
            return None
        waiting = [one for one in open_ if one.state != "answer" and one is not self]
        found: Connection = min(
            waiting, key=lambda one: (-count[one.peer], one.state == "idle", one.since), default=self
        )
        return found
