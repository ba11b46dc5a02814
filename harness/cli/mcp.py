"""The verb `mcp`: tools for an agent, over the Model Context Protocol."""

import argparse
from pathlib import Path

from harness.agents import reward
from harness.agents.mcp_server import server_of
from harness.agents.tasks import Tasks
from harness.agents.tools import Settings, Tools
from harness.agents.workspace import Workspace
from harness.cli import options
from harness.core.checkout import Checkout
from harness.core.errors import Exit
from harness.kinds.settings import DEVICES

DESCRIPTION = """Serve tools to an agent over MCP, on standard input and output: list_problems, read_problem, check,
evaluate, compare, profile, board, task, cancel. No call can name a file outside of the workspace. Ends with its
client. Needs the extra `agents`."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb `mcp`."""
    parser.add_argument(
        "--workspace", type=Path, default=Path("."), metavar="DIR", help="the agent's folder (default: this one)"
    )
    parser.add_argument("--suite", metavar="S", help="suite of shapes, where a call names none (default: as `eval`)")
    parser.add_argument("--ranks", type=int, metavar="N", help="how many ranks (default: as `eval`)")
    parser.add_argument("--device", choices=DEVICES, help="device that ranks run on (default: GPUs if there are any)")
    parser.add_argument("--record", action="store_true", help="record what passes on the leaderboard")
    parser.add_argument(
        "--author", type=options.author_of, default="agent", metavar="NAME", help="under which name (default: agent)"
    )
    parser.add_argument("--reward", choices=reward.NAMES, default=reward.NAMES[0], help="the reward's function")
    parser.add_argument("--lower", action="store_true", help="reward the lower end of the speedup's interval")


def run(namespace: argparse.Namespace, checkout: Checkout) -> Exit:
    """`mcp`: serves until standard input ends."""
    settings = Settings(
        suite=namespace.suite,
        ranks=namespace.ranks,
        device=namespace.device,
        record=namespace.record,
        author=namespace.author,
        reward=namespace.reward,
        lower=namespace.lower,
    )
    with Tasks(checkout.root) as tasks:
        server_of(Tools(Workspace(namespace.workspace), tasks, settings, checkout)).run("stdio")
    return Exit.OK
