"""Files shaped like KernelBench's: other names, gradients, generators, sparse inputs, large parameters."""

import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn

from harness.core.checkout import Checkout
from harness.core.errors import BadFileError
from harness.judging import correctness
from harness.judging.correctness import Expected
from harness.kinds import registry
from harness.kinds.kernelbench import rank as kernelbench

NAMED = """import torch
from torch import nn


class Half(nn.Module):
    def forward(self, x):
        return x / 2


class Linear(nn.Module):
    \"\"\"A product, halved.\"\"\"

    def __init__(self, n):
        super(Linear, self).__init__()
        self.half, self.weights = Half(), nn.Linear(n, n)

    def forward(self, x):
        return self.half(self.weights(x))


def get_inputs():
    return [torch.rand(4, 8)]


def get_init_inputs():
    return [[], {"n": 8}]
"""


def test_the_class_that_no_other_names_is_the_model(tmp_path: Path) -> None:
    """KernelBook's files have no Model. Which of two unrelated classes is meant, nobody can tell."""
    path, other = tmp_path / "Linear.py", tmp_path / "two.py"
    path.write_text(NAMED)
    other.write_text(NAMED.replace("Half(), ", "nn.ReLU(), "))
    found = registry.find(str(path), Checkout(tmp_path))
    assert found.description == "A product, halved."
    assert found.staged()["problem_file.py"].decode() == NAMED + "\n\nModel = Linear\n"
    assert registry.is_problem(path)
    assert not registry.is_problem(other)
    path.write_text(NAMED + "\n\nclass ModelNew(Linear):\n    pass\n")
    assert not registry.is_problem(path)


class Product(nn.Module):
    """A linear layer without bias."""

    def __init__(self, rows: int = 16, columns: int = 8) -> None:
        super().__init__()
        self.linear = nn.Linear(columns, rows, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.linear(x)
        return found


@pytest.fixture
def reference(monkeypatch: pytest.MonkeyPatch) -> Callable[..., kernelbench.Reference]:
    """reference(get_inputs) is the reference of a file with that function and the model Product."""

    def made(get_inputs: Callable[[], Any], *arguments: int) -> kernelbench.Reference:
        file = SimpleNamespace(Model=Product, get_inputs=get_inputs, get_init_inputs=lambda: list(arguments))
        monkeypatch.setattr(kernelbench, "problem", lambda: file)
        made = kernelbench.Reference()
        made.roomy = {}  # the memory is not asked for
        return made

    return made


def test_parameters_are_not_drawn_as_the_inputs_are(reference: Callable[..., kernelbench.Reference]) -> None:
    """The first uniform numbers of a seed would be both: a product of them is far from what it is anywhere else."""
    made = reference(lambda: [torch.rand(16, 8)])
    hard = made.harden(made.generate_input(0, 1, 7), 7)
    (weight,) = made.model.of(hard).model.parameters()
    alike = torch.corrcoef(torch.stack([hard["inputs"][0].flatten(), weight.detach().flatten()]))[0, 1]
    assert abs(alike) < 0.5


def test_inputs_that_require_gradients_are_hardened(reference: Callable[..., kernelbench.Reference]) -> None:
    """They reach ranks without: every call runs under no_grad."""
    made = reference(lambda: [torch.rand(16, 8, requires_grad=True)])
    hard = made.harden(made.generate_input(0, 1, 7), 7)
    assert bool((hard["inputs"][0] < 0).any())
    assert not hard["inputs"][0].requires_grad


@pytest.mark.parametrize(
    ("get_inputs", "why"),
    [
        (lambda: (one for one in ([torch.rand(16, 8)], [torch.rand(4, 8)])), "is a generator"),
        (lambda: [torch.eye(8).to_sparse()], "layout torch.sparse_coo, which ranks cannot exchange"),
    ],
)
def test_inputs_that_cannot_be_handed_over_are_named(
    reference: Callable[..., kernelbench.Reference], get_inputs: Callable[[], Any], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        reference(get_inputs).generate_input(0, 1, 7)


def test_parameters_count_where_a_problem_is_too_large(reference: Callable[..., kernelbench.Reference]) -> None:
    """A recurrent layer of 2^20 has small inputs and 4 TiB of parameters."""
    made = reference(lambda: [torch.rand(1, 1 << 20)], 1 << 20, 1 << 20)
    made.roomy = None
    with pytest.raises(ValueError, match=r"its parameters 4096.0 GiB, of which"):
        made.generate_input(0, 1, 7)


class Counting(Product):
    """Adds how often it was called, which it has in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.calls.append(x)
        return super().forward(x) + 1000.0 * len(self.calls)


@pytest.mark.parametrize(
    ("forward", "why"),
    [
        (lambda self, x: x.log(), "NaN in places"),
        (lambda self, x: None, "returns no tensor"),
        (Counting.forward, "another in each call with the same inputs"),
    ],
)
def test_a_result_that_nothing_can_equal_is_named(
    reference: Callable[..., kernelbench.Reference], monkeypatch: pytest.MonkeyPatch, forward: Any, why: str
) -> None:
    monkeypatch.setattr(Counting, "forward", forward)
    made = reference(lambda: [torch.randn(16, 8)])
    made.model.make = Counting
    data = made.generate_input(0, 1, 7)
    with pytest.raises(ValueError, match=why):
        made.exact_kernel(made.harden(data, 7))


def test_numbers_of_numpy_and_random_are_drawn_from_the_seed(reference: Callable[..., kernelbench.Reference]) -> None:
    made = reference(lambda: [torch.tensor([numpy.random.rand(), random.random()])])
    first, again = (made.generate_input(0, 1, 7)["inputs"][0] for _ in range(2))
    assert torch.equal(first, again)


def test_a_wrong_bool_is_wrong() -> None:
    expected = Expected(value=torch.ones(8, 8).double(), noise=torch.full((8, 8), 0.01).double(), dtype=torch.bool)
    assert correctness.strict(torch.ones(8, 8).bool(), expected).passed
    assert "0 where 1 is right" in correctness.strict(torch.zeros(8, 8).bool(), expected).message


@pytest.mark.parametrize(
    ("defined", "message"),
    [
        ({}, "defines no ModelNew"),
        ({"ModelNew": 3}, "ModelNew is of type int and cannot be called; define it as a class"),
        ({"ModelNew": nn.ReLU()}, "ModelNew is a model that was made already"),
    ],
)
def test_what_is_no_class_of_models_is_told(defined: dict[str, Any], message: str) -> None:
    with pytest.raises((AttributeError, TypeError), match=message):
        kernelbench.adapt(SimpleNamespace(**defined))


def test_a_file_that_is_no_python_says_where(tmp_path: Path) -> None:
    path = tmp_path / "1_wrong.py"
    path.write_text("class Model(nn.Module)\n    pass\n")
    with pytest.raises(BadFileError, match=r"1_wrong\.py: Python cannot read it: .* line 1"):
        registry.find(str(path), Checkout(tmp_path))


def test_a_file_with_a_byte_order_mark_is_read_as_python_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "1_marked.py"
    text = "class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"
    path.write_text(text, encoding="utf-8-sig")
    assert registry.find(str(path), Checkout(tmp_path)).kind == "kernelbench"
