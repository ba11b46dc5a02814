"""Score results of MLPerf Training from their logs, by MLPerf's rules: the time of each run from run_start to run_stop,
the Olympic mean over runs, times the scaling factor. Exits with 112 where the rules refuse a result: two runs that did
not converge, too few or too many runs, a seed used twice, convergence faster than chance explains."""

from dataclasses import dataclass
from pathlib import Path

from harness.cli import result_files
from harness.cli.declare import argument, option
from harness.core.checkout import Checkout
from harness.core.errors import Exit
from harness.evaluation import mlperf
from harness.report.mlperf import document_of, to_json


@dataclass(frozen=True, kw_only=True)
class MlperfScoreOrder(result_files.WithFiles):
    folder: Path = argument(
        f"a result's folder, with {mlperf.LOGS} and perhaps {mlperf.SCALING}, or any folder above such ones",
        metavar="FOLDER",
    )
    reference: Path | None = option(
        None,
        "the reference's convergence points (MLPerf's rcps_<benchmark>.json): the scaling factor is computed from "
        f"them, and has to agree with {mlperf.SCALING} where there is one",
    )


def score(order: MlperfScoreOrder, checkout: Checkout) -> Exit:
    """Score the logs of results.

    Those of every result in the folder; Exit.INVALID where one is refused."""
    found = mlperf.score(order.folder, order.reference)
    code = Exit.INVALID if any(one.result.refused for one in found) else Exit.OK
    return result_files.tell(order, document_of(found), code, json=lambda: to_json(found))


SUB_VERBS = {"score": score}
