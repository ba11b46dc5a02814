"""The judge alone: how far right results are from its limits, on fresh seeds, in one loop.

    python bench/judge.py PROBLEM ... [--suite official] [--seconds 60] [--device cuda]     problems of one rank

Of each shape, each seed is judged on the published and on the hardened input: what the shipped submission returns, what
its peers do (submissions/PROBLEM/peers) and what torch's own operators do (the reference that is timed). A peer that
cannot be imported or does not run here is left out, in a line. A margin is the worst group's rms(error / noise) over
its limit; above 1 an output is wrong. An evaluation judges some dozens of outputs of a shape.
"""

import argparse
import importlib
import platform
import runpy
import sys
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from figures import ROOT, Figures, add_data_argument

sys.path.insert(0, str(ROOT / "tests"))
from kernel_ranks import imported

from harness.core.checkout import Checkout
from harness.core.words import clean_line
from harness.judging import correctness
from harness.problems import shape_file
from harness.ranks import payload

Kernel = Callable[[Any], Any]
OWN = ("submission", "torch")


def margins(kernel: Kernel, data: Any, right: Any) -> list[tuple[float, str]]:
    """Of every part of what the kernel returns, with the place of the worst group."""
    found = kernel(payload.copied(data))
    parts = right if isinstance(right, tuple) else (right,)
    outputs = found if isinstance(found, tuple) else (found,)
    seen = []
    for output, part in zip(outputs, parts, strict=True):
        margin, place = correctness.farthest(output, part)
        seen.append((margin, f"{part.name or 'the result'}, {place}"))
    return seen


def kernels_of(problem: str, submission: ModuleType, reference: ModuleType) -> dict[str, Kernel]:
    """All that are judged, by name."""
    found: dict[str, Kernel] = {"submission": submission.custom_kernel, "torch": reference.ref_kernel}
    for file in sorted((ROOT / "submissions" / problem / "peers").glob("*.py")):
        try:
            found[file.stem] = runpy.run_path(str(file))["custom_kernel"]
        except Exception as error:  # whatever a library raises where it is not at hand
            left_out(problem, file.stem, error)
    return found


def left_out(problem: str, name: str, error: Exception) -> None:
    print(f"{problem} {name}: left out: {clean_line(f'{type(error).__name__}: {error}')}", file=sys.stderr, flush=True)


def judged(problem: str, suite: str, device: str, seconds: float) -> list[list[Any]]:
    """A row a shape and kernel."""
    known = shape_file.find(problem, Checkout.here())
    cases = known.with_world_size(known.suite(suite), 1).benchmarks
    rows = []
    with imported(problem) as submission, torch.device(device):
        reference = importlib.import_module("reference")
        kernels = kernels_of(problem, submission, reference)
        for case in cases:
            found: dict[str, list[tuple[float, str]]] = {name: [] for name in kernels}
            began, seed = time.monotonic(), case.seed
            while seed == case.seed or time.monotonic() - began < seconds / len(cases):
                for hardened in (True, False):
                    data = reference.generate_input(**case.params, rank=0, world_size=1, seed=seed)
                    data = reference.harden(data, seed) if hardened else data
                    right = reference.exact_kernel(payload.copied(data))
                    for name in list(kernels):
                        try:
                            found[name] += margins(kernels[name], data, right)
                        except Exception as error:
                            if name in OWN:
                                raise
                            left_out(problem, name, error)
                            del kernels[name]
                    del data, right
                if seed == case.seed:
                    began = time.monotonic()  # compiling does not count
                seed += 1
            for name, seen in found.items():
                if name not in kernels:
                    continue
                values = sorted(margin for margin, _ in seen)
                worst = max(seen)
                wrong = sum(value > 1 for value in values)
                rows.append([problem, case.label, name, len(seen), wrong, values[len(values) // 2], *worst])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="+")
    parser.add_argument("--suite", default="official")
    parser.add_argument("--seconds", type=float, default=60.0, help="a problem")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    add_data_argument(parser)
    options = parser.parse_args()
    machine = torch.cuda.get_device_name() if options.device != "cpu" else platform.processor() or platform.machine()
    figures = Figures("Margins of right results", f"{machine}, torch {torch.__version__}, suite {options.suite}")
    columns = ["problem", "shape", "kernel", "outputs", "wrong", "median margin", "largest", "where"]
    for problem in options.problems:
        figures.table(columns, judged(problem, options.suite, options.device, options.seconds), decimals=3)
    figures.write(options.data)


if __name__ == "__main__":
    main()
