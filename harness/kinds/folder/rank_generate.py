"""Inputs of a problem folder, whose generate_input takes what its author thought of."""

import inspect
from collections.abc import Callable
from typing import Any

from harness.core.records import Params


def generated(generate_input: Callable[..., Any], params: Params, rank: int, world_size: int, seed: int) -> Any:
    """The result of generate_input for a case. It gets those of rank, world_size and seed that it has parameters for,
    and lists as tuples, as evaluators of GPU MODE that take lists do."""
    where = {"rank": rank, "world_size": world_size, "seed": seed}
    parameters = inspect.signature(generate_input).parameters
    if not any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        where = {name: value for name, value in where.items() if name in parameters}
    return generate_input(**params, **where)
