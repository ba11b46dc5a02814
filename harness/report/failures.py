"""What a failed case leaves for the reader: what happened, where, the evidence, and what to try next."""

import re

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from harness.core.records import CaseResult, Crashed, EvalReport, Outcome, Raised, TimedOut, Wrong
from harness.core.words import (
    EXCERPT_LINES,
    case_label,
    clean,
    clean_line,
    excerpt,
    print_all,
)
from harness.judging import verdict
from harness.judging.checkers import CHECKERS

NEXT = {  # what to try after each failure
    "wrong": "`python -m harness check {problem} {path}` runs the tests alone, in seconds.",
    "raised": "The traceback is of the first rank that failed; others may only have waited for it.",
    "timed_out": "Mostly, one rank waits for what another never sends: compare where they stand. --timeout gives more.",
    "held": "Right, but not believed; docs/trust.md says what each check looks for and how it can err.",
}
# Of a run that is a `check` already.
WRONG_IN_TESTS = "compare with `ref_kernel` on this shape in the problem's reference.py; --json FILE has every verdict."
RAISED_ON_ALL = "Every rank raised this; one traceback stands for all."
# A problem that is named by the path of its folder, which a report does not have.
WRONG_IN_FOLDER = "the same command with `check` in place of `eval` runs the tests alone, in seconds."
NATIVE = "Native code crashed: the log shows where Python stood, if the process could still say so."
CRASHES = (  # the first that is found in the message
    ("does not compile", "The whole log of the compiler is runs/<run id>/compile.log, and in --json FILE."),
    ("SIGKILL", "Mostly out of memory: try fewer ranks (--ranks) or smaller shapes (--suite)."),
    ("SIG", NATIVE),
    ("eval.", "The log shows what the evaluator printed last; --json FILE has more of it."),
    ("exited", "The process ended itself: look for exit() or os._exit() in the submission and in what it calls."),
    ("signal", NATIVE),
    ("", "The log shows what the process printed last."),
)


def show_failure(report: EvalReport, result: CaseResult, console: Console) -> None:
    """What happened and where; the failure that decides the verdict in full, others in a line."""
    outcome = result.outcome
    where = f" on rank {outcome.rank}" if isinstance(outcome, Raised | Crashed) else ""
    title = f"{result.case.kind} {case_label(result)}: {outcome.type.replace('_', ' ')}{where}"
    console.print(Text(title, style="bold red"), soft_wrap=True)
    first, *more = excerpt(verdict.message(outcome), 1) or [""]
    console.print(Text("\n".join([f"  {first}", *(f"  | {line}" for line in more)])), soft_wrap=True)
    if result is verdict.first_failure(report):
        for heading, text in _evidence(report, outcome):
            console.print(Text(f"  {heading}:"), soft_wrap=True)
            console.print(Text("\n".join(f"  | {line}" for line in text), style="dim"), soft_wrap=True)
        path = clean_line(report.submission.name)
        print_all(console, Padding(Text(f"Next: {_advice(report, outcome, path)}"), (0, 0, 0, 2), expand=False))
    console.print()


def _advice(report: EvalReport, outcome: Outcome, path: str) -> str:
    """What to try next."""
    if isinstance(outcome, Crashed):
        return next(advice for word, advice in CRASHES if word in outcome.message)
    if isinstance(outcome, Raised) and len(outcome.alike) + 1 == report.world_size > 1:
        return RAISED_ON_ALL
    if isinstance(outcome, Wrong) and report.mode == "test":
        return WRONG_IN_TESTS
    if isinstance(outcome, Wrong) and CHECKERS[report.checker].needs_path:
        return WRONG_IN_FOLDER
    return NEXT[outcome.type].format(problem=report.problem, path=path)


def _evidence(report: EvalReport, outcome: Outcome) -> list[tuple[str, list[str]]]:
    """Headings with the lines that a failure left behind."""
    shown: list[tuple[str, list[str]]] = []
    if isinstance(outcome, Raised):
        shown.append((f"traceback of rank {outcome.rank}", excerpt(outcome.traceback, EXCERPT_LINES // 3)))
    if isinstance(outcome, Raised | Crashed):
        log = (
            outcome.log_tail if isinstance(outcome, Crashed) else report.logs.get(f"candidate rank {outcome.rank}", "")
        )
        shown.append((f"the end of rank {outcome.rank}'s log", excerpt(log)))
    if isinstance(outcome, TimedOut):
        alike: dict[str, list[int]] = {}
        for rank, stack in enumerate(outcome.stacks):
            alike.setdefault(re.sub(r"0x[0-9a-f]+", "0x...", clean(stack)), []).append(rank)
        for stack, ranks in alike.items():
            who = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"
            shown.append((f"where {who} stood", excerpt(stack, EXCERPT_LINES * 2 // 3)))
    return [(heading, lines) for heading, lines in shown if lines]
