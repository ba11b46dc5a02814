"""An evaluator that needs no ranks: it tells what it was given, which tests look at, and always the same times."""

import os
import sys
from pathlib import Path

with os.fdopen(int(os.environ["POPCORN_FD"]), "w") as lines:
    cases = Path(sys.argv[2]).read_text().splitlines()
    kind = "test" if sys.argv[1] == "test" else "benchmark"
    print(f"{kind}-count: {len(cases)}", file=lines)
    for index, spec in enumerate(cases):
        print(f"{kind}.{index}.spec: {spec}", file=lines)
        if kind == "test":
            print(f"test.{index}.status: pass", file=lines)
        else:
            for name, value in {"runs": 3, "mean": 2500.0, "std": 3.0, "err": 1.7, "best": 2400, "worst": 2600}.items():
                print(f"benchmark.{index}.{name}: {value}", file=lines)
    print("check: pass", file=lines)
for name in ("POPCORN_SEED", "POPCORN_GPUS"):
    print(sys.argv[1], name, os.environ.get(name))
