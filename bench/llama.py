"""The figures of docs/models.md that need a GPU: our Llama 3.2 1B beside torch eager and torch.compile, in one run.

    python3 bench/llama.py                       is ours right? then time to first token, a step, tokens a second
    python3 bench/llama.py check                 only whether ours is right, at several sizes
    python3 bench/llama.py kernels               what each kernel of a prompt and of a step takes
    python3 bench/llama.py sweep                 other tiles and blocks, each kernel by itself
    python3 bench/llama.py compare --compile     torch.compile too, which takes minutes to make its kernels

Times are medians of the host's clock around work that has ended, one model after the other in turn. `check` and
`compare` take 30 seconds each.
"""

import argparse
import importlib
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [
    str(ROOT / part) for part in ("submissions/llama", "submissions", "reference/llama", "reference/common", "")
]

import torch
from adapter import Generation
from params import CONFIGS, Params, cost
from weights import draw

import reference
from harness.judging import correctness
from harness.machine import hardware

NAME = "1b"
BUILDS = {"eager": "reference", "ours": "model", "compile": "torch_compiled"}  # modules by name
SIZES = ((1, 1024, 8), (1, 48, 8), (1, 333, 4), (4, 200, 4))  # batch, prompt, new tokens, of `check`


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", nargs="*", default=["check", "compare"], help=f"of {', '.join(BENCHES)}")
    parser.add_argument("--prompt", type=int, default=1024)
    parser.add_argument("--new", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--compile", action="store_true")
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
        data = reference.generate_input(0, 1, NAME, batch, prompt, new, seed=prompt)
        for attempt in range(2):  # the second one runs the graphs that the first one made
            output = run(data)
            expected = reference.exact_kernel(data, output)
            margin, verdict = correctness.margin(output, expected), correctness.strict(output, expected)
            same = float((output.argmax(-1) == expected.value.argmax(-1)).float().mean())
            print(f"{batch} x {prompt} + {new}, run {attempt}: margin {margin:.3f}, greedy {same:.3f} alike")
            if verdict.message:
                print(f"  {verdict.message}", flush=True)


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
            took = seconds(partial(run, first(inputs[0]))), seconds(partial(run, inputs[0]))
            print(f"{name}: first calls {took[0]:.1f} and {took[1]:.1f} s", flush=True)
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
        f"{torch.cuda.get_device_name()}, prompt {prompt}, {new} new; limits: {first_us:.0f} us, a step {step_us:.0f}"
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
    return (costs[1] - costs[0]) / peaks.hbm_bytes_per_s * 1e6


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
    run = Generation(lambda config, weights: ours.Streamed(config, weights, ours.Tuning(early=False)))
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


def event_us(replay: Callable[[], Any], times: int = 5) -> float:
    """By the device's events, the median."""
    found = []
    for _ in range(times):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        replay()
        end.record()
        end.synchronize()
        found.append(start.elapsed_time(end) * 1000)
    return statistics.median(found)


def sweep(options: argparse.Namespace) -> None:
    """Whole steps and whole prompts with one thing changed at a time."""
    ours = importlib.import_module("streamed")
    config = CONFIGS[NAME]
    model = ours.Streamed(config, draw(config, torch.device("cuda")))
    tokens = reference.generate_input(0, 1, NAME, 1, options.prompt, 1, 1)[1]

    def with_tuning(**changes: Any) -> None:
        model.tuning = ours.Tuning()._replace(**changes)
        model.caches = {1: ours.Cache(config, 1, model.table, model.tuning.keys)}

    def step(**changes: Any) -> None:
        with_tuning(**changes)
        cache = model.caches[1]

        def work() -> None:
            cache.at.fill_(options.prompt)
            model.run_step(cache)

        report("step", changes, event_us(model.graph(work)))

    def whole(**changes: Any) -> None:
        with_tuning(**changes)
        prompt = ours.Prompt(config, model.caches[1], options.prompt)
        prompt.tokens.copy_(tokens)
        report("prompt", changes, event_us(model.graph(lambda: model.run_prompt(prompt, model.caches[1]))))

    def report(what: str, changes: dict[str, Any], found_us: float) -> None:
        text = ", ".join(f"{name} {tuple(one) if isinstance(one, tuple) else one}" for name, one in changes.items())
        print(f"{what:7} {found_us:8.1f} us  {text or 'as it is'}", flush=True)

    def attempt(run: Callable[..., None], **changes: Any) -> None:
        try:
            run(**changes)
        except Exception as error:
            print(f"{changes}: {type(error).__name__}: {str(error)[:150]}", flush=True)

    attempt(step)
    for early in (True, False):
        for keys in (32, 64, 128):
            attempt(step, early=early, keys=keys)
    tiles = {
        "project": ((2, 4), (8, 8)),
        "out": ((4, 4), (16, 8)),
        "gate_up": ((2, 4), (8, 8), (8, 4)),
        "down": ((1, 4), (2, 8), (4, 8)),
        "logits": ((4, 4), (16, 8)),
    }
    for name, choices in tiles.items():
        for choice in choices:
            attempt(step, **{name: ours.Tile(*choice)})
    attempt(whole)
    attempt(whole, early=False)
    for blocks in ((64, 128, 64, 4, 4), (128, 64, 64, 4, 4), (64, 256, 64, 4, 8)):
        attempt(whole, qkv=ours.Blocks(*blocks))
    for blocks in (
        (64, 64, 64, 3, 4),
        (64, 128, 64, 2, 4),
        (128, 64, 64, 2, 8),
        (128, 128, 64, 2, 8),
        (64, 32, 64, 3, 4),
    ):
        attempt(whole, attention=ours.Blocks(*blocks))
    for blocks in ((128, 128, 64, 3, 8), (128, 128, 32, 4, 8), (128, 64, 64, 4, 4)):
        attempt(whole, long=ours.Blocks(*blocks))


BENCHES: dict[str, Callable[[argparse.Namespace], None]] = {
    "check": check,
    "compare": compare,
    "kernels": kernels,
    "sweep": sweep,
}

if __name__ == "__main__":
    main()
