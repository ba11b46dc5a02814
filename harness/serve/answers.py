"""The answers' bodies, made of rows of the queue."""

from harness.serve import schemas
from harness.serve.offers import Leaderboard
from harness.serve.service import Service
from harness.serve.store import Row

RUNNER = "Local"


def leaderboard_item_answer(one: Leaderboard, is_closed: bool) -> schemas.LeaderboardItem:
    return schemas.LeaderboardItem(
        id=one.id,
        name=one.name,
        deadline=one.closes,
        description=one.description,
        task=one.task,
        gpu_types=list(one.gpus),
        creator_id=0,
        forum_id=-1,
        visibility="closed" if is_closed else "public",
    )


def ranked_entry_answer(rank: int, row: Row) -> schemas.RankedEntry:
    assert row.score_s is not None, "only scored ones are ranked"
    return schemas.RankedEntry(
        submission_id=row.id,
        rank=rank,
        submission_name=row.file_name,
        submission_time=row.submitted_at,
        submission_score=row.score_s,
        leaderboard_name=row.leaderboard,
        user_id=row.user,
        user_name=row.user,
        gpu_type=row.gpu,
    )


def short_answer(row: Row) -> schemas.ShortSubmission:
    runs = [run for run in row.runs if run["passed"] and not run["secret"]]
    return schemas.ShortSubmission(
        id=row.id,
        leaderboard_name=row.leaderboard,
        file_name=row.file_name,
        submission_time=row.submitted_at,
        done=row.done,
        runs=[schemas.ShortRun(gpu_type=run["runner"], score=run["score"]) for run in runs],
    )


def submission_answer(service: Service, row: Row) -> schemas.SubmissionAnswer:
    ahead = 0 if row.done else service.store.ahead(row)
    leaderboard = service.catalogue.find(row.leaderboard)
    return schemas.SubmissionAnswer(
        id=row.id,
        leaderboard_id=leaderboard.id if leaderboard else 0,  # 0: its problem is not here any more
        leaderboard_name=row.leaderboard,
        file_name=row.file_name,
        user_id=row.user,
        submission_time=row.submitted_at,
        done=row.done,
        code=service.store.code(row.id),
        runs=[schemas.RunAnswer(**run) for run in row.runs],
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


def backlog_answer(service: Service, gpu: str) -> schemas.RunnerBacklog:
    running, (_, waiting) = len(service.store.running()), service.store.waiting(0)
    return schemas.RunnerBacklog(
        runner=RUNNER,
        gpu=gpu,
        queued_jobs=waiting,
        running_jobs=running,
        available_runners=max(0, service.worker.at_once - running),
        status="available",
        error=None,
    )
