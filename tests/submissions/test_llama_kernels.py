"""The Triton kernels of submissions/llama: interpreted on CPU cores, and compiled for a GPU that is not here; and the
model split over ranks, by kernels and by torch's operators.

Also a script that generates with them, in one process or in ranks; see kernel_ranks.
"""

import dataclasses
import sys
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from interpreting import quicken
from kernel_ranks import played_by, started
from places import ROOT

PARTS = ("submissions/llama", "submissions", "reference/llama", "reference/common", "tests", ".")


def error_of(build: Any, name: str, batch: int, prompt: int, new: int) -> str:
    """What is wrong with a generation by that model; empty where nothing is."""
    import reference
    from harness.kinds.model import rank as logits

    data = reference.generate_input(0, 1, name, batch, prompt, new, 5)
    output = reference.Generation(build)(data)
    exact = partial(reference.exact_kernel, data, output)
    return logits.judged(output, reference.output_shape(data), exact).message


def pico() -> Any:
    """Adds a model of that name, tiny and in float32; returns tiles that suit it."""
    import params
    from tuned import Blocks, Tile, Tuning

    nano = params.CONFIGS["nano"]
    sizes = {"layers": 2, "hidden": 64, "heads": 4, "kv_heads": 2, "head_dim": 16, "ffn": 128, "vocab": 64}
    params.CONFIGS["pico"] = dataclasses.replace(nano, **sizes, dtype="float32", max_length=64)
    small = Blocks(32, 32, 32, 2, 4)
    return Tuning(
        project=Tile(8, 4),
        out=Tile(32, 4),
        gate_up=Tile(64, 4),
        down=Tile(32, 4),
        logits=Tile(32, 4),
        keys=16,
        attention=Blocks(16, 16, 16, 2, 4),
        long=small,
        swiglu=small,
        short=small,
        qkv=small,
    )


def alone() -> str:
    """A prompt that fills no block, keys in several parts, and the last layer's shortcut."""
    import streamed

    tuning = pico()
    return error_of(lambda config, weights: streamed.Streamed(config, weights, tuning), "pico", 2, 17, 3)


def split_by_kernels(rank: int, world_size: int) -> None:
    """On every rank; then a second model, which finds what the first one left in the heap."""
    import tensor_parallel
    import torch
    from common.heap import open_heap

    tuning, heap = pico(), open_heap(torch.device("cpu"))
    for sizes in ((2, 17, 2), (1, 5, 1)):
        wrong = error_of(lambda *given: tensor_parallel.SplitStreamed(*given, heap, tuning), "pico", *sizes)
        assert not wrong, wrong


def split_by_torch(rank: int, world_size: int) -> None:
    """The reference, and ours; of the key heads of `tiny` several ranks have the same one."""
    import tensor_parallel

    import reference

    for build in (reference.build, tensor_parallel.build):
        wrong = error_of(build, "tiny" if world_size == 4 else "heads", 2, 9, 3)
        assert not wrong, wrong


@pytest.mark.parametrize(("play", "interpreted"), [("alone", True), ("kernels", True), ("torch", False)])
def test_generates_what_the_reference_does(play: str, interpreted: bool) -> None:
    assert started(__file__, play, interpreted=interpreted) == ""


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The modules of the kernels, uninterpreted; other tests' modules of these names stay theirs."""
    brought = (
        "across",
        "common",
        "plain",
        "prompt",
        "prompt_attention",
        "prompt_qkv",
        "prompt_warps",
        "rings",
        "streamed",
        "streaming",
        "tuned",
    )
    for name in [name for name in sys.modules if name.partition(".")[0] in brought]:
        monkeypatch.delitem(sys.modules, name)
    for folder in ("submissions", "submissions/llama"):
        monkeypatch.syspath_prepend(str(ROOT / folder))
    import across
    import prompt
    import prompt_attention
    import prompt_qkv
    import prompt_warps
    import rings
    import streamed
    import streaming
    import tuned

    return SimpleNamespace(
        across=across,
        prompt=prompt,
        prompt_attention=prompt_attention,
        prompt_qkv=prompt_qkv,
        prompt_warps=prompt_warps,
        rings=rings,
        streamed=streamed,
        streaming=streaming,
        tuned=tuned,
    )


class Warmed:
    """What tests/compiled.py takes for a submission's Launcher."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel

    def compile(self, arguments: Any, constants: Any, options: Any) -> Any:
        return self.kernel.warmup(*arguments, grid=(1,), **constants, **options)


def test_kernels_compile_for_hopper_without_spills(kernels: Any) -> None:
    """At the 1B's sizes: weights are loaded before the kernel before has ended, products are the tensor cores'."""
    import torch
    from compiled import UNITS, compiled
    from triton.tools.tensor_descriptor import TensorDescriptor

    across, prompt, streaming = kernels.across, kernels.prompt, kernels.streaming
    bf, wide = torch.bfloat16, torch.float32

    early = {"launch_pdl": True}
    constants = {"C": 2048, "K": 2048, "B": 1, "ROWS": 8, "EARLY": True}
    added = compiled("sm_90", Warmed(streaming.add_product), (wide, bf, bf), constants, early | {"num_warps": 4})
    assert added.spilled_bytes == 0
    assert added.assembly.index("ld.global") < added.assembly.index("griddepcontrol.wait")
    across_ranks = (wide, bf, bf, torch.int64, torch.int32, 0, 0, 0)
    constants = {"SUMS": 33, "C": 2048, "K": 4096, "B": 1, "WORLD": 2, "ROWS": 4, "EARLY": True}
    summed = compiled("sm_90", Warmed(across.add_products), across_ranks, constants, early | {"num_warps": 4})
    assert summed.fit * UNITS["sm_90"] >= 2048 // 4, "programs that wait for other ranks' all have room"
    assert "ld.volatile.global.b64" in summed.assembly
    blocks = [TensorDescriptor.from_tensor(torch.empty(256, 2048, dtype=bf), [128, 64]) for _ in range(2)]
    constants = {"N": 2048, "K": 2048, "BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}
    constants |= {"ADD": True, "SWIGLU": False, "EARLY": True}
    options = early | {"num_warps": 8, "num_stages": 4}
    product = compiled("sm_90", Warmed(prompt.multiply), (*blocks, wide, 256), constants, options)
    assert product.spilled_bytes == 0
    assert "wgmma.mma" in product.assembly


def test_rings_are_filled_before_the_kernel_before_has_ended(kernels: Any) -> None:
    """At the 1B's sizes, with room on a multiprocessor for the next kernel's programs."""
    import torch
    from compiled import compiled

    bf, wide, rings = torch.bfloat16, torch.float32, kernels.rings
    ring = kernels.tuned.Rings()
    heads = {"K": 2048, "H": 32, "G": 8, "D": 64, "LENGTH": 2048}
    cases = [
        (ring.project, rings.ring_project, (wide, bf, bf, wide, torch.int32, bf, bf, bf, 1e-5), heads),
        (ring.gate_up, rings.ring_gate_up, (wide, bf, bf, bf, 1e-5), {"K": 2048, "F": 8192}),
        (ring.out, rings.ring_add_product, (wide, bf, bf), {"N": 2048, "K": 2048}),
        (ring.down, rings.ring_add_product, (wide, bf, bf), {"N": 2048, "K": 8192}),
        (ring.logits, rings.ring_logits, (wide, bf, bf, wide, torch.int32, 1, 1e-5), {"N": 128256, "K": 2048}),
    ]
    for (rows, slots, columns, warps, _), kernel, arguments, sizes in cases:
        constants = sizes | {"ROWS": rows, "SLOTS": slots, "COLUMNS": columns}
        made = compiled("sm_90", Warmed(kernel), arguments, constants, {"num_warps": warps, "launch_pdl": True})
        assert made.spilled_bytes == 0
        assert made.registers <= 168, "three kernels' programs have room"
        before, _, behind = made.assembly.partition("griddepcontrol.wait")
        assert "cp.async.cg" in before
        assert "cp.async.cg" in behind


@pytest.mark.parametrize(
    ("n", "k", "block_n", "stages", "options"),
    [
        (8192, 2048, 256, 4, {"SWIGLU": True, "PARTS": 16, "LEAD": 2}),
        (2048, 8192, 128, 5, {"ADD": True}),
        (3072, 2048, 128, 5, {}),
    ],
)
def test_products_by_explicit_warps_overlap(
    kernels: Any, n: int, k: int, block_n: int, stages: int, options: dict[str, Any]
) -> None:
    """Weights are asked for before the kernel before has ended, activations afterwards; and sums stay in registers."""
    import torch
    from compiled import compiled
    from triton.experimental.gluon.language import NVMMASharedLayout, bfloat16
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    def descriptor(rows: int, columns: int, block: list[int]) -> Any:
        layout = NVMMASharedLayout.get_default_for(block, bfloat16)
        return TensorDescriptor.from_tensor(torch.empty(rows, columns, dtype=torch.bfloat16), block, layout)

    columns = block_n // 2 if "SWIGLU" in options else block_n
    blocks = [(1024, k, [64, 64]), (n * block_n // columns, k, [columns, 64]), (1024, n, [64, columns])]
    arguments = (*[descriptor(*one) for one in blocks], torch.float32, torch.bfloat16, torch.float32, 1024, 1e-5)
    constants = {"N": n, "K": k, "BLOCK_M": 128, "BLOCK_N": block_n, "BLOCK_K": 64, "STAGES": stages}
    constants |= {"SWIGLU": False, "ADD": False, "PARTS": 0, "LEAD": 0, "PARTS_LAYOUT": None} | options
    if "PARTS" in options:
        constants["PARTS_LAYOUT"] = kernels.prompt_warps.squares_layout(options["PARTS"])
    flags = {"num_warps": 4, "launch_pdl": True}
    made = compiled("sm_90", Warmed(kernels.prompt_warps.multiply_warps), arguments, constants, flags)
    assert (made.spilled_bytes, made.fit) == (0, 1)
    assert "setmaxnreg" in made.assembly
    load = "cp.async.bulk.tensor.2d.shared"
    ahead, _, behind = made.assembly.partition("wgmma.mma_async")
    assert ("ld.global" in ahead[ahead.index("griddepcontrol.wait") :]) == bool(options)
    assert "ld.global" not in behind.partition("bulk.commit_group")[0], "nothing is loaded behind the product"
    loading = made.assembly[made.assembly.index(load) :]  # the loading warp, whose weights come first
    before, _, behind = loading.partition("griddepcontrol.wait")
    assert before.count(load) == stages * (2 if "SWIGLU" in options else 1)
    assert load in behind


def test_a_tile_of_three_heads_is_turned_in_registers(kernels: Any) -> None:
    """Nothing goes through shared memory between the product and the copy that stores it; rotations are loaded before
    the kernel before has ended."""
    import torch
    from compiled import compiled

    def blocks(rows: int, columns: int, *block: int) -> Any:
        return kernels.streamed.bulk_descriptor(torch.empty(rows, columns, dtype=torch.bfloat16), list(block))

    kept = [blocks(8 * 2048, 64, 64, 64)] * 2
    rows, weights = blocks(1024, 2048, 64, 64), blocks(3072, 2048, 64, 64)
    descriptors = [rows, weights, rows, *kept]
    sizes = {"N": 3072, "K": 2048, "H": 32, "G": 8, "LENGTH": 2048, "BLOCK_K": 64, "STAGES": 4, "PARTS": 16}
    sizes["PARTS_LAYOUT"] = kernels.prompt_warps.squares_layout(16)
    arguments = (*descriptors, torch.float32, torch.float32, 1024, 1024, 1e-5)
    kernel = Warmed(kernels.prompt_qkv.project_warps)
    with kernels.prompt_qkv.merging():
        made = compiled("sm_90", kernel, arguments, sizes, {"num_warps": 4, "launch_pdl": True})
    assert (made.spilled_bytes, made.fit) == (0, 1)
    assert ("m64n192k16" in made.assembly, "m64n64k16" in made.assembly) == (True, False)
    assert "ld.shared" not in made.assembly.partition("wgmma.mma_async")[2].partition("bulk.commit_group")[0]
    assert "ld.global" in made.assembly.partition("griddepcontrol.wait")[0]


def test_attention_by_explicit_warps_multiplies_scores_during_the_softmax(kernels: Any) -> None:
    """Of the loop's products, those of scores and those of values are both under way at once; nothing is spilled."""
    import torch
    from compiled import compiled

    block = kernels.streamed.Tuning().attend
    descriptor = kernels.streamed.bulk_descriptor
    rows = descriptor(torch.empty(1024, 2048, dtype=torch.bfloat16), [64, 64])
    keys = descriptor(torch.empty(8 * 2048, 64, dtype=torch.bfloat16), [block.keys, 64])
    sizes = {"H": 32, "G": 8, "D": 64, "LENGTH": 2048, "BLOCK": block.keys, "STAGES": block.stages}
    kernel = Warmed(kernels.prompt_attention.attend_warps)
    flags = {"num_warps": 4, "launch_pdl": True}
    made = compiled("sm_90", kernel, (rows, keys, keys, rows, 1024, 16, 0.18), sizes, flags)
    assert (made.spilled_bytes, made.fit) == (0, 1)
    assert "wgmma.wait_group.sync.aligned 1" in made.assembly


def main() -> str:
    """Plays what the command line names."""
    import torch

    sys.path[:0] = [str(ROOT / part) for part in PARTS]
    torch.set_num_threads(1)
    if sys.argv[1] == "alone":
        quicken()
        return alone()
    import tensor_parallel  # noqa: F401 - once, ahead of all ranks

    if sys.argv[1] == "kernels":
        return played_by(2, split_by_kernels)
    return played_by(4, split_by_torch) or played_by(8, split_by_torch)


if __name__ == "__main__":
    sys.exit(main() or 0)
