"""How far honest and wrong kernels are from the strict limit, on every shape of some suites.

    python bench/correctness_margins.py                                    quick and cpu, about 2 minutes on 2 cores
    python bench/correctness_margins.py --suites official --device cuda    the official shapes, one GPU, ranks in turns

Prints one table a problem for docs/correctness.md (`--data FILE`: and into a file for docs/measurements/), and exits
with 1 if any variant is judged wrongly. A margin is the worst group's rms(error / noise) over its limit, on the worst
rank: above 1 fails.
"""

import argparse
import platform
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from collections.abc import Sequence
from typing import Any

import torch
from figures import Figures, add_data_argument

from harness.core.checkout import Checkout
from harness.core.records import Case
from harness.problems import shape_file
from tests import corpus
from tests.court import Court, Ranks, judge, margin


@dataclass(kw_only=True)
class Found:
    """What was seen of one variant, an entry a shape and seed."""

    hardened: list[float] = field(default_factory=list)  # margins
    published: list[float] = field(default_factory=list)  # margins on inputs that are not hardened
    gpumode: list[bool] = field(default_factory=list)  # whether the published tolerance passed these
    misjudged: list[str] = field(default_factory=list)


def measured(court: Court, cases: Sequence[Case], seeds: int) -> dict[str, Found]:
    """Runs every variant on every case, with the case's own seed and the next ones."""
    variants = corpus.variants(court.problem)
    kernels = {variant.name: court.load(corpus.submission(variant)) for variant in variants}
    found = {name: Found() for name in ("ref_kernel", *kernels)}
    for case in cases:
        started = time.monotonic()
        for seed in range(case.seed, case.seed + seeds):
            for hardened in (True, False):
                # Another seed, so that what a stale variant kept from the hardened call is not right here.
                data = court.inputs(case.params, seed + (0 if hardened else 13), hardened)
                expected = court.expected(data)
                right = court.run([court.reference.ref_kernel] * case.world_size, data)
                reference = court.reference
                note(found["ref_kernel"], "ref_kernel", True, hardened, right, expected, reference, right)
                for variant in variants:
                    if variant.needs_bias and not case.params["has_bias"]:
                        continue
                    outputs = court.run(kernels[variant.name], data)
                    seen, honest = found[variant.name], variant.is_honest
                    note(seen, variant.name, honest, hardened, outputs, expected, reference, right)
        print(f"{court.problem} {case.label}: {time.monotonic() - started:.1f} s", file=sys.stderr, flush=True)
    return found


def note(
    found: Found, name: str, honest: bool, hardened: bool, outputs: Any, expected: Any, reference: Any, right: Any
) -> None:
    worst = max(map(margin, outputs, expected))
    (found.hardened if hardened else found.published).append(worst)
    passed = all(judge(*pair).passed for pair in zip(outputs, expected, strict=True))
    if passed != honest and (hardened or honest):
        found.misjudged.append(f"{name}: margin {worst:.3g}, hardened {hardened}")
    if not hardened:
        rtol, atol = reference.RTOL, getattr(reference, "ATOL", reference.RTOL)
        close = (reference.within_tolerance(*pair, rtol, atol)[0] for pair in zip(outputs, right, strict=True))
        found.gpumode.append(all(close))


def table(name: str, found: dict[str, Found]) -> tuple[list[str], list[list[str]]]:
    """Columns and rows: honest variants by their largest margin, wrong ones by their smallest."""
    honest = {"ref_kernel": True} | {variant.name: variant.is_honest for variant in corpus.variants(name)}
    rows = []
    for variant, seen in found.items():
        extreme, word = (max, "honest") if honest[variant] else (min, "wrong")
        passes = f"{sum(seen.gpumode)} of {len(seen.gpumode)}"
        rows.append([variant, word, f"{extreme(seen.hardened):.3g}", f"{extreme(seen.published):.3g}", passes])
    return [name, "", "hardened inputs", "published inputs", "passes the published tolerance"], rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suites", nargs="+", default=["quick", "cpu"])
    parser.add_argument("--problems", nargs="+", default=list(corpus.PROBLEMS))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=1, help="seeds a case")
    add_data_argument(parser)
    options = parser.parse_args()
    machine = platform.processor() or platform.machine()
    if options.device != "cpu":
        machine = torch.cuda.get_device_name()
    figures = Figures(
        "Margins of honest and wrong kernels",
        f"{machine}, torch {torch.__version__}, {options.ranks} ranks as threads; suites {', '.join(options.suites)}, "
        f"{options.seeds} seed(s) a shape",
    )
    misjudged = []
    with Ranks(options.ranks, options.device) as ranks:
        for name in options.problems:
            known = shape_file.find(name, Checkout.here())
            suites = [known.with_world_size(known.suite(suite), options.ranks) for suite in options.suites]
            cases = [case for suite in suites for case in (*suite.tests, *suite.benchmarks)]
            # The variants are not written for ranks without a token.
            cases = [case for case in cases if case.params.get("routing") != "empty"]
            found = measured(Court(ranks, name), cases, options.seeds)
            figures.table(*table(name, found))
            misjudged += [f"{name}: {line}" for seen in found.values() for line in seen.misjudged]
    figures.write(options.data)
    print("\n".join(["", f"{len(misjudged)} misjudged", *misjudged]))
    return 1 if misjudged else 0


if __name__ == "__main__":
    sys.exit(main())
