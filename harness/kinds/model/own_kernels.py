"""Which kernels are a submission's own, by their names in a profile and by what its source defines.

- A Triton kernel is called after its function, which `jit` marks. Its name in a profile is bare: no namespace, template
  argument or parameter. A bare name is own if the source marks or defines such a function.
- A CUDA kernel is what stands behind __global__. In a profile it may have a return type, namespaces, template arguments
  and parameters. It is own if its last name is defined and it lies in no library's namespace.
- An operator of the host is own if the source names it (`space::operator`) outside torch's namespaces, and no other
  operator ran inside (ranks.trace.spent).

Names that only vendors' libraries and torch's compiler use are never own, and neither is anything else.
"""

import ast
import re
from dataclasses import dataclass

from harness.core.records import Submission
from harness.problems.python_text import nodes_of
from harness.ranks.trace import TOP, Spent

MARK = "__global__"
MARKED = re.compile(r"\s(?:[^;{(]|__launch_bounds__\s*\([^)]*\))*?\b(?!__launch_bounds__)(\w+)\s*\(")
OPERATOR = re.compile(r"\b(\w+::\w+)\b")
VENDORS = re.compile(  # how names of libraries and of torch's compiler begin
    r"nvjet|cublas|cudnn|cutlass|ampere_|hopper_|sm\d\d|nccl|Cijk|miopen|fmha_cutlass"
    r"|triton_(poi|red|per|tem|for|unk|mm|bmm)|(cuda)?[mM]em(cpy|set)"
)
INSIDE = re.compile(r"cublas|cudnn")  # what else tells of a library: the types of its kernels' parameters
SPACES = ("at", "c10", "std", "internal", "pytorch_flash", "flash", "cutlass", "cute", "cub", "thrust")
OF_TORCH = ("aten", "prim", "prims", "c10d", "c10", "mkldnn", "mkl", "quantized", "inductor", "torch", "autograd", "at")


@dataclass(frozen=True, kw_only=True)
class Defined:
    """The names that a submission's files define: functions that `jit` marks or behind __global__, and operators."""

    jit: frozenset[str]
    cuda: frozenset[str]
    operators: frozenset[str]


def defined(submission: Submission) -> Defined:
    """The kernels and operators that the submission's files define."""
    jit: set[str] = set()
    cuda: set[str] = set()
    operators: set[str] = set()
    for source in (submission.source, *(module.source for module in submission.modules)):
        jit.update(*map(_jitted, nodes_of(source)))
        # Between two marks, or else many marks without a name would take the square of the text's length.
        cuda |= {found[1] for text in source.split(MARK)[1:] if (found := MARKED.match(text))}
        operators |= {name for name in OPERATOR.findall(source) if name.split("::")[0] not in OF_TORCH}
    return Defined(jit=frozenset(jit), cuda=frozenset(cuda), operators=frozenset(operators))


def _jitted(node: ast.AST) -> set[str]:
    """The function that is marked here: `@triton.jit`, `@gluon.jit`, `@jit(...)`, or `triton.jit(function)`."""
    if isinstance(node, ast.FunctionDef):
        marks = [one.func if isinstance(one, ast.Call) else one for one in node.decorator_list]
        return {node.name} if "jit" in map(_last_name, marks) else set()
    if isinstance(node, ast.Call) and _last_name(node.func) == "jit" and node.args:
        return {_last_name(node.args[0])} - {""}
    return set()


def _last_name(node: ast.expr) -> str:
    """`jit` of `triton.jit`; empty where the expression is no name."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def is_own(kernel: str, names: Defined) -> bool:
    """Whether the kernel or operator of that name is one of those that the source defines."""
    if INSIDE.search(kernel):
        return False
    if re.fullmatch(r"\w+", kernel):
        return kernel in names.jit | names.cuda and not VENDORS.match(kernel)
    if kernel in names.operators:
        return True
    *spaces, last = _qualified(kernel).split("::")
    return last in names.cuda and not VENDORS.match(last) and not (spaces and spaces[0] in SPACES)


def _qualified(kernel: str) -> str:
    """A function's name with its namespaces alone: `internal::gemvx::kernel` of
    `std::enable_if<...>::type internal::gemvx::kernel<...>(...)`."""
    text, shorter = "", kernel.replace("(anonymous namespace)::", "")
    while text != shorter:
        text, shorter = shorter, re.sub(r"<[^<>]*>", "", shorter)
    return (text.split("(")[0].split() or [""])[-1]


def share(first: Spent, longer: Spent, steps: float) -> float:
    """The part of a generation's time in which own kernels alone run, from two shorter ones: of the first token alone,
    and with further ones. `steps` is how many times as many further tokens the generation has. Where kernels overlap,
    time in which any ran that is not own is not own."""
    total = _whole(first.all_ns, longer.all_ns, steps)
    others = _whole(first.others_ns, longer.others_ns, steps)
    return max(0.0, 1 - others / total) if total else 0.0


def shares(first: Spent, longer: Spent, steps: float) -> dict[str, float]:
    """The TOP kernels and operators by their parts of a generation's time, largest first: each name behind `own: ` or
    `not own: `. Parts of kernels that overlap may add up to more than 1."""
    total = _whole(first.all_ns, longer.all_ns, steps)
    own = (first.own | longer.own) - (first.by_name.keys() - first.own) - (longer.by_name.keys() - longer.own)
    parts = {
        f"{'own' if name in own else 'not own'}: {name}": _whole(
            first.by_name.get(name, 0), longer.by_name.get(name, 0), steps
        )
        for name in {**first.by_name, **longer.by_name}
    }
    largest = sorted(parts, key=lambda name: -parts[name])[:TOP]
    return {name: parts[name] / total for name in largest} if total else {}


def _whole(first_ns: int, longer_ns: int, steps: float) -> float:
    return first_ns + steps * max(0, longer_ns - first_ns)
