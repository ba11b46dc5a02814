"""What a failed case leaves for the reader: what happened, where, the evidence, and what to try next."""

import re

from harness.core.records import CaseResult, Crashed, EvalReport, Outcome, Raised, TimedOut, Wrong
from harness.core.words import EXCERPT_LINES, clean, clean_line, numbered_text
from harness.judging import verdict
from harness.kinds.checkers import CHECKERS
from harness.ranks.failure import OUTSIDE
from harness.report.document import Block, EvidenceBlock, Heading, Styled, UntrustedText, prose

NEXT = {  # what to try after each failure
    "wrong": "`python -m harness check {problem} {path}` runs the tests alone, in seconds.",
    "raised": "The traceback is of the first rank that failed; others may only have waited for it.",
    "timed_out": "Usually a rank waits for what another never sends: compare the stacks. --timeout S waits longer.",
    "held": "The output is right, but a check rejects the result: docs/trust.md explains it and how it can err.",
}
NEXT_ALONE = {  # where there is one rank
    "raised": "The traceback ends where it was raised.",
    "timed_out": "If its calls only need longer, --timeout gives them more.",
}
WITHOUT_A_FRAME = "Change the submission as the message says."  # raised by the harness: no custom_kernel, say
ADAPTER = "reference/{problem}/adapter.py"  # of a problem that has one, which calls what the submission defines
RAISED_ON_ALL = "Every rank raised this; one traceback stands for all."
LOOPS_ON_ALL = "Every rank ran your own lines: look for a loop or wait there that never ends. --timeout S waits longer."
# A problem that is named by the path of its folder, which a report does not have.
WRONG_IN_FOLDER = "the same command with `check` in place of `eval` runs the tests alone, in seconds."
FRAME = re.compile(r'File "(?P<file>[^"]*)", line (?P<line>\d+) in (?P<name>\S+)')
# A frame of the author's: not of the harness, of a problem's adapter or of a library.
OTHERS = "harness/(?:core|gpumode|judging|kinds|problems|process|ranks)|(?:site|dist)-packages"
THEIRS = re.compile(rf'File "(?!adapter\.py"|[^"]*/(?:{OTHERS})/)')
STACKS = re.compile(r"^(?:Current thread|Thread) 0x", re.MULTILINE)  # where the log of a rank that hangs ends
OURS = re.compile(r"(^|/)harness/ranks/|^<frozen runpy>")
LIBRARY = re.compile(r"/(site|dist)-packages/|/lib/python3[^/]*/|^<")
NATIVE = "Native code crashed: the log shows where Python stood, if the process could still say so."
CRASHES = (  # the first that is found in the message
    ("does not compile", "The whole log of the compiler is runs/<run id>/compile.log, and in --json FILE."),
    ("does not build", "The log is the build's: correct what its first error names."),
    ("SIGKILL", "Mostly out of memory: try fewer ranks (--ranks) or smaller shapes (--suite)."),
    ("SIG", NATIVE),
    ("eval.", "The log shows what the evaluator printed last; --json FILE has more of it."),
    ("exited", "The process ended itself: look for exit() or os._exit() in the submission and in what it calls."),
    ("signal", NATIVE),
    ("", "The log shows what the process printed last."),
)


def failure(report: EvalReport, result: CaseResult, logs_at: str) -> list[Block]:
    """What happened and where; the failure that decides the verdict in full, others in a line."""
    outcome = result.outcome
    where = f" on rank {outcome.rank}" if isinstance(outcome, Raised | Crashed) else ""
    title = (f"{result.case.kind} ", UntrustedText(result.case.title), f": {verdict.word(outcome)}{where}")
    message = EvidenceBlock("", verdict.message(outcome), 1)
    first, *more = message.lines or [""]
    blocks: list[Block] = [Heading(Styled(title, "bold red")), prose(UntrustedText(first), whole=True, indent=2)]
    blocks += [EvidenceBlock("", "\n".join(more))] if more else []
    if result is verdict.first_failure(report):
        blocks += evidence(report, result)
        if any(text.strip() for text in report.logs.values()):
            blocks.append(prose(f"{all_logs(report)}: {logs_at}", whole=True, close=True, indent=2))
        path = clean_line(report.submission.name)
        blocks.append(prose(UntrustedText(f"Next: {_advice(report, outcome, path)}"), close=True, indent=2))
    return blocks


def _advice(report: EvalReport, outcome: Outcome, path: str) -> str:
    if isinstance(outcome, Crashed):
        return next(advice for word, advice in CRASHES if word in outcome.message)
    if isinstance(outcome, Raised) and not has_own_frame(outcome):
        calls = adapter_calls(report, outcome)
        return WITHOUT_A_FRAME + (f" {calls}." if calls else "")
    if isinstance(outcome, Raised) and len(outcome.alike) + 1 == report.world_size > 1:
        return RAISED_ON_ALL
    if isinstance(outcome, TimedOut) and report.world_size > 1 and all(map(_is_in_own_code, outcome.stacks)):
        return LOOPS_ON_ALL
    checker = CHECKERS[report.checker]
    if isinstance(outcome, Wrong) and report.mode == "test":  # of a run that is a `check` already
        return checker.after_wrong
    if isinstance(outcome, Wrong) and checker.needs_path:
        return WRONG_IN_FOLDER
    said = NEXT | NEXT_ALONE if report.world_size == 1 else NEXT
    return said[outcome.type].format(problem=report.problem, path=path)


def has_own_frame(outcome: Raised) -> bool:
    """Whether the author's code is in the traceback: the harness refuses what a file defines or returns."""
    return THEIRS.search(outcome.traceback) is not None


def adapter_calls(report: EvalReport, outcome: Raised) -> str:
    """Which file of the problem called what the submission defines, where that was refused, and what it calls; else
    ""."""
    if 'File "adapter.py"' not in outcome.traceback:
        return ""
    what = CHECKERS[report.checker].calls
    return f"{ADAPTER.format(problem=report.problem)} calls what it defines{what and ': '}{what}"


def _is_in_own_code(stack: str) -> bool:
    """Whether a rank stood in the author's lines, and not in a library's, as whoever waits in a collective does, or in
    the harness's, as where a GPU is waited for."""
    frame = FRAME.search(stack)
    return frame is not None and not LIBRARY.search(frame["file"]) and not OURS.search(frame["file"])


def evidence(report: EvalReport, result: CaseResult) -> list[EvidenceBlock]:
    shown: list[EvidenceBlock] = []
    outcome = result.outcome
    if isinstance(outcome, Raised):
        shown.append(EvidenceBlock(f"traceback of rank {outcome.rank}", outcome.traceback, EXCERPT_LINES // 3))
    if isinstance(outcome, Raised | Crashed):
        log = outcome.log_tail if isinstance(outcome, Crashed) else report.printed(result, outcome.rank)
        shown.append(EvidenceBlock(log_heading(report, outcome.rank), log))
    if isinstance(outcome, TimedOut):
        for where, stack in stacks(outcome):
            shown.append(EvidenceBlock(UntrustedText(where), stack, EXCERPT_LINES * 2 // 3))
    if not isinstance(outcome, Raised | Crashed):
        shown.append(EvidenceBlock(log_heading(report), STACKS.split(report.printed(result))[0]))
    return [one for one in shown if one.lines]


def log_heading(report: EvalReport, rank: int = 0) -> str:
    return f"the end of rank {rank}'s log" if report.world_size > 1 else "the end of its log"


def all_logs(report: EvalReport) -> str:
    return "logs of all ranks" if report.world_size > 1 else "all logs"


def stacks(outcome: TimedOut) -> list[tuple[str, str]]:
    """The stacks that differ, each below who stood there: `ranks 1-7 in all_reduce (my.py:14)`."""
    return [(f"{numbered_text('rank', ranks)} {_place(stack)}", stack) for stack, ranks in _alike(outcome)]


def stood(outcome: TimedOut) -> str:
    """Where ranks stood at the deadline: `rank 0 in barrier (my.py:9), ranks 1-7 in all_reduce (my.py:14)`."""
    places: dict[str, list[int]] = {}
    for stack, ranks in _alike(outcome):
        places.setdefault(_place(stack), []).extend(ranks)
    return ", ".join(f"{numbered_text('rank', ranks)} {place}" for place, ranks in places.items())


def _alike(outcome: TimedOut) -> list[tuple[str, list[int]]]:
    """The stacks that differ, each with the ranks that stood there."""
    alike: dict[str, list[int]] = {}
    for rank, stack in enumerate(outcome.stacks):
        alike.setdefault(re.sub(r"0x[0-9a-f]+", "0x...", clean(stack)).rstrip(), []).append(rank)
    return list(alike.items())


def _place(stack: str) -> str:
    """What the submission called, and where: its innermost frame, and the function of torch above it."""
    called = ""
    if OUTSIDE in stack:
        return OUTSIDE
    for frame in FRAME.finditer(stack):
        if not LIBRARY.search(frame["file"]):
            where = f"{frame['file'].rsplit('/', 1)[-1]}:{frame['line']}"
            return f"in {called or frame['name']} ({where})"
        called = called if frame["name"] == "wrapper" else frame["name"]
    return f"in {called or 'native code (no Python frame)'}"
