"""Whether an evaluator times CUDA graphs, as its text shows."""

import ast

NAMES = {"CUDAGraph", "do_bench_cudagraph", "make_graphed_callables"}


def captures(evaluator: str) -> bool:
    """Whether the Python text names what captures CUDA graphs. False for what is no Python."""
    try:
        tree = ast.parse(evaluator)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(getattr(node, "attr", getattr(node, "id", "")) in NAMES for node in ast.walk(tree))
