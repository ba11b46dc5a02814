"""Checks every request before the API sees it: its Host header, the token, and the size of its body. Reads the token.

Knows ASGI's messages and no route. Other people's web pages can reach the server through a browser on this machine. A
host name of theirs that resolves to 127.0.0.1 (DNS rebinding) is refused by the Host header. Their forms and images are
refused because they lack X-Popcorn-Cli-Id, which a page of another origin cannot send: no answer has CORS headers.
"""

import base64
import binascii
import hmac
import ipaddress
import json
import os
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

from harness.core.errors import UsageError, os_error_as
from harness.problems.submission import MAX_BYTES

TOKEN_CHARS = 16  # at least
TOKEN_VARIABLE = "HARNESS_SERVE_TOKEN"
ORGANISER_VARIABLE = "HARNESS_ORGANISER_TOKEN"
MAX_BODY_BYTES = MAX_BYTES + (64 << 10)  # a form's lines around the file
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
OPEN = "/health"  # answered without the token
TOO_LARGE = "Submission file is too large (limit: 1MB)."
HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)
Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server bound to that address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def read_token(
    file: Path | None,
    environ: "os._Environ[str] | dict[str, str]",
    option: str = "--token",
    variable: str = TOKEN_VARIABLE,
) -> str | None:
    """The token, from the file or the environment; None where neither has one. Raises UsageError for a bad one."""
    where = f"{option} {file}" if file else variable
    with os_error_as(UsageError, f"{where}: cannot be read", "name a file that has a token of yours in it"):
        text = file.read_text(encoding="utf-8") if file else environ.get(variable, "")
    token = text.strip()
    if not token and not file:
        return None
    if len(token) < TOKEN_CHARS or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError(
            f"{where}: expected a token of {TOKEN_CHARS} or more ASCII characters without spaces; "
            "`python -c 'import secrets; print(secrets.token_urlsafe())'` makes one"
        )
    return token


class RefusedError(Exception):
    """Answers the request with this status at once."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail


class Guard:
    """An ASGI application around another. `names` are the accepted Host names, None for any. A request that shows the
    token of the organisers passes too, and the application finds `state.organiser` true."""

    def __init__(
        self, app: App, token: str | None, names: frozenset[str] | None, organiser_token: str | None = None
    ) -> None:
        self._app, self._token, self._names, self._organiser_token = app, token, names, organiser_token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body: _Body | None = None

        async def sent(message: Message) -> None:
            if body is not None and body.refused is not None:
                return  # what the API made of a body that broke off
            if message["type"] == "http.response.start":
                named = {name.lower() for name, _ in message.get("headers", ())}
                more = [header for header in HEADERS if header[0] not in named]
                message["headers"] = [*message.get("headers", ()), *more]
            await send(message)

        try:
            headers = {name.lower(): value for name, value in scope["headers"]}
            self._check_host(headers)
            shown = _shown_token(headers)
            is_organiser = _same(shown, self._organiser_token)
            scope.setdefault("state", {})["organiser"] = is_organiser
            if not (self._token is None or scope["path"] == OPEN or is_organiser or _same(shown, self._token)):
                raise RefusedError(401, "Missing or wrong token; send it as `Authorization: Bearer`.")
            body = _Body(headers, receive)
            await self._app(scope, body.receive, sent)
            refused = body.refused
        except RefusedError as error:
            refused = error
        if refused is not None:
            body = None
            await _answer(refused, sent)

    def _check_host(self, headers: dict[bytes, bytes]) -> None:
        host = headers.get(b"host", b"").decode("latin-1").lower()
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        if self._names is not None and name not in self._names:
            raise RefusedError(421, f"This server answers on {', '.join(sorted(self._names))} only.")


def _shown_token(headers: dict[bytes, bytes]) -> bytes:
    """The token that a request shows; empty where it shows none."""
    scheme, _, shown = headers.get(b"authorization", b"").partition(b" ")
    if scheme.lower() == b"basic":  # browsers, and clients that take a URL with a password
        try:
            shown = base64.b64decode(shown, validate=True).partition(b":")[2]
        except binascii.Error:
            shown = b""
    elif scheme.lower() != b"bearer":
        shown = b""
    return shown.strip()


def _same(shown: bytes, token: str | None) -> bool:
    return token is not None and hmac.compare_digest(shown, token.encode())


class _Body:
    """A request's body. Refuses the request when the body is too long."""

    def __init__(self, headers: dict[bytes, bytes], receive: Receive) -> None:
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > MAX_BODY_BYTES:
            raise RefusedError(413, TOO_LARGE)
        self._receive, self._bytes, self._complete = receive, 0, False
        self.refused: RefusedError | None = None

    async def receive(self) -> Message:
        if self._complete:
            return await self._receive()
        message = await self._receive()
        self._bytes += len(message.get("body", b""))
        self._complete = not message.get("more_body", False)
        if self._bytes > MAX_BODY_BYTES:
            self.refused = RefusedError(413, TOO_LARGE)  # FastAPI answers 400 to any error while it reads a form
            raise self.refused
        return message


async def _answer(refused: RefusedError, send: Send) -> None:
    body = json.dumps({"detail": refused.detail}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if refused.status == 401:
        headers.append((b"www-authenticate", b'Basic realm="kernel-eval", charset="UTF-8"'))
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
