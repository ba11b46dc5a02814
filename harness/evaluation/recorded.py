"""One evaluation as a user asks for it: evaluated, then recorded in runs/ and on the board."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from harness.board import entries, judgements, leaderboard, noise, places, runs
from harness.board.entries import Board
from harness.board.places import By, Place
from harness.core.checkout import Checkout
from harness.core.errors import HarnessError
from harness.core.records import EvalReport
from harness.evaluation.evaluate import evaluate
from harness.evaluation.leader import group_here
from harness.kinds.kind import Order, Progress
from harness.kinds.registry import plan_of


@dataclass(frozen=True, kw_only=True)
class Ran:
    """An evaluation and what became of it: its place, if it was recorded as an entry, or why it was not recorded."""

    report: EvalReport
    standing: Board | None
    place: Place | None
    unrecorded: HarnessError | None
    entry: entries.Entry | None = None  # that it was recorded as


def evaluated(
    order: Order,
    checkout: Checkout,
    *,
    record: bool,
    progress: Progress,
    traces: Path | None = None,
    by: By = "speedup",
) -> Ran:
    """Evaluates and, if asked to, records, which is known to be possible before anything runs; what then goes wrong
    takes no measurement away. Its place is `by` speedup or score. Raises HarnessError if nothing could be measured."""
    setting, mode = order.setting, order.mode
    earlier = leaderboard.load(checkout.leaderboard) if record else None
    version = judgements.problem_version(setting.problem, setting.suite, setting.device) if record else None
    if record:
        leaderboard.check_writable(checkout.leaderboard)
    plan = plan_of(order)
    if earlier is not None and plan.launches > 1:
        plan = replace(plan, usual_sd=noise.launch_sd(earlier, group_here(setting), setting.device))
    report = evaluate(plan, progress)
    place, entry = None, None
    try:
        if mode == "profile":
            report = runs.store_traces(report, traces or checkout.runs / report.run_id)
        if record:
            runs.store(report, checkout.root)
            if mode == "leaderboard" and (judged := judgements.judged(report, version)) is not None:
                prepare = partial(runs.with_code, root=checkout.root)
                earlier = leaderboard.record(checkout.leaderboard, judged, prepare=prepare)
                if isinstance(judged, entries.Entry):
                    entry, place = judged, places.place_of(earlier, judged, by)
    except HarnessError as error:
        return Ran(report=report, standing=earlier, place=None, unrecorded=error)
    return Ran(report=report, standing=earlier, place=place, unrecorded=None, entry=entry)
