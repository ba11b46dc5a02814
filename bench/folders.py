"""What becomes of other people's problem folders here: every folder's own files, by our ranks and by its own eval.py.

    python bench/folders.py ../reference-kernels/problems/pmpp_v2 --device cpu
    python bench/folders.py ../reference-kernels/problems --mode test --jobs 8
    python bench/folders.py pmpp_v2/grayscale_py --own --memory
    python bench/folders.py pmpp_v2 bioml --data docs/measurements/4-gpu-1x-h200/30-folders.yaml

Of each folder with a task.yml below those named: its default submission and `solutions/correct` must pass,
`solutions/wrong` must fail. Each is evaluated in mode leaderboard, which their eval.py needs three modes for. In mode
test nothing is timed, so that several evaluations can run at once (`--jobs`).

Memory is the most that the GPUs had in use meanwhile, less what they had before; so nothing else should run there.
`--memory` says who had it: what each group of ranks had at most, and the most in use in each phase.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from figures import Cell, Figures, add_data_argument

from harness.core import stats
from harness.core.errors import Exit
from harness.core.events import PhaseBegan, event_of
from harness.core.metrics import MEMORY
from harness.kinds.registry import problems_below
from harness.machine import host
from harness.machine.gpus import gpu_names
from harness.machine.readings import Unread, module

REFUSED = "refused"
WORDS = {Exit.OK: "pass", Exit.INVALID: "fail", Exit.TIMED_OUT: "timeout"}  # any other: REFUSED
GROUPS = ("trusted", "baseline", "candidate")
POLL_S = 0.01
SPARE_BYTES, TIMES = 2 << 30, 3  # beside their eval.py's peak: so much, and a case's inputs and outputs so many times


@dataclass(frozen=True, kw_only=True)
class Ran:
    """One evaluation. `line` is the last that it said of a failure. `groups` has the peak bytes of a rank of each
    group, `phases` the device's by phase; `case_bytes` are those of the largest case's inputs and outputs."""

    word: str
    seconds: float
    peak_bytes: int
    line: str
    groups: Mapping[str, int] = field(default_factory=dict)
    phases: Mapping[str, int] = field(default_factory=dict)
    case_bytes: float = 0.0


@dataclass(frozen=True, kw_only=True)
class File:
    """One file of a folder, and what should become of it ("pass" or "fail")."""

    folder: Path
    path: Path
    wanted: str

    @property
    def names(self) -> list[Cell]:
        """Its first cells: folder, file, what should become of it."""
        return [f"{self.folder.parent.name}/{self.folder.name}", str(self.path.relative_to(self.folder)), self.wanted]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="problem folders, or folders that have some below them")
    parser.add_argument("--device", help="as `eval` takes it")
    parser.add_argument("--evals", default="ours,theirs", help="by which evaluators (default: %(default)s)")
    parser.add_argument("--own", action="store_true", help="the folders' default submissions only, without solutions")
    parser.add_argument("--mode", default="leaderboard", help="as `eval` takes it (default: %(default)s)")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds an evaluation may take (default: 600)")
    parser.add_argument("--jobs", type=int, default=1, help="evaluations at a time; more than one in mode test only")
    parser.add_argument("--memory", action="store_true", help="say which group had how much memory, and in which phase")
    add_data_argument(parser)
    asked = parser.parse_args()
    if asked.jobs > 1 and asked.mode != "test":
        parser.error("--jobs: evaluations that time something run alone; add --mode test")
    evals = asked.evals.split(",")
    model = "" if asked.device == "cpu" else (gpu_names() or ("",))[0]
    figures = Figures("Other people's problem folders", host.environment(model, 1).machine_class)
    files = [file for folder in folders_of(asked.folders) for file in files_of(folder, asked.own)]
    table(figures, evaluated(files, evals, asked), asked.jobs == 1)
    figures.write(asked.data)


def evaluated(
    files: Sequence[File], evals: Sequence[str], asked: argparse.Namespace
) -> list[tuple[File, dict[str, Ran]]]:
    """What became of each file, by evaluator."""
    with ThreadPoolExecutor(asked.jobs) as pool:
        waiting = [(file, {name: pool.submit(evaluate, file, name, asked) for name in evals}) for file in files]
        found = []
        for file, by_name in waiting:
            found.append((file, {name: future.result() for name, future in by_name.items()}))
            words = [f"{name} {ran.word} {ran.seconds:.1f} s {ran.line}" for name, ran in found[-1][1].items()]
            print("\t".join([*map(str, file.names), *words]), file=sys.stderr, flush=True)
    return found


def table(figures: Figures, found: Sequence[tuple[File, Mapping[str, Ran]]], has_figures: bool) -> None:
    """The verdicts, with times and memory where evaluations ran alone; then who had the memory."""
    whats = ("verdict", "s", "peak GiB") if has_figures else ("verdict",)
    rows: list[list[Cell]] = []
    ratios, right, refused = [], 0, 0
    for file, ran in found:
        words = {one.word for one in ran.values()}
        right, refused = right + (words == {file.wanted}), refused + (REFUSED in words)
        if words == {"pass"} and len(ran) == 2:
            ratios.append(ran["ours"].seconds / ran["theirs"].seconds)
        cells: list[Cell] = []
        for one in ran.values():
            every: list[Cell] = [one.word, one.seconds, one.peak_bytes / 2**30]
            cells += every[: len(whats)]
        lines = dict.fromkeys(one.line for one in ran.values() if one.line and one.word != file.wanted)
        rows.append([*file.names, *cells, "; ".join(lines)])
    columns = [f"{name} {what}" for name in (found[0][1] if found else ()) for what in whats]
    after = f"{right} of {len(rows)} as they should be, {refused} refused."
    if ratios and has_figures:
        after += f" Where both pass, ours takes {stats.median(ratios):.2f} times as long (median of {len(ratios)})."
    figures.table(["folder", "file", "should", *columns, "why not"], rows, "By file", f"{after}\n")
    if accounts := [row for file, ran in found for row in account(file, ran)]:
        columns = [f"{name} GiB" for name in ("case", *GROUPS, "peak", "allowed")]
        figures.table(["folder", "eval", *columns, "most in use by phase, GiB"], accounts, "Memory")


def account(file: File, ran: Mapping[str, Ran]) -> Iterator[list[Cell]]:
    """Who had the memory, by evaluator, and how much ours may have."""
    allowed: Cell = "-"
    if {"ours", "theirs"} <= ran.keys() and ran["ours"].case_bytes:
        allowed = (ran["theirs"].peak_bytes + TIMES * ran["ours"].case_bytes + SPARE_BYTES) / 2**30
    for name, one in ran.items():
        if not one.phases:
            continue
        groups = [one.groups[group] / 2**30 if group in one.groups else "-" for group in GROUPS]
        phases = ", ".join(f"{phase} {peak / 2**30:.1f}" for phase, peak in one.phases.items())
        case = one.case_bytes / 2**30 if one.case_bytes else "-"
        yield [file.names[0], name, case, *groups, one.peak_bytes / 2**30, allowed if name == "ours" else "-", phases]


def folders_of(places: Sequence[Path]) -> Iterator[Path]:
    """The problem folders at or below these places, each once."""
    yield from sorted({path.resolve() for place in places for path in problems_below(place) if path.is_dir()})


def files_of(folder: Path, own_only: bool) -> Iterator[File]:
    """A folder's files with what should become of them."""
    if (folder / "submission.py").is_file():
        yield File(folder=folder, path=folder / "submission.py", wanted="pass")
    if not own_only:
        for name, wanted in (("correct", "pass"), ("wrong", "fail")):
            for path in sorted((folder / "solutions" / name).glob("*.py")):
                yield File(folder=folder, path=path, wanted=wanted)


def evaluate(file: File, evaluator: str, asked: argparse.Namespace) -> Ran:
    """One `python -m harness eval`, not recorded."""
    with tempfile.TemporaryDirectory() as scratch:
        result, events = Path(scratch, "result.json"), Path(scratch, "events")
        command = [sys.executable, "-m", "harness", "eval", str(file.folder), str(file.path), "--eval", evaluator]
        command += ["--no-record", "--quiet", "--json", str(result), "--events", str(events), "--mode", asked.mode]
        command += ["--device", asked.device] if asked.device else []
        began = time.monotonic()
        with Memory(events if asked.memory else None) as memory:
            try:
                done = subprocess.run(
                    command, cwd=ROOT, capture_output=True, text=True, timeout=asked.limit, check=False
                )
                code, said = done.returncode, done.stderr or done.stdout
            except subprocess.TimeoutExpired:
                code, said = Exit.TIMED_OUT, f"had not ended after {asked.limit:g} s"
        seconds = time.monotonic() - began
        report = json.loads(result.read_text()) if result.is_file() else {}
    return Ran(
        word=WORDS.get(Exit(code), REFUSED),
        seconds=seconds,
        peak_bytes=memory.peak_bytes,
        line=_why(report) or " ".join(said.replace(f"{file.folder}/", "").split())[-300:].removeprefix("error: "),
        groups=report.get("peak_memory_bytes", {}),
        phases=memory.phases,
        case_bytes=max(map(_least_bytes, report.get("cases", [])), default=0.0),
    )


def _why(report: Mapping[str, Any]) -> str:
    """The first failure of a report."""
    errors = (case["error"] for case in report.get("cases", []))
    return next((" ".join(error.split())[:300] for error in errors if error), "")


def _least_bytes(case: Mapping[str, Any]) -> float:
    """The bytes of a measured case's inputs and outputs, where memory was measured."""
    series = case["outcome"].get("series", [])
    return next((one["least"] for one in series if one["metric"]["name"] == MEMORY.name), 0.0)


class Memory:
    """While it is entered, watches how much memory of the GPUs is in use; 0 where there are none. With the file of an
    evaluation's `events` it does so by phase."""

    def __init__(self, events: Path | None) -> None:
        self.peak_bytes = 0
        self.phases: dict[str, int] = {}
        self._events = events
        self._nvml = module("pynvml")
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> "Memory":
        if not isinstance(self._nvml, Unread) and os.path.exists("/dev/nvidiactl"):
            self._nvml.nvmlInit()
            self._before = self._used()
            self._thread = threading.Thread(target=self._watch)
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        if self._thread:
            self._thread.join()

    def _used(self) -> int:
        nvml = self._nvml
        handles = map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount()))
        return sum(int(nvml.nvmlDeviceGetMemoryInfo(handle).used) for handle in handles)

    def _watch(self) -> None:
        while not self._over.wait(POLL_S):
            used = self._used() - self._before
            self.peak_bytes = max(self.peak_bytes, used)
            if self._events is not None:
                phase = self._phase()
                self.phases[phase] = max(self.phases.get(phase, 0), used)

    def _phase(self) -> str:
        """The phase that began last."""
        assert self._events is not None
        lines = self._events.read_text().splitlines() if self._events.is_file() else []
        began = (event.name for event in map(event_of, reversed(lines)) if isinstance(event, PhaseBegan))
        return next(began, "before")


if __name__ == "__main__":
    main()
