"""The device memory that a call needs, of submission and reference: a metric beside time."""

from harness.core.metrics import MEMORY
from harness.core.records import Case, Cost, Series
from harness.kinds.op.calls import Calls
from harness.kinds.op.check import expect_right

PAIRS = 3  # calls of either side: a peak does not vary as times do, and each call costs a fresh input


def measured(calls: Calls, case: Case) -> Series | None:
    """Calls of either side on the same fresh inputs, one by one. None on CPU cores, where nothing tells a call's memory
    from the process's.

    A call's memory is the most that its process holds of the device during the call, input and result and all that a
    submission keeps between calls included, the harness's own memory not. Ranks say it, so it is a claim.
    """
    if calls.has_files:
        return None
    own: list[float] = []
    ref: list[float] = []
    least = 0.0
    for _ in range(PAIRS):
        calls.make(case, calls.fresh(1))
        sides = calls.both("memory", calls.at)
        turns = {group: calls.turn(group, [0], watched=True) for group in sides}
        rivals = [group for group in sides if group in calls.rivals]
        expect_right(calls, case, [(group, 0) for group in rivals], "a call whose memory was measured")
        own.append(float(calls.memory_of(calls.candidate)))
        ref.append(float(calls.memory_of(calls.baseline)))
        results = [call.output.nbytes if call.output else 0 for call in turns[calls.candidate].called[0]]
        inputs = [rank.inputs[0].nbytes for rank in calls.made]
        least = max(least, *map(float, map(sum, zip(inputs, results, strict=True))))
    if not all(own) or not all(ref):
        return None
    return Series(metric=MEMORY, own=tuple(own), baseline=tuple(ref), least=least_bytes(calls, case) or least)


def least_bytes(calls: Calls, case: Case) -> float:
    """The bytes that a rank must hold by the problem's `cost`; 0 if it does not say."""
    problem = calls.plan.problem
    cost: Cost | None = problem.cost(case) if problem.cost_of is not None else None
    return cost.held_bytes if cost else 0
