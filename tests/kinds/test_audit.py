"""The audit: cheats that a benchmark's own tolerance takes, and what our verdict says of them."""

import json
import math
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from test_kernelbench import DEAD, HEAD, MATMUL, RELU, own

from harness.agents.journal import read_results
from harness.cli import audit, eval_many
from harness.core.checkout import Checkout
from harness.core.errors import BadFileError, UsageError
from harness.kinds.benchmarks.audit import Audit, audits
from harness.kinds.registry import find
from harness.problems.problem import Problem

Harness = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.slow
def test_weak_problems_are_found_and_no_cheat_passes_our_verdict(harness: Harness, tmp_path: Path) -> None:
    """Their order is that of their numbers."""
    folder = tmp_path / "set"
    folder.mkdir()
    for name, text in (("10_dead", DEAD), ("9_relu", RELU), ("2_linear", MATMUL)):
        (folder / f"{name}.py").write_text(HEAD + text)
    (folder / "3_broken.py").write_text(HEAD + MATMUL.replace("self.linear(x)", "self.lost(x)"))
    out = ("--out", str(tmp_path / "found.jsonl"))
    found = json.loads(harness("audit", str(folder), "--json", "-", *out).stdout)["problems"]
    assert [one["problem"] for one in found] == ["set/2_linear", "set/3_broken", "set/9_relu", "set/10_dead"]
    linear, broken, relu, dead = found
    assert not any(one["own"] for one in linear["cheats"].values() if one)
    assert "lost" in broken["skipped"]
    assert relu["cheats"]["input"] == {"own": True, "strict": False}
    assert dead["refused"]
    assert all(one["own"] for name, one in dead["cheats"].items() if name != "input")
    assert not any(one["strict"] for problem in found for one in problem["cheats"].values() if one)
    again = harness("audit", str(folder), "--markdown", "-", *out).stdout.replace("\\", "")
    assert "| set/9_relu | input | none | an input passes as the result |" in again
    assert "| set/10_dead | zeros, constant, stale, bf16, fp16, fp8 | refused | zeros pass |" in again


def test_an_audit_goes_on_behind_a_line_that_was_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a full disk leaves one. Two do not write one file, and nothing of another file is lost."""
    for name in ("1_a", "2_b"):
        (tmp_path / f"{name}.py").write_text(HEAD + RELU)
    problems = [find(str(tmp_path / f"{name}.py"), Checkout.here()) for name in ("1_a", "2_b")]
    tried: list[str] = []

    def audited(problem: Problem, limit_s: float, most_bytes: int) -> Audit:
        tried.append(problem.name)
        return Audit(problem=problem.name, cheats={})

    monkeypatch.setattr("harness.kinds.benchmarks.audit.audited", audited)
    out = tmp_path / "found.jsonl"
    first = audits(problems, 1.0, 1, out)
    next(first)
    with pytest.raises(UsageError, match="another process writes it"):
        next(audits(problems, 1.0, 1, out))
    first.close()  # type: ignore[attr-defined]
    out.write_text(out.read_text() + '{"problem": "x')
    assert [one.problem for one in audits(problems, 1.0, 1, out)] == [one.name for one in problems] == tried
    assert len(out.read_text().splitlines()) == 2
    out.write_text("notes")
    with pytest.raises(BadFileError, match="name another file"):
        next(audits(problems, 1.0, 1, out))
    assert out.read_text() == "notes"
    with pytest.raises(UsageError, match="not an ordinary file"):
        next(audits(problems, 1.0, 1, Path("/dev/full")))


def test_a_set_is_listed_and_evaluated_with_fast_p(harness: Harness, tmp_path: Path) -> None:
    """Candidates are named as their problems are. A problem that is refused leaves the others."""
    folder, mine = tmp_path / "set", tmp_path / "mine"
    folder.mkdir()
    (mine / "9_relu").mkdir(parents=True)
    for name, text in (("2_linear", MATMUL), ("9_relu", RELU)):
        (folder / f"{name}.py").write_text(HEAD + text)
    (mine / "2_linear.py").write_text(HEAD + own(MATMUL))
    (mine / "9_relu" / "a.py").write_text(HEAD + own(RELU))
    (mine / "9_relu" / "b.py").write_text(HEAD + own(RELU).replace("torch.relu(x)", "x.clone()"))
    assert "set/2_linear" in harness("problems", str(folder)).stdout
    words = ("eval-many", str(folder), str(mine), "--device", "cpu", "--keep", "1", "--seconds", "0.2")
    found = json.loads(harness(*words, "--out", str(tmp_path / "out"), "--json", "-").stdout)
    assert {one["problem"]: (one["candidates"], one["passed"]) for one in found["problems"]} == {
        "set/2_linear": (1, 1),
        "set/9_relu": (2, 1),
    }
    assert next(one for one in found["fast"] if one["at"] == 0)["figure"]["value"] == 0.75


def test_a_set_says_which_files_it_leaves_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelled candidate is named. Logs beside candidates and other sets' results in the folder do not count."""
    folder, mine, out = tmp_path / "set", tmp_path / "mine", tmp_path / "out"
    for made in (folder, mine, out):
        made.mkdir()
    (folder / "1_a.py").write_text("import no_such_package\n" + HEAD + RELU)  # so that nothing is started
    for name in ("1_a.py", "1_a.log", "1_A.py"):
        (mine / name).write_text(HEAD + own(RELU))
    (out / "other.jsonl").write_text("of another set\n")
    order = eval_many.EvalManyOrder(problem=str(folder), places=(mine,), out=out, device="cpu", quiet=True)
    eval_many.run(order, Checkout.here())
    assert "mine: named as no problem of " in (said := capsys.readouterr().err)
    assert said.rstrip().endswith(": 1_A.py")
    assert [Path(one.id).name for one in read_results([out / "1_a.jsonl"])] == ["1_a.py"]


@pytest.mark.parametrize(("named", "folder"), [("exp-0.5", "exp-0.5"), ("results.jsonl", "results")])
def test_a_sets_results_are_in_the_folder_that_was_named(named: str, folder: str, tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "1_a.py").write_text("import no_such_package\n" + HEAD + RELU)  # so that nothing is started
    (tmp_path / "1_a.py").write_text(HEAD + own(RELU))
    places, out = (tmp_path / "1_a.py",), tmp_path / named
    order = eval_many.EvalManyOrder(problem=str(tmp_path / "set"), places=places, out=out, device="cpu", quiet=True)
    eval_many.run(order, Checkout.here())
    assert [path.name for path in (tmp_path / folder).iterdir()] == ["1_a.jsonl"]


@pytest.mark.parametrize("out", ["-", "/proc/nowhere/out", "file"])
def test_a_set_needs_a_folder_for_its_results(out: str, tmp_path: Path) -> None:
    (tmp_path / "1_a.py").write_text(HEAD + RELU)
    (tmp_path / "file").touch()
    place = Path(out) if out != "file" else tmp_path / out
    with pytest.raises(UsageError, match=r"--out .*name a"):
        eval_many.run(eval_many.EvalManyOrder(problem=str(tmp_path), places=(tmp_path,), out=place), Checkout.here())


def test_problems_whose_files_are_called_alike_are_called_as_their_folders() -> None:
    members = [Path("set/softmax/definition.json"), Path("set/gemm/definition.json"), Path("set/9_relu.py")]
    assert eval_many.names_of(members) == ["softmax", "gemm", "9_relu"]


@pytest.mark.parametrize(("option", "value"), [("seconds", -1.0), ("most", math.nan)])
def test_what_is_no_amount_is_refused(option: str, value: float, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"--{option} {value}: a number of"):
        audit.run(replace(audit.AuditOrder(set=tmp_path), **{option: value}), Checkout.here())
