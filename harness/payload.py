"""How inputs and outputs pass between processes: tensors as raw bytes in a file that has no name (memfd).

Inputs go from trusted ranks to candidate ranks: any picklable tree, its tensors kept out of the pickle. Outputs
come back as declared dtype and shape plus bytes; nothing that a candidate rank wrote is ever unpickled.
"""

import io
import os
import pickle
import struct
from collections.abc import Callable
from typing import Any, cast

import torch

from harness.wire import Output, Span

ALIGN_BYTES = 64
CHUNK_BYTES = 1 << 30  # one system call moves less than 2 GiB

DTYPES = {str(value): value for value in vars(torch).values() if isinstance(value, torch.dtype)}


def write_input(fd: int, offset: int, value: Any) -> Span:
    """Writes the tree `value` at `offset`: tensors first, then the pickle that refers to them, then its length."""
    end = offset
    places: dict[int, tuple[str, tuple[int, ...], int]] = {}

    class Pickler(pickle.Pickler):
        def persistent_id(self, obj: Any) -> Any:
            nonlocal end
            if not isinstance(obj, torch.Tensor):
                return None
            if id(obj) not in places:
                host = obj.detach().cpu().contiguous()
                end += -end % ALIGN_BYTES
                places[id(obj)] = (str(host.dtype), tuple(host.shape), end - offset)
                _write(fd, end, _bytes_of(host))
                end += host.nbytes
            return places[id(obj)]

    tree = io.BytesIO()
    Pickler(tree).dump(value)
    body = tree.getvalue() + struct.pack("<Q", tree.tell())
    _write(fd, end, memoryview(body))
    return Span(offset=offset, nbytes=end + len(body) - offset)


def read_input(fd: int, span: Span, place: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The tree at `span`, its tensors fresh and `place`d on the rank's device."""
    end = span.offset + span.nbytes
    (length,) = struct.unpack("<Q", os.pread(fd, 8, end - 8))
    tree = bytearray(length)
    _read(fd, end - 8 - length, memoryview(tree))

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, pid: Any) -> torch.Tensor:
            dtype, shape, offset = pid
            host = torch.empty(shape, dtype=DTYPES[dtype])
            _read(fd, span.offset + offset, _bytes_of(host))
            return place(host)

    return Unpickler(io.BytesIO(tree)).load()


def write_output(fd: int, offset: int, value: Any, max_nbytes: int) -> Output:
    """Describes what a call returned and, where it is a tensor, writes its bytes at `offset`."""
    name = _type_name(type(value))
    if not isinstance(value, torch.Tensor):
        return Output(kind=name, dtype="", shape=(), device="", offset=offset, nbytes=0, note="not a tensor")
    shape, device = tuple(value.shape), value.device.type
    described: dict[str, Any] = {"kind": name, "dtype": str(value.dtype), "shape": shape, "device": device}
    if value.layout is not torch.strided:
        return Output(**described, offset=offset, nbytes=0, note=f"its layout is {value.layout}")
    nbytes = value.numel() * value.element_size()
    if nbytes > max_nbytes:
        return Output(**described, offset=offset, nbytes=0, note=f"{nbytes} bytes are more than any right result has")
    host = value.detach().as_subclass(torch.Tensor).cpu().contiguous()
    _write(fd, offset, _bytes_of(host))
    return Output(**described, offset=offset, nbytes=nbytes)


def read_output(fd: int, output: Output, place: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor | None:
    """The declared tensor; None where there is none or its bytes are not what it declares."""
    dtype = DTYPES.get(output.dtype)
    if output.note or dtype is None or any(size < 0 for size in output.shape):
        return None
    host = torch.empty(output.shape, dtype=dtype)
    if host.nbytes != output.nbytes or output.offset < 0 or os.fstat(fd).st_size < output.offset + output.nbytes:
        return None
    _read(fd, output.offset, _bytes_of(host))
    return place(host)


def _type_name(kind: type) -> str:
    if kind is torch.Tensor:
        return "torch.Tensor"
    if kind is type(None):
        return "None"
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _bytes_of(host: torch.Tensor) -> memoryview:
    if host.numel() == 0:  # which numpy has no buffer for
        return memoryview(b"")
    return memoryview(cast(bytearray, host.reshape(-1).view(torch.uint8).numpy()))


def _write(fd: int, offset: int, data: memoryview) -> None:
    while data:
        written = os.pwrite(fd, data[:CHUNK_BYTES], offset)
        data, offset = data[written:], offset + written


def _read(fd: int, offset: int, into: memoryview) -> None:
    while into:
        count = os.preadv(fd, [into[:CHUNK_BYTES]], offset)
        if count == 0:
            raise EOFError(f"the file ends at {offset}")
        into, offset = into[count:], offset + count
