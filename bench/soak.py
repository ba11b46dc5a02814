"""Is a submission right on many inputs, and does it never hang? Fresh seeds under the strict verdict, then calls back
to back with changing shapes, each rank a little late now and then.

    python3 bench/soak.py gemm_rs --ranks 4                              GPUs, official test shapes, a few minutes
    python3 bench/soak.py gemm_rs --ranks 2 --drawn 5 --seeds 3          shapes near the benchmarks, as evaluations draw
    python3 bench/soak.py a2a --ranks 8 --device cpu --suite quick --seeds 3 --calls 200
    compute-sanitizer --target-processes all python3 bench/soak.py a2a --ranks 2 --suite quick --seeds 1 --calls 10

Ends with 1 where a result was wrong. A hang is the caller's to end (timeout).
"""

import argparse
import importlib
import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn

sys.path.insert(0, str(Path(__file__).resolve().parent))
from figures import Figures, add_data_argument, need_gpus
from gpu import operators
from tune import ROOT, load

sys.path.insert(0, str(ROOT))
from harness.core.checkout import Checkout
from harness.judging import correctness
from harness.machine import host
from harness.problems.drawn import drawn_cases
from harness.problems.shape_file import find

LATE_S = 0.002  # at most, by one rank in ten calls


def rank_main(rank: int, options: argparse.Namespace, cases: list[dict[str, Any]], folder: str) -> None:
    torch.set_num_threads(1)
    gpu = options.device != "cpu"
    device = torch.device("cuda", rank) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
    dist.init_process_group(
        "nccl" if gpu else "gloo",
        init_method=f"file://{folder}/meeting",
        rank=rank,
        world_size=options.ranks,
        device_id=device if gpu else None,
    )
    kernel = load(options.problem)[0].custom_kernel
    reference = importlib.import_module("reference")

    def made(params: dict[str, Any], seed: int) -> Any:
        with device:
            data = reference.generate_input(**params, rank=rank, world_size=options.ranks, seed=seed)
            return reference.harden(data, seed)

    began, wrong = time.monotonic(), 0
    for number in range(options.seeds):
        for params in cases:
            data = made(params, 1000 + number)
            output = kernel(data)
            with device:
                verdict = correctness.strict(output, reference.exact_kernel(data))
            if not verdict.passed:
                wrong += 1
                print(f"rank {rank}, seed {1000 + number}, {params}: {verdict.message}", flush=True)
    total = torch.tensor(wrong, device=device)
    dist.all_reduce(total)
    if rank == 0:
        checked, seconds = options.seeds * len(cases), time.monotonic() - began
        print(f"{options.problem}: {checked} calls checked, {total.item()} wrong results, {seconds:.0f} s")

    began, order, own = time.monotonic(), random.Random(7), random.Random(rank)
    inputs = [made(params, 5) for params in cases]
    expected = [kernel(data).clone() for data in inputs]
    for number in range(options.calls):
        index = order.randrange(len(inputs))
        if own.random() < 0.1 / options.ranks:
            time.sleep(own.uniform(0, LATE_S))
        output = kernel(inputs[index])
        # The same inputs in the same order of additions give the same bits; looked at seldom, so that calls pile up.
        if number % 97 == 0 and not torch.equal(output, expected[index]):
            raise AssertionError(f"rank {rank}: call {number}, {cases[index]} differs from its first result")
    if gpu:
        torch.cuda.synchronize()
    dist.barrier()
    if rank == 0:
        more_s = time.monotonic() - began
        print(f"{options.problem}: {options.calls} calls back to back, {more_s:.0f} s", flush=True)
        row = [options.problem, checked, int(total.item()), seconds, options.calls, more_s]
        Path(folder, "row.json").write_text(json.dumps(row))
    dist.destroy_process_group()
    if total.item():
        os._exit(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problem", choices=operators())
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--suite", default="official")
    parser.add_argument("--drawn", type=int, default=0, metavar="N", help="the shapes that N evaluations draw, instead")
    parser.add_argument("--seeds", type=int, default=200, help="for every shape (default: %(default)s)")
    parser.add_argument("--calls", type=int, default=10_000, help="back to back (default: %(default)s)")
    add_data_argument(parser)
    options = parser.parse_args()
    if options.device != "cpu":
        need_gpus(parser, options.ranks, torch.cuda.device_count(), f"torch {torch.__version__}")
    problem = find(options.problem, Checkout.here())
    suite = problem.with_world_size(problem.suite(options.suite), options.ranks)
    drawn = [case for number in range(options.drawn) for case in drawn_cases(problem, suite, f"soak {number}")]
    if options.drawn and not drawn:
        parser.error(f"no shapes are drawn for {options.problem}, suite {options.suite}")
    cases = [dict(case.params) for case in drawn or suite.tests]
    where = torch.cuda.get_device_name(0) if options.device != "cpu" else host.environment("", 1).machine_class
    figures = Figures("Many inputs, many calls", f"{options.ranks} ranks on {where}")
    with tempfile.TemporaryDirectory() as folder:
        spawn(rank_main, (options, cases, folder), nprocs=options.ranks)
        row = json.loads(Path(folder, "row.json").read_text())
    figures.table(["problem", "calls checked", "wrong on a rank", "s", "calls back to back", "s"], [row])
    figures.write(options.data)


if __name__ == "__main__":
    main()
