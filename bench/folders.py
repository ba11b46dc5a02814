"""What becomes of other people's problem folders here: every folder's own files, by our ranks and by its own eval.py.

    python bench/folders.py ../reference-kernels/problems/pmpp_v2 --device cpu
    python bench/folders.py pmpp_v2 bioml --data docs/measurements/3-gpu-2x-h200/30-folders.yaml

Of each folder with a task.yml below those named: its default submission and `solutions/correct` must pass,
`solutions/wrong` must fail. Each is evaluated in mode leaderboard, which their eval.py needs three modes for. Memory is
the most that the GPUs had in use meanwhile, less what they had before; so nothing else should run there.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from figures import Figures, add_data_argument

from harness.core import stats
from harness.core.errors import Exit
from harness.gpumode.folder import FILE
from harness.machine import host
from harness.machine.gpus import gpu_names
from harness.machine.readings import Unread, module

WORDS = {Exit.OK: "pass", Exit.INVALID: "fail", Exit.TIMED_OUT: "timeout"}  # any other: refused
POLL_S = 0.01


@dataclass(frozen=True, kw_only=True)
class Ran:
    """One evaluation. `line` is the last that it said of a failure."""

    word: str
    seconds: float
    peak_bytes: int
    line: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="problem folders, or folders that have some below them")
    parser.add_argument("--device", help="as `eval` takes it")
    parser.add_argument("--evals", default="ours,theirs", help="by which evaluators (default: %(default)s)")
    parser.add_argument("--own", action="store_true", help="the folders' default submissions only, without solutions")
    parser.add_argument("--mode", default="leaderboard", help="as `eval` takes it (default: %(default)s)")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds an evaluation may take (default: 600)")
    add_data_argument(parser)
    asked = parser.parse_args()
    evals = asked.evals.split(",")
    model = "" if asked.device == "cpu" else (gpu_names() or ("",))[0]
    figures = Figures("Other people's problem folders", host.environment(model, 1).machine_class)
    rows, ratios, wrong = [], [], 0
    for folder in folders_of(asked.folders):
        for file, wanted in files_of(folder, asked.own):
            ran = {name: evaluate(folder, file, name, asked) for name in evals}
            wrong += any(one.word != wanted for one in ran.values())
            if {one.word for one in ran.values()} == {"pass"} and len(ran) == 2:
                ratios.append(ran["ours"].seconds / ran["theirs"].seconds)
            cells = [cell for one in ran.values() for cell in (one.word, one.seconds, one.peak_bytes / 2**30)]
            lines = "; ".join(one.line for one in ran.values() if one.line and one.word != wanted)
            rows.append([f"{folder.parent.name}/{folder.name}", file.relative_to(folder).name, wanted, *cells, lines])
            print("\t".join(str(cell) for cell in rows[-1]), file=sys.stderr, flush=True)
    columns = [f"{name} {what}" for name in evals for what in ("verdict", "s", "peak GiB")]
    after = f"{len(rows) - wrong} of {len(rows)} as they should be."
    if ratios:
        after += f" Where both pass, ours takes {stats.median(ratios):.2f} times as long (median of {len(ratios)})."
    figures.table(["folder", "file", "should", *columns, "why not"], rows, "By file", f"{after}\n")
    figures.write(asked.data)


def folders_of(places: Sequence[Path]) -> Iterator[Path]:
    """The problem folders at or below these places, each once."""
    found = {path.parent.resolve() for place in places for path in (place / FILE, *place.rglob(FILE)) if path.is_file()}
    yield from sorted(found)


def files_of(folder: Path, own_only: bool) -> Iterator[tuple[Path, str]]:
    """A folder's files with what should become of them."""
    if (folder / "submission.py").is_file():
        yield folder / "submission.py", "pass"
    if not own_only:
        for name, wanted in (("correct", "pass"), ("wrong", "fail")):
            for path in sorted((folder / "solutions" / name).glob("*.py")):
                yield path, wanted


def evaluate(folder: Path, file: Path, evaluator: str, asked: argparse.Namespace) -> Ran:
    """One `python -m harness eval`, not recorded."""
    with tempfile.TemporaryDirectory() as scratch:
        result = Path(scratch, "result.json")
        command = [sys.executable, "-m", "harness", "eval", str(folder), str(file), "--eval", evaluator]
        command += ["--no-record", "--quiet", "--json", str(result), "--mode", asked.mode]
        command += ["--device", asked.device] if asked.device else []
        began = time.monotonic()
        with Memory() as memory:
            try:
                done = subprocess.run(
                    command, cwd=ROOT, capture_output=True, text=True, timeout=asked.limit, check=False
                )
                code, said = done.returncode, done.stderr or done.stdout
            except subprocess.TimeoutExpired:
                code, said = Exit.TIMED_OUT, f"had not ended after {asked.limit:g} s"
        seconds = time.monotonic() - began
        line = _why(result) or " ".join(said.split())[-300:]
    return Ran(word=WORDS.get(Exit(code), "refused"), seconds=seconds, peak_bytes=memory.peak_bytes, line=line)


def _why(result: Path) -> str:
    """The first failure of a report."""
    if not result.is_file():
        return ""
    errors = (case["error"] for case in json.loads(result.read_text())["cases"])
    return next((" ".join(error.split())[:300] for error in errors if error), "")


class Memory:
    """While it is entered, watches how much memory of the GPUs is in use; 0 where there are none."""

    def __init__(self) -> None:
        self.peak_bytes = 0
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
            self.peak_bytes = max(self.peak_bytes, self._used() - self._before)


if __name__ == "__main__":
    main()
