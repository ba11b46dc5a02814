"""Say what the results of `eval-many` come to, over all problems in them: pass@k, the fast_p curve, the
SOL score, the best of n and the mean reward, with 95 % intervals over problems."""

from dataclasses import dataclass
from pathlib import Path

from harness.agents import score_view
from harness.agents.journal import read_results
from harness.agents.score import score_of
from harness.cli import options, result_files
from harness.cli.declare import argument, option
from harness.core.checkout import Checkout
from harness.core.decode import encode
from harness.core.errors import Exit, UsageError
from harness.report.render import FORMATS


@dataclass(frozen=True, kw_only=True)
class ScoreOrder(result_files.WithFiles):
    results: tuple[Path, ...] = argument("files that `eval-many` wrote", metavar="RESULTS")
    page: Path | None = option(None, "write one HTML page to FILE, with the fast_p curve")


def run(order: ScoreOrder, checkout: Checkout) -> Exit:
    if order.page == options.STDOUT:
        raise UsageError("--page -: it writes a file; `--html -` is the same page on standard output")
    for other in result_files.of(order).all:
        if order.page and Path(other.name).resolve() == order.page.resolve():
            raise UsageError(f"--page {order.page} and {other.option} {other.name} are one file; name two")
    results = read_results(order.results)
    if not results:
        raise UsageError(f"{order.results[0]}: no results in it; `python -m harness eval-many` writes some")
    found = score_of(results)
    document = score_view.document_of(found)
    if order.page:
        options.write_out(order.page, FORMATS["html"](document).encode(), make_folder=True, option="--page")
    return result_files.tell(order, document, json=lambda: encode(found))
