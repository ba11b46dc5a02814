"""One training run of a group of ranks: trained on to each evaluation, evaluated by trusted ranks, timed by the parent.

The clock runs from when the group is let into a call until its weights are here and cannot be changed any more.
Evaluations, and making data, are between calls; on CPUs, where the group is frozen then, the clock stands.
"""

import io
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from harness.core import mllog
from harness.core.decode import DecodeError, decode
from harness.core.records import Case, Wrong
from harness.kinds.op_calls import Calls
from harness.ranks import wire
from harness.ranks.group import Group

Side = Literal["candidate", "baseline"]


@dataclass(frozen=True, kw_only=True)
class Claims:
    """What rank 0 says it has counted, of all ranks: sequences read and logged, and its seconds of loading."""

    read: int
    samples: int
    loading_s: float
    is_done: bool


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Weights after `samples` sequences and `seconds` of training; `quality` is None where it is not finite."""

    samples: int
    seconds: float
    quality: float | None


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run to its end. `evaluation_s` is what trusted ranks took, beside the clock; `ending` says how a run ended that
    did not reach the target."""

    seed: int
    evaluations: tuple[Evaluation, ...]
    loading_s: float
    evaluation_s: float
    ending: str

    @property
    def has_converged(self) -> bool:
        """Whether it reached the target."""
        return not self.ending

    @property
    def seconds(self) -> float:
        """Of training."""
        return self.evaluations[-1].seconds

    @property
    def samples(self) -> int:
        """Sequences that it trained on."""
        return self.evaluations[-1].samples


@dataclass
class _Going:
    """A run that is under way."""

    seconds: float = 0.0
    evaluation_s: float = 0.0
    evaluations: list[Evaluation] = field(default_factory=list)


class Runs:
    """Runs of either side in a case. `case` has the parameters `target`, `samples` and `every`."""

    def __init__(self, calls: Calls, case: Case) -> None:
        self.calls, self.case = calls, case
        self.target = float(case.params["target"])  # type: ignore[arg-type]
        self.every = int(case.params["every"])  # type: ignore[arg-type]

    def make(self, seed: int) -> None:
        """Trusted ranks make what runs with that seed begin with, and their held-out data."""
        self.calls.make(self.case, [wire.InputSpec(seed=seed, hardened=False)])

    def warm_up(self, side: Side) -> None:
        """Trains up to the first evaluation; nothing comes of it."""
        group: Group = getattr(self.calls, side)
        self._train(group, _Going())
        self.calls.rest(group)

    def run(self, side: Side, seed: int) -> Run | Wrong:
        """A run to the target, or to its own end; Wrong for one that breaks a rule."""
        group: Group = getattr(self.calls, side)
        found = self._run(group, seed)
        self.calls.rest(group)  # not before: what it has on its device goes with its input
        return found

    def quality_after(self, side: Side, evaluations: int) -> float | None:
        """What that side's weights are worth at that evaluation; None where they are not finite, or not right."""
        group: Group = getattr(self.calls, side)
        going, quality = _Going(), math.inf
        for _ in range(evaluations):
            if isinstance(self._train(group, going), Wrong):
                return None
            evaluated = self._evaluated(going)
            if not isinstance(evaluated, float):
                return None
            quality = evaluated
        self.calls.rest(group)
        return quality

    def _run(self, group: Group, seed: int) -> Run | Wrong:
        going = _Going()
        while True:
            claims = self._train(group, going)
            if isinstance(claims, Wrong):
                return claims
            if claims.is_done and going.evaluations and claims.samples == going.evaluations[-1].samples:
                return self._ended(going, claims, seed, self._why(claims, going))  # as evaluated before
            began = time.monotonic()
            quality = self._evaluated(going)
            if isinstance(quality, Wrong):
                return quality
            reached_s = going.seconds
            if not self.calls.has_files:  # on GPUs nobody is frozen: who is not on turn may go on training
                going.seconds += time.monotonic() - began
            if wrong := self._broken(claims, going):
                return Wrong(message=wrong)
            going.evaluations.append(Evaluation(samples=claims.samples, seconds=reached_s, quality=quality))
            if quality is not None and quality <= self.target:
                return self._ended(going, claims, seed, "")
            if claims.is_done or quality is None:
                return self._ended(going, claims, seed, self._why(claims, going))

    def _train(self, group: Group, going: _Going) -> Claims | Wrong:
        """Trains on to the next evaluation."""
        calls = self.calls
        is_first = not going.seconds
        if is_first:
            calls.regain(group)
            calls.load(group, [0])
        began_ns = time.monotonic_ns()
        [called] = calls.call(group, [0], "wall", again=not is_first)
        if calls.has_files:
            began_ns, ended_ns = group.opened_ns, group.sealed_ns()
            calls.rest(group)
        calls.take(group, [called])
        if not calls.has_files:
            ended_ns = time.monotonic_ns()
        going.seconds += (ended_ns - began_ns) / 1e9
        try:
            return claims_of(called[0].output)
        except (DecodeError, ValueError) as error:
            return Wrong(message=f"what rank 0 says of its run cannot be read: {error}")

    def _evaluated(self, going: _Going) -> float | Wrong | None:
        """The quality of the weights that were handed over."""
        began = time.monotonic()
        [ranks] = self.calls.judge(0)
        going.evaluation_s += time.monotonic() - began
        wrong = next((one.verdicts.strict.message for one in ranks if not one.verdicts.strict.passed), "")
        return Wrong(message=wrong) if wrong else ranks[0].quality

    def _broken(self, claims: Claims, going: _Going) -> str:
        """The rule that this evaluation breaks, or ""."""
        if claims.read > claims.samples:
            return (
                f"it logged {claims.samples} sequences and read {claims.read}: it trains on more than it logs "
                "(log.evaluate(weights, samples) counts those of all ranks since the run began)"
            )
        due = self.every * (len(going.evaluations) + 1)
        if claims.samples != due and not claims.is_done:
            return f"it asked for an evaluation after {claims.samples} sequences; the next is due after {due}"
        return ""

    def _why(self, claims: Claims, going: _Going) -> str:
        """How it ended without having reached the target."""
        last = going.evaluations[-1] if going.evaluations else None
        if last is None or last.quality is None:
            return "diverged: the loss on held-out data is not finite"
        reached = f"{last.quality:.4g} after {last.samples} sequences, the target is {self.target:g}"
        used_up = claims.samples >= int(self.case.params["samples"])  # type: ignore[arg-type]
        return f"{'used all its data' if used_up else 'returned early'}: {reached}"

    def _ended(self, going: _Going, claims: Claims, seed: int, ending: str) -> Run:
        return Run(
            seed=seed,
            evaluations=tuple(going.evaluations),
            loading_s=min(claims.loading_s, going.seconds),
            evaluation_s=going.evaluation_s,
            ending=ending,
        )


def claims_of(output: wire.Output | None) -> Claims:
    """What a rank's output says beside the weights. Raises DecodeError for what does not."""
    if output is None or output.kind != "dict" or len(output.keys) != len(output.items):
        raise ValueError("it is no dict")
    plain = {name: item.plain for name, item in zip(output.keys, output.items, strict=True)}
    return decode(Claims, {name: plain.get(name) for name in Claims.__dataclass_fields__})


def mllog_text(run: Run, benchmark: str, batch_size: float, started_ms: Callable[[], int]) -> str:
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
