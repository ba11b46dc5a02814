"""Launching a Triton kernel for a few microseconds of Python instead of ten or more.

`kernel[grid](...)` works out at every call which of its compiled variants the arguments need, and the driver asks each
tensor where it is. A `Launcher` looks only at what makes two calls need different variants and hands addresses on as
numbers. So tensors and numbers may change from call to call.
"""

import ctypes
from collections.abc import Callable
from typing import Any

import torch
import triton
from torch import Tensor

INTERPRETED = triton.knobs.runtime.interpret  # kernels run as Python, on CPU tensors too

Arguments = tuple[Tensor | int, ...]

_scratch: dict[int, Tensor] = {}


class Launcher:
    """Launches `kernel`, whose parameters are its runtime arguments and then its constants."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        # The parameters that the kernel is specialized on. An interpreted kernel does not tell.
        parameters = getattr(kernel, "params", ())
        self.special = [i for i, one in enumerate(parameters) if not (one.is_constexpr or one.do_not_specialize)]
        self.prepared: dict[tuple[object, ...], tuple[Callable[..., None], tuple[Any, ...]]] = {}

    def __call__(self, programs: int, arguments: Arguments, constants: dict[str, Any], options: dict[str, Any]) -> None:
        """Launches that many programs on the current stream, or as many as have room at once.

        `constants` are in the order of the parameters, `options` the compiler's (num_warps, ...). Both belong
        together, are not changed afterwards, and imply the tensors' dtypes and device.
        """
        if INTERPRETED:
            # As one program, which plays the part of all: the interpreter runs programs one after the other, and the
            # first would wait for ranks that wait for its second.
            self.kernel[(1,)](*arguments, **constants)
            return
        raw = [item if item.__class__ is int else item.data_ptr() for item in arguments]
        # Triton tells apart multiples of 16, the number 1, and numbers of more than 31 bits, of which there are none: a
        # heap has no such places, no tensor such sizes.
        key = (id(constants), *[raw[i] & 15 and 2 - (raw[i] == 1) for i in self.special])
        found = self.prepared.get(key)
        if found is None:
            found = self.prepared[key] = self._prepare(programs, arguments, constants, options), constants
        launch, _ = found
        launch(*raw, *constants.values(), stream=triton.runtime.driver.active.get_current_stream(self.device))

    def _prepare(self, programs: int, arguments: Arguments, constants: dict[str, Any], options: dict[str, Any]) -> Any:
        """What launches the compiled kernel. Programs that wait for those of other ranks must all be running, so it is
        with as many as the device has room for at once."""
        triton.set_allocator(_allocate)
        self.device = torch.cuda.current_device()
        compiled = self.kernel.warmup(*arguments, grid=(1,), **constants, **options)
        return compiled[(min(programs, _room(compiled)), 1, 1)]

    def compile(
        self, arguments: tuple[torch.dtype | int, ...], constants: dict[str, Any], options: dict[str, Any]
    ) -> Any:
        """The compiled kernel for tensors of these dtypes, for its figures; fills Triton's cache."""
        return self.kernel.warmup(*arguments, grid=(1,), **constants, **options)


def _room(compiled: Any) -> int:
    """How many programs of a compiled kernel this device runs at the same time."""
    assert compiled.run  # which loads it onto the device
    threads = compiled.metadata.num_warps * compiled.metadata.target.warp_size
    if torch.version.hip:
        occupancy = ctypes.CDLL("libamdhip64.so").hipModuleOccupancyMaxActiveBlocksPerMultiprocessor
    else:
        occupancy = ctypes.CDLL("libcuda.so.1").cuOccupancyMaxActiveBlocksPerMultiprocessor
    each, function, shared = ctypes.c_int(), ctypes.c_void_p(compiled.function), compiled.metadata.shared
    if error := occupancy(ctypes.byref(each), function, ctypes.c_int(threads), ctypes.c_size_t(shared)):
        raise RuntimeError(f"the driver cannot tell how many programs have room (error {error})")
    if not each.value:
        raise RuntimeError(f"no room for one program: {shared} bytes of shared memory, {threads} threads")
    device = torch.cuda.get_device_properties(torch.cuda.current_device())
    return each.value * device.multi_processor_count


def _allocate(nbytes: int, alignment: int, stream: int | None) -> Tensor:
    """Memory in which a launch's programs make their tensor descriptors. Launches on one stream follow each other, so
    they can share it."""
    found = _scratch.get(stream or 0)
    if found is None or len(found) < nbytes:
        found = _scratch[stream or 0] = torch.empty(nbytes, dtype=torch.int8, device="cuda")
    return found
