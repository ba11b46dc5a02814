"""The records that the rest of the harness passes around.

Knows nothing of processes, files or torch. Every number's name ends in its unit (`_us`, `_s`, `_bytes`); every
outcome of a case is a type of its own, so that no -1 or 1.0 ever stands for "it failed".
"""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from harness.core.curve import Curve
from harness.core.decode import DecodeError
from harness.core.limits import Limit, Limited, Share, above_0
from harness.core.machine_records import BlockState, CpuUse, Environment, MachineState, Peaks, Sampling, Traffic
from harness.core.metrics import Clock as Clock
from harness.core.metrics import Metric as Metric
from harness.core.summary import Summary
from harness.core.words import clean_line, seconds_text

# Of report.json and --json. 1: first, with one clock's fields in every case. 2: `series` of metrics in every case, and
# the figures that are shown.
REPORT_SCHEMA = 2
Scalar = int | bool | float | str | None
Param = Scalar | tuple[Scalar, ...]
Params = dict[str, Param]
Kind = Literal["test", "benchmark", "profile", "drawn"]  # profile: not timed; drawn: timed, but not ranked
Mode = Literal["test", "benchmark", "leaderboard", "profile"]
Ranking = Literal["last", "mean", "geom", "relative", "olympic", "product"]  # of judging.scoring


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What one rank must do at least in one call, for the roofline: floating-point operations, bytes through its
    memory, bytes over its links in the busier direction. `held_bytes`: the device memory that it must hold at some
    moment of the call; 0 where that is what its inputs and its results take. `mean_link_bytes`: of an average rank,
    where the busiest one moves much more than the others."""

    flops: float
    hbm_bytes: float
    link_bytes: float
    held_bytes: float = 0
    mean_link_bytes: float | None = None


@dataclass(frozen=True, kw_only=True)
class Case:
    """One shape: `params` are the problem's arguments without rank, world_size and seed; `short` has the names that
    tables show in place of long ones, as the problem's shape file gives them. `near`: of a drawn case, near which of
    its suite's benchmarks it was drawn."""

    kind: Kind
    params: Params
    seed: int
    world_size: int
    published_us: float | None = None  # the published speed of light at the official world size
    short: dict[str, str] = field(default_factory=dict)
    near: int | None = None

    @property
    def is_timed(self) -> bool:
        """Whether it is measured once it is right."""
        return self.kind in ("benchmark", "drawn")

    @property
    def label(self) -> str:
        """Every parameter by its short name: `E 64  k 6  bias true`."""
        return "  ".join(f"{self.short.get(name, name)} {param_text(value)}" for name, value in self.params.items())

    @property
    def title(self) -> str:
        """What tables call it: `m 512 n 512 k 1536 bias`. A switch that is off is left out."""
        names = [(self.short.get(name, name), value) for name, value in self.params.items() if value is not False]
        words = (name if value is True else f"{name} {param_text(value)}" for name, value in names)
        return clean_line(" ".join(words)) or "the only shape"


def param_text(value: Param) -> str:
    """A parameter's value without spaces of ours: `true`, `1e-05`, `gelu`, `[64,32]`, `none`."""
    if isinstance(value, tuple):
        return f"[{','.join(map(param_text, value))}]"
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


@dataclass(frozen=True, kw_only=True)
class Module:
    """A local module of a submission: `name` is what it is imported by, `file` its path in the checkout."""

    name: str
    file: str
    source: str


@dataclass(frozen=True, kw_only=True)
class Submission:
    """A submission as text. `name` is its path relative to the checkout where it lies inside; `modules` are the local
    modules that it needs, each behind those that it imports. `sha256` is of all of it. Of FlashInfer-Trace's Solutions
    `title` is the name that one gives itself, and `main` which of its files `source` is; "" for all others."""

    path: str
    name: str
    source: str
    sha256: str
    modules: tuple[Module, ...] = ()
    title: str = ""
    main: str = ""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A judgement of an output: `message` says what is wrong, if anything; `note` what is odd about a right one."""

    passed: bool
    message: str = ""
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Verdicts:
    """`strict` is the checker's; `gpumode` is the published tolerance, for comparison."""

    strict: Verdict
    gpumode: Verdict


@dataclass(frozen=True, kw_only=True)
class Passed:
    """Every checked call was right (a test case, or a benchmark case before it is timed)."""

    type: Literal["passed"] = "passed"


@dataclass(frozen=True, kw_only=True)
class Series:
    """One metric of one case: a sample a call of the submission, and of the baseline (the reference, or an opponent).

    Where `paired`, samples with the same index saw the same input, and `block` consecutive ones were taken together.
    `launches`: how many consecutive ones are of each launch (fresh processes), where there were several. `own_ranks`,
    `baseline_ranks`: each rank's own times (device clock, medians); one that waits for others begins earlier. `own` is
    empty where only a `summary` was told; `baseline` where nothing was measured beside the submission. `least`: what
    no submission can go below, where the case's bound is another series'.
    """

    metric: Metric
    own: tuple[float, ...]
    baseline: tuple[float, ...] = ()
    paired: bool = True
    block: int = 1
    launches: tuple[int, ...] = ()
    own_claims: tuple[float, ...] = ()  # what the submission's ranks said, where `own` is what trusted processes saw
    own_ranks: tuple[float, ...] = ()
    baseline_ranks: tuple[float, ...] = ()
    summary: Summary | None = None
    least: float | None = None

    def __post_init__(self) -> None:
        if not self.own and self.summary is None:
            raise ValueError("expected samples or a summary")
        for name in ("own", "baseline"):
            for index, sample in enumerate(getattr(self, name)):
                if sample <= 0:
                    raise DecodeError(f".{name}[{index}]", f"expected a sample above 0, found {sample}")
        counts = len(self.own), len(self.baseline)
        if self.paired and self.baseline and counts[0] != counts[1]:
            raise ValueError(f"expected as many samples of either side, found {counts[0]} and {counts[1]}")
        if self.block < 1:
            raise DecodeError(".block", f"expected blocks of 1 sample or more, found {self.block}")
        if self.launches and (min(self.launches) < 1 or sum(self.launches) != counts[0]):
            raise DecodeError(".launches", f"expected {counts[0]} samples in all, found {sum(self.launches)}")


@dataclass(frozen=True, kw_only=True)
class Measured(Limited):
    """Right in every call, and measured: the first series ranks. `bounded` names the series that the case's bound is a
    bound of; the first where it is empty. `rank_ends_us`: each rank's end after the first start (wall clock, medians).
    `curves`: one a run. `best`: the best value known from elsewhere. `bounds`: those of further series, by name.
    `own_kernels`: the claimed part of its time in its own kernels; `kernels`: in each. `traffic`: between GPUs.
    `blocks`: what the GPUs did in each block of the ranked series."""

    series: Annotated[tuple[Series, ...], Limit(bool, "expected at least one")]
    bounded: str = ""
    rank_ends_us: tuple[float, ...] = ()
    curves: tuple[Curve, ...] = ()
    best: float | None = None
    bounds: dict[str, "Bound"] = field(default_factory=dict)
    own_kernels: Share | None = None
    kernels: dict[str, float] = field(default_factory=dict)
    traffic: Traffic | None = None
    blocks: tuple[BlockState, ...] = ()
    type: Literal["measured"] = "measured"

    @property
    def ranked(self) -> Series:
        return self.series[0]

    @property
    def by_name(self) -> dict[str, Series]:
        """Every series by its metric's name, the ranked one first."""
        return {one.metric.name: one for one in self.series}

    @property
    def against_bound(self) -> Series:
        return self.by_name.get(self.bounded, self.series[0])


@dataclass(frozen=True, kw_only=True)
class Wrong:
    """An output failed the strict verdict on at least one rank."""

    message: str
    type: Literal["wrong"] = "wrong"


@dataclass(frozen=True, kw_only=True)
class Raised:
    """The submission raised: the first rank's `traceback`; `alike` are other ranks that raised the same."""

    rank: int
    message: str
    traceback: str
    alike: tuple[int, ...] = ()
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


Outcome = Passed | Measured | Wrong | Raised | Crashed | TimedOut | Held | NotRun
Failure = Wrong | Raised | Crashed | TimedOut | Held


@dataclass(frozen=True, kw_only=True)
class OpTime:
    """What one operator or kernel took of one rank's call: all its calls together. `share` is of the call's time;
    where several threads or streams work at once, they share that time equally, so that shares add up to 1 at most."""

    name: str
    calls: int
    self_us: float
    share: float


@dataclass(frozen=True, kw_only=True)
class RankProfile:
    """One rank's call under the profiler, and what took most of it: kernels, or where it saw none, the host's work."""

    rank: int
    call_us: float
    of: Literal["device", "host"]
    top: tuple[OpTime, ...]


@dataclass(frozen=True, kw_only=True)
class KernelFigures:
    """What a vendor's profiler says of one kernel of a rank's call: the time of all its runs, and `percents` of the
    device's peak (`occupancy`, `compute`, `memory`, `dram`, `tensor`), as far as the tool tells them."""

    rank: int
    name: str
    calls: int
    time_us: float
    percents: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Profile:
    """One call on all ranks: `trace_json` is the merged trace, `trace` its file. A vendor's `tool` tells `kernels`, and
    its `files`, by their names, were written to `reports`; a folder's own evaluator tells a `text` alone."""

    ranks: tuple[RankProfile, ...]
    trace_json: str = field(repr=False)
    trace: str | None = None
    tool: str = "torch"
    kernels: tuple[KernelFigures, ...] = ()
    reports: tuple[str, ...] = ()
    files: dict[str, bytes] = field(default_factory=dict, repr=False)
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class Bound(Limited):
    """What no submission can beat in a case, in the unit of the series that it bounds, and which term it comes from."""

    value: Annotated[float, above_0("a bound")]
    by: str  # flops, hbm or link where it is a roofline


@dataclass(frozen=True, kw_only=True)
class Estimate(Limited):
    """A value with its 95 % confidence interval; None, and `why` says why, where too few samples were taken for one."""

    value: Annotated[float, above_0("an estimate")]
    ci: tuple[float, float] | None
    why: str = ""
    launches: int = 1  # that the interval is over; of one, it does not cover what launches differ by


@dataclass(frozen=True, kw_only=True)
class CaseFigures:
    """What a measured case comes to: medians of either side in the metric's unit, the interquartile range over the
    median (`spread`), how many times as good as the baseline (`ratio`), which part of the bound's speed was reached
    (`fraction`). None where it was not measured or is not known."""

    metric: Metric
    value: float
    baseline: float | None
    spread: float | None
    ratio: Estimate | None
    fraction: Estimate | None


@dataclass(frozen=True, kw_only=True)
class Score(Limited):
    """What ranks, as the contest itself computes it. `relative_by` names the rule (judging.scoring.SCORINGS) of a score
    that changes with others' results; it is empty for one that stands alone."""

    value: Annotated[float, above_0("a score")]
    unit: str
    better: Literal["less", "more"]
    relative_by: str = ""

    @property
    def text(self) -> str:
        """With its unit: `3.891 ms`, `217039 cost`, `1 point`."""
        if self.unit == "s":
            return seconds_text(self.value)
        value = f"{self.value:.6g}"
        return f"{value} {self.unit.removesuffix('s') if value == '1' else self.unit}"


@dataclass(frozen=True, kw_only=True)
class EvalFigures:
    """What a passed evaluation is worth: the contest's score, and over all benchmarks the geometric means of the ratio
    to the baseline and of the fraction of the bound. `drawn`: the ratio on drawn shapes, `near_drawn` on the benchmarks
    near which they were drawn."""

    score: Score
    ratio: Estimate | None
    fraction: Estimate | None
    drawn: float | None = None
    near_drawn: float | None = None


@dataclass(frozen=True, kw_only=True)
class CaseResult:
    """A case and what became of it. `bound` is the roofline on this machine for this case; `figures` are there once it
    was measured; `logs` names those of the report's logs that have what the submission printed, one a rank."""

    case: Case
    outcome: Outcome
    verdicts: Verdicts | None = None
    bound: Bound | None = None
    figures: CaseFigures | None = None
    profile: Profile | None = None
    logs: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Warning:
    """Makes a measurement doubtful, not wrong; judging.warnings has each `code`'s text for `values`."""

    code: str
    values: dict[str, str | int | float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class EvalReport:
    """Everything one evaluation found. board.report_json writes it to report.json and `--json`, and reads it back; then
    the submission has no source."""

    run_id: str
    started_at: str  # ISO 8601, UTC
    problem: str
    submission: Submission
    author: str
    device: str
    world_size: int
    suite: str
    mode: Mode
    ranking_by: Ranking
    results: tuple[CaseResult, ...]
    empty_call_samples_us: dict[str, tuple[float, ...]]  # by the metric's name
    peaks: Peaks | None
    environment: Environment | None
    phases_s: dict[str, float]
    secret_seed: int  # not known to the submission while it ran; with it the run's inputs can be made again
    warnings: tuple[Warning, ...] = ()
    machine_state: tuple[MachineState, ...] = ()  # what `doctor` warns of, before the run
    device_model: str = ""  # what the device calls itself; empty on CPUs
    figures: EvalFigures | None = None  # once it has passed and measured something
    gpu_sampling: Sampling | None = None  # during timed blocks; None on CPUs
    cpu_use: CpuUse | None = None  # where CPU ranks were timed on this machine
    # Of a rank of each group, as its ranks say: what its allocator had of a device, or what it had resident on CPUs.
    peak_memory_bytes: dict[str, int] = field(default_factory=dict)
    logs: dict[str, str] = field(default_factory=dict)  # the end of what each process printed, by a name for people
    checker: str = "strict"  # of kinds.checkers: who judged outputs, by which rule
    confined: bool = True  # False: the submission ran outside the sandbox
    usual_sd: float | None = None  # what launches differed by on its board, in log(ratio); None: as of the device
    data: str = ""  # sha256 of the user's own data, if it ran on that; such a run is not ranked

    @property
    def is_reference(self) -> bool:
        """Whether the submission calls the reference or has its text."""
        return any(one.code == "reference" for one in self.warnings)

    def printed(self, result: CaseResult, rank: int = 0) -> str:
        """The end of what the submission printed on that rank in a case."""
        return self.logs.get(result.logs[rank], "") if rank < len(result.logs) else ""
