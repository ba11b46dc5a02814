"""The verb `mlperf`: scores published results of MLPerf Training."""

import argparse
from dataclasses import dataclass
from pathlib import Path

from harness.cli import result_files
from harness.cli.result_files import ResultFiles
from harness.core.checkout import Checkout
from harness.core.errors import Exit
from harness.evaluation import mlperf
from harness.report.console import new_console
from harness.report.mlperf import document_of, to_json
from harness.report.render import FORMATS, terminal

DESCRIPTION = """Score results of MLPerf Training from their logs, by MLPerf's rules: the time of each run from
run_start to run_stop, the Olympic mean over runs, times the scaling factor. Exits with 112 where the rules refuse a
result: two runs that did not converge, too few or too many runs, a seed used twice, convergence faster than chance
explains."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is scored, against which reference, and where the result goes."""

    folder: Path
    reference: Path | None
    files: ResultFiles


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verbs of `mlperf`: `score`."""
    commands = parser.add_subparsers(title="verbs", required=True, metavar="VERB", dest="sub_verb")
    command = commands.add_parser("score", help="score the logs of results", description=DESCRIPTION)
    command.add_argument(
        "folder",
        type=Path,
        metavar="FOLDER",
        help=f"a result's folder, with {mlperf.LOGS} and perhaps {mlperf.SCALING}, or any folder above such ones",
    )
    command.add_argument(
        "--reference",
        type=Path,
        metavar="FILE",
        help="the reference's convergence points (MLPerf's rcps_<benchmark>.json): the scaling factor is computed from "
        f"them, and has to agree with {mlperf.SCALING} where there is one",
    )
    result_files.add_json(command)
    result_files.add_markdown(command)


def run(namespace: argparse.Namespace, checkout: Checkout) -> Exit:
    """`mlperf score`: reads, scores, prints."""
    files = result_files.of(namespace)
    return score(Options(folder=namespace.folder, reference=namespace.reference, files=files))


def score(order: Options) -> Exit:
    """Scores every result in the folder; Exit.INVALID where one is refused."""
    found = mlperf.score(order.folder, order.reference)
    if order.files.json:
        order.files.json.write(to_json(found))
    if order.files.markdown:
        order.files.markdown.write_text(FORMATS["markdown"](document_of(found)))
    if not order.files.take_stdout:
        terminal.show(document_of(found), new_console())
    return Exit.INVALID if any(one.result.refused for one in found) else Exit.OK
