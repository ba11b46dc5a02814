"""Serve tools to an agent over MCP, on standard input and output: list_problems, read_problem, check,
evaluate, compare, profile, board, task, cancel. No call can name a file outside of the workspace. Ends with its
client. Needs the extra `agents`."""

from dataclasses import dataclass
from pathlib import Path

from harness.agents.mcp_server import server_of
from harness.agents.tasks import Tasks
from harness.agents.tools import Settings, Tools
from harness.agents.workspace import Workspace
from harness.cli import options
from harness.cli.declare import option
from harness.core.checkout import Checkout
from harness.core.decode import part
from harness.core.errors import Exit


@dataclass(frozen=True, kw_only=True)
class McpOrder(options.Rewarded):
    workspace: Path = option(Path(), "the agent's folder (default: this one)", metavar="DIR")
    suite: str | None = option(None, "suite of shapes, where a call names none (default: as `eval`)", metavar="S")
    ranks: int | None = option(None, "how many ranks (default: as `eval`)")
    device: str | None = options.device()
    record: bool = option(False, "record what passes on the leaderboard")
    author: str = option("agent", "under which name (default: agent)", metavar="NAME", type=options.author_of)


def run(order: McpOrder, checkout: Checkout) -> Exit:
    with Tasks(checkout.root) as tasks:
        server_of(Tools(Workspace(order.workspace), tasks, part(order, Settings), checkout)).run("stdio")
    return Exit.OK
