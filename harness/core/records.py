"""The records that the rest of the harness passes around, and the errors that end an evaluation.

Knows nothing of processes, files or torch. Every number's name ends in its unit (`_us`, `_s`, `_bytes`); every
outcome of a case is a type of its own, so that no -1 or 1.0 ever stands for "it failed".
"""

import enum
import secrets
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar, Literal

REPORT_SCHEMA = 1  # of report.json and --json; 1: first
Param = int | bool | float | str | tuple[int, ...]
Params = dict[str, Param]
Kind = Literal["test", "benchmark", "profile"]  # profile: a benchmark's shape, profiled instead of timed
Mode = Literal["test", "benchmark", "leaderboard", "profile"]
Clock = Literal["wall", "device", "gpumode"]  # README, "The clocks"
# Who judges outputs, by which rule: trusted ranks by docs/correctness.md; trusted ranks by what a KernelBot problem
# folder has for it; that folder's own eval.py, in the process that also runs the submission.
GateName = Literal["strict", "folder", "theirs"]


class Exit(enum.IntEnum):
    """Exit codes; 112 to 114 have the meaning that GPU MODE's evaluator gives them."""

    OK = 0
    ERROR = 1  # the harness or the machine failed, not the user and not the submission
    USAGE = 2
    FAIL_IF = 3  # compare's word is one that --fail-if named
    INVALID = 112  # the submission is wrong, raised or crashed
    BAD_FILE = 113  # a problem, shape or leaderboard file is bad
    TIMED_OUT = 114
    INTERRUPTED = 130


class HarnessError(Exception):
    """Ends an evaluation. The message says what happened, where, and what to try next."""

    exit_code: ClassVar[Exit] = Exit.ERROR


class UsageError(HarnessError):
    """Something that was asked for cannot be done: no such problem, file, suite or rank count."""

    exit_code = Exit.USAGE


class BadFileError(HarnessError):
    """A problem, shape or leaderboard file does not decode."""

    exit_code = Exit.BAD_FILE


class BadSubmissionError(HarnessError):
    """The submission file cannot be a submission: no such syntax, no custom_kernel."""

    exit_code = Exit.INVALID


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What one rank must do at least in one call, for the roofline: floating-point operations, bytes through its
    memory, bytes over its links in the busier direction."""

    flops: float
    hbm_bytes: float
    link_bytes: float


@dataclass(frozen=True, kw_only=True)
class Case:
    """One shape: `params` are the problem's arguments without rank, world_size and seed; `short` has the names that
    tables show in place of long ones, as the problem's shape file gives them."""

    kind: Kind
    params: Params
    seed: int
    world_size: int
    published_us: float | None = None  # the published speed of light at the official world size
    short: dict[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Every parameter by its short name: `E 64  k 6  bias true`."""
        return "  ".join(f"{self.short.get(name, name)} {param_text(value)}" for name, value in self.params.items())


def param_text(value: Param) -> str:
    """A parameter's value without spaces of ours: `true`, `1e-05`, `gelu`, `[64,32]`."""
    if isinstance(value, tuple):
        return f"[{','.join(map(str, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True, kw_only=True)
class Module:
    """A local module of a submission as text. `name` is what it is imported by (`common.heap`), `file` its path
    relative to the checkout."""

    name: str
    file: str
    source: str


@dataclass(frozen=True, kw_only=True)
class Submission:
    """A submission as text. `name` is its path relative to the checkout where it lies inside; `modules` are the local
    modules that it needs, each behind those that it imports. `sha256` is of all of it."""

    path: str
    name: str
    source: str
    sha256: str
    modules: tuple[Module, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One judgement of one output: `message` says what is wrong, or is empty."""

    passed: bool
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class Verdicts:
    """`strict` is the gate; `gpumode` is the published tolerance, for comparison."""

    strict: Verdict
    gpumode: Verdict


@dataclass(frozen=True, kw_only=True)
class Passed:
    """Every checked call was right (a test case, or a benchmark case before it is timed)."""

    type: Literal["passed"] = "passed"


@dataclass(frozen=True, kw_only=True)
class Timed:
    """Right in every call and timed, on the wall clock (which ranks) and on the others that apply. One sample a
    call. Samples of reference and submission with the same index saw the same inputs; `block` consecutive samples
    were taken together. `rank_ends_us`: when each rank had finished, after the first had started (wall, medians)."""

    samples_us: tuple[float, ...]
    ref_samples_us: tuple[float, ...]
    block: int
    others: tuple["ClockSamples", ...] = ()
    rank_ends_us: tuple[float, ...] = ()
    type: Literal["timed"] = "timed"


@dataclass(frozen=True, kw_only=True)
class ClockSamples:
    """Samples of one more clock. `rank_us`, `ref_rank_us`: each rank's own times (device clock, medians). In a call
    whose ranks wait for each other, one that takes longer than the others has begun earlier by that much."""

    clock: Clock
    samples_us: tuple[float, ...]
    ref_samples_us: tuple[float, ...]
    rank_us: tuple[float, ...] = ()
    ref_rank_us: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Told:
    """Timed by a problem folder's own evaluator, which tells no samples: its statistics of `runs` calls, in us.
    `err_us` is the mean's standard error."""

    runs: int
    mean_us: float
    std_us: float
    err_us: float
    best_us: float
    worst_us: float
    type: Literal["told"] = "told"


@dataclass(frozen=True, kw_only=True)
class Wrong:
    """An output failed the strict verdict on at least one rank."""

    message: str
    type: Literal["wrong"] = "wrong"


@dataclass(frozen=True, kw_only=True)
class Raised:
    """The submission raised: `traceback` is the first failing rank's."""

    rank: int
    message: str
    traceback: str
    type: Literal["raised"] = "raised"


@dataclass(frozen=True, kw_only=True)
class Crashed:
    """A rank's process ended (exit, signal, out of memory) or spoke nonsense; `log_tail` is the last it printed."""

    rank: int
    message: str
    log_tail: str
    type: Literal["crashed"] = "crashed"


@dataclass(frozen=True, kw_only=True)
class TimedOut:
    """A deadline passed; `stacks` holds each rank's Python stack at that moment."""

    message: str
    stacks: tuple[str, ...]
    type: Literal["timed_out"] = "timed_out"


@dataclass(frozen=True, kw_only=True)
class Held:
    """Right, but not believable: `check` is what stopped it and `evidence` what it saw."""

    check: str
    evidence: str
    type: Literal["held"] = "held"


@dataclass(frozen=True, kw_only=True)
class NotRun:
    """An earlier failure ended the evaluation before this case."""

    type: Literal["not_run"] = "not_run"


Outcome = Passed | Timed | Told | Wrong | Raised | Crashed | TimedOut | Held | NotRun
Failure = Wrong | Raised | Crashed | TimedOut | Held


@dataclass(frozen=True, kw_only=True)
class OpTime:
    """What one operator or kernel took of one rank's call: all its calls together, `share` of the whole call (work
    on several threads or streams can add up to more than 1)."""

    name: str
    calls: int
    self_us: float
    share: float


@dataclass(frozen=True, kw_only=True)
class RankProfile:
    """One rank's call under the profiler, and what took most of it: kernels of its device, or operators on the
    host where the profiler saw no kernel."""

    rank: int
    call_us: float
    of: Literal["device", "host"]
    top: tuple[OpTime, ...]


@dataclass(frozen=True, kw_only=True)
class Profile:
    """One call on all ranks: `trace_json` is the merged trace, `trace` the file that it was written to."""

    ranks: tuple[RankProfile, ...]
    trace_json: str = field(repr=False)
    trace: str | None = None


@dataclass(frozen=True, kw_only=True)
class CaseResult:
    """A case and what became of it. `bound_us` is the roofline on this machine for this case."""

    case: Case
    outcome: Outcome
    verdicts: Verdicts | None = None
    bound_us: float | None = None
    bound_by: Literal["flops", "hbm", "link"] | None = None
    profile: Profile | None = None


@dataclass(frozen=True, kw_only=True)
class Peaks:
    """Rates that bound one rank, with where they come from (`measured` on this machine, or a vendor's figure)."""

    flops_per_s: float
    hbm_bytes_per_s: float
    link_bytes_per_s: float
    source: str


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The machine and the software of a run. `machine_class` is what leaderboards are kept apart by."""

    machine_class: str
    cpu: str
    cores: int
    memory_bytes: int
    python: str
    torch: str
    triton: str | None
    platform: str
    harness: str


@dataclass(frozen=True, kw_only=True)
class GpuTrack:
    """One GPU over the sampled time. `throttled` is the union of what held its clocks down; `energy_j` is None where
    the GPU keeps no count."""

    index: int
    sm_mhz_min: int
    sm_mhz_median: float
    sm_mhz_max: int
    temperature_c_max: int
    power_w_mean: float
    power_w_max: float
    throttled: tuple[str, ...]
    energy_j: float | None


@dataclass(frozen=True, kw_only=True)
class Sampled:
    """`samples` of every GPU over `sampled_s` seconds between start() and stop()."""

    gpus: tuple[GpuTrack, ...]
    samples: int
    sampled_s: float
    type: Literal["sampled"] = "sampled"


@dataclass(frozen=True, kw_only=True)
class NotSampled:
    """Nothing was sampled, and why: no GPU, no NVML, or nothing between start() and stop()."""

    why: str
    type: Literal["not_sampled"] = "not_sampled"


Sampling = Sampled | NotSampled


def new_run_id(started: datetime) -> str:
    """A name for a run, which sorts by when it was started; no two that start in one second share it."""
    return f"{started:%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"


@dataclass(frozen=True, kw_only=True)
class EvalReport:
    """Everything one evaluation found. `report.json` and `--json` are made from it by report_json.to_json."""

    run_id: str
    started_at: str  # ISO 8601, UTC
    problem: str
    submission: Submission
    author: str
    device: str
    world_size: int
    suite: str
    mode: Mode
    ranking_by: Literal["last", "mean", "geom"]
    results: tuple[CaseResult, ...]
    empty_call_samples_us: dict[Clock, tuple[float, ...]]
    peaks: Peaks | None
    environment: Environment | None
    phases_s: dict[str, float]
    secret_seed: int  # not known to the submission while it ran; with it the run's inputs can be made again
    warnings: tuple[str, ...] = ()
    machine_state: tuple[str, ...] = ()  # what `doctor` warns of, before the run
    gpu_sampling: Sampling | None = None  # during timed blocks; None on CPUs
    logs: dict[str, str] = field(default_factory=dict)  # "candidate rank 3" -> the end of what it printed
    gate: GateName = "strict"
