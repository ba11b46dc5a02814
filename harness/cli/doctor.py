"""The verb `doctor`: what on this machine changes results."""

import argparse
import json
from pathlib import Path

from rich.console import Console

from harness.core.checkout import Checkout
from harness.core.errors import Exit, UsageError
from harness.machine.doctor import doctor, read
from harness.report.findings import show, to_json

DESCRIPTION = "Say what on this machine changes results. Reads only, never changes a setting."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb `doctor`."""
    parser.add_argument(
        "--json",
        dest="json_to",
        nargs="?",
        const="-",
        metavar="FILE",
        help="write the findings to FILE as one JSON object; without FILE, print it instead of the table",
    )
    parser.add_argument(
        "--smoke",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="run the smoke test of the collectives (default: where there are two GPUs or more)",
    )


def run(namespace: argparse.Namespace, checkout: Checkout) -> Exit:
    """`doctor`: reads, checks, prints; Exit.ERROR where a check fails."""
    found = read(namespace.smoke)
    findings = doctor(found)
    text = json.dumps(to_json(found, findings), indent=2)
    if namespace.json_to == "-":
        print(text)
    else:
        if namespace.json_to:
            _write(namespace.json_to, text)
        show(findings, Console())
    return Exit.ERROR if any(one.status == "fail" for one in findings) else Exit.OK


def _write(file: str, text: str) -> None:
    try:
        Path(file).write_text(text + "\n")
    except OSError as error:
        raise UsageError(f"--json {file}: cannot be written: {error.strerror}; name another file") from None
