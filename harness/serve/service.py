"""What the server is made of: its problems, its queue, and the parts that answer for them."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from harness.serve.contests import Contests
from harness.serve.live import Live
from harness.serve.store import Limits, Store
from harness.serve.worker import Worker


@dataclass(frozen=True, kw_only=True)
class Leaderboard:
    """A problem as clients see it. `task` is its task.yml, `deadline_s` what one evaluation of it may take. After
    `closes`, ISO 8601, entries are late; None if there is no such moment. `score_unit` and `more_is_better` are of its
    scores, which clients take for seconds whatever they are. `lang` is that of a submission; `unprofiled` says why no
    Nsight Compute profile can be taken, empty where it can."""

    id: int
    name: str
    problem: str
    description: str
    gpus: tuple[str, ...]
    task: dict[str, Any]
    deadline_s: float
    closes: str | None = None
    score_unit: str = "s"
    more_is_better: bool = False
    lang: Literal["py", "cu"] = "py"
    unprofiled: str = ""


@dataclass(kw_only=True)
class Service:
    """The parts that the routes use. `find` gives a leaderboard by any of its names; `stopping` is true once the server
    is shutting down."""

    store: Store
    worker: Worker
    live: Live
    contests: Contests
    leaderboards: tuple[Leaderboard, ...]
    find: Callable[[str], Leaderboard | None]
    login: str
    limits: Limits
    stopping: Callable[[], bool] = lambda: False
    streams: Counter[str] = field(default_factory=Counter)  # open ones, in all and by who opened them
