"""docs/contest.md: the contest of a class is played as it stands there, from registration to award."""

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from contests import Stage, play

from harness.contest.lifecycle import STATES
from harness.core.checkout import ROOT
from harness.core.errors import Exit

DOC = ROOT / "docs" / "contest.md"
KERNEL = "WHAT = '# {what}'\n\n\ndef custom_kernel(data):\n    return data\n"
FILES = {  # what the teams' submissions do in their evaluations
    "owls.py": "speedup 2.5",
    "owls2.py": "speedup 2.9",
    "owls_ag.py": "speedup 2.2",
    "cats.py": "speedup 4 then 1.5",
    "dogs.py": "speedup 1.2",
    "elks.py": "wrong",
    "elks2.py": "speedup 2.51",
    "bees.py": "held",
    "jays.py": "raised",
    "ants.py": "timed_out",
}
WHEN = re.compile(r"^# (\d{4}-\d\d-\d\d \d\d:\d\d(?::\d\d)?) UTC$")
RUN_ID = re.compile(r"\d{8}T\d{6}-[0-9a-f]{6}")  # which is another one every time
TYPED = re.compile(r"^(\w+)\$ (.*)$")


@dataclass
class Typed:
    """A command of the page, when and by whom it is typed, and what it prints there."""

    now: datetime
    login: str
    line: str
    printed: list[str]


def folded(text: str) -> list[str]:
    """The words of it: the page folds long lines."""
    return RUN_ID.sub("RUN", text).split()


def typed(text: str) -> Iterator[Typed]:
    for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
        now, one = None, None
        for line in block.splitlines():
            if when := WHEN.match(line):
                form = "%Y-%m-%d %H:%M:%S" if when[1].count(":") == 2 else "%Y-%m-%d %H:%M"
                now = datetime.strptime(when[1], form).replace(tzinfo=UTC)
            elif command := TYPED.match(line):
                if one is not None:
                    yield one
                assert now is not None, line
                one = Typed(now=now, login=command[1], line=command[2], printed=[])
            else:
                assert one is not None, line
                one.printed.append(line)
        assert one is not None, block
        yield one


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """A checkout with the page's contest, and the teams' files."""
    for part in ("reference", "shapes"):
        shutil.copytree(ROOT / part, tmp_path / part)
    (tmp_path / "contests").mkdir()
    text = re.findall(r"```yaml\n(.*?)```", DOC.read_text(), re.DOTALL)[0]
    (tmp_path / "contests" / "class-2027.yaml").write_text(text)
    for name, what in FILES.items():
        (tmp_path / name).write_text(KERNEL.format(what=what))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    play(monkeypatch)
    return Stage(tmp_path)


def test_the_class_is_played_from_registration_to_award(stage: Stage) -> None:
    codes = set()
    for one in typed(DOC.read_text()):
        stage.now, stage.login = one.now, one.login
        code, out = stage.run(one.line)
        assert folded(out) == folded("\n".join(one.printed)), f"{one.now} {one.login}$ {one.line}"
        if "refused: " in out:
            assert code == Exit.USAGE
            assert "UTC)" in out or "so it cannot be" in out
        codes.add(code)
    assert codes == {Exit.OK, Exit.USAGE, Exit.INVALID, Exit.TIMED_OUT}


def test_every_refusal_stands_on_the_page() -> None:
    """Each rule of a contest is broken once, and each state is reached."""
    text = "\n".join(line for one in typed(DOC.read_text()) for line in one.printed)
    rules = set(re.findall(r"\(rule `([\w.]+)", text))
    assert rules == {
        *("registration.opens", "registration.closes", "teams", "teams.members", "teams.participants"),
        *("opens", "deadline", "problems", "quota.per_day", "freeze", "organisers", "awards"),
    }
    assert {state for state in STATES if re.search(rf"\b{state}\b", text)} == set(STATES)
