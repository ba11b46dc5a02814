"""What makes a measurement doubtful without making it wrong.

Each check is a function from a report's parts to a warning, and all of them stand in CHECKS. Every warning that a
report can have is a code, here or where it arises, and TEXTS has its words. Pure rules; they decide nothing.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence

from harness.core.machine_records import CpuUse, GpuTrack, NotSampled, Sampling
from harness.core.records import CaseResult, Measured, Warning
from harness.core.stats import log_ratios, median, spread, times_of

RESOLUTION = 0.1  # part of the fastest time that an empty call may take
WEAK = "weak problem"  # how the note of a weak problem's verdict begins
SPREAD = 0.5  # interquartile range over median, of the ratio to the reference: times differ with their inputs
# Cores that others use and ranks need: a pool's threads wait for the one of them that lost its core. 0.2 at most beside
# no other work, 0.6 and more beside one process that computes (2 cores, 2026-11-28).
OTHERS = 0.5
BASELINE = "the reference"
RECOMPILED = re.compile(r"torch\._dynamo hit config\.(\w*recompile_limit) \((\d+)\)")  # in torch's log

# {baseline} is what the submission was measured against; the rest are the warning's values.
TEXTS = {
    "resolution": "an empty call reads {empty:.0f} us, {part:.0%} of the fastest shape: speedups of "
    "short shapes are understated; use no more ranks than cores, or larger shapes, for a finer resolution",
    "unrest": "in {restless} of {count} shapes the ratio to {baseline} spreads by more than {limit:.0%}: is the "
    "machine busy with other work?",
    "slow_judging": "judging outputs took {judging:.0f} s and making inputs {making:.0f} s, by the problem's own code: "
    "{count} benchmarks have half the usual samples, so that the run ends in time",
    "changed": "in {count} blocks no call counts, of either side: a GPU was held down ({reasons}) in the calls of one",
    "published": "{count} cases pass the strict verdict and fail GPU MODE's published tolerance: {message}",
    "make": "in {count} cases the result passes check_implementation but differs in kind from ref_kernel's: {message}",
    "weak": "{text}; the strict verdict, on other inputs too, is the verdict",
    "split": "suite {suite} is for {meant} ranks and was split over {ranks}: its times do not compare with those of "
    "{meant} ranks",
    "nodes": "the ranks were spread over {nodes} nodes, whose clocks are not compared: the wall clock is the longest "
    "of the nodes' own times, without the difference between their starts (docs/cluster.md)",
    "throttled": "GPU {gpu} throttled while it was timed ({reasons}): SM clock {least} to {most} MHz, {celsius} C, "
    "{watts:.0f} W; this run may be slower than the machine can be",
    "others": "other processes used up to {most:.1f} of {cores} cores in {count} of {total} measurements: threads that "
    "wait for one another, the reference's or the submission's, can be many times slower then; evaluate again when "
    "these have ended (`top` lists them)",
    "sandbox": "{text}",  # a layer that is missing, in process.sandbox's words
    "cuda_is_cpu": 'DEVICE=cpu: wherever the problem or the submission names "cuda", the CPU stands in for it; these '
    "times say nothing of GPUs",
    "other_problem": "its `#!POPCORN leaderboard` line names {named}; it was evaluated as {problem}",
    "other_gpus": "the submission is for {gpus}; this machine has {here}",
    "only_theirs": "the folder's own evaluator was run, because {why}",
    "vendor": "profiled by {tool}, outside the sandbox; the problem's check_implementation checked the result in the "
    "same process, and kernels run differently under a profiler",
    "launches": "{case}: {tool} profiled the first {profiled:,} kernel launches of the call and left out the other "
    "{left_out:,}; --launch-count N profiles more of them, in more time",
    "launches_uncounted": "{case}: {tool} profiled the first {profiled:,} kernel launches of the call, which may have "
    "more: they could not be counted; --launch-count N profiles more of them, in more time",
    "theirs": "judged and timed by the folder's own eval.py, in processes that also run the submission and are not "
    "confined: its word is taken, and such runs are ranked apart",
    "reference": "the submission calls the reference or has its text: its speedup is 1, and any other value is noise "
    "of the harness and the machine",
    "captured": "calls of the submission are replays of CUDA graphs (capture: graph), as the folder's eval.py times "
    "them; the reference's are not",
    "validation": "task.yml's validation {version}: {text}",
    "unvalidated": "task.yml's validation {version} was not run, because it takes the submission into its own process; "
    "EVAL=theirs runs it",
    "own_data": "trained on {folder} ({tokens:,} tokens, sha256 {sha256}): such a run is not ranked",
    "uncompiled": "{process}: torch.compile compiles a function {limit} times at most (torch._dynamo.config.{option}), "
    "so that it ran uncompiled on shapes that came later",
    "run": "{case}: {text}",
    "said": "{text}",  # by a report of schema 1, which kept the text alone
    "same_text": "A and B have the same text: any difference is noise of the harness and the machine",
    "differs": "{what} differs: {a} (A), {b} (B)",
    "machines": "A's and B's runs are not known to be of one machine: intervals are {part:.0%} wider on either side; "
    "to be sure, compare the files on one",
    "part_of_score": "compared is {unit} alone; the leaderboard ranks by the {score}",
    "shapes": "{both} shapes are in both runs, of {a} (A) and {b} (B)",
    "drift": "the reference's times in A's run were {ratio} those in B's run, so the machine itself changed by that; "
    "compare the files head to head to be sure",
}

Check = Callable[[Sequence[CaseResult], Sequence[float]], Warning | None]


def text_of(warning: Warning, baseline: str = BASELINE) -> str:
    """The warning in words. `baseline` names what the submission was measured against."""
    return TEXTS[warning.code].format(baseline=baseline, **warning.values)


def resolution(results: Sequence[CaseResult], empty_us: Sequence[float]) -> Warning | None:
    """The clock itself takes a good part of what it measured."""
    timed = [times_of(one.outcome) for one in results if isinstance(one.outcome, Measured)]
    times_us = [median(series.own) for series in timed if series is not None and series.own]
    if not times_us or not empty_us or median(empty_us) <= RESOLUTION * min(times_us):
        return None
    return Warning(code="resolution", values={"empty": median(empty_us), "part": median(empty_us) / min(times_us)})


def unrest(results: Sequence[CaseResult], empty_us: Sequence[float]) -> Warning | None:
    """Other work on the machine, most likely."""
    ranked = [one.outcome.ranked for one in results if isinstance(one.outcome, Measured)]
    spreads = [spread([math.exp(log) for log in log_ratios(series)]) for series in ranked if series.baseline]
    restless = sum(value > SPREAD for value in spreads)
    if not restless:
        return None
    return Warning(code="unrest", values={"restless": restless, "count": len(spreads), "limit": SPREAD})


def published(results: Sequence[CaseResult], empty_us: Sequence[float]) -> Warning | None:
    """Right by the strict checker, and yet GPU MODE would refuse it."""
    refused = [
        one.verdicts
        for one in results
        if one.verdicts and one.verdicts.strict.passed and not one.verdicts.gpumode.passed
    ]
    if not refused:
        return None
    return Warning(code="published", values={"count": len(refused), "message": refused[0].gpumode.message})


def unlike(results: Sequence[CaseResult], empty_us: Sequence[float]) -> Warning | None:
    """Right by the folder's check, which does not look at everything."""
    notes = [one.verdicts.strict.note for one in results if one.verdicts and one.verdicts.strict.note]
    return Warning(code="make", values={"count": len(notes), "message": notes[0]}) if notes else None


def weak(results: Sequence[CaseResult], empty_us: Sequence[float]) -> Warning | None:
    """A problem of another benchmark whose own tolerance takes what computes nothing."""
    notes = [one.verdicts.gpumode.note for one in results if one.verdicts]
    found = [note for note in notes if note.startswith(WEAK)]
    return Warning(code="weak", values={"text": found[0]}) if found else None


def changed(results: Sequence[CaseResult], empty_us: Sequence[float]) -> Warning | None:
    """Calls that do not count, since a GPU was another one for either side."""
    measured = [one.outcome for one in results if isinstance(one.outcome, Measured)]
    blocks = [block for one in measured for block in one.blocks if block.changes and not block.pairs]
    reasons = ", ".join(dict.fromkeys(reason for block in blocks for reason in block.changes))
    return Warning(code="changed", values={"count": len(blocks), "reasons": reasons}) if blocks else None


CHECKS: tuple[Check, ...] = (resolution, unrest, changed, published, unlike, weak)


def warnings(results: Sequence[CaseResult], empty_us: Sequence[float]) -> tuple[Warning, ...]:
    """All warnings, in the order of CHECKS."""
    return tuple(found for check in CHECKS if (found := check(results, empty_us)) is not None)


def of_logs(logs: Mapping[str, str]) -> tuple[Warning, ...]:
    """A warning for each process that printed that torch.compile had given up on a function; `logs` are by process."""
    return tuple(
        Warning(code="uncompiled", values={"process": process, "option": found[1], "limit": int(found[2])})
        for process, text in logs.items()
        if (found := RECOMPILED.search(text))
    )


def of_sampling(sampling: Sampling | None) -> tuple[Warning, ...]:
    """A warning for each GPU that throttled while it was timed."""
    if sampling is None or isinstance(sampling, NotSampled):
        return ()
    return tuple(_throttled(track) for track in sampling.gpus if track.throttled)


def of_cpu_use(use: CpuUse | None) -> tuple[Warning, ...]:
    """A warning that other processes took cores that ranks needed, in those measurements in which they did."""
    taken = [each for each in use.others if each - use.spare >= OTHERS] if use else []
    if use is None or not taken:
        return ()
    counts = {"cores": use.cores, "count": len(taken), "total": len(use.others)}
    return (Warning(code="others", values={"most": max(taken), **counts}),)


def _throttled(track: GpuTrack) -> Warning:
    return Warning(
        code="throttled",
        values={
            "gpu": track.index,
            "reasons": ", ".join(track.throttled),
            "least": track.sm_mhz_min,
            "most": track.sm_mhz_max,
            "celsius": track.temperature_c_max,
            "watts": track.power_w_max,
        },
    )
