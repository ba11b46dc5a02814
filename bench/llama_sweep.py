"""Of bench/llama.py: whole steps and prompts with other kernels (`sweep`), and a prompt's products beside cuBLAS
(`products`). On one GPU."""

import argparse
import faulthandler
import importlib
import statistics
import time
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any, NamedTuple

import torch
import tuned
from params import CONFIGS
from weights import draw

import reference

NAME = "1b"
START = time.perf_counter()
HANGS_S = 40.0  # a try that takes longer, with its compilation, has kernels that wait for ever
MOST_OFF = 0.05  # of logits that are right
ROUNDS = 9  # of two tunings in turn


def device_us(replay: Callable[[], Any], calls: int) -> float:
    """Of a call, by the device's events: the mean of calls that follow each other at once."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(calls):
        replay()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1000 / calls


class Try(NamedTuple):
    """A tuning whose graph is made, and how long a call of it took, in us. `off`: how far its logits are from the
    first's, relative to their root mean square."""

    text: str
    off: float
    tuning: Any
    replay: Callable[[], Any]
    times: list[float]


class Tries:
    """Steps or prompts of one model with several tunings. All have the same memory; the first is what the others are
    held against, in turn, so that whatever slows the GPU down for a while slows both."""

    def __init__(self, options: argparse.Namespace, ours: Any, model: Any, what: str, first: Any, share: float) -> None:
        self.model, self.what, self.deadline = model, what, START + share * options.seconds
        self.only = options.only
        config, length = model.config, options.prompt
        self.length, self.calls = length, 4 if what == "prompt" else 12
        self.cache = ours.Cache(config, 1, model.table, first.keys)
        self.prompt = ours.Prompt(config, self.cache, length)
        self.tokens = reference.generate_input(0, 1, NAME, 1, length, 1, 1)[1]
        self.token = torch.full((1,), 7)
        model.tuning = first
        model.read_prompt(self.prompt, self.cache, self.tokens)
        model.run_prompt(self.prompt, self.cache)  # steps have its keys and values
        self.made: list[Try] = []
        self.first: Any = None
        self.expected: Any = None
        self.first = self.make("first", first)

    def work(self) -> None:
        if self.what == "prompt":
            self.model.read_prompt(self.prompt, self.cache, self.tokens)
            self.model.run_prompt(self.prompt, self.cache)
        else:
            self.model.read_token(self.cache, self.token)
            self.model.run_step(self.cache)

    def forget(self) -> None:
        """What another prompt's kernels have left: one that writes nothing shall not pass by it."""
        if self.what == "prompt":
            self.cache.keys.fill_(3)
            self.cache.values.fill_(3)
            for name in ("x", "normed", "inner", "squares", "qkv", "query", "mixed"):
                getattr(self.prompt, name).fill_(torch.nan)

    def make(self, text: str, tuning: Any) -> Try | None:
        """With a line if logits are too far from the first's."""
        self.model.tuning = tuning
        self.forget()
        replay = self.model.graph(self.work)
        self.cache.at.fill_(self.length)
        self.forget()
        replay()
        logits = self.cache.logits.clone()
        self.expected = logits if self.expected is None else self.expected
        off = float((logits - self.expected).square().mean().sqrt() / self.expected.square().mean().sqrt())
        if off < MOST_OFF:
            return Try(text, off, tuning, replay, [])
        print(f"{self.what:6} WRONG, off {off:.4f}: {text}", flush=True)
        return None

    def time(self, one: Try) -> None:
        self.cache.at.fill_(self.length)
        one.times.append(device_us(one.replay, self.calls))

    def ratio(self, one: Try) -> float:
        """To the first, of this and the first in turn."""
        begins = len(self.first.times), len(one.times)
        for _ in range(ROUNDS):
            self.time(self.first)
            self.time(one)
        pairs: Iterator[tuple[float, float]] = zip(self.first.times[begins[0] :], one.times[begins[1] :], strict=True)
        return statistics.median(mine / other for other, mine in pairs)

    def __call__(self, text: str, tuning: Any) -> None:
        """Prints a line, with the ratio to the first; nothing is tried beyond the seconds that there are. A kernel that
        hangs ends the process."""
        if not any(one in text for one in self.only):
            return
        if time.perf_counter() > self.deadline:
            print(f"{self.what:6} left out: {text}", flush=True)
            return
        faulthandler.dump_traceback_later(HANGS_S, exit=True)
        try:
            if one := self.make(text, tuning):
                ratio = self.ratio(one)
                self.made.append(one)
                print(
                    f"{self.what:6} {statistics.median(one.times):7.1f} us {ratio:6.3f}  off {one.off:.4f}  {text}",
                    flush=True,
                )
        except Exception as error:
            print(f"{self.what:6} {text}: {type(error).__name__}: {str(error)[:200]}", flush=True)
        finally:
            faulthandler.cancel_dump_traceback_later()

    def best(self, count: int) -> None:
        """The fastest of all, in turn once more, the best last."""
        kept = [self.first, *sorted(self.made, key=lambda one: statistics.median(one.times))[:count]]
        for one in kept:
            one.times.clear()
        for number in range(2 * ROUNDS):
            for one in kept if number % 2 else reversed(kept):
                self.time(one)
        first_us = statistics.median(self.first.times)
        print(f"{self.what}s in turn, {2 * ROUNDS} rounds:")
        for one in sorted(kept, key=lambda one: -statistics.median(one.times)):
            found_us = statistics.median(one.times)
            print(f"{self.what:6} {found_us:7.1f} us {found_us / first_us:6.3f}  {one.text}", flush=True)


def sweep(options: argparse.Namespace) -> None:
    """Whole steps and whole prompts with something changed: time, and the median ratio to the first's in turn."""
    ours, config = importlib.import_module("streamed"), CONFIGS[NAME]
    model = ours.Streamed(config, draw(config, torch.device("cuda")))
    if "step" in options.parts:
        share = 0.5 if "prompt" in options.parts else 1.0
        sweep_steps(Tries(options, ours, model, "step", tuned.Tuning(), share))
    if "prompt" in options.parts:
        sweep_prompts(Tries(options, ours, model, "prompt", tuned.Tuning(), share=1.0))


def sweep_steps(attempt: Tries) -> None:
    tuning, ring = attempt.first.tuning, tuned.Ring
    attempt("no rings", tuning._replace(rings=None))
    for name, one in (
        ("project", ring(4, 3, 1, 4, 128)),
        ("project", ring(4, 2, 1, 4, 192)),
        ("project", ring(8, 2, 1, 8, 96)),
        ("out", ring(4, 2, 1, 4, 256)),
        ("out", ring(4, 4, 1, 4, 132)),
        ("gate_up", ring(4, 4, 1, 4, 128)),
        ("gate_up", ring(4, 3, 1, 4, 132)),
        ("gate_up", ring(4, 2, 1, 4, 256)),
        ("down", ring(2, 2, 4, 4, 256)),
        ("down", ring(2, 3, 4, 4, 132)),
        ("logits", ring(8, 3, 1, 8, 132)),
        ("logits", ring(16, 3, 1, 8, 132)),
    ):
        attempt(f"{name} {tuple(one)}", tuning._replace(rings=tuning.rings._replace(**{name: one})))
    attempt.best(3)


def sweep_prompts(attempt: Tries) -> None:
    tuning = attempt.first.tuning
    for lead in range(4):
        later = {name: one._replace(lead=lead) for name, one in tuning.warps._asdict().items()}
        attempt(f"all warpgroups {lead} stages later", tuning._replace(warps=tuned.Warps(**later)))
    for keys in ((128, 4), (64, 4)):
        attempt(f"attention by warps {keys}", tuning._replace(attend=tuned.Keys(*keys)))
    attempt("attention by Triton", tuning._replace(attend=None))
    attempt("queries and keys turned by a kernel", tuning._replace(turned=None))
    attempt("both", tuning._replace(attend=None, turned=None))
    attempt("products by Triton", tuning._replace(warps=None))
    for name, blocks in (
        ("out", (128, 128, 64, 6)),
        ("out", (128, 128, 64, 4)),
        ("down", (128, 128, 64, 6)),
        ("down", (128, 128, 64, 4)),
        ("qkv", (128, 128, 64, 6)),
        ("qkv", (128, 64, 64, 8)),
        ("swiglu", (128, 256, 64, 3)),
    ):
        attempt(f"{name} {blocks}", tuning._replace(warps=tuning.warps._replace(**{name: tuned.Stages(*blocks)})))
    for wide in ((64, 64, 64, 2, 4), (128, 64, 64, 3, 8), (128, 64, 64, 2, 8)):
        attempt(f"attention {wide}", tuning._replace(attention=tuned.Blocks(*wide)))
    attempt.best(3)


def products(options: argparse.Namespace) -> None:
    """The products of a prompt by cuBLAS (without what follows them), by Triton and by explicit warps."""
    ours, config = importlib.import_module("streamed"), CONFIGS[NAME]
    model = ours.Streamed(config, draw(config, torch.device("cuda")))
    cache = ours.Cache(config, 1, model.table, model.tuning.keys)
    prompt = ours.Prompt(config, cache, options.prompt)
    for one in (prompt.x, prompt.normed, prompt.mixed, prompt.inner):
        one.normal_()
    prompt.squares.fill_(1)
    tuning, warps, layers = model.tuning, model.tuning.warps, model.layers
    wide = prompt.normed.new_empty(options.prompt, 2 * config.ffn)
    Work = Callable[[Any], Any]

    def added(name: str, inner: Any) -> tuple[Any, dict[str, Work]]:
        """The product of what is inside with the weight of that name, which is added to the residual stream."""
        weight, stages = attrgetter(name), getattr(warps, name)
        return weight, {
            "cuBLAS": lambda layer: torch.mm(inner, weight(layer).T, out=prompt.normed),
            "Triton": lambda layer: model.product(inner, weight(layer), prompt.x, ADD=True),
            "warps": lambda layer: model.product_by_warps(
                prompt, inner, weight(layer), prompt.normed, stages, layer.mlp_norm
            ),
        }

    table: dict[str, tuple[Any, dict[str, Work]]] = {
        "queries, keys, values": (
            lambda layer: layer.qkv,
            {
                "cuBLAS": lambda layer: torch.mm(prompt.normed, layer.qkv.T, out=prompt.qkv),
                "Triton": lambda layer: model.product(prompt.normed, layer.qkv, prompt.qkv, tuning.qkv),
                "warps": lambda layer: model.product_of_normed(prompt, layer.qkv, prompt.qkv, "qkv", "down"),
            },
        ),
        "out, added": added("out", prompt.mixed),
        "gate, up, swiglu": (
            lambda layer: layer.gate_up,
            {
                "cuBLAS": lambda layer: torch.mm(prompt.normed, layer.gate_up.T, out=wide),
                "Triton": lambda layer: model.product(
                    prompt.normed, layer.gate_up, prompt.inner, tuning.swiglu, SWIGLU=True
                ),
                "warps": lambda layer: model.product_of_normed(prompt, layer.gate_up, prompt.inner, "swiglu", "out"),
            },
        ),
        "down, added": added("down", prompt.inner),
    }
    for text, (weight, ways) in table.items():
        flops = 2 * options.prompt * weight(layers[0]).numel()
        cells = []
        for way, call in ways.items():
            faulthandler.dump_traceback_later(HANGS_S, exit=True)
            replay = model.graph(lambda call=call: [call(layer) for layer in layers])  # no weights twice in a row
            found_us = statistics.median(device_us(replay, 2) for _ in range(3)) / len(layers)
            faulthandler.cancel_dump_traceback_later()
            cells.append(f"{way} {found_us:6.1f} us, {flops / found_us / 1e6:4.0f} TFLOP/s")
        print(f"{text:22} {'; '.join(cells)}", flush=True)
