"""The stream of a submission that its client waits for: server-sent events in the form of GPU MODE's service."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

from fastapi import HTTPException
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from harness.serve.entry import RETRY_S
from harness.serve.service import Service
from harness.serve.store import Row

STREAMS, STREAMS_OF_USER = 64, 8  # open at a time
STATUS_S, LOOK_S = 15.0, 0.25  # a status at least so often; how often the queue is looked at for one


async def check_room(service: Service, secret: str) -> None:
    """Answers 503 where too many streams are open."""
    user = await run_in_threadpool(service.store.users.known, secret)
    if service.streams.total() >= STREAMS or (user and service.streams[user.id] >= STREAMS_OF_USER):
        raise HTTPException(503, "Too many streams are open.", headers={"Retry-After": RETRY_S})


def streamed(service: Service, row: Row) -> StreamingResponse:
    """The submission's progress to its end. A client that disconnects does not end the evaluation."""
    return StreamingResponse(_events(service, row), media_type="text/event-stream")


async def _events(service: Service, row: Row) -> AsyncIterator[str]:
    """Events in the form of GPU MODE's service, to the submission's end; popcorn-cli prints `message`."""
    with _counted(service, row.user_id):
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


@contextmanager
def _counted(service: Service, user_id: int) -> Iterator[None]:
    service.streams[user_id] += 1
    try:
        yield
    finally:
        service.streams[user_id] -= 1


def _message(service: Service, row: Row) -> str:
    if row.state == "pending":
        return f"submission {row.id}: {service.store.ahead(row)} ahead of it"
    return f"submission {row.id}: {service.worker.progress(row.id) or 'running'}"


def _event(name: str, **data: Any) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"
