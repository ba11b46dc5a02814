"""What makes a measurement doubtful without making it wrong.

Each check is a function from a report's parts to a warning, and all of them stand in CHECKS. Every warning that a
report can have is a code, here or where it arises, and TEXTS has its words. Pure rules; they decide nothing.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping

from harness.core.machine_records import CpuUse, GpuTrack, NotSampled, Sampling
from harness.core.records import EvalReport, Measured, Series, Warning
from harness.core.stats import log_ratios, median, quartiles, spread, times_of
from harness.core.words import count_text

RESOLUTION = 0.1  # part of the fastest time that an empty call may take
WEAK = "weak problem"  # how the note of a weak problem's verdict begins
SPREAD = 0.5  # interquartile range over median, of the ratio to the reference: times differ with their inputs
# Interquartile range of one side's times over the other's on the same inputs. A file as even as the reference exceeds
# it at 1 to 2 shapes in 100 with 16 samples, at 3 to 6 in 1000 with 36 (drawn from quick suites' calls, 2 cores,
# 2026-11-28).
UNEVEN, UNEVEN_SAMPLES = 3, 16
# Cores that others use and ranks need: a pool's threads wait for the one of them that lost its core. 0.2 at most beside
# no other work, 0.6 and more beside one process that computes (2 cores, 2026-11-28).
OTHERS = 0.5
BASELINE = "the reference"
RECOMPILED = re.compile(r"torch\._dynamo hit config\.(\w*recompile_limit) \((\d+)\)")  # in torch's log

# {baseline} is what the submission was measured against, {cases} and {blocks} are the value `count` with its noun; the
# rest are the warning's values.
TEXTS = {
    "resolution": "an empty call reads {empty:.0f} us, {part:.0%} of the fastest shape: speedups of "
    "short shapes are understated; use larger shapes for a finer resolution",
    "resolution_ranks": "an empty call reads {empty:.0f} us, {part:.0%} of the fastest shape: speedups of "
    "short shapes are understated; use no more ranks than cores ({cores}), or larger shapes, for a finer resolution",
    "resolution_device": "empty calls differ by {empty:.1f} us, {part:.0%} of the fastest shape, whose figures are "
    "known no better than that; use larger shapes for a finer resolution",
    "uneven": "in {uneven} of {count} shapes times differ by over {limit} times as much as those of {baseline} in turn "
    "with them: find what some of the calls do and others do not (compile, allocate, wait)",
    "unrest": "in {restless} of {count} shapes the ratio to {baseline} spreads by more than {limit:.0%}: is the "
    "machine busy with other work?",
    "slow_judging": "judging outputs took {judging:.0f} s and making inputs {making:.0f} s, by the problem's own code: "
    "of {count} of the benchmarks half the usual samples were taken, so that the run ends in time",
    "changed": "in {blocks} no call counts, of either side: a GPU was held down ({reasons}) in the calls of one",
    "published": "{cases} passed the strict verdict and failed GPU MODE's published tolerance: {message}",
    "make": "in {cases} the result passes check_implementation but differs in kind from ref_kernel's: {message}",
    "weak": "{text}; the strict verdict, on other inputs too, is the verdict",
    "split": "suite {suite} is for a world size of {meant} and was split over {ranks}: its times do not compare with "
    "those on {meant}",
    "nodes": "the ranks were spread over {nodes} nodes, whose clocks are not compared: the wall clock is the longest "
    "of the nodes' own times, without the difference between their starts (docs/cluster.md)",
    "throttled": "GPU {gpu} throttled while it was timed ({reasons}): SM clock {least} to {most} MHz, {celsius} C, "
    "{watts:.0f} W; this run may be slower than the machine can be",
    "others": "other work took up to {most:.1f} of {cores} cores in {count} of {total} measurements: threads that wait "
    "for one another, of either side, can be many times slower then; evaluate again when it has ended (`top` lists "
    "processes, and other guests' time as `st`)",
    "sandbox": "{text}",  # a layer that is missing, in process.sandbox's words
    "cuda_is_cpu": 'DEVICE=cpu: wherever the problem or the submission names "cuda", the CPU stands in for it, whose '
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
# Why the figure itself is doubtful, not one part of it or how it came about; in a few words for the line that has it.
DOUBTS = {
    "others": "other work took cores",
    "unrest": "ratios spread by more than half",
    "uneven": "the submission's calls differ",
    "throttled": "a GPU throttled",
    "changed": "a GPU was held down",
}

Check = Callable[[EvalReport], Warning | None]


def text_of(warning: Warning, baseline: str = BASELINE) -> str:
    """The warning in words. `baseline` names what the submission was measured against."""
    count = warning.values.get("count")
    counted = {f"{what}s": count_text(count, what) for what in ("case", "block")} if isinstance(count, int) else {}
    return TEXTS[warning.code].format(baseline=baseline, **counted | warning.values)


def doubts(warnings: Iterable[Warning]) -> str:
    """Why a figure with these warnings is doubtful, in a few words; "" where it is not."""
    return ", ".join(dict.fromkeys(DOUBTS[one.code] for one in warnings if one.code in DOUBTS))


def resolution(report: EvalReport) -> Warning | None:
    """The clock itself takes a good part of what it measured, or differs by it."""
    timed = [times_of(one) for one in _measured(report)]
    times_us = [median(series.own) for series in timed if series is not None and series.own]
    clock, empty_us = next(iter(report.empty_call_samples_us.items()), ("", ()))  # of the clock that ranks
    if not times_us or not empty_us or median(empty_us) <= RESOLUTION * min(times_us):
        return None
    values: dict[str, str | int | float] = {"empty": median(empty_us), "part": median(empty_us) / min(times_us)}
    cores = report.environment.cores if report.environment else None
    if clock == "device":
        return Warning(code="resolution_device", values=values)
    if report.device == "cpu" and cores is not None and report.world_size > cores:
        return Warning(code="resolution_ranks", values=values | {"cores": cores})
    return Warning(code="resolution", values=values)


def uneven(report: EvalReport) -> Warning | None:
    """The submission, most likely: the reference's calls, in turn with its own, were even. Nothing is said of it where
    others took cores, which either side may feel alone."""
    found = sum(map(_is_uneven, _restless(report)))
    if not found or of_cpu_use(report.cpu_use):
        return None
    count = sum(bool(one.ranked.baseline) for one in _measured(report))
    return Warning(code="uneven", values={"uneven": found, "count": count, "limit": UNEVEN})


def unrest(report: EvalReport) -> Warning | None:
    """Other work on the machine, most likely, where nobody saw what others used of it meanwhile. Where that was seen,
    `others` says so, or there was none: then short calls differ because cores wake up and ranks share them, which the
    interval has and the user cannot change."""
    restless = [series for series in _restless(report) if not _is_uneven(series)]
    if not restless or report.cpu_use is not None:
        return None
    count = sum(bool(one.ranked.baseline) for one in _measured(report))
    return Warning(code="unrest", values={"restless": len(restless), "count": count, "limit": SPREAD})


def published(report: EvalReport) -> Warning | None:
    """Right by the strict checker, and yet GPU MODE would refuse it."""
    refused = [
        one.verdicts
        for one in report.results
        if one.verdicts and one.verdicts.strict.passed and not one.verdicts.gpumode.passed
    ]
    if not refused:
        return None
    return Warning(code="published", values={"count": len(refused), "message": refused[0].gpumode.message})


def unlike(report: EvalReport) -> Warning | None:
    """Right by the folder's check, which does not look at everything."""
    notes = [one.verdicts.strict.note for one in report.results if one.verdicts and one.verdicts.strict.note]
    return Warning(code="make", values={"count": len(notes), "message": notes[0]}) if notes else None


def weak(report: EvalReport) -> Warning | None:
    """A problem of another benchmark whose own tolerance takes what computes nothing."""
    notes = [one.verdicts.gpumode.note for one in report.results if one.verdicts]
    found = [note for note in notes if note.startswith(WEAK)]
    return Warning(code="weak", values={"text": found[0]}) if found else None


def changed(report: EvalReport) -> Warning | None:
    """Calls that do not count, since a GPU was another one for either side."""
    blocks = [block for one in _measured(report) for block in one.blocks if block.changes and not block.pairs]
    reasons = ", ".join(dict.fromkeys(reason for block in blocks for reason in block.changes))
    return Warning(code="changed", values={"count": len(blocks), "reasons": reasons}) if blocks else None


CHECKS: tuple[Check, ...] = (resolution, uneven, unrest, changed, published, unlike, weak)


def warnings(report: EvalReport) -> tuple[Warning, ...]:
    """All warnings, in the order of CHECKS."""
    return tuple(found for check in CHECKS if (found := check(report)) is not None)


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
    """A warning that others took cores that ranks needed, in those measurements in which they did."""
    taken = [each for each in use.others if each - use.spare >= OTHERS] if use else []
    if use is None or not taken:
        return ()
    counts = {"cores": use.cores, "count": len(taken), "total": len(use.others)}
    return (Warning(code="others", values={"most": max(taken), **counts}),)


def of_judges(shortened: int, making_s: float, judging_s: float, use: CpuUse | None) -> tuple[Warning, ...]:
    """A warning that so many cases have fewer samples than usual because making inputs or judging outputs was slow;
    beside others that took cores everything is, and they are what is said."""
    if not shortened or of_cpu_use(use):
        return ()
    return (Warning(code="slow_judging", values={"count": shortened, "making": making_s, "judging": judging_s}),)


def _measured(report: EvalReport) -> list[Measured]:
    return [one.outcome for one in report.results if isinstance(one.outcome, Measured)]


def _restless(report: EvalReport) -> list[Series]:
    """The series that rank whose ratios to the baseline spread by more than SPREAD."""
    ranked = [one.ranked for one in _measured(report) if one.ranked.baseline]
    return [series for series in ranked if spread([math.exp(log) for log in log_ratios(series)]) > SPREAD]


def _is_uneven(series: Series) -> bool:
    """Whether its own times spread UNEVEN times as far as the baseline's, or as those would if all took as much longer
    as the shorter of its own do: what a machine adds to a call may grow with the call, and does not shrink with it."""
    (low, high), (other_low, other_high) = map(quartiles, (series.own, series.baseline))
    alike = (other_high - other_low) * (max(1.0, low / other_low) if other_low > 0 else 1.0)
    return len(series.own) >= UNEVEN_SAMPLES and spread(series.own) > SPREAD and high - low > UNEVEN * alike


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
