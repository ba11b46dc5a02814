"""What organisers do over HTTP: start and stop, bans, closed leaderboards, everybody's submissions, statistics.

Routes, parameters, statuses and JSON after gpu-mode/kernelbot src/kernelbot/api/main.py (read 2026-11), as far as an
organiser at home needs them; docs/gpumode.md lists them. They ask for the organisers' token as `Authorization: Bearer`.
As a password it does not count here: a browser that was told it would send it along with other people's forms.
"""

from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Query, Request
from starlette.concurrency import run_in_threadpool

from harness.core.errors import HarnessError
from harness.serve import schemas, statistics
from harness.serve.answers import made, submission_answer
from harness.serve.entry import leaderboard_of, submission_of
from harness.serve.guard import ORGANISER_VARIABLE
from harness.serve.routing import MAX_ID, Here, Id, refusals
from harness.serve.service import Service

DAY = timedelta(hours=24)
NOT_HERE = f"--organiser-token FILE, or {ORGANISER_VARIABLE}, gives the server the token that this needs"


def organiser(request: Request) -> None:
    """Answers 401 unless the request shows the organisers' token as `Authorization: Bearer`."""
    shown = request.headers.get("authorization", "")
    if not shown:
        raise HTTPException(401, f"Missing Authorization header; {NOT_HERE}")
    if not getattr(request.state, "organiser", False) or not shown.lower().startswith("bearer "):
        raise HTTPException(401, "Invalid admin token")


routes = APIRouter(prefix="/admin", dependencies=[Depends(organiser)])


@routes.post("/start", responses=refusals())
async def start(service: Here) -> schemas.Switched:
    """Accepts submissions again."""
    service.accepts_jobs = True
    return schemas.Switched(accepts_jobs=True)


@routes.post("/stop", responses=refusals())
async def stop(service: Here) -> schemas.Switched:
    """Takes no more submissions, until it is started again or the server is. What waits is evaluated."""
    service.accepts_jobs = False
    return schemas.Switched(accepts_jobs=False)


@routes.get("/stats", responses=refusals(404))
def stats(service: Here, last_day_only: bool = False, leaderboard_name: str | None = None) -> schemas.StatisticsAnswer:
    """How many submissions, users and runs there were; for the last day also whose runs took longest."""
    name = leaderboard_of(service, leaderboard_name).name if leaderboard_name else None
    rows = service.store.listed(None, name)
    if not last_day_only:
        codes = len({service.store.code(row.id) for row in rows})
        return schemas.StatisticsAnswer(stats=statistics.of_queue(rows) | {"num_unique_codes": codes})
    since = datetime.now(UTC) - DAY
    rows = [row for row in rows if datetime.fromisoformat(row.submitted_at) >= since]
    return schemas.StatisticsAnswer(stats=statistics.of_queue(rows) | statistics.longest(rows))


@routes.post("/ban/{user_id}", responses=refusals(404))
def ban(service: Here, user_id: str) -> schemas.Banned:
    """Refuses the user's submissions from now on. Earlier ones stay, and what waits is evaluated."""
    return _banned(service, user_id, True)


@routes.delete("/ban/{user_id}", responses=refusals(404))
def unban(service: Here, user_id: str) -> schemas.Banned:
    return _banned(service, user_id, False)


@routes.post("/leaderboards", responses=refusals(400))
def create_leaderboard(service: Here, request: Request, asked: schemas.CreateLeaderboard) -> schemas.LeaderboardCreated:
    """Offers a problem folder of the server's machine under its name and `-dev`, after a restart too. A second time
    reads the folder again."""
    try:
        name = service.create_leaderboard(asked.directory, asked.visibility == "closed")
    except HarnessError as error:
        raise HTTPException(400, str(error)) from None
    request.app.openapi_schema = None  # it names the leaderboards
    return schemas.LeaderboardCreated(leaderboard=name)


@routes.delete("/leaderboards/{leaderboard_name}", responses=refusals(400, 404))
def delete_leaderboard(
    service: Here, request: Request, leaderboard_name: str, force: bool = False
) -> schemas.LeaderboardDeleted:
    """Offers a leaderboard no more that was created over HTTP. What the board has of it stays."""
    is_created = leaderboard_name in service.store.boards.created()  # its folder may be gone
    name = leaderboard_name if is_created else leaderboard_of(service, leaderboard_name).name
    try:
        service.delete_leaderboard(name, force)
    except HarnessError as error:
        raise HTTPException(400, str(error)) from None
    request.app.openapi_schema = None
    return schemas.LeaderboardDeleted(leaderboard=name, force=force)


@routes.post("/leaderboards/{leaderboard_name}/visibility", responses=refusals(400, 404))
def set_visibility(service: Here, leaderboard_name: str, asked: schemas.SetVisibility) -> schemas.VisibilityChanged:
    """A closed leaderboard takes no submissions and is not shown. Users still see their own."""
    leaderboard = leaderboard_of(service, leaderboard_name)
    service.store.boards.close(leaderboard.problem, asked.visibility == "closed")
    return schemas.VisibilityChanged(leaderboard=leaderboard.name, visibility=asked.visibility)


@routes.get("/leaderboards/{leaderboard_name}/submissions", responses=refusals(404))
def history(
    service: Here,
    leaderboard_name: str,
    limit: Annotated[int, Query(ge=1, le=MAX_ID)] = 100,
    offset: Annotated[int, Query(ge=0, le=MAX_ID)] = 0,
) -> schemas.LeaderboardHistory:
    """Everybody's submissions to a leaderboard, newest first."""
    name = leaderboard_of(service, leaderboard_name).name
    rows = service.store.listed(None, name, limit, offset)
    found = [made(schemas.PastSubmission, row, done=row.done) for row in rows]
    return schemas.LeaderboardHistory(leaderboard=name, limit=limit, offset=offset, submissions=found)


@routes.get("/submissions/{submission_id}", responses=refusals(404))
def show(service: Here, submission_id: Id) -> schemas.SubmissionForOrganisers:
    """Anybody's submission, with its source."""
    row = submission_of(service, submission_id)
    return schemas.SubmissionForOrganisers(submission=submission_answer(service, row))


@routes.delete("/submissions/{submission_id}", responses=refusals(404))
def delete(service: Here, submission_id: Id) -> schemas.Deleted:
    """Deletes anybody's submission, as its owner could."""
    if not service.delete(submission_of(service, submission_id)):
        raise HTTPException(404, "Submission not found")
    return schemas.Deleted(submission_id=submission_id)


@routes.delete("/submissions", responses=refusals(404))
def delete_of_user(
    service: Here, leaderboard_id: Annotated[int, Query(ge=1, le=MAX_ID)], user_name: str
) -> schemas.DeletedOfUser:
    """Deletes a user's submissions to a leaderboard."""
    leaderboard = next((one for one in service.catalogue.leaderboards if one.id == leaderboard_id), None)
    user = service.store.users.named(user_name)
    if leaderboard is None or user is None:
        raise HTTPException(404, "There is no such leaderboard" if user else f"User {user_name} not found")
    count = sum(service.delete(row) for row in service.store.listed(user, leaderboard.name))
    return schemas.DeletedOfUser(leaderboard_id=leaderboard_id, user_name=user.name, deleted=count)


@routes.post("/update-problems", responses=refusals(400))
async def update_problems(service: Here, request: Request, asked: schemas.UpdateProblems) -> schemas.UpdatedProblems:
    """Reads the problems' files again: those of the checkout, and of the folders and competition files that the server
    was started with. Bring them up to date first; nothing is downloaded."""
    given = [name for name in ("repository", "branch", "problem_set") if getattr(asked, name) is not None]
    if given:
        where = "the problems are those of the server's own files; bring these up to date, and leave it out"
        raise HTTPException(400, f"{given[0]} is not taken here: {where}")
    try:
        changes = await run_in_threadpool(service.update)
    except HarnessError as error:
        raise HTTPException(400, str(error)) from None
    for name in changes.created:
        if asked.visibility == "closed":
            service.store.boards.close(leaderboard_of(service, name).problem, True)
    request.app.openapi_schema = None  # it names the leaderboards
    return schemas.UpdatedProblems(**vars(changes))


@routes.api_route("/{rest:path}", methods=["GET", "POST", "PUT", "DELETE"], include_in_schema=False)
async def nothing(rest: str) -> None:
    raise HTTPException(404, f"There is no /admin/{rest} here, or not by this method; docs/gpumode.md lists what is")


def _banned(service: Service, name: str, is_banned: bool) -> schemas.Banned:
    user = service.store.users.ban(name, is_banned)
    if user is None:
        raise HTTPException(404, f"User {name} not found")
    return schemas.Banned(user_id=user.name, banned=user.is_banned)
