"""The stream of a submission that its client waits for: server-sent events in the form of GPU MODE's service."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from fastapi import HTTPException, Request
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from harness.contest.acts import id_hash
from harness.serve.connections import peer_of
from harness.serve.entry import RETRY_S
from harness.serve.service import Service
from harness.serve.store import Row

STREAMS, STREAMS_OF_PEER, STREAMS_OF_USER = 64, 48, 8  # open at a time
STATUS_S, LOOK_S = 15.0, 0.25  # a status at least so often; how often the queue is looked at for one


async def streamed(
    service: Service, request: Request, secret: str, queue: Callable[[], Awaitable[Row]]
) -> StreamingResponse:
    """Queues a submission by `queue` and streams its progress to its end. A client that disconnects does not end the
    evaluation. Answers 503 where too many streams are open; what `queue` raises leaves none open."""
    peer = peer_of(request.client.host if request.client else "")
    slot = {"": STREAMS, f"peer {peer}": STREAMS_OF_PEER, f"user {id_hash(secret)}": STREAMS_OF_USER}
    if any(service.streams[name] >= most for name, most in slot.items()):
        raise HTTPException(503, "Too many streams are open.", headers={"Retry-After": RETRY_S})
    service.streams.update(slot.keys())  # taken in the step that looked, since nothing else runs before the next await
    try:
        return _Stream(service, await queue(), slot)
    except BaseException:
        _free(service, slot)
        raise


class _Stream(StreamingResponse):
    """The events of a submission. Its slot is free again when the answer ends, however it does."""

    def __init__(self, service: Service, row: Row, slot: dict[str, int]) -> None:
        super().__init__(_events(service, row), media_type="text/event-stream")
        self._service, self._slot = service, slot

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            _free(self._service, self._slot)


def _free(service: Service, slot: dict[str, int]) -> None:
    service.streams.subtract(slot.keys())
    service.streams = +service.streams  # names of nobody any more go


async def _events(service: Service, row: Row) -> AsyncIterator[str]:
    """Events in the form of GPU MODE's service, to the submission's end; popcorn-cli prints `message`."""
    began_s, told_s, told = time.monotonic(), 0.0, ""
    found: Row | None = row
    while found is not None and not found.done and not service.stopping():
        message = await run_in_threadpool(_message, service, found)
        elapsed_s = time.monotonic() - began_s
        if message != told or elapsed_s - told_s >= STATUS_S or not told:
            told, told_s = message, elapsed_s
            yield _event("status", status="processing", elapsed_time=round(elapsed_s, 2), message=message)
        await asyncio.sleep(LOOK_S)
        found = await run_in_threadpool(service.store.get, row.id)
    if found is None:
        yield _event("error", status="error", detail="The submission was deleted", status_code=404)
    elif not found.done:
        detail = f"The server is shutting down; submission {row.id} stays in its queue"
        yield _event("error", status="error", detail=detail, status_code=503)
    elif (result := await run_in_threadpool(service.store.result, row.id)) is not None:
        yield _event("result", **result)
    else:
        code = 504 if found.state == "timed_out" else 500
        yield _event("error", status="error", detail=found.error or found.state, status_code=code)


def _message(service: Service, row: Row) -> str:
    if row.state == "pending":
        return f"submission {row.id}: {service.store.ahead(row)} ahead of it"
    return f"submission {row.id}: {service.worker.progress(row.id) or 'running'}"


def _event(name: str, **data: Any) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"
