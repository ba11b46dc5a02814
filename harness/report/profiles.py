"""What a profiled shape shows: where the trace lies, and what took most of each rank's call."""

from collections.abc import Iterator

from harness.core.records import CaseResult, EvalReport, Profile
from harness.core.stats import median
from harness.core.words import percent_text, us_text
from harness.report.document import Block, EvidenceBlock, Heading, Table, UntrustedText, Words, prose

PROFILE_LEGEND = (
    "Self us leaves out what an operator called; share is of the rank's call, which is slower under the profiler; "
    "threads and streams that work at once share that time. "
    "In no operator: Python, and waiting while no other thread has an operator. "
    "The traces open in https://ui.perfetto.dev and in chrome://tracing."
)
KERNELS_LEGEND = (
    "us is the time of all runs of a kernel in one call; percentages are of the device's peak, means over these runs. "
    "The report opens in the tool's own viewer (ncu-ui for .ncu-rep)."
)
TOP_OPS = 5  # kernels or operators that are shown a rank; --json has more


def profile_blocks(report: EvalReport, result: CaseResult, verbose: bool) -> Iterator[Block]:
    """Nothing for a case that was not profiled."""
    profile = result.profile
    if profile is None:
        return
    yield Heading(UntrustedText(result.case.title))
    if not profile.ranks:  # a folder's own evaluator tells a text
        yield EvidenceBlock("", profile.text)
        return
    yield _kernels(profile) if profile.kernels else _operators(profile) if verbose else _operators_over_ranks(profile)
    blind = [str(rank.rank) for rank in profile.ranks if rank.of == "host"]
    if report.device != "cpu" and blind:
        text = f"The profiler saw no kernel on rank {', '.join(blind)}: shown is what the host did."
        yield prose(text, style="yellow", close=True)
    files = [("report", path) for path in profile.reports]
    files += [("trace", profile.trace)] if profile.trace is not None else []
    if files:
        yield prose(*((f"{what}  ", UntrustedText(path)) for what, path in files), whole=True, close=True)
    if result is [other for other in report.results if other.profile is not None][-1]:
        yield prose(KERNELS_LEGEND if profile.kernels else PROFILE_LEGEND, style="dim")


def _operators_over_ranks(profile: Profile) -> Table:
    """What took most of the call: least, median and most over the ranks. A rank that does not list it has 0."""
    calls_us = [rank.call_us for rank in profile.ranks]
    rows: list[tuple[float, float, list[Words]]] = []
    for name in dict.fromkeys(op.name for rank in profile.ranks for op in rank.top):
        found = [next((op for op in rank.top if op.name == name), None) for rank in profile.ranks]
        shares = [op.share if op else 0.0 for op in found]
        middle = median(shares)
        cells = map(percent_text, (min(shares), middle, max(shares)))
        self_us = us_text(median([op.self_us if op else 0.0 for op in found]))
        rows.append((-middle, -max(shares), [*cells, self_us, UntrustedText(name)]))
    call: list[Words] = [*map(us_text, (min(calls_us), median(calls_us), max(calls_us))), "", "the call, in us"]
    top = [cells for _, _, cells in sorted(rows, key=lambda row: row[:2])[:TOP_OPS]]
    return Table((">share least", ">median", ">most", ">self us", "|kernel or operator"), [call, *top])


def _operators(profile: Profile) -> Table:
    rows: list[list[Words]] = []
    for rank in profile.ranks:
        rows.append([str(rank.rank), "the call", "1", us_text(rank.call_us), percent_text(1)])
        for op in rank.top[:TOP_OPS]:
            rows.append(["", UntrustedText(op.name), str(op.calls), us_text(op.self_us), percent_text(op.share)])
    return Table((">rank", "|kernel or operator", ">calls", ">self us", ">share"), rows)


def _kernels(profile: Profile) -> Table:
    """What the vendor's tool says of each kernel; columns that it does not tell are left out."""
    names = dict.fromkeys(name for one in profile.kernels for name in one.percents)
    rows: list[list[Words]] = []
    for one in profile.kernels:
        cells = (percent_text(one.percents[name] / 100) if name in one.percents else "-" for name in names)
        rows.append([str(one.rank), UntrustedText(one.name), str(one.calls), us_text(one.time_us), *cells])
    return Table((">rank", f"|kernel, by {profile.tool}", ">runs", ">us", *(f">{name}" for name in names)), rows)
