"""Runs a bundle's source again here, by the rule and the launches of `verify`."""

from dataclasses import replace

from harness.board import judgements, runs
from harness.board.bundle_check import CheckedBundle
from harness.core.checkout import Checkout
from harness.core.errors import BadFileError, UsageError
from harness.evaluation import verify
from harness.evaluation.verify import Ready
from harness.kinds.registry import find


def prepared(
    found: CheckedBundle, problem: str | None, seconds: float | None, confined: bool, checkout: Checkout
) -> Ready:
    """What the launches of a bundle need. Its source is stored in runs/sources/, as an evaluation's is; the board is
    left alone. `problem` is the path of one in a folder of its own. Raises BadFileError for a bundle that is not whole,
    UsageError where this machine or checkout cannot run it."""
    manifest = found.manifest
    if not found.is_whole or found.report is None or found.source is None:
        bad = next(finding.text for finding in found.findings if finding.status == "fail")
        raise BadFileError(f"the bundle is not whole, so nothing is run: {bad} (`bundle check` lists everything)")
    knows_machine = found.report.environment is not None
    entry = judgements.entry_of(found.report, manifest.problem_version) if knows_machine else None
    if entry is None:
        raise UsageError(f"{manifest.run_id} claims nothing: its status is {manifest.claim.status}, without figures")
    here = find(problem or manifest.problem, checkout)
    suite = here.with_world_size(here.suite(manifest.suite), manifest.world_size)
    version = judgements.problem_version(here, suite, manifest.device)
    if manifest.problem_version not in (None, version):
        raise UsageError(
            f"{manifest.run_id} was judged under version {manifest.problem_version} of {manifest.problem}, this "
            f"checkout has {version}; check out the one that made the bundle (harness {manifest.harness}, "
            f"{manifest.made_at[:10]})"
        )
    runs.store_source(found.source, checkout.root)
    return verify.prepared(replace(entry, problem_version=version), problem, seconds, confined, checkout)
