"""The verb `score`: what the results of `eval-many` come to."""

import argparse
from pathlib import Path

from harness.agents import score_view
from harness.agents.journal import read_results
from harness.agents.score import score_of
from harness.cli import options, result_files
from harness.core.checkout import Checkout
from harness.core.decode import encode
from harness.core.errors import Exit, UsageError
from harness.report.console import new_console
from harness.report.render import FORMATS, terminal

DESCRIPTION = """Say what the results of `eval-many` come to, over all problems in them: pass@k, the fast_p curve, the
SOL score, the best of n and the mean reward, with 95 % intervals over problems."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb `score`."""
    parser.add_argument("results", nargs="+", type=Path, metavar="RESULTS", help="files that `eval-many` wrote")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write one HTML page to FILE, with the fast_p curve")
    result_files.add_json(parser)
    result_files.add_markdown(parser)


def run(namespace: argparse.Namespace, checkout: Checkout) -> Exit:
    """`score`: computes and shows."""
    files = result_files.of(namespace)
    results = read_results(namespace.results)
    if not results:
        raise UsageError(f"{namespace.results[0]}: no results in it; `python -m harness eval-many` writes some")
    found = score_of(results)
    if files.json:
        files.json.write(encode(found))
    if files.markdown:
        files.markdown.write_text(FORMATS["markdown"](score_view.document_of(found)))
    if namespace.page:
        options.write_out(
            namespace.page, FORMATS["html"](score_view.document_of(found)).encode(), make_folder=True, option="--page"
        )
    if not files.take_stdout:
        terminal.show(score_view.document_of(found), new_console())
    return Exit.OK
