"""What the routes of the API share: the service that they answer for, and their statuses in OpenAPI's words."""

from typing import Annotated, Any

from fastapi import Depends, Path, Request

from harness.serve.schemas import Detail
from harness.serve.service import Service

MAX_ID = 2**63 - 1  # SQLite's
Id = Annotated[int, Path(ge=1, le=MAX_ID)]
REASONS = {
    400: "something that was asked for is not there, or not as it must be",
    401: "the token, or an X-Popcorn-Cli-Id that cannot be taken on",
    403: "somebody else's submission, a rule of a contest, a ban, or a closed leaderboard",
    404: "no such leaderboard or submission",
    405: "no such method there",
    408: "the request did not come to an end",
    413: "more than 1 MB",
    421: "a Host that is not this server's",
    429: "too many of this user's submissions wait; see Retry-After",
    500: "the checkout cannot be read",
    503: "too many submissions wait, streams are open, or organisers have stopped the server; see Retry-After",
}


def refusals(*codes: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI's words for the statuses of a route, with those that the guard gives to any."""
    return {code: {"model": Detail, "description": REASONS[code]} for code in sorted({*codes, 401, 421})}


def service_of(request: Request) -> Service:
    found: Service = request.app.state.service
    return found


Here = Annotated[Service, Depends(service_of)]
