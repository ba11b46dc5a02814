"""`compare` of two recorded runs: each is divided by its own reference. compare.py has the rule.

Reads reports that were decoded, and runs nothing.
"""

import math
from collections.abc import Sequence

from harness.board.entries import Board
from harness.board.places import MACHINES, noise_of, shape_of
from harness.core.decode import part
from harness.core.errors import UsageError
from harness.core.records import CaseResult, EvalReport, Measured, Warning
from harness.core.words import count_text
from harness.evaluation import compare
from harness.evaluation.compare import CaseRow, Comparison, Difference, Side
from harness.judging import verdict


def recorded(a: EvalReport, b: EvalReport, margin: float, board: Board | None = None) -> Comparison:
    """Two recorded runs, shape by shape, each divided by its own reference; `board` knows what launches differ by.
    Raises UsageError for what cannot be compared: one run with itself, runs of two problems, runs that did not pass or
    timed nothing, runs without a common shape."""
    if a.run_id == b.run_id:
        raise UsageError(f"A and B are the same run, {a.run_id}; name two")
    if a.problem != b.problem:
        raise UsageError(f"{a.run_id} is of {a.problem} and {b.run_id} of {b.problem}; compare runs of one problem")
    for run in (a, b):
        status = verdict.status(run)
        if status != "pass":
            raise UsageError(f"{run.run_id} did not pass ({status}), so its figures say nothing; compare one that did")
        if not _timed(run):
            raise UsageError(f"{run.run_id} measured nothing (mode {run.mode}); compare one of mode leaderboard")
    theirs = {shape_of(result.case.params): measured.ranked for result, measured in _timed(b)}
    pairs = [
        (result, measured.ranked, theirs[shape_of(result.case.params)])
        for result, measured in _timed(a)
        if shape_of(result.case.params) in theirs
    ]
    if not pairs:
        raise UsageError(
            f"{a.run_id} and {b.run_id} have no shape in common (suites {a.suite} and {b.suite}); "
            "evaluate both files on one suite, or compare them as files (--problem)"
        )
    warnings = [
        Warning(code="differs", values={"what": what, "a": one, "b": other})
        for what, one, other in _conditions(a, b)
        if one != other
    ]
    if not len(pairs) == len(_timed(a)) == len(_timed(b)):
        counts: dict[str, str | int | float] = {"both": len(pairs), "a": len(_timed(a)), "b": len(_timed(b))}
        warnings.append(Warning(code="shapes", values=counts))
    if apart := _apart(a, b):
        warnings.append(Warning(code="machines", values={"part": math.expm1(apart)}))
    references = [compare.unpaired(one.baseline, other.baseline, one.block) for _, one, other in pairs]
    warnings += _drift(references, margin)
    machine_class = a.environment.machine_class if a.environment else ""
    rows = [
        CaseRow(
            label=result.case.title,
            params=result.case.params,
            a=one.own,
            b=other.own,
            difference=compare.by_references(one, other),
            drift=reference.log,
        )
        for (result, one, other), reference in zip(pairs, references, strict=True)
    ]
    return part(
        a,
        Comparison,
        metric=compare.metric_of(a),
        how="unpaired",
        margin=margin,
        a=part(a.submission, Side, run_id=a.run_id),
        b=part(b.submission, Side, run_id=b.run_id),
        rows=tuple(rows),
        warnings=(*warnings, *compare.same_text(a.submission, b.submission), *compare.part_of_score(a)),
        noise=noise_of(board or Board(), a.problem, machine_class, a.device),
        apart=apart,
    )


def _timed(run: EvalReport) -> list[tuple[CaseResult, Measured]]:
    """The cases with samples of either side."""
    return [(result, one) for result, one in verdict.measured_cases(run) if one.ranked.baseline]


def _apart(a: EvalReport, b: EvalReport) -> float:
    """By how much log(A / B) may be off if the runs are of two machines. Machines without an id are taken for one."""
    one, other = ((env.machine_class, env.machine) if (env := run.environment) else ("", "") for run in (a, b))
    return 0.0 if one == other else MACHINES


def _drift(references: Sequence[Difference], margin: float) -> list[Warning]:
    """The warning that the reference itself differed between the runs, in a shape or over all of them."""
    moved = [compare.ratio(one, margin) for one in references]
    if not any(one.word in ("BETTER", "WORSE") for one in (*moved, compare.ratio(compare.mean(references), margin))):
        return []
    ends = (min(moved, key=lambda one: one.value), max(moved, key=lambda one: one.value))
    return [Warning(code="drift", values={"ratio": " to ".join(dict.fromkeys(map(compare.ratio_text, ends)))})]


def _conditions(a: EvalReport, b: EvalReport) -> list[tuple[str, str, str]]:
    """(what, of A, of B) of all that changes times beside the submission."""

    def told(run: EvalReport) -> list[str]:
        env = run.environment
        host = [env.machine_class, env.python, env.torch, env.triton or "none"] if env else ["unknown"] * 4
        return [*host, run.device, run.suite, count_text(run.world_size, "rank")]

    names = ("machine", "Python", "torch", "triton", "device", "suite", "world size")
    return list(zip(names, told(a), told(b), strict=True))
