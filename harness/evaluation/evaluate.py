"""One evaluation of any kind of problem: plan in, report out. Knows sessions; knows neither kinds nor processes."""

import secrets
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

from harness.core.decode import part
from harness.core.records import (
    Case,
    CaseResult,
    Crashed,
    EvalReport,
    Failure,
    Held,
    NotRun,
    Outcome,
    Passed,
    Profile,
    Raised,
    TimedOut,
    Verdicts,
)
from harness.evaluation.controls import Controls, controlled
from harness.evaluation.launches import launched
from harness.judging import warnings
from harness.judging.figures import figured
from harness.kinds.kind import BROKE_ITS_JUDGE, Plan, Progress, Session, SessionPool, SubmissionFailed, Then
from harness.kinds.registry import KINDS


def evaluate(
    plan: Plan, progress: Progress, pool: SessionPool | None = None, controls: Controls | None = None
) -> EvalReport:
    """Carries out the plan, on what `pool` keeps if there is one, with the `controls` of earlier evaluations there.
    What the submission does wrong is in the report; HarnessError is raised for the rest."""
    started = datetime.now(UTC)
    progress.expect(plan)
    cases = [case for phase in plan.phases for case in phase.cases]
    with (pool or KINDS[plan.kind]).session(plan, progress) as session:
        try:
            session.prepare()
        except SubmissionFailed as failed:
            results = [CaseResult(case=cases[0], outcome=failed.outcome)]
        else:
            results = list(_results(session))
        is_right = not any(isinstance(one.outcome, Failure) for one in results)
        if is_right and plan.launches > 1:
            results = launched(session, results)
        if is_right and plan.has_controls:
            results = controlled(session, results, controls)
    results = [replace(result, logs=session.logs_of(result.case)) for result in results]
    results += [CaseResult(case=case, outcome=NotRun()) for case in cases[len(results) :]]
    results = [replace(result, bound=session.bound(result.case)) for result in results]  # by what is known in the end
    return figured(_report(plan, started, tuple(results), session))


def broken(plan: Plan, why: str) -> EvalReport:
    """The report of an evaluation that the submission ended with an error, before its cases were run: held for that."""
    cases = [case for phase in plan.phases for case in phase.cases]
    held = CaseResult(case=cases[0], outcome=Held(check=BROKE_ITS_JUDGE, evidence=why))
    results = (held, *(CaseResult(case=case, outcome=NotRun()) for case in cases[1:]))
    return figured(_report(plan, datetime.now(UTC), results, Session(plan, Progress())))


def _results(session: Session) -> Iterator[CaseResult]:
    """Phase after phase until a case fails. Every case of a phase is checked; none is measured once one has failed,
    since nothing is ranked then, unless its cases are independent."""
    failed = False
    for phase in session.plan.phases:
        with session.phase(phase):
            for index, case in enumerate(phase.cases):
                session.progress.case(case.label, index, len(phase.cases))
                found, verdicts = _found(session, phase.then if phase.independent or not failed else "check", case)
                if index + 1 == len(phase.cases) and not _is_over(found):
                    try:
                        session.close()
                    except SubmissionFailed as failure:
                        found = failure.outcome
                profile = found if isinstance(found, Profile) else None
                outcome = Passed() if isinstance(found, Profile) else found
                yield CaseResult(case=case, outcome=outcome, verdicts=verdicts, profile=profile)
                failed = failed or isinstance(outcome, Failure)
                if _is_over(outcome):
                    return
        if failed:
            return


def _is_over(found: Outcome | Profile) -> bool:
    """Whether the session can be asked nothing more."""
    return isinstance(found, Raised | Crashed | TimedOut) or (
        isinstance(found, Held) and found.check == BROKE_ITS_JUDGE
    )


def _found(session: Session, then: Then, case: Case) -> tuple[Outcome | Profile, Verdicts | None]:
    """Checks a case, and measures or profiles one that is right."""
    verdicts = None
    try:
        verdicts = session.check(case)
        if then == "measure":
            return session.measure(case), verdicts
        return session.profile(case) if then == "profile" else Passed(), verdicts
    except SubmissionFailed as failed:
        return failed.outcome, failed.verdicts or verdicts


def new_run_id(started: datetime) -> str:
    """A name for a run, which sorts by when it was started; no two that start in one second share it."""
    return f"{started:%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"


def _report(plan: Plan, started: datetime, results: tuple[CaseResult, ...], session: Session) -> EvalReport:
    report = part(
        plan,
        EvalReport,
        run_id=new_run_id(started),
        started_at=started.isoformat(timespec="seconds"),
        problem=plan.problem.name,
        suite=plan.suite_name,
        results=results,
        empty_call_samples_us={},
        peaks=None,
        environment=None,
        phases_s={},
        secret_seed=plan.secret,
        data=plan.data_sha256,
    )
    report = session.completed(report)
    return replace(report, warnings=(*warnings.warnings(report), *report.warnings, *plan.notes))
