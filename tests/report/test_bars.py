"""Bars: who is faster is whose mark is further left, and how far from the limit is how long the line is."""

from hypothesis import given
from hypothesis import strategies as st

from harness.report.bars import ASCII, UNICODE, Axis, Times, axis, parts

TIMES = st.floats(1e-3, 1e9)
ROWS = st.lists(
    st.builds(
        lambda bound, own, ref: Times(own=bound * own, ref=bound * ref, bound=bound),
        TIMES,
        st.floats(1, 1e6),
        st.floats(1, 1e6),
    ),
    min_size=1,
    max_size=8,
)


def drawn(rows: list[Times], width: int = 24) -> list[str]:
    on = axis(rows, width)
    return ["".join(ASCII[part] for part in parts(row, on)).rstrip() for row in rows]


def test_a_bar_goes_from_the_limit_to_the_submission_and_on_to_the_reference() -> None:
    rows = [Times(own=100, ref=1000, bound=10), Times(own=1000, ref=100, bound=10), Times(own=50, ref=50, bound=10)]
    assert drawn(rows, 21) == ["|=========#.........o", "|=========o=========#", "|======@"]


def test_every_row_begins_at_its_own_limit() -> None:
    assert (
        drawn([Times(own=2, ref=4, bound=1), Times(own=2000, ref=4000, bound=1000)], 21)
        == ["|=========#.........o"] * 2
    )


def test_without_a_limit_rows_begin_at_the_faster_of_the_two() -> None:
    rows = [Times(own=1, ref=8, bound=None), Times(own=8, ref=4, bound=1)]
    assert drawn(rows, 9) == ["#.......o", "o==#"]
    assert not axis(rows, 9).of_bound


def test_all_at_the_limit_is_a_bar_of_one_mark() -> None:
    assert drawn([Times(own=5, ref=5, bound=5)]) == ["@"]


@given(ROWS, st.integers(2, 60))
def test_marks_stand_in_the_order_of_the_times_and_a_bar_fills_its_width_at_most(rows: list[Times], width: int) -> None:
    on = axis(rows, width)
    for row in rows:
        made = parts(row, on)
        assert len(made) == width
        own, ref = on.column(row, row.own), on.column(row, row.ref)
        assert (row.own <= row.ref) <= (own <= ref)
        assert made[own] == ("both" if own == ref else "own")
        assert {"space"} >= set(made[max(own, ref) + 1 :])
    assert max(on.column(row, max(row.own, row.ref)) for row in rows) == (0 if on.most <= 1 else width - 1)


def test_a_value_below_the_limit_stays_on_the_axis() -> None:
    """The harness holds such a result; what it prints of it must not fail."""
    on = Axis(most=10.0, width=10, of_bound=True)
    assert on.column(Times(own=0.5, ref=2, bound=1), 0.5) == 0


def test_marks_are_one_column_wide_and_ascii_is_ascii() -> None:
    assert ASCII.keys() == UNICODE.keys()
    assert all(len(mark) == 1 for marks in (ASCII, UNICODE) for mark in marks.values())
    assert "".join(ASCII.values()).isascii()
    assert len(set(ASCII.values())) == len(ASCII)
