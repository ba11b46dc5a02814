"""popcorn-cli's HTTP API: routes, parameters, statuses and JSON as GPU MODE's service has them.

After gpu-mode/kernelbot src/kernelbot/api/ and gpu-mode/popcorn-cli src/service/ (read 2026-11). Knows requests and
answers; the queue is store's, evaluations are worker's, what a submission must be is entry's, and what every request
must pass first is guard's. Where an answer differs from theirs on purpose, docs/gpumode.md says so.

An X-Popcorn-Cli-Id that is not known yet is taken on with its first submission: nobody signs in to one's own machine.
"""

import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated, Any, get_args

from fastapi import APIRouter, Depends, FastAPI, Form, Header, HTTPException, Path, Query, Request, Response, UploadFile
from fastapi.responses import HTMLResponse, JSONResponse, StreamingResponse
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool

from harness.core.errors import HarnessError
from harness.core.records import Mode
from harness.serve import admin_api, answers, schemas
from harness.serve.contest_api import add_routes
from harness.serve.entry import Upload, accepted, check_gpu, check_open, leaderboard_of, submission_of
from harness.serve.events import streamed
from harness.serve.live import QueueState
from harness.serve.offers import NSIGHT, Leaderboard
from harness.serve.routing import MAX_ID, Here, Id, refusals
from harness.serve.service import Service
from harness.serve.store import Row, Tooled

MOST_LAUNCHES = 1_000_000  # that a profile may be asked to have

CLI_ID, WEB_ID = "X-Popcorn-Cli-Id", "X-Web-Auth-Id"
CliId = Annotated[
    str | None, Header(alias=CLI_ID, description="Who submits: `name:secret`, or any text that nobody else knows.")
]
WebId = Annotated[str | None, Header(alias=WEB_ID, include_in_schema=False)]  # OpenAPI has no word for either of two
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


def any_id(x_web_auth_id: WebId = None, x_popcorn_cli_id: CliId = None) -> str:
    """The id of either header; answers 400 without one, as GPU MODE's service does."""
    if not (found := x_web_auth_id or x_popcorn_cli_id):
        raise HTTPException(400, f"Missing {WEB_ID} or {CLI_ID} header")
    return found


Secret = Annotated[str, Depends(cli_id)]
EitherSecret = Annotated[str, Depends(any_id)]


def ranked(service: Here, leaderboard_name: str, gpu_name: str) -> list[Row]:
    """Each user's best submission to a leaderboard, best first, as far as the public may see it."""
    leaderboard = leaderboard_of(service, leaderboard_name)
    check_open(service, leaderboard)
    check_gpu(leaderboard, gpu_name)
    return service.store.ranked(leaderboard.name, gpu_name, leaderboard.more_is_better, service.contests.seen)


Ranked = Annotated[list[Row], Depends(ranked)]


async def _uploaded(leaderboard_name: str, gpu_type: str, file: UploadFile) -> Upload:
    return Upload(leaderboard=leaderboard_name, gpu=gpu_type, file=file)


Uploaded = Annotated[Upload, Depends(_uploaded)]


async def _profiled(
    service: Here,
    leaderboard_name: str,
    benchmark_index: Annotated[int | None, Form(ge=0)] = None,
    ncu_kernel_name: Annotated[str | None, Form()] = None,
    ncu_kernel_name_base: Annotated[str | None, Form()] = None,
    ncu_launch_count: Annotated[int | None, Form(ge=1, le=MOST_LAUNCHES)] = None,
) -> Tooled:
    """What Nsight Compute is to profile. Answers 404 and 400 for what it cannot."""
    leaderboard = leaderboard_of(service, leaderboard_name)
    if leaderboard.unprofiled:
        why = f"Nsight Compute cannot profile `{leaderboard.name}` here: {leaderboard.unprofiled}"
        torchs = f"`python -m harness eval {leaderboard.problem} FILE --mode profile`"
        raise HTTPException(404, f"{why}. On the server's machine, {torchs} takes torch's profile.")
    filters = {"ncu_kernel_name": ncu_kernel_name, "ncu_kernel_name_base": ncu_kernel_name_base}
    if given := [name for name, value in filters.items() if value is not None]:
        why = "a profile has kernels of every name. Leave it out; ncu_launch_count says how many launches"
        raise HTTPException(400, f"{given[0]} is not taken here: {why}.")
    count = len(leaderboard.task["benchmarks"])
    if benchmark_index is not None and benchmark_index >= count:
        raise HTTPException(400, f"benchmark_index must be between 0 and {count - 1}")
    return Tooled(tool=NSIGHT, benchmark=benchmark_index, launch_count=ncu_launch_count)


STREAMED: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {}}, "description": "status events, then one result or error"}
}
routes = APIRouter()


# ---- the routes --------------------------------------------------------------------------------------------------


@routes.get("/health", responses=refusals())
async def health() -> schemas.Health:
    return schemas.Health()


@routes.get("/auth/init", responses=refusals(400))
async def auth_init(provider: Provider) -> schemas.AuthState:
    """There is no sign-in: the id that the client keeps is valid at once."""
    if provider not in ("discord", "github"):
        raise HTTPException(400, "Invalid provider, must be 'discord' or 'github'")
    return schemas.AuthState(state=str(uuid.uuid4()))


@routes.get("/leaderboards", responses=refusals())
async def leaderboards(service: Here) -> list[schemas.LeaderboardItem]:
    closed = service.store.boards.closed()
    names = {one.id: "closed" if one.problem in closed else "public" for one in service.catalogue.leaderboards}
    return [
        answers.made(schemas.LeaderboardItem, one, creator_id=0, forum_id=-1, visibility=names[one.id])
        for one in service.catalogue.leaderboards
    ]


@routes.get("/gpus/{leaderboard_name}", responses=refusals(403, 404))
async def gpus(service: Here, leaderboard_name: str) -> list[str]:
    leaderboard = leaderboard_of(service, leaderboard_name)
    check_open(service, leaderboard)
    return list(leaderboard.gpus)


@routes.get("/runner_queue/{gpu_type}", responses=refusals(404))
def runner_queue(service: Here, gpu_type: str) -> schemas.RunnerBacklog:
    """How many submissions wait and run. One runner evaluates those for all GPU names."""
    known = {gpu.lower(): gpu for one in service.catalogue.leaderboards for gpu in one.gpus}
    if gpu_type.lower() not in known:
        raise HTTPException(404, f"GPU `{gpu_type}` does not exist. Choose one of: {', '.join(known.values())}")
    running, (_, waiting) = len(service.store.running()), service.store.waiting(0)
    return schemas.RunnerBacklog(
        runner=answers.RUNNER,
        gpu=known[gpu_type.lower()],
        queued_jobs=waiting,
        running_jobs=running,
        available_runners=max(0, service.worker.at_once - running),
        status="available",
        error=None,
    )


@routes.get("/submissions/{leaderboard_name}/{gpu_name}", responses=refusals(400, 403, 404))
def submissions(
    rows: Ranked, limit: Annotated[int | None, Query(ge=1, le=MAX_ID)] = None, offset: Offset = 0
) -> list[schemas.RankedEntry]:
    """Each user's best submission. The boards of `GET /` also have what was recorded otherwise."""
    chosen = list(enumerate(rows, start=1))[offset : None if limit is None else offset + limit]
    return [answers.made(schemas.RankedEntry, row, rank=rank) for rank, row in chosen]


@routes.get("/submission_count/{leaderboard_name}/{gpu_name}", responses=refusals(400, 403, 404))
def submission_count(rows: Ranked, user_id: str | None = None) -> schemas.Count:
    return schemas.Count(count=sum(user_id in (None, row.user) for row in rows))


@routes.get("/user/submissions", responses=refusals(400))
def own(
    service: Here, secret: EitherSecret, leaderboard: str | None = None, limit: Limit = 50, offset: SignedOffset = 0
) -> list[schemas.ShortSubmission]:
    if not 1 <= limit <= 100:
        raise HTTPException(400, "limit must be between 1 and 100")
    if offset < 0:
        raise HTTPException(400, "offset must be >= 0")
    user = service.store.users.known(secret)
    known = service.catalogue.find(leaderboard) if leaderboard else None
    name = known.name if known else leaderboard or None
    rows = service.store.listed(user, name, limit, offset) if user else []
    runs = ([run for run in row.runs if run["passed"] and not run["secret"]] for row in rows)
    return [
        answers.made(schemas.ShortSubmission, row, done=row.done, runs=own) for row, own in zip(rows, runs, strict=True)
    ]


@routes.get("/user/submissions/{submission_id}", responses=refusals(400, 403, 404))
def show(service: Here, submission_id: Id, secret: EitherSecret) -> schemas.SubmissionAnswer:
    return answers.submission_answer(service, _own(service, submission_id, secret, "view"))


@routes.delete("/user/submissions/{submission_id}", responses=refusals(400, 403, 404))
def delete(service: Here, submission_id: Id, secret: EitherSecret) -> schemas.Deleted:
    """Ends its evaluation if it is running. Its records in leaderboard.yaml and runs/ stay."""
    row = _own(service, submission_id, secret, "delete")
    if not service.delete(row):
        raise HTTPException(404, "Submission not found")
    return schemas.Deleted(submission_id=row.id)


@routes.post("/user/join", responses=refusals(400, 404, 408, 413))
async def join(secret: Secret) -> Response:
    raise HTTPException(404, "There are no invite codes here: every leaderboard is open.")


@routes.post(
    "/profile/{leaderboard_name}/{gpu_type}",
    response_class=StreamingResponse,
    responses={**STREAMED, **refusals(400, 403, 404, 408, 413, 429, 503)},
)
async def profile(
    service: Here, request: Request, upload: Uploaded, secret: Secret, tooled: Annotated[Tooled, Depends(_profiled)]
) -> StreamingResponse:
    """Queues the file for a profile by Nsight Compute and streams its progress, to the reports. A profile has the first
    kernel launches of one call, whatever their names."""
    queue = partial(accepted, service, upload, "profile", secret, tooled)
    return await streamed(service, request, secret, queue)


@routes.post(
    "/submission/{leaderboard_name}/{gpu_type}/{submission_mode}",
    status_code=202,
    responses=refusals(400, 403, 404, 408, 413, 429, 503),
)
async def submit(service: Here, upload: Uploaded, submission_mode: ModeName, secret: EitherSecret) -> schemas.Accepted:
    """Queues the file; `GET /user/submissions/{id}` returns its outcome."""
    row = await accepted(service, upload, submission_mode, secret)
    place = await run_in_threadpool(service.store.ahead, row)
    return schemas.Accepted(
        details=schemas.AcceptedDetails(id=row.id, job_status_id=row.id),
        queue=answers.place_answer(row, place),
        runner_queue=schemas.RunnerQueue(runner=answers.RUNNER, gpu=row.gpu, queued_jobs=place),
        status="accepted",
    )


@routes.post(
    "/{leaderboard_name}/{gpu_type}/{submission_mode}",
    response_class=StreamingResponse,
    responses={**STREAMED, **refusals(400, 403, 404, 405, 408, 413, 429, 503)},
)
async def submit_and_wait(
    service: Here, request: Request, upload: Uploaded, submission_mode: ModeName, secret: Secret
) -> StreamingResponse:
    """Queues the file and streams its progress as server-sent events, to the end. A client that disconnects does
    not end the evaluation."""
    if upload.leaderboard in RESERVED:
        raise HTTPException(405, "Method Not Allowed", headers={"Allow": "GET"})
    queue = partial(accepted, service, upload, submission_mode, secret)
    return await streamed(service, request, secret, queue)


@routes.get("/", response_class=HTMLResponse, responses=refusals(500))
def index(service: Here) -> HTMLResponse:
    """The page with the boards, and the submissions that run and wait."""
    return HTMLResponse(service.live.html())


@routes.get("/live/queue", responses=refusals())
def live_queue(service: Here) -> QueueState:
    return service.live.queue()


@routes.get("/live/boards", responses=refusals(500))
def live_boards(service: Here) -> schemas.LiveBoards:
    return schemas.LiveBoards(**service.live.boards())


# First words of paths that are no leaderboards: a POST there is one of the wrong method
RESERVED = {"admin", "contests", *(one.path.split("/")[1] for one in routes.routes if isinstance(one, APIRoute))}


# ---- the application ----------------------------------------------------------------------------------------------
def make_app(service: Service) -> FastAPI:
    """The API over a service. The worker runs as long as the application does."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.worker.start()
        yield
        await run_in_threadpool(service.worker.stop)

    app = FastAPI(title="kernel-eval", version="1", lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.service = service
    app.include_router(admin_api.routes)  # before the routes that take any first word
    app.include_router(routes)
    app.add_exception_handler(HarnessError, _broken)
    if service.contests.all:
        add_routes(app, service.contests, service.live)

    def described() -> dict[str, Any]:
        """FastAPI's schema, with what it cannot know: which leaderboards and GPUs there are, and that the id is
        needed, though it is not FastAPI that asks for it."""
        if app.openapi_schema is None:
            app.openapi_schema = _completed(FastAPI.openapi(app), service.catalogue.leaderboards)
        return app.openapi_schema

    app.openapi = described  # type: ignore[method-assign]
    return app


async def _broken(request: Request, error: Exception) -> JSONResponse:
    """For example a leaderboard or report that cannot be read."""
    return JSONResponse({"detail": str(error)}, status_code=500)


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


# ---- what there is -----------------------------------------------------------------------------------------------
def _own(service: Service, submission_id: int, secret: str, what: str) -> Row:
    """The user's own submission. Raises HTTPException (404, 403)."""
    row, user = submission_of(service, submission_id), service.store.users.known(secret)
    if user is None or user.id != row.user_id:
        raise HTTPException(403, f"Not authorized to {what} this submission")
    return row
