"""Text of a submission is made safe to show: nothing of an escape sequence is left, everything else is."""

import pytest

from harness.core.records import Score
from harness.core.words import clean, rate_text


@pytest.mark.parametrize(
    "sequence",
    [
        "\x1b[31m",
        "\x9b31m",  # the same in one character
        "\x1b[3\x001m",  # terminals skip what lies within
        "\x1b[38;5;1m",
        "\x1b[?25l",
        "\x1b[2 q",
        "\x1b]0;title\x07",
        "\x1b]8;;http://a.b\x1b\\",
        "\x9d0;title\x9c",
        "\x1bPq#0\x1b\\",
        "\x90q#0\x9c",
        "\x1b(B",
        "\x1b#8",
        "\x1bc",
        "\x1b7",
        "\x1b[31",  # cut off by what follows
    ],
)
def test_no_part_of_an_escape_sequence_is_shown(sequence: str) -> None:
    assert clean(f"red {sequence}\nText") == "red \nText"


def test_a_score_of_one_has_its_unit_in_the_singular() -> None:
    scores = [Score(value=value, unit="points", better="more").text for value in (1.0, 1.5, 0.9999999)]
    assert scores == ["1 point", "1.5 points", "1 point"]


def test_a_rate_just_below_a_prefix_has_that_prefix() -> None:
    rates = (999.4e9, 999.5e9, 999.7e9, 1e12, 999.7, 448e9)
    assert list(map(rate_text, rates)) == ["999 G", "1 T", "1 T", "1 T", "1 k", "448 G"]


def test_what_looks_like_a_sequence_without_its_beginning_stays() -> None:
    assert clean("a[31m and 31m") == "a[31m and 31m"


def test_two_sequences_cannot_make_a_third() -> None:
    assert clean("\x1b[3\x1b[0m1m") == "1m"
