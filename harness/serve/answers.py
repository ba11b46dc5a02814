"""The answers' bodies, made of rows of the queue."""

from typing import TypeVar

from pydantic import BaseModel

from harness.serve import schemas
from harness.serve.offers import Leaderboard
from harness.serve.service import Service
from harness.serve.store import Row

RUNNER = "Local"
M = TypeVar("M", bound=BaseModel)


def made(body: type[M], of: Row | Leaderboard, **more: object) -> M:
    """The body of what a row or leaderboard says, and `more`."""
    return body.model_validate({**vars(of), **more})


def submission_answer(service: Service, row: Row) -> schemas.SubmissionAnswer:
    ahead = 0 if row.done else service.store.ahead(row)
    leaderboard = service.catalogue.find(row.leaderboard)
    return made(
        schemas.SubmissionAnswer,
        row,
        leaderboard_id=leaderboard.id if leaderboard else 0,  # 0: its problem is not here any more
        done=row.done,
        code=service.store.code(row.id),
        job=schemas.JobAnswer(
            status=row.state,
            error=row.error,
            last_heartbeat=row.ended_at or row.started_at or row.submitted_at,
            progress=service.worker.progress(row.id) or None,
        ),
        queue=place_answer(row, ahead),
        runner_queue=schemas.RunnerQueue(runner=RUNNER, gpu=row.gpu, queued_jobs=ahead),
    )


def place_answer(row: Row, ahead: int) -> schemas.QueuePlace:
    if row.state == "pending":
        return schemas.QueuePlace(stage="queued", message="waits for its turn", position=ahead + 1, jobs_ahead=ahead)
    return schemas.QueuePlace(stage="dispatched", message="its turn has come", position=None, jobs_ahead=None)
