"""What definitions of FlashInfer-Trace ask of inputs and leave to solutions, in one process."""

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from harness.core.checkout import Checkout
from harness.core.errors import BadFileError
from harness.judging import correctness
from harness.kinds import registry
from harness.kinds.benchmarks import rank_judging as judging
from harness.kinds.trace import rank, rank_choice, rank_inputs, schema
from harness.problems.problem import Problem

GATHER = {
    "name": "gather_sum",
    "op_type": None,
    "axes": {
        "tokens": {"type": "var"},
        "topk": {"type": "var"},
        "hidden": {"type": "const", "value": 8},
        "picked": {"type": "expr", "expression": "tokens * topk"},
    },
    "custom_inputs_entrypoint": "get_inputs",
    "inputs": {
        "rows": {"shape": ["picked", "hidden"], "dtype": "float32"},
        "place": {"shape": ["picked"], "dtype": "int64"},
    },
    "outputs": {"sums": {"shape": ["tokens", "hidden"], "dtype": "float32"}},
    "reference": (
        "import torch\n\n\ndef get_inputs(axes, device):\n"
        "    place = torch.arange(axes['picked'], device=device) // axes['topk']\n"
        "    return {'place': place, 'rows': torch.randn(axes['picked'], axes['hidden'], device=device)}\n\n\n"
        "def run(rows, place):\n    sums = rows.new_zeros(int(place.max()) + 1, rows.shape[1])\n"
        "    return sums.index_add_(0, place, rows)\n"
    ),
}
CUSTOM = {"rows": {"type": "custom"}, "place": {"type": "custom"}}
QUANTIZE = {
    "name": "quantize",
    "axes": {"n": {"type": "var"}},
    "inputs": {"x": {"shape": ["n", "32"], "dtype": "bfloat16"}, "mask": {"shape": ["n", "32"], "dtype": "uint8"}},
    "outputs": {"q": {"shape": ["n", "32"], "dtype": "float8_e4m3fn"}},
    "reference": "import torch\n\ndef run(x, mask):\n    return (x * (mask > 100)).to(torch.float8_e4m3fn)\n",
}
DRAW = {
    "name": "draw",
    "op_type": "sampling",
    "axes": {"rows": {"type": "var"}},
    "inputs": {"probs": {"shape": ["rows", "8"], "dtype": "float32"}},
    "outputs": {"tokens": {"shape": ["rows"], "dtype": "int64"}},
    "reference": "def run(probs):\n    return probs.argmax(-1) * 0 + 7\n",
}
SHARE = {
    "name": "share",
    "axes": {"n": {"type": "var"}},
    "inputs": {"x": {"shape": ["n", "32"], "dtype": "float32"}},
    "outputs": {"y": {"shape": ["n", "32"], "dtype": "float32"}},
    "reference": "def run(x):\n    assert x.mean(-1).abs().max() < 0.9\n    return x.mul(2)\n",
}

Made = Callable[..., Problem]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """Writes a definition with one workload as SOL-ExecBench lays them out, and reads them."""

    def written(definition: dict[str, Any], axes: dict[str, int], inputs: dict[str, Any] | None = None) -> Problem:
        (tmp_path / "shapes").mkdir()
        (tmp_path / "definition.json").write_text(json.dumps(definition))
        workload = {"uuid": "w", "axes": axes, "inputs": inputs or {}}
        (tmp_path / "workload.jsonl").write_text(json.dumps(workload))
        return registry.find(str(tmp_path / "definition.json"), Checkout(tmp_path))

    return written


@pytest.fixture
def reference_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Problem], rank.Reference]]:
    """The reference of a problem, whose files are staged as a rank has them."""

    def staged(problem: Problem) -> rank.Reference:
        for name, data in problem.staged().items():
            (tmp_path / name).write_bytes(data)
        return rank.Reference()

    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield staged
    sys.modules.pop("problem_file", None)
    rank_inputs.definition.cache_clear()
    rank_inputs.workloads.cache_clear()


def passes(reference: rank.Reference, kernel: Callable[..., Any], hardened: bool, **params: Any) -> bool:
    """The strict verdict on what that kernel returns."""
    data = reference.generate_input(0, 1, 5, workload="w", **params)
    data = reference.harden(data, 5) if hardened else data
    right = reference.exact_kernel(data)
    assert isinstance(right, correctness.Expected)
    return correctness.strict(kernel(*judging.copied(data["inputs"])), right).passed


@pytest.mark.parametrize("hardened", [False, True])
def test_custom_inputs_and_axes_that_are_expressions(
    made: Made, reference_of: Callable[[Problem], rank.Reference], hardened: bool
) -> None:
    """The reference writes into a tensor of its own; places stay below the number of tokens."""
    reference = reference_of(made(GATHER, {"tokens": 6, "topk": 2, "hidden": 8}, CUSTOM))
    params = {"tokens": 6, "topk": 2}
    assert passes(reference, lambda rows, place: rows.view(6, 2, 8).sum(1), hardened, **params)
    assert not passes(reference, lambda rows, place: rows[::2] * 2, hardened, **params)


@pytest.mark.parametrize("hardened", [False, True])
def test_results_of_8_bits_are_judged(
    made: Made, reference_of: Callable[[Problem], rank.Reference], hardened: bool
) -> None:
    reference = reference_of(made(QUANTIZE, {"n": 40}))
    assert passes(reference, lambda x, mask: (x.float() * (mask > 100)).to(torch.float8_e4m3fn), hardened, n=40)
    assert not passes(reference, lambda x, mask: torch.zeros(40, 32).to(torch.float8_e4m3fn), hardened, n=40)
    assert not passes(reference, lambda x, mask: x.to(torch.float8_e4m3fn), hardened, n=40)


def test_an_input_that_the_reference_refuses_is_no_hardened_one(
    made: Made, reference_of: Callable[[Problem], rank.Reference]
) -> None:
    """Offsets of rows break what it asserts."""
    reference = reference_of(made(SHARE, {"n": 256}))
    assert passes(reference, lambda x: x * 2, True, n=256)
    assert reference.levels == {"w": 0}


def test_a_workload_that_does_not_fit_is_refused_before_it_is_made(
    made: Made, reference_of: Callable[[Problem], rank.Reference]
) -> None:
    reference = reference_of(made(SHARE, {"n": 1 << 40}))
    with pytest.raises(ValueError, match="too large for this machine"):
        reference.generate_input(0, 1, 5, workload="w", n=1 << 40)


@pytest.mark.parametrize(("op_type", "expected"), [("moe", True), ("gemm", False), (None, False)])
def test_a_part_of_some_results_may_be_off_by_the_published_verdict(
    monkeypatch: pytest.MonkeyPatch, op_type: str | None, expected: bool
) -> None:
    monkeypatch.setattr(rank, "definition", lambda: SHARE | {"op_type": op_type})
    right = torch.ones(100)
    few, many = (torch.where(torch.arange(100) < count, 2.0, right) for count in (5, 6))
    assert (rank.within(few, right)[0], rank.within(many, right)[0]) == (expected, False)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "NoneType"),
        ("done", "str"),
        ((), "tuple of 0 ()"),
        ((torch.ones(2), 1), "tuple of 2 (Tensor, int)"),
        (["a"] * 9, "list of 9 (str, str, str, str, ...)"),
        (["a"], "list of 1 (str)"),
        ([[torch.ones(2)]], "list of 1 (list)"),
        ({"other": 1}, "dict of other"),
    ],
)
def test_a_result_that_lacks_an_output_says_which(monkeypatch: pytest.MonkeyPatch, value: object, said: str) -> None:
    monkeypatch.setattr(rank, "definition", lambda: SHARE)
    expected = f"it returned {said}; expected a tensor or a number for each of: y"
    with pytest.raises(TypeError, match=f"^{re.escape(expected)}$"):
        rank.results(value)


@pytest.mark.parametrize(
    ("change", "inputs", "said"),
    [
        ({"inputs": {"x": {"shape": ["n"], "dtype": "float4_e2m1"}}}, {}, "inputs.x.dtype: tensors of 'float4_e2m1'"),
        ({"axes": {"n": {"type": "expr", "expression": "k + 1"}}}, {}, "axes: `k` is no size of a known axis"),
        ({}, {"x": {"type": "custom"}}, "no custom_inputs_entrypoint"),
        ({}, {"x": {"type": "scalar", "value": "2"}}, "inputs.x.value: expected a number"),
        ({"custom_inputs_entrypoint": "draw"}, {}, "the reference defines no draw"),
    ],
)
def test_what_cannot_be_made_says_where(made: Made, change: dict[str, Any], inputs: dict[str, Any], said: str) -> None:
    with pytest.raises(BadFileError, match=said):
        made(SHARE | change, {"n": 4}, inputs)


def test_an_expression_is_arithmetic_and_nothing_else() -> None:
    assert schema.evaluated("(n + 3) // 4 * -(-k) % 7", {"n": 9, "k": 5}) == 1
    for text in ("n.bit_length()", "__import__('os')", "n -", "n // (n - 9)", "1 - n", "True + n", "(" * 10_000):
        with pytest.raises(ValueError, match=r"size|value"):
            schema.evaluated(text, {"n": 9})


@pytest.mark.parametrize(
    ("value", "holds"),
    [
        (torch.rand(40, 16).softmax(-1), lambda new: bool(((new.sum(-1) - 1).abs() < 1e-5).all())),
        (torch.rand(640), lambda new: bool(((new >= 0) & (new <= 1)).all())),
        (torch.randn(640), lambda new: bool((new != 0).all())),
        (torch.randn(640).to(torch.float8_e4m3fn), lambda new: bool((new.float().abs() > 0.1).any())),
        (torch.ones(640), lambda new: set(new.tolist()) == {0.5, 1.0}),
    ],
)
def test_stored_numbers_change_and_stay_what_they_are(value: Tensor, holds: Callable[[Tensor], bool]) -> None:
    new = rank_inputs.varied(value, 3)
    assert holds(new)
    assert not torch.equal(new.float(), value.float())


@pytest.mark.parametrize("value", [torch.arange(640.0), torch.exp2(torch.arange(-9.0, 9)), torch.tensor([0.3])])
def test_positions_powers_of_two_and_single_numbers_stay(value: Tensor) -> None:
    assert torch.equal(rank_inputs.varied(value, 3), value)


def test_random_keys_are_numbers() -> None:
    """Random bytes would have been NaN among the keys, and any number as a scale."""
    packed = rank_inputs.packed_keys((3, 64, 1, 132), torch.device("cpu")).reshape(3, -1)
    keys = packed[:, : 64 * 128].contiguous().view(torch.float8_e4m3fn).float().view(3, 64, 128)
    scale = packed[:, 64 * 128 :].contiguous().view(torch.float32)
    assert 0.9 < float((keys * scale[..., None]).std()) < 1.1


def probabilities(batch: int, peaked: bool) -> dict[str, Tensor]:
    shares = torch.randn(batch, 500).softmax(-1)
    top_k, top_p = torch.full((batch,), 40, dtype=torch.int32), torch.full((batch,), 0.9)
    return {"probs": rank_inputs.peaked(shares, 1) if peaked else shares, "top_k": top_k, "top_p": top_p}


def sampled(named: dict[str, Tensor]) -> Tensor:
    """As an honest kernel draws: after one sort, from a generator of its own."""
    ranked, order = named["probs"].sort(dim=-1, descending=True)
    ranked[:, 40:] = 0
    ranked /= ranked.sum(-1, keepdim=True)
    ranked[ranked.cumsum(-1) - ranked > 0.9] = 0
    return order.gather(-1, torch.multinomial(ranked, 1))[:, 0]


DRAWERS: dict[str, Callable[[dict[str, Tensor]], Tensor]] = {
    "honest": sampled,
    "greedy": lambda named: named["probs"].argmax(-1),
    "even": lambda named: (
        named["probs"].argsort(dim=-1, descending=True)[:, :5].gather(-1, torch.randint(5, (64, 1)))[:, 0]
    ),
    "zeros": lambda named: torch.zeros(64, dtype=torch.int64),
    "unfiltered": lambda named: torch.multinomial(named["probs"], 1)[:, 0],
    "outside": lambda named: torch.full((64,), 500),
}


@pytest.mark.parametrize("name", DRAWERS)
def test_tokens_are_right_if_they_are_drawn_as_the_probabilities_have_it(name: str) -> None:
    torch.manual_seed(4)
    judge = object.__new__(rank_choice.ChoiceTrusted)
    inputs = [({"workload": "w", "seed": seed}, probabilities(64, seed % 2 == 1)) for seed in range(6)]
    found = [judge.drawn(data, named, DRAWERS[name](named)).passed for data, named in inputs]
    count = len(judge.draws)
    judge.drawn(*inputs[0], DRAWERS[name](inputs[0][1]))
    assert len(judge.draws) == count  # the same input again
    assert all(found) is (name == "honest"), found


def test_few_tokens_that_are_the_same_for_other_probabilities_are_no_weak_problem(
    made: Made, reference_of: Callable[[Problem], rank.Reference]
) -> None:
    reference = reference_of(made(DRAW, {"rows": 2}))
    data = reference.harden(reference.generate_input(0, 1, 5, workload="w", rows=2), 5)
    assert reference.exact_kernel(data).value.tolist() == [7, 7]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda row: row.flip(0), ""),
        (lambda row: torch.where(row == row[149], 63, row), ""),  # the last one for another of the sequence
        (lambda row: torch.where(row == row[3], 63, row), "is missing"),
        (lambda row: torch.where(row == row[149], row[0], row), "different indices"),
        (lambda row: torch.where(row == row[149], 5 * 64, row), "none of the sequence's"),
        (lambda row: torch.where(row < 0, 7, row), "different indices"),
    ],
)
def test_indices_may_come_in_any_order(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[Tensor], Tensor], said: str
) -> None:
    monkeypatch.setattr(rank_choice, "definition", lambda: {"axes": {"page_size": {"value": 64}}})
    named = {"block_table": torch.tensor([[2, 0, 4]]), "seq_lens": torch.tensor([160])}
    tokens = torch.cat([torch.arange(128, 192), torch.arange(63), torch.arange(256, 288)])
    wanted = torch.cat([tokens[torch.randperm(159)][:150], torch.tensor([-1, -1])])
    wanted[:150] = tokens[:150]
    verdict = rank_choice.ordered(named, change(wanted)[None], wanted[None])
    assert said in verdict.message
    assert verdict.passed is not bool(said)
