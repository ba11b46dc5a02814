"""The verb `plot`: one recorded run as a figure for slides and READMEs, SVG or PNG.

Knows matplotlib, which only this verb needs and which is imported here only when it runs; everything else about a run
is reports' to know. Per shape: the submission's median and quartiles, the reference and the limit on one logarithmic
axis, as the page has it.
"""

from typing import TYPE_CHECKING

from harness.board.reports import Report, times
from harness.core.records import UsageError
from harness.core.stats import median, speedup
from harness.core.words import clean_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure
SUFFIXES = (".svg", ".png")
WIDTH_IN = 8.0
ROW_IN = 0.5
DPI = 160  # of a PNG
NAME_CHARS = 32  # a line of the title holds two names and the machine
OWN, REF, LIMIT, TEXT = "#0b66c3", "#6b7280", "#b3261e", "#16191f"  # as in assets/page.css, light


def figure(report: Report) -> "Figure":
    """The run's shapes, one a row. Raises UsageError for a run in which nothing was timed, or without matplotlib."""
    cases = report.timed
    if not cases:
        raise UsageError(
            f"run {clean_line(report.run_id)} timed nothing (mode {clean_line(report.mode)}, {report.status}); "
            "`python -m harness history` lists those that have a score"
        )
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageError(
            "`plot` needs matplotlib, which is not installed: `.venv/bin/python -m pip install -e '.[plot]'`"
        ) from None
    # Text stays text, so that an SVG can be searched and read out, in a font that the reader's machine has; a fixed
    # salt: the same run gives the same file.
    fonts = ["DejaVu Sans", "sans-serif"]
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "kernel-eval", "font.family": fonts})
    made = Figure(figsize=(WIDTH_IN, 1.75 + ROW_IN * len(cases)), layout="constrained")
    axes = made.subplots()
    axes.set_xscale("log")
    for row, case in enumerate(cases):
        wall = case.clocks["wall"]
        own, ref_us = times(wall.samples_us), median(wall.ref_samples_us)
        own_us = own.median_us
        if case.bound_us is not None:
            axes.plot([case.bound_us, own_us], [row, row], color=OWN, linewidth=5, alpha=0.35, solid_capstyle="butt")
            axes.plot(case.bound_us, row, "|", color=LIMIT, markersize=17, markeredgewidth=2.5)
        axes.plot([own_us, ref_us], [row, row], color=REF, linewidth=1, linestyle=":")
        axes.plot([own.low_us, own.high_us], [row, row], color=TEXT, linewidth=1.25)
        axes.plot(ref_us, row, "o", color=REF, markersize=8, markerfacecolor="white", markeredgewidth=1.75)
        axes.plot(own_us, row, "o", color=OWN, markersize=9)
        text = f"{speedup(wall):.2f}x"
        if case.bound_us is not None:
            text += f", {case.bound_us / median(case.roofline_samples_us):.1%} of limit"
        axes.annotate(text, (1.01, row), xycoords=("axes fraction", "data"), va="center", fontsize=9, color=TEXT)
    axes.set_yticks(range(len(cases)), [_plain(case.label) for case in cases], fontsize=9)
    axes.set_ylim(len(cases) - 0.4, -0.6)  # the first shape on top
    axes.set_xlabel("median time of a call, us (logarithmic; left is better)", fontsize=9)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
    axes.grid(axis="x", color="#d5d9e0", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    made.suptitle(_plain(_title(report)), x=0.01, ha="left", fontsize=10.5)
    legend = [("|", LIMIT, "limit"), ("o", OWN, "submission"), ("o", REF, "reference")]
    for marker, colour, name in legend:
        face = "white" if name == "reference" else colour
        axes.plot([], [], marker, color=colour, markerfacecolor=face, markeredgewidth=2, markersize=9, label=name)
    axes.legend(loc="lower left", bbox_to_anchor=(-0.01, 1.0), ncols=3, frameon=False, fontsize=9, handletextpad=0.2)
    return made


def _title(report: Report) -> str:
    """Two lines: what and whose, and what came of it."""
    machine = report.environment.machine_class if report.environment else report.device
    file = _cut(report.submission.path.removeprefix(f"submissions/{report.problem}/"))
    lines = [f"{report.problem}: {file} by {_cut(report.submission.author)}, {report.world_size} ranks on {machine}"]
    if report.geomean_speedup is not None:
        found = f"{report.geomean_speedup:.3g}x the reference"
        if report.geomean_speedup_ci is not None:
            found += " (95 % interval {:.3g} to {:.3g})".format(*report.geomean_speedup_ci)
        if report.roofline_fraction is not None:
            found += f", {report.roofline_fraction:.2%} of the limit"
        lines.append(f"{found}; suite {report.suite}, {report.started_at[:10]}")
    return "\n".join(map(clean_line, lines))


def _cut(name: str) -> str:
    """A name that leaves room for the rest of a line."""
    return name if len(name) <= NAME_CHARS else name[: NAME_CHARS - 3] + "..."


def _plain(text: str) -> str:
    """The text with nothing in it that matplotlib reads as mathematics."""
    return text.replace("$", r"\$")
