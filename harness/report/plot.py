"""The verb `plot`: one recorded run as a figure for slides and READMEs, SVG or PNG.

Knows matplotlib, which only this verb needs and which is imported here only when it runs; everything else about a run
is reports' to know. Per shape: the submission's median and quartiles, the reference and the limit on one logarithmic
axis, as the page has it.
"""

from typing import TYPE_CHECKING

from harness.board.entries import Board
from harness.core.errors import UsageError
from harness.core.records import CaseFigures, CaseResult, EvalReport, Measured
from harness.core.stats import quartiles
from harness.core.words import clean_line, count_text, cut_line, percent_text, times_text
from harness.judging.verdict import measured_cases, status
from harness.report.curves import draw, has_curves
from harness.report.summary import launches_interval, shown_ratio

if TYPE_CHECKING:
    from matplotlib.figure import Figure
Shape = tuple[CaseResult, Measured, CaseFigures]
SUFFIXES = (".svg", ".png")
WIDTH_IN = 8.0
ROW_IN = 0.5
PANEL_IN = 2.0
DPI = 160  # of a PNG
NAME_CHARS = 32  # a line of the title holds two names and the machine
OWN, REF, LIMIT, TEXT = "#0b66c3", "#6b7280", "#b3261e", "#16191f"  # as in assets/page.css, light


def shapes(report: EvalReport) -> list[Shape]:
    """What the figure shows, in order. Raises UsageError for a run in which nothing was timed."""
    cases = [
        (one, measured, one.figures) for one, measured in measured_cases(report) if measured.ranked.own and one.figures
    ]
    if not cases:
        raise UsageError(
            f"run {clean_line(report.run_id)} timed nothing (mode {clean_line(report.mode)}, {status(report)}); "
            "`python -m harness history` lists those that have a score"
        )
    return cases


def figure(report: EvalReport, board: Board | None = None) -> "Figure":
    """The run's shapes, one a row; the board says what launches differ by. Raises UsageError for a run in which nothing
    was timed, or without matplotlib."""
    cases = shapes(report)
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
    if has_curves([result for result, _, _ in cases]):
        return _over_time(report, Figure, cases, board)
    made = Figure(figsize=(WIDTH_IN, 1.95 + ROW_IN * len(cases)), layout="constrained")
    axes = made.subplots()
    axes.set_xscale("log")
    for row, (result, measured, figures) in enumerate(cases):
        own, ref = figures.value, figures.baseline
        low, high = quartiles(measured.ranked.own)
        if result.bound is not None:
            bound = result.bound.value
            axes.plot([bound, own], [row, row], color=OWN, linewidth=5, alpha=0.35, solid_capstyle="butt")
            axes.plot(bound, row, "|", color=LIMIT, markersize=17, markeredgewidth=2.5)
        if ref is not None:
            axes.plot([own, ref], [row, row], color=REF, linewidth=1, linestyle=":")
        axes.plot([low, high], [row, row], color=TEXT, linewidth=1.25)
        if ref is not None:
            axes.plot(ref, row, "o", color=REF, markersize=8, markerfacecolor="white", markeredgewidth=1.75)
        axes.plot(own, row, "o", color=OWN, markersize=9)
        ratio = times_text(figures.ratio.value) if figures.ratio else ""
        fraction = f"{percent_text(figures.fraction.value)} of limit" if figures.fraction else ""
        text = ", ".join(filter(None, (ratio, fraction)))
        axes.annotate(text, (1.01, row), xycoords=("axes fraction", "data"), va="center", fontsize=9, color=TEXT)
    axes.set_yticks(range(len(cases)), [_plain(result.case.title) for result, _, _ in cases], fontsize=9)
    axes.set_ylim(len(cases) - 0.4, -0.6)  # the first shape on top
    metric = cases[0][2].metric
    better = "left" if metric.better == "less" else "right"
    axes.set_xlabel(f"{metric.words.values} in {metric.unit}, median (logarithmic; {better} is better)", fontsize=9)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
    axes.grid(axis="x", color="#d5d9e0", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    made.suptitle(_plain(_title(report, board)), x=0.01, ha="left", fontsize=10.5)
    legend = [("|", LIMIT, "limit"), ("o", OWN, "submission"), ("o", REF, "reference")]
    for marker, colour, name in legend:
        face = "white" if name == "reference" else colour
        axes.plot([], [], marker, color=colour, markerfacecolor=face, markeredgewidth=2, markersize=9, label=name)
    axes.legend(loc="lower left", bbox_to_anchor=(-0.01, 1.0), ncols=3, frameon=False, fontsize=9, handletextpad=0.2)
    return made


def _over_time(report: EvalReport, figure_type: "type[Figure]", cases: list[Shape], board: Board | None) -> "Figure":
    """A panel a case: what either side had reached, over time."""
    made = figure_type(figsize=(WIDTH_IN, 1.2 + PANEL_IN * len(cases)), layout="constrained")
    panels = made.subplots(len(cases), squeeze=False)[:, 0]
    for axes, (result, measured, figures) in zip(panels, cases, strict=True):
        draw(axes, result, measured, {"own": OWN, "ref": REF, "limit": LIMIT})
        axes.set_title(_plain(result.case.title), loc="left", fontsize=9)
        axes.set_ylabel(figures.metric.name, fontsize=9)
        axes.grid(color="#d5d9e0", linewidth=0.7)
        axes.spines[["top", "right"]].set_visible(False)
    for colour, name, style in ((OWN, "submission", "-"), (REF, "reference", "-"), (LIMIT, "proved bound", "--")):
        panels[0].plot([], [], style, color=colour, label=name)
    panels[0].legend(loc="upper right", frameon=False, fontsize=9, ncols=3)
    made.suptitle(_plain(_title(report, board)), x=0.01, ha="left", fontsize=10.5)
    return made


def _title(report: EvalReport, board: Board | None) -> str:
    """What and whose, what came of it in the words of `eval`, and of which suite and day."""
    machine = report.environment.machine_class if report.environment else report.device
    file = cut_line(report.submission.name.removeprefix(f"submissions/{report.problem}/"), NAME_CHARS)
    whose = f"{file} by {cut_line(report.author, NAME_CHARS)}"
    lines = [f"{report.problem}: {whose}, {count_text(report.world_size, 'rank')} on {machine}"]
    if (figures := report.figures) is not None and figures.ratio is not None:
        interval = launches_interval(shown_ratio(report, figures.ratio, board))
        found = f"{times_text(figures.ratio.value)} the reference" + (f" ({interval})" if interval else "")
        if figures.fraction is not None:
            found += f", {percent_text(figures.fraction.value)} of the limit"
        lines.append(found)
    lines.append(f"suite {report.suite}, {report.started_at[:10]}")
    return "\n".join(map(clean_line, lines))


def _plain(text: str) -> str:
    """The text with nothing in it that matplotlib reads as mathematics."""
    return text.replace("$", r"\$")
