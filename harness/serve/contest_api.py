"""A contest's pages: what everybody may see, and what its organisers see who show their token."""

from typing import Any

from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse

from harness.report import contest_page
from harness.report.contest_view import contests_json
from harness.serve.contests import Contests
from harness.serve.live import Live

BASIC = 'Basic realm="kernel-eval organisers", charset="UTF-8"'


def add_routes(app: FastAPI, contests: Contests, live: Live) -> None:
    """Adds the routes below /contests, on a server that has contests."""

    @app.get("/contests", responses={500: {"description": "a contest's file or log cannot be read"}})
    def index() -> dict[str, Any]:
        return contests_json(contests.all, contests.now())

    def data(key: str, is_full: bool) -> dict[str, Any]:
        found = contests.get(key)
        if found is None:
            raise HTTPException(404, f"Contest `{key}` is not run here.")
        return contests.data(found, live.board(), is_full)

    @app.get("/contests/{key}", response_class=HTMLResponse, responses=NONE)
    def public(key: str) -> HTMLResponse:
        """The page with what everybody may see: as it was at the freeze, and counts alone while it is private."""
        return HTMLResponse(contest_page.html(data(key, is_full=False)))

    @app.get("/contests/{key}/data", responses=NONE)
    def public_data(key: str) -> dict[str, Any]:
        return data(key, is_full=False)

    @app.get("/contests/{key}/full", response_class=HTMLResponse, responses=REFUSED, dependencies=ORGANISERS)
    def full(key: str) -> HTMLResponse:
        """The page as organisers see it."""
        return HTMLResponse(contest_page.html(data(key, is_full=True)))

    @app.get("/contests/{key}/full/data", responses=REFUSED, dependencies=ORGANISERS)
    def full_data(key: str) -> dict[str, Any]:
        return data(key, is_full=True)


def _check_organiser(request: Request) -> None:
    if not getattr(request.state, "organiser", False):
        detail = "Only organisers see this: send their token as `Authorization: Bearer`, or as a password."
        raise HTTPException(401, detail, headers={"WWW-Authenticate": BASIC})


NONE: dict[int | str, dict[str, Any]] = {404: {"description": "no such contest"}}
REFUSED = {401: {"description": "the organisers' token is needed"}} | NONE
ORGANISERS = [Depends(_check_organiser)]
