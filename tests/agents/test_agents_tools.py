"""The tools for agents: what a call may name, tasks that are followed, and a whole session of the mcp package's client.

`make test-agents` runs all of it, where the extra `agents` is installed.
"""

import asyncio
import errno
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from waiting import until

from harness.agents.mcp_server import NAMES
from harness.agents.tasks import Tasks, ToolTask
from harness.agents.tools import Settings, Tools
from harness.agents.workspace import Workspace
from harness.core.checkout import ROOT, Checkout
from harness.core.errors import UsageError
from harness.problems.submission import MAX_BYTES

RIGHT = "from reference import ref_kernel as custom_kernel\n"
WRONG = "import torch\n\n\ndef custom_kernel(data):\n    return torch.zeros_like(data[0]), data[0]\n"
LIMIT_S = 90


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    (folder / "sub").mkdir(parents=True)
    (folder / "right.py").write_text(RIGHT)
    (folder / "sub" / "wrong.py").write_text(WRONG)
    (tmp_path / "secret.py").write_text("SECRET\n")
    (folder / "link.py").symlink_to(tmp_path / "secret.py")
    (folder / "up").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe.py")
    return folder


@pytest.fixture
def tools(workspace: Path) -> Iterator[Tools]:
    with Tasks(ROOT) as tasks:
        yield Tools(Workspace(workspace), tasks, Settings(suite="quick", ranks=1, device="cpu"), Checkout.here())


@pytest.mark.parametrize(
    "name",
    [
        "/etc/passwd",
        "../secret.py",
        "sub/../../secret.py",
        "link.py",
        "up/secret.py",
        "pipe.py",
        "sub",
        "",
        "a\0b",
        "no",
    ],
)
def test_no_call_reaches_out_of_the_workspace(name: str, tools: Tools) -> None:
    for call in (
        lambda: tools.evaluate("rms_norm", file=name),
        lambda: tools.check("rms_norm", file=name),
        lambda: tools.profile("rms_norm", file=name),
        lambda: tools.compare("rms_norm", "right.py", name),
    ):
        with pytest.raises(UsageError):
            call()


@pytest.mark.parametrize("name", ["reference/rms_norm", "../x", "/tmp", "", "a2a/../a2a"])
def test_a_problem_is_named_and_no_path(name: str, tools: Tools) -> None:
    for call in (tools.read_problem, tools.board, lambda one: tools.evaluate(one, source=RIGHT)):
        with pytest.raises(UsageError):
            call(name)


def test_files_in_the_workspace_are_read(workspace: Path) -> None:
    assert Workspace(workspace).read("sub/wrong.py") == WRONG


def test_problems_are_listed_and_told(tools: Tools) -> None:
    names = [one["problem"] for one in tools.list_problems()]
    assert {"a2a", "rms_norm", "iopddl", "llama"} <= set(names)
    told = tools.read_problem("rms_norm")
    assert "ref_kernel" in told["files"]["reference.py"]
    assert "custom_kernel" in told["start"]
    assert "M 8192" in told["instruction"]
    assert all(tools.read_problem(name)["instruction"] for name in names)


def test_one_of_file_and_source_is_needed(tools: Tools) -> None:
    for arguments in ({}, {"file": "right.py", "source": RIGHT}):
        with pytest.raises(UsageError, match="one of"):
            tools.evaluate("rms_norm", **arguments)


def test_what_cannot_be_asked_is_told_at_once(tools: Tools) -> None:
    with pytest.raises(UsageError, match="suite"):
        tools.evaluate("rms_norm", file="right.py", suite="/etc/passwd")
    with pytest.raises(UsageError, match="larger than"):
        tools.check("rms_norm", source="#" * (MAX_BYTES + 1))


def test_a_task_that_cannot_begin_ends_and_the_queue_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(*arguments: Any, **more: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    task = {"words": ["problems"], "read": lambda *_: {"well": True}}
    with Tasks(ROOT) as tasks:
        with monkeypatch.context() as patch:
            patch.setattr(Path, "write_text", full)
            first = tasks.add(ToolTask(files={"a.py": ""}, **task))
            told = tasks.wait(first.id, LIMIT_S).told()
        assert told["state"] == "done"
        assert told["result"] == {"error": "No space left on device; make room there"}
        assert tasks.wait(tasks.add(ToolTask(files={}, **task)).id, LIMIT_S).result == {"well": True}


def test_a_task_is_cancelled_and_ends_with_the_server(workspace: Path) -> None:
    with Tasks(ROOT) as tasks:
        first, second = (tasks.add(ToolTask(words=["problems"], files={}, read=lambda *_: {})) for _ in range(2))
        assert tasks.cancel(second.id).told()["state"] == "cancelled"
        assert tasks.wait(first.id, LIMIT_S).told()["state"] == "done"
        assert tasks.wait(second.id, LIMIT_S).result is None
        hangs = tasks.add(ToolTask(words=["serve", "--port", "0"], files={}, read=lambda *_: {}))
        until(lambda: hangs.process is not None)
    assert hangs.process.poll() is not None
    with pytest.raises(UsageError, match="no task"):
        tasks.find("nobody")


def test_the_client_of_the_mcp_package_does_a_whole_session(workspace: Path) -> None:
    mcp = pytest.importorskip("mcp", reason="the extra `agents` is not installed: make test-agents")
    words = ["harness", "mcp", "--workspace", str(workspace), "--suite", "quick", "--ranks", "1", "--device", "cpu"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    server = mcp.StdioServerParameters(command=sys.executable, args=["-m", *words], env=environ, cwd=str(ROOT))

    async def session() -> dict[str, Any]:
        found: dict[str, Any] = {}
        async with mcp.Client(server) as client:
            found["tools"] = [tool.name for tool in (await client.list_tools()).tools]
            found["problems"] = content(await client.call_tool("list_problems", {}))
            found["start"] = content(await client.call_tool("read_problem", {"problem": "rms_norm"}))["start"]
            (workspace / "mine.py").write_text(found["start"])
            found["outside"] = await client.call_tool("evaluate", {"problem": "rms_norm", "file": "../secret.py"})
            began = time.monotonic()
            tasks = {
                "evaluate": await client.call_tool("evaluate", {"problem": "rms_norm", "file": "mine.py"}),
                "check": await client.call_tool("check", {"problem": "rms_norm", "file": "sub/wrong.py"}),
                "compare": await client.call_tool("compare", {"problem": "rms_norm", "a": "mine.py", "b": "right.py"}),
                "profile": await client.call_tool("profile", {"problem": "rms_norm", "source": RIGHT}),
            }
            found["at once"] = time.monotonic() - began
            for name, begun in tasks.items():
                found[name] = await ended(client, content(begun)["task"])
            found["board"] = content(await client.call_tool("board", {"problem": "rms_norm"}))
        return found

    async def ended(client: Any, task: str) -> dict[str, Any]:
        while (told := content(await client.call_tool("task", {"task": task, "wait_s": 5})))["state"] != "done":
            assert told["state"] in ("waiting", "running")
        return told["result"]

    found = asyncio.run(asyncio.wait_for(session(), 5 * LIMIT_S))
    assert set(found["tools"]) == set(NAMES)
    assert found["outside"].is_error
    assert "SECRET" not in str(found["outside"])
    assert found["at once"] < LIMIT_S
    assert (found["evaluate"]["verdict"], found["evaluate"]["ranked"]) == ("pass", True)
    assert (found["check"]["verdict"], found["check"]["stages"]["correct"]["status"]) == ("wrong", "fail")
    assert found["compare"]["comparisons"][0]["b"]["path"] == "b.py"
    assert found["profile"]["cases"][0]["profile"]["ranks"][0]["top"]
    assert isinstance(found["board"], list)


def content(answer: Any) -> Any:
    """What a tool returned, of the answer's structured content."""
    assert not answer.is_error, answer
    found = answer.structured_content
    return found["result"] if set(found) == {"result"} else found
