"""Problems whose submissions are programs: the checker, the answers' clock, scores, and every bad input by its name."""

import dataclasses
import gzip
import importlib
import io
import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from waiting import in_time

from harness.agents.candidates import read_all
from harness.agents.made import result_of
from harness.board.entries import Board, SettledFile, Settlement
from harness.board.judgements import entry_of, with_judged
from harness.board.places import ranking
from harness.core.checkout import ROOT, Checkout
from harness.core.curve import Curve, Point
from harness.core.errors import BadFileError, BadSubmissionError, HarnessError, UsageError
from harness.core.metrics import COST
from harness.core.records import (
    Case,
    CaseResult,
    EvalReport,
    Held,
    Measured,
    Metric,
    Score,
    Series,
    Submission,
    TimedOut,
    Wrong,
)
from harness.evaluation import compare, verify
from harness.evaluation.evaluate import evaluate
from harness.judging import verdict
from harness.judging.scoring import SCORINGS
from harness.kinds.kind import Order, Progress
from harness.kinds.program.build import ProgramPlan, unfit
from harness.kinds.program.task import TaskModule, check_here, load_instance, load_task
from harness.kinds.registry import kind_of, read_submission
from harness.kinds.settings import Asked, setting
from harness.problems.shape_file import find
from harness.report import board_view, comparison, export, history, page_data, plot
from harness.report import decision as decision_shown
from harness.report.curves import curve_table
from harness.report.document import Document, plain
from harness.report.render import terminal

CHECKOUT = Checkout(ROOT)
EXAMPLE = {
    "problem": {
        "name": "two",
        "nodes": {"intervals": [[0, 4], [2, 6]], "costs": [[5, 1], [2, 3, 9]], "usages": [[1, 4], [2, 5, 1]]},
        "edges": {"nodes": [[0, 1], [0, 1]], "costs": [[0, 1, 2, 3, 4, 5], [10, 10, 10, 10, 10, 10]]},
        "usage_limit": 6,
    }
}


@pytest.fixture(scope="module")
def task() -> TaskModule:
    return load_task(find("iopddl", CHECKOUT))


def loaded(task: TaskModule, **changes: object) -> object:
    return task.load(json.dumps({"problem": EXAMPLE["problem"] | changes}).encode())


# ---- the checker -----------------------------------------------------------------------------------------------------
def test_a_cost_is_the_sum_over_nodes_and_parallel_edges(task: TaskModule) -> None:
    assert task.cost(loaded(task), "[0, 0]") == 5 + 2 + 0 + 10
    assert task.cost(loaded(task), "[1, 2]") == 1 + 9 + 5 + 10


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("[1, 1]", "usage limit exceeded at time 2: 2 live nodes use 9, 3 above 6; most is node 1's (5)"),
        ("[]", "is no answer"),
        ("[0]", "an answer for 1 nodes, and the instance has 2"),
        ("[0, 3]", "node 1: there is no strategy 3, it has 0 to 2"),
        ("[-1, 0]", "node 0: there is no strategy -1"),
        ("[0, NaN]", "NaN is no strategy"),
        ("[0, 1.0]", "node 1: expected a whole number, found 1.0"),
        ("[true, 0]", "node 0: expected a whole number, found True"),
        ("[0, 99999999999999999999]", "node 1: 99999999999999999999 has more than 64 bits"),
        ("[" * 100_000 + "]", "not an answer"),
    ],
)
def test_a_wrong_answer_names_what_is_wrong_and_where(task: TaskModule, line: str, words: str) -> None:
    with pytest.raises(ValueError, match=r".") as found:
        task.cost(loaded(task), line)
    assert words in str(found.value)


def test_a_task_file_that_fails_is_named_with_its_line_and_blames_no_submission(tmp_path: Path) -> None:
    """An answer that its checker did not expect had ended the harness with a traceback."""
    others = "".join(f"def {name}(*given): return None\n" for name in ("grace_s", "load", "best", "known"))
    text = f"CORES = MEMORY_BYTES = 1\n{others}def find(name): return name\ndef content(path): return b''\n"
    text += "def cost(instance, line):\n    if line == 'x': raise ValueError('no')\n    return [][3]\n"
    (tmp_path / "task.py").write_text(text + "def bound(name, text): return 1 / 0\n")
    task = load_task(dataclasses.replace(find("iopddl", CHECKOUT), folder=tmp_path, root=tmp_path))
    with pytest.raises(BadFileError, match=r"^task.py:10: cost\(\): IndexError: list index out of range; correct it"):
        task.cost(None, "[7]")
    with pytest.raises(BadFileError, match=r"^task.py:11: bound\(\): ZeroDivisionError: division by zero"):
        load_instance(task, "one")
    with pytest.raises(ValueError, match=r"^no$"):
        task.cost(None, "x")


def test_a_limit_of_no_time_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(BadFileError, match=r"^shapes/iopddl.yaml: .*: limit_s is 0; expected seconds above 0$"):
        evaluated(program(tmp_path, "print('[]')"), limit_s=0)


def test_sums_beyond_64_bits_are_exact(task: TaskModule) -> None:
    """With floats, or int64, the last digits or the sign would be lost."""
    most = 2**63 - 1
    nodes = {"intervals": [[0, 1]] * 5, "costs": [[most]] * 5, "usages": [[most]] * 5}
    edges: dict[str, object] = {"nodes": [], "costs": []}
    assert task.cost(loaded(task, nodes=nodes, edges=edges, usage_limit=5 * most), "[0,0,0,0,0]") == 5 * most
    with pytest.raises(ValueError, match=f"use {5 * most}, 1 above"):
        task.cost(loaded(task, nodes=nodes, edges=edges, usage_limit=5 * most - 1), "[0,0,0,0,0]")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"usage_limit": 1.5}, r"\$.problem.usage_limit: expected a whole number"),
        ({"edges": {"nodes": [[0, 2]], "costs": [[0]]}}, r"edges.nodes\[0\]: no such node among 2"),
        ({"edges": {"nodes": [[0, 1]], "costs": [[0, 1]]}}, r"edges.costs\[0\]: 2 numbers where K_u x K_v needs 6"),
        (
            {"edges": {"nodes": [[0, 1]], "costs": [[2**64] * 6]}},
            r"costs\[0\]\[0\]: 18446744073709551616 has more",
        ),
        ({"nodes": {}}, "not an instance"),
    ],
)
def test_an_instance_that_does_not_fit_is_refused_with_the_place(task: TaskModule, changes: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        loaded(task, **changes)


def test_the_contests_instances_are_read_from_the_users_folder(task: TaskModule, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delenv("IOPDDL_DATA", raising=False)
    with pytest.raises(UsageError, match="set IOPDDL_DATA to a folder"):
        load_instance(task, "Q")
    monkeypatch.setenv("IOPDDL_DATA", str(tmp_path))
    with pytest.raises(UsageError, match=r"has no asplos-2025-iopddl-Q.json or .json.gz"):
        load_instance(task, "Q")
    (tmp_path / "asplos-2025-iopddl-Q.json.gz").write_bytes(gzip.compress(json.dumps(EXAMPLE).encode()))
    found = load_instance(task, "Q")
    assert found.best == found.known == 526776842042  # what the contest's best team reached
    (tmp_path / "asplos-2025-iopddl-S.json").write_text(json.dumps(EXAMPLE))
    found = load_instance(task, "S")
    assert (found.best, found.known) == (1534613444, 1511377982), "later results do not count for the contest's score"
    (tmp_path / "asplos-2025-iopddl-Q.json").write_bytes(b"{")
    with pytest.raises(BadFileError, match="not JSON"):
        load_instance(task, "Q")


def test_an_instance_that_is_cut_off_is_known_before_anything_runs(
    task: TaskModule, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setenv("IOPDDL_DATA", str(tmp_path))
    whole = gzip.compress(json.dumps(EXAMPLE).encode())
    (tmp_path / "asplos-2025-iopddl-Q.json.gz").write_bytes(whole)
    (tmp_path / "asplos-2025-iopddl-R.json.gz").write_bytes(whole)
    check_here(task, ["Q", "R"])
    (tmp_path / "asplos-2025-iopddl-R.json.gz").write_bytes(whole[:-20])
    with pytest.raises(BadFileError, match=r"iopddl-R.json.gz: .*cannot be read"):
        check_here(task, ["Q", "R"])


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"not gzip", "cannot be read"),
        (b"", "not JSON"),
        (b"\x1f\x8b\x08" + 40 * b"\0", "cannot be read"),
        (gzip.compress(b"[" * 100_000), "not JSON"),
        (gzip.compress(b'{"problem": NaN}'), "not an instance"),
        (gzip.compress(b'{"problem": ' + b"9" * 5000 + b"}"), "not JSON"),
        (gzip.compress(json.dumps(EXAMPLE).encode())[:-20], "cannot be read"),
        (gzip.compress(b"\xff\xfe"), "not JSON"),
    ],
    ids=["plain", "empty", "corrupt", "deep", "nan", "digits", "short", "bytes"],
)
def test_an_unreadable_instance_is_named(
    task: TaskModule, tmp_path: Path, monkeypatch, data: bytes, words: str
) -> None:
    monkeypatch.setenv("IOPDDL_DATA", str(tmp_path))
    (tmp_path / "asplos-2025-iopddl-Q.json.gz").write_bytes(data)
    with pytest.raises(BadFileError, match=words) as found:
        load_instance(task, "Q")
    assert "asplos-2025-iopddl-Q.json.gz" in str(found.value)


def test_a_limit_beyond_64_bits_is_kept_to(task: TaskModule) -> None:
    assert task.cost(loaded(task, usage_limit=2**80), "[1, 1]") > 0
    with pytest.raises(ValueError, match="usage limit exceeded"):
        task.cost(loaded(task, usage_limit=-(2**80)), "[1, 1]")


def generator() -> Any:
    """reference/iopddl/generate.py."""
    sys.path.insert(0, str(ROOT / "reference/iopddl"))
    try:
        return importlib.import_module("generate")
    finally:
        sys.path.pop(0)


def test_every_shipped_instance_has_a_proved_bound_and_comes_from_the_generator(task: TaskModule) -> None:
    generate = generator().generate
    for name, arguments in {"tiny": (2, 1, 1), "small": (6, 2, 2), "chain": (24, 3, 3), "long": (40, 3, 4)}.items():
        found = load_instance(task, name)
        assert found.bound is not None
        assert found.bound[1].startswith("optimum")
        title = "chain-" + "-".join(map(str, arguments))
        assert json.loads(found.text) == json.loads(json.dumps(generate(*arguments, name=title)))


BUILDS = pytest.mark.xdist_group("solver")  # once, for seconds


@pytest.fixture(scope="module")
def solver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped solver, built."""
    if not any(map(shutil.which, ("g++", "clang++", "c++"))):
        pytest.skip("no C++ compiler")
    folder = tmp_path_factory.mktemp("built") / "iopddl"
    shutil.copytree(ROOT / "submissions/iopddl", folder)
    subprocess.run(["sh", "build.sh"], cwd=folder, check=True)
    return folder / "solver"


# Arguments of generate(), and the optimum as prove.py finds it.
FORBIDDING = {
    "many strategies": ((4, 2, 3), {"mesh": (2, 4, 4), "moves": 2}, 311635),
    "most pairs forbidden": ((8, 2, 3), {"moves": 1}, 718490),
}


@BUILDS
@pytest.mark.parametrize("family", [pytest.param("many strategies", marks=pytest.mark.slow), "most pairs forbidden"])
def test_forbidden_pairs_that_remain_do_not_keep_the_solver_from_the_optimum(
    task: TaskModule, solver: Path, tmp_path: Path, family: str
) -> None:
    arguments, options, optimum = FORBIDDING[family]
    instance = tmp_path / "instance.json"
    instance.write_text(json.dumps(generator().generate(*arguments, **options)))
    loaded = task.load(instance.read_bytes())

    def check(limit_s: float) -> None:
        ran = subprocess.run([solver, instance, str(limit_s)], capture_output=True, text=True, check=True)
        assert task.cost(loaded, ran.stdout.splitlines()[-1]) == optimum

    in_time(check, 2, 20)
    permitted = (loaded.pair_costs < 10**18).mean()  # type: ignore[attr-defined]
    assert 0.4 < permitted < 0.7


@BUILDS
def test_a_bound_that_the_solver_proves_is_none_above_the_optimum(solver: Path) -> None:
    path = ROOT / "reference/iopddl/instances/long.json"

    def check(limit_s: float) -> None:
        ran = subprocess.run([solver, path, str(limit_s), "3676308"], capture_output=True, text=True, check=True)
        assert ran.stdout == ""
        assert 3_660_000 < int(ran.stderr.split()[-1]) <= 3_676_308

    in_time(check, 2, 20)


def test_the_reference_never_ends_with_a_worse_answer_than_it_had(task: TaskModule) -> None:
    """HiGHS, its time up, once had an answer at five times the greedy one's cost, which then was the reference's."""
    code = (
        "import reference, sys; real = reference.by_milp;"
        "reference.by_milp = lambda instance, seconds: ([0] * len(instance.widths), 0.0);"
        "reference.main(sys.argv[1], 1.0)"
    )
    folder = ROOT / "reference/iopddl"
    path = folder / "instances/tiny.json"
    ran = subprocess.run(
        [sys.executable, "-c", code, str(path)], cwd=folder, capture_output=True, text=True, check=True
    )
    instance = task.load(path.read_bytes())
    with pytest.raises(ValueError, match="usage limit"):
        task.cost(instance, str([0] * 13))
    costs = [task.cost(instance, line) for line in ran.stdout.splitlines()]
    assert costs[-1] == min(costs)


# ---- scores ----------------------------------------------------------------------------------------------------------
def test_the_published_table_scores_as_published() -> None:
    """google/iopddl: 18.736, 13.843, 13.186 for the first three of 20 teams, over the 20 withheld instances."""
    import csv

    lines = (ROOT / "reference/iopddl/published.csv").read_text().splitlines()
    rows = [row for row in csv.DictReader(one for one in lines if one[:2] != "# ") if row["team"].startswith("team")]
    withheld = [name for name in rows[0] if name not in ("team", *"AGMSY")]
    assert (len(rows), len(withheld)) == (20, 20)
    best = [min(float(row[name]) for row in rows if row[name]) for name in withheld]
    own = [[float(row[name] or math.inf) for name in withheld] for row in rows]
    totals = [round(SCORINGS["relative"].total(values, best), 3) for values in own]
    assert totals[:6] == [18.736, 13.843, 13.186, 9.311, 7.915, 6.560]


# ---- costs in words --------------------------------------------------------------------------------------------------
def comparison_of(a: float, b: float, metric: Metric = COST) -> compare.Comparison:
    series = Series(metric=metric, own=(b,) * 3, baseline=(a,) * 3)
    sides = [compare.Side(name=name, sha256=name * 64) for name in "ab"]
    row = compare.CaseRow(
        label="small", params={}, a=series.baseline, b=series.own, difference=compare.against_baseline(series)
    )
    return compare.Comparison(
        metric=metric,
        how="paired",
        problem="iopddl",
        suite="cpu",
        device="cpu",
        world_size=1,
        margin=0.02,
        a=sides[0],
        b=sides[1],
        rows=(row,),
        warnings=(),
    )


def test_costs_are_compared_in_their_own_words_and_unit() -> None:
    console = Console(width=120, file=io.StringIO())
    terminal.show(comparison.document_of([found := comparison_of(200.0, 100.0)]), console)
    text = printed(console)
    assert "B is CHEAPER  A / B is 2.000x (95 % interval 2.000 to 2.000)" in text
    assert "1 rank on cpu" in text
    assert "instance  A cost  B cost" in text
    assert not {"FASTER", "us", "shape", "timed"} & set(text.split())
    [case] = comparison.to_json([found], 0)["comparisons"][0]["cases"]
    assert (case["a_cost"], case["b_samples_cost"], case["word"]) == (200.0, [100.0] * 3, "CHEAPER")


def printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_fail_if_takes_any_metrics_word_by_what_it_means() -> None:
    dearer = [comparison_of(100.0, 200.0)]
    assert [compare.exit_code(dearer, [word]) for word in ("slower", "dearer", "cheaper", "faster")] == [3, 3, 0, 0]


def test_where_more_is_better_more_is_better() -> None:
    assert comparison_of(100.0, 200.0, Metric(name="rate", unit="GB/s", better="more")).summary.word == "BETTER"


def test_a_score_in_points_is_no_time_and_says_nothing_of_the_machine() -> None:
    points = Score(value=2.9, unit="points", better="more", relative_by="relative")
    decision = verify.decide(verify.EntryClaim(score=points, ratio=1.2, ci=None), [1.5, 1.4, 1.6], [1.2, 1.21, 1.2])
    assert decision.word == "verified"
    assert "machine" not in decision.why
    assert "-0%" not in decision.why


# ---- programs --------------------------------------------------------------------------------------------------------
def evaluated(file: Path, mode: str = "test", suite: str = "quick", limit_s: float = 8.0) -> EvalReport:
    """Of a program that may take so long for each instance, which few take."""
    made = setting(Asked(problem="iopddl", suite=suite), CHECKOUT)
    submission = read_submission(made.problem, file, CHECKOUT)
    tests, benchmarks = (
        tuple(dataclasses.replace(one, params=one.params | {"limit_s": limit_s}) for one in cases)
        for cases in (made.suite.tests, made.suite.benchmarks)
    )
    short = dataclasses.replace(made.suite, tests=tests, benchmarks=benchmarks)
    made = dataclasses.replace(made, suite=short)
    order = Order(setting=made, submission=submission, mode=mode, author="me")  # type: ignore[arg-type]
    return evaluate(kind_of(made).plan(order), Progress())


THRIFTY = """
import json, sys
problem = json.load(open(sys.argv[1]))["problem"]
answer = [usage.index(min(usage)) for usage in problem["nodes"]["usages"]]
"""


def program(folder: Path, text: str, name: str = "mine.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def outcome_of(report: EvalReport) -> str:
    outcome = report.results[0].outcome
    assert isinstance(outcome, Wrong), outcome
    return outcome.message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("pass", "no answer: it printed none"),
        ("print([])", "`[]` is no answer"),
        ("print([0, 1])", "an answer for 2 nodes"),
        ("print([0] * 12 + [999])", "node 12: there is no strategy 999"),
        ("print('[' + '0, ' * 12 + 'NaN]')", "NaN is no strategy"),
        ("raise SystemExit('oh')", "no answer: it exited with code 1 (oh)"),
        ("open(sys.argv[1], 'w')", "no answer: it exited with code 1 (PermissionError"),
        (f"open('{ROOT}/leaderboard.yaml').read()", "no answer: it exited with code 1 (FileNotFoundError"),
        ("open('../../reference/reference.py')", "no answer: it exited with code 1 (FileNotFoundError"),
        # of its launcher
        ("import os; os.readlink('/proc/1/fd/0')", "no answer: it exited with code 1 (PermissionError"),
        ("import time; time.sleep(60)", "still ran"),
        ("import os; os.kill(os.getpid(), 11)", "was killed by SIGSEGV"),
        ("x = bytearray(1 << 45)", "(MemoryError)"),
        ("print('[0, 1', end='')", "no answer: it printed none"),
    ],
)
def test_what_a_program_does_wrong_is_named(tmp_path: Path, text: str, words: str) -> None:
    report = evaluated(program(tmp_path, "import sys\n" + text), limit_s=0.8 if "sleep" in text else 8.0)
    assert words in outcome_of(report)
    assert verdict.status(report) == "fail"


def test_floods_and_fork_bombs_are_ended_and_named(tmp_path: Path, monkeypatch) -> None:
    from harness.process import answers

    small = {"output_bytes": 1 << 20, "tasks": 20}
    monkeypatch.setattr(answers.ProcessLimits, "__init__", _limited(answers.ProcessLimits.__init__, small))
    flood = program(tmp_path, "while True: print('x' * 100000)", "flood.py")
    assert "printed more than 1 MiB and was ended" in outcome_of(evaluated(flood))
    bomb = "import subprocess, sys\nwhile True: subprocess.Popen(['sleep', '60'])"
    assert "ran more than 20 processes and threads and was ended" in outcome_of(
        evaluated(program(tmp_path, bomb, "bomb.py"))
    )


def test_a_flood_of_answers_leaves_a_sample_and_the_newest() -> None:
    """One object an answer once took 100 MiB a second."""
    from harness.process import answers

    with subprocess.Popen(["true"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        limits = answers.ProcessLimits(wall_s=9, cores=(0,), memory_bytes=1)
        reading = answers._Reading(child, limits, os.pipe()[0], answers.cgroup.Cgroup())
        for number in range(5000):
            reading._take(b"[1]\n" * 100 + b"[%d]\n" % number)
        assert len(reading.answers) <= answers.MOST_KEPT
        assert reading.answers[-1].text == b"[4999]"
        assert int(reading.answers[0].text[1:-1]) < 2500, "the curve begins early"
        reading.limits = dataclasses.replace(limits, answer_s=0.0)
        reading._take(b"[0]\n")
        assert (reading.answers[-1].text, reading.late_answers) == (b"[4999]", 1)


def _limited(init, more: dict[str, int]):
    return lambda self, **given: init(self, **(given | more))


@pytest.mark.parametrize(
    "ending", ["raise SystemExit(3)", "import time; time.sleep(60)", "import os; os.abort()", "print('[0, 1', end='')"]
)
def test_the_last_complete_answer_counts_however_a_program_ends(tmp_path: Path, ending: str) -> None:
    def check(limit_s: float) -> None:
        report = evaluated(program(tmp_path, f"{THRIFTY}print(answer, flush=True)\n{ending}"), limit_s=limit_s)
        assert verdict.status(report) == "pass"
        assert [one.code for one in report.warnings if one.code == "run"] == ["run"][: "print" not in ending]

    in_time(check, 0.8, 10.0)


def test_a_measured_case_has_cost_ratio_bound_and_a_curve(tmp_path: Path) -> None:
    text = f"{THRIFTY}import time\nprint([0] * len(answer))\ntime.sleep(0.1)\nprint(answer)"
    report = evaluated(program(tmp_path, "#!/usr/bin/env python3\n" + text, "mine"), "leaderboard", limit_s=1.5)
    assert verdict.status(report) == "pass"
    case = report.results[-1]
    assert isinstance(case.outcome, Measured)
    assert [one.metric.name for one in case.outcome.series] == ["cost", "area"]
    [curve] = case.outcome.curves
    assert case.outcome.ranked.own == (curve.own[-1].value,)
    row = export.rows(Board(), [report], ROOT)[-1]
    assert (row["case_unit"], row["case_value"], row["case_bound"]) == ("cost", curve.own[-1].value, 514110)
    assert (row["case_time_us"], row["case_ref_us"], row["case_bound_us"]) == (None, None, None)
    pytest.importorskip("matplotlib")
    [panel] = plot.figure(report).axes
    assert list(panel.lines[0].get_ydata())[-1] == curve.own[-1].value
    assert (panel.get_xlabel(), panel.get_ylabel(), panel.get_yscale()) == ("seconds", "cost", "log")
    assert curve.own[-1].at_s > 0.1
    assert case.bound is not None
    assert case.bound.value == 514110
    assert report.figures is not None
    own = curve.own[-1].value
    best = case.outcome.best or own  # a busy machine may leave the reference without an answer
    assert report.figures.score.value == pytest.approx(min(best, own) / own)


def test_the_table_of_the_curve_keeps_its_labels_where_there_is_little_room() -> None:
    """Numbers of ten digits left no room for instance and side."""
    points = (Point(at_s=0.1, value=125_089_397_199.0),)
    series = Series(metric=COST, own=(points[0].value,), baseline=(points[0].value,))
    measured = Measured(series=(series,), curves=(Curve(limit_s=9.0, own=points, baseline=points, known=1.2e11),))
    case = Case(kind="benchmark", params={"instance": "M", "limit_s": 180.0}, seed=1, world_size=1)
    console = Console(width=80, file=io.StringIO())
    terminal.show(Document(blocks=tuple(curve_table([CaseResult(case=case, outcome=measured)]))), console)
    head, own, reference, ratio = printed(console).splitlines()
    assert head.split() == ["reached", "by", "of", "50%", "100%"]
    assert own.startswith("instance M limit_s 180.0  submission  125,089,397,199")
    assert reference.split()[0] == "reference"
    assert ratio.split() == ["best", "/", "own", "0.9593", "0.9593"]


def test_when_a_best_changes_everybodys_score_does(tmp_path: Path) -> None:
    report = evaluated(program(tmp_path, f"{THRIFTY}print(answer)"), "leaderboard", limit_s=1.5)
    first = entry_of(report)
    assert first is not None
    case = dataclasses.replace(first.cases[0], value=first.cases[0].value / 4, best=None)
    better = dataclasses.replace(first, author="you", cases=(case,))
    board = with_judged(with_judged(Board(), first), better)
    scores = {entry.author: entry.score.value for entry in board.entries}
    assert scores == {"you": 1.0, "me": pytest.approx(0.25, rel=1e-5)}
    assert [entry.author for entry in board.entries] == ["you", "me"]
    mine, _ = history.lines(board, [])
    assert history.summary(mine) == "1 score: 0.25 points"
    [shown] = page_data.page_of(board, [report], [], ROOT, tmp_path, "").boards
    curves = {one.entry.author: one.cases[0].curve for one in shown.entries}
    measured = report.results[-1].outcome
    assert isinstance(measured, Measured)
    assert curves == {"me": measured.curves[0], "you": measured.curves[0]}, "of the run, whoever else claims it"
    met = Settlement(
        problem=first.problem,
        suite=first.suite,
        machine_class=first.machine_class,
        world_size=first.world_size,
        machine=None,
        date="2026-05-01",
        rounds=8,
        resolves=0.1,
        problem_version="1",
        files=(SettledFile(author="me", file="mine.py", sha256=first.sha256, ratio=1.25),),
        both_judged=True,
    )
    told = board_view.notes(dataclasses.replace(board, settlements=(met,)), first.group, ranking(board, first.group))
    assert plain(told[-1]) == "settled 2026-05-01, 8 rounds, resolves 10.0%: mine.py by me 1.250x"
    console = Console(width=120, file=io.StringIO())
    terminal.show(board_view.document_of(board), console)
    terminal.show(history.document_of([mine]), console)
    undecided = verify.Decision(word="undecided", why="so")
    terminal.show(decision_shown.document_of(first, undecided, [report, report]), console)
    text = printed(console)
    assert "speedup" not in text
    assert " ms" not in text


def test_head_to_head_an_instance_is_run_often_enough_and_the_phase_lasts_as_long(tmp_path: Path) -> None:
    asked = Asked(problem="iopddl", suite="cpu")
    submission = read_submission(find("iopddl", CHECKOUT), program(tmp_path, "print([0])"), CHECKOUT)

    def plan_of(opponent: Submission | None = None, **more: Any) -> ProgramPlan:
        made = setting(dataclasses.replace(asked, **more), CHECKOUT)
        order = Order(setting=made, submission=submission, mode="leaderboard", author="me", opponent=opponent)
        plan = kind_of(made).plan(order)
        assert isinstance(plan, ProgramPlan)
        return plan

    assert set(plan_of().runs.values()) == {1}
    expected_s = {phase.name: phase.case_s for phase in plan_of().phases}
    assert expected_s == {"test": 1.0, "benchmark": 2 * (3 + 4 + 5) / 3}, "known before anything runs"
    assert set(plan_of(submission).runs.values()) == {3}, "an interval takes several"
    assert plan_of(seconds=60.0).phases[1].limit_s > 3 * 60 > plan_of().phases[1].limit_s
    assert plan_of(seconds=60.0, timeout_s=5.0).phases[1].limit_s == 5, "--timeout is kept to"


def test_a_phase_that_is_too_short_for_a_run_times_out_and_blames_nobody(tmp_path: Path) -> None:
    made = setting(Asked(problem="iopddl", suite="quick", timeout_s=0.5), CHECKOUT)
    submission = read_submission(made.problem, program(tmp_path, f"{THRIFTY}print(answer)"), CHECKOUT)
    order = Order(setting=made, submission=submission, mode="test", author="me")
    [result] = evaluate(kind_of(made).plan(order), Progress()).results
    assert isinstance(result.outcome, TimedOut)
    assert "less time left than a run of 1 s may take; --timeout gives more" in result.outcome.message


def test_every_launch_gives_the_solver_a_seed_of_its_own(tmp_path: Path) -> None:
    """`verify` so sees what a solver's luck is worth."""
    text = f"import os\n{THRIFTY}print(answer)\nprint(os.environ['KERNEL_EVAL_SEED'], file=sys.stderr)"
    file = program(tmp_path, text)
    seeds = {evaluated(file).logs["candidate test tiny"] for _ in range(2)}
    assert len(seeds) == 2
    assert all(0 <= int(seed) < 2**31 for seed in seeds)


def test_what_a_failed_solver_printed_is_shown_and_the_advice_is_for_solvers(tmp_path: Path, harness: Any) -> None:
    file = program(tmp_path, "import sys\nprint('only 3 nodes', file=sys.stderr)\nprint('[1, 2, 3]')")
    shown = harness("check", "iopddl", str(file)).stdout
    assert "  the end of its log:\n  | only 3 nodes\n" in shown
    assert "Next: run it by itself on the instance" in shown
    assert "ref_kernel" not in shown


@pytest.mark.parametrize("head", ["", f"#!{sys.executable}\n"])
def test_what_a_solver_prints_names_its_authors_file(tmp_path: Path, head: str) -> None:
    """The copies that run are gone when it is read."""
    file = program(tmp_path, f"{head}import sys\nsys.stderr.write(__file__)\n1 / 0\n")
    report = evaluated(file)
    [log] = report.logs.values()
    assert f'File "{file}", line {3 + bool(head)}, in <module>' in log
    assert "kernel-eval-" not in log
    found = result_of(report)
    assert found.evidence is not None
    assert "ZeroDivisionError" in found.evidence.detail
    assert "what it printed is in evidence.detail" in found.next


def test_an_answer_below_a_proved_bound_is_held(tmp_path: Path, monkeypatch) -> None:
    from harness.kinds.program import run as solver_run

    monkeypatch.setattr(solver_run, "_cost", lambda *_: 7)
    [result] = evaluated(program(tmp_path, f"{THRIFTY}print(answer)")).results
    assert isinstance(result.outcome, Held)
    assert "the answer costs 7, less than the proved bound 178818" in result.outcome.evidence


def test_a_folder_is_built_once_and_its_log_kept(tmp_path: Path) -> None:
    folder = tmp_path / "solver"
    folder.mkdir()
    (folder / "build.sh").write_text(f"#!/bin/sh\necho building {tmp_path}\ncp code.txt submission.py\n")
    (folder / "code.txt").write_text(f"{THRIFTY}print(answer)")
    first, second = evaluated(folder), evaluated(folder)
    assert [verdict.status(one) for one in (first, second)] == ["pass", "pass"]
    assert "build" in first.phases_s
    assert "build" not in second.phases_s
    assert first.logs["build"] == second.logs["build"] == f"building {tmp_path}\n"
    (folder / "build.sh").write_text("#!/bin/sh\necho no >&2\nexit 4\n")
    [failed, *_] = evaluated(folder).results
    assert "does not build: build.sh exited with code 4" in verdict.message(failed.outcome)
    assert "or build: what it printed last is in evidence.detail" in result_of(evaluated(folder)).next


def test_a_build_that_fails_where_the_disk_was_full_before_blames_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "solver"
    folder.mkdir()
    (folder / "build.sh").write_text("#!/bin/sh\necho No space left on device >&2\nexit 1\n")
    (folder / "code.txt").write_text("")
    full = shutil.disk_usage(folder)._replace(free=(1 << 20) - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: full)
    with pytest.raises(HarnessError, match=r"build.sh exited with code 1 where no more than 0 MiB were free.*TMPDIR"):
        evaluated(folder)


def test_a_temporary_folder_where_no_program_runs_is_said_before_one_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python's programs run there all the same."""
    found = os.statvfs(tmp_path)
    noexec = os.statvfs_result((*found[:8], found.f_flag | os.ST_NOEXEC, found.f_namemax))
    monkeypatch.setattr(os, "statvfs", lambda path: noexec)
    assert verdict.status(evaluated(program(tmp_path, f"{THRIFTY}print(answer)"))) == "pass"
    with pytest.raises(UsageError, match=r"is mounted noexec; set TMPDIR"):
        evaluated(program(tmp_path, "#!/bin/sh\necho [0]\n", "mine"))


def test_a_build_that_leaves_a_pipe_is_the_submissions_failure(tmp_path: Path) -> None:
    folder = tmp_path / "solver"
    folder.mkdir()
    (folder / "build.sh").write_text("#!/bin/sh\nmkfifo pipe\ncp code.txt submission.py\n")
    (folder / "code.txt").write_text(f"{THRIFTY}print(answer)")
    [failed, *_] = evaluated(folder).results
    assert "left something that is no readable file, folder or link (pipe)" in verdict.message(failed.outcome)


@pytest.mark.parametrize(
    ("leave", "words"),
    [
        (lambda work: (work / "bin").mkdir(), ""),
        (lambda work: (work / "link").symlink_to("/etc/passwd"), ""),
        (lambda work: os.mkfifo(work / "pipe"), "left something that is no readable file, folder or link (pipe)"),
        (lambda work: os.truncate(os.open(work / "holes", os.O_CREAT | os.O_RDWR), 2 << 30), "or 1 GiB"),
        (lambda work: os.makedirs(work / "/".join("x" * 70)), "left folders more than 64 deep"),
        (lambda work: work.rmdir(), "removed its folder"),
        (lambda work: [work.rmdir(), work.symlink_to("/etc")], "removed its folder"),
    ],
)
def test_what_a_build_leaves_is_looked_at_before_it_is_copied(
    tmp_path: Path, leave: Callable[[Path], object], words: str
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    leave(work)
    assert words in unfit(work)
    assert bool(words) == bool(unfit(work))


def test_nothing_of_another_contest_is_merged_for_gpu_mode(harness: Any) -> None:
    """It was said to lack a custom_kernel."""
    for arguments in (["merge", "iopddl"], ["check", "iopddl", "--for", "gpumode"]):
        found = harness(*arguments)
        assert found.returncode == 2
        assert found.stderr.startswith("error: iopddl is of the IOPDDL contest, so GPU MODE takes no submission for it")
        assert "hand on submissions/iopddl as it is; of a folder, all files with its build.sh" in found.stderr


def test_what_cannot_be_a_program_is_refused(tmp_path: Path) -> None:
    problem = find("iopddl", CHECKOUT)
    with pytest.raises(BadSubmissionError, match="without a first line"):
        read_submission(problem, program(tmp_path, "print(1)", "mine"), CHECKOUT)
    with pytest.raises(BadSubmissionError, match=r"a folder needs a build.sh"):
        read_submission(problem, tmp_path, CHECKOUT)
    with pytest.raises(UsageError, match="no submission"):
        read_submission(problem, tmp_path / "none.py", CHECKOUT)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda folder: (folder / "a.txt").write_text("one\0./b.txt\0two"), "a.txt:1: a NUL character"),
        (lambda folder: (folder / "a.txt").symlink_to("/etc/passwd"), "a.txt is a link that leads out of its folder"),
        (lambda folder: [(folder / f"{at}.txt").write_text("x" * 10**6) for at in range(2)], "more than 1000000 bytes"),
        (lambda folder: (folder / "loop").symlink_to("."), "has nothing beside its build.sh"),
    ],
)
def test_a_folder_that_is_no_submission_is_refused(tmp_path: Path, spoil: Callable[[Path], Any], words: str) -> None:
    """A NUL tells files apart in the sha256; what a link leads to would be shown to whoever sees the folder."""
    (tmp_path / "build.sh").write_text("#!/bin/sh\n")
    spoil(tmp_path)
    with pytest.raises(BadSubmissionError, match=words):
        read_submission(find("iopddl", CHECKOUT), tmp_path, CHECKOUT)


def test_a_folder_with_a_build_is_one_candidate_whose_files_are_none(tmp_path: Path) -> None:
    problem = find("iopddl", CHECKOUT)
    for name in ("a.py", "c/build.sh", "c/main.cpp", "c/gen.py", "d/b.py"):
        path = tmp_path / "all" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("1\n")
    assert [one.id for one in read_all([tmp_path / "all"], problem, CHECKOUT)] == ["a.py", "c", "d/b.py"]
    [alone] = read_all([tmp_path / "all" / "c"], problem, CHECKOUT)
    assert (alone.id, alone.why) == (str(tmp_path / "all" / "c"), None)
    (tmp_path / "all/c/main.cpp").write_bytes(b"\xff")
    [unread] = read_all([tmp_path / "all" / "c"], problem, CHECKOUT)
    assert "not UTF-8" in str(unread.why)


def test_python_that_cannot_be_read_is_no_program(tmp_path: Path) -> None:
    with pytest.raises(BadSubmissionError, match=r"mine.py:1: '\(' was never closed"):
        read_submission(find("iopddl", CHECKOUT), program(tmp_path, "print(x\n"), CHECKOUT)
    assert read_submission(find("iopddl", CHECKOUT), program(tmp_path, "\ufeffprint(1)\n"), CHECKOUT).source
