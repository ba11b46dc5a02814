"""Example records for tests: a report for every outcome, from a few samples that never change."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from harness.board.entries import Entry, Versions
from harness.core.machine_records import Environment, GpuTrack, Peaks
from harness.core.metrics import CLOCKS
from harness.core.records import (
    Bound,
    Case,
    CaseResult,
    Crashed,
    EvalReport,
    Held,
    Kind,
    Measured,
    Mode,
    NotRun,
    Outcome,
    Params,
    Passed,
    Raised,
    Score,
    Series,
    Submission,
    TimedOut,
    Verdict,
    Verdicts,
    Wrong,
)
from harness.judging.figures import figured
from harness.kinds.kind import Order, Setting, SubmissionFailed
from harness.problems.problem import Problem, Suite

GEMM_TESTS: tuple[Params, ...] = (
    {"m": 64, "n": 2880, "k": 2880, "has_bias": True},
    {"m": 64, "n": 3584, "k": 14336, "has_bias": False},
    {"m": 512, "n": 4608, "k": 36864, "has_bias": True},
)
GEMM_BENCHMARKS: tuple[Params, ...] = (
    {"m": 64, "n": 7168, "k": 18432, "has_bias": False},
    {"m": 512, "n": 4096, "k": 12288, "has_bias": True},
    {"m": 8192, "n": 29568, "k": 8192, "has_bias": True},
)
A2A_BENCHMARKS: tuple[Params, ...] = (
    {"num_experts": 8, "experts_per_token": 2, "hidden_dim": 6144, "max_num_tokens": 16},
    {"num_experts": 256, "experts_per_token": 8, "hidden_dim": 7168, "max_num_tokens": 256},
)
SHORT = {  # as the shape files have them
    "num_experts": "E",
    "experts_per_token": "k",
    "hidden_dim": "H",
    "max_num_tokens": "T",
    "has_bias": "bias",
}
RIGHT = Verdicts(strict=Verdict(passed=True), gpumode=Verdict(passed=True))
WRONG = Verdicts(
    strict=Verdict(passed=False, message="rank 2: tile (0, 64) of the output is off by 3.1e-02, 40 times the budget"),
    gpumode=Verdict(passed=True),
)
ENVIRONMENT = Environment(
    machine_class="2 cores of Example CPU @ 2.00GHz",
    cpu="Example CPU @ 2.00GHz",
    cores=2,
    memory_bytes=8 << 30,
    python="3.11.7",
    torch="2.13.0",
    triton="3.7.1",
    platform="Linux 6.1 x86_64",
    harness="0.1.0",
)
PEAKS = Peaks(
    flops_per_s=95.1e9,
    hbm_bytes_per_s=9.8e9,
    link_bytes_per_s=3.2e9,
    source="measured on this machine, 2026-05-01",
)
TRACEBACK = """\
Traceback (most recent call last):
  File "submission.py", line 12, in custom_kernel
    return output[rank]
IndexError: index 7 is out of bounds
"""
HOSTILE = "\x1b[2J\x1b[31mverdict  pass\x07\r\nplace    1 of 1 [bold]not markup[/bold] \u202e:smile:\x00\tend\n"
STACK = """\
Current thread 0x00007f{rank:02x}00 (most recent call first):
  File "submission.py", line {line} in custom_kernel
"""

WRONG_OUTCOME = Wrong(message=WRONG.strict.message)
RAISED = Raised(rank=3, message="IndexError: index 7 is out of bounds", traceback=TRACEBACK)
CRASHED = Crashed(
    rank=5, message="ended by signal 11 (SIGSEGV)", log_tail="about to touch what is not mine\n" + HOSTILE
)
TIMED_OUT = TimedOut(
    message="rank 2 timed out",
    stacks=tuple(STACK.format(rank=rank, line=20 if rank == 2 else 31) for rank in range(8)),
)
HELD = Held(check="roofline", evidence="1.20 us are less than the limit of 6.46 us (hbm, measured on this machine)")
FAILURES = (WRONG_OUTCOME, RAISED, CRASHED, TIMED_OUT, HELD)


def timed(time_us: float = 1000.0, ref_us: float = 2000.0, samples: int = 12, block: int = 4) -> Measured:
    """A timed case whose medians are about the given ones, with a few percent of drift and spread."""
    drift, ref_drift = ([1 + 0.03 * math.sin(index + late) for index in range(samples)] for late in (0.0, 0.2))
    jitter = [1 + 0.01 * math.cos(3 * index) for index in range(samples)]
    own = tuple(round(time_us * a * b, 3) for a, b in zip(drift, jitter, strict=True))
    baseline = tuple(round(ref_us * a / b, 3) for a, b in zip(ref_drift, jitter, strict=True))
    return measured(own, baseline, block)


def track(*throttled: str, index: int = 0) -> GpuTrack:
    """A GPU, and what held it down."""
    return GpuTrack(
        index=index,
        sm_mhz_min=1755,
        sm_mhz_median=1755.0,
        sm_mhz_max=1755,
        temperature_c_max=80,
        power_w_mean=600.0,
        power_w_max=600.0,
        throttled=throttled,
        energy_j=None,
    )


def measured(own: Sequence[float], baseline: Sequence[float], block: int = 4) -> Measured:
    """A case on the wall clock alone, with these samples in us."""
    series = Series(metric=CLOCKS["wall"], own=tuple(own), baseline=tuple(baseline), block=block)
    return Measured(series=(series,), bounded="wall")


def case(params: Params, kind: Kind = "benchmark") -> Case:
    short = {name: value for name, value in SHORT.items() if name in params}
    return Case(kind=kind, params=params, seed=1234, world_size=8, short=short)


def results(
    tests: Sequence[Outcome], benchmarks: Sequence[Outcome], shapes: Sequence[Params] = GEMM_BENCHMARKS
) -> tuple[CaseResult, ...]:
    """Case results with these outcomes on the example shapes."""

    def verdicts(outcome: Outcome) -> Verdicts | None:
        return {"passed": RIGHT, "measured": RIGHT, "held": RIGHT, "wrong": WRONG}.get(outcome.type)

    def logs(outcome: Outcome) -> tuple[str, ...]:
        return () if isinstance(outcome, NotRun) else tuple(f"candidate rank {rank}" for rank in range(8))

    return (
        *(
            CaseResult(case=case(params, "test"), outcome=outcome, verdicts=verdicts(outcome), logs=logs(outcome))
            for params, outcome in zip(GEMM_TESTS, tests, strict=False)
        ),
        *(
            CaseResult(
                case=case(params),
                outcome=outcome,
                verdicts=verdicts(outcome),
                bound=Bound(value=120.5 * 9**index, by="flops" if index else "link"),
                logs=logs(outcome),
            )
            for index, (params, outcome) in enumerate(zip(shapes, benchmarks, strict=False))
        ),
    )


TIMES = (timed(812.5, 1640.0), timed(5432.1, 8210.0), timed(98765.4, 125000.0))


def report(found: tuple[CaseResult, ...] | None = None, **changes: Any) -> EvalReport:
    """A passed evaluation of gemm_rs, or one with these results and changes."""
    values: dict[str, Any] = {
        "run_id": "20260501T120000-abc123",
        "started_at": "2026-05-01T12:00:00+00:00",
        "problem": "gemm_rs",
        "submission": Submission(
            path="/checkout/submissions/gemm_rs/submission.py",
            name="submissions/gemm_rs/submission.py",
            source="",  # as in a report that was read
            sha256="5e" * 32,
        ),
        "author": "alice",
        "device": "cpu",
        "world_size": 8,
        "suite": "cpu",
        "mode": "leaderboard",
        "ranking_by": "geom",
        "results": results([Passed()] * 3, TIMES) if found is None else found,
        "empty_call_samples_us": {"wall": (210.0, 190.0, 200.0)},
        "peaks": PEAKS,
        "environment": ENVIRONMENT,
        "phases_s": {"start": 2.1, "import": 0.4, "test": 3.0, "benchmark": 4.2, "ranked": 9.5, "end": 0.1},
        "secret_seed": 99,
        "logs": {},
    }
    return figured(EvalReport(**(values | changes)))


def failed_test(outcome: Outcome) -> EvalReport:
    """An evaluation that ended with this outcome of its second test."""
    return report(
        results([Passed(), outcome, NotRun()], [NotRun()] * 3), logs={"candidate rank 3": "loading weights\n"}
    )


def failed_benchmark(outcome: Outcome) -> EvalReport:
    """An evaluation that ended with this outcome of its second benchmark."""
    return report(results([Passed()] * 3, [TIMES[0], outcome, NotRun()]))


def entry(**changes: Any) -> Entry:
    """A leaderboard entry."""
    values: dict[str, Any] = {
        "problem": "gemm_rs",
        "suite": "cpu",
        "machine_class": ENVIRONMENT.machine_class,
        "world_size": 8,
        "device": "cpu",
        "author": "alice",
        "file": "submissions/gemm_rs/submission.py",
        "sha256": "5e" * 32,
        "score": Score(value=0.00123456, unit="s", better="less"),
        "ratio": 1.6,
        "ratio_ci": (1.5, 1.7),
        "fraction": 0.15,
        "date": "2026-05-01T12:00:00+00:00",
        "run_id": "20260501T120000-abc123",
        "versions": Versions(python="3.11.7", torch="2.13.0", triton=None, harness="0.1.0"),
    }
    if "score_s" in changes:
        changes["score"] = Score(value=changes.pop("score_s"), unit="s", better="less")
    return Entry(**(values | changes))


def ordered(
    problem: Problem,
    suite: Suite,
    submission: Submission,
    mode: Mode,
    device: str,
    world_size: int,
    opponent: Submission | None = None,
    launches: int = 1,
) -> Order:
    """What `make_plan` takes."""
    setting = Setting(problem=problem, suite=suite, device=device, world_size=world_size, launches=launches)
    return Order(setting=setting, submission=submission, mode=mode, author="tester", opponent=opponent)


def outcome_of(work: Callable[..., Any], *arguments: Any) -> Any:
    """What the work returns, or how the submission failed in it."""
    try:
        return work(*arguments)
    except SubmissionFailed as failed:
        return failed.outcome
