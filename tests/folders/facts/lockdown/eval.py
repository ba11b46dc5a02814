"""Facts of helion's evaluators: the clocks are locked before a benchmark, outside of any case; a case of a ranked run
that is wrong ends it with `check: fail` and exit code 0; main returns nothing in modes leaderboard and profile."""

import base64
import os
import sys
from pathlib import Path

from utils import lock_clocks

from reference import check_implementation, generate_input


def checked(spec):
    from submission import custom_kernel

    size, seed = (int(part.partition(":")[2]) for part in spec.split(";"))
    data = generate_input(size=size, seed=seed)
    return check_implementation(data, custom_kernel(list(data)))


def main():
    mode, specs = sys.argv[1], Path(sys.argv[2]).read_text().splitlines()
    kind = "test" if mode == "test" else "benchmark"
    passed = True
    with os.fdopen(int(os.environ["POPCORN_FD"]), "w") as lines:
        if mode in ("benchmark", "leaderboard"):
            lock_clocks()
        print(f"{kind}-count: {len(specs)}", file=lines)
        for index, spec in enumerate(specs):
            print(f"{kind}.{index}.spec: {spec}", file=lines)
            right, message = checked(spec)
            if mode == "profile":
                table = f"calls of {spec}\n"
                print(f"benchmark.{index}.report: {base64.b64encode(table.encode(), b'+*').decode()}", file=lines)
            elif not right:
                passed = False
                print(f"{kind}.{index}.status: fail\n{kind}.{index}.error: {message}", file=lines)
                break
            elif mode == "test":
                print(f"test.{index}.status: pass", file=lines)
            else:
                print(f"benchmark.{index}.runs: 3\nbenchmark.{index}.mean: {1000 * (index + 1)}", file=lines)
        print(f"check: {'pass' if passed else 'fail'}", file=lines)
    if mode in ("test", "benchmark"):
        return 0 if passed else 112
    return None


if __name__ == "__main__":
    sys.exit(main())
