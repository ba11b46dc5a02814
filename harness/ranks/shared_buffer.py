"""Where the tensors of inputs and outputs lie on their way from one process to another, as bytes at offsets.

A FileBuffer is a file without a name, one for each input and output. It is sealed before it is passed on: from then on
nobody can change it, and nobody can cut it off. A DeviceBuffer is device memory of the trusted rank, which the
candidate rank of the same number maps. Either side copies, so that neither can change what the other holds.
"""

import fcntl
import math
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar, cast

import torch
from torch import Tensor

from harness.ranks import driver
from harness.ranks.wire import INPUT_MEMORY, SEALS

T = TypeVar("T")
LENGTH_BYTES = 8
CHUNK_BYTES = 1 << 30  # one system call moves less than 2 GiB


class Source(Protocol):
    """Memory that tensors are read from; `kind` is the kind of device that they are on then."""

    kind: str

    def read(self, offset: int, nbytes: int) -> Tensor | None:
        """A new tensor, uint8 [nbytes], of the bytes at `offset`; None if they are not all there."""


@dataclass(frozen=True, kw_only=True)
class TensorPlace:
    """The place of a tensor: `memory` and `strides` as in wire.Output, `offset` in bytes."""

    memory: str
    offset: int
    strides: tuple[int, ...]


class SharedBuffer:
    """Memory that two processes share. The other one opens it by `handle`, which is empty if it is open there."""

    kind: str
    handle = ""

    def write(self, offset: int, tensor: Tensor) -> None:
        """Copies the tensor, on the rank's device, to `offset`; complete when it returns."""
        raise NotImplementedError

    def read(self, offset: int, nbytes: int) -> Tensor | None:
        """As Source has it."""
        raise AssertionError("a rank does not read what it has handed over")

    def place(self, tensor: Tensor) -> TensorPlace | None:
        """Where the tensor lies, if it need not be copied."""
        return None

    def close(self) -> None:
        """Gives the memory back, if it is the buffer's; the buffer cannot be used afterwards."""


class FileBuffer(SharedBuffer):
    """A buffer in a file, for ranks on CPU cores. `reserved`: so many bytes of memory are taken for it at once; what
    `fill` and `append` do not need of them is cut off."""

    kind = "cpu"

    def __init__(self, fd: int, reserved: int = 0) -> None:
        self.fd, self.reserved = fd, reserved
        self.end = 0  # behind all that was written
        if reserved:
            os.posix_fallocate(fd, 0, reserved)

    def write(self, offset: int, tensor: Tensor) -> None:
        self._write(offset, _bytes_of(tensor.contiguous()))

    def _write(self, offset: int, data: memoryview) -> None:
        write_bytes(self.fd, offset, data)
        self.end = max(self.end, offset + len(data))

    def _cut(self) -> None:
        if self.end < self.reserved:
            os.ftruncate(self.fd, self.end)

    def fill(self, tensor: Tensor, data: bytes) -> None:
        """Writes a contiguous tensor to the beginning of an empty file, and behind it data that is no tensor."""
        parts = [_bytes_of(tensor), memoryview(_with_length(data))]
        self.end = sum(map(len, parts))
        if os.pwritev(self.fd, parts, 0) < self.end:  # a system call writes less than 2 GiB
            for offset, part in zip((0, len(parts[0])), parts, strict=True):
                write_bytes(self.fd, offset, part)
        self._cut()

    def read(self, offset: int, nbytes: int) -> Tensor | None:
        # Looked at before there is a tensor: what is declared may be more than any machine has. No bytes are anywhere,
        # behind the end too.
        if offset < 0 or nbytes < 0 or (nbytes and os.fstat(self.fd).st_size < offset + nbytes):
            return None
        data = torch.empty(nbytes, dtype=torch.uint8, device="cpu")
        read_bytes(self.fd, offset, _bytes_of(data))
        return data

    def append(self, data: bytes) -> None:
        """Writes data that is no tensor behind everything else that was written."""
        self._write(self.end, memoryview(_with_length(data)))
        self._cut()

    def appended(self, most_nbytes: int = sys.maxsize) -> bytes:
        """The bytes appended last. Raises EOFError if there are none or more than `most_nbytes`."""
        end = os.fstat(self.fd).st_size - LENGTH_BYTES
        nbytes = int.from_bytes(os.pread(self.fd, LENGTH_BYTES, end)) if end >= 0 else 1
        if nbytes > min(end, most_nbytes):
            raise EOFError(f"{nbytes} bytes in a file of {max(0, end)}")
        data = bytearray(nbytes)
        read_bytes(self.fd, end - nbytes, memoryview(data))
        return bytes(data)


class LoadedFile:
    """All of a file that a trusted rank wrote, read at once, into `room` if it is large enough. Its tensors are parts
    of one memory, and have a storage each."""

    kind = "cpu"

    def __init__(self, fd: int, room: Tensor | None = None) -> None:
        nbytes = os.fstat(fd).st_size
        room = torch.empty(nbytes, dtype=torch.uint8, device="cpu") if room is None or len(room) < nbytes else room
        self.bytes = room[:nbytes].numpy()
        read_bytes(fd, 0, memoryview(cast(bytearray, self.bytes)))

    def read(self, offset: int, nbytes: int) -> Tensor | None:
        if nbytes and not 0 <= offset < offset + nbytes <= len(self.bytes):
            return None
        return torch.from_numpy(self.bytes[offset : offset + nbytes])

    def appended(self) -> bytes:
        """The bytes appended last; `FileBuffer.appended` checks their length."""
        end = len(self.bytes) - LENGTH_BYTES
        return self.bytes[end - int.from_bytes(self.bytes[end:].tobytes()) : end].tobytes()


class DeviceBuffer(SharedBuffer):
    """A buffer in the memory of a GPU, which other processes open by its handle."""

    kind = "cuda"

    def __init__(self, memory: driver.SharedMemory, device: torch.device) -> None:
        self.memory, self.device, self.handle = memory, device, memory.handle

    def write(self, offset: int, tensor: Tensor) -> None:
        self.queue(offset, tensor)
        torch.cuda.synchronize(self.device)

    def queue(self, offset: int, tensor: Tensor) -> None:
        """Copies the tensor to `offset` when its stream comes to it."""
        source = _flat(tensor.contiguous())
        self.memory.bytes[offset : offset + source.numel()].copy_(source)

    def view(self, offset: int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor | None:
        """The bytes at `offset` themselves; None if they are not all there."""
        end = offset + math.prod(shape) * dtype.itemsize
        if not 0 <= offset <= end <= self.memory.nbytes:
            return None
        return self.memory.bytes[offset:end].view(dtype).view(shape)

    def read(self, offset: int, nbytes: int) -> Tensor | None:
        if offset < 0 or nbytes < 0 or self.memory.nbytes < offset + nbytes:
            return None
        data = self.memory.bytes[offset : offset + nbytes].clone()
        torch.cuda.synchronize(self.device)
        return data

    def close(self) -> None:
        self.memory.close()


class LeftInPlace(SharedBuffer):
    """Describes a stepped call's output: tensors stay where they are if another process can open that memory, and are
    copied to the output buffer if not. Does not wait for the device."""

    kind = "cuda"

    def __init__(self, inputs: SharedBuffer, outputs: SharedBuffer) -> None:
        self.inputs, self.outputs = cast(DeviceBuffer, inputs), cast(DeviceBuffer, outputs)

    def write(self, offset: int, tensor: Tensor) -> None:
        self.outputs.queue(offset, tensor)

    def place(self, tensor: Tensor) -> TensorPlace | None:
        is_plain = not (tensor.is_conj() or tensor.is_neg()) and tensor.device == self.outputs.device
        if not is_plain or not tensor.numel():
            return None
        address, strides = tensor.data_ptr(), tuple(tensor.stride())
        start = int(self.inputs.memory.pointer.value or 0)
        if start <= address < start + self.inputs.memory.nbytes:
            return TensorPlace(memory=INPUT_MEMORY, offset=address - start, strides=strides)
        try:
            start, _ = driver.address_range(address)
            return TensorPlace(memory=driver.ipc_handle(start), offset=address - start, strides=strides)
        except driver.DriverError:  # symmetric memory, say, which has handles of another kind
            return None


class Flat:
    """Bytes of device memory (uint8) of which tensors are read where they lie."""

    kind = "cuda"

    def __init__(self, data: Tensor) -> None:
        self.bytes = data

    def read(self, offset: int, nbytes: int) -> Tensor | None:
        return self.bytes[offset : offset + nbytes] if 0 <= offset <= offset + nbytes <= len(self.bytes) else None


def _with_length(data: bytes) -> bytes:
    """The bytes with their length behind them, as they stand at the end of a file."""
    return data + len(data).to_bytes(LENGTH_BYTES)


def new_file(name: str) -> int:
    """A file without a place, which can be sealed. Its number is no standard stream's, which a submission may close."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    if fd > 2:
        return fd
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    finally:
        os.close(fd)


def seal(fd: int) -> None:
    """Nobody can change the file any more. Raises OSError while it is mapped to be written to."""
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)


def sealed_file(name: str, write: Callable[[FileBuffer], T]) -> tuple[int, T]:
    """A new file that `write` has filled, sealed, and the value that `write` returned."""
    fd = new_file(name)
    try:
        written = write(FileBuffer(fd))
        seal(fd)
    except BaseException:
        os.close(fd)
        raise
    return fd, written


def write_bytes(fd: int, offset: int, data: memoryview) -> None:
    """Writes all of `data` to the file at `offset`."""
    while data:
        written = os.pwrite(fd, data[:CHUNK_BYTES], offset)
        data, offset = data[written:], offset + written


def read_bytes(fd: int, offset: int, into: memoryview) -> None:
    """Fills `into` from the file at `offset`. Raises EOFError if the file is shorter."""
    while into:
        count = os.preadv(fd, [into[:CHUNK_BYTES]], offset)
        if count == 0:
            raise EOFError(f"the file ends at {offset}")
        into, offset = into[count:], offset + count


def _bytes_of(tensor: Tensor) -> memoryview:
    if tensor.numel() == 0:  # which numpy has no buffer for
        return memoryview(b"")
    return memoryview(cast(bytearray, _flat(tensor).numpy()))


def _flat(tensor: Tensor) -> Tensor:
    """The bytes of a contiguous tensor. torch calls one element contiguous whatever its stride, and keeps that."""
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)
