"""The hostile corpus: what a submission tries is caught and named, or comes to nothing; honest ones are ranked.

tests/hostile/ holds ordinary submission files. A docstring says what each one tries, and then, a line each:

    expect: OUTCOME [CHECK]: PATTERN    how the evaluation ends, for `held` the check, and what its message says; both
                                        sides are regular expressions
    expect: harmless                    it is right, whatever else it does; nobody gains and nothing is left
    expect: error: PATTERN              nothing can be said of it, and the harness says why
    expect: no gain|...                 it runs the reference, and is not shown faster (or ends as named behind the |)
    expect: slower on drawn shapes      it is right, and shown much slower on shapes that the run drew
    expect: ranked                      an honest control: right, timed, ranked
    devices: cpu                        or gpu; where there is no such line it is tried on both; apart: it would disturb
                                        all evaluations of this user, and test_opponents has it with a limit of its own
    problem: a2a                        a2a where there is no such line; or a problem folder's path, iopddl or
                                        llama_pretrain, which run as the command line has them;
                                        solvers on one core, with 0.5 GiB
    mode: test                          test where there is no such line
    drawn: 1                            so many shapes are drawn near the benchmarks; none where there is no such line
    gpus: 2                             on GPUs it takes so many; 1 where there is no such line
    limit: 3                            a phase's time limit in seconds; 30 where there is no such line

`honest_*` are unusual but legitimate, `wrong_*` merely wrong. A new cheat is a new file.
"""

import dataclasses
import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from factories import timed
from places import HOSTILE

from harness.core.checkout import ROOT, Checkout
from harness.core.errors import HarnessError
from harness.core.machine_records import Peaks
from harness.core.records import Bound, EvalReport, Held, Mode
from harness.evaluation.evaluate import evaluate
from harness.judging import verdict
from harness.kinds.kind import Order, Progress
from harness.kinds.op import peaks as op_peaks
from harness.kinds.op.kind import OpSession
from harness.kinds.op.measure import CaseMeasurement
from harness.kinds.program.build import ProgramPlan
from harness.kinds.registry import kind_of, read_submission
from harness.kinds.settings import Asked, setting
from harness.machine.host import gpus
from harness.process import cgroup, sandbox
from harness.report.summary import drawn_text

CHECKOUT = Checkout(ROOT)
SOLVERS_BYTES = 512 << 20
OF_KINDS = {"iopddl": None, "llama_pretrain": 2}  # ranks of each
# Solvers that a cgroup has a part in holding, where there is one, and an honest one.
OF_CGROUPS = ("honest_solver", "solver_all_cores", "solver_ends_its_launcher", "solver_files_of_memory",
              "solver_many_processes")  # fmt: skip
# What they try others try too, at the same wall or, like two of them, of what nothing on CPU cores can tell.
LIKE_OTHERS = (
    "break_its_judge_when_run_again",  # tests/evaluation/test_verify.py has it, with the launches that it is about
    "clock_four_fifths",  # may be ranked; clock_a_quarter.py
    "edit_the_home",  # edit_shared_temporary_files.py
    "edit_the_runs",  # edit_the_leaderboard.py
    "secret_in_a_trusted_ranks_maps",  # secret_in_a_trusted_ranks_files.py
    "silent_behind_a_flag",
    "silent_but_in_delayed_calls",
)
NEEDS_ABI = {"edit": 1, "secret": 1, "kill": 6, "stop": 6}  # of Landlock; where it has less, they would do it
NEED_NAMESPACES = ("phone_home", "talk_to_the_host", "fill_dev_shm", "copy", "count")
SLOWER_DRAWN = 2.0  # times, at least, of one that waits there
HONEST_S, TRIED_S = 0.1, 0.5  # to time each shape of a file that is to be ranked, whatever its figure, and of others
MOST_WITHOUT_GAIN = 2.0  # times the reference, in a short run on a busy machine; they claim 2.7 and more


@dataclass(frozen=True)
class Hostile:
    """One file, and what its docstring says."""

    name: str
    source: str
    expect: str
    devices: str
    problem: str
    mode: Mode
    gpus: int
    drawn: int
    limit_s: float


def read(path: Path) -> Hostile:
    source = path.read_text()
    told = dict(
        re.findall(r"^(expect|devices|problem|mode|gpus|drawn|limit): (.*)$", source.split('"""')[1], re.MULTILINE)
    )
    return Hostile(
        path.stem,
        source,
        told["expect"],
        told.get("devices", ""),
        told.get("problem", "a2a"),
        told.get("mode", "test"),
        int(told.get("gpus", "1")),
        int(told.get("drawn", "0")),
        float(told.get("limit", "30")),
    )


CORPUS = [read(path) for path in sorted(HOSTILE.glob("*.py"))]


def tried_on(device: str) -> list[Hostile]:
    return [hostile for hostile in CORPUS if hostile.devices in ("", device)]


def left_out(hostile: Hostile) -> list[pytest.MarkDecorator]:
    """Training to a target takes more than ten seconds, and so do files that burn all cores, but for one of them, and
    launches of the reference alone that are made again."""
    burns = hostile.name.startswith("burn") and hostile.name != "burn_beside_the_reference"
    is_long = burns or hostile.problem == "llama_pretrain" or hostile.name == "timers_in_its_first_launch"
    return [pytest.mark.slow] if is_long or hostile.name in LIKE_OTHERS else []


@pytest.mark.parametrize(
    "hostile", [pytest.param(each, id=each.name, marks=left_out(each)) for each in tried_on("cpu")]
)
def test_a_submission_ends_as_its_docstring_says(hostile: Hostile, ends: Callable[[Hostile, str], None]) -> None:
    ends(hostile, "cpu")


@pytest.mark.parametrize(
    "hostile",
    [pytest.param(each, id=each.name, marks=pytest.mark.gpu(each.gpus)) for each in tried_on("gpu")],
)
def test_so_it_ends_on_gpus(hostile: Hostile, ends: Callable[[Hostile, str], None]) -> None:
    ends(hostile, gpus().device)


@pytest.mark.parametrize(
    "hostile",
    [
        pytest.param(each, id=each.name, marks=[] if each.name in OF_CGROUPS else pytest.mark.slow)
        for each in CORPUS
        if each.problem == "iopddl"
    ],
)
def test_so_solvers_end_where_no_cgroup_can_be_made(
    hostile: Hostile, ends: Callable[[Hostile, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroup, "make", lambda most: cgroup.Cgroup())
    ends(hostile, "cpu")


def ended(report: EvalReport) -> tuple[str, str]:
    """How, as docstrings have it ("right" for harmless and ranked), and what its message says."""
    failed = verdict.first_failure(report)
    if failed is None:
        return "right", "it passed"
    if isinstance(failed.outcome, Held):
        return f"held {failed.outcome.check}", failed.outcome.evidence
    return failed.outcome.type, failed.outcome.message


def gains(report: EvalReport) -> bool:
    """Whether it is shown faster than the reference, which it runs."""
    return report.figures is not None and report.figures.ratio.value >= MOST_WITHOUT_GAIN


def ends_as_told(hostile: Hostile, run: Callable[[], EvalReport]) -> None:
    """Fails where the evaluation does not end as the submission's docstring says."""
    kind, _, pattern = hostile.expect.partition(":")
    try:
        report = run()
        if "no gain" in kind and gains(report):
            report = run()  # a gain that is not chance comes twice
        named, told = ended(report)
        assert (report.figures is not None) == (named == "right" and hostile.mode != "test")
        if report.figures is not None and "no gain" in kind:
            named = "gain" if gains(report) else "no gain"
        if report.figures is not None and "drawn" in kind:
            assert re.search("published shapes .*x, drawn shapes .*x: .*x at M", drawn_text(report))
            drawn, near_drawn = report.figures.drawn, report.figures.near_drawn
            named = (
                "slower on drawn shapes"
                if drawn * SLOWER_DRAWN < near_drawn
                else f"no slower: {drawn} and {near_drawn}"
            )
    except HarnessError as error:
        named, told = "error", str(error)
    assert re.fullmatch(re.sub("harmless|ranked", "right", kind), named), told
    assert named in ("right", "no gain", "slower on drawn shapes") or re.search(pattern.strip(), told), told


def evaluated_by_kind(file: Path, _: str, problem: str, mode: Mode, **others: object) -> EvalReport:
    """An evaluation on CPU cores, as the command line plans it."""
    made = setting(Asked(problem=problem, suite="quick", device="cpu", ranks=OF_KINDS[problem]), CHECKOUT)
    suite = dataclasses.replace(made.suite, benchmarks=made.suite.benchmarks[:1])
    made = dataclasses.replace(made, suite=suite)
    order = Order(setting=made, submission=read_submission(made.problem, file, CHECKOUT), mode=mode, author="tester")
    plan = kind_of(made).plan(order)
    if isinstance(plan, ProgramPlan):
        plan = dataclasses.replace(plan, cores=plan.cores[:1], memory_bytes=SOLVERS_BYTES)
    return evaluate(plan, Progress())


@pytest.fixture
def ends(evaluated: Callable[..., EvalReport], monkeypatch: pytest.MonkeyPatch) -> Callable[[Hostile, str], None]:
    """Fails where a submission does not end as its docstring says, on that device. It leaves no process, no file and
    no shared memory behind, which `evaluated` sees to."""
    monkeypatch.setenv("A_TOKEN", "to be found")
    monkeypatch.setenv("NVIDIA_API_KEY", "to be found")

    def check(hostile: Hostile, device: str) -> None:
        if sandbox.landlock_abi() < NEEDS_ABI.get(hostile.name.partition("_")[0], 0):
            pytest.skip("this kernel has no Landlock that stops it; every report says so")
        if hostile.name.startswith(NEED_NAMESPACES) and not sandbox.has_namespaces():
            pytest.skip("no namespaces are permitted here; every report says so")
        run = (
            functools.partial(evaluated_by_kind, HOSTILE / f"{hostile.name}.py")
            if hostile.problem in OF_KINDS
            else evaluated
        )
        ends_as_told(
            hostile,
            lambda: run(
                hostile.source,
                hostile.problem,
                mode=hostile.mode,
                timeout_s=hostile.limit_s,
                device=device,
                benchmarks=1 if hostile.expect != "ranked" else None,  # what is done to the clock is done in each
                benchmark_s=HONEST_S if hostile.expect == "ranked" else TRIED_S,
                controls=hostile.name.startswith("timers"),
                drawn=hostile.drawn,
            ),
        )

    return check


def test_peaks_are_measured_before_a_submission_is_imported(
    evaluated: Callable[..., EvalReport], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are kept for everybody. This submission does not survive its import."""
    measured = []
    peaks = Peaks(flops_per_s=1e12, hbm_bytes_per_s=1e11, link_bytes_per_s=1e10, source="a test")
    monkeypatch.setattr(op_peaks, "known", lambda *_: None)
    monkeypatch.setattr(op_peaks, "measured", lambda calls, *_: measured.append(calls) or peaks)
    report = evaluated("raise RuntimeError('imported')")
    assert ended(report)[0] == "raised"
    assert len(measured) == 1


def test_what_seems_beyond_this_machine_is_held_against_peaks_measured_once_more(
    evaluated: Callable[..., EvalReport], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that were kept may be of a busy moment. What is beyond the new ones too stays held."""
    low = Peaks(flops_per_s=1e3, hbm_bytes_per_s=1e3, link_bytes_per_s=1e3, source="a busy moment")
    high = Peaks(flops_per_s=1e15, hbm_bytes_per_s=1e15, link_bytes_per_s=1e15, source="a quiet one")
    honest = "from reference import ref_kernel as custom_kernel\n"
    for found, ends_as in ((high, "right"), (low, "held roofline")):
        measured = []
        monkeypatch.setattr(op_peaks, "known", lambda *_: low)
        monkeypatch.setattr(op_peaks, "measured", lambda *_, found=found, to=measured: to.append(found) or found)
        report = evaluated(honest, mode="benchmark", benchmarks=2)
        assert ended(report)[0].startswith(ends_as), ended(report)
        assert len(measured) == 1


def test_a_reference_beyond_the_limit_has_the_peaks_measured_again(
    evaluated: Callable[..., EvalReport], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, though two shapes show it. The submission, which takes longer than the limit, is not held."""
    peaks = Peaks(flops_per_s=1e15, hbm_bytes_per_s=1e15, link_bytes_per_s=1e15, source="a test")
    measured: list[Peaks] = []
    monkeypatch.setattr(op_peaks, "known", lambda *_: peaks)
    monkeypatch.setattr(op_peaks, "measured", lambda *_: measured.append(peaks) or peaks)
    monkeypatch.setattr(OpSession, "bound", lambda *_: Bound(value=1500.0, by="hbm"))
    for time_us, ref_us, again in ((2000.0, 1000.0, 1), (2000.0, 1600.0, 0)):
        measured.clear()
        outcome = timed(time_us, ref_us)
        monkeypatch.setattr(CaseMeasurement, "measured", lambda *_, outcome=outcome: outcome)
        report = evaluated("from reference import ref_kernel as custom_kernel\n", mode="benchmark", benchmarks=2)
        assert ended(report)[0] == "right"
        assert len(measured) == again


def test_the_corpus_is_large_enough_and_has_its_controls() -> None:
    assert {*LIKE_OTHERS, *OF_CGROUPS} <= {hostile.name for hostile in CORPUS}
    kinds = [hostile.name.partition("_")[0] for hostile in CORPUS]
    assert len(kinds) - kinds.count("honest") - kinds.count("wrong") >= 40
    assert kinds.count("honest") >= 8
    assert kinds.count("wrong") >= 5
    assert all(hostile.expect == "ranked" for hostile in CORPUS if hostile.name.startswith("honest"))
    assert all(hostile.expect.startswith("wrong") for hostile in CORPUS if hostile.name.startswith("wrong"))
