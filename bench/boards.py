"""The boards of this machine's GPUs anew: every shipped submission and its peers, evaluated and recorded one by one.

    python3 bench/boards.py --out FOLDER                                problems of one GPU
    python3 bench/boards.py --out FOLDER --ranks 2                      problems of several, one rank a GPU
    python3 bench/boards.py --out FOLDER --problems gemm --launches 1   some of them, in less time
    python3 bench/boards.py --out FOLDER --limit 500                    begins none that may take longer than is left
    python3 bench/boards.py --out FOLDER --jobs 4                       on four GPUs side by side
    python3 bench/boards.py --out FOLDER --own                          without the peers

Goes on where it stopped: a file whose result in FOLDER says that it passed is not evaluated again. With --device cpu it
does the same on CPU cores.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from figures import need_gpus

from harness.agents.result import Result
from harness.agents.workers import environs_of
from harness.core.checkout import Checkout
from harness.core.json_file import file_if_any
from harness.core.words import clean_line
from harness.machine.gpus import gpu_names
from harness.problems.shape_file import find, problem_names

OWN, LIBRARY = "maintainers", "# library: "
USUAL_S = 60.0  # of an evaluation, where FOLDER has none of the same problem
SUITES = {"llama": "brief"}  # on GPUs, instead of official, which takes minutes


def files_of(problem: str, with_peers: bool = True) -> Iterator[tuple[Path, str]]:
    """The shipped submission and its peers, each with its author."""
    yield Path(find(problem, Checkout.here()).default_submission()), OWN
    if not with_peers:
        return
    for file in sorted((ROOT / "submissions" / problem / "peers").glob("*.py")):
        yield file, file.read_text().partition("\n")[0].removeprefix(LIBRARY)


def result_of(given: argparse.Namespace, problem: str, file: Path) -> Path:
    """Where what an evaluation found is kept."""
    return Path(given.out, f"{problem}-{given.ranks}-{file.stem}.json")


def longest_s(given: argparse.Namespace, problem: str) -> float:
    """How long an evaluation of the problem may take, by those in the folder."""
    found = [file_if_any(Result, result_of(given, problem, file)) for file, _ in files_of(problem)]
    return max((one.seconds for one in found if one), default=USUAL_S)


def told(problem: str, file: Path, result: Path) -> str:
    """What is known of a file, in a line."""
    found = file_if_any(Result, result)
    if found is None:
        return f"{problem:14} {file.stem:18} not evaluated"
    speedup = f"{found.figures.speedup.value:.3f}x" if found.figures and found.figures.speedup else "-"
    why = "" if found.verdict == "pass" else f"  {found.next}"
    return clean_line(f"{problem:14} {file.stem:18} {found.verdict:10} {speedup:>8} {found.seconds:6.1f} s{why}")


def evaluate(given: argparse.Namespace, problem: str, file: Path, author: str, environ: dict[str, str]) -> None:
    """Evaluates and records one file."""
    command = [sys.executable, "-m", "harness", "eval", problem, str(file), "--author", author, "--quiet"]
    command += ["--no-leader", "--ranks", str(given.ranks), "--result", str(result_of(given, problem, file))]
    suite = given.suite or (SUITES.get(problem) if given.device == "cuda" else None)
    command += ["--device", given.device, *(["--suite", suite] if suite else [])]
    command += ["--launches", str(given.launches)] if given.launches else []
    command += ["--seconds", str(given.seconds)] if given.seconds else []
    try:
        subprocess.run(command, cwd=ROOT, env=environ, stdout=subprocess.DEVNULL, timeout=given.timeout, check=False)
    except subprocess.TimeoutExpired:
        print(f"{problem} {file.stem}: not done in {given.timeout:g} s", flush=True)


def main() -> None:
    """Evaluates, then prints a line for each file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the results' folder")
    parser.add_argument("--ranks", type=int, default=1, help="GPUs of an evaluation (default: %(default)s)")
    parser.add_argument("--problems", nargs="+", help="(default: all for so many GPUs)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--suite", help="(default: eval's own; brief of llama)")
    parser.add_argument("--launches", type=int, help="of each evaluation (default: eval's own)")
    parser.add_argument("--seconds", type=float, help="of each benchmark (default: eval's own)")
    parser.add_argument("--timeout", type=float, default=200.0, help="seconds of one evaluation (default: %(default)s)")
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds, by which all is to be over")
    parser.add_argument("--jobs", type=int, default=1, help="GPUs side by side, a problem of one rank on each")
    parser.add_argument("--own", action="store_true", help="the shipped submissions alone, without their peers")
    given = parser.parse_args()
    if given.device == "cuda":
        need_gpus(parser, given.ranks, len(gpu_names() or ()))
    began, checkout = time.monotonic(), Checkout.here()
    with_peers = [name for name in problem_names(checkout) if (ROOT / "submissions" / name / "peers").is_dir()]
    problems = given.problems or [name for name in with_peers if find(name, checkout).multi_gpu == (given.ranks > 1)]
    given.out.mkdir(parents=True, exist_ok=True)
    files = [(problem, file, author) for problem in problems for file, author in files_of(problem, not given.own)]
    idle: Queue[dict[str, str]] = Queue()
    for environ in environs_of(given.device, given.ranks, given.jobs):
        idle.put(environ)

    def evaluated(of: tuple[str, Path, str]) -> None:
        problem, file, author = of
        before = file_if_any(Result, result_of(given, problem, file))
        if before and before.verdict == "pass":
            return
        environ = idle.get()
        if time.monotonic() - began + longest_s(given, problem) > given.limit:
            idle.put(environ)
            return
        evaluate(given, problem, file, author, os.environ | environ)
        idle.put(environ)
        print(told(problem, file, result_of(given, problem, file)), flush=True)

    with ThreadPoolExecutor(idle.qsize()) as pool:
        list(pool.map(evaluated, files))
    print()
    for problem, file, _ in files:
        print(told(problem, file, result_of(given, problem, file)))


if __name__ == "__main__":
    main()
