"""What an evaluation said, in GPU MODE's shapes: what popcorn-cli is sent at its end, and a submission's runs.

Knows the object that `eval --json` writes and the field names of gpu-mode/kernelbot (src/libkernelbot/run_eval.py and
src/kernelbot/api/main.py, read 2026-11). What a submission wrote is passed on as text, cut to KernelBot's length.

Where ours differ: a leaderboard evaluation has the runs `test` and `leaderboard`, without a `benchmark` between them;
every timed call has inputs from a secret seed, so the same run stands for the public and the secret one, and the secret
one has no score of its own.
"""

import base64
import io
import zipfile
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from harness.core.records import Exit, Mode
from harness.core.words import clean
from harness.gpumode import result_lines
from harness.report.export import RUNTIMES
from harness.serve.store import Ended, Row, State

TEXT_CHARS = 16_384  # what KernelBot keeps of what is printed
TRACE_BYTES = 8 << 20  # of a zipped profile that is sent
RAN = (Exit.OK, Exit.INVALID)  # the exit codes that KernelBot counts as a run that came to a verdict
Json = Mapping[str, Any]


def ended(row: Row, found: Json, printed: str, command: str) -> Ended:
    """What the evaluation's JSON object comes to for the submission. `printed` is its report as people read it."""
    code, error = int(found["exit_code"]), found.get("error")
    if error is not None and code != Exit.INVALID:
        state: State = "timed_out" if code == Exit.TIMED_OUT else "failed"
        return Ended(state=state, error=clean(str(error)))
    passed = found["status"] == "pass"
    score_s = found["score_s"] if passed and row.mode == "leaderboard" else None
    results = _results(row.mode, found, command)
    why = None if passed else _why(found)
    full = {"success": True, "error": "", "system": _system(found), "runs": results}
    return Ended(
        state="failed" if found["status"] == "error" and error is None else "succeeded",
        passed=passed,
        score_s=score_s,
        run_id=found["run_id"],
        error=why,
        runs=tuple(_runs(row, results, score_s)),
        result={"status": "success", "results": [full], "reports": [_report(row, found, printed, why)]},
    )


def _results(mode: Mode, found: Json, command: str) -> dict[str, Any]:
    """KernelBot's EvalResult of each phase that ran."""
    cases: Sequence[Json] = found["cases"]
    began = _began(found)
    if not cases:  # it ended before the ranks were started: no such syntax, no custom_kernel
        run = _run(found, [], {"check": "fail"}, command, 0.0)
        return {mode: {"start": began, "end": began, "compilation": None, "run": run, "profile": None}}
    of_kind = {kind: [case for case in cases if case["kind"] == kind] for kind in ("test", "benchmark", "profile")}
    made = {}
    for phase, name in (("test", "test"), ("benchmark", mode), ("profile", "profile")):
        if all(case["status"] == "not_run" for case in of_kind[phase]):
            continue
        start, end = _times(found, phase)
        # KernelBot has a run for each profiled shape
        groups = [[case] for case in of_kind[phase]] if phase == "profile" else [of_kind[phase]]
        for index, group in enumerate(groups):
            run = _run(found, group, _pairs(group), command, (end - start).total_seconds())
            profile = _profile(group[0]) if phase == "profile" else None
            key = f"profile.{index}" if phase == "profile" else name
            made[key] = {"start": _iso(start), "end": _iso(end), "compilation": None, "run": run, "profile": profile}
    return made


def _run(found: Json, cases: Sequence[Json], pairs: dict[str, str], command: str, duration_s: float) -> dict[str, Any]:
    passed = pairs["check"] == "pass"
    code = int(Exit.OK) if passed else int(found["exit_code"])
    logs = {name: text for name, text in found["logs"].items() if name.startswith("candidate")}
    printed = "\n".join(f"{name}:\n{text.rstrip()}" for name, text in logs.items())
    failures = [_failure(case) for case in cases if case["status"] == "fail"]
    return {
        "success": code in RAN,
        "passed": passed,
        "command": command,
        "stdout": _cut(printed),
        "stderr": _cut("\n".join(failures) or str(found.get("error") or "")),
        "exit_code": code,
        "duration": duration_s,
        "result": pairs,
    }


def _pairs(cases: Sequence[Json]) -> dict[str, str]:
    """KernelBot's keys and values, as harness.popcorn writes them."""
    kind = "test" if cases[0]["kind"] == "test" else "benchmark"
    pairs = {f"{kind}-count": str(len(cases))}
    for index, case in enumerate(cases):
        key = f"{kind}.{index}"
        pairs[f"{key}.spec"] = result_lines.spec_of(
            {"world_size": case["world_size"], **case["params"], "seed": case["seed"]}
        )
        if case["status"] != "pass":
            pairs[f"{key}.status"] = "fail"
            pairs[f"{key}.error"] = result_lines.one_line(case["error"] or case["outcome"].replace("_", " "))
        elif case["clocks"]:
            samples_us = case["clocks"].get("gpumode", case["clocks"]["wall"])["samples_us"]
            pairs |= {f"{key}.{name}": str(value) for name, value in result_lines.stats_ns(samples_us).items()}
            pairs[f"{key}.status"] = "pass"
        else:
            pairs[f"{key}.status"] = "pass"
            if case["profile"]:
                pairs[f"{key}.report"] = base64.b64encode(_table(case).encode(), b"+*").decode()
    pairs["check"] = "pass" if all(case["status"] == "pass" for case in cases) else "fail"
    return pairs


def _runs(row: Row, results: Json, score_s: float | None) -> list[dict[str, Any]]:
    """The submission's run items, as `GET /user/submissions/<id>` has them."""
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
                "score": score_s if mode == "leaderboard" else None,
                "passed": run["passed"],
                "result": run["result"],
                "diagnostics": {name: run[name] for name in ("stdout", "stderr", "success", "exit_code", "duration")},
            }
        )
    if made and made[-1]["mode"] == "leaderboard":
        made.append(made[-1] | {"secret": True, "score": None, "result": None, "diagnostics": None})
    return made


def _report(row: Row, found: Json, printed: str, why: str | None) -> str:
    """The report as people read it, under GPU MODE's headline."""
    where = (found.get("environment") or {}).get("machine_class", "this machine")
    lines = [f"**{row.gpu} on {clean(where)}**", f"> {'passed' if why is None else why}", ""]
    return "\n".join([*lines, "```", clean(printed).strip().replace("```", "'''"), "```"])


def _why(found: Json) -> str:
    """The first failure in a line."""
    for kind in ("test", "benchmark", "profile"):
        cases = [case for case in found["cases"] if case["kind"] == kind]
        for index, case in enumerate(cases):
            if case["status"] == "fail":
                return result_lines.one_line(
                    f"{kind} {index + 1} of {len(cases)} failed: {case['error'] or case['outcome']}"
                )
    return result_lines.one_line(str(found.get("error") or "the evaluation ended early"))


def _failure(case: Json) -> str:
    """What a failed case has to say, on several lines."""
    told = [str(case["error"] or case["outcome"])]
    told += [str(case[name]) for name in ("traceback", "log_tail") if case.get(name)]
    told += [str(stack) for stack in case.get("stacks") or ()]
    return clean("\n".join(told))


def _profile(case: Json) -> dict[str, Any]:
    path = Path(case["trace"]) if case.get("trace") else None
    trace = ""
    if path is not None and path.is_file():
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as made:
            made.write(path, path.name)
        if archive.tell() <= TRACE_BYTES:
            trace = base64.b64encode(archive.getvalue()).decode()
    return {"profiler": "torch.profiler", "trace": trace, "download_url": None}


def _table(case: Json) -> str:
    """What took most of the slowest rank's call."""
    slowest = max(case["profile"], key=lambda rank: rank["call_us"])
    lines = [f"rank {slowest['rank']}: {slowest['call_us']:.1f} us under the profiler, by time on its {slowest['of']}:"]
    lines += [
        f"{op['self_us']:12.1f} us  {op['share']:6.1%}  {op['calls']:6}  {op['name'][:120]}" for op in slowest["top"]
    ]
    return clean("\n".join(lines))


def _system(found: Json) -> dict[str, Any]:
    environment = found.get("environment") or {}
    on_gpus = found["device"] in RUNTIMES
    return {
        "gpu": environment.get("machine_class", "") if on_gpus else "",
        "device_count": found["world_size"] if on_gpus else 0,
        "cpu": environment.get("cpu", ""),
        "runtime": RUNTIMES.get(found["device"], ""),
        "platform": environment.get("platform", ""),
        "torch": environment.get("torch", ""),
    }


def _times(found: Json, phase: str) -> tuple[datetime, datetime]:
    """When a phase began and ended; phases_s is in their order."""
    at = datetime.fromisoformat(_began(found))
    for name, seconds in found["phases_s"].items():
        if name == phase:
            return at, at + timedelta(seconds=seconds)
        at += timedelta(seconds=seconds)
    return at, at


def _began(found: Json) -> str:
    return str(found["started_at"] or datetime.fromtimestamp(0).astimezone().isoformat())


def _iso(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds")


def _cut(text: str) -> str:
    cleaned = clean(text)
    if len(cleaned) <= TEXT_CHARS:
        return cleaned
    return f"{cleaned[: TEXT_CHARS - 100]}\n[...] {len(cleaned) - TEXT_CHARS + 100} characters omitted"
