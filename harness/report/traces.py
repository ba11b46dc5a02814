"""Recorded runs as Trace objects of FlashInfer-Trace, one for each benchmark, or for the test that failed before.

After flashinfer_bench/data/trace.py and validate.py, read 2026-11: `solution` is a Solution's own name, and which of
`correctness` and `performance` an evaluation has is fixed by its status. Errors are those on the published input. Of a
Python file, which has no Solution, the name is the file's.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from harness.core.records import CaseResult, EvalReport, Measured, NotRun, Passed, TimedOut, Wrong
from harness.judging import verdict
from harness.problems.problem import Problem

ERRORS = ("max_relative_error", "max_absolute_error")
OF_SHAPE, OF_DTYPE = "the shape is ", "the dtype is "


def traces(reports: Sequence[EvalReport], problem: Problem) -> Iterator[dict[str, Any]]:
    """The traces of that problem's runs, oldest first; none for a problem that has no workloads."""
    titles = {one.submission.sha256: one.submission.title for one in reports if one.submission.title}
    for report in (one for one in reports if one.problem == problem.name):
        name = titles.get(report.submission.sha256) or Path(report.submission.name).stem  # kept source has no title
        for result in report.results:
            workload = problem.workload(result.case)
            is_told = result.case.kind in ("test", "benchmark") and not isinstance(result.outcome, NotRun | Passed)
            if workload is not None and is_told:
                yield {**workload, "solution": name, "evaluation": _evaluation(report, result)}


def _evaluation(report: EvalReport, result: CaseResult) -> dict[str, Any]:
    environment = report.environment
    libs: dict[str, str | None] = {}
    if environment:
        libs = {"torch": environment.torch, "triton": environment.triton, "kernel-eval": environment.harness}
    found: dict[str, Any] = {
        "status": _status(result),
        "environment": {
            "hardware": report.device_model or (environment.cpu if environment else "") or report.device,
            "libs": {name: version for name, version in libs.items() if version},
        },
        "timestamp": report.started_at,
        "log": verdict.message(result.outcome) or report.printed(result),
        "correctness": None,
        "performance": None,
    }
    if found["status"] in ("PASSED", "INCORRECT_NUMERICAL"):
        found["correctness"] = _errors(result)
    if isinstance(result.outcome, Measured):
        series = result.outcome.ranked
        own_ms, reference_ms = fmean(series.own) / 1000, fmean(series.baseline or series.own) / 1000
        found["performance"] = {
            "latency_ms": own_ms,
            "reference_latency_ms": reference_ms,
            "speedup_factor": reference_ms / own_ms,
        }
    return found


def _status(result: CaseResult) -> str:
    outcome, said = result.outcome, verdict.message(result.outcome)
    if isinstance(outcome, Measured):
        return "PASSED"
    if isinstance(outcome, Wrong):
        return (
            "INCORRECT_SHAPE" if OF_SHAPE in said else "INCORRECT_DTYPE" if OF_DTYPE in said else "INCORRECT_NUMERICAL"
        )
    return "TIMEOUT" if isinstance(outcome, TimedOut) else "RUNTIME_ERROR"


def _errors(result: CaseResult) -> dict[str, Any]:
    """The largest errors, and both verdicts. An error that is not known is "NaN", as their reader has it."""
    verdicts = result.verdicts
    said = (verdicts.gpumode.note or verdicts.gpumode.message) if verdicts else ""
    try:
        known = json.loads(said)
    except ValueError:
        known = {}
    strict = verdicts.strict.passed if verdicts else True
    return {name: known.get(name, "NaN") for name in ERRORS} | {"extra": {"strict": strict}}
