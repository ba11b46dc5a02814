"""Models: the gate and its mutants, what a generation costs, own kernels, points, and how a played run is shown."""

import dataclasses
import importlib
import io
import json
import math
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from corpus.llama import models
from factories import report
from recorded import run
from replaying import replay_of
from rich.console import Console

from harness.board import report_json
from harness.board.entries import Board, Entry
from harness.board.judgements import entry_of, with_judged
from harness.board.places import ranking
from harness.contest import awards
from harness.contest.rules import Target
from harness.core.checkout import ROOT, Checkout
from harness.core.errors import UsageError
from harness.core.machine_records import Peaks
from harness.core.metrics import CLOCKS, MEMORY, STEP, TOKENS, TTFT
from harness.core.records import (
    Bound,
    Case,
    CaseResult,
    Cost,
    EvalReport,
    Measured,
    Module,
    Passed,
    Score,
    Series,
    Submission,
    Wrong,
)
from harness.core.stats import median
from harness.evaluation import compare, compare_runs, rejudge, verify
from harness.evaluation.evaluate import evaluate
from harness.gpumode import result_lines
from harness.judging import correctness
from harness.judging.figures import figured
from harness.judging.scoring import SCORINGS
from harness.judging.warnings import text_of
from harness.kinds.kind import Order, Progress
from harness.kinds.model import rank as logits
from harness.kinds.model.kind import ModelSession, series_of, with_new
from harness.kinds.model.own_kernels import defined, is_own, share, shares
from harness.kinds.model.rank import LogitsTrusted
from harness.kinds.registry import kind_of, read_submission
from harness.kinds.settings import Asked, setting
from harness.machine import hardware
from harness.problems.shape_file import find
from harness.problems.submission import MAX_BYTES
from harness.ranks import roles, trace, wire
from harness.report import board_view, comparison, history, page_data
from harness.report.document import Table
from harness.report.evaluation import document_of
from harness.report.render import markdown, terminal

CHECKOUT = Checkout(ROOT)
LLAMA = find("llama", CHECKOUT)
BROUGHT = (
    "reference",
    "adapter",
    "params",
    "task",
    "weights",
    "utils",
    "model",
    "plain",
    "prompt",
    "streamed",
    "streaming",
    "tuned",
    "common",
    "common.bulk",
    "common.warps",
    "prompt_warps",
    "rings",
)


@pytest.fixture(scope="module")
def reference() -> Iterator[Any]:
    """The problem's reference module, beside what ranks get; afterwards modules are as before."""
    before = {name: sys.modules.pop(name) for name in BROUGHT if name in sys.modules}
    path, threads = list(sys.path), torch.get_num_threads()
    parts = ("reference/llama", "reference/common", "submissions/llama", "submissions")
    sys.path[:0] = [str(ROOT / part) for part in parts]
    torch.set_num_threads(1)
    try:
        yield importlib.import_module("reference")
    finally:
        sys.path[:] = path
        torch.set_num_threads(threads)
        for name in BROUGHT:
            sys.modules.pop(name, None)
        sys.modules.update(before)


# ---- the gate --------------------------------------------------------------------------------------------------------
HONEST = ("reference", "fused", "halves", "float32")
WRONG = (
    "dropped layer",
    "no rope scaling",
    "late rope",
    "stale cache",
    "old cache",
    "published answers",
    "mixed sequences",
    "no mask",
)
FORMATS = ("int8", "int8 in groups", "int8 late layers", "fp8", "int8 head", "fp8 head")
DEEP = {"layers": 16, "hidden": 512, "heads": 8, "kv_heads": 2, "head_dim": 64, "ffn": 2048, "vocab": 4096}


@pytest.fixture(scope="module")
def deep(reference: Any) -> Iterator[str]:
    """As many layers as the 1B has, but narrow ones; formats of weights are told apart as there. Drawn once."""
    import adapter
    import params
    import weights

    config = params.Config(**DEEP, dtype="bfloat16", max_length=64)
    cached = weights.draw(config, torch.device("cpu"))

    def drawn(other: Any, device: torch.device) -> dict[str, torch.Tensor]:
        return {name: one.clone() for name, one in (cached if other is config else weights.draw(other, device)).items()}

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(params.CONFIGS, "deep", config)
        for module in (adapter, reference):
            patch.setattr(module, "draw", drawn)
        yield "deep"


def judged(
    reference: Any, build: Any, seeds: tuple[int, ...] = (1, 2), name: str = "nano", batch: int = 1, new: int = 6
) -> list[str]:
    """What is wrong with the generations of these prompts by one model, each empty where nothing is."""
    run, messages = reference.Generation(build), []
    for seed in seeds:
        data = reference.generate_input(0, 1, name, batch, 40, new, seed)
        output = run(data)
        shape = reference.output_shape(data)
        messages.append(logits.judged(output, shape, partial(reference.exact_kernel, data, output)).message)
    return messages


@pytest.mark.parametrize("name", HONEST)
def test_honest_models_pass(reference: Any, name: str) -> None:
    assert judged(reference, models(reference)[0][name]) == ["", ""]


@pytest.mark.parametrize("name", WRONG)
def test_wrong_models_fail(reference: Any, name: str) -> None:
    """The published prompt alone may be right; a fresh one is not."""
    assert judged(reference, models(reference)[1][name], batch=2)[-1] != ""


@pytest.mark.parametrize("dtype", ["complex64", "float8_e8m0fnu", "bool", "int64", "bfloat16"])
def test_logits_of_another_dtype_are_wrong_before_any_model_sees_them(reference: Any, dtype: str) -> None:
    """Judges cannot find the largest of complex numbers, nor of every narrow format."""
    data = reference.generate_input(0, 1, "nano", 1, 4, 1, 1)
    nbytes = math.prod(reference.output_shape(data)) * getattr(torch, dtype).itemsize
    said = {"kind": "torch.Tensor", "dtype": f"torch.{dtype}", "shape": reference.output_shape(data), "device": "cpu"}
    taken = wire.Output(**said, offset=0, nbytes=nbytes), (torch.zeros(nbytes, dtype=torch.uint8),)
    never = SimpleNamespace(output_shape=reference.output_shape)
    rank: Any = SimpleNamespace(made=[data], taken=[taken], reference=never, device=SimpleNamespace(kind="cpu"))
    found = LogitsTrusted.verified(rank, wire.Verify(index=0, taken=0, published=True)).verdicts
    assert found.strict.message == found.gpumode.message == f"the dtype is {dtype}; expected float32"


def test_the_deep_model_has_no_false_alarm(reference: Any, deep: str) -> None:
    assert judged(reference, models(reference)[0]["halves"], (1,), deep, new=12) == [""]


@pytest.mark.parametrize("name", FORMATS)
def test_rough_formats_of_weights_fail(reference: Any, deep: str, name: str) -> None:
    [message] = judged(reference, models(reference)[1][name], (1,), deep, new=3)
    assert message != ""
    assert ("beside the nearest product with the last matrix" in message) == ("head" in name)


@pytest.mark.parametrize("name", FORMATS)
def test_rough_formats_fail_in_the_small_float32_model_too(reference: Any, name: str) -> None:
    [message] = judged(reference, models(reference)[1][name], (1,), "tiny", new=3)
    assert message != ""


def test_the_corpus_is_tried_whole(reference: Any) -> None:
    honest, wrong = models(reference)
    assert (set(honest), set(wrong)) == (set(HONEST), {*WRONG, *FORMATS})


@pytest.mark.parametrize(("name", "batch"), [("nano", 1), ("tiny", 2)])
def test_our_submission_passes_where_there_are_no_kernels(reference: Any, name: str, batch: int) -> None:
    import model  # of submissions/llama

    data = reference.generate_input(0, 1, name, batch, 33, 4, 7)
    output = reference.Generation(model.build)(data)
    assert all(correctness.margin(output, one) < 1 for one in reference.exact_kernel(data, output))


def test_ranks_without_key_heads_of_their_own_have_the_same_one(reference: Any) -> None:
    """Of `nano`, with 2 key heads, on 4 ranks; all parts together are the model."""
    import params
    import weights

    config, whole = params.CONFIGS["nano"], weights.draw(params.CONFIGS["nano"], torch.device("cpu"))
    sizes, parts = zip(*(weights.share(config, whole, rank, 4) for rank in range(4)), strict=True)
    assert [(one.heads, one.kv_heads, one.ffn) for one in sizes] == [(1, 1, 64)] * 4
    of_layer = "model.layers.1.{}.weight".format
    for name, axis in (("self_attn.q_proj", 0), ("self_attn.o_proj", 1), ("mlp.up_proj", 0), ("mlp.down_proj", 1)):
        assert torch.equal(torch.cat([part[of_layer(name)] for part in parts], axis), whole[of_layer(name)])
    keys = [part[of_layer("self_attn.k_proj")] for part in parts]
    assert torch.equal(keys[0], keys[1])
    assert torch.equal(torch.cat(keys[1:3]), whole[of_layer("self_attn.k_proj")])


def test_a_token_that_does_not_nearly_tie_is_wrong() -> None:
    """And one that does is right: the strict verdict alone would let both pass."""
    value = torch.zeros(1, 1, 64)
    value[..., 3], value[..., 5] = 1.0, 0.9
    other = value.clone()
    other[..., 5] = 1.05
    for noise, passes in ((0.001, False), (0.05, True)):
        expected = correctness.Expected(value=value, noise=torch.full_like(value, noise), dtype=torch.float32)
        assert logits.greedy(other, expected).passed is passes
        assert logits.greedy(value, expected).passed


def test_the_output_must_be_near_to_all_that_is_expected() -> None:
    """Each part after the first is named in the message."""
    value = torch.ones(1, 1, 64)
    right, other = (
        correctness.Expected(value=value * size, noise=value * 0.01, dtype=torch.float32, name=name)
        for size, name in ((1, ""), (2, "the other"))
    )
    assert logits.judged(value, (1, 1, 64), lambda: (right, right)).passed
    assert logits.judged(value, (1, 1, 64), lambda: (right, other)).message.startswith("beside the other: row 0")


def test_the_published_tolerance_uses_what_is_at_hand(reference: Any) -> None:
    data = reference.generate_input(0, 1, "nano", 1, 8, 2, 1)
    value = torch.ones(1, 2, 512)
    right = correctness.Expected(value=value, noise=value, dtype=torch.float32)
    assert reference.check_implementation(data, value, lambda: (right,)) == (
        True,
        "the logits' mean square error is 0.00e+00 of their mean square",
    )


def test_a_wrong_shape_is_told_before_anything_is_computed() -> None:
    found = logits.judged(torch.zeros(1, 2, 3), (1, 2, 4), lambda: pytest.fail("was computed"))
    assert found.message == "the logits' shape is [1, 2, 3]; expected [1, 2, 4]"


def test_no_step_can_begin_before_the_one_before_it_has_its_logits(reference: Any) -> None:
    """The next token is the greedy one plus a shift, modulo the vocabulary."""
    seen: list[int] = []

    class Counting:
        def prefill(self, tokens: torch.Tensor) -> tuple[torch.Tensor, None]:
            return torch.nn.functional.one_hot(torch.tensor([7]), 512).float(), None

        def decode(self, token: torch.Tensor, cache: None) -> tuple[torch.Tensor, None]:
            seen.append(int(token))
            return torch.nn.functional.one_hot(token, 512).float(), None

    shifts = torch.tensor([[1, 510, 3]])
    reference.Generation(lambda config, weights: Counting())(("nano", torch.zeros(1, 4, dtype=torch.int64), shifts))
    assert seen == [8, 6]


@pytest.mark.parametrize(
    ("prefill", "decode", "words"),
    [
        (lambda: torch.zeros(2, 512), None, r"prefill returned a Tensor; expected \(logits, cache\)"),
        (lambda: (None, None), None, "prefill returned logits that are a NoneType; expected a tensor"),
        (lambda: (torch.zeros(512), None), None, r"prefill returned logits \[512\]; expected \[2, 512\]"),
        (lambda: (torch.zeros(1, 512), None), None, r"prefill returned logits \[1, 512\]; expected \[2, 512\]"),
        (
            lambda: (torch.zeros(2, 512), None),
            lambda: (torch.zeros(2, 100), None),
            r"decode returned logits \[2, 100\]; expected \[2, 512\]",
        ),
    ],
)
def test_a_wrong_interface_is_told_in_words(reference: Any, prefill: Any, decode: Any, words: str) -> None:
    """Logits of one sequence are not those of every sequence of a batch, either."""
    model = SimpleNamespace(prefill=lambda tokens: prefill(), decode=lambda token, cache: decode())
    data = ("nano", torch.zeros(2, 4, dtype=torch.int64), torch.zeros(2, 3, dtype=torch.int64))
    with pytest.raises((TypeError, ValueError), match=words):
        reference.Generation(lambda config, weights: model)(data)


def test_the_token_is_argmaxs_of_ties_too(reference: Any) -> None:
    import adapter  # of reference/llama

    for vocab in (512, 128256, 16411):  # the last one is a prime number
        few = torch.randint(0, 4, (3, 2, vocab), generator=torch.Generator().manual_seed(vocab)).float()
        assert torch.equal(adapter.largest(few[:, 1]), few[:, 1].argmax(-1))


def test_a_submission_that_replaces_the_generation_is_called_by_ours(tmp_path: Path) -> None:
    """Whatever it puts into the adapter's module while it is imported."""
    for file in ("adapter.py", "params.py", "task.py", "weights.py"):
        (tmp_path / file).write_text((ROOT / "reference/llama" / file).read_text())
    (tmp_path / "submission.py").write_text(
        "import adapter\nadapter.Generation.__call__ = lambda self, data: 'theirs'\n"
        "adapter.adapt = lambda submission: adapter.Generation(build)\n\n\ndef build(config, weights): ...\n"
    )
    before = dict(sys.modules), list(sys.path)
    for name in (*BROUGHT, "submission"):
        sys.modules.pop(name, None)
    try:
        kernel = roles.custom_kernel(str(tmp_path))
        with pytest.raises(KeyError, match="no such model"):
            kernel(("no such model", None, None))
    finally:
        sys.modules.clear()
        sys.modules.update(before[0])
        sys.path[:] = before[1]


@pytest.mark.parametrize(("source", "words"), [("x = 1", "defines no build"), ("build = 3", "build is a int")])
def test_a_submission_without_a_build_is_told(reference: Any, source: str, words: str) -> None:
    import adapter  # of reference/llama

    module = type(sys)("submission")
    exec(source, vars(module))
    with pytest.raises((AttributeError, TypeError), match=words):
        adapter.adapt(module)


# ---- costs -----------------------------------------------------------------------------------------------------------
def cost(**changes: Any) -> Cost:
    official = next(case for case in LLAMA.suite("official").benchmarks if case.params["prompt"] == 1024)
    return LLAMA.cost(dataclasses.replace(official, params=official.params | changes))


def test_a_step_reads_the_weights_and_the_cache() -> None:
    """2.47 GB of weights, 32 KiB of keys and values a token; 522 us at an H200's 4.8 TB/s."""
    step = cost(prompt=1088, new=2).hbm_bytes - cost(prompt=1088, new=1).hbm_bytes
    weights = 2 * (16 * (2048 * 64 * 80 + 3 * 2048 * 8192) + 2048 * 128256)
    assert step == weights + 32768 * 1088 + 32768  # one token more is written
    assert step / hardware.peaks("H200").hbm_bytes_per_s == pytest.approx(522e-6, rel=0.01)


def test_a_prompt_is_bound_by_flops_of_what_is_needed() -> None:
    """In the last layer only keys and values of all tokens are."""
    layer = 2048 * 64 * 80 + 3 * 2048 * 8192
    needed = 2 * 1024 * (15 * layer + 2048 * 1024) + 2 * (layer - 2048 * 1024) + 2 * 2048 * 128256
    attention = 4 * 2048 * (15 * 1024 * 1025 / 2 + 1024)
    assert cost(new=1).flops == pytest.approx(needed + attention, rel=1e-9)


def test_a_generation_holds_the_weights_the_cache_and_the_logits() -> None:
    """2.47 GB, 32 KiB a token, and 513 kB a new token; of 2 ranks each has all logits and half of the rest."""
    weights = 2 * (16 * (2048 * 64 * 80 + 3 * 2048 * 8192) + 2048 * 128256)
    assert cost(prompt=1024, new=64).held_bytes == weights + 32768 * (1024 + 63) + 4 * 64 * 128256
    shared = LLAMA.with_world_size(LLAMA.suite("brief"), 2).benchmarks[0]
    assert LLAMA.cost(shared).held_bytes == (weights + 32768 * (1024 + 63)) / 2 + 4 * 64 * 128256


def test_ranks_share_what_a_generation_costs() -> None:
    official = LLAMA.suite("official")
    alone, shared = (LLAMA.cost(LLAMA.with_world_size(official, ranks).benchmarks[0]) for ranks in (1, 4))
    assert (shared.flops, shared.hbm_bytes) == (alone.flops / 4, alone.hbm_bytes / 4)
    with pytest.raises(UsageError, match="heads 32 of 1b is not divisible by 3 ranks"):
        LLAMA.with_world_size(official, 3)


# ---- what is a submission's own --------------------------------------------------------------------------------------
SOURCE = """
import triton
@triton.jit
def my_kernel(x): ...
@triton.jit
def nvjet_hsh_128(x): ...
@triton.jit
def enable_if(x): ...
@triton.autotune([])
@triton.jit
def gemv_kernel(x): ...
def reduce_parts(x): ...
reduce_parts = triton.jit(reduce_parts)
def add(x): ...
CUDA = "__global__ void __launch_bounds__(256) stream_rows(const float* x) {}"
MORE = "__global__ void kernel() {} __global__ void flash_fwd_kernel() {} __global__ void dot_kernel() {}"
OP = torch.ops.mine.swiglu  # mine::swiglu, aten::mm, std::enable_if
"""


def submission(source: str = SOURCE) -> Submission:
    modules = (Module(name="more", file="more.py", source="@gluon.jit\ndef further(x): ...\n"),)
    return Submission(path="model.py", name="model.py", source=source, sha256="5e" * 32, modules=modules)


@pytest.mark.parametrize(
    ("kernel", "own"),
    [
        ("my_kernel", True),
        ("further", True),
        ("gemv_kernel", True),  # a name that fits what it does
        ("reduce_parts", True),
        ("stream_rows", True),  # extern "C"
        ("stream_rows(float const*)", True),
        ("void stream_rows<256>(float const*)", True),
        ("void (anonymous namespace)::stream_rows<c10::BFloat16>(c10::BFloat16 const*)", True),
        ("void mine::stream_rows<256>(float const*)", True),
        ("mine::swiglu", True),
        ("aten::mm", False),
        ("aten::add", False),
        ("add", False),  # no kernel
        ("nvjet_hsh_128", False),  # a library's name, whatever the source defines
        ("std::enable_if<!(false), void>::type internal::gemvx::kernel<int, float, 8>(cublasGemvParams)", False),
        ("std::enable_if<!(false), void>::type internal::gemvx::kernel<int, float, 8>(float)", False),
        ("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128> >(Flash_fwd_params)", False),
        ("void dot_kernel<float, 128, 0, cublasDotParams<float const>>(cublasDotParams<float const>)", False),
        ("void my_kernel<4>(int)", False),  # Triton's names are bare
        ("void at::native::vectorized_elementwise_kernel<4>(int)", False),
        ("triton_poi_fused_add_0", False),
        ("Memcpy DtoD (Device -> Device)", False),
        ("(in no operator)", False),
        ("", False),
    ],
)
def test_own_kernels_are_those_that_the_source_defines(kernel: str, own: bool) -> None:
    assert is_own(kernel, defined(submission())) is own


def test_the_longest_text_is_searched_for_kernels_in_seconds() -> None:
    """The parent does it, behind a case that was measured: no deadline ends it."""
    began_s = time.process_time()
    assert defined(submission("__global__ a " * (MAX_BYTES // 13) + "__global__ void last(")).cuda == {"last"}
    assert time.process_time() - began_s < 30


def spent(*pieces: tuple[str, int, int], category: str = "kernel") -> trace.Spent:
    """What took a call of 1000 ns, by what ran from when to when, each on a stream or a thread of its own."""
    events = [("custom_kernel", 0, 1000, trace.MARK, "main")]
    events += [(name, start, end, category, f"{index}") for index, (name, start, end) in enumerate(pieces)]
    call, *others = (
        trace.TraceEvent(
            phase="X",
            name=name,
            category=kind,
            track=("1", thread),
            start_ns=start,
            duration_ns=end - start,
            args={},
        )
        for name, start, end, kind, thread in events
    )
    found = trace.RankTrace(call=call, released_ns=0, events=(call, *others), track_names={})
    return trace.spent(found, lambda name: is_own(name, defined(submission())))


def nested(*spans: tuple[str, int, int]) -> trace.Spent:
    """What took a call of 1000 ns, by the operators of its thread."""
    spans = (("custom_kernel", 0, 1000), *spans)
    call, *others = (
        trace.TraceEvent(
            phase="X",
            name=name,
            category="cpu_op" if at else trace.MARK,
            track=("1", "main"),
            start_ns=start,
            duration_ns=end - start,
            args={},
        )
        for at, (name, start, end) in enumerate(spans)
    )
    found = trace.RankTrace(call=call, released_ns=0, events=(call, *others), track_names={})
    return trace.spent(found, lambda name: is_own(name, defined(submission())))


def test_the_share_counts_every_step_of_the_generation() -> None:
    """30 of 100 ns for the first token, 8 of 10 a step; 100 steps: (30 + 800) / (100 + 1000)."""
    first = spent(("my_kernel", 0, 30), ("nvjet", 30, 100))
    longer = spent(("my_kernel", 0, 62), ("nvjet", 62, 140))
    assert share(first, longer, 25) == pytest.approx(830 / 1100)
    assert share(spent(), spent(), 25) == 0
    parts = shares(first, longer, 25)
    assert parts == {"own: my_kernel": pytest.approx(830 / 1100), "not own: nvjet": pytest.approx(270 / 1100)}


def test_an_own_kernel_that_spins_beside_a_vendors_earns_nothing() -> None:
    """Only the time in which own kernels alone run is own: here the last tenth."""
    found = spent(("nvjet", 0, 900), ("my_kernel", 0, 1000))
    assert share(found, found, 0) == pytest.approx(0.1)


def test_an_operator_that_called_torchs_is_not_own() -> None:
    """Whatever it does besides; one that called own operators alone is."""
    wrapped = nested(("mine::swiglu", 0, 400), ("aten::mm", 100, 150), ("mine::swiglu", 500, 900))
    assert (share(wrapped, wrapped, 0), wrapped.own) == (0, frozenset())
    assert "not own: mine::swiglu" in shares(wrapped, wrapped, 0)
    own = nested(("mine::swiglu", 0, 400), ("mine::swiglu", 100, 150), ("aten::mm", 400, 500))
    assert share(own, own, 0) == pytest.approx(0.4)


def test_on_the_host_operators_count_and_marks_and_waiting_do_not() -> None:
    """A span of record_function is no operator, whatever its name; a thread that only waits takes nothing."""
    operator = spent(("mine::swiglu", 0, 400), category="cpu_op")
    assert share(operator, operator, 0) == pytest.approx(0.4)
    marked = spent(("mine::swiglu", 0, 400), category=trace.MARK)
    assert share(marked, marked, 0) == 0


# ---- metrics and points ----------------------------------------------------------------------------------------------
def series(metric: Any, own: float, baseline: float, count: int = 8) -> Series:
    drift = [1 + 0.01 * math.sin(index) for index in range(count)]
    return Series(
        metric=metric, own=tuple(own * one for one in drift), baseline=tuple(baseline * one for one in drift), block=4
    )


def measured(ttft: float = 10.0, tokens: float = 2.0, own_kernels: float | None = 0.85) -> Measured:
    """A case with these ratios to the reference."""
    return Measured(
        series=(
            series(TOKENS, 100.0 * tokens, 100.0),
            series(TTFT, 5000.0, 5000.0 * ttft),
            series(STEP, 700.0, 1400.0),
            Series(metric=MEMORY, own=(3.0 * 2**30,), baseline=(6.0 * 2**30,)),
        ),
        bounded=TOKENS.name,
        bounds={"ttft": Bound(value=2500.0, by="flops"), "step": Bound(value=560.0, by="hbm")},
        own_kernels=own_kernels,
        kernels={"own: my_kernel": 0.85, "not own: nvjet": 0.15},
    )


def test_points_are_the_contests_product_without_own_kernels() -> None:
    scoring = SCORINGS["product"]
    assert scoring.case(measured()) == pytest.approx(1 * 10 * 2)
    assert scoring.case(measured(1.0, 1.0)) == pytest.approx(1.0)  # the reference
    assert scoring.total([37.0, 1.0], []) == 19.0


@pytest.mark.parametrize(("prompt", "new"), [(32, 64), (1024, 128), (32, 1)])
def test_a_generation_is_held_only_beyond_what_speculation_can_reach(prompt: int, new: int) -> None:
    """Of the 1B model on one sequence a step is bound by its weights, which one pass reads once for all steps."""
    case = Case(
        kind="benchmark", params={"model": "1b", "batch": 1, "prompt": prompt, "new": new}, seed=1, world_size=1
    )
    peaks = Peaks(flops_per_s=1e15, hbm_bytes_per_s=4.8e12, link_bytes_per_s=4.5e11, source="a test")
    session: Any = SimpleNamespace(plan=SimpleNamespace(problem=LLAMA), peaks=peaks)
    session._step = lambda case: ModelSession._step(session, case)
    session._time = lambda case: ModelSession._time(session, case)
    least, stepwise = ModelSession.least(session, case), ModelSession._time(session, case)
    assert least is not None
    assert stepwise is not None
    first = ModelSession._time(session, with_new(case, 1))
    assert first is not None
    assert least.value == pytest.approx(max(1e6 * LLAMA.cost(case).flops / peaks.flops_per_s, first.value))
    assert least.value < stepwise.value / 5 if new > 1 else least == stepwise


def test_a_claimed_share_of_own_kernels_moves_no_points() -> None:
    scoring = SCORINGS["product"]
    assert len({scoring.case(measured(own_kernels=share)) for share in (None, 0.0, 0.99)}) == 1


def test_a_case_has_rates_first_tokens_and_steps() -> None:
    case = LLAMA.suite("cpu").benchmarks[0]
    case = dataclasses.replace(case, params=case.params | {"batch": 2, "new": 11})
    first = Series(metric=CLOCKS["wall"], own=(1000.0,) * 4, baseline=(2000.0,) * 4)
    whole = Series(metric=CLOCKS["wall"], own=(6000.0,) * 4, baseline=(12000.0,) * 4)
    rate, ttft, step = series_of(case, first, whole)
    assert median(rate.own) == pytest.approx(2 * 11 / 6000e-6)
    assert (rate.metric.better, median(ttft.own), median(step.own), median(step.baseline)) == ("more", 1000, 500, 1000)
    assert len(series_of(case, whole, first)) == 2  # a step shorter than nothing is left out


def test_a_problem_without_a_models_parameters_is_refused() -> None:
    other = dataclasses.replace(find("gemm_rs", CHECKOUT), kind="model")
    asked = setting(Asked(problem="gemm_rs", device="cpu", suite="quick", ranks=1), CHECKOUT, other)
    with pytest.raises(UsageError, match="has no batch, which a model's cases need"):
        kind_of(asked).plan(
            Order(setting=asked, submission=read_submission(LLAMA, None, CHECKOUT), mode="test", author="a")
        )


# ---- reports ---------------------------------------------------------------------------------------------------------
def played(**changes: Any) -> EvalReport:
    """A run that was measured, as an evaluation that replays it finds it."""
    tests = [CaseResult(case=case, outcome=Passed()) for case in LLAMA.suite("cpu").tests]
    benchmarks = [
        CaseResult(case=case, outcome=measured(), bound=Bound(value=250.0, by="hbm"))
        for case in LLAMA.suite("cpu").benchmarks
    ]
    values: dict[str, Any] = {
        "problem": "llama",
        "submission": read_submission(LLAMA, None, CHECKOUT),
        "world_size": 1,
        "ranking_by": "product",
        "checker": "logits",
    }
    found = report((*tests, *benchmarks), **(values | changes))
    return dataclasses.replace(evaluate(replay_of(found, LLAMA), Progress()), run_id=found.run_id)


def shown(width: int = 100) -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    return Console(file=text, width=width, no_color=True), text


def test_a_played_run_has_its_score_and_its_tables() -> None:
    found = played()
    assert found.figures is not None
    assert (found.figures.score.value, found.figures.score.unit) == (pytest.approx(20.0), "points")
    assert found.figures.ratio is not None
    assert found.figures.ratio.value == pytest.approx(2.0)
    assert found.figures.fraction is not None
    assert found.figures.fraction.value == pytest.approx(0.8, rel=0.01)  # 200 of 250 tokens a second
    console, text = shown()
    terminal.show(document_of(found), console)
    lines = text.getvalue()
    assert "  20 =         1         x 10       x 2               85.0%  model tiny B 1 P 48 N 12" in lines
    assert "ttft           model tiny B 1 P 48 N 12   50,035 us  5,004 us  10.0x  2,500 us    50.0%" in lines
    assert lines.count("6.0 GiB   3.0 GiB  2.00x") == lines.count("6.0 GiB") == 2, "memory is shown once"
    assert "geometric mean                 100.1  200.1    2.00x    250    80.1%" in lines
    assert "20 points as the NKI Llama contest scores" in lines
    assert "empty call" not in lines, "which is no rate"


def test_verbose_lists_the_kernels_that_the_share_is_made_of() -> None:
    said = []
    for verbose in (True, False):
        console, text = shown()
        terminal.show(document_of(played(), verbose=verbose), console)
        said.append(text.getvalue())
    assert said[0].count("85.0%  own: my_kernel") == 2
    assert "15.0%  not own: nvjet" in said[0]
    assert "my_kernel" not in said[1]


def test_points_are_explained_in_markdown_and_their_share_on_the_board() -> None:
    found = played()
    said = markdown.text(document_of(found))
    assert "| points | accuracy | first token | tokens/s | claims own kernels | prompt |" in said
    assert "| 20 = | 1 | x 10 | x 2 | 85.0% | model tiny B 1 P 48 N 12 |" in said
    entry = entry_of(found)
    assert entry is not None
    assert [case.own_kernels for case in entry.cases] == [0.85, 0.85]


def test_other_problems_have_no_such_tables() -> None:
    tables = [one for one in document_of(report()).blocks if isinstance(one, Table)]
    assert len(tables) == 1, "of its shapes"


def test_a_report_comes_back_as_it_was_written() -> None:
    found = played()
    again = report_json.from_json(json.loads(json.dumps(report_json.to_json(found))))
    assert [one.outcome for one in again.results] == [one.outcome for one in found.results]


def test_the_board_its_page_and_the_history_put_more_points_first(tmp_path: Path) -> None:
    best, worse = played(author="ann"), played(author="ben", run_id="20260502T120000-abc124")
    slow = [dataclasses.replace(one, outcome=measured(2.0, 1.5)) for one in worse.results if one.bound]
    worse = figured(dataclasses.replace(worse, results=tuple(slow)))
    board = Board()
    for found in (worse, best):
        made = entry_of(found)
        assert made is not None
        board = with_judged(board, made)
    assert [row.entry.author for row in ranking(board, board.entries[0].group)] == ["ann", "ben"]
    [page] = page_data.page_of(board, [best, worse], [], ROOT, tmp_path, "").boards
    assert [one.entry.score.unit for one in page.entries] == ["points", "points"]
    assert [case.cost for one in page.entries for case in one.cases] == [None] * 4, "rates are no times"
    console, text = shown(160)
    terminal.show(board_view.document_of(board), console)
    terminal.show(history.document_of(history.lines(board, [best, worse])), console)
    said = text.getvalue()
    assert said.index("20 points") < said.index("3 points")
    assert " ms" not in said


def test_two_models_are_compared_by_tokens_a_second() -> None:
    against = compare.against_baseline(measured().ranked)
    row = compare.CaseRow(label="P 48", params={}, a=(100.0,) * 8, b=(200.0,) * 8, difference=against)
    sides = [compare.Side(name=name, sha256=name * 64) for name in "ab"]
    found = compare.Comparison(
        metric=TOKENS, how="paired", problem="llama", suite="cpu", device="cpu", world_size=1, margin=0.02,
        a=sides[0], b=sides[1], rows=(row,), warnings=(),
    )  # fmt: skip
    console, text = shown()
    terminal.show(comparison.document_of([found]), console)
    assert "B is FASTER" in text.getvalue()
    assert "A tok/s" in text.getvalue()


def test_verify_reads_no_time_out_of_points() -> None:
    points = Score(value=37.0, unit="points", better="more")
    decision = verify.decide(verify.EntryClaim(score=points, ratio=2.0, ci=None), [30.0, 31.0, 32.0], [2.0, 2.01, 1.99])
    assert (decision.word, "machine" in decision.why) == ("verified", False)


def test_points_have_to_reproduce_too_since_they_rank_and_have_further_factors() -> None:
    """Tokens a second reproduce; the first token does not."""

    def decided(*reached: float, relative_by: str = "") -> verify.Decision:
        points = Score(value=40.0, unit="points", better="more", relative_by=relative_by)
        return verify.decide(verify.EntryClaim(score=points, ratio=2.0, ci=None), reached, [2.0, 2.01, 1.99])

    found = decided(20.0, 20.1, 19.9)
    assert (found.word, found.allowance) == ("held", pytest.approx(1 - 1 / 1.05))
    assert "3 launches reach 20 points (19.57 to 20.43), 50% less than the entry's claim of 40 points" in found.why
    assert decided(10.0, 30.0, 60.0).word == "undecided"
    assert decided(39.0, 40.0, 41.0).word == "verified"
    assert decided(20.0, 20.1, 19.9, relative_by="relative").word == "verified", "others' results moved it"


def test_a_comparison_says_that_points_have_further_factors_than_what_is_compared() -> None:
    one = played()
    other = dataclasses.replace(one, run_id=f"{one.run_id}-2")
    found = compare_runs.recorded(one, other, 0.02)
    told = [text_of(warning) for warning in found.warnings]
    assert f"compared is tokens/s alone; the leaderboard ranks by the {SCORINGS['product'].words}" in told
    assert "part_of_score" not in {one.code for one in compare_runs.recorded(run(3), run(4), 0.02).warnings}


def test_targets_of_a_contest_are_read_in_ratios_and_limits() -> None:
    made = entry_of(played())
    assert made is not None
    targets = (Target(speedup=1.9, limit=0.75), Target(speedup=3.0), Target(time_us=10.0))
    listed: Any = SimpleNamespace(targets=targets)
    assert awards.missed(listed, made.cases[:1]) == [
        "model tiny B 1 P 48 N 12: 2.00x, the target is 3.00x",
        "model tiny B 1 P 48 N 12: measured in tokens/s, the target is a time",
    ]


def test_popcorn_cli_gets_times_to_first_token() -> None:
    """Its figures are nanoseconds, and it has no place for others."""
    assert result_lines.figures_ns(measured()) == result_lines.stats_ns(measured().by_name["ttft"].own)


# ---- an evaluation on ranks ------------------------------------------------------------------------------------------
def evaluated(file: Path, mode: Any) -> EvalReport:
    asked = setting(Asked(problem="llama", file=file, device="cpu", suite="quick"), CHECKOUT)
    one = read_submission(asked.problem, file, CHECKOUT)
    plan = kind_of(asked).plan(Order(setting=asked, submission=one, mode=mode, author="me"))
    return evaluate(plan, Progress())


def test_the_reference_is_evaluated_and_scores_about_1(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("from reference import build\n")
    found = evaluated(file, "leaderboard")
    assert found.figures is not None, [one.outcome for one in found.results]
    assert 0.1 < found.figures.score.value < 10  # how steady the machine is, is not what is tested
    outcome = found.results[-1].outcome
    assert isinstance(outcome, Measured)
    assert [one.metric.name for one in outcome.series][:2] == ["tokens", "ttft"]
    assert (outcome.own_kernels, set(outcome.bounds)) == (0.0, {"ttft", "step"})


def test_our_submission_is_compared_with_the_reference_live(tmp_path: Path) -> None:
    """By tokens a second, on ranks; which of the two is faster on so small a model is not what is tested."""
    file = tmp_path / "mine.py"
    file.write_text("from reference import build\n")
    asked = setting(Asked(problem="llama", file=file, device="cpu", suite="quick"), CHECKOUT)
    a, b = (read_submission(asked.problem, one, CHECKOUT) for one in (file, None))
    plan = kind_of(asked).plan(Order(setting=asked, submission=b, opponent=a, mode="benchmark", author="me"))
    found = compare.live(plan, 0.02, Progress())
    assert (found.metric, found.how, found.a.name, found.b.name) == (TOKENS, "paired", a.name, b.name)
    [row] = found.rows
    assert min(row.a + row.b) > 0


def test_a_stale_cache_fails_on_ranks(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from reference import Llama\n\n\nclass Stale(Llama):\n    def decode(self, token, cache):\n"
        "        return super().decode(token, cache)[0], cache\n\n\nbuild = Stale\n"
    )
    outcome = evaluated(file, "test").results[0].outcome
    assert isinstance(outcome, Wrong)
    assert "times what rounding explains" in outcome.message


def test_rejudging_holds_no_rate_to_the_limit_of_steps() -> None:
    """A generation that speculates may pass it. What is no rate is held to its limit, as elsewhere."""
    found = played()
    made = entry_of(found)
    assert made is not None
    assert rejudge.from_report(made, found, LLAMA) is made
    beyond = [dataclasses.replace(one, bound=one.bound and Bound(value=150.0, by="hbm")) for one in found.results]
    judged = rejudge.from_report(made, dataclasses.replace(found, results=tuple(beyond)), LLAMA)
    assert isinstance(judged, Entry)
    assert judged.fraction == pytest.approx(200.14 / 150, rel=1e-3)
