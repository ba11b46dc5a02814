"""Draw a recorded run as SVG or PNG, for slides. Needs the extra `plot`."""

import io
from dataclasses import dataclass
from pathlib import Path

from harness.board import reports
from harness.cli import options
from harness.cli.declare import REQUIRED, argument
from harness.core.checkout import Checkout
from harness.core.errors import Exit, UsageError
from harness.core.words import count_text
from harness.report.plot import DPI, SUFFIXES, figure


@dataclass(frozen=True, kw_only=True)
class PlotOrder:
    recorded: str = argument("a run id of runs/ (`history` lists them), its beginning, or a report file", metavar="RUN")
    out: Path = options.out(".svg or .png", REQUIRED)


def run(order: PlotOrder, checkout: Checkout) -> Exit:
    out = order.out
    if out.suffix.lower() not in SUFFIXES:
        raise UsageError(f"--out {out}: its name ends in .svg or .png")
    made = figure(reports.find(order.recorded, checkout.root))
    metadata = {"Date": None} if out.suffix.lower() == ".svg" else None
    drawn = io.BytesIO()
    made.savefig(drawn, format=out.suffix.lower().removeprefix("."), dpi=DPI, metadata=metadata)
    options.write_out(out, drawn.getvalue())
    print(f"{out}: {count_text(len(made.axes[0].get_yticks()), 'shape')}")
    return Exit.OK
