"""The verb `plot`: one run as a figure."""

import argparse
import io
from pathlib import Path

from harness.board import reports
from harness.cli import options
from harness.core.checkout import Checkout
from harness.core.errors import Exit, UsageError
from harness.report.plot import DPI, SUFFIXES, figure

DESCRIPTION = "Draw a recorded run as SVG or PNG, for slides. Needs the extra `plot`."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb `plot`."""
    parser.add_argument("recorded", metavar="RUN", help="a run id of runs/ (`history` lists them), or its beginning")
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="FILE", help=".svg or .png")


def run(namespace: argparse.Namespace, checkout: Checkout) -> Exit:
    """`plot`: writes the figure."""
    out: Path = namespace.out
    if out.suffix.lower() not in SUFFIXES:
        raise UsageError(f"--out {out}: its name ends in .svg or .png")
    made = figure(reports.find(namespace.recorded, checkout.root))
    metadata = {"Date": None} if out.suffix.lower() == ".svg" else None
    drawn = io.BytesIO()
    made.savefig(drawn, format=out.suffix.lower().removeprefix("."), dpi=DPI, metadata=metadata)
    options.write_out(out, drawn.getvalue())
    print(f"{out}: {len(made.axes[0].get_yticks())} shapes")
    return Exit.OK
