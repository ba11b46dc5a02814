"""A population's score as a document."""

from collections import Counter

from harness.agents.result import Interval
from harness.agents.score import FEWEST, OfProblem, PopulationScore
from harness.core.words import count_text, percent_text, speedup_text
from harness.report.document import Document, Figure, Heading, Table, UntrustedText, Words, prose

WIDTH, HEIGHT, EDGE = 640, 240, 40


def document_of(score: PopulationScore) -> Document:
    columns = (
        "problem", ">candidates", ">distinct", ">pass", ">ranked", ">left out", ">errors", ">best", "by"
    )  # fmt: skip
    curve = "fast_p: the part of candidates that are ranked and more than p times as fast as the reference"
    rows = figure_rows(score)
    figures = (Figure(_curve(score), curve), Table(("figure", ">value (95 % interval)"), rows)) if rows else ()
    table = Table(columns, [_row(one) for one in score.problems])
    return Document(blocks=(Heading("Population"), table, *figures, prose(*notes(score))))


def _row(one: OfProblem) -> list[Words]:
    numbers = (one.candidates, one.distinct, one.passed, one.ranked, one.left_out, one.errors)
    return [UntrustedText(one.problem), *map(str, numbers), speedup_text(one.best), UntrustedText(one.best_id or "-")]


def figure_rows(score: PopulationScore) -> list[tuple[str, str]]:
    """A row for each figure; none where no candidate was judged."""
    if score.best_of_n is None or score.mean_reward is None:
        return []
    sol = [("SOL score", _plain(score.sol))] if score.sol is not None else []
    return [
        *((f"pass@{point.at:g}", _percent(point.figure)) for point in score.pass_at),
        *((f"fast_{point.at:g}", _percent(point.figure)) for point in score.fast),
        *sol,
        ("best of n, or the reference", _plain(score.best_of_n, "x")),
        ("mean reward", _plain(score.mean_reward)),
    ]


def notes(score: PopulationScore) -> list[str]:
    found = []
    if sum(one.candidates > 0 for one in score.problems) == FEWEST - 1:
        found.append("Intervals are over problems: one problem has none.")
    if errors := sum(one.errors for one in score.problems):
        found.append(
            f"Errors of the harness or the machine, which say nothing of {count_text(errors, 'candidate')}: no figure "
            'has them. Remove their lines (`"verdict": "error"`) and run the same `eval-many`: it judges them again.'
        )
    if left_out := sum(one.left_out for one in score.problems):
        found.append(
            f"Not ranked, but passed: {count_text(left_out, 'candidate')}, left out when screened, say, and counted as "
            "not fast; `eval-many --keep 1` ranks every candidate that passes."
        )
    if score.sol is None and score.best_of_n is not None:
        found.append("There is no SOL score, because no problem has a known limit.")
    words: Counter[str] = Counter()
    for one in score.problems:
        words.update(one.verdicts)
    found.append("Verdicts: " + ", ".join(f"{count} {word}" for word, count in sorted(words.items())) + ".")
    return found


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
