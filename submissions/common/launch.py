"""Launching a Triton kernel for a few microseconds of Python instead of ten or more.

`kernel[grid](...)` works out at every call which of its compiled variants the arguments need, and the driver asks each
tensor where it is. A `Launcher` looks only at what makes two calls need different variants, and hands addresses and
numbers to the driver (driver.py). So tensors and numbers may change from call to call. And the memory of a call's
output, if it is small, is allocated behind the launch of the call before, when nobody waits for the host.
"""

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from itertools import zip_longest
from typing import Any, NamedTuple

import torch
import triton
from common.driver import LIBCUDA, Submit, stream_of_device, submitter
from common.merged import merging
from torch import Tensor
from triton.runtime.jit import MockTensor
from triton.tools.tensor_descriptor import TensorDescriptor

INTERPRETED = triton.knobs.runtime.interpret  # kernels run as Python, on CPU tensors too
# The largest output that is made ahead. That saves the host of an H200 3.4 us and holds the memory of one more output.
# Official shapes with larger outputs take 370 us or more.
AHEAD_BYTES = 16 << 20

Launch = Callable[[tuple[Tensor, ...], tuple[float, ...]], None]

_scratch: dict[int, list[Tensor]] = {}  # by stream; the last is the largest, launches use the others too
_ahead: dict[tuple[Any, ...], Tensor] = {}  # at most one, by all that it has to be like


def new_output(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Memory for a call's output, on the device of `like` and of its dtype."""
    made = _ahead.pop((shape, like.dtype, like.device, current_stream()), None)
    return like.new_empty(shape) if made is None else made


def make_ahead(output: Tensor) -> None:
    """To be called once a call is submitted: the next one's output, which most likely is of the same shape, is made
    while the device works. Not if it is larger than AHEAD_BYTES."""
    _ahead.clear()
    if not INTERPRETED and output.nbytes <= AHEAD_BYTES:
        _ahead[tuple(output.shape), output.dtype, output.device, current_stream()] = torch.empty_like(output)


class Tiles(NamedTuple):
    """Says that a kernel's parameter is the descriptor of a matrix, row by row and without gaps, for copies of blocks
    of it. `layout` is that of the blocks in shared memory, for kernels in Gluon."""

    shape: tuple[int, int]
    block: tuple[int, int]
    layout: Any = None


class ReadOnce(NamedTuple):
    """Says of a kernel's parameter, in place of Tiles, that it is the address of a tensor that the L2 keeps least."""


Way = Tiles | ReadOnce | None  # how a tensor goes to a kernel; None: by its address


def described(tensor: Tensor | torch.dtype, tiles: Tiles) -> Any:
    """The descriptor for Triton; of a tensor's dtype, to compile a kernel. A descriptor's matrix begins at a multiple
    of 16 bytes: where a tensor does not, it is that of a copy. So only memory that torch allocates may be written."""
    if isinstance(tensor, torch.dtype):
        base = MockTensor(tensor)
    else:
        base = tensor.clone() if tensor.data_ptr() % 16 else tensor
    shape, strides, block = list(tiles.shape), [tiles.shape[1], 1], list(tiles.block)
    if tiles.layout is None:
        return TensorDescriptor(base, shape, strides, block)
    from triton.experimental.gluon.nvidia import hopper  # no other kernels need it

    return hopper.TensorDescriptor(base, shape, strides, block, tiles.layout)


def arguments_of(tensors: Sequence[Tensor | torch.dtype], tiles: Sequence[Way]) -> list[Any]:
    """What Triton is given for a kernel's tensors, or to compile it for tensors of these dtypes. `tiles`, one for each
    of the first, says which go as descriptors."""
    return [described(one, of) if isinstance(of, Tiles) else one for one, of in zip_longest(tensors, tiles)]


class Launcher:
    """Launches `kernel`, whose parameters are its runtime arguments and then its constants. Its programs may be more
    than have room at once where none waits for another and each has a part of its own: `all_at_once` false. `group`
    names the constant that says how many programs work together; none of them is launched without the others."""

    def __init__(self, kernel: Any, all_at_once: bool = True, group: str = "") -> None:
        self.kernel, self.all_at_once, self.group = kernel, all_at_once, group
        self.quick: dict[int, Submit] = {}  # by constants, for the usual tensors, which begin at multiples of 16
        self.prepared: dict[tuple[int, ...], tuple[Launch, dict[str, Any]]] = {}

    def __call__(
        self,
        programs: int,
        tensors: tuple[Tensor, ...],
        numbers: tuple[float, ...],
        constants: dict[str, Any],
        options: dict[str, Any],
        tiles: tuple[Way, ...] = (),
    ) -> None:
        """Launches that many programs on the current stream, or, with `all_at_once`, as many groups as have room.

        The kernel's parameters are the tensors, the numbers and the constants, in this order. `options` are the
        compiler's (num_warps, ...). `tiles`, one for each of the first tensors, says which of them go as descriptors,
        and which are read once (driver.py). All three belong together, are not changed afterwards, and imply the
        tensors' dtypes, sizes and device, and the numbers that the kernel is specialized on, but for larger multiples
        of 16.
        """
        if INTERPRETED:
            # Programs that may wait are one, which plays the part of all: the interpreter runs programs one after the
            # other, and the first would wait for ranks that wait for its second.
            self.kernel[(1 if self.all_at_once else programs,)](*arguments_of(tensors, tiles), *numbers, **constants)
            return
        submit = self.quick.get(id(constants))
        if submit is None or not submit(tensors, numbers):
            self._launch(programs, tensors, numbers, constants, options, tiles)

    def _launch(
        self,
        programs: int,
        tensors: tuple[Tensor, ...],
        numbers: tuple[float, ...],
        constants: dict[str, Any],
        options: dict[str, Any],
        tiles: tuple[Way, ...],
    ) -> None:
        """The same on any stream, and with any tensors: Triton tells those apart that begin at multiples of 16."""
        aligned = tuple(tensor.data_ptr() % 16 == 0 for tensor in tensors)
        key = (id(constants), current_stream(), *aligned)
        if key not in self.prepared:
            launch = self._prepare(programs, tensors, numbers, all(aligned), constants, options, tiles)
            self.prepared[key] = launch, constants  # kept, so that no others get their id
        launch, _ = self.prepared[key]
        launch(tensors, numbers)

    def _prepare(
        self,
        programs: int,
        tensors: tuple[Tensor, ...],
        numbers: tuple[float, ...],
        aligned: bool,
        constants: dict[str, Any],
        options: dict[str, Any],
        tiles: tuple[Way, ...],
    ) -> Launch:
        """What launches the compiled kernel on the current stream. Programs that wait for those of other ranks must all
        be running, so it is with as many as the device has room for at once."""
        stream = current_stream()
        given = arguments_of(tensors, tiles)
        compiled = self.compile((*given, *numbers), constants, options)
        if self.all_at_once:
            room, group = _room(compiled), constants.get(self.group, 1)
            if room < group:
                raise RuntimeError(f"room for {room} programs, of which {group} work together")
            programs = min(programs, room // group * group)
        run = partial(compiled[(programs, 1, 1)], stream=stream)

        def by_triton(tensors: tuple[Tensor, ...], numbers: tuple[float, ...]) -> None:
            triton.set_allocator(_allocate)  # a thread has its own
            given = [one.data_ptr() if isinstance(one, Tensor) else one for one in arguments_of(tensors, tiles)]
            run(*given, *numbers, *constants.values())

        shapes = tuple(
            of.shape if isinstance(of, Tiles) else tensor.nbytes if isinstance(of, ReadOnce) else 0
            for tensor, of in zip_longest(tensors, tiles)
        )
        are_floats = tuple(isinstance(number, float) for number in numbers)
        submit = submitter(
            compiled, programs, stream, shapes, are_floats, aligned, lambda nbytes: _allocate(nbytes, 16, stream)
        )
        if submit is None:
            return by_triton
        if aligned:
            self.quick[id(constants)] = submit

        def by_driver(tensors: tuple[Tensor, ...], numbers: tuple[float, ...]) -> None:
            if not submit(tensors, numbers):
                # Triton knows how to begin in a new thread, and says what is wrong in words.
                by_triton(tensors, numbers)

        return by_driver

    def compile(self, arguments: tuple[Any, ...], constants: dict[str, Any], options: dict[str, Any]) -> Any:
        """The compiled kernel; fills Triton's cache. `arguments` are tensors or their dtypes, `described` where they go
        as descriptors, and numbers."""
        with merging():
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


def current_stream() -> int:
    """The handle of the current device's; 0 where kernels are interpreted."""
    return 0 if INTERPRETED else stream_of_device()


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
