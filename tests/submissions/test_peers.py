"""Peers: entries whose authors are libraries. Right on CPU ranks where they run there; else they say why not."""

import ast
import copy
import importlib.util
import re
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness.core.checkout import ROOT, Checkout
from harness.core.words import clean_line
from harness.judging import correctness
from harness.kinds.train import rank_run
from harness.problems import shape_file
from harness.problems.same_code import same_code
from harness.problems.submission import read_submission
from harness.ranks.strict_check import parts_of
from tests.court import Court, Ranks, judge, load_reference, staged

OPS = ("a2a", "ag_gemm", "attention", "cross_entropy", "gemm", "gemm_rs", "moe", "rms_norm", "swiglu")
TRAINING = ("llama_lora", "llama_pretrain")
PEERS = sorted((ROOT / "submissions").glob("*/peers/*.py"))
LIBRARY = re.compile(r"# library: (.+)")
NEEDS_GPU = ("cudnn", "flex_attention", "torch_fused")
NEEDS_WHEEL = {  # of the package
    "liger": "liger_kernel",
    "quack_kernels": "quack",
    "flashinfer_norm": "flashinfer",
    "hugging_face": "transformers",
}
WORLD = 4
SMALL = {"vocabulary": 32, "hidden": 16, "layers": 1, "heads": 2, "kv_heads": 1, "ffn": 24, "sequence": 16}


@pytest.fixture(autouse=True)
def eager() -> Iterator[None]:
    """A compiler would take minutes; what it compiles is what is tried."""
    with torch.compiler.set_stance("force_eager"):
        yield


@pytest.fixture
def same_threads() -> Iterator[None]:
    """torch has as many threads afterwards as before; llama's reference takes one."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def of(file: Path) -> str:
    return file.parent.parent.name


def each(files: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("file", files, ids=[f"{of(file)}-{file.stem}" for file in files])


def test_every_board_has_at_least_two_peers() -> None:
    boards = (*OPS, *TRAINING, "llama")
    assert {of(file) for file in PEERS} == set(boards)
    assert all(len([file for file in PEERS if of(file) == name]) >= 2 for name in boards)


@each(PEERS)
def test_a_peer_names_its_library_and_is_no_copy(file: Path) -> None:
    named = LIBRARY.match(file.read_text())
    assert named, "the first line is `# library: NAME`"
    assert named[1] == clean_line(named[1])
    assert ast.get_docstring(ast.parse(file.read_text()))
    assert read_submission(file, ROOT).modules == ()
    alike = [one for one in PEERS if of(one) == of(file) and same_code(one.read_text()) == same_code(file.read_text())]
    assert alike == [file]


def small(name: str, world_size: int = 1) -> Iterator[dict[str, Any]]:
    found = shape_file.find(name, Checkout.here())
    suites = [found.with_world_size(found.suite(suite), world_size) for suite in ("quick", "cpu")]
    for case in (*suites[0].tests, *suites[0].benchmarks, *(suites[1].tests if name in ("a2a", "moe") else ())):
        yield case.params


def runs_here(file: Path) -> bool:
    return file.stem not in (*NEEDS_GPU, *NEEDS_WHEEL)


@each([file for file in PEERS if of(file) in OPS and runs_here(file)])
@pytest.mark.parametrize("hardened", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["hardened", "published"])
def test_a_peer_is_right_on_cpu_ranks(file: Path, hardened: bool) -> None:
    name = of(file)
    if shape_file.find(name, Checkout.here()).multi_gpu:
        with Ranks(WORLD) as ranks:
            court = Court(ranks, name)
            kernels = court.load(file.read_text())
            for params in small(name, WORLD):
                data = court.inputs(params, 7, hardened)
                for output, expected in zip(court.run(kernels, data), court.expected(data), strict=True):
                    verdict = judge(output, expected)
                    assert verdict.passed, (params, verdict.message)
        return
    reference = load_reference(name)
    kernel = loaded(file)["custom_kernel"]
    for params in small(name):
        data = reference.generate_input(**params, rank=0, world_size=1, seed=7)
        data = reference.harden(data, 7) if hardened else data
        expected = parts_of(reference.exact_kernel(data))
        output = kernel(data)
        for one, right in zip(output if isinstance(output, tuple) else (output,), expected, strict=True):
            verdict = judge(one, right)
            assert verdict.passed, (params, verdict.message)


def loaded(file: Path, problem: str = "") -> dict[str, Any]:
    """The names that the file defines, with the problem's modules beside it; without `problem`, those of the peer's."""
    with staged(problem or of(file)):
        made: dict[str, Any] = {}
        exec(compile(file.read_text(), str(file), "exec"), made)
        return made


@each([file for file in PEERS if of(file) == "llama" and (runs_here(file) or importlib.util.find_spec("transformers"))])
@pytest.mark.parametrize(("model", "batch"), [("tiny", 1), ("nano", 2)])
@pytest.mark.usefixtures("same_threads")
def test_a_model_peer_is_right_on_a_cpu(file: Path, model: str, batch: int) -> None:
    """The second prompt is shorter, so that the cache still has keys and values of the first one behind its own."""
    reference = load_reference("llama")
    run = reference.Generation(loaded(file)["build"])
    for prompt in (40, 33):
        data = reference.generate_input(0, 1, model, batch, prompt, 4, seed=prompt)
        output = run(data)
        assert all(correctness.margin(output, one) < 1 for one in reference.exact_kernel(data, output))


@each([file for file in PEERS if of(file) in TRAINING])
def test_a_training_peer_trains_as_the_reference_does(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ranks have the reference's weights at every evaluation, but for rounding."""
    name = of(file)
    monkeypatch.syspath_prepend(str(ROOT / "reference" / "llama_pretrain"))  # which llama_lora shares
    reference = load_reference(name)
    monkeypatch.setitem(reference.model.SIZES, "tiny", reference.model.Size(**SMALL))
    params = {"size": "tiny", "target": 1.0, "runs": 3, "samples": 96, "every": 32}
    where = {"rank": 0, "world_size": 1, "seed": 3, "hidden_seed": "a"}
    given = reference.generate_input(**params, **where)
    with Ranks(2) as ranks:
        theirs, own = (
            ranks.map(partial(trained, train=module["train"], given=given))
            for module in (loaded(ROOT / "reference" / name / "train.py", name), loaded(file))
        )
    for before, after in zip(theirs, own, strict=True):
        assert len(before) == len(after) == 3
        for weights, others in zip(before, after, strict=True):
            assert weights.keys() == others.keys()
            for key, weight in weights.items():
                torch.testing.assert_close(others[key], weight, rtol=1e-4, atol=1e-5, msg=key)


def trained(rank: int, train: Any, given: Any) -> list[dict[str, torch.Tensor]]:
    """The weights at each of the rank's evaluations."""
    seen: list[dict[str, torch.Tensor]] = []
    log = SimpleNamespace(evaluate=lambda weights, samples: seen.append(copy.deepcopy(weights)))
    config = rank_run.config_of(given, {"batch_size": 32, "learning_rate": 0.01, "warmup_samples": 64})
    train(config, rank_run.Data(given["tokens"], torch.device("cpu"), rank_run.Counts(), 32, 96), 3, 1.0, log)
    return seen


@pytest.mark.parametrize(
    "file", [one for one in PEERS if one.stem in NEEDS_GPU], ids=lambda one: f"{of(one)}-{one.stem}"
)
def test_a_peer_that_needs_gpus_says_so_in_a_line(file: Path) -> None:
    params = next(small(of(file)))
    data = load_reference(of(file)).generate_input(**params, rank=0, world_size=1, seed=7)
    with pytest.raises(RuntimeError, match=r"^[^\n]*needs? [^\n]*GPU[^\n]*; on CPU[^\n]*$"):
        loaded(file)["custom_kernel"](data)


@each([file for file in PEERS if file.stem in NEEDS_WHEEL])
def test_a_peer_whose_package_is_absent_says_what_to_install(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, NEEDS_WHEEL[file.stem], None)  # as if it were absent
    with pytest.raises(ImportError, match=r"^[^\n]+ is not installed \([^\n]+\): pip install -e '\.\[peers\]'$"):
        loaded(file)


def test_the_extra_pins_what_peers_import_and_the_set_up_does_not_take_it() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    extra = text.partition("\npeers = [")[2].partition("]\n")[0]
    assert [line for line in re.findall(r'"(.+?)"', extra) if "==" not in line] == []
    for package in ("liger-kernel", "quack-kernels", "flashinfer-python", "transformers"):
        assert f'"{package}==' in extra
    assert "peers" not in text.partition("\ndev = [")[2].partition("]\n")[0]
