"""The hostile corpus: what a submission tries is caught and named, or comes to nothing; honest ones are ranked.

tests/hostile/ holds ordinary submission files. A docstring says what each one tries, and then, a line each:

    expect: OUTCOME [CHECK]: PATTERN    how the evaluation ends, for `held` the check, and what its message says; both
                                        sides are regular expressions
    expect: harmless                    it is right, whatever else it does; nobody gains and nothing is left
    expect: ranked                      an honest control: right, timed, ranked
    problem: a2a                        a2a where there is no such line
    mode: test                          test where there is no such line

`honest_*` are unusual but legitimate, `wrong_*` merely wrong. A new cheat is a new file.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness import sandbox, verdict
from harness.records import EvalReport, Held, Mode

FOLDER = Path(__file__).parent / "hostile"
NEEDS_ABI = {"edit": 1, "secret": 1, "kill": 6, "stop": 6}  # of Landlock; where it has less, they would do it
NEED_NAMESPACES = ("phone_home", "talk_to_the_host", "fill_dev_shm")
TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Hostile:
    """One file, and what its docstring says."""

    name: str
    source: str
    expect: str
    problem: str
    mode: Mode


def read(path: Path) -> Hostile:
    source = path.read_text()
    told = dict(re.findall(r"^(expect|problem|mode): (.*)$", source.split('"""')[1], re.MULTILINE))
    return Hostile(path.stem, source, told["expect"], told.get("problem", "a2a"), told.get("mode", "test"))


CORPUS = [read(path) for path in sorted(FOLDER.glob("*.py"))]


@pytest.mark.parametrize("hostile", CORPUS, ids=[hostile.name for hostile in CORPUS])
def test_a_submission_ends_as_its_docstring_says(
    hostile: Hostile, evaluated: Callable[..., EvalReport], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And leaves no process, no file and no shared memory behind, which `evaluated` sees to."""
    if sandbox.landlock_abi() < NEEDS_ABI.get(hostile.name.partition("_")[0], 0):
        pytest.skip("this kernel has no Landlock that stops it; every report says so")
    if hostile.name in NEED_NAMESPACES and not sandbox.has_namespaces():
        pytest.skip("no namespaces are permitted here; every report says so")
    monkeypatch.setenv("A_TOKEN", "to be found")
    monkeypatch.setenv("NVIDIA_API_KEY", "to be found")
    report = evaluated(hostile.source, hostile.problem, mode=hostile.mode, timeout_s=TIMEOUT_S)
    failed = verdict.first_failure(report)
    if hostile.expect in ("harmless", "ranked"):
        assert failed is None, failed
        assert (verdict.figures(report) is not None) == (hostile.mode == "leaderboard")
        return
    kind, _, pattern = hostile.expect.partition(":")
    assert failed is not None, "it passed"
    outcome = failed.outcome
    told = outcome.evidence if isinstance(outcome, Held) else outcome.message
    named = f"{outcome.type} {outcome.check}" if isinstance(outcome, Held) else outcome.type
    assert re.fullmatch(kind, named), outcome
    assert re.search(pattern.strip(), told), outcome
    assert verdict.figures(report) is None


def test_the_corpus_is_large_enough_and_has_its_controls() -> None:
    kinds = [hostile.name.partition("_")[0] for hostile in CORPUS]
    assert len(kinds) - kinds.count("honest") - kinds.count("wrong") >= 40
    assert kinds.count("honest") >= 8
    assert kinds.count("wrong") >= 5
    assert all(hostile.expect == "ranked" for hostile in CORPUS if hostile.name.startswith("honest"))
    assert all(hostile.expect.startswith("wrong") for hostile in CORPUS if hostile.name.startswith("wrong"))
