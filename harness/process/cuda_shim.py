"""The CUDA shim: the CPU in the place of "cuda", for code that names that device on machines that have none.

`install()` changes this process only, for its whole life: wherever torch is asked for a device "cuda" it takes the CPU,
and streams, events and waiting of torch.cuda are replaced by objects that work on the host. torch.cuda.is_available()
still says no. Whatever only GPUs have (their properties, their libraries, kernels compiled for them) is still missing.
Calls of torch are changed only in the thread that calls `install()`. Times that are measured with it say nothing: its
purpose is that a program runs.

Imports nothing of the harness: processes that are not the harness's load this file by its path.
"""

import contextlib
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode

CPU = torch.device("cpu")
SILENT = (  # functions of torch.cuda that have nothing to do on a CPU
    *("synchronize", "set_device", "set_stream", "empty_cache", "reset_peak_memory_stats", "ipc_collect"),
    *("reset_max_memory_allocated", "reset_accumulated_memory_stats"),
)
RealGenerator = torch.Generator


def is_cuda(device: object) -> bool:
    """Whether torch takes it for a CUDA device: "cuda", "cuda:1", torch.device("cuda"), 1."""
    if isinstance(device, torch.device):
        return device.type == "cuda"
    if isinstance(device, str):
        return device == "cuda" or device.startswith("cuda:")
    return type(device) is int


def device_of(device: Any) -> Any:
    """The CPU for a CUDA device, any other device as it is."""
    return CPU if is_cuda(device) else device


class CudaIsCpu(TorchFunctionMode):
    """While it is entered, calls of torch that name a CUDA device get the CPU."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if function in (torch.Tensor.cuda, torch.Tensor.pin_memory):
            return args[0]
        if function is torch.Tensor.record_stream:
            return None
        if "device" in kwargs:
            kwargs["device"] = device_of(kwargs["device"])
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        if function is torch.Tensor.to and len(args) > 1:
            args = (args[0], device_of(args[1]), *args[2:])
        return function(*args, **kwargs)


class _IsGenerator(type):
    def __instancecheck__(cls, found: object) -> bool:
        return isinstance(found, RealGenerator)


class Generator(metaclass=_IsGenerator):
    """torch.Generator, always on the CPU."""

    def __new__(cls, device: Any = "cpu") -> Any:
        return RealGenerator(device=device_of(device))


class Stream:
    """A stream whose work is complete as soon as it is submitted."""

    device = CPU
    cuda_stream = 0

    def __init__(self, *arguments: Any, **named: Any) -> None: ...
    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *error: object) -> None: ...
    def synchronize(self) -> None: ...
    def wait_stream(self, stream: Any) -> None: ...
    def wait_event(self, event: Any) -> None: ...
    def query(self) -> bool:
        return True

    def record_event(self, event: Any = None) -> Any:
        event = event or Event()
        event.record()
        return event


class Event:
    """An event that reads the host's clock."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.recorded_s = 0.0

    def record(self, stream: Any = None) -> None:
        self.recorded_s = time.perf_counter()

    def wait(self, stream: Any = None) -> None: ...
    def synchronize(self) -> None: ...
    def query(self) -> bool:
        return True

    def elapsed_time(self, end: "Event") -> float:
        """Milliseconds, as torch's."""
        return 1000 * (end.recorded_s - self.recorded_s)


def install() -> None:
    """Replaces "cuda" by the CPU and NCCL by gloo in this process."""
    cuda: Any = torch.cuda
    for name in SILENT:
        setattr(cuda, name, _silent(name))
    for name in ("range_push", "range_pop", "mark"):
        setattr(cuda.nvtx, name, _silent(name))
    cuda.current_device = lambda: 0
    cuda.Event, cuda.Stream = Event, Stream
    cuda.current_stream = lambda device=None: Stream()
    cuda.default_stream = lambda device=None: Stream()
    cuda.stream = lambda stream: contextlib.nullcontext()
    cuda.device = lambda device: contextlib.nullcontext()
    torch.Generator = Generator  # type: ignore[misc]
    for name, wrap in (("init_process_group", _init), ("new_group", _new_group), ("barrier", _barrier)):
        wrapped = wrap(getattr(dist, name))
        setattr(dist, name, wrapped)
        setattr(dist.distributed_c10d, name, wrapped)
    CudaIsCpu().__enter__()  # type: ignore[no-untyped-call]  # for good


def _silent(name: str) -> Callable[..., None]:
    """A function that does nothing. Each name needs one of its own: torch._dynamo looks its rules up by function, and
    refuses to be imported where one function stands under names with different rules."""

    def nothing(*arguments: Any, **named: Any) -> None:
        """Done already."""

    nothing.__name__ = nothing.__qualname__ = name
    return nothing


def _backend(name: Any) -> Any:
    return "gloo" if isinstance(name, str) and "nccl" in name else name


def _init(real: Callable[..., Any]) -> Callable[..., Any]:
    def init_process_group(backend: Any = None, *arguments: Any, **named: Any) -> Any:
        if is_cuda(named.get("device_id")):
            del named["device_id"]
        return real(_backend(backend), *arguments, **named)

    return init_process_group


def _new_group(real: Callable[..., Any]) -> Callable[..., Any]:
    def new_group(ranks: Any = None, timeout: Any = None, backend: Any = None, *arguments: Any, **named: Any) -> Any:
        return real(ranks, timeout, _backend(backend), *arguments, **named)

    return new_group


def _barrier(real: Callable[..., Any]) -> Callable[..., Any]:
    def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Any:
        return real(group, async_op)

    return barrier
