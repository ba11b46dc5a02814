"""The tools of agents.tools over MCP, on standard input and output. Needs the extra `agents` (the package `mcp`).

A tool that only looks answers at once. One that evaluates begins a task and answers with its id; `task` waits for it.
"""

import asyncio
import functools
import inspect
from collections.abc import Callable
from typing import Any

from harness.agents.tools import Tools
from harness.core.errors import HarnessError, UsageError
from harness.core.version import __version__

INSTRUCTIONS = """\
Write submissions in the workspace and have them judged. Begin with list_problems and read_problem. check, evaluate,
compare and profile begin a task and return its id at once; call task with the id until its state is done, and read
`next` in the result first. Paths are relative to the workspace. One task runs at a time, the others wait."""
NAMES = ("list_problems", "read_problem", "check", "evaluate", "compare", "profile", "board", "task", "cancel")


def server_of(tools: Tools) -> Any:
    """The server with its tools. Raises UsageError where the package is missing."""
    try:
        from mcp.server.mcpserver import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
    except ImportError:
        raise UsageError(
            "the package `mcp` is missing: install the extra `agents` (in the checkout: pip install '.[agents]')"
        ) from None
    server = MCPServer("kernel-eval", instructions=INSTRUCTIONS, version=__version__)
    for name in NAMES:
        server.tool(name=name)(_told(getattr(tools, name), ToolError))
    return server


def _told(method: Callable[..., Any], error: type[Exception]) -> Callable[..., Any]:
    """The method in a thread of its own, so that a long poll holds up no other call. What cannot be asked is told."""

    @functools.wraps(method)
    async def call(**arguments: Any) -> Any:
        try:
            return await asyncio.to_thread(method, **arguments)
        except HarnessError as found:
            raise error(str(found)) from None

    call.__signature__ = inspect.signature(method)  # type: ignore[attr-defined]
    return call
