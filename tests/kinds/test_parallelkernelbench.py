"""ParallelKernelBench's problems: solution(*inputs) on every rank, inputs by the clone's own utils."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.core.checkout import Checkout
from harness.kinds import registry
from harness.kinds.parallelkernelbench import rank as parallel

Harness = Callable[..., subprocess.CompletedProcess[str]]
UTILS = """
import torch
import torch.distributed as dist


def _linear(n, dtype):
    return torch.nn.Linear(n, n).to(dtype=dtype)


def create_input_tensor(rank, world_size, problem_id, base_shape, dtype, trial=0, device=None):
    if problem_id == 1:
        return (torch.full(base_shape, float(rank + 1), dtype=dtype, device=device),)
    torch.manual_seed(42 + problem_id * 1000 + rank + trial * 1_000_003)
    if problem_id == 2:
        pair = dist.new_group(ranks=list(range(world_size)))
        x = torch.randn((16, 32), dtype=dtype, device=device)
        return (x, _linear(32, dtype), {"scale": [2.0, None]}, dist.group.WORLD, pair)
    indices = torch.tensor([[0, 1, 2], [2, 0, 1]])
    values = torch.randn(3, dtype=torch.float32)
    return (torch.sparse_coo_tensor(indices, values, (3, 3)), torch.randn(3, 5))
"""
ALLREDUCE = """
import torch
import torch.distributed as dist


def solution(tensor):
    out = tensor.clone()
    dist.all_reduce(out)
    return out
"""
GROUPS = """
import torch
import torch.distributed as dist

CACHE = {}


@torch.no_grad()
def solution(x, linear, options, world, pair):
    y = linear(x) * options["scale"][0]
    parts = torch.empty((dist.get_world_size(), *y.shape), dtype=y.dtype, device=y.device)
    dist.all_gather_into_tensor(parts, y, group=pair)
    if "all" not in CACHE:
        CACHE["all"] = [dist.new_group(list(range(dist.get_world_size())))]
    dist.all_reduce(y.clone(), group=CACHE["all"][0])
    uneven = [y.new_empty(1 + rank, 32) for rank in range(dist.get_world_size())]
    dist.all_gather(uneven, y[: 1 + dist.get_rank()].contiguous(), group=pair)
    rows = [y[: 1 + rank].contiguous() for rank in range(dist.get_world_size())]
    taken = [y.new_empty(1 + dist.get_rank(), 32) for _ in rows]
    dist.all_to_all(taken, rows)
    dist.all_reduce(y, group=world)
    y = y + torch.cat(taken).sum()
    return y, parts.sum(0).argmax(-1), dist.get_world_size(), torch.cat(uneven)
"""
SPARSE = """
import torch
import torch.distributed as dist


def solution(matrix, x):
    y = torch.sparse.mm(matrix, x).to(torch.cuda.current_device())
    dist.all_reduce(y)
    return y
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone with three problems."""
    for folder in ("reference", "utils"):
        (tmp_path / "pkb" / folder).mkdir(parents=True)
    (tmp_path / "pkb" / "utils" / "input_output_tensors.py").write_text(UTILS)
    for name, text in (("1_allreduce", ALLREDUCE), ("2_groups", GROUPS), ("3_sparse", SPARSE)):
        (tmp_path / "pkb" / "reference" / f"{name}.py").write_text(text)
    return tmp_path / "pkb" / "reference"


@pytest.mark.parametrize("name", ["1_allreduce", "2_groups", "3_sparse"])
def test_a_reference_is_right_as_its_own_submission(harness: Harness, clone: Path, name: str) -> None:
    """With process groups, modules, sparse tensors and mappings among its inputs, and where it names cuda."""
    file = str(clone / f"{name}.py")
    found = harness("check", file, file, "--ranks", "2", "--device", "cpu")
    assert "verdict  pass: right in 1 test on 2 ranks" in found.stdout, found.stdout + found.stderr


def test_a_rank_that_keeps_its_own_is_wrong_by_both_verdicts(harness: Harness, clone: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text("def solution(tensor):\n    return tensor.clone()\n")
    words = ("check", str(clone / "1_allreduce.py"), str(mine), "--ranks", "2", "--device", "cpu", "--json", "-")
    verdicts = json.loads(harness(*words).stdout)["cases"][0]["verdicts"]
    assert not verdicts["strict"]["passed"]
    assert not verdicts["gpumode"]["passed"]


def test_a_constant_passes_the_published_test_and_not_ours(harness: Harness, clone: Path, tmp_path: Path) -> None:
    """Problem 1 has the same input in every trial."""
    mine = tmp_path / "mine.py"
    mine.write_text("def solution(tensor):\n    return tensor * 0 + 3\n")
    words = ("check", str(clone / "1_allreduce.py"), str(mine), "--ranks", "2", "--device", "cpu", "--json", "-")
    verdicts = json.loads(harness(*words).stdout)["cases"][0]["verdicts"]
    assert (verdicts["gpumode"]["passed"], verdicts["strict"]["passed"]) == (True, False)


def test_a_problem_is_found_by_its_clone(clone: Path, tmp_path: Path) -> None:
    (tmp_path / "shapes").mkdir()
    found = registry.find(str(clone / "2_groups.py"), Checkout(tmp_path))
    case = found.suite("official").benchmarks[0]
    assert (found.name, case.world_size) == ("parallel/2_groups", 8)
    assert case.params == {"problem": 2, "rows": 1024, "cols": 1024, "dtype": "bfloat16"}
    (clone.parent / "utils" / "input_output_tensors.py").unlink()
    assert not registry.is_problem(clone / "2_groups.py")


def test_groups_that_a_solution_keeps_are_forgotten_with_their_world(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing else that its file has."""
    monkeypatch.setattr(parallel.dist, "ProcessGroup", complex)
    found = SimpleNamespace(by_size={8: [1j], 4: None}, group=1j, sizes={8: [1]}, name="mine")
    parallel.forget_groups(found)
    assert found == SimpleNamespace(by_size={}, group=None, sizes={8: [1]}, name="mine")
