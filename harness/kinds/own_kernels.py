"""Which kernels are a submission's own, by their names in a profile and by what its source defines.

A kernel of a device is its own if the source defines it and no library has kernels of such names: Triton's kernels are
called after their functions, which a decorator `jit` marks, and CUDA's after what stands behind __global__. An operator
of the host is its own if the source names it (`space::operator`) and its namespace is none of torch's. Anything else is
torch's, a vendor's, or a compiler's.
"""

import ast
import contextlib
import re
from collections.abc import Iterable, Mapping

from harness.core.records import Submission

GLOBAL = re.compile(r"__global__\s(?:[^;{(]|__launch_bounds__\s*\([^)]*\))*?\b(?!__launch_bounds__)(\w+)\s*\(")
OPERATOR = re.compile(r"\b(\w+::\w+)\b")
NOT_OWN = re.compile(
    r"nvjet|cublas|cudnn|cutlass|cudaMem|ampere_|hopper_|sm\d\d|Memcpy|Memset|memcpy|memset|nccl|Cijk|miopen|flash_|fmha"
    r"|at::|c10::|triton_(poi|red|per|tem|for|unk|mm|bmm)|vectorized_|elementwise_|reduce_|gemv|gemm|splitK"
)
OF_TORCH = ("aten", "prim", "prims", "c10d", "c10", "mkldnn", "mkl", "quantized", "inductor", "torch", "autograd", "at")


def defined(submission: Submission) -> frozenset[str]:
    """The names of functions and operators that its files define."""
    names: set[str] = set()
    for source in (submission.source, *(module.source for module in submission.modules)):
        with contextlib.suppress(SyntaxError, ValueError, RecursionError):
            functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
            names |= {one.name for one in functions if any(map(_is_jit, one.decorator_list))}
        names |= set(GLOBAL.findall(source))
        names |= {name for name in OPERATOR.findall(source) if name.split("::")[0] not in OF_TORCH}
    return frozenset(names)


def _is_jit(decorator: ast.expr) -> bool:
    """`@triton.jit`, `@gluon.jit`, `@jit`, with arguments or without."""
    name = decorator.func if isinstance(decorator, ast.Call) else decorator
    return (name.attr if isinstance(name, ast.Attribute) else getattr(name, "id", "")) == "jit"


def is_own(kernel: str, names: Iterable[str]) -> bool:
    """Whether the kernel or operator of that name is one of those that the source defines."""
    found = re.match(r"(?:void\s+)?([\w:]+)", kernel)
    if found is None or NOT_OWN.match(found[1]) or found[1].split("::")[0] in OF_TORCH:
        return False
    return found[1] in names or found[1].split("::")[-1] in names


def share(first_ns: Mapping[str, int], longer_ns: Mapping[str, int], steps: float, names: Iterable[str]) -> float:
    """The part of a generation's time that own kernels take, from the times by name of two shorter ones: of the first
    token alone, and with further ones. `steps` is how many times as many further tokens the generation has."""

    def whole(own: bool) -> float:
        times = [
            sum(ns for name, ns in spent.items() if not own or is_own(name, names)) for spent in (first_ns, longer_ns)
        ]
        return times[0] + steps * max(0, times[1] - times[0])

    total = whole(own=False)
    return whole(own=True) / total if total else 0.0
