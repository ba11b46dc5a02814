"""KernelBot's text formats: the cases file, and the result lines `key: value` of POPCORN_FD, written and read."""

import base64
import contextlib
import fcntl
import math
import os
import re
import select
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from harness.core import records
from harness.core.decode import DecodeError
from harness.core.errors import HarnessError
from harness.core.records import Case, CaseResult, EvalReport, Kind, Mode, Param, Profile
from harness.core.stats import times_of
from harness.core.words import clean, cut
from harness.judging import verdict

PIPE_BYTES = 1 << 20  # what Linux lets an ordinary user ask for (fs.pipe-max-size)
PAGE_BYTES = 4096  # a pipe is filled by pages; one is left free
TEXTS = ("error", "message")  # the keys whose values may be shortened to fit
SHORTEST_CHARS = 64
FLOAT = r"[+-]?[0-9]{1,40}(?:\.[0-9]{0,40}(?:[eE][+-]?[0-9]{1,3})?|[eE][+-]?[0-9]{1,3})"
REPORT_CHARS = 2000  # of a failure that stands in place of a profile: reports are not shortened to fit
STALL_S = 10.0  # with nobody reading
Pairs = list[tuple[str, str]]


@dataclass(frozen=True, kw_only=True)
class CaseLine:
    """One case as it stands in the file: `spec` is the line, `number` the line's number from 1."""

    number: int
    spec: str
    values: dict[str, int | float | str]


# ---- what comes in -----------------------------------------------------------------------------------------------
def parse_cases(text: str) -> list[CaseLine]:
    """The lines `key: value; key: value` of a cases file; values are numbers or words.

    Raises DecodeError (`line 3: ...`) for any other line, and for a file without cases: a run that tested nothing must
    not pass.
    """
    lines = []
    for number, spec in enumerate(text.splitlines(), start=1):
        values: dict[str, int | float | str] = {}
        for part in spec.split(";"):
            key, colon, value = (piece.strip() for piece in part.partition(":"))
            if (
                not colon
                or not re.fullmatch("[a-zA-Z_]+", key)
                or not re.fullmatch(f"[a-zA-Z]+|[+-]?[0-9]{{1,40}}|{FLOAT}", value)
            ):
                raise DecodeError(f"line {number}", f"expected `key: value; key: value`, found {part.strip()!r}")
            if key in values:
                raise DecodeError(f"line {number}", f"the key '{key}' appears twice; remove one")
            values[key] = value if value.isalpha() else float(value) if re.fullmatch(FLOAT, value) else int(value)
        lines.append(CaseLine(number=number, spec=spec, values=values))
    if not lines:
        raise DecodeError("line 1", "the file has no case")
    return lines


def combined_seed(seed: int, secret: int) -> int:
    """Combines a case's published seed and the runner's secret by Cantor's pairing: a + (a + s)(a + s + 1) / 2.

    Anchors: (0, 0) 0, (1, 2) 7, (1234, 0) 763229.
    """
    return seed + (seed + secret) * (seed + secret + 1) // 2


# ---- what goes out -----------------------------------------------------------------------------------------------
def report_pairs(specs: Sequence[str], results: Sequence[CaseResult], passed: bool) -> Pairs:
    """One run's results under KernelBot's keys, all cases', with `check` last."""
    pairs = [(f"{key_of(results[0].case.kind)}-count", str(len(specs)))]
    for index, (spec, result) in enumerate(zip(specs, results, strict=True)):
        pairs += case_pairs(index, spec, result)
    return [*pairs, check_pair(passed)]


def case_pairs(index: int, spec: str, result: CaseResult) -> Pairs:
    """The lines of the case of this number among its kind: its spec, then its outcome."""
    key = f"{key_of(result.case.kind)}.{index}"
    return [(f"{key}.spec", spec), *((f"{key}.{name}", value) for name, value in _outcome_pairs(result))]


def check_pair(passed: bool) -> tuple[str, str]:
    return "check", "pass" if passed else "fail"


def unfinished_pairs(mode: Mode, specs: Sequence[str], message: str) -> Pairs:
    """The results of an evaluation that made no report: every case failed, and the first says why."""
    key = key_of(mode)
    pairs = [(f"{key}-count", str(len(specs)))] if specs else []
    for index, spec in enumerate(specs):
        why = "not run, as case 0 says" if index else message
        failed = failed_pairs(why, is_profile=mode == "profile")
        pairs += [(f"{key}.{index}.spec", spec), *((f"{key}.{index}.{name}", value) for name, value in failed)]
    return [*pairs, ("error", message), check_pair(False)]


def values_of(pairs: Pairs) -> dict[str, str]:
    """The lines by their keys, as KernelBot's runner would read them."""
    return {key: one_line(value) for key, value in pairs}


def stats_ns(times_us: Sequence[float]) -> dict[str, float]:
    """KernelBot's statistics of a benchmark, in nanoseconds. `err` is the mean's standard error."""
    samples_ns = [1000 * sample for sample in times_us]
    std = statistics.stdev(samples_ns) if len(samples_ns) > 1 else 0.0
    return {
        "runs": len(samples_ns),
        "mean": statistics.fmean(samples_ns),
        "std": std,
        "err": std / math.sqrt(len(samples_ns)),
        "best": min(samples_ns),
        "worst": max(samples_ns),
    }


def case_values(case: Case) -> dict[str, Param]:
    """A case under the keys of task.yml, with the number of ranks only if several."""
    ranks: dict[str, Param] = {"world_size": case.world_size} if case.world_size > 1 else {}
    return {**ranks, **case.params, "seed": case.seed}


def spec_of(params: Mapping[str, object]) -> str:
    """A case as a line of a cases file."""
    values = {key: list(value) if isinstance(value, tuple) else value for key, value in params.items()}
    return "; ".join(f"{key}: {value}" for key, value in values.items())


def encoded(pairs: Pairs, limit_bytes: int) -> bytes:
    """The lines `key: value`. If they exceed `limit_bytes`, the texts are shortened, the longest ones most."""
    chars = limit_bytes
    while True:
        lines = [f"{key}: {_shortened(key, one_line(value), chars)}\n" for key, value in pairs]
        data = "".join(lines).encode()
        if len(data) <= limit_bytes or chars <= SHORTEST_CHARS:
            return data
        chars //= 2


def one_line(text: str) -> str:
    """The text without control characters. Line ends become the two characters that KernelBot's report turns back."""
    return clean(text).strip().replace("\n", "\\n")


def _shortened(key: str, value: str, chars: int) -> str:
    if key.rpartition(".")[2] not in TEXTS or len(value) <= chars:
        return value
    return f"{value[:chars]} [...] {len(value) - chars} characters left out"


def key_of(name: Mode | Kind) -> Literal["test", "benchmark"]:
    """The first part of the keys of a mode's, or a kind's, cases."""
    return "test" if name == "test" else "benchmark"


def _outcome_pairs(result: CaseResult) -> Pairs:
    outcome, kind = result.outcome, result.case.kind
    if isinstance(outcome, records.Measured):
        return [(name, str(value)) for name, value in figures_ns(outcome).items()]
    if isinstance(outcome, records.Passed) and kind == "test":
        verdicts = result.verdicts
        loose = "" if verdicts is None or verdicts.gpumode.passed else verdicts.gpumode.message
        told = [("message", f"right, but outside GPU MODE's published tolerance: {loose}")] if loose else []
        return [("status", "pass"), *told]
    if isinstance(outcome, records.Passed) and result.profile is not None:
        return [("report", encoded_report(profile_table(result.profile)))]
    return failed_pairs(error_text(result), is_profile=kind == "profile")


def failed_pairs(message: str, *, is_profile: bool) -> Pairs:
    """The lines of a case that failed. In mode profile the message is the report too: KernelBot decodes the report of
    every case of a run that exited with 0 or 112, and stops with an AttributeError where there is none."""
    pairs = [("status", "fail"), ("error", message)]
    return [*pairs, ("report", encoded_report(message[:REPORT_CHARS]))] if is_profile else pairs


def encoded_report(text: str) -> str:
    """A profile's table as KernelBot decodes it: base64 with + and * as its last two characters."""
    return base64.b64encode(clean(text).encode(), b"+*").decode()


def figures_ns(measured: records.Measured) -> dict[str, float]:
    """KernelBot's statistics of a measured case, in nanoseconds: those that a folder's own evaluator told, or else of
    the clock that GPU MODE's evaluator uses, or else of the first clock."""
    series = measured.by_name.get("gpumode", times_of(measured) or measured.ranked)
    summary = series.summary
    if summary is None:
        return stats_ns(series.own)
    told = {name: 1000 * getattr(summary, name) for name in ("mean", "std", "err", "best", "worst")}
    return {"runs": summary.runs, **told}


def printed(report: EvalReport) -> str:
    """What the submission printed in all cases, one log after the other, without control characters."""
    names = dict.fromkeys(name for result in report.results for name in result.logs)
    return "\n".join(f"{name}:\n{clean(report.logs[name]).rstrip()}" for name in names if name in report.logs)


def error_text(result: CaseResult) -> str:
    """Why a case has no result, with the rank's own message, on several lines."""
    outcome = result.outcome
    text = verdict.OUTCOMES[outcome.type].told.format_map(vars(outcome))
    if isinstance(outcome, records.Wrong) and result.verdicts is not None and result.verdicts.gpumode.passed:
        text += " (on the published input GPU MODE's tolerance is met)"
    return "\n".join([text, *verdict.left(outcome)])


def profile_table(profile: Profile) -> str:
    """A line for each rank's call, and what took most of the slowest; or an evaluator's own text."""
    if not profile.ranks:
        return clean(profile.text)
    slowest = max(profile.ranks, key=lambda rank: rank.call_us)
    lines = [f"rank {rank.rank}: {rank.call_us:.1f} us under the profiler" for rank in profile.ranks]
    lines += [
        "",
        f"rank {slowest.rank}, by time on its {slowest.of}:",
        f"{'self us':>12}  {'share':>6}  {'calls':>6}  name",
    ]
    lines += [f"{op.self_us:12.1f}  {op.share:6.1%}  {op.calls:6}  {op.name[:120]}" for op in slowest.top]
    return clean("\n".join(lines))


# ---- the pipe ----------------------------------------------------------------------------------------------------
def result_fd(environ: Mapping[str, str]) -> int | None:
    """The descriptor that POPCORN_FD names, no longer inherited by children; None if it cannot be written to."""
    text = environ.get("POPCORN_FD", "")
    if not text.isdecimal():
        return None
    try:
        writable = fcntl.fcntl(int(text), fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
        os.set_inheritable(int(text), False)
    except (OSError, OverflowError):
        return None
    return int(text) if writable else None


def room_bytes(fd: int) -> int:
    """How many bytes can be written before anyone reads. A pipe is first made as large as an ordinary user may."""
    size = PIPE_BYTES
    while size > PAGE_BYTES:
        with contextlib.suppress(OSError):
            if fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ) < size:
                fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, size)
            break
        size //= 2
    try:
        return max(PAGE_BYTES, fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ) - PAGE_BYTES)
    except OSError:
        return PIPE_BYTES  # no pipe


def send(fd: int, data: bytes, stall_s: float = STALL_S) -> None:
    """Writes all of it. Raises HarnessError if nobody reads for `stall_s`, or the reader is gone."""
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    os.set_blocking(fd, False)
    try:
        while data:
            if not poll.poll(1000 * stall_s):
                raise HarnessError(
                    f"{len(data)} bytes of results were not written: the pipe is full and nobody reads it"
                )
            with contextlib.suppress(BlockingIOError):
                data = data[os.write(fd, data) :]
    except OSError as error:
        raise HarnessError(f"the results could not be written to POPCORN_FD: {error.strerror}") from None
    finally:
        os.set_blocking(fd, True)


# ---- what comes back ---------------------------------------------------------------------------------------------
def parse(data: bytes) -> dict[str, str]:
    """The result lines `key: value`. A key's last line counts, unknown keys are kept, malformed lines are ignored."""
    told = {}
    for line in data.decode(errors="replace").splitlines():
        key, _, value = line.partition(":")
        if key.strip() or value.strip():
            told[key.strip()] = value.strip()
    return told


def profile_text(report: str) -> str:
    try:
        return cut(base64.b64decode(report, b"+*", validate=True).decode(errors="replace"))
    except ValueError:
        return cut(report)


def number(text: str | None) -> float | None:
    """A finite number of 0 or more, or None."""
    with contextlib.suppress(ValueError, TypeError):
        value = float(text or "")
        return value if math.isfinite(value) and value >= 0 else None
    return None
