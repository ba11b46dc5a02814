"""The figures of docs/models.md that need a GPU: our Llama 3.2 1B beside torch eager and torch.compile, in one run.

    python3 bench/llama.py                       is ours right? then time to first token, a step, tokens a second
    python3 bench/llama.py check                 only whether ours is right, at several sizes
    python3 bench/llama.py kernels               what each kernel of a prompt and of a step takes
    python3 bench/llama.py sweep                 whole prompts and steps with other kernels, each in turn with the first
    python3 bench/llama.py products              the products of a prompt, beside cuBLAS
    python3 bench/llama.py ranks --ranks 2       one model on 2 GPUs, beside one alone
    python3 bench/llama.py compare --compile     torch.compile too, which takes minutes to make its kernels

Times are medians of the host's clock around work that has ended, one model after the other in turn. `check` and
`compare` take 30 seconds each, `sweep` as long as --seconds says.
"""

import argparse
import faulthandler
import importlib
import os
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [
    str(ROOT / part)
    for part in (
        *("submissions/llama", "submissions/llama/peers", "submissions"),
        *("reference/llama", "reference/common", ""),
    )
]

import torch
import torch.distributed as dist
import tuned
from adapter import Generation
from llama_sweep import HANGS_S, NAME, products, sweep
from params import Params, cost
from torch.multiprocessing.spawn import spawn

import reference
from harness.judging import correctness
from harness.kinds.model import rank as logits
from harness.machine import hardware

BUILDS = {"eager": "reference", "ours": "model", "compile": "torch_compile"}  # modules by name
SIZES = ((1, 1024, 8), (1, 48, 8), (1, 333, 4), (4, 200, 4))  # batch, prompt, new tokens, of `check`


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", nargs="*", default=["check", "compare"], help=f"of {', '.join(BENCHES)}")
    parser.add_argument("--prompt", type=int, default=1024)
    parser.add_argument("--new", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--ranks", type=int, default=2, help="GPUs of `ranks`")
    parser.add_argument("--parts", nargs="+", default=["step", "prompt"], choices=["step", "prompt"], help="of `sweep`")
    parser.add_argument(
        "--only", nargs="+", default=[""], help="what `sweep` tries: lines that have one of these texts"
    )
    parser.add_argument("--seconds", type=float, default=85.0, help="from the start, after which `sweep` tries no more")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("there is no GPU here; `make eval PROBLEM=llama` runs on CPU cores")
    torch.set_default_device("cuda")
    for which in options.which:
        try:
            with torch.no_grad():
                BENCHES[which](options)
        except Exception:  # the other parts are worth their figures
            traceback.print_exc()


def check(options: argparse.Namespace) -> None:
    """Whether logits are right: the largest error over its limit, at most 1."""
    run = Generation(importlib.import_module("model").build)
    for batch, prompt, new in SIZES:
        faulthandler.dump_traceback_later(2 * HANGS_S, exit=True)
        data = reference.generate_input(0, 1, NAME, batch, prompt, new, seed=prompt)
        for attempt in range(2):  # the second one runs the graphs that the first one made
            output = run(data)
            expected = reference.exact_kernel(data, output)
            margin, of_head = (correctness.margin(output, one) for one in expected)
            verdict = logits.judged(output, reference.output_shape(data), partial(tuple, expected))
            same = float((output.argmax(-1) == expected[0].value.argmax(-1)).float().mean())
            told = f"margin {margin:.3f}, of the last matrix {of_head:.3f}, greedy {same:.3f} alike"
            print(f"{batch} x {prompt} + {new}, run {attempt}: {told}", flush=True)
            if verdict.message:
                print(f"  {verdict.message}", flush=True)
    faulthandler.cancel_dump_traceback_later()


def seconds(work: Callable[[], Any]) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def compare(options: argparse.Namespace) -> None:
    """Time to first token, a step without and with the harness's sampling, tokens a second. With torch.compile there is
    a table without it first, since nothing else takes so long."""
    prompt, new = options.prompt, options.new
    inputs = [reference.generate_input(0, 1, NAME, 1, prompt, new, seed) for seed in range(options.repeats + 1)]
    ready: dict[str, Generation] = {}
    for names in (("eager", "ours"), ("compile",) if options.compile else ()):
        if "compile" in names:
            torch.set_default_device(None)  # torch.compile cannot trace all of a tensor's methods under one
        for name in names:
            run = Generation(importlib.import_module(BUILDS[name]).build)
            print(f"{name}: the first prompt took {seconds(partial(run, first(inputs[0]))):.1f} s", flush=True)
            prompts = [1e6 * seconds(partial(run, first(data))) for data in inputs]
            print(f"{name}: time to first token {statistics.median(prompts):.0f} us", flush=True)
            print(f"{name}: the first steps took {seconds(partial(run, inputs[0])):.1f} s", flush=True)
            stepping = steps(run.model, inputs[0][1], new)
            print(f"{name}: a step {1e6 * stepping:.1f} us", flush=True)
            ready[name] = run
        if names:
            show(options, timed(ready, inputs))
    print(f"peak memory of all: {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB")


def first(data: Any) -> Any:
    """The same prompt with one new token."""
    name, tokens, shifts = data
    return name, tokens, shifts[:, :1]


def timed(ready: dict[str, Generation], inputs: list[Any]) -> dict[str, dict[str, float]]:
    """Medians in us by model: time to first token, a whole generation, a step. The first input has been called on."""
    times: dict[str, dict[str, list[float]]] = {name: {"ttft": [], "all": [], "step": []} for name in ready}
    for data in inputs[1:]:
        for name, run in ready.items():
            times[name]["ttft"].append(seconds(partial(run, first(data))))
            times[name]["all"].append(seconds(partial(run, data)))
            times[name]["step"].append(steps(run.model, data[1], data[2].shape[1]))
    return {name: {key: 1e6 * statistics.median(one) for key, one in found.items()} for name, found in times.items()}


def show(options: argparse.Namespace, times: dict[str, dict[str, float]]) -> None:
    """The table, with shares of the limits."""
    prompt, new = options.prompt, options.new
    peaks = hardware.match(torch.cuda.get_device_name())
    assert peaks is not None
    first_us = hardware.bound(cost(Params(model=NAME, batch=1, prompt=prompt, new=1), 1), peaks)[0]
    step_us = step_bound_us(prompt, new, peaks)
    print(
        f"{torch.cuda.get_device_name()}, prompt {prompt}, {new} new; limits: {first_us:.0f} us, a step {step_us:.0f}",
        flush=True,
    )
    print(f"{'':8} {'ttft us':>9} {'of limit':>9} {'step us':>9} {'of limit':>9} {'sampled us':>10} {'tokens/s':>9}")
    for name, found in times.items():
        sampled = (found["all"] - found["ttft"]) / max(1, new - 1)
        cells = f"{found['ttft']:9.0f} {first_us / found['ttft']:9.1%} {found['step']:9.1f} "
        cells += f"{step_us / found['step']:9.1%} {sampled:10.1f} {new / found['all'] * 1e6:9.1f}"
        print(f"{name:8} {cells}", flush=True)


def step_bound_us(prompt: int, new: int, peaks: Any) -> float:
    """A step in the middle of the answer, by its bytes."""
    middle = prompt + new // 2
    costs = [cost(Params(model=NAME, batch=1, prompt=middle, new=n), 1).hbm_bytes for n in (1, 2)]
    return float((costs[1] - costs[0]) / peaks.hbm_bytes_per_s * 1e6)


def steps(model: Any, tokens: Any, new: int) -> float:
    """Seconds a step, of steps that follow each other at once."""
    _, cache = model.prefill(tokens)
    token = tokens.new_zeros(len(tokens))  # of the strides that steps get: torch.compile asks for them
    kept = [cache]

    def work() -> None:
        for _ in range(new - 1):
            _, kept[0] = model.decode(token, kept[0])

    return seconds(work) / (new - 1)


def kernels(options: argparse.Namespace) -> None:
    """Device time by kernel, of a prompt and of steps, of kernels that do not overlap."""
    ours = importlib.import_module("streamed")
    tuning = tuned.Tuning(early=False)
    run = Generation(lambda config, weights: ours.Streamed(config, weights, tuning))
    data = reference.generate_input(0, 1, NAME, 1, options.prompt, 9, 1)
    for _ in range(2):
        run(data)
        run(first(data))
    for name, given in (("prompt", first(data)), ("prompt and 8 steps", data)):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
            run(given)
            torch.cuda.synchronize()
        print(f"{name}:")
        for event in sorted(profiler.key_averages(), key=lambda one: -one.self_device_time_total)[:14]:
            print(f"  {event.self_device_time_total:9.1f} us {event.count:5} x  {event.key[:70]}")


def ranks(options: argparse.Namespace) -> None:
    """Each rank's model alone, and one model on all ranks: time to first token, and a step; the slowest rank's."""
    if torch.cuda.device_count() < options.ranks:
        raise SystemExit(f"ranks: {options.ranks} GPUs are needed, and {torch.cuda.device_count()} are here")
    # Without NVLink multicast, as bench/gpu.py measures.
    os.environ |= {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1"}
    with tempfile.TemporaryDirectory() as folder:
        spawn(rank_main, (options, folder), nprocs=options.ranks)


@torch.no_grad()
def rank_main(rank: int, options: argparse.Namespace, folder: str) -> None:
    torch.cuda.set_device(rank)
    device = torch.device("cuda", rank)
    torch.set_default_device(device)
    meeting = f"file://{folder}/meeting"
    dist.init_process_group("nccl", init_method=meeting, rank=rank, world_size=options.ranks, device_id=device)
    split, ours = importlib.import_module("tensor_parallel"), importlib.import_module("model")
    inputs = [reference.generate_input(0, 1, NAME, 1, options.prompt, options.new, seed) for seed in range(4)]

    def with_rings(config: Any, weights: Any) -> Any:
        heap = split.open_heap(device)
        tuning = split.SPLIT_TUNING._replace(rings=tuned.Rings())
        return split.SplitStreamed(config, weights, heap, tuning)

    expected = None
    builds = (("alone", ours.build), (f"{options.ranks} ranks", split.build), ("  with rings", with_rings))
    for text, build in builds:
        faulthandler.dump_traceback_later(3 * HANGS_S, exit=True)
        run = Generation(build)
        output = [run(data) for data in (first(inputs[0]), inputs[0])][-1]
        expected = output if expected is None else expected
        off = float((output[:, 0] - expected[:, 0]).square().mean().sqrt() / expected[:, 0].square().mean().sqrt())
        found: list[list[float]] = []
        for data in inputs[1:]:
            dist.barrier()
            found.append([seconds(partial(run, first(data))), steps(run.model, data[1], data[2].shape[1])])
        times = torch.tensor(found).median(0).values * 1e6
        dist.all_reduce(times, dist.ReduceOp.MAX)
        faulthandler.cancel_dump_traceback_later()
        if rank == 0:
            name = type(run.model).__name__
            print(
                f"{text:12} first token {times[0]:7.0f} us, a step {times[1]:7.1f} us, off {off:.4f} ({name})",
                flush=True,
            )
        del run
    dist.destroy_process_group()


BENCHES: dict[str, Callable[[argparse.Namespace], None]] = {
    "check": check,
    "compare": compare,
    "kernels": kernels,
    "products": products,
    "ranks": ranks,
    "sweep": sweep,
}

if __name__ == "__main__":
    main()
