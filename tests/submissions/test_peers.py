"""Peers: entries whose authors are libraries. Right on CPU ranks where they run there; else they say why not."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.core.checkout import ROOT, Checkout
from harness.core.words import clean_line
from harness.problems import shape_file
from harness.problems.same_code import same_code
from harness.problems.submission import read_submission
from harness.ranks.strict_check import parts_of
from tests.court import Court, Ranks, judge, load_reference, staged

OPS = ("a2a", "ag_gemm", "attention", "cross_entropy", "gemm", "gemm_rs", "moe", "rms_norm", "swiglu")
PEERS = sorted((ROOT / "submissions").glob("*/peers/*.py"))
LIBRARY = re.compile(r"# library: (.+)")
NEEDS_GPU = ("cudnn", "flex_attention", "torch_fused")
NEEDS_WHEEL = {"liger": "liger_kernel", "quack_kernels": "quack", "flashinfer_norm": "flashinfer"}  # which package
WORLD = 4


@pytest.fixture(autouse=True)
def eager() -> Iterator[None]:
    """A compiler would take minutes; what it compiles is what is tried."""
    with torch.compiler.set_stance("force_eager"):
        yield


def of(file: Path) -> str:
    return file.parent.parent.name


def each(files: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("file", files, ids=[f"{of(file)}-{file.stem}" for file in files])


def test_every_board_has_at_least_two_peers() -> None:
    assert {of(file) for file in PEERS} == set(OPS)
    assert all(len([file for file in PEERS if of(file) == name]) >= 2 for name in OPS)


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


@each([file for file in PEERS if runs_here(file)])
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
    kernel = loaded(file)
    for params in small(name):
        data = reference.generate_input(**params, rank=0, world_size=1, seed=7)
        data = reference.harden(data, 7) if hardened else data
        expected = parts_of(reference.exact_kernel(data))
        output = kernel(data)
        for one, right in zip(output if isinstance(output, tuple) else (output,), expected, strict=True):
            verdict = judge(one, right)
            assert verdict.passed, (params, verdict.message)


def loaded(file: Path) -> Any:
    with staged(of(file)):
        made: dict[str, Any] = {}
        exec(compile(file.read_text(), str(file), "exec"), made)
        return made["custom_kernel"]


@pytest.mark.parametrize(
    "file", [one for one in PEERS if one.stem in NEEDS_GPU], ids=lambda one: f"{of(one)}-{one.stem}"
)
def test_a_peer_that_needs_gpus_says_so_in_a_line(file: Path) -> None:
    params = next(small(of(file)))
    data = load_reference(of(file)).generate_input(**params, rank=0, world_size=1, seed=7)
    with pytest.raises(RuntimeError, match=r"^[^\n]*needs? [^\n]*GPU[^\n]*; on CPU[^\n]*$"):
        loaded(file)(data)


@each([file for file in PEERS if file.stem in NEEDS_WHEEL])
def test_a_peer_whose_package_is_absent_says_what_to_install(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, NEEDS_WHEEL[file.stem], None)  # as if it were absent
    with pytest.raises(ImportError, match=r"^[^\n]+ is not installed \([^\n]+\): pip install -e '\.\[peers\]'$"):
        loaded(file)


def test_the_extra_pins_what_peers_import_and_the_set_up_does_not_take_it() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    extra = text.partition("\npeers = [")[2].partition("]\n")[0]
    assert [line for line in re.findall(r'"(.+?)"', extra) if "==" not in line] == []
    for package in ("liger-kernel", "quack-kernels", "flashinfer-python"):
        assert f'"{package}==' in extra
    assert "peers" not in text.partition("\ndev = [")[2].partition("]\n")[0]
