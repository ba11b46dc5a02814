"""The verb `doctor`: what on this machine changes results."""

import argparse

from harness.cli.result_files import STDOUT, JsonFile
from harness.core.checkout import Checkout
from harness.core.errors import Exit
from harness.machine.doctor import doctor, read
from harness.report.console import new_console
from harness.report.findings import document_of, to_json
from harness.report.render import terminal

DESCRIPTION = "Say what on this machine changes results. Reads only, never changes a setting."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb `doctor`."""
    parser.add_argument(
        "--json",
        type=JsonFile,
        nargs="?",
        const=STDOUT,
        metavar="FILE",
        help="write the findings to FILE as one JSON object; - or no FILE writes it to standard output instead of the "
        "table",
    )
    parser.add_argument(
        "--smoke",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="run the smoke test of the collectives (default: where there are two GPUs or more)",
    )


def run(namespace: argparse.Namespace, checkout: Checkout) -> Exit:
    """`doctor`: reads, checks, prints; Exit.ERROR where a check fails."""
    found = read(namespace.smoke, root=checkout.root)
    findings = doctor(found)
    if namespace.json is not None:
        namespace.json.write(to_json(found, findings))
    if namespace.json is None or not namespace.json.is_stdout:
        terminal.show(document_of(findings), new_console())
    return Exit.ERROR if any(one.status == "fail" for one in findings) else Exit.OK
