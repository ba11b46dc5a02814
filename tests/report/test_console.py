"""Where words go: whole lines in a pipe, ids that are never broken on a terminal."""

import io

import pytest
from rich.console import Console

from harness.core.checkout import ROOT
from harness.report.console import LEAST, new_console
from harness.report.document import Block, Document, Table, prose
from harness.report.render import terminal

RUN = "20261122T180039-ca69a8"
WORDS = "a sentence that is longer than any line of a terminal that is eighty columns wide " * 3


ROWS = [(RUN, WORDS, "short"), (RUN, "short", f"/{'folder/' * 12}file")]
TABLE = Table(("=run", "what it is", "=path"), ROWS)


def show(*blocks: Block, console: Console) -> None:
    terminal.show(Document(blocks=blocks), console)


def test_a_pipe_gets_whole_lines_without_blanks_at_their_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    show(TABLE, prose(WORDS, close=True), console=new_console())
    show(prose("to standard error  "), console=new_console(stderr=True))
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert len(lines) == 4
    assert [line for line in lines if line != line.rstrip()] == []
    assert lines[1].split() == [RUN, *WORDS.split(), "short"]
    assert printed.err == "to standard error\n"


@pytest.mark.parametrize("columns", [20, 60, 80])
def test_ids_and_paths_are_whole_where_there_is_no_room_for_them(columns: int) -> None:
    out = io.StringIO()
    show(TABLE, console=Console(file=out, width=columns, force_terminal=True, _environ={}))
    assert out.getvalue().count(RUN) == 2
    assert f"/{'folder/' * 12}file" in out.getvalue()


def test_columns_says_how_wide_a_pipe_is_and_lines_have_a_least_width(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for columns, width in (("100", 100), ("3", LEAST)):
        monkeypatch.setenv("COLUMNS", columns)
        assert new_console().width == width
    show(prose(WORDS), console=new_console())
    assert max(map(len, capsys.readouterr().out.splitlines())) <= LEAST


def test_the_command_line_makes_its_consoles_in_one_place() -> None:
    found = [path.name for path in (ROOT / "harness").rglob("*.py") if "= Console(" in path.read_text()]
    found += [path.name for path in (ROOT / "harness" / "cli").rglob("*.py") if " Console(" in path.read_text()]
    assert found == ["console.py"]
