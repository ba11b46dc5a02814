"""The Triton kernels of submissions/llama: interpreted on CPU cores, and compiled for a GPU that is not here.

Also a script: with TRITON_INTERPRET=1, which has to be set before Triton is imported, it generates with them.
"""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
PARTS = ("submissions/llama", "reference/llama", "reference/common", "tests", ".")


def generate() -> None:
    """A prompt and steps of two sequences of a tiny float32 model, against the reference; exits with what is wrong."""
    sys.path[:0] = [str(ROOT / part) for part in PARTS]
    import model
    import params
    import torch

    import reference
    from harness.judging import correctness

    torch.set_num_threads(1)
    nano = params.CONFIGS["nano"]
    sizes = {"layers": 2, "hidden": 64, "heads": 4, "kv_heads": 2, "head_dim": 16, "ffn": 128, "vocab": 64}
    params.CONFIGS["pico"] = dataclasses.replace(nano, **sizes, dtype="float32", max_length=64)
    small = model.Blocks(32, 32, 32, 2, 4)
    tuning = model.Tuning(
        project=model.Tile(8, 4),
        out=model.Tile(32, 4),
        gate_up=model.Tile(64, 4),
        down=model.Tile(32, 4),
        logits=model.Tile(64, 4),
        keys=16,
        attention=model.Blocks(16, 16, 16, 2, 4),
        long=small,
        swiglu=small,
        short=small,
    )
    data = reference.generate_input(0, 1, "pico", 2, 17, 3, 5)
    output = reference.Generation(lambda config, weights: model.Streamed(config, weights, tuning))(data)
    found = correctness.strict(output, reference.exact_kernel(data, output))
    sys.exit(found.message or 0)


def test_interpreted_kernels_generate_what_the_reference_does() -> None:
    """A prompt that fills no block, keys in several parts, and the last layer's shortcut."""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", __file__]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The modules of the kernels, uninterpreted; other tests' modules of these names stay theirs."""
    for name in ("prompt", "streaming"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(ROOT / "submissions/llama"))
    import prompt
    import streaming

    return prompt, streaming


def test_kernels_compile_for_hopper_without_spills(kernels: Any) -> None:
    """At the 1B's sizes: weights are loaded before the kernel before has ended, products are the tensor cores'."""
    import torch
    from compiled import compiled
    from triton.tools.tensor_descriptor import TensorDescriptor

    prompt, streaming = kernels
    bf, wide = torch.bfloat16, torch.float32

    class Warmed:
        def __init__(self, kernel: Any) -> None:
            self.kernel = kernel

        def compile(self, arguments: Any, constants: Any, options: Any) -> Any:
            return self.kernel.warmup(*arguments, grid=(1,), **constants, **options)

    early = {"launch_pdl": True}
    constants = {"C": 2048, "K": 2048, "B": 1, "ROWS": 8, "EARLY": True}
    added = compiled("sm_90", Warmed(streaming.add_product), (wide, bf, bf), constants, early | {"num_warps": 4})
    assert added.spilled_bytes == 0
    assert added.assembly.index("ld.global") < added.assembly.index("griddepcontrol.wait")
    blocks = [TensorDescriptor.from_tensor(torch.empty(256, 2048, dtype=bf), [128, 64]) for _ in range(2)]
    constants = {"N": 2048, "K": 2048, "BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}
    constants |= {"ADD": True, "SWIGLU": False, "EARLY": True}
    options = early | {"num_warps": 8, "num_stages": 4}
    product = compiled("sm_90", Warmed(prompt.multiply), (*blocks, wide, 256), constants, options)
    assert product.spilled_bytes == 0
    assert "wgmma.mma" in product.assembly


if __name__ == "__main__":
    generate()
