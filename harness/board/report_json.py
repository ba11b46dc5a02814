"""A report as one JSON object, written and read back: `--json`, and runs/<run id>/report.json.

The one place that knows the file's format. Schema 2 is the record EvalReport itself, with what a reader would have to
work out otherwise beside it (status, exit code, every case's label and error). A file of schema 1 is brought to that
form before it is decoded. A report is somebody's file: texts in it are as untrusted as the submission they speak of.
"""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from harness.board.places import Place
from harness.core.decode import DecodeError, decode, encode
from harness.core.errors import Exit
from harness.core.metrics import CLOCKS, THEIRS
from harness.core.records import REPORT_SCHEMA, CaseResult, EvalReport, Profile, Warning
from harness.core.stats import block
from harness.judging import verdict
from harness.judging.figures import figured
from harness.judging.warnings import text_of

Json = dict[str, Any]


# ---- written ---------------------------------------------------------------------------------------------------------
def to_json(report: EvalReport, place: Place | None = None) -> Json:
    """The report as `--json` and report.json have it. `figures` is null unless every case was measured. The
    submission's source is not in it: runs/ keeps that beside the report."""
    values: Json = encode(report)
    submission, title = report.submission, report.submission.title
    values["submission"] = {"path": submission.name, "sha256": submission.sha256} | ({"title": title} if title else {})
    values["cases"] = [_case_json(result) for result in report.results]
    values["warnings"] = [encode(one) | {"text": text_of(one)} for one in report.warnings]
    del values["results"]
    status = {"status": verdict.status(report), "exit_code": int(verdict.exit_code(report)), "error": None}
    return {"schema": REPORT_SCHEMA} | status | values | {"place": encode(place)}


def _case_json(result: CaseResult) -> Json:
    profile = result.profile
    return {
        **encode(result.case),
        "label": result.case.title,
        "status": verdict.case_status(result),
        "error": verdict.message(result.outcome) or None,
        **{name: encode(getattr(result, name)) for name in ("outcome", "verdicts", "bound", "figures", "logs")},
        "profile": _profile(profile) if profile else None,
    }


def error_json(message: str, exit_code: Exit) -> Json:
    """The JSON of an evaluation that ended before there was a report: the same keys, and null for what is not known."""
    unknown: Json = {field.name: None for field in dataclasses.fields(EvalReport) if field.name != "results"}
    begun = {"schema": REPORT_SCHEMA, "status": "error", "exit_code": int(exit_code), "error": message}
    empty: Json = {"submission": {"path": None, "sha256": None}, "warnings": [], "logs": {}, "phases_s": {}}
    return begun | unknown | empty | {"cases": [], "place": None}


# ---- read back -------------------------------------------------------------------------------------------------------
def from_json(found: object) -> EvalReport:
    """The report in such an object. Its submission has no source. Raises DecodeError with the place of a mistake; keys
    that are not known are passed over, since a report gains keys without a new schema."""
    schema = found.get("schema") if isinstance(found, Mapping) else None
    if not isinstance(found, Mapping) or schema not in (1, REPORT_SCHEMA):
        newer = isinstance(schema, int) and schema > REPORT_SCHEMA
        hint = "it was written by a newer harness: update the checkout" if newer else "is it another harness's?"
        raise DecodeError("$.schema", f"expected 1 or {REPORT_SCHEMA}, found {schema!r}; {hint}")
    values = _of_schema_1(found) if schema == 1 else dict(found)
    values["submission"] = _submission(values.get("submission"))
    values["warnings"] = [_warning(one) for one in _list(values, "warnings")]
    cases = _list(values, "cases")
    report = decode(EvalReport, values | {"results": []}, strict=False)
    _check_date(report.started_at)
    form = _case_1 if schema == 1 else _case
    results = tuple(_result(form, one, report.device, f"$.cases[{index}]") for index, one in enumerate(cases))
    if not any(isinstance(one, Mapping) and "logs" in one for one in cases):  # from before 2026-11-24
        names = tuple(f"candidate rank {rank}" for rank in range(report.world_size))
        results = tuple(replace(result, logs=names) for result in results)
    report = replace(report, results=results)
    return figured(report) if schema == 1 else report


def _check_date(text: str) -> None:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        raise DecodeError("$.started_at", f"expected a date and time, found {text!r}") from None


def _result(form: Callable[[object, str], object], value: object, device: str, path: str) -> CaseResult:
    """The decoded case. In the file its own fields lie beside its outcome, and messages name them there."""
    try:
        return decode(CaseResult, form(value, device), path, strict=False)
    except DecodeError as error:
        place = path + error.path if error.path.startswith(".") else error.path.replace(f"{path}.case", path, 1)
        raise DecodeError(place, error.problem) from None


def _profile(profile: Profile) -> Json:
    """The profile without what is in files of its own."""
    names = ("ranks", "trace", "tool", "kernels", "reports", "text")
    return {name: encode(getattr(profile, name)) for name in names}


def _warning(value: object) -> object:
    """The warning. One that this harness does not know keeps the text that it was shown with."""
    if not isinstance(value, Mapping):
        return value
    try:
        text_of(decode(Warning, value, strict=False))
    except (KeyError, ValueError):
        return {"code": "said", "values": {"text": value.get("text")}}
    return value


def _submission(value: object) -> object:
    """The submission without its source."""
    if not isinstance(value, Mapping):
        return value
    path, title = value.get("path"), value.get("title", "")
    return {"path": path, "name": path, "source": "", "sha256": value.get("sha256"), "modules": [], "title": title}


def _case(value: object, device: str) -> object:
    """The CaseResult: the case's own fields in a record of their own."""
    if not isinstance(value, Mapping):
        return value
    profile = value.get("profile")
    return {
        **value,
        "case": value,
        "profile": {"trace_json": "", **profile} if isinstance(profile, Mapping) else profile,
    }


def _list(values: Mapping[str, Any], name: str) -> list[object]:
    """The list under that key, which must be there. Raises DecodeError."""
    if name not in values:
        raise DecodeError("$", f"the key '{name}' is missing")
    if not isinstance(values[name], list):
        raise DecodeError(f"$.{name}", f"expected a list, found {values[name]!r}")
    return list(values[name])


def _mapping(value: object) -> Mapping[str, Any]:
    """The mapping, or an empty one in place of anything else, of which decode then misses the keys."""
    return value if isinstance(value, Mapping) else {}


# ---- schema 1 --------------------------------------------------------------------------------------------------------
def _of_schema_1(found: Mapping[str, Any]) -> Json:
    """A report of schema 1, which knew clocks and texts only, as one of schema 2 without figures."""
    values = dict(found)
    submission = values.get("submission")
    if isinstance(submission, Mapping):
        values["author"] = submission.get("author")
    values["checker"] = values.pop("gate", "strict")
    values.setdefault("secret_seed", 0)
    values["ranking_by"] = values.get("ranking_by") or "geom"
    values["warnings"] = [
        {"code": "said", "values": {"text": text}, "text": text} for text in _list_1(values, "warnings")
    ]
    values["machine_state"] = [_machine_state(line) for line in _list_1(values, "machine_state")]
    values["device_model"] = _model(values)
    if isinstance(values.get("environment"), Mapping):
        empty = {"cpu": "", "cores": 0, "memory_bytes": 0, "platform": "", "harness": ""}
        values["environment"] = empty | dict(values["environment"])
    values.pop("figures", None)
    return values


def _list_1(values: Mapping[str, Any], name: str) -> list[object]:
    """The list under that key; empty in reports that are older than it."""
    return _list({name: []} | dict(values), name)


def _model(values: Mapping[str, Any]) -> str:
    """The device's model name: schema 1 had it only in the machine's class, `4x NVIDIA H200`."""
    machine_class = _mapping(values.get("environment")).get("machine_class")
    is_known = isinstance(machine_class, str) and values.get("device") != "cpu"
    return str(machine_class).partition("x ")[2] if is_known else ""


def _machine_state(line: object) -> object:
    if not isinstance(line, str) or line.count(": ") < 2:
        return line
    status, check, text = line.split(": ", 2)
    return {"status": status, "check": check, "found": text}


def _case_1(value: object, device: str) -> object:
    if not isinstance(value, Mapping):
        return value
    bound_us, verdicts = value.get("bound_us"), value.get("verdicts")
    names = ("kind", "params", "seed", "world_size", "published_us", "short")
    messages = _mapping(value.get("verdict_messages"))
    return {
        "case": {"seed": 0} | {name: value[name] for name in names if name in value},
        "outcome": _outcome_1(value, device),
        "verdicts": {
            name: {"passed": verdicts.get(name) == "pass", "message": messages.get(name) or ""}
            for name in ("strict", "gpumode")
        }
        if isinstance(verdicts, Mapping) and verdicts.get("strict")
        else None,
        "bound": {"value": bound_us, "by": value.get("bound_by")} if bound_us is not None else None,
        "profile": {"ranks": value["profile"], "trace": value.get("trace"), "trace_json": ""}
        if value.get("profile")
        else None,
    }


def _outcome_1(value: Mapping[str, Any], device: str) -> Json:
    kind, error = value.get("outcome"), value.get("error")
    error = error if isinstance(error, str) else ""
    check, _, evidence = error.partition(": ")
    if kind == "timed":
        return _timed_1(value, device)
    if kind == "told" and isinstance(value.get("told"), Mapping):
        told = {name.removesuffix("_us"): item for name, item in value["told"].items() if name != "type"}
        return {"type": "measured", "series": [{"metric": encode(THEIRS), "own": [], "summary": told}]}
    more: Mapping[str, Json] = {
        "wrong": {"message": error},
        "raised": {"rank": value.get("rank"), "message": error, "traceback": value.get("traceback") or ""},
        "crashed": {"rank": value.get("rank"), "message": error, "log_tail": value.get("log_tail") or ""},
        "timed_out": {"message": error, "stacks": value.get("stacks") or []},
        "held": {"check": check, "evidence": evidence},
    }
    return {"type": kind} | more.get(str(kind), {})


def _timed_1(value: Mapping[str, Any], device: str) -> Json:
    clocks = {name: _mapping(one) for name, one in _mapping(value.get("clocks")).items()}
    size = value.get("block") or block(device)
    if "wall" not in clocks:  # which ranks
        raise DecodeError(".clocks", "the key 'wall' is missing")
    names = ["wall", *(name for name in clocks if name != "wall")]
    series = [
        {
            "metric": encode(CLOCKS[name]) if name in CLOCKS else {"name": name, "unit": "us", "better": "less"},
            "own": clocks[name].get("samples_us"),
            "baseline": clocks[name].get("ref_samples_us"),
            "block": size,
            "own_ranks": clocks[name].get("rank_us") or [],
            "baseline_ranks": clocks[name].get("ref_rank_us") or [],
        }
        for name in names
    ]
    bounded = "device" if "device" in clocks else "wall"
    return {"type": "measured", "series": series, "bounded": bounded, "rank_ends_us": value.get("rank_ends_us") or []}
