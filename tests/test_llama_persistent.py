"""submissions/llama/persistent.py without a GPU: torch plays what it is written in (played_gluon.py), beside the plain
model in float64; and what it compiles to.

Programs are fewer than parts of the cache or more, and tiles no multiple of programs.
"""

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from kernel_ranks import ROOT
from played_gluon import Descriptor, Machine
from torch import Tensor

FOLDERS = ("reference/llama", "submissions/llama", "submissions")
BROUGHT = ("packed", "params", "persistent", "plain", "weights", "common", "streamed", "streaming", "rings", "prompt")
BROUGHT += ("prompt_warps",)
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


class Played:
    """In place of the kernel: a launch of it is played."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def __getitem__(self, grid: tuple[int]) -> Callable[..., None]:
        assert grid == (self.machine.programs,)
        return self.launched

    def launched(self, desc: Any, *given: Any, num_warps: int, launch_pdl: bool, **constants: Any) -> None:
        tensors = [one for one in given if isinstance(one, Tensor)]
        kernel = self.machine.kernel("llama", ["persistent"], "persistent_step")
        played = [Descriptor(desc.base, desc.block_shape), *tensors]
        self.machine.run(kernel, played, list(given[len(tensors) :]), **constants)


class Model:
    """A small one whose tuning asks for the kernel; a prompt's keys and values, and NaN wherever nothing is yet."""

    def __init__(self, modules: Any, prompt: int, slots: int) -> None:
        self.packed, plain, streamed = modules("packed"), modules("plain"), modules("streamed")
        self.config = config = modules("params").CONFIGS["nano"]
        weights = modules("weights").draw(config, torch.device("cpu"))
        self.exact = plain.Plain(config, {name: one.double() for name, one in weights.items()}, paired=False)
        tuning = streamed.Tuning(persistent=self.packed.Persistent(lines=LINES, slots=slots, ahead=1))
        self.model = streamed.Streamed(config, weights, tuning)
        self.memory = self.packed.Packed(self.model)
        _, self.kept = self.exact.prefill(torch.randint(config.vocab, (1, prompt)))
        self.cache = cache = streamed.Cache(config, 1, self.model.table, 64)
        for one in (cache.mixed, cache.inner, cache.logits, self.memory.made, self.memory.parts, self.memory.scales):
            one.fill_(float("nan"))
        for mine, number in ((cache.keys, 0), (cache.values, 1)):
            mine.copy_(self.kept.kept[:, number])
            mine[:, :, :, prompt:] = float("nan")
        cache.at.fill_(prompt)

    def step(self, token: int, machine: Machine) -> Tensor:
        """Logits, by the kernel."""
        self.model.multiprocessors, self.packed.persistent_step = machine.programs, Played(machine)
        self.cache.x.copy_(self.model.table[token])
        self.memory.run(self.model, self.cache)
        return self.cache.logits[0]


def error_of(logits: Tensor, expected: Tensor) -> float:
    return float((logits - expected).square().mean().sqrt() / expected.square().mean().sqrt())


@pytest.mark.parametrize(("prompt", "programs", "slots"), [(1, 3, 2), (70, 7, 4), (31, 40, 3)])
def test_steps_are_those_of_the_plain_model(modules: Any, prompt: int, programs: int, slots: int) -> None:
    """Two steps, the second of which has the first one's keys and values."""
    torch.manual_seed(prompt)
    model = Model(modules, prompt, slots)
    for token in (3, 500):
        expected, model.kept = model.exact.decode(torch.tensor([token]), model.kept)
        assert error_of(model.step(token, Machine(programs, 4)), expected[0]) < MOST_OFF
    assert model.cache.at.item() == prompt + 2
    counts = model.memory.words[[0, 32]].tolist()
    assert counts == [2 * model.config.layers * (4 * programs + model.config.kv_heads)] * 2
    for mine, number in ((model.cache.keys, 0), (model.cache.values, 1)):
        new = model.kept.kept[:, number, :, :, prompt : prompt + 2]
        torch.testing.assert_close(mine[:, :, :, prompt : prompt + 2].double(), new, rtol=0.05, atol=0.05)
        assert mine[:, :, :, prompt + 2 :].isnan().all()


def test_a_phase_that_does_not_wait_for_the_one_before_shows(modules: Any) -> None:
    """What has not been stored yet holds NaN."""
    machine, model = Machine(7, 4), Model(modules, 20, 3)
    machine.wait_for_count = lambda *_: None
    assert model.step(3, machine).isnan().any()


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
