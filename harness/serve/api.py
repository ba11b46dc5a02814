"""popcorn-cli's HTTP API: routes, parameters, statuses and JSON as GPU MODE's service has them.

After gpu-mode/kernelbot src/kernelbot/api/ and gpu-mode/popcorn-cli src/service/ (read 2026-11). Knows requests and
answers; the queue is store's, evaluations are worker's, and what every request must pass first is guard's. Where an
answer differs from theirs on purpose, docs/gpumode.md says so.

An X-Popcorn-Cli-Id that is not known yet is taken on with its first submission: nobody signs in to one's own machine.
"""

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated, Any, cast, get_args

from fastapi import Depends, FastAPI, Header, HTTPException, Path, Query, Response, UploadFile
from fastapi.responses import HTMLResponse, JSONResponse, StreamingResponse
from starlette.concurrency import run_in_threadpool

from harness.core.errors import BadSubmissionError, HarnessError, UsageError
from harness.core.records import Mode
from harness.core.words import clean_line
from harness.problems.submission import MAX_BYTES, directives
from harness.serve.answers import (
    RUNNER,
    backlog_answer,
    leaderboard_item_answer,
    place_answer,
    ranked_entry_answer,
    short_answer,
    submission_answer,
)
from harness.serve.contest_api import add_routes
from harness.serve.contests import Placement
from harness.serve.guard import TOO_LARGE
from harness.serve.schemas import (
    Accepted,
    AcceptedDetails,
    AuthState,
    Count,
    Deleted,
    Detail,
    Health,
    LeaderboardItem,
    LiveBoards,
    LiveQueue,
    RankedEntry,
    RunnerBacklog,
    RunnerQueue,
    ShortSubmission,
    Submission,
)
from harness.serve.service import Leaderboard, Service
from harness.serve.store import Asked, QueueFullError, Row
from harness.serve.users import UnknownUserError, User

STREAMS, STREAMS_OF_USER = 64, 8  # open at a time
STATUS_S, LOOK_S = 15.0, 0.25  # a status at least so often; how often the queue is looked at for one
RETRY_S = "30"
MAX_ID = 2**63 - 1  # SQLite's
# First words of paths that are no leaderboards: a POST there is one of the wrong method
RESERVED = frozenset(
    {
        "admin",
        "auth",
        "contests",
        "gpus",
        "health",
        "leaderboards",
        "live",
        "runner_queue",
        "submission_count",
        "submissions",
        "user",
    }
)


REASONS = {
    400: "something that was asked for is not there, or not as it must be",
    401: "the token, or an X-Popcorn-Cli-Id that cannot be taken on",
    403: "somebody else's submission, or a rule of a contest",
    404: "no such leaderboard or submission",
    405: "no such method there",
    408: "the request did not come to an end",
    413: "more than 1 MB",
    421: "a Host that is not this server's",
    429: "too many of this user's submissions wait; see Retry-After",
    500: "the checkout cannot be read",
    503: "too many submissions wait, or streams are open; see Retry-After",
}


def refusals(*codes: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI's words for the statuses of a route, with those that the guard gives to any."""
    return {code: {"model": Detail, "description": REASONS[code]} for code in sorted({*codes, 401, 421})}


CLI_ID = "X-Popcorn-Cli-Id"
CliId = Annotated[
    str | None, Header(alias=CLI_ID, description="Who submits: `name:secret`, or any text that nobody else knows.")
]
Id = Annotated[int, Path(ge=1, le=MAX_ID)]
Offset = Annotated[int, Query(ge=0, le=MAX_ID)]
# Checked by hand, for the status that theirs gives; the schema says what is right all the same
Provider = Annotated[str, Query(json_schema_extra={"enum": ["discord", "github"]})]
ModeName = Annotated[str, Path(json_schema_extra={"enum": list(get_args(Mode))})]
Limit = Annotated[int, Query(json_schema_extra={"minimum": 1, "maximum": 100})]
SignedOffset = Annotated[int, Query(le=MAX_ID, json_schema_extra={"minimum": 0})]


def cli_id(x_popcorn_cli_id: CliId = None) -> str:
    """The header's id; answers 400 without one, as GPU MODE's service does."""
    if not x_popcorn_cli_id:
        raise HTTPException(400, "Missing X-Popcorn-Cli-Id header")
    return x_popcorn_cli_id


Secret = Annotated[str, Depends(cli_id)]


# ---- the routes --------------------------------------------------------------------------------------------------
def make_app(service: Service) -> FastAPI:
    """The API over a service. The worker runs as long as the application does."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.worker.start()
        yield
        await run_in_threadpool(service.worker.stop)

    app = FastAPI(title="kernel-eval", version="1", lifespan=lifespan, docs_url=None, redoc_url=None)

    def described() -> dict[str, Any]:
        """FastAPI's schema, with what it cannot know: which leaderboards and GPUs there are, and that the id is
        needed, though it is not FastAPI that asks for it."""
        if app.openapi_schema is None:
            app.openapi_schema = _completed(FastAPI.openapi(app), service.leaderboards)
        return app.openapi_schema

    app.openapi = described  # type: ignore[method-assign]

    @app.exception_handler(HarnessError)
    async def broken(request: object, error: HarnessError) -> JSONResponse:
        """For example a leaderboard or report that cannot be read."""
        return JSONResponse({"detail": str(error)}, status_code=500)

    @app.get("/health", responses=refusals())
    async def health() -> Health:
        return Health(status="ok")

    @app.get("/auth/init", responses=refusals(400))
    async def auth_init(provider: Provider) -> AuthState:
        """There is no sign-in: the id that the client keeps is valid at once."""
        if provider not in ("discord", "github"):
            raise HTTPException(400, "Invalid provider, must be 'discord' or 'github'")
        return AuthState(state=str(uuid.uuid4()))

    @app.get("/leaderboards", responses=refusals())
    async def leaderboards() -> list[LeaderboardItem]:
        return [leaderboard_item_answer(one) for one in service.leaderboards]

    @app.get("/gpus/{leaderboard_name}", responses=refusals(404))
    async def gpus(leaderboard_name: str) -> list[str]:
        return list(_leaderboard(service, leaderboard_name).gpus)

    @app.get("/runner_queue/{gpu_type}", responses=refusals(404))
    def runner_queue(gpu_type: str) -> RunnerBacklog:
        """How many submissions wait and run. One runner evaluates those for all GPU names."""
        known = {gpu.lower(): gpu for one in service.leaderboards for gpu in one.gpus}
        if gpu_type.lower() not in known:
            raise HTTPException(404, f"GPU `{gpu_type}` does not exist. Choose one of: {', '.join(known.values())}")
        return backlog_answer(service, known[gpu_type.lower()])

    @app.get("/submissions/{leaderboard_name}/{gpu_name}", responses=refusals(400, 404))
    def submissions(
        leaderboard_name: str,
        gpu_name: str,
        limit: Annotated[int | None, Query(ge=1, le=MAX_ID)] = None,
        offset: Offset = 0,
    ) -> list[RankedEntry]:
        """Each user's best submission. The boards of `GET /` also have what was recorded otherwise."""
        rows = _ranked(service, leaderboard_name, gpu_name)
        chosen = list(enumerate(rows, start=1))[offset : None if limit is None else offset + limit]
        return [ranked_entry_answer(rank, row) for rank, row in chosen]

    @app.get("/submission_count/{leaderboard_name}/{gpu_name}", responses=refusals(400, 404))
    def submission_count(leaderboard_name: str, gpu_name: str, user_id: str | None = None) -> Count:
        rows = _ranked(service, leaderboard_name, gpu_name)
        return Count(count=sum(user_id in (None, row.user) for row in rows))

    @app.get("/user/submissions", responses=refusals(400))
    def own(
        secret: Secret, leaderboard: str | None = None, limit: Limit = 50, offset: SignedOffset = 0
    ) -> list[ShortSubmission]:
        if not 1 <= limit <= 100:
            raise HTTPException(400, "limit must be between 1 and 100")
        if offset < 0:
            raise HTTPException(400, "offset must be >= 0")
        user = service.store.users.known(secret)
        known = service.find(leaderboard) if leaderboard else None
        name = known.name if known else leaderboard or None
        rows = service.store.of_user(user, name, limit, offset) if user else []
        return [short_answer(row) for row in rows]

    @app.get("/user/submissions/{submission_id}", responses=refusals(400, 403, 404))
    def show(submission_id: Id, secret: Secret) -> Submission:
        return submission_answer(service, _own(service, submission_id, secret, "view"))

    @app.delete("/user/submissions/{submission_id}", responses=refusals(400, 403, 404))
    def delete(submission_id: Id, secret: Secret) -> Deleted:
        """Ends its evaluation if it is running. Its records in leaderboard.yaml and runs/ stay."""
        row = _own(service, submission_id, secret, "delete")
        service.contests.deleted(row)
        if not service.store.delete(row.id):
            raise HTTPException(404, "Submission not found")
        return Deleted(status="ok", submission_id=row.id)

    @app.post("/user/join", responses=refusals(400, 404, 408, 413))
    async def join(secret: Secret) -> Response:
        raise HTTPException(404, "There are no invite codes here: every leaderboard is open.")

    @app.post("/profile/{leaderboard_name}/{gpu_type}", responses=refusals(404, 408, 413))
    async def profile(leaderboard_name: str, gpu_type: str) -> Response:
        """Nsight Compute is not run here."""
        raise HTTPException(404, "No Nsight Compute profiles are taken here; submit with `--mode profile` for torch's.")

    @app.post(
        "/submission/{leaderboard_name}/{gpu_type}/{submission_mode}",
        status_code=202,
        responses=refusals(400, 403, 404, 408, 413, 429, 503),
    )
    async def submit(
        leaderboard_name: str, gpu_type: str, submission_mode: ModeName, file: UploadFile, secret: Secret
    ) -> Accepted:
        """Queues the file; `GET /user/submissions/{id}` returns its outcome."""
        row = await _accepted(service, leaderboard_name, gpu_type, submission_mode, file, secret)
        place = await run_in_threadpool(service.store.ahead, row)
        return Accepted(
            details=AcceptedDetails(id=row.id, job_status_id=row.id),
            queue=place_answer(row, place),
            runner_queue=RunnerQueue(runner=RUNNER, gpu=row.gpu, queued_jobs=place),
            status="accepted",
        )

    @app.post(
        "/{leaderboard_name}/{gpu_type}/{submission_mode}",
        response_class=StreamingResponse,
        responses={
            200: {"content": {"text/event-stream": {}}, "description": "status events, then one result or error"},
            **refusals(400, 403, 404, 405, 408, 413, 429, 503),
        },
    )
    async def submit_and_wait(
        leaderboard_name: str, gpu_type: str, submission_mode: ModeName, file: UploadFile, secret: Secret
    ) -> StreamingResponse:
        """Queues the file and streams its progress as server-sent events, to the end. A client that disconnects does
        not end the evaluation."""
        if leaderboard_name in RESERVED:
            raise HTTPException(405, "Method Not Allowed", headers={"Allow": "GET"})
        user = await run_in_threadpool(service.store.users.known, secret)
        if service.streams.total() >= STREAMS or (user and service.streams[user.id] >= STREAMS_OF_USER):
            raise HTTPException(503, "Too many streams are open.", headers={"Retry-After": RETRY_S})
        row = await _accepted(service, leaderboard_name, gpu_type, submission_mode, file, secret)
        return StreamingResponse(_events(service, row), media_type="text/event-stream")

    @app.get("/", response_class=HTMLResponse, responses=refusals(500))
    def index() -> HTMLResponse:
        """The page with the boards, and the submissions that run and wait."""
        return HTMLResponse(service.live.html())

    @app.get("/live/queue", responses=refusals())
    def live_queue() -> LiveQueue:
        return LiveQueue(**service.live.queue())

    @app.get("/live/boards", responses=refusals(500))
    def live_boards() -> LiveBoards:
        return LiveBoards(**service.live.boards())

    if service.contests.all:
        add_routes(app, service.contests, service.live)
    return app


def _completed(schema: dict[str, Any], leaderboards: Sequence[Leaderboard]) -> dict[str, Any]:
    known = {
        "leaderboard_name": [one.name for one in leaderboards],
        "gpu_type": sorted({gpu for one in leaderboards for gpu in one.gpus}),
    }
    known["gpu_name"] = known["gpu_type"]
    for path in schema["paths"].values():
        for operation in path.values():
            for parameter in operation.get("parameters", ()):
                if parameter["name"] in known:
                    parameter["schema"]["enum"] = known[parameter["name"]]
                if parameter["name"] == CLI_ID:
                    parameter |= {"required": True, "schema": {"type": "string", "minLength": 1}}
    return schema


# ---- a submission on its way in ----------------------------------------------------------------------------------
async def _accepted(service: Service, name: str, gpu: str, mode: str, file: UploadFile, secret: str) -> Row:
    """Checks the submission, in the order in which GPU MODE's service does, and queues it."""
    chosen = _mode(mode)
    leaderboard = _leaderboard(service, name)
    _check_gpu(leaderboard, gpu)
    code = _text(await file.read(MAX_BYTES + 1))
    file_name = clean_line(file.filename or "submission.py").replace("\\", "/").rpartition("/")[2][:200]
    if not file_name.endswith(".py"):
        raise HTTPException(400, "Please provide a Python (.py) file")
    _check_directives(service, code, leaderboard)

    def add(placement: Placement | None) -> Row:
        user = service.store.users.register(secret, service.login)
        asked = Asked(
            problem=leaderboard.problem,
            leaderboard=leaderboard.name,
            gpu=gpu,
            mode=chosen,
            file_name=file_name,
            code=code,
            **(vars(placement) if placement else {}),
        )
        return service.store.add(user, asked, service.limits)

    try:
        row = await run_in_threadpool(service.contests.enter, secret, leaderboard.name, chosen, file_name, code, add)
    except UsageError as error:
        raise HTTPException(403, str(error)) from None
    except UnknownUserError as error:
        raise HTTPException(401, f"Invalid or unauthorized X-Popcorn-Cli-Id: {error}") from None
    except QueueFullError as error:
        raise HTTPException(429 if error.of_user else 503, str(error), headers={"Retry-After": RETRY_S}) from None
    service.worker.wake()
    return row


def _mode(name: str) -> Mode:
    if name.lower() == "private":
        raise HTTPException(400, f"Submission mode '{name}' is not supported for this endpoint")
    if name.lower() not in get_args(Mode):
        raise HTTPException(400, f"Invalid submission mode value: '{name}'")
    return cast(Mode, name.lower())


def _leaderboard(service: Service, name: str) -> Leaderboard:
    found = service.find(name)
    if found is None:
        raise HTTPException(404, f"Leaderboard `{name}` does not exist.")
    return found


def _check_gpu(leaderboard: Leaderboard, gpu: str) -> None:
    if gpu not in leaderboard.gpus:
        raise HTTPException(
            400,
            f"GPU type '{gpu}' is not supported for leaderboard '{leaderboard.name}'. "
            f"Supported GPUs: {', '.join(leaderboard.gpus)}",
        )


def _text(data: bytes) -> str:
    if not data:
        raise HTTPException(400, "Empty file submitted. Please provide a file with code.")
    if len(data) > MAX_BYTES:
        raise HTTPException(413, TOO_LARGE)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise HTTPException(400, "Failed to decode submission file content as UTF-8.") from None


def _check_directives(service: Service, code: str, leaderboard: Leaderboard) -> None:
    """Refuses a file whose first comment lines name another leaderboard. The request's GPU takes precedence over the
    file's."""
    try:
        named = directives(code).leaderboard
    except BadSubmissionError as error:
        raise HTTPException(400, str(error)) from None
    if named is not None and service.find(named) != leaderboard:
        raise HTTPException(
            400,
            f"Leaderboard name `{leaderboard.name}` specified in the command doesn't match the one in the submission "
            f"script header `{clean_line(named)[:200]}`.",
        )


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


# ---- what there is -----------------------------------------------------------------------------------------------
def _own(service: Service, submission_id: int, secret: str, what: str) -> Row:
    """The user's own submission."""
    if (row := service.store.get(submission_id)) is None:
        raise HTTPException(404, "Submission not found")
    user: User | None = service.store.users.known(secret)
    if user is None or user.id != row.user_id:
        raise HTTPException(403, f"Not authorized to {what} this submission")
    return row


def _ranked(service: Service, name: str, gpu: str) -> list[Row]:
    leaderboard = _leaderboard(service, name)
    _check_gpu(leaderboard, gpu)
    rows = service.store.ranked(leaderboard.name, gpu, leaderboard.more_is_better)
    return [row for row in rows if not service.contests.is_veiled(row)]
