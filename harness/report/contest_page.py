"""A contest's page: standings, and its statistics as charts, as one HTML file that needs nothing else.

Knows what is on it and how the file is put together; how it looks is in assets/, beside the boards' page. The safety of
its texts is page.py's: everything is JSON that the script puts there as text.
"""

from datetime import datetime
from typing import Any

from harness.board.entries import Board
from harness.contest import standings, statistics
from harness.contest.acts import Contest
from harness.contest.times import shown_time
from harness.core.decode import encode
from harness.report import page
from harness.report.contest_view import phase, standings_json

TEMPLATE, STYLE = "contest.html", "contest.css"  # beside the boards' style
SCRIPTS = ("d3-7.9.2.min.js", "plot-0.6.17.umd.min.js", "text.js", "contest.js")  # in this order


def data(found: Contest, board: Board, now: datetime, is_full: bool) -> dict[str, Any]:
    """What is on the page: for organisers as it is, for everybody else as they may see it."""
    records = found.log.records()
    view = (standings.full if is_full else standings.public)(found.rules, records, board, now)
    told = (statistics.full if is_full else statistics.public)(found.rules, records, now)
    ends = found.rules.ends
    return {
        "description": found.rules.description.strip(),
        "phase": phase(found.rules, found.state(), now),
        "at_text": shown_time(now),
        "frozen_text": shown_time(view.frozen_at) if view.frozen_at else None,
        "ends_text": shown_time(ends) if ends else None,
        "is_full": is_full,
        "standings": standings_json(found, view),
        "statistics": encode(told),
    }


def html(shown: dict[str, Any]) -> str:
    return page.assembled(TEMPLATE, page.clean_data(shown), (page.STYLE, STYLE), SCRIPTS)
