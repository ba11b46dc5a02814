"""The seam: what evaluations, boards and reports know of a kind of problem, and nothing more.

A kind is registered in one line of kinds.registry. It reads a problem, plans an evaluation of one of its submissions,
and opens a session, which is all that touches processes. evaluation.evaluate runs any session; kinds.replay is one
that runs nothing.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from harness.core.checkout import Checkout
from harness.core.errors import HarnessError
from harness.core.machine_records import Environment, MachineState, Peaks, Sampling
from harness.core.records import (
    Bound,
    Case,
    Failure,
    Held,
    Measured,
    Mode,
    NotRun,
    Passed,
    Profile,
    Ranking,
    Submission,
    Verdicts,
    Warning,
)
from harness.problems.problem import Problem, Suite

Evaluator = Literal["ours", "theirs"]
BROKE_ITS_JUDGE = "broke its judge"  # of Held: a trusted process failed, and does not with the reference in its place
TORCH = "torch"  # the profiler that our ranks have; the others are process.profilers.TOOLS


@dataclass(frozen=True, kw_only=True)
class OwnData:
    """A folder of the user's, in place of what a problem makes. `target` and `vocabulary` as they were declared."""

    folder: Path
    target: float | None = None
    vocabulary: int | None = None


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Problem, suite, device, number of ranks and options of an evaluation. `suite` has the world size that will
    run."""

    problem: Problem
    suite: Suite
    device: str
    world_size: int
    file: Path | None = None  # the submission that was named
    is_cpu_asked: bool = False  # --device cpu, which is more than to have no GPU
    evaluator: Evaluator = "ours"
    seed: int | None = None  # of the folder's own evaluator
    tool: str = TORCH  # which profiler mode profile takes
    launch_count: int | None = None  # of a call, at most, that a tool profiles; None: as it does by itself
    confined: bool = True  # by the sandbox
    data: OwnData | None = None
    nodes: int = 1  # that the ranks are spread over, in equal shares
    notes: tuple[Warning, ...] = ()  # for the report
    launches: int = 1  # of a ranked evaluation
    fresh_caches: bool = False  # nothing that earlier evaluations compiled is seen: no file can know that it ran before
    import_s: float | None = None  # for ranks to import a submission, where that is less than usual
    idle_s: float | None = None  # after which a submission that does nothing at all is given up, on CPU cores


@dataclass(frozen=True, kw_only=True)
class Phase:
    """Cases that are run one after the other within `limit_s` seconds. Every case is checked; one that is right is
    then measured or profiled where `then` says so. `case_s` is about how long that takes."""

    name: Literal["test", "benchmark", "profile"]
    cases: tuple[Case, ...]
    limit_s: float
    then: Literal["check", "measure", "profile"]
    case_s: float = 0.0
    independent: bool = False  # a case that fails leaves the others worth measuring


@dataclass(frozen=True, kw_only=True)
class Order:
    """A submission to be evaluated in a mode, on a setting. With an `opponent` it is measured against that one in place
    of the reference."""

    setting: Setting
    submission: Submission
    mode: Mode
    author: str
    opponent: Submission | None = None


SECRET_BITS = 128  # of a run: more than any search covers


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The decisions that an evaluation is made by, before anything runs. Every kind adds what its sessions need.
    `suite` already has the world size that will run; the run's fresh seeds come from `secret`; `notes` are warnings for
    the report."""

    kind: str
    problem: Problem
    suite: Suite
    submission: Submission
    mode: Mode
    device: str
    world_size: int
    author: str
    phases: tuple[Phase, ...]
    ranking_by: Ranking
    checker: str
    secret: int
    opponent: Submission | None = None
    confined: bool = True
    data: str = ""  # sha256 of the user's own data, if it runs on that
    nodes: int = 1
    notes: tuple[Warning, ...] = ()
    fresh_caches: bool = False  # as in Setting, and so are the next two
    import_s: float | None = None
    idle_s: float | None = None
    launches: int = 1  # in which benchmarks are measured, each with fresh processes
    has_controls: bool = False  # whether the reference is also timed beside itself

    @property
    def suite_name(self) -> str:
        """The suite that the run is recorded under."""
        return self.suite.name

    @property
    def baseline_name(self) -> str:
        """What messages call the side that the submission is measured against."""
        return "the reference" if self.opponent is None else "A"


@dataclass(frozen=True, kw_only=True)
class Account:
    """What a session reports beside its cases."""

    phases_s: dict[str, float]
    environment: Environment
    device_model: str = ""
    empty_call_samples_us: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    peaks: Peaks | None = None
    machine_state: tuple[MachineState, ...] = ()
    gpu_sampling: Sampling | None = None
    peak_memory_bytes: dict[str, int] = field(default_factory=dict)
    warnings: tuple[Warning, ...] = ()
    logs: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Checked:
    """The outcome of a case's checked calls, and the verdicts where outputs were judged. NotRun: an earlier failure of
    the phase kept the session from running the case."""

    outcome: Passed | Failure | NotRun
    verdicts: Verdicts | None = None


class Progress:
    """Receives progress events and ignores them; those of report.progress show them."""

    def expect(self, plan: Plan) -> None:
        """The events that follow belong to this plan's evaluation."""

    def phase(self, name: str) -> None:
        """The next phase begins."""

    def case(self, label: str, index: int, count: int) -> None:
        """The case `index` (from 0) of the phase's `count` begins."""

    def note(self, text: str) -> None:
        """A line for people, which stays."""


class OpponentFailed(HarnessError):
    """The opponent (plan.opponent) failed at a case: it was wrong, was held, or did not end."""

    def __init__(self, case: str, outcome: Failure) -> None:
        super().__init__(outcome.evidence if isinstance(outcome, Held) else outcome.message)
        self.case, self.outcome = case, outcome


class Session(Protocol):
    """One evaluation's processes. Failures of the submission are returned; all others are raised as HarnessError. After
    Raised, Crashed, TimedOut, or Held for a broken judge, nothing more can be asked of the session."""

    def prepare(self) -> Passed | Failure:
        """Everything before the first case: compiling, importing, the clock's resolution, the machine's peaks."""
        ...

    def phase(self, phase: Phase) -> contextlib.AbstractContextManager[None]:
        """Opens a phase and starts its deadline."""
        ...

    def check(self, case: Case) -> Checked:
        """Is the submission right in this case?"""
        ...

    def measure(self, case: Case) -> Measured | Failure:
        """Measures a case that was just checked, every output verified."""
        ...

    def profile(self, case: Case) -> Profile | Failure:
        """Profiles a case that was just checked."""
        ...

    def close(self) -> Passed | Failure:
        """Ends a phase whose cases are done, while its deadline still holds."""
        ...

    def bound(self, case: Case) -> Bound | None:
        """The value that no submission can beat in this case on this machine; None where it is not known."""
        ...

    def logs_of(self, case: Case) -> tuple[str, ...]:
        """The names of the account's logs that have what the submission printed in this case, one a rank."""
        ...

    def account(self) -> Account:
        """What the report needs beside the cases, once the session is closed."""
        ...


class Relaunching(Session, Protocol):
    """The session of a plan that may have several launches."""

    def again(self, is_control: bool = False) -> Passed | Failure:
        """Another launch: fresh processes, up to where benchmarks can be measured. `is_control`: the reference takes
        the submission's place."""
        ...

    def measure_again(self, case: Case) -> Measured | Failure:
        """The series that ranks, of a case that an earlier launch has measured; every output verified."""
        ...


class SessionPool(Protocol):
    """A context that keeps processes between the evaluations of one problem and ends them at its end."""

    def session(self, plan: Plan, progress: Progress) -> contextlib.AbstractContextManager[Session]:
        """A session of the pool's kind, one at a time. Nothing that a submission did is left for the next one to
        meet."""
        ...


class Kind(Protocol):
    """A kind of problem. `checkers`: the rules that a shape file may name for it; a kind that no shape file may name
    has none. `takes_tools`: whether a vendor's profiler can be put around a call of a submission. `is_pooled`: whether
    op.pool keeps zygotes between its evaluations."""

    checkers: tuple[str, ...]
    takes_tools: bool
    is_pooled: bool

    def claims(self, place: Path) -> bool:
        """Whether a folder holds a problem of this kind."""
        ...

    def read(self, place: Path, checkout: Checkout) -> Problem:
        """The problem in that folder, for use in that checkout. Raises BadFileError, with the place of the mistake."""
        ...

    def submission(self, path: Path | None, problem: Problem, checkout: Checkout) -> Submission:
        """The submission at that path, or the problem's default one. Raises UsageError where there is none,
        BadSubmissionError for what cannot be one."""
        ...

    def plan(self, order: Order) -> Plan:
        """The plan of an evaluation on this machine. Raises UsageError where it cannot be done here."""
        ...

    def session(self, plan: Plan, progress: Progress) -> contextlib.AbstractContextManager[Session]:
        """Starts what the plan needs; whatever it started is gone when the `with` ends."""
        ...
