"""The clock of ranks on several nodes against one host's clock, on nodes that are played on this machine.

    python bench/nodes.py [--ranks 16] [--nodes 2] [--problem a2a] [--seconds 1]

Evaluates the reference against itself over so many agents of this machine. All ranks then read one clock, so that each
call has both times: from the first start of any rank to the last end, and as several nodes take it (node_clock.py),
each node by itself. Their difference is what the nodes' clock leaves out.
"""

import argparse
import contextlib
import os
import secrets
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence

from rich.console import Console

from harness.core.checkout import ROOT, Checkout
from harness.evaluation.evaluate import evaluate
from harness.judging import verdict
from harness.kinds.kind import Order
from harness.kinds.registry import KINDS, read_submission
from harness.kinds.settings import Asked, setting
from harness.nodes.meeting import TOKEN
from harness.ranks import node_clock
from harness.ranks.wire import CallSample
from harness.ranks.witness import wall_us
from harness.report.progress import ProgressLine

Both = tuple[
    float, float, float
]  # of a call: one host's clock, the nodes' clock, and by how much nodes start apart; us
aligned = node_clock.aligned


def main() -> None:
    parser = argparse.ArgumentParser(description="the nodes' clock against one host's")
    parser.add_argument("--problem", default="a2a")
    parser.add_argument("--ranks", type=int, default=16)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--suite", default="nodes")
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    checkout = Checkout(ROOT)
    asked = Asked(
        problem=options.problem,
        device="cpu",
        ranks=options.ranks,
        nodes=options.nodes,
        suite=options.suite,
        seconds=options.seconds,
    )
    found = setting(asked, checkout)
    submission = read_submission(found.problem, ROOT / f"submissions/{options.problem}/reference.py", checkout)
    order = Order(setting=found, submission=submission, mode="benchmark", author="bench")
    calls: dict[bool, list[Both]] = {True: [], False: []}  # by whether they are empty
    with agents(options.nodes), recorded(calls), ProgressLine(Console(stderr=True), silent=False) as progress:
        report = evaluate(KINDS[found.problem.kind].plan(order), progress)
    print(f"{options.problem}, {options.ranks} ranks on {options.nodes} nodes: {verdict.status(report)}")
    show("empty calls", calls[True])
    show("calls", calls[False])


@contextlib.contextmanager
def agents(nodes: int) -> Iterator[None]:
    """All but node 0's, which the evaluation starts itself."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29417", TOKEN: secrets.token_hex(16)}
    command = [sys.executable, "-m", "harness", "agent", "--node-rank"]
    started = [subprocess.Popen([*command, str(node)], cwd=ROOT) for node in range(1, nodes)]
    try:
        yield
    finally:
        for one in started:
            one.terminate()
            one.wait()


@contextlib.contextmanager
def recorded(calls: dict[bool, list[Both]]) -> Iterator[None]:
    """Every call's times before and after they are aligned."""

    def seen(
        called: Sequence[Sequence[CallSample]], nodes: int, zeros_ns: Sequence[int]
    ) -> Sequence[Sequence[CallSample]]:
        moved = aligned(called, nodes, zeros_ns)
        for ranks, after in zip(called, moved, strict=True):
            each = len(ranks) // nodes
            firsts = [
                min(call.start_ns for call in ranks[first : first + each]) for first in range(0, len(ranks), each)
            ]
            is_empty = ranks[0].output is None
            calls[is_empty].append((wall_us(ranks), wall_us(after), (max(firsts) - min(firsts)) / 1000))
        return moved

    node_clock.aligned = seen  # type: ignore[assignment]
    try:
        yield
    finally:
        node_clock.aligned = aligned


def show(name: str, calls: Sequence[Both]) -> None:
    """Medians and upper ends over calls, in microseconds."""
    if not calls:
        return
    one, nodes, apart = zip(*calls, strict=True)
    less = [one_us - nodes_us for one_us, nodes_us, _ in calls]
    print(f"{name}: {len(calls)}")
    for what, values in (
        ("one host's clock", one),
        ("nodes' clock", nodes),
        ("nodes start apart", apart),
        ("left out", less),
    ):
        upper = sorted(values)[int(0.95 * (len(values) - 1))]
        print(f"  {what:18} median {statistics.median(values):10.1f} us   95 % below {upper:10.1f} us")


if __name__ == "__main__":
    main()
