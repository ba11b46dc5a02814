"""The seam: what evaluations, boards and reports know of a kind of problem, and nothing more.

A kind is registered in one line of kinds.registry. It reads a problem, plans an evaluation of one of its submissions,
and opens a session, which is all that touches processes. evaluation.evaluate runs any session.
"""

import contextlib
import hashlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal, Protocol

from harness.core.checkout import Checkout
from harness.core.errors import HarnessError
from harness.core.records import (
    Bound,
    Case,
    EvalReport,
    Failure,
    Held,
    Measured,
    Mode,
    NotRun,
    Profile,
    Ranking,
    Submission,
    Verdicts,
    Warning,
)
from harness.machine import host
from harness.machine.gpus import gpu_names
from harness.problems.problem import Problem, Suite
from harness.problems.submission import read_submission

Evaluator = Literal["ours", "theirs"]
Then = Literal["check", "measure", "profile"]  # what becomes of a case: it is checked, and then measured or profiled
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
    """Problem, suite, device, ranks and options of an evaluation. `suite` has the world size that will run."""

    problem: Problem
    suite: Suite
    device: str
    world_size: int
    file: Path | None = None  # the submission that was named
    is_cpu_asked: bool = False  # --device cpu, which is more than to have no GPU
    evaluator: Evaluator = "ours"
    evaluator_seed: int | None = None  # the secret of the folder's own evaluator
    tool: str = TORCH  # which profiler mode profile takes
    launch_count: int | None = None  # of a call, at most, that a tool profiles; None: as it does by itself
    confined: bool = True  # by the sandbox
    data: OwnData | None = None
    nodes: int = 1  # that the ranks are spread over, in equal shares
    notes: tuple[Warning, ...] = ()  # for the report
    launches: int = 1  # of a ranked evaluation
    is_brief: bool = False  # few samples of the ranked clock and no other checked calls: to see how fast it may be
    fresh_caches: bool = False  # nothing that earlier evaluations compiled is seen: no file can know that it ran before
    import_s: float | None = None  # for ranks to import a submission, where that is less than usual
    idle_s: float | None = None  # after which a submission whose processes only sleep is given up


@dataclass(frozen=True, kw_only=True)
class Phase:
    """Cases that are run one after the other within `limit_s` seconds. Every case is checked; one that is right is
    then measured or profiled where `then` says so. `case_s` is about how long that takes."""

    name: Literal["test", "benchmark", "profile"]
    cases: tuple[Case, ...]
    limit_s: float
    then: Then
    case_s: float = 0.0
    independent: bool = False  # a case that fails leaves the others worth measuring


@dataclass(frozen=True, kw_only=True)
class Order:
    """A submission to be evaluated in a mode, on a setting, against the reference or an `opponent` in its place."""

    setting: Setting
    submission: Submission
    mode: Mode
    author: str
    opponent: Submission | None = None


SECRET_BITS = 128  # of a run: more than any search covers


@dataclass(frozen=True, kw_only=True)
class Plan(Setting):
    """The decisions that an evaluation is made by, before anything runs: the setting, the order's other fields and what
    follows from them. Every kind adds what its sessions need. `launches` are those in which benchmarks are measured;
    the run's fresh seeds come from `secret`."""

    kind: str
    submission: Submission
    mode: Mode
    author: str
    phases: tuple[Phase, ...]
    ranking_by: Ranking
    checker: str
    secret: int
    opponent: Submission | None = None
    data_sha256: str = ""  # of the user's own data, if it runs on that
    has_controls: bool = False  # whether the reference is also timed beside itself
    usual_sd: float | None = None  # what launches differed by on its board, in log(ratio); None: as of the device

    @property
    def suite_name(self) -> str:
        """The suite that the run is recorded under."""
        return self.suite.name

    @property
    def baseline_name(self) -> str:
        """What messages call the side that the submission is measured against."""
        return "the reference" if self.opponent is None else "A"

    def seed(self, *place: int | str) -> int:
        """A fresh seed for one input or run, below 2**31: known from the secret and the place, and from nothing else. A
        search finds it from the input, and learns no more by it."""
        return int.from_bytes(self.digest(place, 8), "big") % 2**31

    def digest(self, place: tuple[int | str, ...], nbytes: int) -> bytes:
        """So many bytes that follow from the secret and the place, of which nothing tells those of another place."""
        text = f"{self.secret}/{'/'.join(map(str, place))}".encode()
        return hashlib.blake2b(text, digest_size=nbytes).digest()


class Progress:
    """Receives progress events and ignores them; those of report.progress show them."""

    def expect(self, plan: Plan) -> None:
        """The events that follow belong to this plan's evaluation."""

    def phase(self, name: str) -> None:
        """The next phase begins."""

    def case(self, label: str, index: int, count: int) -> None:
        """The case `index` (from 0) of the phase's `count` begins."""

    def case_left(self, seconds: float) -> None:
        """The running case will take about so many seconds more."""

    def note(self, text: str) -> None:
        """A line for people, which stays."""


class OpponentFailed(HarnessError):
    """The opponent (plan.opponent) failed at a case: it was wrong, was held, or did not end."""

    def __init__(self, case: str, outcome: Failure) -> None:
        super().__init__(outcome.evidence if isinstance(outcome, Held) else outcome.message)
        self.case, self.outcome = case, outcome


class SubmissionFailed(Exception):
    """The submission failed in a case, with these verdicts of its outputs. NotRun: after a failure of the phase."""

    def __init__(self, outcome: Failure | NotRun, verdicts: Verdicts | None = None) -> None:
        super().__init__(outcome)
        self.outcome, self.verdicts = outcome, verdicts


class Session:
    """One evaluation's processes, by default without any. Failures of the submission are raised as SubmissionFailed,
    all others as HarnessError. After Raised, Crashed, TimedOut, or Held for a broken judge, nothing more can be asked
    of the session. `deadline` is of time.monotonic(), of the phase that is open."""

    def __init__(self, plan: Plan, progress: Progress) -> None:
        self.plan, self.progress = plan, progress
        self.phases_s: dict[str, float] = {}
        self.logs: dict[str, str] = {}
        self.notes: list[Warning] = []
        self.lacking: tuple[str, ...] = ()  # what this kernel does not give to confine the submission with
        self.peak_memory_bytes: dict[str, int] = {}  # of a process on each side
        self.device_model = ""  # what the device calls itself, where a process has told
        self.deadline = 0.0

    @contextlib.contextmanager
    def spending(self, name: str) -> Iterator[None]:
        """The seconds within are the report's, under that name."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.count_s(name, time.monotonic() - began)

    def count_s(self, name: str, seconds: float) -> None:
        """These seconds are the report's, under that name."""
        self.phases_s[name] = self.phases_s.get(name, 0.0) + seconds

    def note(self, case: Case, text: str) -> None:
        """What the reader of the report should know of the case."""
        self.notes.append(Warning(code="run", values={"case": case.label, "text": text}))

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """A context in which what the session needs is there; whatever it started is gone when the `with` ends."""
        yield

    def prepare(self) -> None:
        """Everything before the first case: compiling, importing, the clock's resolution, the machine's peaks."""

    @contextlib.contextmanager
    def phase(self, phase: Phase) -> Iterator[None]:
        """Opens a phase, starts its deadline and counts its seconds."""
        self.progress.phase(phase.name)
        self.deadline = time.monotonic() + phase.limit_s
        with self.spending(phase.name):
            yield

    def check(self, case: Case) -> Verdicts | None:
        """Is the submission right in this case? Returns the verdicts where outputs were judged."""
        raise NotImplementedError

    def measure(self, case: Case) -> Measured:
        """Measures a case that was just checked, every output verified."""
        raise AssertionError("no phase of the plan measures")

    def profile(self, case: Case) -> Profile:
        """Profiles a case that was just checked."""
        raise AssertionError("no phase of the plan profiles")

    def close(self) -> None:
        """Ends a phase whose cases are done, while its deadline still holds."""

    def again(self, is_control: bool = False) -> None:
        """Another launch: fresh processes that can measure. `is_control`: with the reference as the submission."""
        raise AssertionError("the plan has one launch")

    def measure_again(self, case: Case) -> Measured:
        """The series that ranks, of a case that an earlier launch has measured; every output verified."""
        raise AssertionError("the plan has one launch")

    def bound(self, case: Case) -> Bound | None:
        """The value that no submission can beat in this case on this machine; None where it is not known."""
        return None

    def logs_of(self, case: Case) -> tuple[str, ...]:
        """The names of the report's logs that have what the submission printed in this case, one a rank."""
        return ()

    def completed(self, report: EvalReport) -> EvalReport:
        """The report with what it needs beside the cases, once the session is closed: seconds, machine, logs, notes."""
        plan = self.plan
        model = self.device_model or ((gpu_names() or ("",))[0] if plan.device != "cpu" else "")
        return replace(
            report,
            phases_s=self.phases_s,
            environment=host.environment(model, plan.world_size, plan.nodes),
            device_model=model,
            logs=self.logs,
            peak_memory_bytes=self.peak_memory_bytes,
            warnings=(*(Warning(code="sandbox", values={"text": text}) for text in self.lacking), *self.notes),
        )


class SessionPool(Protocol):
    """What opens sessions: a kind, or a context that keeps processes between the evaluations of one problem."""

    def session(self, plan: Plan, progress: Progress) -> contextlib.AbstractContextManager[Session]:
        """A session, one at a time. Nothing that a submission did is left for the next one to meet."""
        ...


class Kind:
    """A kind of problem, by default one of shape files that name it. `checkers`: the rules that a shape file may name
    for it; a kind that no shape file may name has none. `takes_tools`: whether a vendor's profiler can be put around a
    call of a submission. `takes_data`: whether its problems can take a user's own. `parameters`: that it reads itself,
    so that Params has to have them. `is_pooled`: whether op.pool keeps zygotes between its evaluations, in which
    benchmarks take the time that they are given. `folder_file`: the file by which a folder is known as one submission,
    if any."""

    session_type: ClassVar[type[Session]]
    checkers: tuple[str, ...] = ()
    folder_file = ""
    takes_tools = False
    takes_data = False
    parameters: ClassVar[Mapping[str, type]] = {}
    is_pooled = False

    def claims(self, place: Path) -> bool:
        """Whether a folder holds a problem of this kind. By default none does: a shape file names the kind."""
        return False

    def read(self, place: Path, checkout: Checkout) -> Problem:
        """The claimed problem, for use in that checkout. Raises BadFileError, with the place of the mistake."""
        raise NotImplementedError

    def submission(self, path: Path | None, problem: Problem, checkout: Checkout) -> Submission:
        """The submission at that path, or the default one. Raises UsageError without one, BadSubmissionError if bad."""
        return read_submission(path or problem.default_submission(), checkout.root, problem.lang)

    def is_reference(self, submission: Submission, problem: Problem) -> bool:
        """Whether the submission is the problem's reference, or calls it; by default that is not known."""
        return False

    def plan(self, order: Order) -> Plan:
        """The plan of an evaluation on this machine. Raises UsageError where it cannot be done here."""
        raise NotImplementedError

    @contextlib.contextmanager
    def session(self, plan: Plan, progress: Progress) -> Iterator[Session]:
        """Starts what the plan needs; whatever it started is gone when the `with` ends."""
        session = self.session_type(plan, progress)
        with session.running():
            yield session
