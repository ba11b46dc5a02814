"""What is shown: one document in every format, safe whatever it quotes, with every metric that was measured."""

import ast
import io
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories import HOSTILE, TIMES, entry, report, results
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from harness.board.entries import Board
from harness.board.judgements import entry_cases
from harness.core import olympic
from harness.core.checkout import ROOT
from harness.core.metrics import HOST, MEMORY, UNITS, Metric, unit_of
from harness.core.records import Passed, Series
from harness.core.words import size_text
from harness.evaluation import verify
from harness.judging.figures import series_figures
from harness.judging.scoring import SCORINGS, mismatch
from harness.report import board_view, export
from harness.report.document import (
    Document,
    EvidenceBlock,
    Facts,
    Figure,
    Heading,
    Styled,
    Table,
    TestCase,
    UntrustedText,
    column,
    plain,
    prose,
)
from harness.report.evaluation import document_of
from harness.report.render import FORMATS, terminal

BANDWIDTH = Metric(name="bandwidth", unit="GB/s", better="more")  # as a later harness may write it


def shown(found: Document, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=False, _environ={})
    terminal.show(found, console)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def everything(text: str) -> Document:
    """A document of every block, each of which quotes the text."""
    said = UntrustedText(text)
    return Document(
        blocks=(
            Heading(("title ", said)),
            prose((said, " is ours"), whole=True),
            Facts(((said, Styled(said, "bold")),)),
            EvidenceBlock(said, text),
            Table(("=one", ">two", "|three", column("four", folds=9)), [(said, said, said, said)], letters=text),
            Figure("<svg/>", "a drawing"),
            Document(blocks=(prose(said),), summary=Facts((("inner", said),), whole=True)),
        ),
        summary=Facts((("verdict", said),), whole=True),
        cases=(TestCase(suite=text, name=text, ending="failure", message=text, text=text, said=text),),
        said=(text,),
        properties={"run": text},
    )


# ---- what is not trusted ---------------------------------------------------------------------------------------------
@given(st.text())
def test_no_format_shows_what_a_terminal_or_xml_would_act_on(text: str) -> None:
    found = everything(text)
    for made in (shown(found), *(form(found) for form in FORMATS.values())):
        assert all(char in "\n\r" or char.isprintable() for char in made)


def test_a_page_is_as_wide_as_a_phone_and_its_tables_scroll_by_themselves() -> None:
    page = FORMATS["html"](everything("x"))
    assert '<meta name=viewport content="width=device-width' in page
    assert page.count("<table>") == page.count("<div class=wide><table>") == page.count("</table></div>") > 0


def test_what_is_untrusted_formats_neither_markdown_nor_html_nor_a_terminal() -> None:
    evil = "`x` **b** @team <img src=x> | [a](b) [bold]c[/bold] \x1b[31m"
    made = FORMATS["markdown"](everything(evil))
    outside = re.sub(r"(`+)text\n.*?\n\1(?=\n)", "", made, flags=re.DOTALL)
    outside = re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", outside)
    assert "@team" not in re.sub(r"\\.", "", "\n".join(line for line in outside.splitlines() if "|" not in line))
    assert not re.search(r"(?<!\\)<img", outside)
    assert "<img" not in FORMATS["html"](everything(evil))
    assert "[bold]c[/bold]" in shown(everything(evil), 1000)


def test_two_quotations_side_by_side_are_one_span_of_code() -> None:
    """Else the ticks between them would be read as one longer mark."""
    assert FORMATS["markdown"](Document(blocks=(Heading((UntrustedText("a"), UntrustedText("b"))),))) == "### `ab`\n"


def cleaned_in(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("clean", "clean_line"):
                yield path.stem


def test_a_view_leaves_it_to_the_document_to_make_texts_safe() -> None:
    """Who cleans: documents and renderers; the page, live lines and files for CI, which are none; and who reads text of
    others, which is no showing of it."""
    shows = {"document", "markdown", "junit", "page", "progress"}
    reads = {"failures", "problems", "plot", "traffic", "evaluation", "contest_view"}
    assert set(cleaned_in(ROOT / "harness" / "report")) <= shows | reads


# ---- formats ---------------------------------------------------------------------------------------------------------
def test_every_format_has_all_that_is_said() -> None:
    words = ("title", "is ours", "verdict", "inner")
    found = everything("quoted")
    for name in ("markdown", "html"):
        made = FORMATS[name](found)
        assert all(word in made for word in (*words, "quoted", "one", "two", "four"))
    assert all(word in shown(found) for word in words)
    assert FORMATS["csv"](found).splitlines() == ["one,two,three,four", "quoted,quoted,quoted,quoted"]
    assert FORMATS["csv"](Document(blocks=(Facts((("score", "2 ms"),)),))) == "score,2 ms\n"
    assert '<failure type="" message="quoted">' in FORMATS["junit"](found)
    assert "<svg/>" in FORMATS["html"](found)
    assert "<svg" not in shown(found) + FORMATS["markdown"](found)


def test_the_summary_ends_a_terminals_document_and_stands_under_the_title_elsewhere() -> None:
    found = document_of(report())
    assert shown(found).splitlines()[-3].startswith("verdict")
    lines = [line for line in FORMATS["markdown"](found).splitlines() if line]
    assert [line[:5] for line in lines[:3]] == ["### `", "by `a", "- **v"]


def test_a_column_that_is_cut_ends_where_the_terminal_does() -> None:
    found = Document(blocks=(Table(("|name", ">n"), [("x" * 200, "1")]),))
    assert max(map(len, shown(found, 40).splitlines())) <= 40
    assert "x" * 200 in FORMATS["csv"](found)


# ---- metrics ---------------------------------------------------------------------------------------------------------
def measured(*series: Series) -> Any:
    return report(results([Passed()] * 3, [replace(one, series=(*one.series, *series)) for one in TIMES]))


def test_every_further_series_is_shown_on_the_terminal_in_markdown_in_csv_and_on_the_board(tmp_path: Path) -> None:
    """They were on the page alone, but for memory, and for problems whose score is a product."""
    found = measured(
        Series(metric=BANDWIDTH, own=(80.0, 80.0), baseline=(40.0, 40.0)),
        Series(metric=HOST, own=(9e6, 9e6), baseline=(3.0, 3.0)),
    )
    document = document_of(found)
    for text in (shown(document), FORMATS["markdown"](document), FORMATS["csv"](document)):
        flat = re.sub(r"[|,\"\\\s]+", " ", text)
        assert "bandwidth m 64 n 7168 k 18432 40 GB/s 80 GB/s 2.00x - -" in flat
        assert re.search(r"host m 64 n 7168 k 18432 3.00 us 9 ?000 ?000 us ?\* 0.00x - -", flat)
    (row,) = (one for one in export.rows(Board(), [found], tmp_path) if one["case_index"] == 0 and one["case_series"])
    assert row["case_series"]["bandwidth"] == {"unit": "GB/s", "value": 80.0, "ref": 40.0}
    board = board_view.document_of(Board(entries=(entry(cases=entry_cases(found)),)))
    said = "also measured of submission.py by alice, geometric means: bandwidth 80 GB/s, reference 40 GB/s"
    assert said in shown(board, 200)


def test_an_unknown_unit_is_shown_with_its_own_name() -> None:
    """It was shown as microseconds."""
    rate = Metric(name="rate", unit="frames/s", better="more")
    ranked = [replace(one, series=(replace(one.series[0], metric=rate),)) for one in TIMES]
    document = document_of(report(results([Passed()] * 3, ranked)))
    for text in (shown(document, 160), FORMATS["markdown"](document), FORMATS["csv"](document)):
        table_lines = [line for line in text.splitlines() if line.lstrip("| ").startswith(("shape", "m 64"))]
        assert "frames/s" in table_lines[0]
        assert not any(re.search(r"\bus\b", line) for line in table_lines)
    assert unit_of("frames/s").text(1306.0) == "1,306 frames/s"


@pytest.mark.parametrize("unit", [*UNITS, "frames/s"])
def test_each_unit_makes_a_cell_of_any_value_and_has_a_name_for_each_column(unit: str) -> None:
    words = unit_of(unit)
    assert len(set(words.columns)) == len(words.columns) == 8
    for value in (1e-3, 1.0, 999.0, 1e6, 1e13):
        assert len(words.value(value)) <= 18
        assert words.text(value).startswith(words.value(value))


def test_sizes_below_a_mebibyte_are_no_zero() -> None:
    sizes = (96, 3 << 10, 640 << 10, 12 << 20, 3 << 29)
    assert [size_text(size) for size in sizes] == ["96 B", "3 KiB", "640 KiB", "12 MiB", "1.5 GiB"]


def test_a_least_that_is_undercut_is_not_shown() -> None:
    """A fraction of it read up to 155 %."""
    for own, ref, least, fraction in ((2e9, 6e9, 1e9, 0.5), (2e9, 6e9, 3.1e9, None), (9e9, 2e9, 3e9, None)):
        one = replace(
            TIMES[0], series=(*TIMES[0].series, Series(metric=MEMORY, own=(own,), baseline=(ref,), least=least))
        )
        found = series_figures(one, "memory")
        assert found is not None
        assert (found.fraction, found.bound) == (fraction, least if fraction else None)
    cases = entry_cases(measured(Series(metric=MEMORY, own=(2e9,), baseline=(6e9,), least=3e9)))
    assert {series.least for case in cases for series in case.series} == {None}


# ---- scores, and what was written twice ------------------------------------------------------------------------------
def test_a_scoring_takes_the_units_that_it_declares() -> None:
    for name, scoring in SCORINGS.items():
        assert [unit for unit in UNITS if not mismatch(name, unit)] == [unit for unit in UNITS if unit in scoring.of]
    assert (
        mismatch("geom", "tokens/s") == "'geom' scores values in us, and this problem's are in tokens/s: write product"
    )


def test_what_was_written_twice_is_written_once() -> None:
    texts = {path: path.read_text() for path in (ROOT / "harness").rglob("*.py")}
    assert [path.name for path, text in texts.items() if re.search(r"\b16_384\b", text)] == ["words.py"]
    assert [path.name for path, text in texts.items() if "def olympic_mean" in text] == ["olympic.py"]
    assert verify.olympic_mean is olympic.olympic_mean


@pytest.mark.parametrize("path", sorted((ROOT / "harness").rglob("*.py")), ids=lambda path: path.stem)
def test_a_part_of_importlib_is_imported_by_who_uses_it(path: Path) -> None:
    """`importlib.metadata` worked where another module happened to have imported it."""
    text = path.read_text()
    used = set(re.findall(r"\bimportlib\.(metadata|util|machinery|resources)\.\w", text))
    assert used <= set(re.findall(r"^\s*import importlib\.(\w+)$", text, re.MULTILINE))


@pytest.mark.parametrize("path", sorted((ROOT / "harness").rglob("*.py")), ids=lambda path: path.stem)
def test_a_section_of_the_readme_that_code_names_is_there(path: Path) -> None:
    readme = (ROOT / "README.md").read_text()
    for name in re.findall(r'README, "([^"]+)"', path.read_text()):
        assert re.search(rf"^#+ {re.escape(name)}$", readme, re.MULTILINE), name


def test_plain_text_has_no_styles() -> None:
    assert plain(("a ", Styled(("b", UntrustedText("\x1b[1mc\nd")), "bold"))) == "a bc d"


def test_hostile_text_is_one_line() -> None:
    assert "\n" not in plain(UntrustedText(HOSTILE))
