"""What a call costs the host: microseconds of Python until a submission's kernels are submitted, without waiting.

Until its launch, behind which it may do what nobody waits for, and until it returns. Called again and again; alone,
each time after the device's caches were flushed and everything was waited for; and cold, when the host's caches have
been flushed too. In an evaluation a call finds them between alone and cold.

python3 bench/host.py gemm_rs ag_gemm a2a --ranks 4 [--data FILE]
python3 bench/host.py rms_norm swiglu gemm --ranks 1
"""

import argparse
import importlib
import itertools
import json
import statistics
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
from tune import FLUSH_BYTES, load

CALLS = 200
CASES: dict[str, dict[str, Any]] = {
    "gemm_rs": {"m": 512, "n": 4096, "k": 12288, "has_bias": True},
    "ag_gemm": {"m": 512, "n": 12288, "k": 4096, "has_bias": True},
    "a2a": {"num_experts": 128, "experts_per_token": 4, "hidden_dim": 2880, "max_num_tokens": 128},
    "rms_norm": {"rows": 8192, "hidden": 8192, "backward": False, "eps": 1e-5},
    "swiglu": {"rows": 8192, "ffn": 28672, "backward": False},
    "gemm": {"m": 8192, "n": 8192, "k": 8192},
}
HOST_BYTES = 512 << 20  # more than a host's caches
CONDITIONS = ("again and again", "alone", "cold")


def rank_main(rank: int, world_size: int, problem: str, meeting: str, out: str) -> None:
    torch.cuda.set_device(rank)
    device = torch.device("cuda", rank)
    dist.init_process_group("nccl", init_method=f"file://{meeting}", rank=rank, world_size=world_size, device_id=device)
    submission, _ = load(problem)
    reference = importlib.import_module("reference")
    with device:
        data = reference.generate_input(rank=rank, world_size=world_size, seed=7, **CASES[problem])
    launched: list[int] = []  # when; no more than the last

    def launches(output: torch.Tensor) -> None:
        launched[:] = [time.perf_counter_ns()]
        if make_ahead:
            make_ahead(output)

    make_ahead = getattr(submission, "make_ahead", None)
    if make_ahead:
        vars(submission)["make_ahead"] = launches
    scratch = torch.empty(FLUSH_BYTES, dtype=torch.int8, device=device)
    host_memory = torch.zeros(HOST_BYTES, dtype=torch.int8)
    cells = []
    for kernel, condition in itertools.product((submission.custom_kernel, reference.ref_kernel), CONDITIONS):
        submitted, returned = [], []
        for call in range(CALLS):
            if condition != "again and again":
                scratch.zero_()
            if condition == "cold":
                host_memory.add_(1)
            if condition != "again and again" or call % 8 == 0:
                torch.cuda.synchronize()  # the queue never fills up
            begin = time.perf_counter_ns()
            launched.clear()
            kernel(data)
            end = time.perf_counter_ns()
            submitted.append(((*launched, end)[0] - begin) / 1000)
            returned.append((end - begin) / 1000)
        torch.cuda.synchronize()
        low, middle, high = statistics.quantiles(submitted[CALLS // 4 :], n=4)
        cells.append(f"{middle:.1f} ({low:.1f} to {high:.1f})")
        if kernel is submission.custom_kernel:
            cells[-1] += f", {statistics.median(returned[CALLS // 4 :]):.1f}"
    if rank == 0:
        Path(out).write_text(json.dumps([problem, *cells]))
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="+", choices=CASES)
    parser.add_argument("--ranks", type=int, required=True)
    add_data_argument(parser)
    options = parser.parse_args()
    need_gpus(parser, options.ranks, torch.cuda.device_count(), f"torch {torch.__version__}")
    figures = Figures("Python of a call", f"{options.ranks}x {torch.cuda.get_device_name(0)}")
    rows = []
    for problem in options.problems:
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder, "row.json")
            arguments = (options.ranks, problem, str(Path(folder, "meeting")), str(out))
            spawn(rank_main, arguments, nprocs=options.ranks)
            rows.append(json.loads(out.read_text()))
    columns = [f"{name}, {how}" for name in ("submission.py", "reference") for how in CONDITIONS]
    figures.table(["Until the launch, us: median (quartiles), and until it returns", *columns], rows)
    figures.write(options.data)


if __name__ == "__main__":
    main()
