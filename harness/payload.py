"""How inputs and outputs pass between processes: tensors as bytes in a box (harness/box.py).

Inputs go from trusted ranks to candidate ranks: any picklable tree, its tensors kept out of the pickle, which is
small and travels as text in messages. Outputs come back as declared dtype and shape plus bytes; nothing that a
candidate rank wrote is ever unpickled.
"""

import base64
import io
import pickle
from typing import Any

import torch

from harness.box import Box
from harness.wire import Input, Output

ALIGN_BYTES = 256

DTYPES = {str(value): value for value in vars(torch).values() if isinstance(value, torch.dtype)}


def aligned(offset: int) -> int:
    """The next offset that any dtype may start at."""
    return offset + -offset % ALIGN_BYTES


class _Layout(pickle.Pickler):
    """Pickles a tree, giving each of its tensors a place from `offset` on instead of pickling it."""

    def __init__(self, file: io.BytesIO, offset: int) -> None:
        super().__init__(file)
        self.end = aligned(offset)
        self.places: dict[int, tuple[torch.Tensor, int]] = {}

    def persistent_id(self, obj: Any) -> Any:
        if not isinstance(obj, torch.Tensor):
            return None
        if id(obj) not in self.places:
            self.places[id(obj)] = (obj.detach(), self.end)
            self.end = aligned(self.end + obj.nbytes)
        return str(obj.dtype), tuple(obj.shape), self.places[id(obj)][1]


def _laid_out(value: Any, offset: int) -> tuple[_Layout, bytes]:
    file = io.BytesIO()
    layout = _Layout(file, offset)
    layout.dump(value)
    return layout, file.getvalue()


def end_of(value: Any, offset: int) -> int:
    """Where the tensors of the tree `value` end when they are written at `offset`."""
    return _laid_out(value, offset)[0].end


def write_input(box: Box, offset: int, value: Any) -> Input:
    """Writes the tensors of the tree `value` into the box at `offset`."""
    layout, tree = _laid_out(value, offset)
    for tensor, place in layout.places.values():
        box.write(place, tensor)
    return Input(tree=base64.b64encode(tree).decode(), nbytes=layout.end - offset)


def read_input(box: Box, made: Input) -> Any:
    """The tree, its tensors fresh on the rank's device. For trees that a trusted rank wrote."""

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, pid: Any) -> torch.Tensor:
            dtype, shape, offset = pid
            tensor = box.read(offset, shape, DTYPES[dtype])
            if tensor is None:
                raise EOFError(f"no input at {offset}")
            return tensor

    return Unpickler(io.BytesIO(base64.b64decode(made.tree))).load()


def write_output(box: Box, offset: int, value: Any, max_nbytes: int) -> Output:
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
    box.write(offset, value.detach().as_subclass(torch.Tensor))
    return Output(**described, offset=offset, nbytes=nbytes)


def read_output(box: Box, output: Output) -> torch.Tensor | None:
    """The declared tensor; None where there is none or its bytes are not what it declares."""
    dtype = DTYPES.get(output.dtype)
    if output.note or dtype is None or any(size < 0 for size in output.shape):
        return None
    count = 1
    for size in output.shape:
        count *= size
    if count * dtype.itemsize != output.nbytes:
        return None
    return box.read(output.offset, output.shape, dtype)


def _type_name(kind: type) -> str:
    if kind is torch.Tensor:
        return "torch.Tensor"
    if kind is type(None):
        return "None"
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
