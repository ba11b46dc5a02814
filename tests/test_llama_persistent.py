"""submissions/llama/persistent.py without a GPU: torch plays what it is written in (played_gluon.py), beside the plain
model in float64; and what it compiles to.

Programs are fewer than parts of the cache or more, and tiles no multiple of programs.
"""

import importlib
import re
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from kernel_ranks import ROOT
from played_gluon import Descriptor, Machine
from torch import Tensor

FOLDERS = ("reference/llama", "submissions/llama", "submissions")
BROUGHT = ("packed", "params", "persistent", "plain", "weights", "common")
LINES = 8  # of a tile
PRODUCTS = 5  # loops over tiles: four of a layer, and the last matrix's
MOST_OFF = 0.02  # the root mean square of an error of logits, to theirs


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Imports modules of the submission and the reference; other tests' modules of these names stay theirs."""
    before = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] in BROUGHT}
    for folder in FOLDERS:
        monkeypatch.syspath_prepend(str(ROOT / folder))
    yield importlib.import_module
    for name in [name for name in sys.modules if name.partition(".")[0] in BROUGHT]:
        del sys.modules[name]
    sys.modules.update(before)


class Model:
    """Small weights, a prompt's keys and values in bf16, and the memory of a step."""

    def __init__(self, modules: Any, prompt: int) -> None:
        self.packed, plain = modules("packed"), modules("plain")
        self.config = config = modules("params").CONFIGS["nano"]
        weights = modules("weights").draw(config, torch.device("cpu"))
        self.exact = plain.Plain(config, {name: one.double() for name, one in weights.items()}, paired=False)
        self.model = plain.Plain(config, weights, paired=False)
        self.model.turns = plain.turns(config, torch.device("cpu"))
        self.model.multiprocessors = 1
        self.memory = self.packed.Packed(self.model)
        _, self.cache = self.exact.prefill(torch.randint(config.vocab, (1, prompt)))
        self.kept = self.cache.kept.bfloat16()
        self.kept[:, :, :, :, prompt:] = float("nan")
        self.keys, self.values = (self.kept[:, number].contiguous() for number in range(2))
        self.at = torch.tensor([prompt], dtype=torch.int32)
        self.scratch = [torch.full((size,), float("nan")) for size in (config.heads * config.head_dim * 16, 999)]
        self.arrived = torch.zeros(config.kv_heads, dtype=torch.int32)
        self.mixed, self.inner = (torch.full((size,), float("nan")).bfloat16() for size in (config.hidden, config.ffn))

    def step(self, token: int, machine: Machine, slots: int) -> Tensor:
        """Logits, by the kernel."""
        config, memory = self.config, self.memory
        x, logits = self.model.table[token].float(), torch.full((config.vocab,), float("nan"))
        tensors = [
            Descriptor(memory.lines, [LINES // 2, 64]), memory.lines, memory.norms, self.model.turns, self.at,
            memory.words, memory.words[32:], x, memory.made, self.keys, self.values, *self.scratch, self.arrived,
            self.mixed, self.inner, logits, memory.times,
        ]  # fmt: skip
        sizes = {"K": config.hidden, "F": config.ffn, "H": config.heads, "G": config.kv_heads, "D": config.head_dim}
        sizes |= {"LENGTH": config.max_length, "S": self.packed.PARTS, "LINES": LINES, "SLOTS": slots}
        kernel = machine.kernel("llama", ["persistent"], "persistent_step")
        numbers = [config.head_dim**-0.5, config.eps]
        machine.run(
            kernel, tensors, numbers, **sizes, PLAN=self.packed.plan_of(config, LINES), AHEAD=1, WAITS=True, TIMED=False
        )
        return logits


def error_of(logits: Tensor, expected: Tensor) -> float:
    return float((logits - expected).square().mean().sqrt() / expected.square().mean().sqrt())


@pytest.mark.parametrize(("prompt", "programs", "slots"), [(1, 3, 2), (70, 7, 4), (31, 40, 3)])
def test_steps_are_those_of_the_plain_model(modules: Any, prompt: int, programs: int, slots: int) -> None:
    """Two steps, the second of which has the first one's keys and values."""
    torch.manual_seed(prompt)
    model = Model(modules, prompt)
    for token in (3, 500):
        expected, model.cache = model.exact.decode(torch.tensor([token]), model.cache)
        assert error_of(model.step(token, Machine(programs, 4), slots), expected[0]) < MOST_OFF
    assert model.at.item() == prompt + 2
    counts = model.memory.words[[0, 32]].tolist()
    assert counts == [2 * model.config.layers * (4 * programs + model.config.kv_heads)] * 2
    for kept, number in ((model.keys, 0), (model.values, 1)):
        new = model.cache.kept[:, number, :, :, prompt : prompt + 2]
        torch.testing.assert_close(kept[:, :, :, prompt : prompt + 2].double(), new, rtol=0.05, atol=0.05)
        assert kept[:, :, :, prompt + 2 :].isnan().all()


def test_a_phase_that_does_not_wait_for_the_one_before_shows(modules: Any) -> None:
    """What has not been stored yet holds NaN."""
    machine, model = Machine(7, 4), Model(modules, 20)
    machine.wait_for_count = lambda *_: None
    assert model.step(3, machine, 3).isnan().any()


@pytest.mark.parametrize("slots", [6, 7])
def test_it_fits_on_a_multiprocessor_and_copies_ahead(modules: Any, slots: int) -> None:
    """At the 1B's sizes: the ring is asked for before the kernel before has ended, each tile by two bulk copies; rows
    are multiplied as words of 16 bytes."""
    from compiled import compiled
    from triton.experimental.gluon.language import NVMMASharedLayout, bfloat16
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    packed, config = modules("packed"), modules("params").CONFIGS["1b"]
    lines, warps = packed.Persistent().lines, packed.Persistent().warps
    assert packed.suits(config, lines)
    block = [lines // 2, 64]
    layout = NVMMASharedLayout.get_default_for(block, bfloat16)
    desc = TensorDescriptor.from_tensor(torch.empty(lines, 64, dtype=torch.bfloat16), block, layout)
    bf, wide, word = torch.bfloat16, torch.float32, torch.int32
    arguments = (
        desc,
        bf,
        bf,
        wide,
        word,
        word,
        word,
        wide,
        wide,
        bf,
        bf,
        wide,
        wide,
        word,
        bf,
        bf,
        wide,
        torch.int64,
        0.125,
        1e-5,
    )
    constants = {"K": 2048, "F": 8192, "H": 32, "G": 8, "D": 64, "LENGTH": 2048, "S": packed.PARTS, "LINES": lines}
    constants |= {"SLOTS": slots, "PLAN": packed.plan_of(config, lines), "AHEAD": 2, "WAITS": True, "TIMED": False}
    kernel = modules("persistent").persistent_step
    launcher = SimpleNamespace(
        compile=lambda given, names, options: kernel.warmup(*given, grid=(1,), **names, **options)
    )
    made = compiled("sm_90", launcher, arguments, constants, {"num_warps": warps, "launch_pdl": True})
    assert made.spilled_bytes <= 64  # Triton 3.9; none by 3.6
    assert made.shared_bytes <= 227 * 1024
    before, _, behind = made.assembly.partition("griddepcontrol.wait")
    load = "cp.async.bulk.tensor.2d.shared"
    assert (before.count(load), behind.count(load)) == (2 * slots, 2 * PRODUCTS)
    assert len(re.findall(r"ld\.shared\.v4\.b32", behind)) >= 8 * PRODUCTS
    assert "red.release.gpu" in behind
    assert "ld.acquire.gpu" in behind
