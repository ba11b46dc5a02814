"""The references say what is right, and the strict verdict tells honest kernels from wrong ones on every shape."""

import copy
import itertools
import math
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.core.checkout import Checkout
from harness.judging import correctness
from harness.judging.correctness import Expected
from harness.problems import shape_file
from tests import corpus
from tests.court import Court, Ranks, judge

W = 8
SUITES = ("quick", "cpu")
HONEST = [variant for name in corpus.PROBLEMS for variant in corpus.variants(name) if variant.is_honest]
WRONG = [variant for name in corpus.PROBLEMS for variant in corpus.variants(name) if not variant.is_honest]
WORST = {  # of the honest
    "a2a": "fp16_terms",
    "moe": "fp16_everywhere",
    "gemm_rs": "bias_on_one_rank",
    "ag_gemm": "bf16_product_then_bias",
}

GROUPS = {name: pytest.mark.xdist_group(f"correctness-{name}") for name in corpus.PROBLEMS}  # share inputs and answers

on_every = {"argnames": "name", "argvalues": [pytest.param(name, marks=GROUPS[name]) for name in corpus.PROBLEMS]}


def each(variants):
    ids = [f"{variant.problem}-{variant.name}" for variant in variants]
    marked = [pytest.param(variant, marks=GROUPS[variant.problem]) for variant in variants]
    return pytest.mark.parametrize("variant", marked, ids=ids)


def each_on_either(variants):
    """On hardened and on published inputs. Of a problem's variants on published ones, `make test` has the one that
    rounds most, which is nearest to the limit, and the reference (the timed one, below)."""
    return pytest.mark.parametrize(
        ("variant", "hardened"),
        [
            pytest.param(
                variant,
                hardened,
                id=f"{variant.problem}-{variant.name}-{'hardened' if hardened else 'published'}",
                marks=[
                    GROUPS[variant.problem],
                    *([] if hardened or variant.name == WORST[variant.problem] else [pytest.mark.slow]),
                ],
            )
            for variant in variants
            for hardened in (True, False)
        ],
    )


def cases(name, suites=SUITES):
    suites = [(suite, shape_file.find(name, Checkout.here()).suites[suite]) for suite in suites]
    return [(suite, case) for suite, found in suites for case in (*found.tests, *found.benchmarks)]


@pytest.fixture(scope="module")
def ranks():
    with Ranks(W) as ranks:
        yield ranks


@pytest.fixture(scope="module")
def courts(ranks):
    return {name: Court(ranks, name) for name in corpus.PROBLEMS}


@pytest.fixture(scope="module")
def trials(courts):
    """{(problem, hardened): [(params, data, expected)]} for every shape of the small suites, made when asked for."""
    made = {}

    def trials(name, hardened):
        if (name, hardened) not in made:
            made[name, hardened] = [
                (case.params, data, courts[name].expected(data))
                for _, case in cases(name)
                for data in [courts[name].inputs(case.params, case.seed, hardened)]
            ]
        return made[name, hardened]

    return trials


# ---- the corpus ------------------------------------------------------------------------------------------------


@each(WRONG)
def test_a_wrong_variant_fails_on_every_shape(variant, courts, trials):
    """On hardened inputs, the strict verdict of at least one rank is against it, and says why."""
    court = courts[variant.problem]
    kernels = court.load(corpus.submission(variant))
    for params, data, expected in trials(variant.problem, True):
        if (variant.needs_bias and not params["has_bias"]) or params.get("routing") == "empty":
            continue  # where many a wrong one raises
        verdicts = map(judge, court.run(kernels, data), expected)
        assert any(not verdict.passed and verdict.message for verdict in verdicts), params


@each_on_either(HONEST)
def test_an_honest_variant_passes_on_every_shape(variant, hardened, courts, trials):
    """On hardened and on published inputs, on all ranks."""
    court = courts[variant.problem]
    kernels = court.load(corpus.submission(variant))
    for params, data, expected in trials(variant.problem, hardened):
        for verdict in map(judge, court.run(kernels, data), expected):
            assert verdict.passed, (params, verdict.message)


@pytest.mark.parametrize(**on_every)
def test_the_honest_variant_that_rounds_most_never_fails(name, courts):
    """100 seeds of a small shape, where the limit is nearest by chance."""
    court = courts[name]
    kernels = court.load(corpus.submission(next(v for v in HONEST if (v.problem, v.name) == (name, WORST[name]))))
    params = cases(name, ("quick",))[0][1].params
    for seed in range(100):
        data = court.inputs(params, seed, seed % 2 == 0)
        for verdict in map(judge, court.run(kernels, data), court.expected(data)):
            assert verdict.passed, (seed, verdict.message)


@pytest.mark.parametrize(**on_every)
def test_a_submission_of_the_corpus_is_an_ordinary_file(name, tmp_path):
    """One file with a docstring, that stands alone and defines custom_kernel."""
    for variant in corpus.variants(name):
        path = corpus.write_submission(name, variant.name, tmp_path)
        source = path.read_text()
        assert "def custom_kernel(data):" in source
        assert "from tests" not in source
        assert source.startswith('"""Honest: ' if variant.is_honest else '"""Wrong: ')


# ---- the rule --------------------------------------------------------------------------------------------------


def made_up(rows, columns, seed):
    """A value, its noise, and an error of exactly that size drawn from a normal distribution; in float32."""
    generator = torch.Generator().manual_seed(seed)
    value = torch.randn(rows, columns, generator=generator)
    noise = 1e-3 * (0.01 + torch.rand(rows, columns, generator=generator))  # above the judge's floor everywhere
    error = noise * torch.randn(rows, columns, generator=generator)
    return Expected(value=value, noise=noise, dtype=torch.float32), error


def test_an_error_as_large_as_the_noise_never_fails():
    """200 draws of the full noise, more than any rounding gives (0.85 of it on average)."""
    for seed in range(200):
        expected, error = made_up(64, 200, seed)
        verdict = correctness.strict(expected.value + error, expected)
        assert verdict.passed, verdict.message


@settings(max_examples=60)
@given(st.data())
def test_a_fault_is_found_wherever_it_is(data):
    """8 times the noise in any row, column, segment or tile; 40 times in any single element."""
    rows, columns = data.draw(st.integers(1, 70), "rows"), data.draw(st.integers(1, 200), "columns")
    expected, error = made_up(rows, columns, 1)
    row, column = data.draw(st.integers(0, rows - 1), "row"), data.draw(st.integers(0, columns - 1), "column")
    start = column // 64 * 64
    area, factor = data.draw(
        st.sampled_from(
            [
                ((row, slice(None)), 8),
                ((slice(None), column), 8),
                ((row, slice(start, start + 64)), 8),
                ((slice(row, row + 64), slice(start, start + 64)), 8),
                ((row, column), 40),
            ]
        ),
        "area and factor",
    )
    error[area] = factor * expected.noise[area] * error[area].sign()
    assert not correctness.strict(expected.value + error, expected).passed


def test_noise_below_0_is_the_problems_fault_and_not_the_outputs():
    wrong = Expected(value=torch.ones(4), noise=torch.full((4,), -1.0), dtype=torch.float32)
    with pytest.raises(ValueError, match="exact_kernel's noise is below 0"):
        correctness.strict(torch.zeros(4), wrong)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ({"value": torch.ones(4).bfloat16()}, "exact_kernel's value is bfloat16; it must be float32 or float64"),
        ({"noise": torch.ones(4).half()}, "exact_kernel's noise is float16; it must be float32 or float64"),
        ({"noise": 0.1}, "exact_kernel's noise is of type float; it must be a tensor"),
        ({"noise": torch.ones(2)}, "the shape of exact_kernel's noise is [2] and its value's [4]"),
        ({"dtype": "bfloat16"}, "exact_kernel's dtype is 'bfloat16'; it must be a torch.dtype"),
        ({"value": torch.tensor([1, math.nan, 1, 1])}, "exact_kernel's value is NaN in 1 of 4 elements"),
    ],
)
def test_what_nobody_could_return_is_the_problems_fault_and_not_the_outputs(what, message):
    right = {"value": torch.ones(4), "noise": torch.ones(4), "dtype": torch.float32}
    with pytest.raises(ValueError, match=re.escape(message)):
        correctness.strict(torch.ones(4), Expected(**(right | what)))


def test_the_message_says_what_where_and_how_much():
    """A lost tile, an infinity, a wrong dtype and a wrong shape, as a user reads them."""
    expected, error = made_up(64, 200, 2)
    output = expected.value + error
    tile = output.clone()
    tile[8:24, 64:128] = 0
    message = correctness.strict(tile, expected).message
    assert "times what rounding explains (allowed" in message
    assert "in rows 8 to 23, columns 64 to 127" in message
    output[3, 5] = torch.inf
    message = correctness.strict(output, expected).message
    assert message == "1 of 12800 elements are not finite; the first is inf at row 3, column 5"
    assert correctness.strict(tile.half(), expected).message == "the dtype is float16; expected float32"
    assert correctness.strict(tile[None], expected).message == "the shape is [1, 64, 200]; expected [64, 200]"


@pytest.mark.parametrize("at_once", [1, 500, 12800])
def test_a_verdict_is_the_same_however_many_rows_are_looked_at_together(at_once, monkeypatch):
    expected, error = made_up(64, 200, 3)
    output = expected.value + error
    output[40, 150] += 50 * expected.noise[40, 150]
    output[7] += 0.5 * expected.noise[7]
    before = correctness.strict(output, expected), correctness.margin(output, expected)
    monkeypatch.setattr(correctness, "AT_ONCE", at_once)
    assert correctness.strict(output, expected) == before[0]
    assert correctness.margin(output, expected) == pytest.approx(before[1], rel=1e-5)
    assert not before[0].passed


@pytest.mark.gpu
def test_a_product_by_matrix_units_is_far_closer_than_a_kernel_has_to_be():
    generator = torch.Generator(device="cuda").manual_seed(1)
    rows, columns, depth = 512, 768, 5 * correctness.DEPTH + 24
    a_MK, b_NK = (
        torch.randn(count, depth, dtype=torch.bfloat16, device="cuda", generator=generator) for count in (rows, columns)
    )
    right_MN = a_MK.double() @ b_NK.double().T
    error_MN = correctness.product(a_MK, b_NK) - right_MN
    granted = correctness.accumulation_variance(depth, right_MN.square().mean())
    assert error_MN.square().mean() < 0.01 * granted


def test_zeros_where_zeros_are_right_pass():
    """Neither a zero value nor a noise of zero divides by zero; a wrong value there still fails."""
    zeros = torch.zeros(4, 70)
    expected = Expected(value=zeros, noise=zeros, dtype=torch.bfloat16)
    assert correctness.strict(zeros.bfloat16(), expected).passed
    assert not correctness.strict(zeros.bfloat16() + 1e-3, expected).passed


@pytest.mark.parametrize(
    ("kind", "device", "note", "message"),
    [
        ("torch.Tensor", "cpu", "", ""),
        ("builtins.tuple", "", "not a tensor", "the submission returned builtins.tuple; it must return a plain torch"),
        ("lazy.Tensor", "cpu", "", "the submission returned lazy.Tensor; it must return a plain torch.Tensor"),
        ("torch.Tensor", "meta", "", "the result is on meta; expected it on cpu"),
        ("torch.Tensor", "cpu", "its layout is torch.sparse_coo", "cannot be judged: its layout is torch.sparse_coo"),
    ],
)
def test_what_an_output_says_of_itself_is_judged_first(kind, device, note, message):
    """Type identity, device, and whether its bytes could be handed over."""
    verdict = correctness.strict_declared(kind, device, "cpu", note)
    assert verdict.passed == (not message)
    assert message in verdict.message


def test_the_noise_of_one_rounding_covers_it():
    """The rms of rounding to bf16 or fp16 is 0.85 of the noise on average, and 1.16 just above a power of 2."""
    for dtype in (torch.bfloat16, torch.float16):
        spread = torch.exp2(torch.linspace(-3, 3, 2**16, dtype=torch.float64))
        noise = correctness.rounding_noise(spread.square(), dtype)
        ratio = ((spread.to(dtype).double() - spread) / noise).square()
        assert math.sqrt(ratio.mean()) == pytest.approx(0.85, abs=0.01)
        assert math.sqrt(ratio.unflatten(0, (-1, 512)).mean(1).max()) < 2 / math.sqrt(3) + 0.03


# ---- the references --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("total_bias", [0.0, 12.0, -2.5, "cancels"])
def test_the_noise_of_a_sum_over_ranks_is_the_mean_over_its_orders(total_bias, courts):
    """gemm_rs's closed forms against all 120 orders of five products, for each way to add the bias."""
    p = torch.randn(5, dtype=torch.float64, generator=torch.Generator().manual_seed(4)) + 1
    total_bias = -p.sum() if total_bias == "cancels" else torch.tensor(total_bias, dtype=torch.float64)
    orders = torch.tensor(list(itertools.permutations(range(5))))

    def rounded(values):
        """The mean over orders of the squares of the running sums, from the second on."""
        return values[orders].cumsum(1)[:, 1:].square().sum(1).mean()

    v = p + total_bias / 5
    on_every_rank = v.square().sum() + rounded(v)
    on_the_first = (p[orders].cumsum(1) + total_bias).square().sum(1).mean()
    afterwards = rounded(p) + (p.sum() + total_bias).square()
    found = courts["gemm_rs"].reference.biased_squares(p.sum(), p.square().sum(), total_bias, 5)
    assert float(found) == pytest.approx(float(max(on_every_rank, on_the_first, afterwards)))
    found = courts["gemm_rs"].reference.running_squares(p.sum(), p.square().sum(), 5)
    assert float(found) == pytest.approx(float(rounded(p)))


@pytest.mark.parametrize(**on_every)
@pytest.mark.filterwarnings("error", "ignore::ResourceWarning")  # of what an earlier test left
def test_the_timed_reference_is_right_and_warns_of_nothing(name, courts, trials):
    """It passes both verdicts on hardened and published inputs, like any submission."""
    court = courts[name]
    for hardened in (True, False):
        for _, data, expected in trials(name, hardened):
            outputs = court.run([court.reference.ref_kernel] * W, data)
            assert all(judge(*pair).passed for pair in zip(outputs, expected, strict=True))
            checked = court.ranks.map(lambda rank, *args: court.reference.check_implementation(*args), data, outputs)
            assert checked == [(True, "")] * W


@pytest.mark.parametrize(**on_every)
def test_the_exact_result_is_that_of_float64_on_one_machine(name, courts, trials):
    """Computed from all ranks' inputs at once, without any collective."""
    for _, data, expected in trials(name, True)[:4]:
        for rank in (0, W - 1):
            value = SERIAL[name](data, rank)
            assert (expected[rank].value - value).abs().max() <= 1e-5 * value.abs().max()
            assert bool((expected[rank].noise >= 0).all())


def serial_gemm_rs(data, rank):
    total = sum(left.double() @ weight.double().T + (0 if bias is None else bias) for left, weight, bias in data)
    return total.chunk(W)[rank]


def serial_ag_gemm(data, rank):
    _, weight, bias = data[rank]
    return torch.cat([part[0] for part in data]).double() @ weight.double().T + (0 if bias is None else bias)


def serial_a2a(data, rank):
    config, rank_data, _, _ = data[rank]
    out = torch.zeros(rank_data.x.shape, dtype=torch.float64)
    for token, slot in itertools.product(range(rank_data.num_tokens), range(config.experts_per_token)):
        expert_rank = int(rank_data.indices[token, slot]) // (config.num_experts // W)
        out[token] += rank_data.weights[token, slot].double() * (1 + expert_rank) * rank_data.x[token].double()
    return out


def serial_moe(data, rank):
    config, rank_data, _, _ = data[rank]
    out = torch.zeros(rank_data.x.shape, dtype=torch.float64)
    for token, slot in itertools.product(range(rank_data.num_tokens), range(config.experts_per_token)):
        expert_rank, local = divmod(int(rank_data.indices[token, slot]), config.num_experts // W)
        experts = data[expert_rank][1]
        made = experts.down[local].double() @ (experts.up[local].double() @ rank_data.x[token].double())
        out[token] += rank_data.weights[token, slot].double() * made
    return out


SERIAL = {"a2a": serial_a2a, "moe": serial_moe, "gemm_rs": serial_gemm_rs, "ag_gemm": serial_ag_gemm}


@pytest.mark.parametrize(**on_every)
def test_one_bad_output_does_not_keep_the_other_ranks_waiting(name, courts, trials):
    """check_implementation is collective whatever it gets: an empty tensor on one rank fails there alone."""
    court = courts[name]
    _, data, _ = trials(name, False)[0]
    outputs = court.run([court.reference.ref_kernel] * W, data)
    outputs[3] = torch.empty(0)
    checked = court.ranks.map(lambda rank, *args: court.reference.check_implementation(*args), data, outputs)
    assert [passed for passed, _ in checked] == [True] * 3 + [False] + [True] * 4
    assert checked[3][1].startswith("the shape is [0]; expected [")


def test_the_published_tolerance_names_the_worst_elements(courts):
    """The largest errors first, NaN before all of them."""
    within = courts["gemm_rs"].reference.within_tolerance
    right = torch.ones(2, 3)
    assert within(right + 0.5e-2, right, 1e-2, 1e-2) == (True, "")
    wrong = right.clone()
    wrong[0, 1], wrong[1, 2] = 3, torch.nan
    passed, message = within(wrong, right, 1e-2, 1e-2)
    assert not passed
    assert message.endswith(
        "2 of 6 elements are off (rtol 0.01, atol 0.01): nan instead of 1 at [1, 2]; 3 instead of 1 at [0, 1]"
    )
    assert not within(right.double(), right, 1e-2, 1e-2)[0]


def test_the_published_tolerance_lets_fp8_and_a_lost_tile_pass(courts, trials):
    """Why there is a strict verdict: on published inputs of gemm_rs these pass what GPU MODE checks."""
    court = courts["gemm_rs"]
    _, data, _ = trials("gemm_rs", False)[1]
    for name in ("fp8_inputs", "tile_unwritten", "rank_missing", "eighth_of_k_dropped"):
        variant = next(variant for variant in WRONG if (variant.problem, variant.name) == ("gemm_rs", name))
        outputs = court.run(court.load(corpus.submission(variant)), data)
        checked = court.ranks.map(lambda rank, *args: court.reference.check_implementation(*args), data, outputs)
        assert checked == [(True, "")] * W, name


# ---- the inputs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(**on_every)
def test_inputs_are_the_same_for_the_same_seed_and_others_for_another(name, courts):
    """And other on every rank."""
    params = cases(name, ("quick",))[1][1].params
    inputs = courts[name].inputs
    first, again, other = (tensors_of(inputs(params, seed, False)) for seed in (5, 5, 6 + W))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not any(a.shape == b.shape and torch.equal(a, b) for a, b in itertools.combinations(first + other, 2))


def tensors_of(data):
    return [part[1].x if len(part) == 4 else part[0] for part in data]


def test_gemm_inputs_are_uniform_bf16_and_the_bias_is_shared_where_it_is_published_so(courts):
    """gemm_rs draws the bias from the seed alone; ag_gemm's is each rank's own, drawn after its weight."""
    params = {"m": 64, "n": 128, "k": 256, "has_bias": True}
    shapes = {"gemm_rs": [(64, 32), (128, 32), (128,)], "ag_gemm": [(8, 256), (16, 256), (16,)]}
    for name in shapes:
        data = courts[name].inputs(params, 11, False)
        for part in data:
            assert [tuple(tensor.shape) for tensor in part] == shapes[name]
            for tensor in part:
                assert tensor.dtype == torch.bfloat16
                assert float(tensor.abs().max()) <= 0.01 * (1 + 2**-8)
            assert float(part[0].float().std()) == pytest.approx(0.01 / math.sqrt(3), rel=0.1)
        assert all(torch.equal(data[0][2], part[2]) for part in data[1:]) == (name == "gemm_rs")
        generator = torch.Generator().manual_seed(11 + 3)  # rank 3's, drawn by hand
        for tensor in data[3][: 2 if name == "gemm_rs" else 3]:
            draw = torch.rand(tensor.shape, dtype=torch.bfloat16, generator=generator)
            assert torch.equal((draw * 2 - 1) * 0.01, tensor)
        assert courts[name].inputs({**params, "has_bias": False}, 11, False)[0][2] is None


def test_a2a_inputs_are_drawn_in_the_published_order(courts):
    """Number of tokens, a permutation a token, weights, x; all from seed + rank."""
    params = {"num_experts": 16, "experts_per_token": 3, "hidden_dim": 40, "max_num_tokens": 9}
    config, found, rank, world_size = courts["a2a"].inputs(params, 7, False)[2]
    assert (rank, world_size, config.in_dtype, config.out_dtype) == (2, W, torch.float16, torch.float16)
    generator = torch.Generator().manual_seed(7 + 2)
    tokens = int(torch.randint(1, 9, (1,), generator=generator))
    assert found.num_tokens == tokens
    indices = torch.stack([torch.randperm(16, generator=generator)[:3] for _ in range(tokens)])
    assert torch.equal(found.indices, indices.int())
    assert found.indices.dtype == torch.int32
    assert torch.equal(found.weights, torch.rand(tokens, 3, generator=generator))
    assert torch.equal(found.x, torch.randn(tokens, 40, dtype=torch.float16, generator=generator))


@pytest.mark.parametrize(**on_every)
def test_hardening_changes_what_it_says_and_nothing_else(name, courts, trials):
    """Types, shapes and dtypes stay; the argument is not altered; the rest is the same tensor values."""
    for params, data, _ in trials(name, False):
        before = copy.deepcopy(data)
        for rank, part in enumerate(data):
            hardened = courts[name].reference.harden(part, 3)
            CHECK_HARDENED[name](params, before[rank], part, hardened)


def check_hardened_gemm(params, before, part, hardened):
    assert all(old is None or torch.equal(old, kept) for old, kept in zip(before, part, strict=True))
    assert torch.equal(hardened[0], part[0])
    assert torch.equal(hardened[1], part[1])
    if params["has_bias"]:
        zeroed = hardened[2] != part[2]
        half = part[2].numel() // 2
        assert 0.9 * half <= int(zeroed.sum()) <= half  # a few were 0 before
        assert bool((hardened[2][zeroed] == 0).all())
    else:
        assert hardened[2] is None


def check_hardened_a2a(params, before, part, hardened):
    old, kept, new = before[1], part[1], hardened[1]
    tensors = [name for name, value in vars(old).items() if isinstance(value, torch.Tensor)]
    assert all(torch.equal(getattr(old, name), getattr(kept, name)) for name in tensors)
    untouched = set(tensors) - {"indices", "weights"}
    assert all(torch.equal(getattr(new, name), getattr(kept, name)) for name in untouched)
    assert hardened[0] == part[0]
    assert torch.equal(new.weights, 0.25 + 0.5 * kept.weights)
    assert torch.equal(new.indices[1:], kept.indices[1:])
    assert new.indices.dtype == torch.int32
    if not new.num_tokens:
        return
    assert len(set(new.indices[0].tolist())) == params["experts_per_token"]
    owners = new.indices[0] // (params["num_experts"] // W)
    assert (part[2] + 1) % W in owners.tolist()


CHECK_HARDENED = {
    "a2a": check_hardened_a2a,
    "moe": check_hardened_a2a,
    "gemm_rs": check_hardened_gemm,
    "ag_gemm": check_hardened_gemm,
}
