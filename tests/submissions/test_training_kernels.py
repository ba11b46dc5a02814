"""The Triton kernels of the shipped training submissions: interpreted on CPU cores against torch's operations, and
compiled for a GPU that is not here.

Also a script: with TRITON_INTERPRET=1, which has to be set before Triton is imported, it plays what it is told to.
"""

import sys
from typing import Any

import pytest
from interpreting import quicken
from kernel_ranks import started
from places import ROOT

CONFIG = {"layers": 1, "hidden": 24, "heads": 3, "kv_heads": 1, "ffn": 20, "sequence": 5, "vocabulary": 19}


def gradients() -> None:
    """Of all weights of a model whose sizes fill no block, by either's steps."""
    sys.path.insert(0, str(ROOT / "submissions"))
    import torch
    from common import fused_llama

    quicken()
    torch.manual_seed(3)
    torch.set_num_threads(1)
    widths = {"qkv": 40, "o": 24, "gate_up": 40, "down": 24}
    inputs = {"down": 20}
    given = {f"layers.0.{name}": torch.randn(rows, inputs.get(name, 24)) / 4 for name, rows in widths.items()}
    given |= {name: 1 + torch.rand(24) for name in ("layers.0.in_norm", "layers.0.ffn_norm", "norm")}
    given |= {"embedding": torch.randn(19, 24)}
    tokens, targets = torch.randint(19, (2, 2, 5))
    device = torch.device("cpu")
    found = []
    for steps in (fused_llama.Eager, fused_llama.Kernels):
        weights = {name: weight.clone().requires_grad_() for name, weight in given.items()}
        model = fused_llama.Llama(CONFIG, device)
        assert isinstance(model.steps, fused_llama.Kernels), "the interpreter stands in for a GPU"
        wide = model.steps.cosines, model.steps.sines
        model.steps = steps(CONFIG["heads"], CONFIG["kv_heads"], *wide)
        model.backward(weights, tokens, targets, 0.1)
        found.append({name: weight.grad for name, weight in weights.items()})
    for name, gradient in found[0].items():
        torch.testing.assert_close(found[1][name], gradient, rtol=1e-4, atol=1e-5, msg=lambda text, of=name: of + text)


def test_interpreted_kernels_find_the_gradients_of_torchs_operations() -> None:
    assert started(__file__, interpreted=True) == ""


class Warmed:
    """As a submission's Launcher, for a kernel that has none."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel

    def compile(self, arguments: Any, constants: Any, options: Any) -> Any:
        return self.kernel.warmup(*arguments, grid=(1,), **constants, **options)


def test_kernels_compile_for_hopper_without_spills(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the official suite's sizes."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "common"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(ROOT / "submissions"))
    import torch
    from common import llama_kernels
    from compiled import compiled

    half, wide, index = torch.bfloat16, torch.float32, torch.int64
    rows, hidden, pairs, ffn, vocabulary = 16384, 1024, 768, 3072, 4096
    calls = (
        ("add_norm", (half, half, half, half, half, hidden, 1e-5), {"BLOCK": 1024}),
        ("add_norm_back", (half, half, half, half, half, wide, rows, hidden, 1e-5), {"BLOCK": 1024}),
        ("rotate", (half, half, wide, wide, 512, pairs, 640, 1.0), {"HALF": 32, "BLOCK": 1024}),
        ("gate", (half, half, ffn), {"BLOCK": llama_kernels.GATES}),
        ("gate_back", (half, half, half, ffn), {"BLOCK": llama_kernels.GATES}),
        ("softmax_less_target", (half, index, vocabulary, 1e-5), {"BLOCK": llama_kernels.CHUNK}),
    )
    for name, arguments, constants in calls:
        warps = llama_kernels.warps_of(constants["BLOCK"] // llama_kernels.ELEMENTS)
        found = compiled("sm_90", Warmed(getattr(llama_kernels, name)), arguments, constants, {"num_warps": warps})
        assert found.spilled_bytes == 0, name
        assert ("ld.global.v4.b32" in found.assembly) or name == "rotate", name


if __name__ == "__main__":
    gradients()
