"""Who is where: entries in order, and their places. Pure functions over a Board."""

from dataclasses import dataclass

from harness.board.entries import Board, Entry, Group, order, rounded

TIE_DIGITS = 4  # scores that agree in these are one place


@dataclass(frozen=True, kw_only=True)
class Place:
    """`place` of `of` entries; `shared` with as many others."""

    place: int
    of: int
    shared: int


# ---- places ----------------------------------------------------------------------------------------------------------
def ranked(board: Board, group: Group) -> list[tuple[int, Entry]]:
    """The group's entries by score, each with its place: 1, 2, 2, 4, where scores that agree to 4 digits share one."""
    entries = sorted((entry for entry in board.entries if entry.group == group), key=order)
    scores = [rounded(entry.score.value, TIE_DIGITS) for entry in entries]
    return [(scores.index(score) + 1, entry) for score, entry in zip(scores, entries, strict=True)]


def place_of(board: Board, entry: Entry) -> Place:
    """Where the board's entry of this identity stands; KeyError where there is none."""
    places = {other.identity: place for place, other in ranked(board, entry.group)}
    place = places[entry.identity]
    return Place(place=place, of=len(places), shared=list(places.values()).count(place) - 1)


def groups(board: Board) -> list[Group]:
    """The groups that have entries, in the file's order."""
    return sorted({entry.group for entry in board.entries})


def held_groups(board: Board) -> list[Group]:
    """The groups in which something is held, in the file's order."""
    return sorted({one.group for one in board.held})
