"""Settings that change what a kernel computes or how fast, torch's and `capture`: read in one process, set in others.

A problem folder's eval.py and reference.py may change them for the process that everything runs in there. Here only
trusted ranks import the reference, so the others are told what it set. Of eval.py, which is not run, the statements
that set something of torch by constants are carried out.
"""

import ast
import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from harness.problems.python_text import captures_graphs
from harness.ranks.payload import DTYPES

EVALUATOR = "eval.py"
CALLED = ("_run_single", "run_single")  # how eval.py's functions begin that run in the process of the kernel
WORDS = {"True": True, "False": False}
MATMUL = "allow_tf32", "allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction"
CUDNN = "allow_tf32", "benchmark", "deterministic"


@dataclass(frozen=True)
class TorchSetting:
    """`get` gives its value, whose text `parse` reads."""

    get: Callable[[], Any]
    set: Callable[[Any], Any]
    parse: Callable[[str], Any] = WORDS.__getitem__


def _attribute(holder: Any, name: str) -> TorchSetting:
    return TorchSetting(lambda: getattr(holder, name), lambda value: setattr(holder, name, value))


class CallSettings:
    """How calls are made: `capture` is "graph" if as replays of CUDA graphs."""

    capture = ""


SETTINGS: dict[str, TorchSetting] = {
    "capture": TorchSetting(lambda: CallSettings.capture, lambda text: setattr(CallSettings, "capture", text), str),
    "default_dtype": TorchSetting(torch.get_default_dtype, torch.set_default_dtype, DTYPES.__getitem__),
    "float32_matmul_precision": TorchSetting(
        torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, lambda text: text
    ),
    "deterministic": TorchSetting(torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    **{f"matmul.{name}": _attribute(torch.backends.cuda.matmul, name) for name in MATMUL},
    **{f"cudnn.{name}": _attribute(torch.backends.cudnn, name) for name in CUDNN},
}


def current() -> dict[str, str]:
    """Every setting's value, as text."""
    return {name: str(setting.get()) for name, setting in SETTINGS.items()}


def apply(values: Mapping[str, str]) -> None:
    """Sets the settings whose values differ from `values`."""
    for name, text in values.items():
        setting = SETTINGS[name]
        if str(setting.get()) != text:
            setting.set(setting.parse(text))


def evaluator(folder: Path) -> None:
    """Sets what the folder's eval.py sets, if it has one."""
    with contextlib.suppress(OSError, SyntaxError, ValueError):
        text = (folder / EVALUATOR).read_bytes()
        tree = ast.parse(text)
        for statement in _settings(tree.body):
            exec(compile(ast.Module([statement], []), EVALUATOR, "exec"), {"torch": torch})
        CallSettings.capture = "graph" if captures_graphs(text) else ""


def _settings(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith(CALLED):
            yield from _settings(node.body)
        elif isinstance(node, ast.Assign) and len(node.targets) == 1:
            if _is_torch(node.targets[0]) and isinstance(node.value, ast.Constant):
                yield node
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            call = node.value
            given = [*call.args, *(keyword.value for keyword in call.keywords)]
            named = isinstance(call.func, ast.Attribute) and call.func.attr.startswith(("set_", "use_deterministic"))
            if named and _is_torch(call.func) and all(isinstance(one, ast.Constant) or _is_torch(one) for one in given):
                yield node


def _is_torch(node: ast.expr) -> bool:
    """Whether the expression is a dotted name that begins with `torch`."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and node.id == "torch"
