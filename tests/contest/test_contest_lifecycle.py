"""The states of a contest's entry: what can follow what, over all sequences of events."""

import itertools
from collections.abc import Iterator
from typing import get_args

import pytest

from harness.contest.lifecycle import NEEDED, STATES, TRANSITIONS, Happening, State, transition
from harness.core.errors import UsageError

HAPPENINGS: tuple[Happening, ...] = get_args(Happening)
OVER: tuple[State, ...] = ("failed", "disqualified", "withdrawn")  # the team can do no more after these
LENGTH = 5  # of the sequences that are tried, all of them
Step = tuple[State, Happening, State | None]  # before, what happened, after: None where it was refused


def played(sequence: tuple[Happening, ...]) -> list[Step]:
    steps: list[Step] = []
    state: State = "submitted"
    before: State = "submitted"
    for happening in sequence:
        try:
            after: State | None = transition(state, happening, before=before)
        except UsageError:
            after = None
        if after == "disqualified":
            before = state
        steps.append((state, happening, after))
        state = after or state
    return steps


def everything() -> Iterator[list[Step]]:
    for length in range(1, LENGTH + 1):
        yield from map(played, itertools.product(HAPPENINGS, repeat=length))


def test_what_holds_after_every_sequence_of_events() -> None:
    reached: set[State] = set()
    for steps in everything():
        went = [happening for _, happening, after in steps if after is not None]
        for before, happening, after in steps:
            if after is None:
                continue
            if happening == "reinstated":
                assert before == "disqualified"
                assert after not in (*OVER, "awarded"), "it is as it was, without an award"
                continue
            reached.add(after)
            assert before not in OVER, "nothing else happens to an entry that is over"
            assert after != "submitted", "nothing is submitted twice"
            if before == "awarded":
                assert happening in ("awarded", "disqualified")
        state = next((after for *_, after in reversed(steps) if after is not None), "submitted")
        if state == "awarded":
            first = went.index("awarded")
            since_held = went[max((at for at, one in enumerate(went[:first]) if one == "held"), default=0) : first]
            for needed in ("reproduced", "reviewed"):
                assert needed in went[:first], f"an award needs {needed}"
                assert needed in since_held, "also after it was held"
        if state in ("failed", "disqualified", "withdrawn"):
            assert went[-1] == state
        assert went.count("ranked") + went.count("failed") <= 1, "one evaluation, one result"
    assert reached == set(STATES) - {"submitted"}


def test_every_refusal_says_what_is_needed_first() -> None:
    for state, happening in itertools.product(STATES, HAPPENINGS):
        if state not in TRANSITIONS[happening][0]:
            with pytest.raises(
                UsageError, match=rf"^refused: entry 7 is {state}, so it cannot be {happening}: "
            ) as told:
                transition(state, happening, 7)
            assert str(told.value).endswith(NEEDED[happening])


def test_the_way_to_an_award() -> None:
    state: State = "submitted"
    states = []
    for happening in ("ranked", "held", "reproduced", "reviewed", "awarded", "disqualified"):
        state = transition(state, happening)  # type: ignore[arg-type]
        states.append(state)
    assert states == ["ranked", "held", "reproduced", "verified", "awarded", "disqualified"]
    with pytest.raises(UsageError, match="an award needs a verified entry"):
        transition("reproduced", "awarded")


def test_a_disqualification_taken_back_leaves_what_was_but_awards() -> None:
    for state in STATES:
        if state not in OVER:
            assert transition("disqualified", "reinstated", before=state) == (
                "verified" if state == "awarded" else state
            )
