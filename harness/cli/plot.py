"""Draw a recorded run as SVG or PNG, for slides. Needs the extra `plot`."""

import io
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

from harness.board import leaderboard, reports
from harness.cli import options
from harness.cli.declare import REQUIRED, argument
from harness.core.checkout import Checkout
from harness.core.errors import Exit, UsageError
from harness.core.words import count_text
from harness.report.plot import DPI, SUFFIXES, figure, shapes


@dataclass(frozen=True, kw_only=True)
class PlotOrder:
    recorded: str = argument("a run id of runs/ (`history` lists them), its beginning, or a report file", metavar="RUN")
    out: Path = options.out(".svg or .png", REQUIRED)


def run(order: PlotOrder, checkout: Checkout) -> Exit:
    out = order.out
    if out.suffix.lower() not in SUFFIXES:
        raise UsageError(f"--out {out}: its name ends in .svg or .png")
    report = reports.find(order.recorded, checkout.root)
    made = figure(report, leaderboard.load(checkout.leaderboard))
    metadata = {"Date": None} if out.suffix.lower() == ".svg" else None
    drawn = io.BytesIO()
    with warnings.catch_warnings(record=True) as said:
        warnings.filterwarnings("always", "Glyph .* missing from")
        made.savefig(drawn, format=out.suffix.lower().removeprefix("."), dpi=DPI, metadata=metadata)
    options.write_out(out, drawn.getvalue())
    print(f"{out}: {count_text(len(shapes(report)), 'shape')}")
    if said and metadata is None:  # the text of an SVG stays text, for which its reader has fonts
        print("characters that matplotlib's font does not have are boxes; an .svg keeps them", file=sys.stderr)
    return Exit.OK
