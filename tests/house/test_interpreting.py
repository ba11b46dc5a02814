"""What tests put in the place of parts of Triton's interpreter finds what those parts find."""

import operator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import triton.language as tl
from interpreting import refuse_overflow
from triton.language.semantic import TritonSemantic

LARGE = 2**31 - 1


def tensor(kind: Any, *values: int) -> Any:
    data = np.array(values, {tl.int32: np.int32, tl.uint32: np.uint32, tl.int64: np.int64}[kind])
    return SimpleNamespace(type=SimpleNamespace(scalar=kind), handle=SimpleNamespace(data=data))


@pytest.mark.parametrize(
    ("operation", "kind", "left", "right"),
    [
        (operator.add, tl.int32, LARGE, 1),
        (operator.sub, tl.int32, -LARGE, 2),
        (operator.mul, tl.int32, LARGE, -2),
        (operator.sub, tl.uint32, 0, 1),
    ],
)
def test_an_integer_that_overflows_is_refused_and_its_neighbour_is_not(
    operation: Any, kind: Any, left: int, right: int
) -> None:
    assert callable(TritonSemantic.binary_op_sanitize_overflow_impl), "what it stands in for"
    with pytest.raises(AssertionError, match=rf"int32 overflow detected for operation {operation.__name__}"):
        refuse_overflow(None, tensor(kind, 1, left), tensor(kind, 1, right), operation)
    refuse_overflow(None, tensor(kind, 1, left), tensor(kind, 1, 0), operation)


def test_64_bits_are_left_alone() -> None:
    refuse_overflow(None, tensor(tl.int64, 2**62), tensor(tl.int64, 2**62), operator.add)
