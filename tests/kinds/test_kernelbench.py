"""KernelBench's problems as they are: what is evaluated, what never passes, and what is refused in one line."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from harness.core.checkout import Checkout
from harness.core.errors import BadSubmissionError, UsageError
from harness.judging import correctness
from harness.judging.correctness import Expected
from harness.kinds import registry
from harness.kinds.benchmarks import rank_judging as judging
from harness.kinds.benchmarks.problem import batch_of, constants
from harness.kinds.kernelbench import rank as kernelbench
from harness.kinds.kernelbench.kind import META

Harness = Callable[..., subprocess.CompletedProcess[str]]
HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\n"
RELU = '''class Model(nn.Module):
    """Simple model that clips.

    More words.
    """

    def forward(self, x):
        return torch.relu(x)


batch_size = 4 * 16
shape = (batch_size, 96)


def get_inputs():
    return [torch.rand(*shape)]


def get_init_inputs():
    return []
'''
STATEFUL = '''class Model(nn.Module):
    """State, dropout, a batch norm, several results, arguments that are no tensors."""

    def __init__(self, n, p=0.5):
        super().__init__()
        self.hidden = torch.randn((batch_size, n))
        self.linear, self.norm, self.drop = nn.Linear(n, n), nn.BatchNorm1d(n), nn.Dropout(p)
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x, h=None, k=2, options=None):
        if h is not None:
            self.hidden.copy_(h)
        self.hidden = torch.tanh(self.linear(x + self.hidden)) * k + options["shift"][0]
        self.count += 1
        out = self.drop(self.norm(self.hidden))
        return {"out": out, "more": (self.count, [3.5, None]), "at": self.hidden.argmax(-1)}


batch_size, n = 32, 64


def get_inputs():
    return [torch.rand(batch_size, n, device="cuda"), None, 2, {"shift": [torch.randn(1)]}]


def get_init_inputs():
    return [[n], {"p": 0.3}]
'''
DEAD = RELU.replace("torch.relu(x)", "torch.clamp(torch.minimum(x - x.amax(1, keepdim=True), x * 0), 0, 1)")
MATMUL = """class Model(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.linear = nn.Linear(k, 64)

    def forward(self, x):
        return self.linear(x)


def get_inputs():
    return [torch.randn(48, 256)]


def get_init_inputs():
    return [256]
"""
NEW = """class ModelNew(nn.Module):
    def __init__(self, *given):
        super().__init__()

    def forward(self, x):
"""


@pytest.fixture
def problem(tmp_path: Path) -> Callable[[str, str], str]:
    """problem("19_ReLU", text) writes a problem's file and returns its path."""

    def write(name: str, text: str) -> str:
        path = tmp_path / "level1" / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(HEAD + text)
        return str(path)

    return write


@pytest.fixture
def submission(tmp_path: Path) -> Callable[[str], str]:
    """submission(text) writes a submission's file and returns its path."""

    def write(text: str) -> str:
        path = tmp_path / "mine.py"
        path.write_text(HEAD + text)
        return str(path)

    return write


Write = Callable[..., str]


def own(text: str) -> str:
    return re.sub(r"\bModel\b", "ModelNew", text)


def test_its_own_model_is_right_with_state_dropout_and_several_results(
    harness: Harness, problem: Write, submission: Write
) -> None:
    """An input on "cuda" among them, for which the CPU stands in."""
    found = harness("check", problem("1_state", STATEFUL), submission(own(STATEFUL)), "--device", "cpu")
    assert "verdict  pass" in found.stdout, found.stdout + found.stderr
    assert "the CPU stands in" in found.stdout


def test_a_model_with_the_same_parameters_in_another_order_gets_the_references(
    harness: Harness, problem: Write, submission: Write
) -> None:
    """Else its random parameters would be others."""
    text = own(MATMUL).replace("super().__init__()\n", "super().__init__()\n        torch.rand(7)\n")
    found = harness("check", problem("1_linear", MATMUL), submission(text), "--device", "cpu")
    assert "verdict  pass" in found.stdout, found.stdout + found.stderr


def test_an_evaluation_times_model_new_beside_model(harness: Harness, problem: Write, submission: Write) -> None:
    words = ("eval", problem("19_ReLU", RELU), submission(own(RELU)), "--device", "cpu", "--no-record", "--json", "-")
    found = json.loads(harness(*words, "--seconds", "0.2").stdout)
    assert found["problem"] == "level1/19_ReLU"
    assert {one["verdicts"]["gpumode"]["passed"] for one in found["cases"]} == {True}
    assert found["cases"][1]["outcome"]["type"] == "measured"
    assert "reference" in {one["code"] for one in found["warnings"]}


def test_judges_find_imported_what_tensors_without_values_need(
    harness: Harness, problem: Write, submission: Write
) -> None:
    """Its import takes longer than all else of a small test, and judges are forked anew for each candidate."""
    asked = f"import sys\n\nIS_THERE = {META!r} in sys.modules\n"
    text = RELU.replace("    return [torch.rand", "    assert IS_THERE\n    return [torch.rand")
    found = harness("check", problem("19_ReLU", asked + text), submission(own(RELU)), "--device", "cpu")
    assert "verdict  pass" in found.stdout, found.stdout + found.stderr
    counted = f"import {META}\nthere = len(sys.modules)\ntorch.relu(torch.empty(1, device='meta'))\n"
    told = f"import sys\nimport torch\n{counted}print(len(sys.modules) - there)"
    assert int(subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True).stdout) < 20


def test_a_copy_of_the_input_passes_kernel_benchs_tolerance_and_not_ours(
    harness: Harness, problem: Write, submission: Write
) -> None:
    """torch.rand draws no number below 0, so their own test cannot see that nothing is clipped."""
    text = NEW + "        return x.clone()\n"
    words = ("check", problem("19_ReLU", RELU), submission(text), "--device", "cpu", "--json", "-")
    found = json.loads(harness(*words).stdout)
    verdicts = found["cases"][0]["verdicts"]
    assert (verdicts["gpumode"]["passed"], verdicts["strict"]["passed"]) == (True, False)


@pytest.mark.parametrize(
    ("text", "body"),
    [
        (RELU, "torch.zeros_like(x)"),
        (RELU, "torch.relu(x).bfloat16().float()"),
        (MATMUL, "torch.zeros(48, 64)"),
    ],
)
def test_zeros_and_fewer_digits_are_wrong(
    harness: Harness, problem: Write, submission: Write, text: str, body: str
) -> None:
    found = harness("check", problem("1_x", text), submission(f"{NEW}        return {body}\n"), "--device", "cpu")
    assert found.returncode == 112, found.stdout + found.stderr


def test_a_problem_whose_result_is_always_the_same_is_refused(
    harness: Harness, problem: Write, submission: Write
) -> None:
    """Zeros would be right there."""
    text = NEW + "        return torch.zeros_like(x)\n"
    found = harness("check", problem("80_dead", DEAD), submission(text), "--device", "cpu")
    assert found.returncode == 2, found.stdout + found.stderr
    assert "weak problem: the result is the same for every input" in found.stderr
    assert "Next: evaluate another problem" in found.stderr


def test_what_is_too_large_is_refused_in_one_line(harness: Harness, problem: Write, submission: Write) -> None:
    text = RELU.replace("4 * 16", "16384 * 16384")
    found = harness("check", problem("1_large", text), submission(own(text)), "--device", "cpu")
    assert found.returncode == 2
    assert "too large for this machine: its inputs have 96.0 GiB" in found.stderr
    assert "--suite small" in found.stderr


@pytest.fixture
def here(tmp_path: Path) -> Checkout:
    (tmp_path / "shapes").mkdir()
    return Checkout(tmp_path)


def test_a_problem_is_a_file_with_suites_and_parameters(problem: Write, here: Checkout) -> None:
    found = registry.find(problem("19_ReLU", RELU), here)
    assert (found.name, found.leaderboard, found.description) == (
        "level1/19_ReLU",
        "19_ReLU",
        "Simple model that clips.",
    )
    assert list(found.suites) == ["official", "cpu", "small"]
    assert found.suite("official").benchmarks[0].params == {"batch_size": 64, "shape": (64, 96)}
    assert found.suite("small").benchmarks[0].params == {"batch_size": 4, "shape": (4, 96)}
    assert batch_of({"n": 64, "batch_size": 32}) == "batch_size"
    assert batch_of({"eps": 1}) == ""
    late = constants(ast.parse("\n".join([*(f"width{at} = {at + 16}" for at in range(9)), "batch_size = 10"])))
    assert list(late) == [*(f"width{at}" for at in range(6)), "batch_size"]


def test_a_first_submission_is_the_problems_own_model(problem: Write, here: Checkout) -> None:
    assert registry.find(problem("19_ReLU", RELU), here).start() == HEAD + own(RELU)


def test_a_file_without_model_new_is_no_submission(problem: Write, submission: Write, here: Checkout) -> None:
    found = registry.find(problem("19_ReLU", RELU), here)
    with pytest.raises(BadSubmissionError, match="defines ModelNew at its top level, and it defines Model"):
        registry.read_submission(found, Path(submission(RELU)), here)
    branches = "try:\n    import absent\nexcept ImportError:\n    ModelNew = Model\n"
    assert "ModelNew" in registry.read_submission(found, Path(submission(RELU + branches)), here).source
    with pytest.raises(UsageError, match="which submission"):
        registry.read_submission(found, None, here)


def test_a_package_that_is_missing_is_named(problem: Write, here: Checkout) -> None:
    found = registry.find(problem("1_x", "from einops_of_nobody import rearrange\n" + RELU), here)
    with pytest.raises(UsageError, match="imports einops_of_nobody, which is not installed"):
        found.check_runnable()


def test_a_submission_is_no_problem(problem: Write, submission: Write) -> None:
    assert registry.is_problem(Path(problem("19_ReLU", RELU)))
    assert not registry.is_problem(Path(submission(RELU + own(RELU))))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_honest_kernels_pass_and_narrower_ones_do_not(dtype: torch.dtype) -> None:
    """A product summed in another order; and one of operands with half the digits."""
    torch.manual_seed(1)
    inputs = [torch.randn(64, 512, dtype=dtype), torch.randn(512, 96, dtype=dtype)]
    right = judging.Judging(lambda given: given[0] @ given[1]).right(inputs)
    assert isinstance(right, Expected)
    halves = [(inputs[0][:, at : at + 256].float() @ inputs[1][at : at + 256].float()) for at in (0, 256)]
    assert correctness.strict((halves[0] + halves[1]).to(dtype), right).passed
    narrow = torch.bfloat16 if dtype == torch.float32 else torch.float8_e4m3fn
    less = [one.to(narrow).float() for one in inputs]
    assert not correctness.strict((less[0] @ less[1]).to(dtype), right).passed
    assert not correctness.strict(torch.zeros(64, 96, dtype=dtype), right).passed


def test_drawn_inputs_are_hardened_and_made_ones_are_not() -> None:
    with kernelbench.Draws() as draws:
        inputs = [torch.rand(256, 100), torch.rand(8, 100).softmax(-1), torch.randint(0, 9, (4,)), 3.0]
        inputs += [torch.rand(256, 100).half(), torch.rand(9).to(torch.int8), torch.rand(9).to(torch.float8_e5m2)]
    made = judging.copied(inputs[1])
    judging.harden_drawn(draws.free(inputs), 5, judging.HARDEST)
    assert all(bool((inputs[at] < 0).any()) for at in (0, 4))
    assert inputs[0].mean(1).std() > 0.1
    assert inputs[0].abs().mean(0).std() > 0.1, "half of the columns of 2^30 numbers passed for all of a mean"
    assert torch.equal(inputs[1], made)


def test_a_problem_is_weak_if_nearly_all_of_its_result_may_be_zeros() -> None:
    """As products of numbers below 1 are, which vanish after a few columns; half of a triangle is no weakness."""
    drawn = torch.rand(8, 512, generator=torch.Generator().manual_seed(1))
    results = drawn.cumprod(1), drawn @ drawn.mT.tril()
    weak = [judging.weakness([drawn], right, lambda dtype: 1e-4) for right in results]
    assert weak == ["weak problem: zeros pass its own tolerance in more than 90% of the result", ""]


def test_large_results_are_compared_some_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the verdict that they have at once; an infinite value in one of them only is seen in any row."""
    value = torch.randn(7, 3, 5)
    off, infinite = value.clone(), value.clone()
    off[6, 2, 4] += 1
    infinite[5] = torch.inf

    def found() -> list[Any]:
        near = [judging.close(one, value, lambda _: 1e-2) for one in (off, infinite, value)]
        far = [judging.distance(one, other) for one, other in ((off, value), (infinite, value), (infinite, infinite))]
        return [near, [f"{one:.5f}" for one in far], judging.weakness([value], value * 1e-4, lambda _: 1e-2)]

    at_once = found()
    monkeypatch.setattr(correctness, "AT_ONCE", 30)
    assert [len(one) for (one,) in judging.pieces(value)] == [2, 2, 2, 1]
    assert found() == at_once
    assert at_once[0][:2] == [
        (False, f"the result: {count} of 105 elements are off (rtol = atol = 0.01)") for count in (1, 15)
    ]


def test_an_infinite_value_is_right_where_the_reference_has_one() -> None:
    """A masked logit, the logarithm of a sum over nothing. Its neighbours are judged as ever."""
    torch.manual_seed(1)
    masked = torch.zeros(16, 64).masked_fill(torch.ones(16, 64).triu(1).bool(), -torch.inf)
    inputs = [torch.randn(16, 64)]
    right = judging.Judging(lambda given: given[0] * 3 + masked).right(inputs)
    assert isinstance(right, Expected)
    value = inputs[0] * 3 + masked
    assert correctness.strict(value, right).passed
    for wrong in (value * 1.001, value.nan_to_num(), value.neg(), value.masked_fill(masked == 0, 0), value + torch.inf):
        assert not correctness.strict(wrong, right).passed


def test_a_submission_that_has_the_problems_sizes_gets_a_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that a model reads from its file, as KernelBench's RNN does. Other constants of that name stay."""
    published, own = SimpleNamespace(batch_size=256, n=8), SimpleNamespace(batch_size=256, n=64)
    monkeypatch.setattr(kernelbench, "problem", lambda: published)
    for batch_size in (16, 32):
        kernelbench.sized({"batch_size": batch_size, "n": 4}, own)
        assert (published.batch_size, own.batch_size, own.n) == (batch_size, batch_size, 64)


def test_a_model_with_other_parameters_is_told_that_it_keeps_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    """Other names in the same order have the same values by the seed, and nothing is said."""

    def made(name: str, spread: float = 1.0) -> nn.Module:
        torch.manual_seed(3)
        linear = nn.Linear(4, 2)
        with torch.no_grad():
            linear.weight.mul_(spread)
        return nn.ModuleDict({name: linear})

    kernelbench.take_over(made("fc"), made("gemm"), {})
    kernelbench.take_over(made("gemm", spread=2.0), made("gemm"), {})
    assert capsys.readouterr().out == ""
    kernelbench.take_over(made("fc", spread=2.0), made("gemm"), {})
    assert "(fc.weight, fc.bias) have other names or shapes than Model's (gemm.weight" in capsys.readouterr().out


class Norm(nn.Module):
    """A norm of vectors of 8, with the usual weight of 1 and bias of 0."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.norm(x)
        return found


class Plain(Norm):
    """Leaves weight and bias out."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.batch_norm(x, None, None, training=True)


class Renamed(nn.Module):
    """Has weight and bias by other names, of another shape and in another order, and a constant of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.own = nn.Parameter(torch.ones(3))
        self.shift, self.scale = nn.Parameter(torch.zeros(1, 8)), nn.Parameter(torch.ones(1, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.batch_norm(x, None, None, training=True) * self.scale * self.own[0] + self.shift


class Root(Norm):
    """Has no finite result if its parameter of 0 is below."""

    def __init__(self) -> None:
        super().__init__()
        self.below = nn.Parameter(torch.zeros(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.below.sqrt()


def hardened(monkeypatch: pytest.MonkeyPatch, model: type[nn.Module]) -> tuple[Any, Any]:
    """The published input of a problem with that Model, and a hardened one."""
    file = SimpleNamespace(Model=model, get_inputs=lambda: [torch.rand(16, 8)], get_init_inputs=list)
    monkeypatch.setattr(kernelbench, "problem", lambda: file)
    reference = kernelbench.Reference()
    published = reference.generate_input(0, 1, kernelbench.PUBLISHED_SEED)
    return published, reference.harden(reference.generate_input(0, 1, 7), 7)


def test_weights_of_1_and_biases_of_0_vary_where_inputs_are_hardened(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a file that leaves them out is wrong there, and one that has them by other names is right."""
    published, hard = hardened(monkeypatch, Norm)
    reference = kernelbench.CalledModel(Norm, takes_over=False)
    for model, is_right in ((Norm, True), (Renamed, True), (Plain, False)):
        called = kernelbench.CalledModel(model, takes_over=True)
        assert torch.allclose(called(published), reference(published), atol=1e-6)
        assert torch.allclose(called(hard), reference(hard), atol=1e-5) == is_right
    values = reference.model.model.state_dict()
    assert 0.5 <= float(values["norm.weight"].min()) < float(values["norm.weight"].max()) <= 1.5
    assert float(values["norm.bias"].std()) > 0.1


def test_parameters_stay_where_the_result_would_not_be_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    assert hardened(monkeypatch, Norm)[1]["is_varied"]
    assert not hardened(monkeypatch, Root)[1]["is_varied"]


def test_rows_that_come_from_other_choices_are_right_as_the_reference_has_them() -> None:
    """bf16 and float32 send a few tokens to other experts, which a distance over all of them does not show."""
    torch.manual_seed(2)
    x, gate, experts = (torch.randn(*shape).bfloat16() for shape in ((512, 64), (64, 8), (8, 64, 64)))

    def routed(inputs: list[torch.Tensor], parts: int = 1) -> torch.Tensor:
        x, gate, experts = inputs
        best = (x @ gate).bfloat16().argmax(-1) if parts > 1 else (x @ gate).argmax(-1)
        halves = [
            experts[best][:, at::parts].transpose(1, 2).float() @ x[:, at::parts, None].float() for at in range(parts)
        ]
        return (sum(halves[1:], halves[0]).squeeze(-1) + 50 * x.float()).to(x.dtype)

    own = judging.Judging(routed)
    right = own.right([x, gate, experts])
    assert isinstance(right, Expected)
    assert not own.is_raised
    assert correctness.strict(routed([x, gate, experts]), right).passed
    assert correctness.strict(routed([x, gate, experts], parts=2), right).passed
    less = [one.to(torch.float8_e4m3fn).bfloat16() for one in (x, gate, experts)]
    assert not correctness.strict(routed(less), right).passed
