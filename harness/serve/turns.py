"""In which order the submissions of a queue are evaluated. A pure function.

Without teams: in the order in which they came. Where somebody waits for a team of a contest, in turn: whoever has work
running waits behind all others, then whoever was served longest ago comes first, and each comes once a round. So a team
that queues twenty submissions delays another's first by one evaluation, not by twenty.
"""

from collections import Counter
from collections.abc import Mapping, Sequence


def turns(waiting: Sequence[tuple[int, str]], running: Mapping[str, int], last_served: Mapping[str, str]) -> list[int]:
    """The numbers in `waiting` in the order of their turns. Each is a number with its owner, in the order in which they
    came; `running` counts an owner's running ones, `last_served` is when its last one was started (ISO 8601; an owner
    without one comes before all others)."""
    rounds = Counter(running)
    keys = []
    first: dict[str, int] = {}
    for number, owner in waiting:
        first.setdefault(owner, number)
        keys.append((rounds[owner], last_served.get(owner, ""), first[owner], number))
        rounds[owner] += 1
    return [key[-1] for key in sorted(keys)]
