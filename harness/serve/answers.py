"""The answers' bodies, made of rows of the queue."""

from harness.serve.schemas import (
    JobAnswer,
    LeaderboardItem,
    QueuePlace,
    RankedEntry,
    RunAnswer,
    RunnerBacklog,
    RunnerQueue,
    ShortRun,
    ShortSubmission,
    SubmissionAnswer,
)
from harness.serve.service import Leaderboard, Service
from harness.serve.store import Row

RUNNER = "Local"


def leaderboard_item_answer(one: Leaderboard, is_closed: bool) -> LeaderboardItem:
    return LeaderboardItem(
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


def ranked_entry_answer(rank: int, row: Row) -> RankedEntry:
    assert row.score_s is not None, "only scored ones are ranked"
    return RankedEntry(
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


def short_answer(row: Row) -> ShortSubmission:
    runs = [run for run in row.runs if run["passed"] and not run["secret"]]
    return ShortSubmission(
        id=row.id,
        leaderboard_name=row.leaderboard,
        file_name=row.file_name,
        submission_time=row.submitted_at,
        done=row.done,
        runs=[ShortRun(gpu_type=run["runner"], score=run["score"]) for run in runs],
    )


def submission_answer(service: Service, row: Row) -> SubmissionAnswer:
    ahead = 0 if row.done else service.store.ahead(row)
    leaderboard = service.find(row.leaderboard)
    return SubmissionAnswer(
        id=row.id,
        leaderboard_id=leaderboard.id if leaderboard else 0,  # 0: its problem is not here any more
        leaderboard_name=row.leaderboard,
        file_name=row.file_name,
        user_id=row.user,
        submission_time=row.submitted_at,
        done=row.done,
        code=service.store.code(row.id),
        runs=[RunAnswer(**run) for run in row.runs],
        job=JobAnswer(
            status=row.state,
            error=row.error,
            last_heartbeat=row.ended_at or row.started_at or row.submitted_at,
            progress=service.worker.progress(row.id) or None,
        ),
        queue=place_answer(row, ahead),
        runner_queue=RunnerQueue(runner=RUNNER, gpu=row.gpu, queued_jobs=ahead),
    )


def place_answer(row: Row, ahead: int) -> QueuePlace:
    if row.state == "pending":
        return QueuePlace(stage="queued", message="waits for its turn", position=ahead + 1, jobs_ahead=ahead)
    return QueuePlace(stage="dispatched", message="its turn has come", position=None, jobs_ahead=None)


def backlog_answer(service: Service, gpu: str) -> RunnerBacklog:
    running, (_, waiting) = len(service.store.running()), service.store.waiting(0)
    return RunnerBacklog(
        runner=RUNNER,
        gpu=gpu,
        queued_jobs=waiting,
        running_jobs=running,
        available_runners=max(0, service.worker.at_once - running),
        status="available",
        error=None,
    )
