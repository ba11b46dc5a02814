"""Problems whose result is several tensors, or is written into the input: every tensor is judged, and named if bad."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from harness.judging.correctness import Expected
from harness.ranks import payload, strict_check, trusted
from harness.ranks.shared_buffer import FileBuffer, LoadedFile
from harness.ranks.wire import Output

FILES = {
    "reference/shift/params.py": """
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Params:
    rows: int
""",
    "reference/shift/task.py": """
from torch import Tensor

input_t = Tensor  # [rows, 80], of a matrix with 96 columns; float32
output_t = tuple[Tensor, Tensor]  # the sum of each row; the input less its row's sum, in the input's place
""",
    "reference/shift/reference.py": """
import torch
from utils import rank_device, seeded

from harness.judging.correctness import Expected, rounding_noise


def generate_input(rank, world_size, rows, seed):
    device = rank_device()
    return torch.rand(rows, 96, device=device, generator=seeded(seed, device))[:, :80]


def harden(data, seed):
    return data.mul_(2)


def ref_kernel(data):
    assert data.stride() == (96, 1)
    sums = data.sum(1)
    return sums, data.sub_(sums[:, None])


def exact_kernel(data):
    sums = data.double().sum(1)
    rest = data.double() - sums[:, None]
    return tuple(
        Expected(value=value, noise=rounding_noise(100 * value.square(), torch.float32), dtype=torch.float32, name=name)
        for value, name in ((sums, "the sums"), (rest, "the rest"))
    )


def check_implementation(data, output):
    right = zip(output, ref_kernel(data), strict=True)
    passed = all(one.shape == other.shape and torch.allclose(one, other, atol=1e-4) for one, other in right)
    return passed, "" if passed else "not close"
""",
    "shapes/shift.yaml": """
problem: shift
leaderboard: shift
description: Rows less their sums.
multi_gpu: false
in_place: true
ranking_by: geom
test_timeout: 60
benchmark_timeout: 60
ranked_timeout: 60
tests:
  - {rows: 5, seed: 1}
benchmarks:
  - {rows: 64, seed: 2}
suites:
  quick:
    description: Tiny shapes.
    test_timeout: 60
    benchmark_timeout: 60
    ranked_timeout: 60
    benchmark_seconds: 0.2
    tests:
      - {rows: 5, seed: 1}
    benchmarks:
      - {rows: 64, seed: 2}
""",
    "submissions/shift/submission.py": """
def custom_kernel(data):
    sums = data.sum(1)
    data -= sums[:, None]
    return sums, data
""",
    "submissions/shift/untouched.py": """
def custom_kernel(data):
    return data.sum(1), data
""",
}


@pytest.fixture
def buffer() -> Iterator[FileBuffer]:
    fd = os.memfd_create("buffer")
    yield FileBuffer(fd)
    os.close(fd)


def right(*values: torch.Tensor) -> tuple[Expected, ...]:
    names = ("the sums", "")
    return tuple(
        Expected(value=value, noise=torch.full_like(value, 1e-6), dtype=value.dtype, name=name)
        for value, name in zip(values, names, strict=False)
    )


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ((torch.ones(3), torch.zeros(2, 4)), ""),
        ((torch.ones(3), torch.ones(2, 4)), "part 1 of the result: the whole output: the error"),
        ((torch.zeros(3), torch.zeros(2, 4)), "the sums: row 0, columns 0 to 2: the error"),
        ((torch.ones(3).half(), torch.zeros(2, 4)), "the sums: the dtype is float16; expected float32"),
        ((torch.ones(3), torch.zeros(4, 2)), "part 1 of the result: the shape is [4, 2]; expected [2, 4]"),
        ((torch.ones(3), None), "part 1 of the result: the submission returned None"),
        ([torch.ones(3), torch.zeros(2, 4)], "returned a list of 2; it must return a tuple of 2: the sums, part 1"),
        ((torch.ones(3),), "returned a tuple of 1; it must return a tuple of 2"),
        (torch.ones(3), "returned torch.Tensor; it must return a tuple of 2"),
        (7, "returned int; it must return a tuple of 2"),
    ],
)
def test_every_tensor_of_a_tuple_is_judged_and_a_bad_one_named(
    buffer: FileBuffer, output: object, message: str
) -> None:
    expected = right(torch.ones(3), torch.zeros(2, 4))
    declared = payload.write_output(buffer, 0, output, 1 << 20)
    values = strict_check.read(buffer, declared, 1 << 20)
    verdict = strict_check.judged(declared, values, expected, "cpu")
    assert verdict.passed == (not message)
    assert message in verdict.message
    checked = strict_check.for_check(declared, values, expected, "cpu")
    assert [type(part) for part in checked] == [torch.Tensor] * 2


@pytest.mark.parametrize(
    ("expected", "message"),
    [
        (torch.ones(3), "exact_kernel returned a Tensor; it must return an Expected, or a tuple of them"),
        ((torch.ones(3),), "exact_kernel returned a tuple with a Tensor"),
    ],
)
def test_an_exact_kernel_that_returns_something_else_is_the_problems_fault(expected: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        strict_check.parts_of(expected)  # type: ignore[arg-type]


@pytest.mark.parametrize("said", [(), None, True, (True, "", 3)])
def test_a_check_that_says_no_pair_is_the_problems_fault(said: object) -> None:
    with pytest.raises(ValueError, match=r"check_implementation returned .*; it must return \(right, message\)"):
        trusted.told(said)


def test_a_tuple_where_one_tensor_is_due_fails(buffer: FileBuffer) -> None:
    declared = payload.write_output(buffer, 0, (torch.ones(3),), 1 << 20)
    values = strict_check.read(buffer, declared, 1 << 20)
    verdict = strict_check.judged(declared, values, right(torch.ones(3))[0], "cpu")
    assert verdict.message == "the submission returned a tuple of 1; it must return a plain torch.Tensor"


def test_what_an_adapter_makes_of_none_is_told_as_no_tensor(buffer: FileBuffer) -> None:
    declared = payload.write_output(buffer, 0, (), 1 << 20)
    verdict = strict_check.judged(declared, (), right(torch.ones(3))[0], "cpu")
    assert verdict.message.startswith("the submission returned no tensor (None or an empty tuple); it must return a")


def test_parts_that_declare_more_than_there_is_room_for_are_not_read(buffer: FileBuffer) -> None:
    """Each alone would fit; together they are a lie."""
    declared = payload.write_output(buffer, 0, (torch.ones(64), torch.ones(64)), 1 << 20)
    first, second = strict_check.read(buffer, declared, 300)
    assert first is not None
    assert second is None
    nested = Output(kind="tuple", dtype="", shape=(), device="", offset=0, nbytes=0, items=(declared,) * 3)
    assert strict_check.read(buffer, nested, 1 << 20) == (None,) * 3


@pytest.mark.parametrize("key", [0, 99], ids=["plain", "masked"])
def test_rows_of_a_wider_matrix_arrive_with_their_gaps(buffer: FileBuffer, key: int) -> None:
    rows = torch.randn(6, 96)[:, :80]
    sparse = torch.randn(6, 96)[:, :8]  # mostly gap: it travels without
    made = payload.write_input(buffer, 0, (rows, sparse, rows.T), key)
    masked: list[tuple[torch.Tensor, int]] = []
    read = payload.read_input(LoadedFile(buffer.fd), made, masked)
    for tensor, place in masked:
        payload.mask(tensor, key, place)
    assert [part.stride() for part in read] == [(96, 1), (8, 1), (1, 96)]
    assert [torch.equal(*pair) for pair in zip(read, (rows, sparse, rows.T), strict=True)] == [True] * 3
    copy = payload.copied((rows,))[0]
    assert copy.stride() == (96, 1)
    copy.zero_()
    assert rows.abs().sum() > 0


def test_a_result_in_the_input_is_judged_for_what_is_in_it(checkout: Path, harness: Callable) -> None:
    """The whole way on CPU cores: references get fresh inputs, and an input that was left as it was is wrong."""
    for path, text in FILES.items():
        (checkout / path).parent.mkdir(parents=True, exist_ok=True)
        (checkout / path).write_text(text)
    done = harness("eval", "shift", "--suite", "quick", "--seconds", "0.05")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "verdict  pass" in done.stdout
    done = harness("check", "shift", "submissions/shift/untouched.py", "--suite", "quick")
    assert done.returncode == 112
    assert "rank 0: the rest: " in done.stdout, done.stdout
