"""Judge many candidates for one problem: files, folders of them, or JSON lines with `id` and `source`.
Copies are judged once; all candidates run their tests and are timed for a quarter of a second a shape, and the fastest
of those that pass the whole suite. --keep 1 measures every one of them. Each result is written to --out as a line of
JSON at once; the same command goes on where it was interrupted. `score` says what the results come to. Nothing is
recorded on the board.

PROBLEM may be a set: a folder of problem files of another benchmark, or of problem folders. Its candidates are, of each
PLACE, the files named <problem>.py or below a folder of that name; --out is then a folder, with a file for each
problem, and the score over all of them is shown at the end."""

import shlex
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.text import Text

from harness.agents import score_view
from harness.agents.candidates import JSONL, read_all, suffixes_of
from harness.agents.journal import read_results, results_so_far
from harness.agents.judge import Judge, Terms
from harness.agents.many import How, many
from harness.agents.result import Result
from harness.agents.score import score_of
from harness.cli import options, result_files
from harness.cli.declare import argument, option
from harness.core.checkout import Checkout
from harness.core.decode import encode, part
from harness.core.errors import BadFileError, Exit, UsageError, os_error_as
from harness.core.words import clean_line, cut_line, speedup_text
from harness.kinds.registry import set_members
from harness.kinds.settings import setting
from harness.report.console import new_console
from harness.report.document import Document, UntrustedText, prose

WHY_CHARS = 160  # of an error's reason
SHOWN = 3  # names that a line has


@dataclass(frozen=True, kw_only=True)
class EvalManyOrder(result_files.WithJson, options.Rewarded, options.Sandboxed, options.Timed, options.OnSetting):
    problem: str = argument(
        "its name (see `problems`), a problem folder or file, or a folder of such", metavar="PROBLEM"
    )
    places: tuple[Path, ...] = argument("files, folders of files, or .jsonl files", metavar="PLACE")
    out: Path = option(Path("results.jsonl"), "the results, a line of JSON each (default: %(default)s)")
    keep: float = option(
        0.25,
        "which part of the candidates that pass the screening gets the whole suite (default: %(default)s); 1 gives it "
        "to all, and screens none",
        metavar="PART",
    )
    least: int = option(4, "but at least N of them (default: 4)")
    check: bool = option(False, "test candidates on CPU ranks before they get to a GPU", "--check-on-cpu")
    patient: bool = option(False, "let candidates hang for as long as `eval` does, not 50 times the reference")
    jobs: int | None = option(None, "judge on N GPUs side by side (default: all)")
    lanes: int | None = option(None, "test N candidates side by side (default: 4 where there are 32 or more)")
    quiet: bool = options.quiet("the summary")


def run(order: EvalManyOrder, checkout: Checkout) -> Exit:
    if (members := set_members(order.problem)) is not None:
        return _run_set(members, order, checkout)
    tally = _judged(order, checkout)
    last = (
        UntrustedText(tally.text()),
        ("score it           ", UntrustedText(f"python -m harness score {shlex.quote(str(order.out))}")),
    )
    code = result_files.tell(order, Document(blocks=(), summary=prose(*last, whole=True)), json=tally.json)
    return Exit.ERROR if tally.is_in_vain else code


def _run_set(members: Sequence[Path], order: EvalManyOrder, checkout: Checkout) -> Exit:
    """Judges each problem's candidates, and shows the score over all. What cannot be judged here is said and left."""
    out = order.out.with_suffix("") if order.out.suffix in JSONL and not order.out.is_dir() else order.out
    if order.out == options.STDOUT:
        raise UsageError(f"--out {out}: a set's results are files, gone on with after a kill; name a folder")
    with os_error_as(UsageError, f"--out {out}: no folder, and none can be made", "name another"):
        out.mkdir(parents=True, exist_ok=True)
    names, entries = names_of(members), [(place, _entries(place)) for place in order.places]
    for place, paths in entries:
        if strangers := sorted(clean_line(path.name) for path in paths if _name_of(path) not in names):
            these = ", ".join(strangers[:SHOWN]) + (f" and {len(strangers) - SHOWN} more" * (len(strangers) > SHOWN))
            print(f"left out           {place}: named as no problem of {order.problem}: {these}", file=sys.stderr)
    for member, name in zip(members, names, strict=True):
        found = tuple(path for _, paths in entries for path in paths if _name_of(path) == name)
        if not found:
            continue
        own = replace(order, problem=str(member), places=found, out=out / f"{name}.jsonl")
        try:
            _judged(own, checkout, is_in_set=True)
        except (UsageError, BadFileError) as error:
            print(f"left out           {name}: {clean_line(str(error))}", file=sys.stderr)
    files = (out / f"{name}.jsonl" for name in names)  # not what other sets have left in the folder
    results = read_results(sorted(path for path in files if path.is_file() and path.stat().st_size))
    if not results:
        raise UsageError(f"{order.places[0]}: no file there is named as a problem of {order.problem}")
    score = score_of(results)
    return result_files.tell(order, score_view.document_of(score), json=lambda: encode(score))


def names_of(members: Sequence[Path]) -> list[str]:
    """What the problems of a set are called: as their files, or as the folders of files that are called alike."""
    stems = [member.stem for member in members]
    return [stem if stems.count(stem) == 1 else member.parent.name for member, stem in zip(members, stems, strict=True)]


def _entries(place: Path) -> list[Path]:
    """The files and folders of a place of candidates; the place itself where it is a file. UsageError without it."""
    if place.is_dir():
        return [path for path in sorted(place.iterdir()) if not path.name.startswith((".", "__"))]
    if not place.is_file():
        raise UsageError(f"{place}: no such file or folder; name the candidates' folder")
    return [place]


def _name_of(path: Path) -> str:
    """The problem whose candidate it is, or candidates."""
    return path.name if path.is_dir() else path.stem


def _judged(order: EvalManyOrder, checkout: Checkout, is_in_set: bool = False) -> "Tally":
    """`is_in_set`: the places were found by their names alone, so those that are no submissions are left out."""
    asked, how = options.asked(order), part(order, How)
    result_files.check_lines(order.out, "results")
    problem = setting(asked, checkout).problem
    places = order.places
    if is_in_set:
        suffixes = (*suffixes_of(problem), *JSONL)
        places = tuple(path for path in places if path.is_dir() or path.suffix in suffixes)
    candidates = read_all(places or order.places, problem, checkout)
    console = new_console(stderr=True)
    with Judge(part(order, Terms, asked=asked), checkout) as judge:
        tally = Tally([one.id for one in candidates], order.out)
        for result in _shown(many(judge, candidates, how), tally, console, order.quiet):
            tally.add(result)
    return tally


class Tally:
    """What this call judged, and the best of all candidates, those judged before included."""

    def __init__(self, ids: Collection[str], out: Path) -> None:
        """Raises BadFileError where there is no result in a line that is there."""
        self.total, self.out, self.judged = len(ids), out, 0
        self.verdicts: Counter[str] = Counter()
        self.ranked = 0
        self.best: tuple[float, str] = (0.0, "")
        known = set(ids)
        there = [one for one in results_so_far(out) if one.id in known]
        self.before, self.errors = len(there), sum(one.verdict == "error" for one in there)
        for result in there:
            self._compare(result)
        self.began_s = time.monotonic()

    def add(self, result: Result) -> None:
        self.judged += 1
        self.verdicts[result.verdict] += 1
        self.ranked += result.ranked
        self._compare(result)

    def _compare(self, result: Result) -> None:
        if result.ranked and not result.copy_of and (value := result.speedup) is not None:
            self.best = max(self.best, (value, result.id))

    @property
    def is_in_vain(self) -> bool:
        """Whether all that was judged ended in an error of the harness or the machine."""
        return set(self.verdicts) == {"error"}

    def text(self) -> str:
        words = ", ".join(f"{count} {word}" for word, count in sorted(self.verdicts.items()))
        best = f", best {speedup_text(self.best[0])} {clean_line(self.best[1])}" if self.best[1] else ""
        took_s = time.monotonic() - self.began_s
        before = f", {self.before} before" if self.before else ""
        before += f", {self.errors} of them an error (without its line, it is judged again)" if self.errors else ""
        return f"{self.out}: {self.judged} of {self.total} judged in {took_s:.0f} s ({words or 'none'}){before}{best}"

    def json(self) -> dict[str, object]:
        return {
            "schema": 1,
            "candidates": self.total,
            "judged": self.judged,
            "verdicts": self.verdicts,
            "ranked": self.ranked,
            "best": {"id": self.best[1], "speedup": self.best[0]} if self.best[1] else None,
            "seconds": round(time.monotonic() - self.began_s, 3),
            "results": str(self.out),
        }

    def __rich__(self) -> Text:
        return Text(self.text(), no_wrap=True, overflow="crop")


def _shown(results: Iterator[Result], tally: Tally, console: Console, quiet: bool) -> Iterator[Result]:
    """The results; each is shown as a line, with the tally below them on a terminal."""
    if quiet:
        yield from results
        return
    live = Live(tally, console=console, transient=True, refresh_per_second=4)
    with live if console.is_terminal else nullcontext():
        for result in results:
            yield result
            console.print(Text(line_of(result, tally)), soft_wrap=True)


def line_of(result: Result, tally: Tally) -> str:
    """`[ 12.3 s]  3/200  pass  1.83x  candidate-7`; with the reason of an error."""
    took = f"[{time.monotonic() - tally.began_s:6.1f} s] {tally.before + tally.judged:>4}/{tally.total}"
    figure = speedup_text(result.speedup) if result.ranked else f"({speedup_text(result.speedup)})"
    copy = f"  a copy of {clean_line(result.copy_of)}" if result.copy_of else ""
    shown = figure if result.verdict == "pass" else "-"
    why = f": {cut_line(result.evidence.message, WHY_CHARS)}" if result.verdict == "error" and result.evidence else ""
    return f"{took}  {result.verdict:<9}  {shown:>8}  {clean_line(result.id)}{copy}{why}"
