"""Records as JSON: one on a line, in a file, in lines."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.core.errors import BadFileError
from harness.core.json_file import file_if_any, line_of, lines_if_any, lines_of


@dataclass(frozen=True, kw_only=True)
class Told:
    text: str


SEPARATED = '{"text": "a\u2028b"}'  # splitlines would cut it


def test_a_line_ends_with_a_line_feed_and_nothing_else() -> None:
    told = [Told(text="a\u2028b"), Told(text="c\nd")]
    assert lines_of(Told, "".join(map(line_of, told)), "x", "none") == told
    assert lines_of(Told, f"\n{SEPARATED}\n \n", "x", "none") == told[:1]


@pytest.mark.parametrize("line", ["{", "[" * 100_000, '{"text": 1}', "\udcff"])
def test_what_is_no_record_is_refused_with_its_line_or_ignored(line: str, tmp_path: Path) -> None:
    text = f"{SEPARATED}\n{line}\n"
    with pytest.raises(BadFileError, match=r"x:2: no word: .*; name another file"):
        lines_of(Told, text, "x", "no word")
    assert lines_if_any(Told, text) == [Told(text="a\u2028b")]
    (tmp_path / "x").write_bytes(line.encode(errors="surrogateescape"))
    assert file_if_any(Told, tmp_path / "x") is None


def test_a_file_that_is_not_there_has_no_record(tmp_path: Path) -> None:
    assert file_if_any(Told, tmp_path / "x") is None
