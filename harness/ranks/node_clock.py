"""Times of ranks on several nodes, whose clocks have nothing to do with each other. Pure rules over samples.

Only times that one host's clock told are compared. A node's first start of a call is its zero, so that the ranked clock
becomes the longest of the nodes' own times, each from the first start of its ranks to the last end. All nodes start
within the time that a barrier's word takes between them, which bounds the error (docs/cluster.md has figures).
"""

from collections.abc import Sequence
from dataclasses import replace

from harness.ranks.wire import CallSample

LATEST_NS = (1 << 63) - 1  # what a rank makes up is not to be more than a message can hold


def aligned(called: Sequence[Sequence[CallSample]], nodes: int, zeros_ns: Sequence[int]) -> list[list[CallSample]]:
    """The samples of consecutive calls, by call and rank, with each node's times moved so that its first start of call
    `at` is at `zeros_ns[at]`; of the calls beyond, by as much as the call before."""
    result: list[list[CallSample]] = []
    local_size = len(called[0]) // nodes
    shifts_ns = [0] * nodes
    for at, ranks in enumerate(called):
        if at < len(zeros_ns):
            starts_ns = [call.start_ns for call in ranks]
            firsts = range(0, len(ranks), local_size)
            shifts_ns = [zeros_ns[at] - min(starts_ns[first : first + local_size]) for first in firsts]
        result.append([_moved(call, shifts_ns[rank // local_size]) for rank, call in enumerate(ranks)])
    return result


def _moved(call: CallSample, by_ns: int) -> CallSample:
    start_ns, end_ns = (min(max(0, ns + by_ns), LATEST_NS) for ns in (call.start_ns, call.end_ns))
    return replace(call, start_ns=start_ns, end_ns=end_ns)
