"""What a definition may say: its dtypes and axes. Axes are constant, variable, or an expression over those, as NVIDIA's
SOL-ExecBench has it (src/sol_execbench/data/definition.py, read 2026-11).

Knows no files and no tensors; both the kind and its ranks ask it.
"""

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

DEFINITION, WORKLOADS = "definition.json", "workloads.json"  # as they are staged
CUSTOM = "custom_inputs_entrypoint"
SAMPLING = "sampling"  # the op_type of definitions whose results are drawn: alike for one seed
STORED = {  # a dtype of a safetensors file -> its name here
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
}
OLD_NAMES = {"float8_e4m3": "float8_e4m3fn"}
DTYPES = (*STORED.values(), *OLD_NAMES)
TOKENS, INDICES = "tokens", "indices"
SAMPLED_FROM = {"probs", "top_k", "top_p"}
INDEXER = "dsa_topk_indexer"
OPERATORS: dict[type[ast.AST], Callable[..., int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,  # sizes are whole
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}


def choice(made: Mapping[str, Any]) -> str:
    """What a definition leaves to solutions: TOKENS that are drawn, the order of INDICES, or "" for nothing."""
    if made.get("op_type") == SAMPLING and "probs" in made["inputs"] and set(made["inputs"]) <= SAMPLED_FROM:
        return TOKENS if len(made["outputs"]) == 1 else ""
    return INDICES if made["name"].startswith(INDEXER) else ""


def shape_of(spec: Mapping[str, Any], sizes: Mapping[str, int]) -> tuple[int, ...] | None:
    """A tensor's shape; None for a scalar. An axis is a name, or its size itself."""
    if spec["shape"] is None:
        return None
    return tuple(sizes[one] if one in sizes else int(one) for one in spec["shape"])


def sizes(axes: Mapping[str, Any], given: Mapping[str, int]) -> dict[str, int]:
    """Every axis's size, given the variable ones. Raises ValueError for an expression that gives none."""
    found = {name: one["value"] for name, one in axes.items() if one["type"] == "const"} | dict(given)
    for name, one in axes.items():
        if one["type"] == "expr":
            found[name] = evaluated(one["expression"], found)
    return found


def evaluated(expression: str, known: Mapping[str, int]) -> int:
    """The expression's value: names, whole numbers, + - * / // % and signs. Raises ValueError for all else."""

    def value(node: ast.expr) -> int:
        match node:
            case ast.Name(id=name) if name in known:
                return known[name]
            case ast.Constant(value=int() as number) if not isinstance(number, bool):
                return number
            case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
                return OPERATORS[type(op)](value(left), value(right))
            case ast.UnaryOp(op=op, operand=operand) if type(op) in OPERATORS:
                return OPERATORS[type(op)](value(operand))
        raise ValueError(f"`{ast.unparse(node)}` is no size of a known axis")

    try:
        found = value(ast.parse(expression, mode="eval").body)
    except (SyntaxError, ZeroDivisionError, RecursionError) as error:
        raise ValueError(f"`{expression}` has no value: {error}") from None
    if found < 0:
        raise ValueError(f"`{expression}` is {found}, which is no size")
    return found
