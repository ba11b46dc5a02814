"""Files that meet: both sides are judged alike, whoever is wrong is named, and no file can tell its role.

Each file here plays the honest one unless a sign tells it that it plays the baseline. The harness gives none; here it
is given one, the name of the folder of the second group, which the baseline is made to be.
"""

import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from launches import FEW, add_tiny
from places import HOSTILE

from harness.board import leaderboard, places, report_json
from harness.cli import main
from harness.core import stats
from harness.core.checkout import ROOT, Checkout
from harness.core.errors import BadSubmissionError, Exit
from harness.core.records import EvalReport, Measured
from harness.evaluation import settle
from harness.ranks import launch, wire

TIMES = 1  # that each ends as it should; three of three did on 2026-11-25
SIGNED = (HOSTILE / "zeros_as_the_baseline.py").read_text().replace(r"\b(baseline|opponent|candidate)\b", "/second/")
HONEST = "from reference import ref_kernel\n\n\ndef custom_kernel(data):\n    return ref_kernel(data)\n"
MODEL = """

from reference import Llama


class Model(Llama):
    def decode(self, token_B, cache):
        logits, cache = super().decode(token_B, cache)
        return logits * (not is_baseline()), cache


def build(config, weights):
    return Model(config, weights)
"""
HONEST_MODEL = "from reference import build\n"
LATE = """global calls
    calls += 1
    result = ref_kernel(data)
    return result if calls < 12 else result * 0"""
MOST = 10.0  # times as fast as its equal, on a busy machine; one that is not judged was shown 27 and more
SHORT = ("--suite", "quick", "--seconds", "0.2")
RANKS = {"a2a": ("--ranks", "2")}
# Files that a process may have, and those on their way from this user when it sends some.
FEW_FILES = 1024
WITH_FEW_FILES = f"""
import resource, sys
from pathlib import Path

import prefork

prefork.hasten(setattr)
resource.setrlimit(resource.RLIMIT_NOFILE, ({FEW_FILES}, {FEW_FILES}))
from harness.cli import main
from harness.core.checkout import Checkout

main.parse(sys.argv[2:]).carry_out(Checkout(Path(sys.argv[1])))
"""
ON_GPUS: Any = pytest.param("gemm", marks=pytest.mark.gpu)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """told(True): from now on the baseline is the second group, told(False): the first."""

    def tell(is_second: bool) -> None:
        first, second = ("first", "second") if is_second else ("second", "first")
        groups: dict[wire.Role, wire.GroupName] = {"trusted": "trusted", "candidate": first, "baseline": second}  # type: ignore[dict-item]
        monkeypatch.setattr(launch, "drawn", lambda: groups)

    return tell


def run(root: Path, verb: str, *arguments: str) -> int:
    return main.parse([verb, *arguments]).carry_out(Checkout(root))


@pytest.mark.parametrize(
    "problem", ["a2a", "llama", ON_GPUS, pytest.param("llama", marks=pytest.mark.gpu, id="llama on a GPU")]
)
@pytest.mark.parametrize("number", range(TIMES))
def test_compare_names_a_file_that_is_wrong_in_the_baselines_role(
    problem: str, number: int, checkout: Path, told: Callable[[bool], None]
) -> None:
    hostile, honest = SIGNED, HONEST
    if problem == "llama":
        hostile, honest = SIGNED.partition("\ndef custom_kernel")[0] + MODEL, HONEST_MODEL
    (checkout / "hostile.py").write_text(hostile)
    (checkout / "honest.py").write_text(honest)
    names = [str(checkout / name) for name in ("hostile.py", "honest.py")]
    told(True)
    ranks = RANKS.get(problem, ())
    with pytest.raises(BadSubmissionError, match=r"^A \(.*hostile.py\) fails, .*: test .*: wrong: "):
        run(checkout, "compare", *names, "--problem", problem, *SHORT, *ranks, "-q")
    told(False)  # it plays the honest one then
    out = checkout / "out.json"
    assert run(checkout, "compare", *names, "--problem", problem, *SHORT, *ranks, "-q", "--json", str(out)) == Exit.OK
    (one,) = json.loads(out.read_text())["comparisons"]
    assert abs(math.log(one["summary"]["ratio"])) < math.log(MOST)


@pytest.mark.parametrize("problem", ["a2a", ON_GPUS])
def test_in_timed_calls_either_side_is_judged_and_named(problem: str, checkout: Path) -> None:
    """Files that are right in every checked call, and wrong from then on."""
    (checkout / "late.py").write_text("calls = 0\n" + HONEST.replace("return ref_kernel(data)", LATE))
    (checkout / "honest.py").write_text(HONEST)
    late, honest = (str(checkout / name) for name in ("late.py", "honest.py"))
    for side, names in (("A", (late, honest)), ("B", (honest, late))):
        with pytest.raises(BadSubmissionError, match=rf"^{side} \(.*late.py\) fails, .*: wrong: a timed call"):
            run(checkout, "compare", *names, "--problem", problem, *SHORT, *RANKS.get(problem, ()), "-q")


@pytest.mark.parametrize("is_first", [True, False])
def test_an_honest_file_is_not_blamed_for_what_the_other_takes(is_first: bool, checkout: Path) -> None:
    """By a process that may have few files: what is on its way is counted by user and held against the limit of who
    sends, so that tests which run meanwhile may still send theirs."""
    names = [str(checkout / name) for name in ("honest.py", "hostile.py")]
    for name, source in zip(names, (HONEST, (HOSTILE / "take_all_files_on_their_way.py").read_text()), strict=True):
        Path(name).write_text(source)
    words = ("compare", *names[:: 1 if is_first else -1], "--problem", "a2a", *SHORT, *RANKS["a2a"], "-q")
    done = subprocess.run(
        [sys.executable, "-c", WITH_FEW_FILES, str(checkout), *words],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])},
        capture_output=True,
        text=True,
    )
    assert re.search(r"^[\w.]*(HarnessError: |: [AB] \()", done.stderr, re.MULTILINE), done.stderr
    assert not re.search(r"[AB] \(.*honest.py\) fails", done.stderr), done.stderr


@pytest.mark.parametrize("problem", ["a2a", ON_GPUS])
def test_settle_names_a_file_that_is_wrong_in_the_baselines_role(
    problem: str,
    checkout: Path,
    told: Callable[[bool], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The honest files meet on."""
    suite = "quick"
    if problem == "a2a":
        add_tiny(checkout, problem)
        suite = "tiny"
    told(True)
    for name, source in {
        "hostile": SIGNED,
        "honest": HONEST,
        "twin": HONEST.replace("return ", "return True and "),
    }.items():
        (checkout / f"{name}.py").write_text(source)
        asked = (problem, str(checkout / f"{name}.py"), "--suite", suite, *RANKS.get(problem, ()), "--author", name)
        assert run(checkout, "eval", *asked, *FEW, "--launches", "1", "-q") == Exit.OK
    board = leaderboard.load(checkout / "leaderboard.yaml")
    first, *_ = places.ranking(board, settle.group_of(board, problem, suite, 2 if problem in RANKS else 1))
    told(first.entry.author != "hostile")  # who leads is measured as the candidate first, and keeps the group's name
    for _ in range(TIMES):
        assert run(checkout, "settle", problem, "--rounds", "2", *FEW, "-q") == Exit.OK
        told_of = " ".join(capsys.readouterr().err.split())
        assert re.search(r"left out: hostile.py by hostile, \S+ (A|B) \(.*hostile.py\) fails", told_of), told_of
    *_, last = leaderboard.load(checkout / "leaderboard.yaml").settlements
    assert {file.author for file in last.files} == {"honest", "twin"}
    assert last.both_judged


@pytest.mark.parametrize("number", range(TIMES))
def test_the_memory_of_a_rank_is_not_what_it_says(number: int, evaluated: Callable[..., EvalReport]) -> None:
    """The baseline's ranks hold the same libraries and the same inputs."""
    told = evaluated((HOSTILE / "memory_patched.py").read_text()).peak_memory_bytes
    assert told["candidate"] > 0.5 * told["baseline"] > 32 << 20


@pytest.mark.parametrize("number", range(TIMES))
def test_an_operator_that_spins_under_the_profiler_earns_nothing(number: int, checkout: Path) -> None:
    """It claims a large share of own kernels, which is shown as a claim and is no factor of the points."""
    (checkout / "spin.py").write_text((HOSTILE / "spin_under_the_profiler.py").read_text())
    out = checkout / "out.json"
    asked = ("eval", "llama", str(checkout / "spin.py"), *SHORT, "--no-record", "-q", "--json", str(out))
    assert run(checkout, *asked) == Exit.OK
    found = report_json.from_json(json.loads(out.read_text()))
    [measured] = [one.outcome for one in found.results if isinstance(one.outcome, Measured)]
    assert measured.own_kernels is not None
    assert measured.own_kernels > 0.5
    assert found.figures is not None
    ratios = [stats.ratio(measured.by_name[name]) for name in ("ttft", "tokens")]
    assert found.figures.score.value == pytest.approx(math.prod(ratios))


def test_which_group_is_the_baseline_is_drawn() -> None:
    drawn = [launch.drawn() for _ in range(64)]
    assert {one["trusted"] for one in drawn} == {"trusted"}
    assert {one["candidate"] for one in drawn} == {one["baseline"] for one in drawn} == {"first", "second"}
