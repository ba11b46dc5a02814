"""What comes to a rank and what leaves it: the inputs and outputs of calls, in sealed files or in shared buffers."""

import contextlib
import functools
import json
import os
from collections.abc import Iterator
from typing import Any, cast

import torch

from harness.core.decode import DecodeError, decode
from harness.ranks import payload, wire
from harness.ranks.channel import Channel
from harness.ranks.device import Device
from harness.ranks.output_bounds import MAX_RANK
from harness.ranks.shared_buffer import (
    DeviceBuffer,
    FileBuffer,
    Flat,
    LeftInPlace,
    LoadedFile,
    SharedBuffer,
    new_file,
    seal,
    sealed_file,
)

Masked = list[tuple[torch.Tensor, int]]  # tensors with their places, see payload.mask
SMALL = torch.zeros(2)  # an input and an output by which rehearsals go
MOST_AHEAD_BYTES = 256 << 20  # of an input or output, that its memory is taken before the gate for


class Exchange:
    """A rank's end of it. On CPUs every input and output has a file of its own, which goes with a message; on GPUs they
    lie in buffers that a trusted rank made. `judged`: whether outputs go where trusted ranks look for them."""

    def __init__(self, channel: Channel, device: Device, judged: bool) -> None:
        self.channel, self.device, self.judged = channel, device, judged
        self.buffers: wire.Buffers | None = None  # those that are open
        self.input_buffer: SharedBuffer
        self.output_buffer: SharedBuffer
        self.to_send: list[int] = []  # files, before the next reply
        self.gated_file: FileBuffer | None = None  # for the output of a gated call
        self.input_nbytes = self.output_nbytes = 0  # of the last gated call's files
        self.room: torch.Tensor | None = None  # for the next gated call's input
        self.output_limit = 0  # bytes of one
        self.output_offset = 0  # where the next one goes

    def send_files(self) -> None:
        """Sends the files that belong to the next reply, and closes them."""
        files, self.to_send = self.to_send, []
        if files:
            self.channel.send_files(files)
        for fd in files:
            os.close(fd)

    @contextlib.contextmanager
    def next_file(self) -> Iterator[FileBuffer]:
        """The next of the files that came with messages; it is closed afterwards."""
        fd = self.channel.files.popleft()
        try:
            yield FileBuffer(fd)
        finally:
            os.close(fd)

    # ---- buffers

    def open_buffers(self, buffers: wire.Buffers) -> None:
        """Opens the trusted rank's buffers. A buffer that has not changed stays open."""
        before, self.buffers = self.buffers, buffers
        if before is None or before.inputs != buffers.inputs:
            if before is not None:
                self.input_buffer.close()
            self.input_buffer = self.device.buffer(buffers.inputs.nbytes, buffers.inputs.handle)
        if before is None or before.outputs != buffers.outputs:
            if before is not None:
                self.output_buffer.close()
            handle = buffers.outputs.handle if self.judged else ""
            self.output_buffer = self.device.buffer(buffers.outputs.nbytes, handle)

    def close_buffers(self) -> None:
        """Closes the trusted rank's buffers that are open here."""
        if self.buffers is not None:
            self.input_buffer.close()
            self.output_buffer.close()
        self.buffers = None

    # ---- inputs

    def read_input(self, made: wire.Input | None, masked: Masked | None = None) -> Any:
        """The input, out of the buffer or out of the next file that came; a gated call's has no message (None)."""
        if not self.device.has_files:
            return payload.read_input(self.input_buffer, made, masked)
        with self.next_file() as file:
            loaded, self.room = LoadedFile(file.fd, self.room), None
            self.input_nbytes = len(loaded.bytes)
            return payload.read_input(loaded, made, masked)

    def map_input(self, made: wire.Input, masked: Masked) -> Any:
        """The input of a stepped call, whose tensors lie in the buffer itself."""
        return payload.read_input(Flat(cast(DeviceBuffer, self.input_buffer).memory.bytes), made)

    # ---- outputs

    def expect_gated(self) -> None:
        """Makes the file for the output of a gated call ahead, and takes the memory of input and output, if they are
        as large as the last ones: the system clears it, which takes longer than the copying. Then reads an input and
        writes an output that nobody gets, so that the code and data of both are in the caches. Otherwise the next ones
        would take longer, and a submission that reads and writes in fewer steps could hide as much of its call."""
        reserved = self.output_nbytes if self.output_nbytes <= MOST_AHEAD_BYTES else 0
        self.gated_file = FileBuffer(new_file("output"), reserved)
        if 0 < self.input_nbytes <= MOST_AHEAD_BYTES:
            self.room = torch.empty(self.input_nbytes, dtype=torch.uint8, device="cpu").fill_(0)
        payload.read_input(LoadedFile(self.small_input), None)
        os.close(sealed_file("rehearsal", lambda buffer: write_described(buffer, SMALL, SMALL.nbytes))[0])

    @functools.cached_property
    def small_input(self) -> int:
        """A sealed file with a small input, for `expect_gated`."""
        return sealed_file("rehearsal", functools.partial(payload.write_input, offset=0, value=(SMALL,)))[0]

    def hand_over(self, result: Any) -> wire.Output:
        """Fixes what a call returned, so that nobody can change it afterwards."""
        if self.device.has_files:
            return self._hand_over_file(result)
        output = payload.write_output(self.output_buffer, self.output_offset, result, self.output_limit)
        self.output_offset = payload.aligned(self.output_offset + output.nbytes)
        return output

    def leave(self, result: Any) -> wire.Output:
        """Says where a stepped call's result lies. What another process cannot read is copied, behind the call."""
        if self.buffers is None:  # nothing was loaded: an empty call
            return wire.NO_OUTPUT
        buffer = LeftInPlace(self.input_buffer, self.output_buffer)
        return payload.write_output(buffer, 0, result, self.output_limit)

    def _hand_over_file(self, result: Any) -> wire.Output:
        """Sends the output's file, until which the parent's clock runs: all that can be done later is."""
        if self.gated_file is None:
            file, output = sealed_file("output", lambda buffer: write_described(buffer, result, self.output_limit))
            self.to_send.append(file)
            return output
        buffer, self.gated_file = self.gated_file, None
        output = write_described(buffer, result, self.output_limit)
        self.output_nbytes = buffer.end
        seal(buffer.fd)
        self.to_send.append(buffer.fd)
        self.send_files()
        return output


def write_described(buffer: FileBuffer, result: Any, limit: int) -> wire.Output:
    """Writes the output into an empty file and its description behind it: a description that came later could still be
    chosen then. One plain tensor, which most calls return, takes the fewest steps, since a submission that writes in
    fewer could hide as much of its call."""
    is_plain = type(result) is torch.Tensor and _is_plain(result) and result.nbytes <= limit
    if is_plain and (plain := _of_plain(result.dtype, result.shape)) is not None:
        buffer.fill(result, plain[1])
        return plain[0]
    output = payload.write_output(buffer, 0, result, limit)
    buffer.append(_as_json(output))
    return output


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether its bytes are its values, one behind the other."""
    is_strided = tensor.layout is torch.strided and tensor.is_contiguous()
    return tensor.is_cpu and is_strided and not (tensor.requires_grad or tensor.is_conj() or tensor.is_neg())


@functools.lru_cache
def _of_plain(dtype: torch.dtype, shape: torch.Size) -> tuple[wire.Output, bytes] | None:
    """The description of a plain tensor, as a record and as JSON; None if no result may have that dtype or shape."""
    if str(dtype) not in payload.RESULT_DTYPES or len(shape) > MAX_RANK:
        return None
    nbytes = shape.numel() * dtype.itemsize
    output = wire.Output(
        kind="torch.Tensor", dtype=str(dtype), shape=tuple(shape), device="cpu", offset=0, nbytes=nbytes
    )
    return output, _as_json(output)


def _as_json(output: wire.Output) -> bytes:
    return json.dumps(output, default=vars).encode()  # as core.decode's encode, in half the time


def described(buffer: FileBuffer) -> wire.Output:
    """The description that an untrusted rank wrote behind an output in its file."""
    try:
        return decode(wire.Output, json.loads(buffer.appended(wire.MAX_FRAME_BYTES)))
    except (EOFError, DecodeError, ValueError, RecursionError):
        return wire.Output(kind="an output that nothing describes", dtype="", shape=(), device="", offset=0, nbytes=0)
