"""How inputs and outputs pass between processes: tensors as bytes in a buffer (harness/ranks/shared_buffer.py).

Inputs go from trusted ranks to the other ranks. An input is any picklable tree; its tensors are kept out of the pickle,
which is small and travels as text in messages. A tensor keeps its memory layout, the gaps between its rows included
(see reach_with_gaps), its requires_grad and its attributes that are plain values; a tensor of the host stays there. A
subclass, Parameter too, arrives as torch.Tensor. Inputs that are handed out together can be masked:
their bytes are XORed with what torch's generator makes of a key, and ranks get the key when the input's turn has come.

Outputs come back as bytes with a declared dtype and shape, alone or in tuples, lists and dicts. Bytes become a tensor
only of a dtype in RESULT_DTYPES and of few dimensions. Nothing that a candidate rank wrote is ever unpickled.
"""

import base64
import hashlib
import io
import math
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import torch

from harness.ranks.output_bounds import MAX_PARTS, MAX_RANK, MAX_WORD_CHARS, is_short
from harness.ranks.shared_buffer import FileBuffer, LoadedFile, SharedBuffer, Source
from harness.ranks.wire import Input, Output

ALIGN_BYTES = 256
MAX_REACH = 1 << 60  # elements
MAX_DEPTH = 8  # of an output that is no tensor
MAX_DIGEST_BYTES = 256 << 20  # that one is made of, in a quarter of a second
PLAIN = {"bool": bool, "int": int, "float": float, "str": str}
DTYPES = {str(value): value for value in vars(torch).values() if isinstance(value, torch.dtype)}
# Of what a candidate returns: dtypes whose elements are whole bytes that may have any value. What torch stores in parts
# of a byte, or quantised, takes another number of bytes than it says. Not every torch has all of these.
_RESULTS = (
    "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128"
)
_NARROW = "float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu float4_e2m1fn_x2"
RESULT_DTYPES = {name: DTYPES[name] for word in f"{_RESULTS} {_NARROW}".split() if (name := f"torch.{word}") in DTYPES}


def aligned(offset: int) -> int:
    """The next offset that any dtype may start at."""
    return offset + -offset % ALIGN_BYTES


Gaps = tuple[tuple[int, ...], tuple[int, ...]]  # shape and strides of a tensor that travels with what is between
Traits = tuple[bool, dict[str, bool | int | float | str]]  # requires_grad, and attributes that were set on the object


class _Layout(pickle.Pickler):
    """Pickles a tree, giving each of its tensors a place from `offset` on instead of pickling it."""

    def __init__(self, file: io.BytesIO, offset: int, with_host: bool = False) -> None:
        """`with_host`: tensors of the host are pickled."""
        super().__init__(file)
        self.end, self.with_host = aligned(offset), with_host
        self.places: dict[int, tuple[torch.Tensor, int]] = {}

    def persistent_id(self, obj: Any) -> Any:
        if not isinstance(obj, torch.Tensor) or (self.with_host and obj.device.type == "cpu"):
            return None
        flat, order, gaps = obj.detach(), memory_order(obj), None
        if reach := reach_with_gaps(obj):
            flat, order, gaps = flat.as_strided((reach,), (1,)), [0], (tuple(obj.shape), obj.stride())
        flat = flat.permute(order)
        if id(obj) not in self.places:
            self.places[id(obj)] = (flat, self.end)
            self.end = aligned(self.end + flat.nbytes)
        place = self.places[id(obj)][1]
        return str(obj.dtype), tuple(flat.shape), place, order, obj.device.type, gaps, _traits(obj)


def _traits(tensor: torch.Tensor) -> Traits | None:
    """None for a tensor that has none, as nearly all."""
    plain = {name: value for name, value in vars(tensor).items() if type(value) in PLAIN.values()}
    return (tensor.requires_grad, plain) if plain or tensor.requires_grad else None


def memory_order(tensor: torch.Tensor) -> list[int]:
    """Its dimensions as they lie in memory, the widest stride first, where it fills its memory without a gap or an
    overlap; else as they are. It is what torch's clone keeps."""
    axes, strides = list(range(tensor.dim())), tuple(tensor.stride())
    order = sorted(axes, key=lambda axis: (-strides[axis], -tensor.shape[axis]))
    return order if tensor.permute(order).is_contiguous() else axes


def reach_with_gaps(tensor: torch.Tensor) -> int:
    """How many elements of memory the tensor spans, if it has gaps (rows of a wider matrix, say) and no element lies
    in two places. 0 if it has none, or if they are more than half of it: then it travels without them."""
    if tensor.layout is not torch.strided or not tensor.numel():
        return 0
    reach = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride < reach:
            return 0
        reach += (size - 1) * stride
    return reach if tensor.numel() < reach <= 2 * tensor.numel() else 0


def _restored(tensor: torch.Tensor, order: list[int], gaps: Gaps | None, traits: Traits | None) -> torch.Tensor:
    """The tensor as it was, of one as it travelled."""
    if order != sorted(order):
        tensor = tensor.permute([order.index(axis) for axis in range(len(order))])
    tensor = tensor.as_strided(*gaps) if gaps else tensor
    if traits:
        requires_grad, plain = traits
        vars(tensor).update(plain)
        tensor.requires_grad_(requires_grad)
    return tensor


def _laid_out(value: Any, offset: int, with_host: bool = False) -> tuple[_Layout, bytes]:
    file = io.BytesIO()
    layout = _Layout(file, offset, with_host)
    layout.dump(value)
    return layout, file.getvalue()


def end_of(value: Any, offset: int) -> int:
    """The offset behind the tensors of the tree `value` when they are written at `offset`, in bytes."""
    return _laid_out(value, offset)[0].end


def nbytes_of(value: Any) -> int:
    """The room that the tensors in tuples, lists and dicts take in a buffer. Other values take none."""
    if isinstance(value, torch.Tensor):
        return aligned(value.numel() * value.element_size())
    items = value.values() if isinstance(value, dict) else value if isinstance(value, tuple | list) else ()
    return sum(map(nbytes_of, items))


def digest(value: Any) -> str:
    """A digest of a result's tree, by which equal ones are known; "" for one that is large or of another make."""
    if nbytes_of(value) > MAX_DIGEST_BYTES:
        return ""
    made = hashlib.sha256()
    try:
        for word in _words(value):
            made.update(word)
    except (TypeError, ValueError, RuntimeError):  # a dtype without bytes of its own, say
        return ""
    return made.hexdigest()


def _words(value: Any) -> Iterator[bytes | memoryview]:
    if isinstance(value, torch.Tensor):
        yield f"{value.dtype} {tuple(value.shape)} {value.stride()} {value.device};".encode()
        yield value.detach().contiguous().reshape(-1).view(torch.uint8).cpu().numpy().data
    elif isinstance(value, tuple | list | dict):
        yield f"{type(value).__name__} {len(value)};".encode()
        for item in value.items() if isinstance(value, dict) else value:
            yield from _words(item)
    elif value is None or isinstance(value, bool | int | float | str):
        yield f"{type(value).__name__} {value!r};".encode()
    else:
        raise TypeError(f"a {type(value).__name__} has no bytes")


def write_input(buffer: SharedBuffer, offset: int, value: Any, key: int = 0) -> Input:
    """Writes the tensors of the tree `value` into the buffer at `offset`. With a key, tensors on the rank's own kind of
    device are masked; others are not, because two kinds of device make different bytes of one key. A file gets the
    pickle too, behind them."""
    layout, tree = _laid_out(value, offset)
    for tensor, place in layout.places.values():
        if key and tensor.device.type == buffer.kind:
            tensor = tensor.clone(memory_format=torch.contiguous_format)
            mask(tensor, key, place)
        buffer.write(place, tensor)
    if isinstance(buffer, FileBuffer):
        buffer.append(tree)
        tree = b""
    return Input(tree=base64.b64encode(tree).decode(), nbytes=layout.end - offset, masked=key != 0)


def describe_input(value: Any) -> Input:
    """The tree for a rank that reads its tensors in the buffer, from offset 0 on. The host's go with the tree."""
    layout, tree = _laid_out(value, 0, with_host=True)
    return Input(tree=base64.b64encode(tree).decode(), nbytes=layout.end, masked=False)


def parts_of(value: Any) -> list[tuple[torch.Tensor, int]]:
    """The tensors of the tree that lie in the buffer, each contiguous, with their places there."""
    places = _laid_out(value, 0, with_host=True)[0].places.values()
    return [(tensor.contiguous(), place) for tensor, place in places]


def mask(tensor: torch.Tensor, key: int, place: int) -> None:
    """Masks the contiguous tensor, or unmasks it: XORs it with the key's bytes at its `place` in the buffer."""
    flat = tensor.reshape(-1).view(torch.uint8)
    words = flat.numel() // 8
    generator = torch.Generator(tensor.device).manual_seed(key + place)
    noise = torch.empty(words + 1, dtype=torch.int64, device=tensor.device).random_(-(2**63), None, generator=generator)
    flat[: 8 * words].view(torch.int64).bitwise_xor_(noise[:words])
    flat[8 * words :].bitwise_xor_(noise[words:].view(torch.uint8)[: flat.numel() % 8])


def read_input(buffer: Source, made: Input | None, masked: list[tuple[torch.Tensor, int]] | None = None) -> Any:
    """The tree that a trusted rank wrote, with new tensors on the rank's device. Of a masked input, `masked` gets the
    tensors that are still to be unmasked, with their places. A file says all but that (`made` may be None)."""

    tree = buffer.appended() if isinstance(buffer, LoadedFile) else base64.b64decode(made.tree if made else "")
    is_masked = made is not None and made.masked

    def tensor(pid: Any) -> torch.Tensor:
        dtype, shape, offset, order, device, gaps, traits = pid
        kind = DTYPES[dtype]
        data = buffer.read(offset, math.prod(shape) * kind.itemsize)
        if data is None:
            raise EOFError(f"no input at {offset}")
        found = data.view(kind).view(shape)
        if masked is not None and is_masked and device == buffer.kind:
            masked.append((found, offset))
        return _restored(found.cpu() if device == "cpu" else found, order, gaps, traits)

    return _TreeReading(tree, tensor).load()


class _TreeReading(pickle.Unpickler):
    """Reads a tree, whose tensors `tensor` makes of what _Layout says of them. Neither is part of a reference cycle,
    which would keep the tensors, GiB of a device, until Python collects its garbage."""

    def __init__(self, tree: bytes, tensor: Callable[[Any], torch.Tensor]) -> None:
        super().__init__(io.BytesIO(tree))
        self.tensor = tensor

    def persistent_load(self, pid: Any) -> torch.Tensor:
        return self.tensor(pid)


def copied(value: Any) -> Any:
    """A copy of a trusted rank's tree, with its tensors copied."""
    layout, tree = _laid_out(value, 0)
    # By more than its place, since empty tensors share one.
    by_place = {(str(one.dtype), tuple(one.shape), place): one for one, place in layout.places.values()}
    return _TreeReading(tree, lambda pid: _restored(by_place[pid[:3]].clone(), pid[3], *pid[5:])).load()


def write_output(buffer: SharedBuffer, offset: int, value: Any, max_nbytes: int) -> Output:
    """Writes what a call returned from `offset` on, and describes it. Tensors, plain values, and tuples, lists and
    dicts (by name) of them are written; any other value is described by its type alone."""
    return _Writer(buffer, offset, max_nbytes).output(value, 0)


class _Writer:
    def __init__(self, buffer: SharedBuffer, offset: int, max_nbytes: int) -> None:
        self.buffer, self.offset, self.left = buffer, offset, max_nbytes
        self.parts = 0

    def output(self, value: Any, depth: int) -> Output:
        self.parts += 1
        if isinstance(value, torch.Tensor):
            written = _write_tensor(self.buffer, self.offset, value, self.left)
            if not written.memory:
                self.offset = aligned(self.offset + written.nbytes)
            self.left -= written.nbytes
            return written
        # What torch.linalg.qr returns is a tuple too.
        kind = next((base for base in (tuple, list, dict) if isinstance(value, base)), type(value))
        described: dict[str, Any] = {"kind": _type_name(kind), "dtype": "", "shape": (), "device": ""}
        described |= {"offset": self.offset, "nbytes": 0, "note": "not a tensor"}
        if kind in (bool, int, float, str) and is_short(value):
            finite = kind is not float or math.isfinite(value)
            return Output(**described, plain=value if finite else repr(value))
        is_dict = kind is dict and all(type(key) is str and len(key) <= MAX_WORD_CHARS for key in value)
        if (is_dict or kind in (tuple, list)) and depth < MAX_DEPTH and self.parts + len(value) <= MAX_PARTS:
            start = self.offset
            items = tuple(self.output(item, depth + 1) for item in (value.values() if is_dict else value))
            described |= {"offset": start, "nbytes": self.offset - start}
            return Output(**described, items=items, keys=tuple(value) if is_dict else ())
        return Output(**described)


def _write_tensor(buffer: SharedBuffer, offset: int, value: torch.Tensor, max_nbytes: int) -> Output:
    name = _type_name(type(value))
    shape, device = tuple(value.shape)[:MAX_RANK], value.device.type
    described: dict[str, Any] = {"kind": name, "dtype": str(value.dtype), "shape": shape, "device": device}
    if value.dim() > MAX_RANK:
        return Output(**described, offset=offset, nbytes=0, note=f"it has {value.dim()} dimensions")
    if value.layout is not torch.strided:
        return Output(**described, offset=offset, nbytes=0, note=f"its layout is {value.layout}")
    if str(value.dtype) not in RESULT_DTYPES:
        return Output(**described, offset=offset, nbytes=0, note=f"no result is of {value.dtype}")
    nbytes = value.numel() * value.element_size()
    if nbytes > max_nbytes:
        return Output(**described, offset=offset, nbytes=0, note=f"{nbytes} bytes are more than any right result has")
    plain = value.detach().as_subclass(torch.Tensor)
    if place := buffer.place(plain):
        return Output(**described, nbytes=nbytes, **vars(place))
    buffer.write(offset, plain.resolve_conj().resolve_neg())
    return Output(**described, offset=offset, nbytes=nbytes)


def viewed(output: Output, data: torch.Tensor | None) -> torch.Tensor | None:
    """The tensor that an output declares, on its bytes `data`; None if they do not fit, or no result is like that."""
    dtype = RESULT_DTYPES.get(output.dtype)
    if output.note or data is None or dtype is None or len(output.shape) > MAX_RANK:
        return None
    count = reach = 1
    for size in output.shape:
        count, reach = count * size, reach * max(1, size)
        if size < 0 or reach >= MAX_REACH:  # of an empty tensor too: torch has no strides that long
            return None
    if count * dtype.itemsize != data.numel():
        return None
    # A bool that is neither 0 nor 1 is none that torch's kernels are written for.
    return (data != 0 if dtype is torch.bool else data.view(dtype)).view(output.shape)


def read_tree(buffer: Source, output: Output, max_nbytes: int) -> tuple[Any, str]:
    """The declared value, tensors in plain tuples, lists and dicts, or (None, why not). Reads at most `max_nbytes`."""
    try:
        return _Reader(buffer, max_nbytes).value(output, 0), ""
    except _NoValue as error:
        return None, str(error)


class _NoValue(Exception):
    pass


class _Reader:
    def __init__(self, buffer: Source, max_nbytes: int) -> None:
        self.buffer, self.left, self.parts = buffer, max_nbytes, 0

    def value(self, output: Output, depth: int) -> Any:
        self.parts += 1
        if self.parts > MAX_PARTS or depth > MAX_DEPTH:
            raise _NoValue("it has more parts than any right result")
        if output.kind == "None":
            return None
        if output.kind in PLAIN:
            return self.plain(output)
        if output.kind in ("tuple", "list", "dict"):
            items = [self.value(item, depth + 1) for item in output.items]
            if output.kind == "dict":
                if len(output.keys) != len(items):
                    raise _NoValue("its keys do not fit its values")
                return dict(zip(output.keys, items, strict=True))
            return tuple(items) if output.kind == "tuple" else items
        if not output.dtype:  # a tensor of any class has one
            raise _NoValue(f"{output.kind} cannot be handed over; tensors can, also in tuples, lists and dicts")
        self.left -= output.nbytes
        if output.nbytes < 0 or self.left < 0:
            raise _NoValue("it is larger than any right result")
        if output.note:
            raise _NoValue(output.note)
        if output.dtype not in RESULT_DTYPES:
            raise _NoValue(f"no result is of {output.dtype}")
        if (tensor := viewed(output, self.buffer.read(output.offset, output.nbytes))) is None:
            raise _NoValue("its bytes do not fit its dtype and shape")
        return tensor.cpu() if output.device == "cpu" else tensor

    def plain(self, output: Output) -> bool | int | float | str:
        value = output.plain
        if output.kind == "float" and value in ("inf", "-inf", "nan"):
            return float(value)
        if value is None or type(value) is not PLAIN[output.kind]:
            raise _NoValue(f"it declares a {output.kind} and holds none")
        return value


def _type_name(kind: type) -> str:
    if kind is torch.Tensor:
        return "torch.Tensor"
    if kind is type(None):
        return "None"
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return name[:MAX_WORD_CHARS]
