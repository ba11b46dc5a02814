"""One training run of a group of ranks: trained on to each evaluation, evaluated by trusted ranks, timed by the parent.

The sequences of each period between two evaluations are handed out when it begins, so that no run can have read more or
fewer than it is evaluated after. The clock runs whenever a process of the group can, since train() could go on with
sequences of before: on CPUs from when the group is let go on until all of its processes have stopped. Evaluations, and
handing out data, are between calls; on CPUs, where the group is stopped then, the clock stands.
"""

import io
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from harness.core import mllog
from harness.core.decode import DecodeError, decode
from harness.core.records import Case, Held, Wrong
from harness.core.stats import median
from harness.kinds.kind import OpponentFailed, SubmissionFailed
from harness.kinds.op.calls import Calls
from harness.ranks import wire
from harness.ranks.group import CallOrder, Group

Side = Literal["candidate", "baseline"]
LEAST_PART = 0.25  # of the time that a period typically takes
MOST_LOADING_S = 3e7


@dataclass(frozen=True, kw_only=True)
class Claims:
    """Rank 0's claims: the sequences of all ranks so far, its seconds of loading, and whether it has returned."""

    samples: int
    loading_s: float
    is_done: bool

    def __post_init__(self) -> None:
        if not 0 <= self.loading_s < MOST_LOADING_S:
            raise DecodeError(".loading_s", "expected seconds, less than a year's")


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Weights after `samples` sequences that were handed out, and `seconds`; `quality` is None if it is not finite."""

    samples: int
    seconds: float
    quality: float | None


@dataclass(kw_only=True)
class TrainingRun:
    """A run, which goes on until it has an `ending`, or none, because it reached the target. `periods` have begun;
    `periods_s` has the time of each to the evaluation that train() asked for at its end, and `clock_s` of all.
    `evaluation_s` is what trusted ranks took, beside the clock."""

    seed: int = 0
    evaluations: list[Evaluation] = field(default_factory=list)
    loading_s: float = 0.0
    evaluation_s: float = 0.0
    ending: str = ""
    periods: int = 0
    periods_s: list[float] = field(default_factory=list)
    clock_s: float = 0.0

    @property
    def has_converged(self) -> bool:
        return not self.ending

    @property
    def seconds(self) -> float:
        """Seconds of training up to the last evaluation."""
        return self.evaluations[-1].seconds

    @property
    def samples(self) -> int:
        """Sequences that it trained on."""
        return self.evaluations[-1].samples


class Runs:
    """Runs of either side in a case. `case` has the parameters `target`, `samples` and `every`."""

    def __init__(self, calls: Calls, case: Case) -> None:
        self.calls, self.case = calls, case
        self.target = float(case.params["target"])  # type: ignore[arg-type]
        self.every = int(case.params["every"])  # type: ignore[arg-type]
        self.samples = int(case.params["samples"])  # type: ignore[arg-type]
        self.seeds = 0, ""

    def make(self, seed: int, hidden_seed: str) -> None:
        """Trusted ranks make what the next runs begin with, which have these seeds, and their held-out data."""
        self.seeds = seed, hidden_seed
        self._hand_out(0)

    def _hand_out(self, period: int) -> None:
        """Trusted ranks write the sequences of that period to where the group's next call finds them."""
        seed, hidden_seed = self.seeds
        spec = wire.InputSpec(seed=seed, hardened=False, hidden_seed=hidden_seed, period=period)
        self.calls.make(self.case, [spec])

    def warm_up(self, side: Side) -> None:
        """Trains up to the first evaluation; nothing comes of it."""
        group: Group = getattr(self.calls, side)
        self._train(group, TrainingRun())
        self.calls.rest(group)

    def run(self, side: Side) -> TrainingRun:
        """A run to the target, or to its own end. Raises what `blamed` makes for one that breaks a rule."""
        group: Group = getattr(self.calls, side)
        try:
            found = self._run(group)
        except (SubmissionFailed, OpponentFailed):
            self.calls.rest(group)
            raise
        self.calls.rest(group)  # not before: its memory on the device is freed with its input
        return found

    def quality_after(self, side: Side, evaluations: int) -> float | None:
        """The quality of that side's weights at that evaluation; None where they are not finite, or not right."""
        group: Group = getattr(self.calls, side)
        run, quality = TrainingRun(), math.inf
        for _ in range(evaluations):
            try:
                self._train(group, run)
                evaluated = self._evaluated(group, run)
            except (SubmissionFailed, OpponentFailed):
                return None
            if evaluated.quality is None:
                return None
            quality = evaluated.quality
        self.calls.rest(group)
        return quality

    def _run(self, group: Group) -> TrainingRun:
        run = TrainingRun(seed=self.seeds[0])
        while not run.ending:
            claims = self._train(group, run)
            if claims.is_done and run.evaluations and claims.samples == run.evaluations[-1].samples:
                run.ending = self._why(run)  # as evaluated before
                break
            began = time.monotonic()
            judged = self._evaluated(group, run)
            reached_s, quality, samples = run.clock_s, judged.quality, self.every * run.periods
            if not self.calls.has_files:  # on GPUs groups are not stopped: the other one may go on training
                run.clock_s += time.monotonic() - began
            if claims.samples != samples and not claims.is_done:
                due = f"the next is due after {samples}"
                raise self._wrong(group, f"it asked for an evaluation after {claims.samples} sequences; {due}")
            if judged.is_unchanged and not claims.is_done:
                before = samples - self.every
                evidence = f"after {samples} sequences a run had the weights of {before}: it did not train"
                raise self.calls.blamed(group, self.case, Held(check="training", evidence=evidence))
            run.evaluations.append(Evaluation(samples=samples, seconds=reached_s, quality=quality))
            if quality is not None and quality <= self.target and not claims.is_done:
                break
            if claims.is_done or quality is None or samples == self.samples:
                run.ending = self._why(run)
        run.loading_s = min(claims.loading_s, run.clock_s)
        return run

    def _train(self, group: Group, run: TrainingRun) -> Claims:
        """Trains on to the next evaluation, with the sequences of a further period."""
        calls = self.calls
        began_s = time.monotonic()
        self._hand_out(run.periods)
        if not run.periods:
            calls.regain(group)
        if calls.has_files or not run.periods:  # else the group was not stopped meanwhile
            began_s = time.monotonic()
        calls.load(group, [0])
        run.periods += 1
        [called] = calls.call(group, CallOrder(indices=[0]))
        if calls.has_files:
            calls.stop(group)
            ended_s = time.monotonic()
        calls.take(group, [called])
        if not calls.has_files:
            ended_s = time.monotonic()
        run.clock_s += ended_s - began_s
        try:
            claims = claims_of(called[0].output)
            run.periods_s += [ended_s - began_s] * (not claims.is_done)
            return claims
        except (DecodeError, ValueError) as error:
            raise self._wrong(group, f"what rank 0 says of its run cannot be read: {error}") from None

    def _wrong(self, group: Group, message: str) -> SubmissionFailed | OpponentFailed:
        return self.calls.blamed(group, self.case, Wrong(message=message))

    def _evaluated(self, group: Group, run: TrainingRun) -> wire.Verified:
        """The trusted ranks' evaluation of the weights that were handed over."""
        began = time.monotonic()
        [ranks] = self.calls.judge(0)
        run.evaluation_s += time.monotonic() - began
        wrong = next((one.verdicts.strict.message for one in ranks if not one.verdicts.strict.passed), "")
        if wrong:
            raise self._wrong(group, wrong)
        return ranks[0]

    def _why(self, run: TrainingRun) -> str:
        """How it ended without having reached the target."""
        last = run.evaluations[-1] if run.evaluations else None
        if last is None or last.quality is None:
            return "diverged: the loss on held-out data is not finite"
        reached = f"{last.quality:.4g} after {last.samples} sequences, the target is {self.target:g}"
        return f"{'used all its data' if last.samples >= self.samples else 'returned early'}: {reached}"


def idle_period(runs: Sequence[TrainingRun], beside: Sequence[TrainingRun]) -> str:
    """The first period that took less than LEAST_PART of the median period, in words; "" if there is none. Its
    sequences cannot all have been trained on. The median is that of these runs or of the other side's, whichever is
    less, because work that a run does once, at its start, may make half of its own periods long."""
    sides = [[span for run in side for span in run.periods_s] for side in (runs, beside)]
    typical = min((median(spans) for spans in sides if spans), default=0.0)
    for number, run in enumerate(runs):
        for one, span in zip(run.evaluations, run.periods_s, strict=False):
            if span < LEAST_PART * typical:
                return (
                    f"in run {number + 1} the period to {one.samples} sequences took {span:.3f} s, where one takes "
                    f"{typical:.3f} s in the median: its sequences cannot all have been trained on"
                )
    return ""


def claims_of(output: wire.Output | None) -> Claims:
    """The claims in a rank's output, beside the weights. Raises ValueError, or DecodeError, where there are none."""
    if output is None or output.kind != "dict" or len(output.keys) != len(output.items):
        raise ValueError("it is no dict")
    plain = {name: item.plain for name, item in zip(output.keys, output.items, strict=True)}
    return decode(Claims, {name: plain.get(name) for name in Claims.__dataclass_fields__})


def mllog_text(run: TrainingRun, benchmark: str, batch_size: float, started_ms: Callable[[], int]) -> str:
    """The run as MLPerf's log lines. Their clock is the run's own: evaluations, which lie beside it, take no time."""
    began_ms, now_s = started_ms(), 0.0
    text = io.StringIO()
    writer = mllog.Writer(text, lambda: began_ms + round(now_s * 1000))
    writer.point("submission_benchmark", benchmark)
    writer.point("seed", run.seed)
    writer.point("global_batch_size", batch_size)
    writer.start("run_start")
    for one in run.evaluations:
        now_s = one.seconds
        writer.point("eval_accuracy", one.quality, samples_count=one.samples)
    writer.end("run_stop", samples_count=run.samples, status="success" if run.has_converged else "aborted")
    return text.getvalue()
