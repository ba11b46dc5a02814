"""Run this node's ranks of an evaluation on several nodes (docs/cluster.md), which another node directs:
`eval --nodes 2` prints the command to type here. In a Slurm job the evaluation starts its agents itself."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from harness.cli.declare import option
from harness.core.checkout import Checkout
from harness.core.errors import Exit, UsageError
from harness.nodes import agent, meeting

NODE_RANKS = ("SLURM_PROCID", "GROUP_RANK")  # Slurm's, torchrun's
MOST_WAIT_S = 7 * 86_400.0


@dataclass(frozen=True, kw_only=True)
class AgentOrder:
    """Which node this is, and where the evaluation runs; None: as the environment says."""

    node_rank: int | None = option(None, "this node's number, from 1 (default: SLURM_PROCID or GROUP_RANK)")
    master_addr: str | None = option(None, "where the evaluation runs (default: MASTER_ADDR)", metavar="HOST")
    master_port: int | None = option(None, "its port (default: MASTER_PORT)", metavar="PORT")
    wait: float = option(meeting.WAIT_S, "how long to look for it (default: 120)", metavar="SECONDS")


def run(order: AgentOrder, checkout: Checkout) -> Exit:
    token = os.environ.pop(meeting.TOKEN, "")
    if not token:
        raise UsageError(f"{meeting.TOKEN} is not set; `eval --nodes` prints the whole command")
    address = order.master_addr or os.environ.get("MASTER_ADDR")
    if not address:
        raise UsageError("where does the evaluation run? name it with --master-addr, or in MASTER_ADDR")
    port = _number(order.master_port, "--master-port", ("MASTER_PORT",), os.environ)
    if not 0 < port < 1 << 16:
        raise UsageError(f"--master-port {port}: ports are 1 to 65535")
    if not 0 <= order.wait <= MOST_WAIT_S:  # nan neither
        raise UsageError(f"--wait {order.wait:g}: expected 0 to {MOST_WAIT_S:.0f} seconds")
    node = _number(order.node_rank, "--node-rank", NODE_RANKS, os.environ)
    print(f"looks {order.wait:.0f} s for the evaluation at {address}:{port}", file=sys.stderr, flush=True)
    sock = meeting.connected(address, port, order.wait)
    master = meeting.agreed(sock, node, token, agent.can_link(), order.wait)
    sock.settimeout(None)
    print(f"node {node} takes part in the evaluation of {address}:{port}", file=sys.stderr, flush=True)
    agent.serve(sock, node, master)
    return Exit.OK


def _number(given: int | None, option: str, names: tuple[str, ...], environ: Mapping[str, str]) -> int:
    """The option's value, or that of the first of these variables that is set."""
    if given is not None:
        return given
    text = next((environ[name] for name in names if name in environ), "")
    if not text.isdecimal():
        raise UsageError(f"{option} is needed (or {' or '.join(names)}, a number)")
    return int(text)
