"""How a trusted rank takes the output of a stepped call: it copies the bytes that the output is declared to have, out
of memory of the candidate's, when its stream comes to it.

What is declared is a claim: whatever lies outside of the memory that it names, or cannot be opened, is not read.
Nothing here waits for the device.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from harness.ranks import payload
from harness.ranks.output_bounds import MAX_PARTS
from harness.ranks.shared_buffer import Flat
from harness.ranks.wire import Output

INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes of an element
UNREADABLE = "its bytes cannot be read where they are said to lie"
Memory = Callable[[str], Tensor | None]  # all bytes of what Output.memory names; None if it names nothing


@dataclass(kw_only=True)
class Taking:
    """The copies of one output's tensors that are still to be made. `output` says where they lie in `into` then."""

    output: Output
    into: Flat
    copies: list[tuple[Tensor, Tensor]] = field(default_factory=list)  # source, destination

    def copy(self) -> None:
        """Queues the copies. A kernel makes them, since a copy engine would begin before the kernels of another process
        have ended."""
        for source, destination in self.copies:
            torch.bitwise_or(source, 0, out=destination)


def taking(output: Output, memory: Memory, most_nbytes: int, room: Callable[[int], Tensor]) -> Taking:
    """The copies that an output needs, at most `most_nbytes` of them, whatever is declared. `room` allocates that many
    bytes."""
    places = _Places(memory, most_nbytes)
    moved = places.moved(output, 0)
    data = room(places.end)
    copies = []
    for source, place in places.sources:
        nbytes = source.numel() * source.element_size()
        copies.append((source, data[place : place + nbytes].view(source.dtype).view(source.shape)))
    return Taking(output=moved, into=Flat(data), copies=copies)


def as_integers(data: Tensor) -> Tensor:
    """The bytes (uint8, one behind the other) as the widest integers that they can be viewed as."""
    widest = next(width for width in (8, 4, 2, 1) if not (data.storage_offset() | len(data)) % width)
    return data.view(INTEGERS[widest])


def warm(device: torch.device) -> None:
    """Loads the kernels that copies are made by. Loading one waits for the device, which may wait for the parent."""
    for dtype in INTEGERS.values():
        for source in (torch.ones(64, dtype=dtype, device=device), torch.ones(8, 8, dtype=dtype, device=device).t()):
            torch.bitwise_or(source, 0, out=torch.empty(source.shape, dtype=dtype, device=device))


class _Places:
    def __init__(self, memory: Memory, most_nbytes: int) -> None:
        self.memory, self.left, self.parts, self.end = memory, most_nbytes, 0, 0
        self.sources: list[tuple[Tensor, int]] = []

    def moved(self, output: Output, depth: int) -> Output:
        """The output with its tensors where they are copied to."""
        self.parts += 1
        plain = replace(output, memory="", strides=())
        if self.parts > MAX_PARTS or depth > payload.MAX_DEPTH:
            return replace(plain, items=(), note=UNREADABLE)
        if output.items:
            return replace(plain, items=tuple(self.moved(item, depth + 1) for item in output.items))
        if not output.dtype or output.note or output.nbytes <= 0:
            return plain
        source = self.source(output) if output.nbytes <= self.left else None
        if source is None:
            return replace(plain, nbytes=0, note=UNREADABLE)
        self.left -= output.nbytes
        place, self.end = self.end, payload.aligned(self.end + output.nbytes)
        self.sources.append((source, place))
        return replace(plain, offset=place)

    def source(self, output: Output) -> Tensor | None:
        """The declared bytes as integers."""
        dtype, sizes = payload.RESULT_DTYPES.get(output.dtype), output.shape
        size = dtype.itemsize if dtype else 0
        strides = output.strides if output.memory else _contiguous(sizes)
        is_whole = len(strides) == len(sizes) and all(0 < one < payload.MAX_REACH for one in sizes)
        if not size or not is_whole or not all(0 <= one < payload.MAX_REACH for one in strides):
            return None
        reach = 1 + sum((one - 1) * stride for one, stride in zip(sizes, strides, strict=True))
        data = self.memory(output.memory)
        is_there = data is not None and output.offset >= 0 and output.offset + reach * size <= len(data)
        if data is None or not is_there or math.prod(sizes) * size != output.nbytes or output.offset % size:
            return None
        flat = data[output.offset : output.offset + reach * size]
        if strides == _contiguous(sizes):
            return as_integers(flat)
        if size not in INTEGERS:  # complex128: two words each
            sizes, strides, size = (*sizes, 2), (*(2 * stride for stride in strides), 1), 8
        return flat.view(INTEGERS[size]).as_strided(sizes, strides)


def _contiguous(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a tensor of that shape without gaps."""
    return tuple(math.prod(sizes[axis + 1 :]) for axis in range(len(sizes)))
