"""The CUDA shim: the CPU in the place of "cuda", for code that names that device on machines that have none.

`install()` changes this process only, for its whole life: wherever torch is asked for a device "cuda" it takes the CPU,
and streams, events and waiting of torch.cuda are replaced by objects that work on the host. torch.cuda.is_available()
still says no. Whatever only GPUs have (their properties, their libraries, kernels compiled for them) is still missing.
Calls of torch are changed only in the thread that calls `install()`. Every tensor says that it is on the GPU that was
named or set last, or else on the one with this rank's number. Times that are measured with it say nothing: its purpose
is that a program runs.

Imports nothing of the harness: processes that are not the harness's load this file by its path.
"""

import contextlib
import os
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

CPU = torch.device("cpu")
SILENT = (  # functions of torch.cuda that have nothing to do on a CPU
    *("synchronize", "set_stream", "empty_cache", "reset_peak_memory_stats", "ipc_collect"),
    *("reset_max_memory_allocated", "reset_accumulated_memory_stats"),
)
RealGenerator = torch.Generator
WAITING = (  # operations that a capture refuses: their result's value or shape is needed on the host
    *(torch.ops.aten._local_scalar_dense, torch.ops.aten.nonzero, torch.ops.aten.masked_select),
    *(torch.ops.aten._unique2, torch.ops.aten.is_nonzero, torch.ops.aten.equal),
)


def is_cuda(device: object) -> bool:
    """Whether torch takes it for a CUDA device: "cuda", "cuda:1", torch.device("cuda"), 1."""
    if isinstance(device, torch.device):
        return device.type == "cuda"
    if isinstance(device, str):
        return device == "cuda" or device.startswith("cuda:")
    return type(device) is int


class Numbers:
    """The number of the current GPU, as torch.cuda.set_device sets it; and of the one that was named last."""

    current: int | None = None
    named: int | None = None

    @classmethod
    def set(cls, device: Any) -> None:
        """torch.cuda.set_device."""
        cls.current = cls.named = _number(device)

    @classmethod
    def of_process(cls, device: Any = None) -> int:
        """torch.cuda.current_device."""
        return cls.current if cls.current is not None else int(os.environ.get("LOCAL_RANK", "0"))

    @classmethod
    def of_tensors(cls) -> int:
        """Tensor.get_device."""
        return cls.named if cls.named is not None else cls.of_process()


def _number(device: Any) -> int | None:
    return device if type(device) is int else torch.device(device).index


def device_of(device: Any) -> Any:
    """The CPU for a CUDA device, any other device as it is."""
    if not is_cuda(device):
        return device
    number = _number(device)
    Numbers.named = Numbers.named if number is None else number
    return CPU


class CudaIsCpu(TorchFunctionMode):
    """While it is entered, calls of torch that name a CUDA device get the CPU."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if function in (torch.Tensor.cuda, torch.Tensor.pin_memory):
            return args[0]
        if function is torch.Tensor.record_stream:
            return None
        if function in (torch.Tensor.get_device, torch.get_device):
            return Numbers.of_tensors()
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
        """Milliseconds between the events, as torch has it."""
        return 1000 * (end.recorded_s - self.recorded_s)


class Recorder(TorchDispatchMode):
    """While it is entered, records the operations of torch that run. They run at once, since what follows needs their
    results; on leaving, memory that they wrote to has its earlier content again, as a capture does not run them."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations: list[tuple[Any, Any, Any, Any]] = []
        self.saved: dict[int, tuple[Any, Any]] = {}  # storages that were written to, and their earlier content

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        masks = [one for one in _tensors(args[1:]) if one.dtype is torch.bool]
        if function.overloadpacket in WAITING or (function is torch.ops.aten.index.Tensor and masks):
            raise RuntimeError(
                f"CUDA error: operation not permitted when stream is capturing ({function} makes the host wait)"
            )
        if function._schema.is_mutable:
            for tensor in _tensors((args, kwargs)):
                storage = tensor.untyped_storage()
                self.saved.setdefault(storage.data_ptr(), (storage, storage.clone()))
        result = function(*args, **kwargs)
        self.operations.append((function, args, kwargs, result))
        return result

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        for storage, content in self.saved.values():
            storage.copy_(content)

    def replay(self) -> None:
        """Runs the operations once more, on the same memory."""
        with torch.no_grad():
            for function, args, kwargs, result in self.operations:
                again = function(*args, **kwargs)
                for one in again if isinstance(again, tuple | list) else (again,):
                    if callable(getattr(one, "wait", None)):  # of a collective
                        one.wait()
                if any(returned.alias_info is not None for returned in function._schema.returns):
                    continue  # a view of memory, or memory that was written to
                if not str(function).startswith(("aten.empty", "aten.new_empty")):
                    for old, new in zip(_tensors(result), _tensors(again), strict=True):
                        old.detach().copy_(new)


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [tensor for item in value for tensor in _tensors(item)] if isinstance(value, tuple | list) else []


class CUDAGraph:
    """A graph whose replay runs the captured operations of torch on the CPU. Other code, such as a compiled library's,
    runs when it is captured and at no replay."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.recorder: Recorder | None = None

    def capture_begin(self, *arguments: Any, **named: Any) -> None:
        self.recorder = Recorder()
        self.recorder.__enter__()  # type: ignore[no-untyped-call]
        CUDAGraph.capturing = True

    def capture_end(self) -> None:
        CUDAGraph.capturing = False
        assert self.recorder is not None, "capture_begin comes first"
        self.recorder.__exit__(None, None, None)

    def replay(self) -> None:
        if self.recorder is None:
            raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
        self.recorder.replay()

    def reset(self) -> None:
        self.recorder = None

    def pool(self) -> tuple[int, int]:
        return (0, 0)

    def enable_debug_mode(self) -> None: ...
    def debug_dump(self, path: str) -> None: ...
    def register_generator_state(self, generator: Any) -> None: ...

    capturing = False  # whether any graph is being captured


class graph:  # torch.cuda.graph
    """Stands in for torch.cuda.graph: captures the calls of its context."""

    def __init__(self, cuda_graph: CUDAGraph, *arguments: Any, **named: Any) -> None:
        self.cuda_graph = cuda_graph

    def __enter__(self) -> None:
        self.cuda_graph.capture_begin()

    def __exit__(self, *error: object) -> None:
        self.cuda_graph.capture_end()


def install() -> None:
    """Replaces "cuda" by the CPU and NCCL by gloo in this process."""
    cuda: Any = torch.cuda
    for name in SILENT:
        setattr(cuda, name, _silent(name))
    for name in ("range_push", "range_pop", "mark"):
        setattr(cuda.nvtx, name, _silent(name))
    cuda.current_device, cuda.set_device = Numbers.of_process, Numbers.set
    cuda.Event, cuda.Stream = Event, Stream
    cuda.CUDAGraph = cuda.graphs.CUDAGraph = CUDAGraph
    cuda.graph = cuda.graphs.graph = graph
    cuda.graph_pool_handle = lambda: (0, 0)
    cuda.is_current_stream_capturing = lambda: CUDAGraph.capturing
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
