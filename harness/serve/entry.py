"""A submission on its way in: what is asked of its form, and how it is queued. The statuses and texts are those of GPU
MODE's service (gpu-mode/kernelbot src/kernelbot/api/, read 2026-11)."""

from dataclasses import dataclass, replace
from typing import cast, get_args

from fastapi import HTTPException, UploadFile
from starlette.concurrency import run_in_threadpool

from harness.core.errors import BadSubmissionError, UsageError
from harness.core.records import Mode
from harness.core.words import clean_line
from harness.problems.submission import MAX_BYTES, SUFFIXES, directives
from harness.serve.guard import TOO_LARGE
from harness.serve.offers import Leaderboard
from harness.serve.queue_file import UnwrittenError
from harness.serve.service import Service
from harness.serve.store import NewSubmission, Placement, QueueFullError, Row, Tooled
from harness.serve.users import BannedError, UnknownUserError

RETRY_S = "30"
LANGUAGES = {"py": "Python", "cu": "CUDA"}
NO_TOOL = Tooled()


@dataclass(frozen=True, kw_only=True)
class Upload:
    """A file as it was sent, for a leaderboard and a GPU by their names."""

    leaderboard: str
    gpu: str
    file: UploadFile


async def accepted(service: Service, upload: Upload, mode: str, secret: str, tooled: Tooled = NO_TOOL) -> Row:
    """Checks the submission, in the order in which GPU MODE's service does, and queues it."""
    chosen = _mode(mode)
    if not service.accepts_jobs:
        raise HTTPException(
            503, "This server does not accept submissions at the moment.", headers={"Retry-After": "300"}
        )
    leaderboard, file = leaderboard_of(service, upload.leaderboard), upload.file
    check_open(service, leaderboard)
    check_gpu(leaderboard, upload.gpu)
    code = _text(await file.read(MAX_BYTES + 1))
    suffixes = SUFFIXES[leaderboard.lang]
    file_name = clean_line(file.filename or f"submission{suffixes[0]}").replace("\\", "/").rpartition("/")[2][-200:]
    if not file_name.endswith(suffixes):
        raise HTTPException(400, f"Please provide a {LANGUAGES[leaderboard.lang]} ({' / '.join(suffixes)}) file")
    _check_directives(service, code, leaderboard)
    asked = NewSubmission(
        problem=leaderboard.problem,
        leaderboard=leaderboard.name,
        gpu=upload.gpu,
        mode=chosen,
        file_name=file_name,
        code=code,
        **vars(tooled),
    )

    def add(placement: Placement) -> Row:
        user = service.store.users.register(secret, service.login)
        return service.store.add(user, replace(asked, **vars(placement)), service.limits)

    try:
        row = await run_in_threadpool(service.contests.enter, secret, leaderboard.name, chosen, file_name, code, add)
    except (UsageError, BannedError) as error:
        raise HTTPException(403, str(error)) from None
    except UnknownUserError as error:
        raise HTTPException(401, f"Invalid or unauthorized X-Popcorn-Cli-Id: {error}") from None
    except UnwrittenError as error:
        raise HTTPException(503, str(error), headers={"Retry-After": RETRY_S}) from None
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


def leaderboard_of(service: Service, name: str) -> Leaderboard:
    found = service.catalogue.find(name)
    if found is None:
        raise HTTPException(404, f"Leaderboard `{name}` does not exist.")
    return found


def submission_of(service: Service, submission_id: int) -> Row:
    row = service.store.get(submission_id)
    if row is None:
        raise HTTPException(404, "Submission not found")
    return row


def check_open(service: Service, leaderboard: Leaderboard) -> None:
    """Answers 403 for a leaderboard that an organiser has closed."""
    if leaderboard.problem in service.store.boards.closed():
        raise HTTPException(403, f"Leaderboard `{leaderboard.name}` is closed.")


def check_gpu(leaderboard: Leaderboard, gpu: str) -> None:
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
    """Refuses a file whose first comment lines name another leaderboard."""
    try:
        named = directives(code).leaderboard
    except BadSubmissionError as error:
        raise HTTPException(400, str(error)) from None
    if named is not None and service.catalogue.find(named) != leaderboard:
        raise HTTPException(
            400,
            f"Leaderboard name `{leaderboard.name}` specified in the command doesn't match the one in the submission "
            f"script header `{clean_line(named)[:200]}`.",
        )
