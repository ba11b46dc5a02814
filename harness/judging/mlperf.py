"""MLPerf's score of a training benchmark: from the events of a log to a run, from runs to minutes.

A run lasts from `run_start` to `run_stop` by the log's own clock. The score is the Olympic mean over a fixed number of
runs: without the fastest and the slowest. One run that did not converge counts as the slowest; two refuse the entry.

Reference convergence points are the reference's own runs at a batch size, as samples until it converged. Who converges
in fewer samples than the reference by more than chance (one-sided t-test at 5 %, with the reference's spread for both
sides) is refused; who is faster within chance has the score multiplied by reference mean / own mean, both Olympic.
Source of these rules: mlcommons/training_policies and mlcommons/logging (rcp_checker).
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from harness.core.errors import BadFileError
from harness.core.mllog import LogEvent
from harness.core.olympic import NoScoreError, olympic_mean
from harness.core.stats import student_t
from harness.core.words import count_text

RUNS: Mapping[str, int] = {"llama2_70b_lora": 10, "llama31_8b": 10}  # that the rules ask for
CONFIDENCE = 0.95
MOST = 2**63  # of a number that a log has; json reads larger ones too
SAME_FACTOR = 1e-6  # what a published factor may differ by from the computed one, as a fraction
ENDS = ("success", "aborted")  # what run_stop may say of its run
SAME = {  # what the logs of one result have in common, by its field of Run
    "benchmark": "submission_benchmark",
    "platform": "submission_platform",
    "org": "submission_org",
    "division": "submission_division",
    "batch": "global_batch_size",
}


@dataclass(frozen=True, kw_only=True)
class LoggedRun:
    """One log. `samples`, `epoch` and `quality` are the last evaluation's; None for what the log does not say."""

    file: str
    seconds: float
    converged: bool
    samples: float | None
    epoch: float | None
    quality: float | None
    seed: int | None
    benchmark: str | None
    platform: str | None
    org: str | None
    division: str | None
    batch: float | None


@dataclass(frozen=True, kw_only=True)
class ReferenceRuns:
    """The reference's runs at one batch size, each as the samples (or epochs) until it converged."""

    benchmark: str
    batch: int
    unit: Literal["samples", "epochs"]
    runs: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class ScoredResult:
    """Runs and their score. `mean_s` is None where more than one run did not converge, or too few are there. `refused`
    says why MLPerf would not take the result; empty where it would. `factor_from` says where the factor comes from."""

    runs: tuple[LoggedRun, ...]
    mean_s: float | None
    factor: float
    factor_from: str
    refused: tuple[str, ...]

    @property
    def score_s(self) -> float | None:
        """The result: mean times factor, in seconds."""
        return None if self.mean_s is None else self.mean_s * self.factor


# ---- a log -----------------------------------------------------------------------------------------------------------
def run_of(events: Sequence[LogEvent], file: str) -> LoggedRun:
    """The run that a log has. Raises BadFileError for a log with none or several, or that contradicts itself."""
    start, stop = _only(events, "run_start", file), _only(events, "run_stop", file)
    if stop.time_ms <= start.time_ms:
        raise BadFileError(
            f"{file}: run_stop is not after run_start; the log's times were altered or its clock was set"
        )
    status = stop.metadata.get("status")
    if status not in ENDS:
        raise BadFileError(f"{file}: run_stop has the status {status!r}; expected one of {', '.join(ENDS)}")
    last = [event for event in events if event.key in ("eval_accuracy", "eval_error") and event.time_ms <= stop.time_ms]
    counts: Mapping[str, Any] = last[-1].metadata if last else {}
    seeds = (event.value for event in events if event.key == "seed")
    return LoggedRun(
        file=file,
        seconds=(stop.time_ms - start.time_ms) / 1000,
        converged=status == "success",
        samples=_number(counts.get("samples_count", stop.metadata.get("samples_count"))),
        epoch=_number(counts.get("epoch_num", stop.metadata.get("epoch_num"))),
        quality=_number(last[-1].value) if last else None,
        seed=next((one for one in seeds if type(one) is int and abs(one) < MOST), None),
        **{field: _stated(events, key, (int, float) if field == "batch" else str, file) for field, key in SAME.items()},
    )


def _only(events: Sequence[LogEvent], key: str, file: str) -> LogEvent:
    found = [event for event in events if event.key == key]
    if not found:
        cut_off = ": it ends before its run does, or was cut off" if key == "run_stop" else ""
        raise BadFileError(f"{file}: the log has no {key}{cut_off}; score whole logs only")
    if len(found) > 1:
        raise BadFileError(f"{file}: the log has {len(found)} lines {key}; a log holds one run, so split it")
    return found[0]


def _stated(events: Sequence[LogEvent], key: str, kind: type | tuple[type, ...], file: str) -> Any:
    """What the log says under that key, None where it says nothing. Raises BadFileError where it says two things."""
    values = [event.value for event in events if event.key == key]
    if any(not isinstance(value, kind) or isinstance(value, bool) for value in values):
        raise BadFileError(f"{file}: the key {key} has a value that is no {'text' if kind is str else 'number'}")
    if len(set(values)) > 1:
        raise BadFileError(f"{file}: the key {key} stands there with several values: {', '.join(map(str, values))}")
    return values[0] if values else None


def _number(value: object) -> float | None:
    """A finite number; None for anything else, as for the quality of a run that diverged."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < MOST:
        return None
    return float(value)


# ---- the score -------------------------------------------------------------------------------------------------------
def result_of(
    runs: Sequence[LoggedRun], published: float | None = None, references: Sequence[ReferenceRuns] | None = None
) -> ScoredResult:
    """The score of one result's runs. `published` is the scaling factor that came with the logs; it is used where there
    are no `references`, and has to agree with them where there are. Raises BadFileError where the runs are not of one
    system, or no reference is of their batch size."""
    check_alike(runs)
    refused = [*_miscounted(runs), *_seeds_alike(runs)]
    mean = None
    try:
        mean = olympic_mean([run.seconds if run.converged else None for run in runs])
    except NoScoreError as error:
        failed = [run.file for run in runs if not run.converged]
        refused.append(str(error) + (f" ({', '.join(failed)})" if failed else ""))
    factor = 1.0 if published is None else published
    source = "none given" if published is None else "scaling.json"
    if references is not None and mean is not None:
        factor, source, problem = _by_reference(runs, references)
        if problem:
            refused.append(problem)
        elif published is not None and abs(published / factor - 1) > SAME_FACTOR:
            refused.append(f"scaling.json says {published:.6f}, the reference's runs give {factor:.6f}")
    return ScoredResult(runs=tuple(runs), mean_s=mean, factor=factor, factor_from=source, refused=tuple(refused))


def check_alike(runs: Sequence[LoggedRun]) -> None:
    """Raises BadFileError where two runs name another benchmark, system, organisation, division or batch size."""
    first = runs[0]
    for run in runs[1:]:
        for field, key in SAME.items():
            one, other = getattr(first, field), getattr(run, field)
            if one != other:
                raise BadFileError(
                    f"the logs are not of one result: {key} is {one} in {first.file} and {other} in {run.file}; put "
                    "each result's logs into a folder of their own"
                )


def _miscounted(runs: Sequence[LoggedRun]) -> list[str]:
    wanted = RUNS.get(runs[0].benchmark or "")
    if wanted is not None and len(runs) != wanted:
        count = count_text(len(runs), "run")
        return [f"{count}; {runs[0].benchmark} takes exactly {wanted}, so that nobody picks the best of more"]
    return []


def _seeds_alike(runs: Sequence[LoggedRun]) -> list[str]:
    seen: dict[int, str] = {}
    found = []
    for run in runs:
        if run.seed is None:
            found.append(f"{run.file} logs no seed")
        elif run.seed in seen:
            found.append(f"{run.file} has the seed {run.seed} of {seen[run.seed]}; runs differ in their seed")
        else:
            seen[run.seed] = run.file
    return found


def _by_reference(runs: Sequence[LoggedRun], references: Sequence[ReferenceRuns]) -> tuple[float, str, str]:
    """The factor, its source, and why the result is refused, or ""."""
    first = runs[0]
    known = [one for one in references if one.benchmark == first.benchmark]
    one = next((one for one in known if one.batch == first.batch), None)
    if one is None:
        have = ", ".join(str(each.batch) for each in known) or "none"
        raise BadFileError(
            f"the reference has no runs of {first.benchmark} at a global batch size of {first.batch} (it has {have})"
        )
    own, mean = olympic_mean([_count(run, one.unit) for run in runs]), olympic_mean(one.runs)
    least = least_mean(one, len(runs))
    source = f"the reference's {len(one.runs)} runs at batch size {one.batch}: {mean:.6g} {one.unit} on average"
    if own < least:
        why = f"converged in {own:.6g} {one.unit} on average; chance explains {least:.6g} and more, so it is refused"
        return 1.0, source, why
    return max(1.0, mean / own), source, ""


def least_mean(reference: ReferenceRuns, runs: int) -> float:
    """The smallest Olympic mean over so many runs that chance explains."""
    kept, own = len(reference.runs) - 2, runs - 2
    t = student_t(CONFIDENCE, kept + own - 2) if kept + own > 2 else math.inf
    spread = statistics.pstdev(reference.runs)
    return olympic_mean(reference.runs) - (t * spread * math.sqrt(1 / kept + 1 / own) if spread else 0.0)


def _count(run: LoggedRun, unit: str) -> float | None:
    """How many samples or epochs the run took; None for one that did not converge."""
    if not run.converged:
        return None
    count = run.samples if unit == "samples" or run.epoch is None else run.epoch
    if count is None or count <= 0:
        raise BadFileError(f"{run.file}: no evaluation says how many {unit} it took; the reference cannot be compared")
    return count
