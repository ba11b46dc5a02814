"""How near 1 the speedup of a KernelBench problem's own Model reads, for every problem of a folder.

    python bench/kernelbench.py DIR [--out runs/kernelbench] [--suite S] [--seconds 0.9] [--device cpu]

Writes each problem's file with Model called ModelNew, evaluates all with `eval-many`, and says of each what its speedup
is, then how many lie within 3 %. A problem that does not run here is named with the reason. The same command goes on
where it was interrupted. Nothing is recorded.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harness.core.checkout import Checkout
from harness.kinds.registry import find, problems_below

NEAR = 0.03
ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    """Evaluates and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "kernelbench")
    parser.add_argument("--suite")
    parser.add_argument("--seconds", default="0.9")
    parser.add_argument("--device")
    given = parser.parse_args()
    own = given.out / "own"
    own.mkdir(parents=True, exist_ok=True)
    members = problems_below(given.folder)
    for member in members:
        text = find(str(member.resolve()), Checkout.here()).start()
        (own / f"{member.stem}.py").write_text(text)
    command = [sys.executable, "-m", "harness", "eval-many", str(given.folder), str(own), "--keep", "1"]
    command += ["--out", str(given.out), "--seconds", given.seconds, "-q"]
    for name in ("suite", "device"):
        command += [f"--{name}", getattr(given, name)] if getattr(given, name) else []
    subprocess.run(command, cwd=ROOT, check=False)
    near = judged = 0
    for member in members:
        file = given.out / f"{member.stem}.jsonl"
        lines = file.read_text().splitlines() if file.is_file() else []
        for result in map(json.loads, lines):
            speedup = ((result.get("figures") or {}).get("speedup") or {}).get("value")
            judged += 1
            near += speedup is not None and abs(speedup - 1) <= NEAR
            print(f"{member.stem}: {result['verdict']} {'-' if speedup is None else f'{speedup:.3f}x'}")
    print(f"{len(members)} problems, {judged} evaluated, {near} within {NEAR:.0%} of 1")


if __name__ == "__main__":
    main()
