"""A population's score for people: on the terminal, as Markdown and as one HTML page. All texts are made safe."""

import html
from collections.abc import Iterable, Sequence

from rich.console import RenderableType
from rich.text import Text

from harness.agents.result import Interval
from harness.agents.score import FEWEST, OfProblem, PopulationScore
from harness.core.words import clean_line, count_text, literal, percent_text, plain_table, speedup_text

Row = tuple[str, ...]
PROBLEM_COLUMNS = ("problem", "candidates", "distinct", "pass", "ranked", "left out", "best", "by")
STYLE = """\
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
table { border-collapse: collapse; margin: 1rem 0 } th, td { padding: .2rem .8rem; text-align: right }
th { border-bottom: 1px solid #888 } th:first-child, td:first-child { text-align: left }
svg { width: 100%; height: auto } .line { fill: none; stroke: #2563eb; stroke-width: 2 }
.band { fill: #2563eb22 } .axis { stroke: #888 } text { font-size: 11px; fill: #555 }
@media (prefers-color-scheme: dark) { body { background: #111; color: #ddd } text { fill: #aaa } }
"""
WIDTH, HEIGHT, EDGE = 640, 240, 40


def problem_rows(score: PopulationScore) -> list[Row]:
    """A row a problem."""
    return [_row(one) for one in score.problems]


def _row(one: OfProblem) -> Row:
    numbers = (one.candidates, one.distinct, one.passed, one.ranked, one.left_out)
    return (clean_line(one.problem), *map(str, numbers), speedup_text(one.best), clean_line(one.best_id) or "-")


def figure_rows(score: PopulationScore) -> list[Row]:
    """A row a figure: its name, and its value with the interval."""
    return [
        *((f"pass@{point.at:g}", _percent(point.figure)) for point in score.pass_at),
        *((f"fast_{point.at:g}", _percent(point.figure)) for point in score.fast),
        ("SOL score", _plain(score.sol)),
        ("best of n", _plain(score.best_of_n, "x")),
        ("mean reward", _plain(score.mean_reward)),
    ]


def notes(score: PopulationScore) -> list[str]:
    """What readers of these figures have to know."""
    found = []
    if len(score.problems) < FEWEST:
        found.append("Intervals are over problems: one problem has none.")
    if left_out := sum(one.left_out for one in score.problems):
        found.append(
            f"{count_text(left_out, 'candidate')} passed and was not ranked: left out on the quick shapes, say. They "
            "count as not fast; `eval-many --keep 1` ranks every candidate that passes."
        )
    words: dict[str, int] = {}
    for one in score.problems:
        for word, count in one.verdicts.items():
            words[word] = words.get(word, 0) + count
    found.append("Verdicts: " + ", ".join(f"{count} {word}" for word, count in sorted(words.items())) + ".")
    return found


def parts(score: PopulationScore) -> Iterable[RenderableType]:
    """For the terminal."""
    table = plain_table("problem", *(f">{name}" for name in PROBLEM_COLUMNS[1:-1]), PROBLEM_COLUMNS[-1])
    for row in problem_rows(score):
        table.add_row(*map(Text, row))
    yield table
    yield ""
    figures = plain_table("figure", ">value (95 % interval)")
    for row in figure_rows(score):
        figures.add_row(*map(Text, row))
    yield figures
    yield ""
    for note in notes(score):
        yield Text(note)


def markdown(score: PopulationScore) -> str:
    """As Markdown."""
    return "\n".join(
        [
            *_markdown_table(PROBLEM_COLUMNS, problem_rows(score)),
            "",
            *_markdown_table(("figure", "value (95 % interval)"), figure_rows(score)),
            "",
            *notes(score),
            "",
        ]
    )


def page(score: PopulationScore) -> str:
    """As one HTML file, which loads nothing."""
    body = [
        "<h1>Population</h1>",
        _html_table(PROBLEM_COLUMNS, problem_rows(score)),
        "<h2>fast_p: the part of candidates that are ranked and more than p times as fast as the reference</h2>",
        _curve(score),
        _html_table(("figure", "value (95 % interval)"), figure_rows(score)),
        *(f"<p>{html.escape(note)}</p>" for note in notes(score)),
    ]
    policy = "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    head = f"<!doctype html><html lang=en><meta charset=utf-8>{policy}<title>Population</title><style>{STYLE}</style>"
    return head + "\n".join(body) + "</html>\n"


def _curve(score: PopulationScore) -> str:
    """fast_p over p, with the interval as a band where there is one."""
    most = max((point.at for point in score.fast), default=1.0) or 1.0

    def at(p: float, value: float) -> str:
        return f"{EDGE + p / most * (WIDTH - 2 * EDGE):.1f},{HEIGHT - EDGE - value * (HEIGHT - 2 * EDGE):.1f}"

    line = " ".join(at(point.at, point.figure.value) for point in score.fast)
    upper = [at(point.at, point.figure.high) for point in score.fast if point.figure.high is not None]
    lower = [at(point.at, point.figure.low) for point in score.fast if point.figure.low is not None]
    band = f'<polygon class=band points="{" ".join([*upper, *reversed(lower)])}"/>' if upper else ""
    (left, bottom), (right, top) = at(0, 0).split(","), at(most, 1).split(",")
    axes = f'<path class=axis fill=none d="M{left},{top} L{left},{bottom} L{right},{bottom}"/>'
    ticks = "".join(
        f'<text x="{at(point.at, 0).split(",")[0]}" y="{HEIGHT - EDGE + 16}" text-anchor=middle>{point.at:g}</text>'
        for point in score.fast
    )
    sides = f'<text x="{EDGE - 6}" y="{top}" text-anchor=end>100%</text><text x="{EDGE - 6}" y="{bottom}" '
    sides += "text-anchor=end>0%</text>"
    label = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role=img aria-label="fast_p over p">'
    return f'{label}{band}{axes}{ticks}{sides}<polyline class=line points="{line}"/></svg>'


def _percent(figure: Interval) -> str:
    return percent_text(figure.value) + (
        f" ({percent_text(figure.low)} to {percent_text(figure.high)})"
        if figure.low is not None and figure.high is not None
        else ""
    )


def _plain(figure: Interval, unit: str = "") -> str:
    interval = f" ({figure.low:.3g} to {figure.high:.3g})" if figure.low is not None and figure.high is not None else ""
    return f"{figure.value:.3g}{unit}{interval}"


def _markdown_table(columns: Sequence[str], rows: Iterable[Row]) -> Iterable[str]:
    yield f"| {' | '.join(columns)} |"
    yield f"|{' --- |' * len(columns)}"
    for row in rows:
        yield f"| {' | '.join(map(literal, row))} |"


def _html_table(columns: Sequence[str], rows: Iterable[Row]) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"
