"""What an evaluation said, in GPU MODE's shapes: what popcorn-cli is sent at its end, and a submission's runs.

Knows the files that an evaluation's job leaves, its report and the field names of gpu-mode/kernelbot
(src/libkernelbot/run_eval.py and src/kernelbot/api/main.py, read 2026-11). Texts of a submission are passed on as text,
cut to KernelBot's length.

A leaderboard evaluation has KernelBot's runs `test`, `benchmark` and `leaderboard`, the public and the secret one. The
last three are one evaluation here, since every timed call has inputs from a secret seed: they have the same figures.
"""

import base64
import io
import json
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from harness.board.report_json import from_json
from harness.core import files
from harness.core.decode import decode
from harness.core.errors import Exit
from harness.core.records import CaseResult, EvalReport, Kind, Profile
from harness.core.words import SHOWN_CHARS, clean
from harness.engine.base import ERR, OUT, RESULT, Exited, JobDone, Overdue
from harness.gpumode import result_lines
from harness.judging import verdict
from harness.report.export import RUNTIMES
from harness.serve.store import AttemptEnded, Row, State

TRACE_BYTES = 64 << 20  # of a zipped profile that is sent
DETAILS = "ncu-details.csv"  # what clients take for the figures of a report
RAN = (Exit.OK, Exit.INVALID)  # the exit codes that KernelBot counts as a run that came to a verdict
KINDS: tuple[Kind, ...] = ("test", "benchmark", "profile")  # in the order that they run
Json = dict[str, Any]  # that is sent
TAIL_CHARS = 2000  # of what a job printed that left no result


def of_job(
    row: Row, state: JobDone, fetched: Callable[[], Path], limit_s: Callable[[Row], float], stage: str
) -> AttemptEnded:
    """What the end of the evaluation's job comes to, where that was not cancelled; `stage` is how far it was. Raises
    whatever a result of another form causes, and what `fetched`, for the folder with its files, raises."""
    if not state.has_result and isinstance(state.end, Overdue):
        return AttemptEnded(state="timed_out", error=f"timed out after {limit_s(row):.0f} s, at {stage}")
    folder = fetched()
    if not state.has_result:
        code = f"with exit code {state.end.code} " if isinstance(state.end, Exited) else ""
        tail = clean(files.read_bytes(folder / ERR).decode(errors="replace"))[-TAIL_CHARS:]
        last = tail.strip().splitlines()[-1:] or ["it printed no error"]
        return AttemptEnded(state="failed", error=f"the evaluation ended {code}and without a result: {last[0]}")
    out = folder / OUT
    printed = files.read_bytes(out).decode(errors="replace") if out.exists() else ""
    command = f"python -m harness eval {row.problem} --mode {row.mode}"
    return ended(row, json.loads(files.read_text(folder / RESULT)), printed, command)


def not_run(row: Row, error: Exception) -> AttemptEnded:
    """The end of a submission of which the server cannot say more; told on standard error too."""
    why = f"the server could not run it: {type(error).__name__}: {error}"
    print(f"submission {row.id}: {why}", file=sys.stderr)
    return AttemptEnded(state="failed", error=why)


def ended(row: Row, found: Mapping[str, object], printed: str, command: str) -> AttemptEnded:
    """The end of a submission whose evaluation wrote the JSON object `found`. `printed` is its report as people read
    it. Raises DecodeError where `found` is not what `eval --json` writes."""
    code, error = Exit(decode(int, found.get("exit_code"), "$.exit_code")), found.get("error")
    if error is not None and code != Exit.INVALID:
        state: State = "timed_out" if code == Exit.TIMED_OUT else "failed"
        return AttemptEnded(state=state, error=clean(str(error)))
    if found.get("run_id") is None and error is not None:  # it ended before the ranks started: bad syntax, no kernel
        return _refused(row, code, str(error), printed, command)
    report = from_json(found)
    status = verdict.status(report)
    score = report.figures.score.value if report.figures and row.mode == "leaderboard" else None
    results = _results(row, report, command)
    why = None if status == "pass" else _why(report)
    where = report.environment.machine_class if report.environment else "this machine"
    return AttemptEnded(
        state="succeeded" if status == "pass" else "failed",
        passed=status == "pass",
        score_s=score,
        run_id=report.run_id,
        error=why,
        runs=tuple(_runs(row, results, score)),
        result=_sent(row, _system(report), results, where, printed, why),
    )


def _refused(row: Row, code: Exit, error: str, printed: str, command: str) -> AttemptEnded:
    """The end of a submission that could not be evaluated, which is its own fault."""
    began, now = datetime.fromisoformat(row.started_at or row.submitted_at), datetime.now(UTC)
    is_profile = row.mode == "profile"
    # One profiled case of no shape: KernelBot's report makes a file's name of the spec, and shows the report
    pairs = result_lines.unfinished_pairs(row.mode, ["not run"] if is_profile else [], error)
    run = _run(code, result_lines.values_of(pairs), "", error, command, (now - began).total_seconds())
    key, profile = (f"profile.{row.benchmark or 0}", _profile(None, row.tool)) if is_profile else (row.mode, None)
    results: Json = {key: _of_run(row, began, now, run, profile)}
    nothing = {"gpu": "", "device_count": 0, "cpu": "", "runtime": "", "platform": "", "torch": "", "hostname": ""}
    why = result_lines.one_line(error)
    return AttemptEnded(
        state="failed",
        passed=False,
        error=why,
        runs=tuple(_runs(row, results, None)),
        result=_sent(row, nothing, results, "this machine", printed, why),
    )


def _sent(row: Row, system: Json, results: Json, where: str, printed: str, why: str | None) -> Json:
    full = {"success": True, "error": "", "system": system, "runs": results}
    return {"status": "success", "results": [full], "reports": [_report(row, where, printed, why)]}


def _results(row: Row, report: EvalReport, command: str) -> Json:
    """KernelBot's EvalResult of each phase that ran."""
    made = {}
    for kind in KINDS:
        cases = _of_kind(report, kind)
        if all(verdict.case_status(case) == "not_run" for case in cases):
            continue
        start, end = _times(report, kind)
        # KernelBot has a run for each profiled shape
        groups = [[case] for case in cases] if kind == "profile" else [cases]
        for index, group in enumerate(groups, start=row.benchmark or 0):
            run = _run_of(report, group, command, (end - start).total_seconds())
            profile = _profile(group[0].profile, row.tool) if kind == "profile" else None
            names = [f"profile.{index}" if kind == "profile" else kind]
            if kind == "benchmark" and row.mode == "leaderboard" and run["passed"]:  # after which KernelBot ranks
                names.append(row.mode)
            made.update(dict.fromkeys(names, _of_run(row, start, end, run, profile)))
    return made


def _of_run(row: Row, start: datetime, end: datetime, run: Json, profile: Json | None) -> Json:
    """KernelBot's EvalResult. A vendor's profile succeeds only if it passed: clients show no other reason."""
    success = run["success"] and (run["passed"] or row.tool is None)
    return {
        "start": start.isoformat(timespec="milliseconds"),
        "end": end.isoformat(timespec="milliseconds"),
        "compilation": None,
        "run": run | {"success": success},
        "profile": profile,
    }


def _of_kind(report: EvalReport, kind: Kind) -> list[CaseResult]:
    """The cases of that kind. Drawn ones, which KernelBot does not know, are benchmarks where they failed."""
    failed = [one for one in report.results if one.case.kind == "drawn" and verdict.case_status(one) == "fail"]
    return [one for one in report.results if one.case.kind == kind] + (failed if kind == "benchmark" else [])


def _run_of(report: EvalReport, cases: Sequence[CaseResult], command: str, duration_s: float) -> Json:
    specs = [result_lines.spec_of(result_lines.case_values(one.case)) for one in cases]
    passed = all(verdict.case_status(case) == "pass" for case in cases)
    pairs = result_lines.values_of(result_lines.report_pairs(specs, cases, passed))
    code = Exit.OK if passed else verdict.exit_code(report)
    printed = result_lines.printed(report)
    failures = [clean(result_lines.error_text(case)) for case in cases if verdict.case_status(case) == "fail"]
    return _run(code, pairs, printed, "\n".join(failures), command, duration_s)


def _run(code: Exit, pairs: dict[str, str], printed: str, failures: str, command: str, duration_s: float) -> Json:
    return {
        "success": code in RAN,
        "passed": pairs["check"] == "pass",
        "command": command,
        "stdout": _cut(printed),
        "stderr": _cut(failures),
        "exit_code": int(code),
        "duration": duration_s,
        "result": pairs,
    }


def _runs(row: Row, results: Json, score: float | None) -> list[Json]:
    made = []
    for key, one in results.items():
        run = one["run"]
        mode = key.partition(".")[0]
        made.append(
            {
                "start_time": one["start"],
                "end_time": one["end"],
                "mode": mode,
                "secret": False,
                "runner": row.gpu,
                "score": score if mode == "leaderboard" else None,
                "passed": run["passed"],
                "result": run["result"],
                "diagnostics": {name: run[name] for name in ("stdout", "stderr", "success", "exit_code", "duration")},
            }
        )
    if made and made[-1]["mode"] == "leaderboard":
        made.append(made[-1] | {"secret": True, "result": None, "diagnostics": None})
    return made


def _report(row: Row, where: str, printed: str, why: str | None) -> str:
    """The report as people read it, under GPU MODE's headline."""
    lines = [f"**{row.gpu} on {clean(where)}**", f"> {'passed' if why is None else why}", ""]
    return "\n".join([*lines, "```", clean(printed).strip().replace("```", "'''"), "```"])


def _why(report: EvalReport) -> str:
    for kind in KINDS:
        cases = _of_kind(report, kind)
        for number, case in enumerate(cases, start=1):
            if verdict.case_status(case) == "fail":
                why = verdict.message(case.outcome) or verdict.word(case.outcome)
                return result_lines.one_line(f"{kind} {number} of {len(cases)} failed: {why}")
    return "the evaluation ended early"


def _profile(profile: Profile | None, tool: str | None) -> Json | None:
    """KernelBot's ProfileResult. Of a vendor's tool it has the reports, and where there are none there is no profile:
    clients say so. Of torch's profiler it is always there, since KernelBot's report takes that for granted."""
    if tool is None:
        traces = [profile.trace] if profile and profile.trace else []
        return {"profiler": "torch.profiler", "trace": _zipped(traces), "download_url": None}
    trace = _zipped(profile.reports) if profile else ""
    return {"profiler": "Nsight-Compute", "trace": trace, "download_url": None} if trace else None


def _zipped(paths: Sequence[str]) -> str:
    """An archive of the files that there are, in base64; empty where there is none, or where it is too large."""
    found = [path for path in map(Path, paths) if path.is_file()]
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as made:
        for path in found:
            made.write(path, DETAILS if path.name.endswith(".csv") else path.name)
    return base64.b64encode(archive.getvalue()).decode() if found and archive.tell() <= TRACE_BYTES else ""


def _system(report: EvalReport) -> Json:
    environment = report.environment
    on_gpus = report.device in RUNTIMES
    return {
        "gpu": environment.machine_class if environment and on_gpus else "",
        "device_count": report.world_size if on_gpus else 0,
        "cpu": environment.cpu if environment else "",
        "runtime": RUNTIMES.get(report.device, ""),
        "platform": environment.platform if environment else "",
        "torch": environment.torch if environment else "",
        "hostname": "",  # not to be told over HTTP
    }


def _times(report: EvalReport, phase: str) -> tuple[datetime, datetime]:
    """When a phase began and ended; phases_s is in their order."""
    at = datetime.fromisoformat(report.started_at)
    for name, seconds in report.phases_s.items():
        if name == phase:
            return at, at + timedelta(seconds=seconds)
        at += timedelta(seconds=seconds)
    return at, at


def _cut(text: str) -> str:
    cleaned = clean(text)
    if len(cleaned) <= SHOWN_CHARS:
        return cleaned
    return f"{cleaned[: SHOWN_CHARS - 100]}\n[...] {len(cleaned) - SHOWN_CHARS + 100} characters omitted"
