"""The tools that an agent is given: what can be asked, and the verb that answers. Knows nothing of MCP."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.agents.guide import instruction
from harness.agents.reward import NAMES, Function
from harness.agents.tasks import EVENTS, Tasks, ToolTask
from harness.agents.workspace import Workspace
from harness.board import leaderboard
from harness.board.places import groups, ranking
from harness.core.checkout import Checkout
from harness.core.errors import UsageError
from harness.kinds.registry import find, named
from harness.problems.problem import Problem
from harness.problems.shape_file import problem_names
from harness.problems.skeleton import submission_text
from harness.problems.submission import MAX_BYTES

WAIT_S = 30.0  # of a long poll, usually; and the most
MOST_WAIT_S = 300.0
TOP = 20  # of a board


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The server's settings: suite, ranks and device as of `eval` (None: as it does), whether passed evaluations are
    recorded, and under which name."""

    suite: str | None = None
    ranks: int | None = None
    device: str | None = None
    record: bool = False
    author: str = "agent"
    reward: Function = NAMES[0]
    lower: bool = False


class Tools:
    """The tools' methods. Each raises UsageError for what cannot be asked."""

    def __init__(self, workspace: Workspace, tasks: Tasks, settings: Settings, checkout: Checkout) -> None:
        self.workspace, self.tasks, self.settings, self.checkout = workspace, tasks, settings, checkout

    def list_problems(self) -> list[dict[str, Any]]:
        """Every problem's name, description and suites."""
        return [
            {
                "problem": one.name,
                "description": " ".join(one.description.split()),
                "ranks": "all GPUs" if one.multi_gpu else 1,
                "suites": {name: suite.description for name, suite in one.suites.items()},
            }
            for one in (named(name, self.checkout) for name in problem_names(self.checkout))
        ]

    def read_problem(self, problem: str) -> dict[str, Any]:
        """The problem's rules and files, and a first submission that passes."""
        found = self._problem(problem)
        files = {name: data.decode(errors="replace") for name, data in found.staged().items()}
        folder = {path.name for path in found.folder.glob("*.py")}
        return {
            "problem": found.name,
            "instruction": instruction(found),
            "files": {name: text for name, text in files.items() if name in folder},
            "shapes": found.shapes_path.read_text(encoding="utf-8"),
            "start": submission_text(found),
        }

    def evaluate(
        self, problem: str, file: str | None = None, source: str | None = None, suite: str | None = None
    ) -> dict[str, Any]:
        """Begins an evaluation: tests, then times against the reference. Returns the task at once."""
        return self._judge(problem, file, source, suite or self.settings.suite, "leaderboard")

    def check(self, problem: str, file: str | None = None, source: str | None = None) -> dict[str, Any]:
        """Begins the tests of the quick suite alone."""
        return self._judge(problem, file, source, "quick", "test")

    def compare(self, problem: str, a: str, b: str, suite: str | None = None) -> dict[str, Any]:
        """Begins a comparison of two files of the workspace: is b faster than a?"""
        found, texts = self._problem(problem), [self.workspace.read(one) for one in (a, b)]
        words = ["compare", found.name, "{folder}/a.py", "{folder}/b.py", "--json", "{folder}/out.json"]
        words += self._where(found, suite or self.settings.suite)
        return self._begin(words, {"a.py": texts[0], "b.py": texts[1]}, ("verdict", "summary", "pairs", "comparisons"))

    def profile(
        self, problem: str, file: str | None = None, source: str | None = None, benchmark: int = 0
    ) -> dict[str, Any]:
        """Begins a profile of one call on that benchmark shape: which kernels or host functions take the time."""
        found, text = self._problem(problem), self._text(file, source)
        words = ["eval", found.name, "{folder}/submission.py", "--mode", "profile", "--benchmark", str(int(benchmark))]
        words += ["--no-record", "--trace", "{folder}/traces", "--json", "{folder}/out.json"]
        words += ["--events", f"{{folder}}/{EVENTS}", *self._where(found, self.settings.suite)]
        return self._begin(words, {"submission.py": text}, ("status", "error", "cases"))

    def board(self, problem: str) -> list[dict[str, Any]]:
        """The local leaderboard of the problem: the first entries of each suite, machine class and rank count."""
        name, board = self._problem(problem).name, leaderboard.load(self.checkout.leaderboard)
        return [
            {
                "suite": group[1],
                "machine": group[2],
                "ranks": group[3],
                "entries": [
                    {
                        "place": row.place.text,
                        "author": row.entry.author,
                        "file": row.entry.file,
                        "speedup": row.speedup,
                        "score": row.score.value,
                        "unit": row.score.unit,
                    }
                    for row in ranking(board, group)[:TOP]
                ],
            }
            for group in groups(board)
            if group[0] == name
        ]

    def task(self, task: str, wait_s: float = WAIT_S) -> dict[str, Any]:
        """Waits until the task has ended, at most that long: its state, how far it is, and its result once it is
        done."""
        return self.tasks.wait(task, min(max(0.0, wait_s), MOST_WAIT_S)).told()

    def cancel(self, task: str) -> dict[str, Any]:
        """Cancels a task and answers its state."""
        return self.tasks.cancel(task).told()

    def _judge(
        self, problem: str, file: str | None, source: str | None, suite: str | None, mode: str
    ) -> dict[str, Any]:
        found, text, own = self._problem(problem), self._text(file, source), self.settings
        words = ["eval", found.name, "{folder}/submission.py", "--mode", mode, "--result", "{folder}/out.json"]
        words += ["--events", f"{{folder}}/{EVENTS}", "--reward", own.reward, *(["--lower"] if own.lower else [])]
        words += ["--author", own.author] if own.record and mode == "leaderboard" else ["--no-record"]
        return self._begin([*words, *self._where(found, suite)], {"submission.py": text}, ())

    def _where(self, problem: Problem, suite: str | None) -> list[str]:
        own = self.settings
        if suite is not None:
            problem.suite(suite)  # told at once where there is none
        given = (("--suite", suite), ("--ranks", own.ranks), ("--device", own.device))
        return ["--quiet", *(word for name, value in given if value is not None for word in (name, str(value)))]

    def _begin(self, words: Sequence[str], files: dict[str, str], keys: Sequence[str]) -> dict[str, Any]:
        def read(folder: Path, code: int, said: str) -> dict[str, Any]:
            path = folder / "out.json"
            if not path.exists():
                return {"error": said or f"exit code {code}"}
            text = path.read_text(encoding="utf-8")
            found: dict[str, Any] = json.loads(text.replace(str(folder) + "/", ""))
            return {key: found[key] for key in keys if key in found} if keys else found

        return self.tasks.add(ToolTask(words=words, files=files, read=read)).told()

    def _problem(self, name: str) -> Problem:
        """A problem by its name alone: a path is none."""
        if name not in problem_names(self.checkout):
            raise UsageError(f"no problem {name[:80]!r}; list_problems names them")
        return find(name, self.checkout)

    def _text(self, file: str | None, source: str | None) -> str:
        if (file is None) == (source is None):
            raise UsageError("give one of `file`, a path in the workspace, and `source`, the text itself")
        if source is not None and len(source) > MAX_BYTES:
            raise UsageError(f"`source` is larger than {MAX_BYTES} bytes, which a submission may have")
        return self.workspace.read(file) if file is not None else source or ""
