"""Triton's interpreter, as it is but faster: for tests of kernels that are interpreted."""

import sys
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

EXACT = {"add": np.add, "sub": np.subtract, "mul": np.multiply}


@cache
def quicken() -> None:
    """From now on two things that Triton does at every call or operation take this process a fraction of their time.

    Its language is prepared once a module and not, which takes 2 ms, at each call of a kernel's function. And that no
    integer overflows, which it finds out by nine operations of its own for every sum, difference and product, numpy
    finds out.
    """
    from triton.language.semantic import TritonSemantic
    from triton.runtime import interpreter

    prepare, prepared = interpreter._patch_lang, set()

    def prepare_once(function: Any) -> Any:
        if function.__module__ not in prepared:
            prepare(function)
            prepared.add(function.__module__)
        return SimpleNamespace(restore=lambda: None)

    interpreter._patch_lang = prepare_once
    TritonSemantic.binary_op_sanitize_overflow_impl = refuse_overflow


def prepare_kernels() -> None:
    """Reads the source of all imported kernels, once for all processes that are forked from this one."""
    from triton.runtime.interpreter import InterpretedFunction

    for module in list(sys.modules.values()):
        for value in list(vars(module).values()):
            if type(value) is InterpretedFunction:
                value.rewrite()


def refuse_overflow(self: Any, left: Any, right: Any, operation: Any) -> None:
    kind = left.type.scalar
    if kind.int_bitwidth < 64:
        name = operation.__name__
        result = EXACT[name](left.handle.data.astype(np.int64), right.handle.data.astype(np.int64))
        fits = kind.get_int_min_value() <= result.min() and result.max() <= kind.get_int_max_value()
        assert fits, f"int{kind.int_bitwidth} overflow detected for operation {name}"
