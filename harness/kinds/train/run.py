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
from harness.ranks.group import Group

Side = Literal["candidate", "baseline"]
LEAST_PART = 0.25  # of the time that a period typically takes
MOST_LOADING_S = 3e7


@dataclass(frozen=True, kw_only=True)
class Claims:
    """Rank 0's claims: after how many sequences of all ranks it has weights evaluated, its seconds of loading, and
    whether it has returned."""

    samples: int
    loading_s: float
    is_done: bool

    def __post_init__(self) -> None:
        if not 0 <= self.loading_s < MOST_LOADING_S:
            raise DecodeError(".loading_s", "expected seconds, less than a year's")


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Weights after `samples` sequences, which were handed out, and `seconds` of training; `quality` is None where it
    is not finite."""

    samples: int
    seconds: float
    quality: float | None


@dataclass(frozen=True, kw_only=True)
class TrainingRun:
    """A run to its end. `evaluation_s` is what trusted ranks took, beside the clock; `periods_s` what each period took
    to the evaluation that train() asked for at its end; `ending` says how a run ended that did not reach the target."""

    seed: int
    evaluations: tuple[Evaluation, ...]
    loading_s: float
    evaluation_s: float
    ending: str
    periods_s: tuple[float, ...] = ()

    @property
    def has_converged(self) -> bool:
        """Whether it reached the target."""
        return not self.ending

    @property
    def seconds(self) -> float:
        """Seconds of training up to the last evaluation."""
        return self.evaluations[-1].seconds

    @property
    def samples(self) -> int:
        """Sequences that it trained on."""
        return self.evaluations[-1].samples


@dataclass
class _Going:
    """A run that is under way. `periods` is how many have begun; `periods_s` has the times of those that have ended."""

    seconds: float = 0.0
    periods_s: list[float] = field(default_factory=list)
    periods: int = 0
    evaluation_s: float = 0.0
    evaluations: list[Evaluation] = field(default_factory=list)


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
        self._train(group, _Going())
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
        going, quality = _Going(), math.inf
        for _ in range(evaluations):
            try:
                self._train(group, going)
                evaluated = self._evaluated(group, going)
            except (SubmissionFailed, OpponentFailed):
                return None
            if evaluated.quality is None:
                return None
            quality = evaluated.quality
        self.calls.rest(group)
        return quality

    def _run(self, group: Group) -> TrainingRun:
        going = _Going()
        while True:
            claims = self._train(group, going)
            if claims.is_done and going.evaluations and claims.samples == going.evaluations[-1].samples:
                return self._ended(going, claims, self._why(going))  # as evaluated before
            began = time.monotonic()
            judged = self._evaluated(group, going)
            reached_s, quality, samples = going.seconds, judged.quality, self.every * going.periods
            if not self.calls.has_files:  # on GPUs groups are not stopped: the other one may go on training
                going.seconds += time.monotonic() - began
            if claims.samples != samples and not claims.is_done:
                due = f"the next is due after {samples}"
                raise self._wrong(group, f"it asked for an evaluation after {claims.samples} sequences; {due}")
            if judged.is_unchanged and not claims.is_done:
                before = samples - self.every
                evidence = f"after {samples} sequences a run had the weights of {before}: it did not train"
                raise self.calls.blamed(group, self.case, Held(check="training", evidence=evidence))
            going.evaluations.append(Evaluation(samples=samples, seconds=reached_s, quality=quality))
            if quality is not None and quality <= self.target and not claims.is_done:
                return self._ended(going, claims, "")
            if claims.is_done or quality is None or samples == self.samples:
                return self._ended(going, claims, self._why(going))

    def _train(self, group: Group, going: _Going) -> Claims:
        """Trains on to the next evaluation, with the sequences of a further period."""
        calls = self.calls
        began_s = time.monotonic()
        self._hand_out(going.periods)
        if not going.periods:
            calls.regain(group)
        if calls.has_files or not going.periods:  # else the group was not stopped meanwhile
            began_s = time.monotonic()
        calls.load(group, [0])
        going.periods += 1
        [called] = calls.call(group, [0], "wall")
        if calls.has_files:
            calls.stop(group)
            ended_s = time.monotonic()
        calls.take(group, [called])
        if not calls.has_files:
            ended_s = time.monotonic()
        going.seconds += ended_s - began_s
        try:
            claims = claims_of(called[0].output)
            going.periods_s += [ended_s - began_s] * (not claims.is_done)
            return claims
        except (DecodeError, ValueError) as error:
            raise self._wrong(group, f"what rank 0 says of its run cannot be read: {error}") from None

    def _wrong(self, group: Group, message: str) -> SubmissionFailed | OpponentFailed:
        return self.calls.blamed(group, self.case, Wrong(message=message))

    def _evaluated(self, group: Group, going: _Going) -> wire.Verified:
        """The trusted ranks' evaluation of the weights that were handed over."""
        began = time.monotonic()
        [ranks] = self.calls.judge(0)
        going.evaluation_s += time.monotonic() - began
        wrong = next((one.verdicts.strict.message for one in ranks if not one.verdicts.strict.passed), "")
        if wrong:
            raise self._wrong(group, wrong)
        return ranks[0]

    def _why(self, going: _Going) -> str:
        """How it ended without having reached the target."""
        last = going.evaluations[-1] if going.evaluations else None
        if last is None or last.quality is None:
            return "diverged: the loss on held-out data is not finite"
        reached = f"{last.quality:.4g} after {last.samples} sequences, the target is {self.target:g}"
        return f"{'used all its data' if last.samples >= self.samples else 'returned early'}: {reached}"

    def _ended(self, going: _Going, claims: Claims, ending: str) -> TrainingRun:
        return TrainingRun(
            seed=self.seeds[0],
            evaluations=tuple(going.evaluations),
            loading_s=min(claims.loading_s, going.seconds),
            evaluation_s=going.evaluation_s,
            periods_s=tuple(going.periods_s),
            ending=ending,
        )


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
