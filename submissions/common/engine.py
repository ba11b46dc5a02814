"""Sending by a copy engine: this rank's data go into other ranks' blocks of the heap while all multiprocessors work on
something else.

Each copy is followed by a flag at the receiver (see heap), which kernels wait for by `signals.wait`, and streams by
`wait`. Everything is queued and returns at once; copies follow each other, so that each has the links to itself. On 4x
H200 an engine fills them as well as stores do, with copies of megabytes (docs/kernels.md).
"""

import ctypes
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
from common.driver import LIBCUDA
from common.heap import LINE_BYTES, Heap, Turn
from torch import Tensor

COUNTS = 1024  # at most of a call

_engines: dict[torch.device, "CopyEngine"] = {}


def copy_engine(heap: Heap) -> "CopyEngine":
    """This process's, for that heap's device."""
    if heap.device not in _engines:
        _engines[heap.device] = (CpuEngine if heap.device.type == "cpu" else GpuEngine)(heap)
    return _engines[heap.device]


class CopyEngine:
    """A queue of copies beside the current stream. Flags are numbered within a turn.

    `counts`, int32 on the device, is where kernels say how far they have come (signals.count_up). They only grow."""

    def __init__(self, heap: Heap) -> None:
        self.heap = heap
        self.counts = torch.zeros(COUNTS, dtype=torch.int32, device=heap.device)
        self.counted = [0] * COUNTS  # what they come to by what has been launched so far

    def follow(self) -> None:
        """What is sent from now on is read once all that the current stream was given so far is done."""

    def follow_count(self, place: int, more: int) -> None:
        """What is sent from now on is read once a kernel has added that many more to the count at `place`."""
        raise NotImplementedError

    def send(self, source: Tensor, peer: int, turn: Turn, offset: int, flag: int) -> None:
        """Copies a contiguous tensor into the block of `peer`, `offset` bytes behind the beginning of the turn's share,
        and sets the flag there. The tensor may be overwritten, or freed, after `join`."""
        raise NotImplementedError

    def wait(self, turn: Turn, flag: int) -> None:
        """What the current stream is given from now on begins once this flag of this rank is set."""
        raise NotImplementedError

    def join(self) -> None:
        """What the current stream is given from now on begins once all that was sent so far has left."""

    def overlap(self, launch: Callable[[], None], send: Callable[[], None]) -> None:
        """Launches a kernel on the current stream, which may wait for other ranks' copies, and sends this rank's."""
        raise NotImplementedError


class GpuEngine(CopyEngine):
    """A stream of copies, by CUDA's driver, since torch takes several times as long for each. AMD's has the same calls,
    but waits for a flag only in memory of a kind that the heap is not of."""

    def __init__(self, heap: Heap) -> None:
        super().__init__(heap)
        self.stream = torch.cuda.Stream(heap.device)
        self.driver = ctypes.CDLL(LIBCUDA)
        self.follow()  # for the counts, which are 0 from then on

    def follow(self) -> None:
        self.stream.wait_stream(torch.cuda.current_stream())

    def follow_count(self, place: int, more: int) -> None:
        self.counted[place] += more
        address = self.counts.data_ptr() + 4 * place
        self._value("cuStreamWaitValue32_v2", self.stream, address, self.counted[place])

    def send(self, source: Tensor, peer: int, turn: Turn, offset: int, flag: int) -> None:
        addresses = (self.heap.addresses[peer] + turn.offset + offset, source.data_ptr(), source.nbytes)
        self._call("cuMemcpyDtoDAsync_v2", *map(ctypes.c_uint64, addresses), ctypes.c_void_p(self.stream.cuda_stream))
        self._flag("cuStreamWriteValue32_v2", self.stream, peer, turn, flag)

    def wait(self, turn: Turn, flag: int) -> None:
        self._flag("cuStreamWaitValue32_v2", torch.cuda.current_stream(), self.heap.rank, turn, flag)

    def join(self) -> None:
        torch.cuda.current_stream().wait_stream(self.stream)

    def overlap(self, launch: Callable[[], None], send: Callable[[], None]) -> None:
        """The kernel first: it has something to do until the first copy has come, and the device would stand still
        while the host submits copies. They begin beside it even where all streams share one queue of the driver
        (CUDA_DEVICE_MAX_CONNECTIONS=1 on 4x H200), as copies have queues of their own."""
        launch()
        send()
        self.join()

    def _flag(self, what: str, stream: torch.cuda.Stream, peer: int, turn: Turn, flag: int) -> None:
        self._value(what, stream, self.heap.addresses[peer] + turn.flags + flag * LINE_BYTES, turn.epoch)

    def _value(self, what: str, stream: torch.cuda.Stream, address: int, value: int) -> None:
        """Writes the word of 32 bits, or waits until it is no less: by the sign of the difference, so that what is
        counted may run over."""
        word = (ctypes.c_uint64(address), ctypes.c_uint32(value), ctypes.c_uint(0))
        self._call(what, ctypes.c_void_p(stream.cuda_stream), *word)

    def _call(self, what: str, *arguments: object) -> None:
        if error := getattr(self.driver, what)(*arguments):
            raise RuntimeError(f"{what} failed (error {error})")


class CpuEngine(CopyEngine):
    """The same for interpreted kernels. What it is asked for is done at once; in `overlap` by a thread, as a launch
    returns when its kernel has ended."""

    def follow_count(self, place: int, more: int) -> None:
        self.counted[place] += more
        while self.counts[place].item() < self.counted[place]:
            time.sleep(0.0001)

    def send(self, source: Tensor, peer: int, turn: Turn, offset: int, flag: int) -> None:
        self.heap.view(peer, turn.offset + offset, source.dtype, tuple(source.shape)).copy_(source)
        self._flag(peer, turn, flag).fill_(turn.epoch)

    def wait(self, turn: Turn, flag: int) -> None:
        while self._flag(self.heap.rank, turn, flag).item() < turn.epoch:
            time.sleep(0.0001)

    def overlap(self, launch: Callable[[], None], send: Callable[[], None]) -> None:
        with ThreadPoolExecutor(1) as queue:
            sent = queue.submit(send)
            launch()
            sent.result()

    def _flag(self, peer: int, turn: Turn, flag: int) -> Tensor:
        return self.heap.view(peer, turn.flags + flag * LINE_BYTES, torch.int32, (1,))
