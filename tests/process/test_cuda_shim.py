"""What code that was written for a GPU finds under the CUDA shim: the number of a tensor's GPU, CUDA graphs.

Each test's program runs in a process of its own, since it changes what a process knows of its GPUs.
"""

import shutil
from collections.abc import Iterator

import pytest
from forks import Forks

from harness.process import cuda_shim_site

pytestmark = pytest.mark.xdist_group("shim")  # torch is imported once


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """A process that has imported torch under the shim."""
    folder = tmp_path_factory.mktemp("shim")
    shutil.copy(cuda_shim_site.__file__, folder / "sitecustomize.py")
    environ = {cuda_shim_site.VARIABLE: str(cuda_shim_site.SHIM), "PYTHONPATH": str(folder)}
    with Forks("import torch, torch._dynamo", **environ) as forks:
        yield forks


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("x = torch.ones(1, device='cuda')", "0 0"),
        ("x = torch.ones(1).to('cuda:1')", "1 0"),
        ("torch.cuda.set_device(torch.device('cuda:2')); x = torch.ones(1).cuda()", "2 2"),
        ("torch.cuda.set_device(2); x = torch.ones(1, device='cuda:0')", "0 2"),
    ],
)
def test_tensors_are_on_the_gpu_that_was_named(text: str, numbers: str, shim: Forks) -> None:
    """-1, which a CPU's tensors say, is no number of a GPU, so that a right file would be called wrong by it."""
    asked = "print(x.get_device(), torch.cuda.current_device())"
    assert shim.printed(f"{text}\n{asked}") == f"{numbers}\n"


def test_a_ranks_tensors_are_on_the_gpu_with_its_number(shim: Forks) -> None:
    assert shim.printed("print(torch.ones(1, device='cuda').get_device())", LOCAL_RANK="3") == "3\n"


def test_a_graph_is_replayed_on_the_memory_that_it_was_captured_with(shim: Forks) -> None:
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
    assert shim.printed(text).splitlines() == ["True", "[0.0, 0.0, 0.0] False", "[10.0, 10.0, 10.0] [20.0, 20.0, 20.0]"]


def test_what_makes_the_host_wait_cannot_be_captured(shim: Forks) -> None:
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
    assert shim.printed(text).splitlines() == [*[refused] * 4, "3.0"]
