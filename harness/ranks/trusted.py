"""The trusted ranks' program: they make inputs and judge outputs."""

import functools
import importlib
import itertools
import math
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from harness.core.records import Params, Verdict, Verdicts
from harness.core.words import both_ends, cut_line
from harness.ranks import driver, payload, peaks, strict_check, torch_settings, wire
from harness.ranks.channel import Channel
from harness.ranks.device import Device
from harness.ranks.exchange import Exchange, described
from harness.ranks.program import MAX_MESSAGE_CHARS, Program, output_limit
from harness.ranks.shared_buffer import DeviceBuffer, FileBuffer, SharedBuffer, Source, sealed_file
from harness.ranks.steps import BACK, COPY, WRITE
from harness.ranks.taking import Taking, as_integers, taking, warm

MOST_KEPT_EXPECTED = 1 << 30  # bytes of a right result, which takes several times as much in higher precision
NO_BUFFER = wire.BufferHandle(nbytes=-1, handle="")
OUTPUT_PARTS = 16  # of an output, each of which begins at an address of its own
BUFFER_STEP_BYTES = 2 << 20  # the page of a GPU's memory


class TrustedExchange(Exchange):
    """A trusted rank's end: it makes the buffers that other ranks open."""

    def __init__(self, channel: Channel, device: Device, judged: bool) -> None:
        super().__init__(channel, device, judged)
        self.made: list[SharedBuffer] = []
        self.opened: dict[str, driver.SharedMemory] = {}  # of other ranks, where stepped calls left their outputs

    def make_room(self, input_nbytes: int, output_nbytes: int) -> None:
        """Makes the buffers at least that large; each grows by itself."""
        had = self.buffers or wire.Buffers(inputs=NO_BUFFER, outputs=NO_BUFFER)
        inputs, outputs = had.inputs, had.outputs
        if input_nbytes > inputs.nbytes:
            self.input_buffer, inputs = self._new_buffer(input_nbytes)
        if output_nbytes > outputs.nbytes:
            self.output_buffer, outputs = self._new_buffer(output_nbytes)
        self.buffers = wire.Buffers(inputs=inputs, outputs=outputs)

    def _new_buffer(self, nbytes: int) -> tuple[SharedBuffer, wire.BufferHandle]:
        """A buffer of at least `nbytes`. It is kept until all are renewed: other ranks may still have it open."""
        size = nbytes + -nbytes % BUFFER_STEP_BYTES
        self.device.release(wait=False)
        made = self.device.buffer(size, "")
        self.made.append(made)
        return made, wire.BufferHandle(nbytes=size, handle=made.handle)

    def open_buffers(self, buffers: wire.Buffers) -> None:
        raise AssertionError("a trusted rank made its buffers itself")

    def close_buffers(self) -> None:
        self.close_opened()
        for buffer in self.made:
            buffer.close()
        self.made, self.buffers = [], None

    def close_opened(self) -> None:
        """Closes other ranks' memory: memory that they free stays allocated as long as it is open here."""
        for memory in self.opened.values():
            memory.close()
        self.opened = {}

    def memory(self, name: str) -> Tensor | None:
        """All bytes of what wire.Output names as its memory."""
        if name in ("", wire.INPUT_MEMORY):
            return cast(DeviceBuffer, self.input_buffer if name else self.output_buffer).memory.bytes
        try:
            if name not in self.opened:
                self.opened[name] = driver.SharedMemory(0, cast(torch.device, self.device.id), name)
            return self.opened[name].bytes
        except (driver.DriverError, ValueError):  # no process has such memory
            return None


class Trusted(Program):
    """Makes inputs and judges outputs."""

    def __init__(self, order: wire.RankOrder, fds: dict[str, int]) -> None:
        super().__init__(order, fds)
        self.exchange: TrustedExchange = TrustedExchange(self.channel, self.device, self.judged)
        self.device.save_memory()
        self.reference: Any = None
        self.made: list[Any] = []  # what the candidate got, out of its reach
        self.taken: list[Any] = []  # outputs, by `take`
        self.stepped: list[Taking] = []  # outputs of stepped calls that are still to be taken
        self.rooms: list[Tensor] = []  # for them, and the last one for those that nobody judges
        self.limit = 0  # bytes of one
        self.params: Params | None = None
        self.known: tuple[int, Any] | None = None  # the last input whose right result was found, and that result
        self.expected_nbytes = self.first_nbytes = 0  # of the right result for the first input of these, and of that
        self.commands |= {
            wire.MakeInputs: self.make_inputs,
            wire.TakeOutputs: self.take_outputs,
            wire.Serve: self.serve_call,
            wire.Verify: self.verify,
            "measure_peaks": self.measure_peaks,
        }

    def import_kernel(self, command: wire.ImportKernel) -> wire.Reply:
        sys.path.insert(0, self.order.workdir)
        torch_settings.evaluator(Path(self.order.workdir))
        self.reference = importlib.import_module("reference")
        if self.device.id is not None:
            warm(self.device.id)
            self.device.evict()
        return wire.Imported(device=self.device.name(), settings=torch_settings.current())

    def make_inputs(self, command: wire.MakeInputs) -> wire.Reply:
        self.made, self.taken, self.stepped, self.rooms, self.known = [], [], [], [], None
        if command.renew:
            self.exchange.close_buffers()
        offsets = [0]
        for spec in command.inputs:
            with self.default_device():
                self.made.append(self.make_input(command.params, spec))
            offsets.append(payload.end_of(self.made[-1], offsets[-1]))
        if command.params != self.params:  # collective, as all that references do: every rank comes here
            with self.default_device():
                self.params, self.expected_nbytes = command.params, self.nbytes_of(self.expected(0))
            if self.expected_nbytes > MOST_KEPT_EXPECTED:
                self.known = None  # as after a verdict
            self.first_nbytes = max(1, offsets[1])
        largest = max(end - start for start, end in itertools.pairwise(offsets))
        grown = max(1.0, largest / self.first_nbytes)
        limit = output_limit(math.ceil(self.expected_nbytes * grown))
        if command.stepped:  # one after the other, in the same place
            self.exchange.make_room(largest, limit)
            nbytes = min(limit, self.expected_nbytes + OUTPUT_PARTS * payload.ALIGN_BYTES)
            self.rooms = [
                torch.empty(nbytes, dtype=torch.uint8, device=self.device.id)
                for _ in range(len(self.made) * command.judged + 1)
            ]
        elif not self.device.has_files:
            self.exchange.make_room(offsets[-1], len(self.made) * limit)
        self.limit = limit
        keys = [spec.key for spec in command.inputs]
        inputs = list(
            map(payload.describe_input, self.made) if command.stepped else map(self.written, offsets, self.made, keys)
        )
        if (nbytes := sum(len(made.tree) for made in inputs)) > wire.MAX_FRAME_BYTES // 2:
            raise ValueError(
                f"{nbytes} bytes of these inputs are in no tensor, for which there is no room; put them in tensors"
            )
        self.device.release()
        spare = self.device.spare_bytes()
        return wire.InputsMade(
            inputs=tuple(inputs), buffers=self.exchange.buffers, output_limit=limit, spare_bytes=spare
        )

    def yield_memory(self, command: wire.Yield) -> None:
        self.exchange.close_opened()

    def written(self, offset: int, data: Any, key: int) -> wire.Input:
        """The input as other ranks get it: in the buffer at that offset, or in a file that goes before the reply."""
        if not self.device.has_files:
            return payload.write_input(self.exchange.input_buffer, offset, data, key)
        file, made = sealed_file("input", functools.partial(payload.write_input, offset=0, value=data, key=key))
        self.exchange.to_send.append(file)
        return made

    def make_input(self, params: Params, spec: wire.InputSpec) -> Any:
        where = {"rank": self.order.rank, "world_size": self.order.world_size, "seed": spec.seed}
        data = self.reference.generate_input(**params, **where)
        return self.reference.harden(data, spec.seed) if spec.hardened else data

    def default_device(self) -> AbstractContextManager[object]:
        """The device on which references make tensors. Not set in timed calls: it slows down every call of torch."""
        return nullcontext() if self.device.id is None else torch.device(self.device.id)

    def take_outputs(self, command: wire.TakeOutputs) -> None:
        taken = []  # kept until all are taken, so that it takes as long whether they are judged or not
        for output in command.outputs:
            with self.source() as source:
                taken.append(self.take(source, described(source) if isinstance(source, FileBuffer) else output))
        if command.judged:
            self.taken += taken
            self.returned = _again(taken[-1][1]) if self.device.has_files else None  # by an idle call

    def source(self) -> AbstractContextManager[SharedBuffer]:
        """The memory or file that holds the next output."""
        return self.exchange.next_file() if self.device.has_files else nullcontext(self.exchange.output_buffer)

    def take(self, source: Source, output: wire.Output) -> Any:
        """The output as declared, and a copy of its bytes, at most a right one's: they take this rank's memory."""
        return output, strict_check.read(source, output, self.limit)

    def serve_call(self, command: wire.Serve) -> None:
        """Queues the steps around a call. Whatever may wait for the device is done first: behind the words of a step,
        the device waits for the parent."""
        device, exchange = self.device, self.exchange
        if command.put == -1:
            device.await_clearing()
        if command.put is not None:
            parts = payload.parts_of(self.made[command.put]) if command.put >= 0 else []
            device.forget_caches()
        if command.take is not None:
            room = functools.partial(self.room, judged=command.judged)
            taken = taking(command.take, exchange.memory, self.limit, room)
            self.stepped += [taken] * command.judged
        if command.put is not None:  # -1: a look whether others have anything to run, so none may be kept from it
            device.between(WRITE, functools.partial(self.put, parts), command.epoch, is_alone=command.put >= 0)
        if command.take is not None:
            device.between(COPY, taken.copy, command.epoch, switched=BACK)

    def room(self, nbytes: int, judged: bool) -> Tensor:
        """Memory for an output that stays until it is judged, or for one that is overwritten by the next. It is made
        with the inputs, since making it would take time that passes around a call."""
        rooms = self.rooms[:-1] if judged else self.rooms[-1:]
        found = next((one for one in rooms if len(one) >= nbytes), None)
        if found is None:
            return torch.empty(nbytes, dtype=torch.uint8, device=self.device.id)
        if judged:
            self.rooms = [one for one in self.rooms if one is not found]
        return found

    def put(self, parts: Sequence[tuple[Tensor, int]]) -> None:
        """Writes an input's tensors to the buffer, and evicts it from the caches."""
        for tensor, place in parts:
            source = as_integers(tensor.reshape(-1).view(torch.uint8))
            into = cast(DeviceBuffer, self.exchange.input_buffer).view(place, tuple(source.shape), source.dtype)
            torch.bitwise_or(source, 0, out=cast(Tensor, into))
        self.device.evict()

    def verify(self, command: wire.Verify) -> wire.Reply:
        self.taken += [self.take(one.into, one.output) for one in self.stepped]
        self.stepped = []
        with self.default_device():
            verified = self.verified(command)
        if command.last:
            if self.expected_nbytes > MOST_KEPT_EXPECTED:
                self.known = None  # others need the memory while they are on turn
            self.device.release(wait=False)  # inputs are made before the next timed call
        verdicts = verified.verdicts
        return replace(verified, verdicts=Verdicts(strict=bounded(verdicts.strict), gpumode=bounded(verdicts.gpumode)))

    def expected(self, index: int) -> Any:
        if self.known is None or self.known[0] != index:
            self.known = None  # first, so that two never need memory at once
            self.known = (index, self.right_result(self.made[index]))
        return self.known[1]

    def right_result(self, data: Any) -> Any:
        """The result that outputs are judged against."""
        return self.reference.exact_kernel(data)

    def nbytes_of(self, expected: Any) -> int:
        """The room that an output like this right result takes."""
        return strict_check.nbytes_of(expected)

    def verified(self, command: wire.Verify) -> wire.Verified:
        declared, values = self.taken[command.taken]
        # Both are collective: every rank computes them, whatever its own output looks like.
        expected = self.expected(command.index)
        strict = strict_check.judged(declared, values, expected, self.device.kind)
        gpumode = Verdict(passed=True)
        if command.published:
            data = payload.copied(self.made[command.index])  # since a reference may write its result into its input
            checked = strict_check.for_check(declared, values, expected, self.device.kind)
            passed, message = told(self.reference.check_implementation(data, checked))
            gpumode = Verdict(
                passed=bool(passed), message="" if passed else str(message), note=str(message or "") if passed else ""
            )
        return wire.Verified(verdicts=Verdicts(strict=strict, gpumode=gpumode))

    def measure_peaks(self, command: wire.Do) -> wire.Reply:
        device, group_folder = self.device.id or torch.device("cpu"), Path(self.order.workdir).parent
        order = self.order
        return peaks.measure(order.rank, order.world_size, order.local_size, device, group_folder)


def told(found: Any) -> tuple[Any, Any]:
    """What check_implementation returned, as a pair. ValueError where it is none."""
    if not isinstance(found, tuple | list) or len(found) != 2:
        raise ValueError(f"check_implementation returned {cut_line(repr(found), 80)}; it must return (right, message)")
    return found[0], found[1]


def bounded(verdict: Verdict) -> Verdict:
    """The verdict, with no more text than a reply has room for: a check may repeat what an output says of itself."""
    message, note = (both_ends(text, MAX_MESSAGE_CHARS) for text in (verdict.message, verdict.note))
    return replace(verdict, message=message, note=note)


def _again(value: Any) -> Any:
    """The value of an output as an idle call hands it over: a result of one part as that part."""
    return value[0] if isinstance(value, tuple) and len(value) == 1 else value
