"""What `compare` found, as a document and as JSON."""

import math
from collections.abc import Sequence
from typing import Any

from harness.core.decode import encode
from harness.core.metrics import CLOCKS
from harness.core.stats import median
from harness.core.words import count_text
from harness.evaluation.compare import SCHEMA, Comparison, Ratio, Side, Word, digits_text, ratio_text, rule, shown
from harness.judging.warnings import text_of
from harness.report.document import Document, Facts, Heading, Styled, Table, TestCase, UntrustedText, Words, prose

STYLES: dict[Word, str] = {"BETTER": "bold green", "WORSE": "bold red", "SAME": "bold", "AMBIGUOUS": "bold yellow"}


# ---- how it is shown -------------------------------------------------------------------------------------------------
def document_of(comparisons: Sequence[Comparison], fail_if: Sequence[str] = ()) -> Document:
    """The comparisons one after the other. `fail_if` has the words for B that fail a test case."""
    return Document(
        blocks=tuple(map(_one, comparisons)),
        cases=tuple(case for one in comparisons for case in _test_cases(one, fail_if)),
        said=tuple(f"warning: {text_of(warning, 'A')}" for one in comparisons for warning in one.warnings),
    )


def _one(found: Comparison) -> Document:
    unit = found.metric.words
    sides = []
    for label, side in (("A", found.a), ("B", found.b)):
        run = f", run {side.run_id}" if side.run_id else ""
        sides.append((label, (UntrustedText(side.name), UntrustedText(run))))
    how = f"{unit.measured} in turn on the same {unit.inputs}" if found.how == "paired" else f"{unit.measured} apart"
    how += "" if found.how == "paired" else ", another time"
    where = f"{count_text(found.world_size, 'rank')} on {found.device}, suite "
    rows: list[list[Words]] = [
        [
            UntrustedText(row.label),
            unit.value(median(row.a)),
            unit.value(median(row.b)),
            ratio_text(one),
            interval_text(one.ci),
            shown(one.word, unit),
        ]
        for row, one in zip(found.rows, found.ratios, strict=True)
    ]
    warnings = tuple((Styled("warning", "yellow"), UntrustedText(text_of(one, "A"))) for one in found.warnings)
    return Document(
        blocks=(
            Heading(UntrustedText(found.problem)),
            Facts(tuple(sides), whole=True, close=True),
            prose((where, UntrustedText(found.suite), f", {how}"), close=True),
            Table((unit.case, f">A {unit.head}", f">B {unit.head}", ">A / B", ">95 % interval", "B is"), rows),
            prose(*_legend(found), style="dim"),
            *([Facts(warnings, whole=True, close=True)] if warnings else []),
        ),
        summary=summary_of(found),
    )


def summary_of(found: Comparison) -> Facts:
    """The last line: the word for B over all cases, and the ratio that it follows from."""
    said = summary_text(found)
    word = shown(found.summary.word, found.metric.words)
    rest = said.removeprefix(f"B is {word}")
    return Facts((("summary", ("B is ", Styled(word, STYLES[found.summary.word]), rest)),), whole=True)


def summary_text(found: Comparison) -> str:
    summary, unit = found.summary, found.metric.words
    over = f", geometric mean over {len(found.rows)} {unit.case}s" if len(found.rows) > 1 else ""
    interval = interval_text(summary.ci)
    return f"B is {shown(summary.word, unit)}  A / B is {ratio_text(summary)} (95 % interval {interval}){over}"


def _legend(found: Comparison) -> list[str]:
    unit, metric = found.metric.words, found.metric.name
    judged = f" {unit.judged}" if found.how == "paired" else ""
    clock = f" on the {metric} clock" if metric in CLOCKS else ""
    lines = [f"{unit.values} are medians{clock}, A / B is by pairs of {unit.pairs}.{judged}", rule(found.margin, unit)]
    if len(found.rows) > 1:
        lines.append(f"The summary is of the geometric mean; a {unit.case}'s word is not corrected for their number.")
    if found.how == "unpaired":
        noise = f" Intervals include that launches of one source differ by {found.noise.sd:.0%}." if found.noise else ""
        lines.append(f"A / B is the ratio of {unit.ratio}s, each over its own run's reference.{noise}")
    elif found.summary.word == "AMBIGUOUS":
        lines.append(f"Longer measurements narrow an interval: {unit.more}.")
    return lines


def _test_cases(found: Comparison, fail_if: Sequence[str]) -> list[TestCase]:
    suite, unit = f"{found.problem}.{found.suite}.compare", found.metric.words
    names, said = f"{found.b.name} against {found.a.name}", summary_text(found)
    failed = found.is_failed(fail_if)
    return [
        *(
            TestCase(
                suite=suite,
                name=f"{names}: {row.label}",
                said=f"{shown(ratio.word, unit)}: A / B is {ratio_text(ratio)}",
            )
            for row, ratio in zip(found.rows, found.ratios, strict=True)
        ),
        TestCase(
            suite=suite,
            name=f"{names}: summary",
            ending="failure" if failed else "passed",
            kind=shown(found.summary.word, unit).lower(),
            message=said if failed else "",
            said=said,
        ),
    ]


# ---- JSON ------------------------------------------------------------------------------------------------------------
def to_json(comparisons: Sequence[Comparison], code: int) -> dict[str, Any]:
    """What --json writes, with all samples: nothing else keeps them."""
    return {"schema": SCHEMA, "exit_code": code, "comparisons": [_json(one) for one in comparisons]}


def _json(found: Comparison) -> dict[str, Any]:
    words, unit = found.metric.words, found.metric.unit

    def told(one: Ratio) -> dict[str, Any]:
        between = list(one.ci) if one.ci else None
        return {"ratio": one.value, "ratio_ci": between, "word": shown(one.word, words)}

    def side(one: Side) -> dict[str, Any]:
        return {"path": one.name, "sha256": one.sha256, "run_id": one.run_id}

    return {
        **{name: getattr(found, name) for name in ("problem", "suite", "device", "world_size", "how", "margin")},
        "rule": rule(found.margin, words),
        "metric": encode(found.metric),
        "a": side(found.a),
        "b": side(found.b),
        "cases": [
            {
                "params": dict(row.params),
                "drift": math.exp(row.drift),
                f"a_{unit}": median(row.a),
                f"b_{unit}": median(row.b),
                **told(one),
                f"a_samples_{unit}": list(row.a),
                f"b_samples_{unit}": list(row.b),
            }
            for row, one in zip(found.rows, found.ratios, strict=True)
        ],
        "summary": told(found.summary),
        "drift": math.exp(found.drift),
        "machines_apart": math.exp(found.apart),
        "warnings": [text_of(one, "A") for one in found.warnings],
    }


def interval_text(ci: tuple[float, float] | None) -> str:
    """`1.02 to 1.07`."""
    return f"{digits_text(ci[0])} to {digits_text(ci[1])}" if ci else "-"
