"""A report as one JSON object: `--json`, runs/<run id>/report.json, and what the page and exports are made of."""

from collections.abc import Mapping
from typing import Any

from harness.board.places import Place
from harness.core.decode import encode
from harness.core.records import (
    REPORT_SCHEMA,
    CaseResult,
    ClockSamples,
    Crashed,
    EvalReport,
    Exit,
    Raised,
    Timed,
    TimedOut,
    Told,
    Verdicts,
)
from harness.core.stats import Interval, clocks, median, roofline_fraction, speedup, spread
from harness.judging import verdict


def to_json(report: EvalReport, place: Place | None = None) -> dict[str, Any]:
    """The report as `--json` and report.json have it; the figures are null unless every benchmark was timed."""
    figures = verdict.figures(report)
    interval = figures.geomean_speedup.interval if figures else None
    submission = {"path": report.submission.name, "sha256": report.submission.sha256, "author": report.author}
    values = {
        "run_id": report.run_id,
        "started_at": report.started_at,
        "problem": report.problem,
        "submission": submission,
        "device": report.device,
        "world_size": report.world_size,
        "suite": report.suite,
        "mode": report.mode,
        "status": verdict.status(report),
        "exit_code": int(verdict.exit_code(report)),
        "cases": [_case_json(result) for result in report.results],
        "geomean_speedup": figures.geomean_speedup.value if figures else None,
        "geomean_speedup_ci": [interval.low, interval.high] if isinstance(interval, Interval) else None,
        "roofline_fraction": figures.roofline_fraction if figures else None,
        "score_s": figures.score_s if figures else verdict.told_score_s(report),
        "ranking_by": report.ranking_by,
        "place": encode(place),
        "clock": "theirs" if report.gate == "theirs" else "wall",
        "gate": report.gate,
        "empty_call_us": median(wall) if (wall := report.empty_call_samples_us.get("wall")) else None,
        "empty_call_samples_us": {clock: list(samples) for clock, samples in report.empty_call_samples_us.items()},
        "warnings": list(report.warnings),
        "machine_state": list(report.machine_state),
        "gpu_sampling": encode(report.gpu_sampling),
        "environment": encode(report.environment),
        "peaks": encode(report.peaks),
        "phases_s": dict(report.phases_s),
        "secret_seed": report.secret_seed,
        "logs": dict(report.logs),
    }
    return _report_json(values)


def error_json(
    message: str,
    exit_code: Exit,
    *,
    problem: str | None = None,
    path: str | None = None,
    author: str | None = None,
    device: str | None = None,
    world_size: int | None = None,
    suite: str | None = None,
    mode: str | None = None,
) -> dict[str, Any]:
    """The same object for an evaluation that ended before there was a report: what is not known is null."""
    return _report_json(
        {
            "problem": problem,
            "submission": {"path": path, "sha256": None, "author": author},
            "device": device,
            "world_size": world_size,
            "suite": suite,
            "mode": mode,
            "status": "error",
            "exit_code": int(exit_code),
            "error": message,
        }
    )


def _report_json(values: Mapping[str, Any]) -> dict[str, Any]:
    """All keys in their order, with what stands there when it is not known."""
    unknown: dict[str, Any] = {
        "schema": REPORT_SCHEMA,
        "run_id": None,
        "started_at": None,
        "problem": None,
        "submission": None,
        "device": None,
        "world_size": None,
        "suite": None,
        "mode": None,
        "status": None,
        "exit_code": None,
        "error": None,
        "cases": [],
        "geomean_speedup": None,
        "geomean_speedup_ci": None,
        "roofline_fraction": None,
        "score_s": None,
        "ranking_by": None,
        "place": None,
        "clock": "wall",
        "gate": None,
        "empty_call_us": None,
        "empty_call_samples_us": {},
        "machine_state": [],
        "gpu_sampling": None,
        "warnings": [],
        "environment": None,
        "peaks": None,
        "phases_s": {},
        "secret_seed": None,
        "logs": {},
    }
    assert values.keys() <= unknown.keys()
    return unknown | dict(values)


def _case_json(result: CaseResult) -> dict[str, Any]:
    outcome, timed = result.outcome, result.outcome if isinstance(result.outcome, Timed) else None
    return {
        "kind": result.case.kind,
        "params": dict(result.case.params),
        "short": dict(result.case.short),
        "seed": result.case.seed,
        "world_size": result.case.world_size,
        "status": verdict.case_status(result),
        "outcome": outcome.type,
        "error": verdict.message(outcome) or None,
        "verdicts": {name: _verdict_word(result.verdicts, name) for name in ("strict", "gpumode")},
        "verdict_messages": {name: _verdict_message(result.verdicts, name) for name in ("strict", "gpumode")},
        "samples_us": list(timed.samples_us) if timed else [],
        "ref_samples_us": list(timed.ref_samples_us) if timed else [],
        "block": timed.block if timed else None,
        "clocks": {one.clock: _clock_json(one) for one in clocks(timed)} if timed else {},
        "rank_ends_us": list(timed.rank_ends_us) if timed else [],
        "ref_us": median(timed.ref_samples_us) if timed else None,
        "time_us": median(timed.samples_us) if timed else outcome.mean_us if isinstance(outcome, Told) else None,
        "told": encode(outcome) if isinstance(outcome, Told) else None,
        "spread": spread(timed.samples_us) if timed else None,
        "speedup": speedup(timed) if timed else None,
        "bound_us": result.bound_us,
        "bound_by": result.bound_by,
        "published_us": result.case.published_us,
        "roofline_fraction": roofline_fraction(timed, result.bound_us) if timed and result.bound_us else None,
        "rank": outcome.rank if isinstance(outcome, Raised | Crashed) else None,
        "traceback": outcome.traceback if isinstance(outcome, Raised) else None,
        "stacks": list(outcome.stacks) if isinstance(outcome, TimedOut) else None,
        "log_tail": outcome.log_tail if isinstance(outcome, Crashed) else None,
        "trace": result.profile.trace if result.profile else None,
        "profile": encode(result.profile.ranks) if result.profile else [],
    }


def _clock_json(one: ClockSamples) -> dict[str, Any]:
    return {
        "ref_us": median(one.ref_samples_us),
        "time_us": median(one.samples_us),
        "speedup": speedup(one),
        "spread": spread(one.samples_us),
        "samples_us": list(one.samples_us),
        "ref_samples_us": list(one.ref_samples_us),
        "rank_us": list(one.rank_us),
        "ref_rank_us": list(one.ref_rank_us),
    }


def _verdict_word(verdicts: Verdicts | None, name: str) -> str | None:
    return None if verdicts is None else "pass" if getattr(verdicts, name).passed else "fail"


def _verdict_message(verdicts: Verdicts | None, name: str) -> str | None:
    return None if verdicts is None else str(getattr(verdicts, name).message) or None
