"""Launching a Triton kernel for a microsecond or two of Python instead of eight.

`kernel[grid](...)` works out at every call which of its compiled variants the arguments need. A `Launcher` looks only
at what makes two calls need different ones (types, constants, what is divisible by 16) and keeps the compiled kernel
for each answer, so tensors and shapes may change from call to call.
"""

from collections.abc import Callable
from typing import Any

import torch
import triton
from torch import Tensor

INTERPRETED = triton.knobs.runtime.interpret  # kernels run as Python, on CPU tensors too

# Programs that wait for those of other ranks must all be running: one that is not would be waited for for ever. A
# cooperative launch fails where the device has no room for all.
ALL_AT_ONCE = {"launch_cooperative_grid": True}

Arguments = tuple[Tensor | int, ...]

_scratch: dict[int, Tensor] = {}


class Launcher:
    """Launches `kernel`, whose parameters are its runtime arguments and then its constants."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        # Of each parameter, whether the kernel asks not to be specialized on it. An interpreted kernel does not tell.
        self.plain = [parameter.do_not_specialize for parameter in getattr(kernel, "params", ())]
        self.compiled: dict[tuple[object, ...], Callable[..., None]] = {}

    def __call__(self, programs: int, arguments: Arguments, constants: dict[str, Any], options: dict[str, Any]) -> None:
        """Launches that many programs on the current stream. `constants` are in the order of the parameters, `options`
        the compiler's (num_warps, ...)."""
        variants = map(_variant, arguments, self.plain)
        key = (programs, *variants, *constants.values(), *options.values(), torch.cuda.current_device())
        launch = self.compiled.get(key)
        if launch is None:
            self.compiled[key] = self._first(programs, arguments, constants, options)
        else:
            launch(*arguments, *constants.values())

    def _first(self, programs: int, arguments: Arguments, constants: dict[str, Any], options: dict[str, Any]) -> Any:
        """Compiles and launches; with fewer programs where that many have no room."""
        triton.set_allocator(_allocate)
        least = torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count
        while True:
            try:
                return self.kernel[(programs,)](*arguments, **constants, **options)[(programs, 1, 1)]
            except RuntimeError:
                if programs <= least:
                    raise
                programs = max(least, programs // 2)

    def compile(
        self, arguments: tuple[torch.dtype | int, ...], constants: dict[str, Any], options: dict[str, Any]
    ) -> Any:
        """The compiled kernel for tensors of these dtypes, for its figures; fills Triton's cache."""
        return self.kernel.warmup(*arguments, grid=(1,), **constants, **options)

    def interpret(self, arguments: Arguments, constants: dict[str, Any]) -> None:
        """As one program, which plays the part of all: the interpreter runs programs one after the other, and the
        first would wait for ranks that wait for its second."""
        self.kernel[(1,)](*arguments, **constants)


def _variant(argument: Tensor | int, plain: bool) -> object:
    """What Triton specializes on: the alignment of addresses; of numbers also their width, and whether they are 1.
    Where `plain`, of numbers the width alone."""
    if isinstance(argument, int):
        wide = argument.bit_length() > 31
        return wide if plain else argument if argument == 1 else (argument % 16 == 0, wide)
    return argument.dtype, argument.data_ptr() % 16 == 0


def _allocate(nbytes: int, alignment: int, stream: int | None) -> Tensor:
    """Memory in which a launch's programs make their tensor descriptors. Launches on one stream follow each other, so
    they can share it."""
    found = _scratch.get(stream or 0)
    if found is None or len(found) < nbytes:
        found = _scratch[stream or 0] = torch.empty(nbytes, dtype=torch.int8, device="cuda")
    return found
