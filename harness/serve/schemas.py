"""The bodies of the service's answers, under the names that popcorn-cli and the live page read.

Where a row of the queue, or a leaderboard, has another name for a field, that is the field's `validation_alias`
(answers.made)."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


# ---- what is sent ------------------------------------------------------------------------------------------------
class Detail(BaseModel):
    """Why a request was refused."""

    detail: str


class OkAnswer(BaseModel):
    """What was asked for is done."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True)
    status: Literal["ok"] = "ok"


class Health(OkAnswer):
    """The server answers."""


class AuthState(BaseModel):
    """`state` is an id that no user has yet."""

    state: str


class LeaderboardItem(BaseModel):
    """A leaderboard; `task` has task.yml's keys, and the texts of its files; it is empty
    for a solver, a model or a training, which are no tasks of KernelBot's."""

    id: int
    name: str
    deadline: str | None = Field(validation_alias="closes")
    description: str
    task: dict[str, Any]
    gpu_types: list[str] = Field(validation_alias="gpus")
    creator_id: int
    forum_id: int
    visibility: str


class OfUser(BaseModel):
    submission_id: int = Field(validation_alias="id")
    submission_time: str = Field(validation_alias="submitted_at")
    user_id: str = Field(validation_alias="user")
    user_name: str = Field(validation_alias="user")
    gpu_type: str = Field(validation_alias="gpu")


class RankedEntry(OfUser):
    rank: int
    submission_name: str = Field(validation_alias="file_name")
    submission_score: float = Field(validation_alias="score_s")
    leaderboard_name: str = Field(validation_alias="leaderboard")


class Count(BaseModel):
    count: int


class QueuePlace(BaseModel):
    stage: Literal["queued", "dispatched"]
    message: str
    position: int | None
    jobs_ahead: int | None


class RunnerQueue(BaseModel):
    runner: str
    gpu: str
    queued_jobs: int


class RunnerBacklog(RunnerQueue):
    """The queue of the only runner; `available_runners` is 1 while nothing runs."""

    running_jobs: int
    available_runners: int
    status: Literal["available"]
    error: str | None


class AcceptedDetails(BaseModel):
    id: int
    job_status_id: int


class Accepted(BaseModel):
    details: AcceptedDetails
    queue: QueuePlace
    runner_queue: RunnerQueue
    status: Literal["accepted"]


class ShortRun(BaseModel):
    gpu_type: str = Field(validation_alias="runner")
    score: float | None


class OwnSubmission(BaseModel):
    id: int
    leaderboard_name: str = Field(validation_alias="leaderboard")
    file_name: str
    submission_time: str = Field(validation_alias="submitted_at")
    done: bool


class ShortSubmission(OwnSubmission):
    runs: list[ShortRun]


class RunAnswer(BaseModel):
    start_time: str | None
    end_time: str | None
    mode: str
    secret: bool
    runner: str
    score: float | None
    passed: bool
    result: dict[str, str] | None
    diagnostics: dict[str, Any] | None


class JobAnswer(BaseModel):
    """`progress` is the running evaluation's phase and case."""

    status: Literal["pending", "running", "succeeded", "failed", "timed_out"]
    error: str | None
    last_heartbeat: str | None
    progress: str | None


class SubmissionAnswer(OwnSubmission):
    leaderboard_id: int
    user_id: str = Field(validation_alias="user")
    code: str
    runs: list[RunAnswer]
    job: JobAnswer
    queue: QueuePlace
    runner_queue: RunnerQueue


class Deleted(OkAnswer):
    submission_id: int


# ---- to organisers, and from them
Visibility = Literal["public", "closed"]


class Switched(OkAnswer):
    accepts_jobs: bool


class StatisticsAnswer(OkAnswer):
    """Counts, and times in seconds."""

    stats: dict[str, float]


class Banned(OkAnswer):
    user_id: str
    banned: bool


class SetVisibility(BaseModel):
    visibility: Visibility


class VisibilityChanged(OkAnswer):
    leaderboard: str
    visibility: Visibility


class CreateLeaderboard(BaseModel):
    """`directory` is a problem folder of the server's machine, relative to where the server was started."""

    model_config = ConfigDict(extra="forbid")
    directory: str
    visibility: Visibility = "public"


class LeaderboardCreated(OkAnswer):
    leaderboard: str


class LeaderboardDeleted(OkAnswer):
    leaderboard: str
    force: bool


class PastSubmission(OfUser):
    file_name: str
    mode: str
    status: str = Field(validation_alias="state")
    done: bool
    score: float | None = Field(validation_alias="score_s")
    error: str | None


class LeaderboardHistory(OkAnswer):
    leaderboard: str
    limit: int
    offset: int
    submissions: list[PastSubmission]


class SubmissionForOrganisers(OkAnswer):
    submission: SubmissionAnswer


class DeletedOfUser(OkAnswer):
    """`deleted` counts the submissions that were deleted."""

    leaderboard_id: int
    user_name: str
    deleted: int


class UpdateProblems(BaseModel):
    """`visibility` is that of new leaderboards. GPU MODE's service downloads a repository, which the next three keys
    name; a request that has one of them is refused. `force` changes nothing: what has changed is always taken."""

    model_config = ConfigDict(extra="forbid")
    visibility: Visibility = "public"
    repository: str | None = None
    branch: str | None = None
    problem_set: str | None = None
    force: bool = False


class UpdatedProblems(OkAnswer):
    """Leaderboards' names, and why problems cannot be offered. `skipped` ones have not changed."""

    created: tuple[str, ...]
    updated: tuple[str, ...]
    removed: tuple[str, ...]
    skipped: tuple[str, ...]
    errors: tuple[str, ...]


# ---- the live page; its queue is live.QueueState
class LiveBoards(BaseModel):
    """The page's data (harness/report/page_data.py: Page)."""

    version: str
    page: dict[str, Any]
