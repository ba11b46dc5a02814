"""Does `settle` tell two files apart whose difference is known?

    python bench/apart.py a2a                            the shipped submission, and one that takes 3 % longer
    python bench/apart.py a2a --percent 0 3 10           so many files, each that much slower than the shipped one
    python bench/apart.py a2a --rounds 16                passed on to settle

A slower file is the shipped submission as one file (`merge`), with a wrapper that spends that share of the call's own
CPU time again. On CPU cores, where ranks share them, a call takes about that much longer: less where a rank waits for
others without using a core, more where the others then wait for it. Everything happens in a copy of the checkout:
nothing is recorded here. Prints each evaluation's place as the board shows it, then what settle says.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from copied import copied

WRAPPER = '''

import time as _time

_as_it_is = custom_kernel


def custom_kernel(data):
    """As above, and {percent} % of its CPU time once more."""
    begin_ns = _time.thread_time_ns()
    output = _as_it_is(data)
    end_ns = _time.thread_time_ns()
    end_ns += int((end_ns - begin_ns) * {percent} / 100)
    while _time.thread_time_ns() < end_ns:
        pass
    return output
'''


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problem")
    parser.add_argument("--percent", type=float, nargs="+", default=[3.0], metavar="P", help="how much slower (3)")
    parser.add_argument("--rounds", type=int, metavar="N", help="at most so many rounds (default: settle's)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = copied(Path(name)).root
        merged = folder / "shipped.py"
        harness(folder, "merge", options.problem, "--out", str(merged))
        source = merged.read_text()
        files = [merged]
        for percent in options.percent:
            file = folder / f"slower_{percent:g}.py"
            file.write_text(source + WRAPPER.format(percent=percent))
            files.append(file)
        for file in files:
            words = ("--author", file.stem, "--device", "cpu", "--quiet")
            harness(folder, "eval", options.problem, str(file), *words)
        harness(folder, "board", options.problem)
        rounds = ("--rounds", str(options.rounds)) if options.rounds else ()
        harness(folder, "settle", options.problem, "--top", str(len(files)), *rounds)


def harness(folder: Path, *words: str) -> None:
    """A verb in the copy; ends this where it fails."""
    print("$ python -m harness", *words, flush=True)
    if ended := subprocess.run([sys.executable, "-m", "harness", *words], cwd=folder).returncode:
        sys.exit(f"{words[0]} ended with exit code {ended}")


if __name__ == "__main__":
    main()
