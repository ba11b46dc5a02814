"""What an evaluation comes to for a program that learns from it: stages, verdict, figures, evidence, a hint, a reward.

result.schema.json describes the same record for readers in other languages; a test holds the two together. Texts in it
may come from a submission: control characters are removed, and nothing else makes them safe to obey.
"""

from dataclasses import dataclass
from typing import Literal

from harness.agents.reward import Function, Reward, Times
from harness.core.decode import DecodeError
from harness.core.records import Params

SCHEMA = 1  # of this record; 1: first
Verdict = Literal["pass", "wrong", "raised", "crashed", "timed_out", "held", "rejected", "error"]
Status = Literal["pass", "fail", "not_run"]
MESSAGE_CHARS, DETAIL_CHARS = 1000, 4000


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """What the results of one population share. `function` and `lower` are their rewards'; what did not run has no
    suite, device and ranks."""

    problem: str
    suite: str = ""
    device: str = ""
    ranks: int = 0
    function: Function = "log2_speedup"
    lower: bool = False


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One of compile, correct and fast: `done` of `total` cases came through it, in `seconds`."""

    status: Status
    done: int = 0
    total: int = 0
    seconds: float = 0.0
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class Stages:
    """`compile`: the file was read, compiled and imported. `correct`: every checked call was right. `fast`: every
    benchmark was measured, and nothing about its times is impossible."""

    compile: Stage
    correct: Stage
    fast: Stage


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A figure with its 95 % interval; `low` and `high` are null where too few samples were taken for one."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class CaseFigure:
    """A measured shape: medians of the submission and the reference, and what no submission can go below, in `unit`.
    `limit` bounds the metric `limited`, of which `limited_value` and `limited_baseline` are the medians."""

    label: str
    params: Params
    metric: str
    unit: str
    value: float
    baseline: float | None
    speedup: Interval | None
    limit: float | None = None
    limited: str = ""
    limited_value: float | None = None
    limited_baseline: float | None = None


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Over all shapes: geometric means of the speedup over the reference (its interval covers what repeated evaluations
    differ by) and of the fraction of the limit's speed; the contest's own score."""

    speedup: Interval | None
    fraction: Interval | None
    score: float
    score_unit: str
    score_better: Literal["less", "more"]
    cases: tuple[CaseFigure, ...]

    @property
    def times(self) -> list[Times]:
        """What rewards are computed of, a shape each."""
        return [
            (one.limited_value or one.value, one.limited_baseline or one.baseline or one.value, one.limit)
            for one in self.cases
        ]


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The evidence of the verdict: the failed case (`test: M 7 H 96`), what was seen, and the traceback, the stacks or
    the end of what the submission printed."""

    where: str
    message: str
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class Result:
    """The result of one candidate. `ranked`: it passed every stage of the suite that was asked for, inside the sandbox
    and on the problem's own data. `id` is the caller's name for the candidate, `code` a digest of what it does
    (problems.same_code), `copy_of` the id of a candidate with the same code whose result this is. `is_reference`: by
    its text it is the reference, and what its figures differ from that by is noise."""

    problem: str
    suite: str
    device: str
    ranks: int
    verdict: Verdict
    ranked: bool
    stages: Stages
    reward: Reward
    next: str
    figures: Figures | None = None
    evidence: Evidence | None = None
    warnings: tuple[str, ...] = ()
    id: str = ""
    run_id: str = ""
    file: str = ""
    sha256: str = ""
    code: str = ""
    copy_of: str = ""
    is_reference: bool = False
    seconds: float = 0.0
    schema: int = SCHEMA

    @property
    def speedup(self) -> float | None:
        """Over the reference, which is 1 for the reference itself; None where it was not measured."""
        found = self.figures.speedup if self.figures else None
        return None if found is None else 1.0 if self.is_reference else found.value

    def __post_init__(self) -> None:
        if self.schema != SCHEMA:
            raise DecodeError(".schema", f"expected {SCHEMA}, found {self.schema}")
        if self.ranked and self.verdict != "pass":
            raise DecodeError(".ranked", f"expected false: the verdict is {self.verdict}")
        if self.reward.value and not self.ranked:
            raise DecodeError(".reward.value", "expected 0: the result is not ranked")
