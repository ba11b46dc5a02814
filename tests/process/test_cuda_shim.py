"""What code that was written for a GPU finds under the CUDA shim: the number of a tensor's GPU, CUDA graphs.

Each test's program runs in a process of its own, since the shim changes a process for good.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.process import cuda_shim_site


def printed(text: str, tmp_path: Path, **more: str) -> list[str]:
    """The lines that a program prints under the shim."""
    environ = os.environ | {cuda_shim_site.VARIABLE: str(cuda_shim_site.SHIM), "PYTHONPATH": str(tmp_path)} | more
    shutil.copy(cuda_shim_site.__file__, tmp_path / "sitecustomize.py")
    command = [sys.executable, "-c", f"import torch\n{text}"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("x = torch.ones(1, device='cuda')", "0 0"),
        ("x = torch.ones(1).to('cuda:1')", "1 0"),
        ("torch.cuda.set_device(torch.device('cuda:2')); x = torch.ones(1).cuda()", "2 2"),
        ("torch.cuda.set_device(2); x = torch.ones(1, device='cuda:0')", "0 2"),
    ],
)
def test_tensors_are_on_the_gpu_that_was_named(text: str, numbers: str, tmp_path: Path) -> None:
    """-1, which a CPU's tensors say, is no number of a GPU, so that a right file would be called wrong by it."""
    asked = "print(x.get_device(), torch.cuda.current_device())"
    assert printed(f"{text}\n{asked}", tmp_path) == [numbers]


def test_a_ranks_tensors_are_on_the_gpu_with_its_number(tmp_path: Path) -> None:
    assert printed("print(torch.ones(1, device='cuda').get_device())", tmp_path, LOCAL_RANK="3") == ["3"]


def test_a_graph_is_replayed_on_the_memory_that_it_was_captured_with(tmp_path: Path) -> None:
    """The capture itself changes nothing: a sum that is added to is zero after it, and grows with each replay."""
    text = """
x, total, w = torch.ones(3, device="cuda"), torch.zeros(3, device="cuda"), torch.ones(3, requires_grad=True)
g = torch.cuda.CUDAGraph()
with torch.cuda.graph(g):
    print(torch.cuda.is_current_stream_capturing())
    doubled = (x * 2 * w).view(3, 1).sum(1)
    total += doubled.detach()
print(total.tolist(), torch.cuda.is_current_stream_capturing())
x.fill_(5)
g.replay()
g.replay()
print(doubled.tolist(), total.tolist())
"""
    assert printed(text, tmp_path) == ["True", "[0.0, 0.0, 0.0] False", "[10.0, 10.0, 10.0] [20.0, 20.0, 20.0]"]


def test_what_makes_the_host_wait_cannot_be_captured(tmp_path: Path) -> None:
    """As on a GPU."""
    text = """
x = torch.ones(3, device="cuda")
for wait in (lambda: x.sum().item(), lambda: x.nonzero(), lambda: bool(x.any()), lambda: x[x > 0]):
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            wait()
    except RuntimeError as error:
        print(str(error)[:59])
print(x.sum().item())
"""
    refused = "CUDA error: operation not permitted when stream is capturing"[:59]
    assert printed(text, tmp_path) == [*[refused] * 4, "3.0"]
