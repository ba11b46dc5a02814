"""Show what in runs/ and in the compile caches can go, and with --apply delete it: runs by their age,
number and size; stored sources that neither the leaderboard nor a run has; compile caches by their last use; the
service's sources and results of submissions that are no user's best. Whatever leaderboard.yaml or a contest in
contests/ names stays, histories and settlements included, and so does everything of the last day."""

import functools
import math
import sys
import time
from dataclasses import dataclass

from harness.board import leaderboard, prune
from harness.board.prune import Limits, Needed
from harness.cli import result_files
from harness.cli.declare import option
from harness.contest import acts
from harness.core.checkout import Checkout
from harness.core.errors import Exit, UsageError
from harness.judging.scoring import SCORINGS
from harness.problems.shape_file import find
from harness.process import compile_cache
from harness.report.pruned import Found, document_of, to_json
from harness.serve import kept

DAY_S, GIB = 86400.0, 1 << 30


@dataclass(frozen=True, kw_only=True)
class PruneOrder(result_files.WithFiles):
    apply: bool = option(False, "delete it (default: show what would go)")
    older_than: float = option(
        Limits.age_s / DAY_S,
        "what is older goes (default: %(default)g; compile caches sooner, after "
        f"{compile_cache.KEPT_S / DAY_S:g} days without use)",
        metavar="DAYS",
    )
    keep: int = option(
        Limits.runs, "runs, and submissions to the service, beyond the N newest go (default: %(default)s)"
    )
    max_size: float = option(
        Limits.nbytes / GIB, "the oldest beyond this size in all go (default: %(default)g)", metavar="GIB"
    )


def limits_of(days: float, runs: int, gib: float) -> Limits:
    """The limits. Raises UsageError for what none can be."""
    for name, value in (("--older-than", days), ("--keep", runs), ("--max-size", gib)):
        if not 0 <= value < math.inf:
            raise UsageError(f"{name} {value}: a number from 0 is needed")
    return Limits(age_s=days * DAY_S, runs=runs, nbytes=int(min(gib * GIB, sys.maxsize)))


def run(order: PruneOrder, checkout: Checkout) -> Exit:
    found = pruned(limits_of(order.older_than, order.keep, order.max_size), order.apply, checkout)
    return result_files.tell(order, document_of(found), json=lambda: to_json(found, checkout.root))


def pruned(limits: Limits, apply: bool, checkout: Checkout) -> Found:
    """What can go, or with `apply` what went. Fails where a leaderboard or a contest does not load."""
    queue = checkout.runs / "serve"
    ranks_most = functools.partial(_ranks_most, checkout)
    service = kept.kept(queue, limits, time.time(), ranks_most)
    keep = _needed(checkout, service.run_ids)
    plan = prune.plan(checkout.root, keep, limits)
    caches = compile_cache.unused(checkout.root, max(prune.YOUNG_S, min(limits.age_s, compile_cache.KEPT_S)))
    pieces = plan.pieces
    if apply:
        pieces = prune.apply(plan, _needed(checkout, service.run_ids))  # as it is by now
        caches = {name: nbytes for name, nbytes in caches.items() if compile_cache.drop(checkout.root, name)}
        kept.forget(queue, service.stored, ranks_most)
    return Found(plan=plan, pieces=pieces, caches=caches, stored=service.stored, applied=apply)


def _needed(checkout: Checkout, run_ids: frozenset[str]) -> Needed:
    contests = [acts.opened(file) for file in sorted((checkout.root / acts.FOLDER).glob("*.yaml"))]
    entries = [entry for contest in contests for entry in contest.state().entries.values()]
    return prune.needed(
        leaderboard.load(checkout.leaderboard),
        run_ids.union(*(entry.run_ids for entry in entries)),
        {entry.sha256 for entry in entries},
    )


def _ranks_most(checkout: Checkout, problem: str) -> bool:
    """Whether the most is the best of its scores. A problem that the checkout does not have is a folder's, ranked by
    time. Raises BadFileError where the problem's files are bad."""
    try:
        return SCORINGS[find(problem, checkout).ranking_by].better == "more"
    except UsageError:
        return False
