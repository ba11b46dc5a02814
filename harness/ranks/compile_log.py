"""Makes extensions that a submission compiles with torch print their build, for the run's compile log."""

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def verbose_extensions() -> Iterator[None]:
    """Inside it, torch.utils.cpp_extension prints what its compilers do."""
    from torch.utils import cpp_extension  # half a second, which submissions that do not compile are spared

    def verbose(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            bound = inspect.signature(function).bind(*arguments, **named)
            bound.arguments["verbose"] = True
            return function(*bound.args, **bound.kwargs)

        return call

    before = {name: getattr(cpp_extension, name) for name in ("load", "load_inline")}
    try:
        for name, function in before.items():
            setattr(cpp_extension, name, verbose(function))
        yield
    finally:
        for name, function in before.items():
            setattr(cpp_extension, name, function)
