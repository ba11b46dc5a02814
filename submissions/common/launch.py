"""Launching a Triton kernel for a few microseconds of Python instead of ten or more.

`kernel[grid](...)` works out at every call which of its compiled variants the arguments need, and the driver asks each
tensor where it is. A `Launcher` looks only at what makes two calls need different variants, packs addresses and numbers
into one piece of memory, and hands that to the driver. So tensors and numbers may change from call to call. And the
memory of a call's output, if it is small, is allocated behind the launch of the call before, when nobody waits for the
host.
"""

import ctypes
import functools
import itertools
import operator
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

INTERPRETED = triton.knobs.runtime.interpret  # kernels run as Python, on CPU tensors too
LIBCUDA = "libcuda.so.1"
FORMATS = {4: "i", 8: "Q"}  # of a kernel's parameters by their bytes: numbers, and addresses or large numbers
# The largest output that is made ahead. That saves the host of an H200 3.4 us and holds the memory of one more output.
# Official shapes with larger outputs take 370 us or more.
AHEAD_BYTES = 16 << 20
FLOAT = "f"  # of a number that is a float, which kernels take as float32

Launch = Callable[..., None]  # of addresses and numbers

_scratch: dict[int, list[Tensor]] = {}  # by stream; the last is the largest, launches use the others too
_ahead: dict[tuple[Any, ...], Tensor] = {}  # at most one, by all that it has to be like


def new_output(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Memory for a call's output, on the device of `like` and of its dtype."""
    made = _ahead.pop((shape, like.dtype, like.device, _current_stream()), None)
    return like.new_empty(shape) if made is None else made


def make_ahead(output: Tensor) -> None:
    """To be called once a call is submitted: the next one's output, which most likely is of the same shape, is made
    while the device works. Not if it is larger than AHEAD_BYTES."""
    _ahead.clear()
    if not INTERPRETED and output.nbytes <= AHEAD_BYTES:
        _ahead[tuple(output.shape), output.dtype, output.device, _current_stream()] = torch.empty_like(output)


class Launcher:
    """Launches `kernel`, whose parameters are its runtime arguments and then its constants. Its programs may be more
    than have room at once where none waits for another and each has a part of its own: `all_at_once` false. `group`
    names the constant that says how many programs work together; none of them is launched without the others."""

    def __init__(self, kernel: Any, all_at_once: bool = True, group: str = "") -> None:
        self.kernel, self.all_at_once, self.group = kernel, all_at_once, group
        self.prepared: dict[tuple[int, ...], tuple[Launch, dict[str, Any]]] = {}

    def __call__(
        self,
        programs: int,
        tensors: tuple[Tensor, ...],
        numbers: tuple[float, ...],
        constants: dict[str, Any],
        options: dict[str, Any],
    ) -> None:
        """Launches that many programs on the current stream, or, with `all_at_once`, as many groups as have room.

        The kernel's parameters are the tensors, the numbers and the constants, in this order. `options` are the
        compiler's (num_warps, ...). Both belong together, are not changed afterwards, and imply the tensors' dtypes and
        device, and the numbers that the kernel is specialized on, but for larger multiples of 16.
        """
        if INTERPRETED:
            # Programs that may wait are one, which plays the part of all: the interpreter runs programs one after the
            # other, and the first would wait for ranks that wait for its second.
            self.kernel[(1 if self.all_at_once else programs,)](*tensors, *numbers, **constants)
            return
        addresses = [tensor.data_ptr() for tensor in tensors]
        key: tuple[int, ...] = (id(constants), _current_stream())
        if functools.reduce(operator.or_, addresses) & 15:  # Triton tells multiples of 16 apart; nearly always all are
            key += tuple(address & 15 == 0 for address in addresses)
        found = self.prepared.get(key)
        if found is None:
            found = self.prepared[key] = self._prepare(programs, (*tensors, *numbers), constants, options), constants
        launch, _ = found
        launch(*addresses, *numbers)

    def _prepare(
        self, programs: int, arguments: tuple[Tensor | float, ...], constants: dict[str, Any], options: dict[str, Any]
    ) -> Launch:
        """What launches the compiled kernel on the current stream. Programs that wait for those of other ranks must all
        be running, so it is with as many as the device has room for at once."""
        compiled, stream = self.kernel.warmup(*arguments, grid=(1,), **constants, **options), _current_stream()
        if self.all_at_once:
            room, group = _room(compiled), constants.get(self.group, 1)
            if room < group:
                raise RuntimeError(f"room for {room} programs, of which {group} work together")
            programs = min(programs, room // group * group)
        run = functools.partial(compiled[(programs, 1, 1)], stream=stream)

        def by_triton(*raw: float) -> None:
            triton.set_allocator(_allocate)  # a thread has its own
            run(*raw, *constants.values())

        are_floats = tuple(isinstance(argument, float) for argument in arguments)
        return _by_driver(compiled, programs, stream, are_floats, by_triton) or by_triton

    def compile(
        self, arguments: tuple[torch.dtype | float, ...], constants: dict[str, Any], options: dict[str, Any]
    ) -> Any:
        """The compiled kernel for tensors of these dtypes, for its figures; fills Triton's cache."""
        return self.kernel.warmup(*arguments, grid=(1,), **constants, **options)


class ShapedLaunch(NamedTuple):
    """A launch without its tensors, and without the numbers that differ between calls of the same shapes."""

    launcher: Launcher
    programs: int
    numbers: tuple[float, ...]
    constants: dict[str, Any]
    options: dict[str, Any]

    def __call__(self, tensors: tuple[Tensor, ...], numbers: tuple[float, ...] = ()) -> None:
        self.launcher(self.programs, tensors, self.numbers + numbers, self.constants, self.options)

    def compile(self, arguments: tuple[torch.dtype, ...], numbers: tuple[float, ...] = ()) -> Any:
        """The compiled kernel, see Launcher."""
        return self.launcher.compile((*arguments, *self.numbers, *numbers), self.constants, self.options)


def _current_stream() -> int:
    """The handle of the current device's; 0 where kernels are interpreted."""
    if INTERPRETED:
        return 0
    return torch._C._cuda_getCurrentRawStream(torch._C._cuda_getDevice())  # what Triton asks too


current_stream = _current_stream  # for submissions that keep memory from call to call


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig of cuda.h. Given by address, it costs the host less than eleven numbers of cuLaunchKernel."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attributes_count", ctypes.c_uint),
    )


def _by_driver(
    compiled: Any, programs: int, stream: int, are_floats: tuple[bool, ...], otherwise: Launch
) -> Launch | None:
    """What launches a compiled kernel by one call of CUDA's driver, and `otherwise` where the driver refuses: Triton
    knows how to begin in a new thread, and says what is wrong in words. `are_floats` says it of each of its arguments.
    None where this driver does not tell what the kernel's parameters are, or they are others than our arguments and
    Triton's scratch memory.
    """
    if torch.version.hip:
        return None
    metadata, sizes, count = compiled.metadata, _parameter_sizes(compiled.function), len(are_floats)
    unusual = metadata.launch_cooperative_grid or metadata.launch_pdl or metadata.num_ctas > 1
    if unusual or metadata.profile_scratch_size or not 0 <= len(sizes) - count <= 2 or not {*sizes} <= {*FORMATS}:
        return None
    scratch = _allocate(max(16, programs * metadata.global_scratch_size), 16, stream)
    more = (scratch.data_ptr(), 0)[: len(sizes) - count]  # behind the arguments: its scratch memory, and its profiler's
    kinds = itertools.zip_longest(sizes, are_floats)
    formats = "".join(FLOAT if is_float else FORMATS[size] for size, is_float in kinds)
    packed = struct.Struct(formats)
    memory = ctypes.create_string_buffer(packed.size)
    begin, ends = ctypes.addressof(memory), [struct.calcsize(formats[: i + 1]) for i in range(len(sizes))]
    places = (ctypes.c_void_p * len(sizes))(*[begin + end - size for end, size in zip(ends, sizes, strict=True)])
    threads = metadata.num_warps * metadata.warp_size
    how = LaunchConfig(grid=(programs, 1, 1), block=(threads, 1, 1), shared_bytes=metadata.shared, stream=stream)
    function, of_driver = ctypes.c_void_p(compiled.function), ctypes.PyDLL(LIBCUDA)
    # Python's lock is kept: nobody packs other arguments meanwhile.
    submit = functools.partial(of_driver.cuLaunchKernelEx, ctypes.byref(how), function, places, None)

    def launch(*raw: float) -> None:
        packed.pack_into(memory, 0, *raw, *more)
        if submit():
            otherwise(*raw)

    return launch


def _parameter_sizes(function: int) -> list[int]:
    """The bytes of each parameter of a loaded kernel; [] from drivers that do not tell (before CUDA 12.4)."""
    tell = getattr(ctypes.CDLL(LIBCUDA), "cuFuncGetParamInfo", None)
    sizes: list[int] = []
    offset, size = ctypes.c_size_t(), ctypes.c_size_t()
    while tell and not tell(ctypes.c_void_p(function), ctypes.c_size_t(len(sizes)), *map(ctypes.byref, (offset, size))):
        sizes.append(size.value)
    return sizes


def _room(compiled: Any) -> int:
    """How many programs of a compiled kernel this device runs at the same time."""
    assert compiled.run  # which loads it onto the device
    threads = compiled.metadata.num_warps * compiled.metadata.target.warp_size
    if torch.version.hip:
        occupancy = ctypes.CDLL("libamdhip64.so").hipModuleOccupancyMaxActiveBlocksPerMultiprocessor
    else:
        occupancy = ctypes.CDLL(LIBCUDA).cuOccupancyMaxActiveBlocksPerMultiprocessor
    each, function, shared = ctypes.c_int(), ctypes.c_void_p(compiled.function), compiled.metadata.shared
    if error := occupancy(ctypes.byref(each), function, ctypes.c_int(threads), ctypes.c_size_t(shared)):
        raise RuntimeError(f"the driver cannot tell how many programs have room (error {error})")
    if not each.value:
        raise RuntimeError(f"no room for one program: {shared} bytes of shared memory, {threads} threads")
    device = torch.cuda.get_device_properties(torch.cuda.current_device())
    return each.value * device.multi_processor_count


def _allocate(nbytes: int, alignment: int, stream: int | None, /) -> Tensor:
    """Memory in which a launch's programs make their tensor descriptors. Launches on one stream follow each other, so
    they can share it."""
    made = _scratch.setdefault(stream or 0, [])
    if not made or len(made[-1]) < nbytes:
        made.append(torch.empty(nbytes, dtype=torch.int8, device="cuda"))
    return made[-1]
