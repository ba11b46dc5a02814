"""The verb `eval-many`: a population of candidates, judged in stages, results as they come; or a set of problems."""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.text import Text

from harness.agents import score_view
from harness.agents.candidates import read_all
from harness.agents.journal import read_results
from harness.agents.judge import Judge, Terms
from harness.agents.many import How, many
from harness.agents.result import Result
from harness.agents.score import score_of, speedup
from harness.cli import options, result_files
from harness.cli.problems import problems_below
from harness.core.checkout import Checkout
from harness.core.decode import encode
from harness.core.errors import BadFileError, Exit, UsageError
from harness.core.words import clean_line, print_all, speedup_text
from harness.kinds.registry import is_problem
from harness.kinds.settings import setting
from harness.report.console import new_console

DESCRIPTION = """Judge many candidates for one problem: files, folders of them, or JSON lines with `id` and `source`.
Copies are judged once; all candidates run their tests and the quick shapes, and the fastest of those that pass the
whole suite. --keep 1 measures every one of them. Each result is written to --out as a line of JSON at once; the same
command goes on where it was interrupted. `score` says what the results come to. Nothing is recorded on the board.

PROBLEM may be a set: a folder of problem files of another benchmark, or of problem folders. Its candidates are, of each
place, the files named <problem>.py or below a folder of that name; --out is then a folder, with a file for each
problem, and the score over all of them is shown at the end."""
OUT = Path("results.jsonl")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb `eval-many`."""
    parser.add_argument(
        "problem", metavar="PROBLEM", help="its name (see `problems`), a problem folder or file, or a folder of such"
    )
    parser.add_argument(
        "places", nargs="+", type=Path, metavar="PLACE", help="files, folders of files, or .jsonl files"
    )
    options.add_setting(parser, cpu_suite="cpu")
    options.add_seconds(parser)
    options.add_unconfined(parser)
    result_files.add_reward(parser)
    parser.add_argument(
        "--out", type=Path, default=OUT, metavar="FILE", help="the results, a line of JSON each (default: %(default)s)"
    )
    parser.add_argument(
        "--keep",
        type=float,
        default=0.25,
        metavar="PART",
        help="which part of the candidates that pass the quick shapes gets the whole suite (default: %(default)s); 1 "
        "gives it to all, without the quick shapes",
    )
    parser.add_argument("--least", type=int, default=4, metavar="N", help="but at least N of them (default: 4)")
    parser.add_argument(
        "--check-on-cpu", action="store_true", help="test candidates on CPU ranks before they get to a GPU"
    )
    parser.add_argument(
        "--patient",
        action="store_true",
        help="let candidates hang for as long as `eval` does, not 50 times the reference",
    )
    parser.add_argument("--jobs", type=int, metavar="N", help="judge on N GPUs side by side (default: all)")
    options.add_quiet(parser, "the summary")


def run(namespace: argparse.Namespace, checkout: Checkout) -> Exit:
    """`eval-many`: judges, writes and shows."""
    if (members := _members(namespace.problem)) is not None:
        return _run_set(members, namespace, checkout)
    files = result_files.of(namespace)
    tally = _judged(namespace, checkout)
    if files.json:
        files.json.write(tally.json())
    if not files.take_stdout:
        print(f"{tally.text()}\nscore it           python -m harness score {namespace.out}")
    return Exit.OK


def _members(name: str) -> list[Path] | None:
    """The problems of a set; None where that is one problem."""
    path = Path(name).expanduser()
    if not path.is_dir() or is_problem(path):
        return None
    return problems_below(path)


def _run_set(members: Sequence[Path], namespace: argparse.Namespace, checkout: Checkout) -> Exit:
    """Judges each problem's candidates, and shows the score over all. What cannot be judged here is said and left."""
    files, out, places = result_files.of(namespace), namespace.out, namespace.places
    out = out.with_suffix("") if out == OUT else out
    out.mkdir(parents=True, exist_ok=True)
    for member in members:
        found = [file for place in places for file in _candidates(place, member.stem)]
        if not found:
            continue
        mine = argparse.Namespace(**vars(namespace) | {"problem": str(member), "places": found})
        mine.out = out / f"{member.stem}.jsonl"
        try:
            _judged(mine, checkout)
        except (UsageError, BadFileError) as error:
            print(f"left out           {member.stem}: {clean_line(str(error))}", file=sys.stderr)
    results = read_results(sorted(path for path in out.glob("*.jsonl") if path.stat().st_size))
    if not results:
        raise UsageError(f"{namespace.places[0]}: no file there is named as a problem of {namespace.problem}")
    score = score_of(results)
    if files.json:
        files.json.write(encode(score))
    if not files.take_stdout:
        print_all(new_console(), *score_view.parts(score))
    return Exit.OK


def _candidates(place: Path, stem: str) -> list[Path]:
    """The files and folders of a place that are named as the problem is."""
    if place.is_file():
        return [place] if place.stem == stem else []
    return [path for path in sorted(place.iterdir()) if (path.name if path.is_dir() else path.stem) == stem]


def _judged(namespace: argparse.Namespace, checkout: Checkout) -> "Tally":
    """Judges one problem's candidates, and shows each."""
    asked = options.asked(namespace, file=None)
    how = How(
        keep=namespace.keep,
        least=namespace.least,
        check=namespace.check_on_cpu,
        jobs=namespace.jobs,
        out=namespace.out,
    )
    if namespace.out.suffix in result_files.KEPT or namespace.out.is_dir():
        raise UsageError(f"--out {namespace.out}: results are lines of JSON; name a .jsonl file")
    terms = Terms(asked=asked, reward=namespace.reward, lower=namespace.lower, patient=namespace.patient)
    candidates = read_all(namespace.places, setting(asked, checkout).problem, checkout)
    console = new_console(stderr=True)
    with Judge(terms, checkout) as judge:
        tally = Tally(len(candidates), namespace.out)
        for result in _shown(many(judge, candidates, how), tally, console, namespace.quiet):
            tally.add(result)
    return tally


class Tally:
    """How far the population is."""

    def __init__(self, total: int, out: Path) -> None:
        self.total, self.out, self.judged = total, out, 0
        self.before = out.read_bytes().count(b"\n") if out.is_file() else 0
        self.verdicts: dict[str, int] = {}
        self.ranked = 0
        self.best: tuple[float, str] = (0.0, "")
        self.began_s = time.monotonic()

    def add(self, result: Result) -> None:
        """One more is judged."""
        self.judged += 1
        self.verdicts[result.verdict] = self.verdicts.get(result.verdict, 0) + 1
        self.ranked += result.ranked
        if result.ranked and not result.copy_of and (value := speedup(result)) is not None:
            self.best = max(self.best, (value, result.id))

    def text(self) -> str:
        """In a line."""
        words = ", ".join(f"{count} {word}" for word, count in sorted(self.verdicts.items()))
        best = f", best {speedup_text(self.best[0])} {clean_line(self.best[1])}" if self.best[1] else ""
        took_s = time.monotonic() - self.began_s
        before = f", {self.before} before" if self.before else ""
        return f"{self.out}: {self.judged} of {self.total} judged in {took_s:.0f} s ({words or 'none'}){before}{best}"

    def json(self) -> dict[str, object]:
        """As `--json` has it."""
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
    live = Live(tally, console=console, transient=True, refresh_per_second=4) if console.is_terminal else None
    if live:
        live.start()
    try:
        for result in results:
            yield result
            console.print(Text(line_of(result, tally)), soft_wrap=True)
    finally:
        if live:
            live.stop()


def line_of(result: Result, tally: Tally) -> str:
    """`[ 12.3 s]  3/200  pass  1.83x  candidate-7`."""
    took = f"[{time.monotonic() - tally.began_s:6.1f} s] {tally.before + tally.judged:>4}/{tally.total}"
    figure = speedup_text(speedup(result)) if result.ranked else f"({speedup_text(speedup(result))})"
    copy = f"  a copy of {clean_line(result.copy_of)}" if result.copy_of else ""
    shown = figure if result.verdict == "pass" else "-"
    return f"{took}  {result.verdict:<9}  {shown:>8}  {clean_line(result.id)}{copy}"
