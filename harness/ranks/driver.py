"""The few calls of the CUDA driver, or of HIP, that torch does not offer, by ctypes: memory that two processes share,
host memory that a device reads and writes, words by which a stream waits and tells, a kernel that waits for such a
word, and the reset of persisting L2 lines.

CUDA's driver API and HIP have these under other names with the same arguments (HIP: hip_runtime_api.h), except that
HIP has no persisting L2, waits for words otherwise, and has no such kernel here. The HIP side has not run on an AMD
machine.
"""

import ctypes
from functools import cache

import torch

HIP = torch.version.hip is not None
LIBRARY = "libamdhip64.so" if HIP else "libcuda.so.1"
NAMES = {  # what for: CUDA's name, HIP's name
    "alloc": ("cuMemAlloc_v2", "hipMalloc"),
    "free": ("cuMemFree_v2", "hipFree"),
    "ipc_get": ("cuIpcGetMemHandle", "hipIpcGetMemHandle"),
    "ipc_open": ("cuIpcOpenMemHandle_v2", "hipIpcOpenMemHandle"),
    "ipc_close": ("cuIpcCloseMemHandle", "hipIpcCloseMemHandle"),
    "host_register": ("cuMemHostRegister_v2", "hipHostRegister"),
    "host_pointer": ("cuMemHostGetDevicePointer_v2", "hipHostGetDevicePointer"),
    "synchronize": ("cuCtxSynchronize", "hipDeviceSynchronize"),
    "address_range": ("cuMemGetAddressRange_v2", "hipMemGetAddressRange"),
    "stream_wait": ("cuStreamWaitValue32_v2", "hipStreamWaitValue32"),
    "stream_write": ("cuStreamWriteValue32_v2", "hipStreamWriteValue32"),
    "load": ("cuModuleLoadData", "hipModuleLoadData"),
    "function": ("cuModuleGetFunction", "hipModuleGetFunction"),
    "launch": ("cuLaunchKernel", "hipModuleLaunchKernel"),
}
PORTABLE_AND_MAPPED = 0x3
LAZY_PEER_ACCESS = 0x1  # of ipc_open
HANDLE_BYTES = 64
OUT_OF_MEMORY = 2  # of CUresult and of hipError_t
UNTIL_AT_LEAST, PLAIN_WRITE = 0, 0  # flags of stream_wait and stream_write
# One thread that first sets a word to a value, if there is one to set, and ends once another word has come to that
# value or passed it, as stream_wait has it. The driver compiles it; by Triton, as device_barrier is, it would take
# every rank the time to import that.
GATE = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry gate(.param .u64 told, .param .u64 word, .param .u32 value)
{
    .reg .u64 %to, %at;
    .reg .u32 %wanted, %seen;
    .reg .s32 %left;
    .reg .pred %tells, %early;
    ld.param.u64 %to, [told];
    ld.param.u64 %at, [word];
    ld.param.u32 %wanted, [value];
    setp.ne.u64 %tells, %to, 0;
    @%tells st.release.sys.global.u32 [%to], %wanted;
again:
    ld.acquire.sys.global.u32 %seen, [%at];
    sub.s32 %left, %seen, %wanted;
    setp.lt.s32 %early, %left, 0;
    @%early bra again;
    ret;
}
"""


class Handle(ctypes.Structure):
    """An IPC handle, passed by value."""

    _fields_ = (("data", ctypes.c_ubyte * HANDLE_BYTES),)


class DriverError(RuntimeError):
    """A driver call failed; the number is CUresult or hipError_t."""

    def __init__(self, name: str, number: int) -> None:
        super().__init__(f"{name} failed with {number}")
        self.number = number


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(LIBRARY)


def _call(what: str, *arguments: object) -> None:
    name = NAMES[what][HIP]
    result = getattr(_library(), name)(*arguments)
    if result != 0:
        raise DriverError(name, result)


class SharedMemory:
    """Device memory that another process can open by its handle (hex), as bytes: a uint8 tensor over it."""

    def __init__(self, nbytes: int, device: torch.device, handle: str = "") -> None:
        """Allocates, or opens the memory that `handle` names, which another process allocated on this device. `nbytes`
        is 0 if the size is the owner's to know."""
        self.nbytes, self.owner = nbytes, not handle
        self.pointer = ctypes.c_uint64()
        if self.owner:
            try:
                _call("alloc", ctypes.byref(self.pointer), ctypes.c_size_t(nbytes))
            except DriverError as error:
                if error.number == OUT_OF_MEMORY:  # in torch's words, which are understood wherever memory is taken
                    raise torch.OutOfMemoryError(f"Tried to allocate {nbytes / 2**30:.2f} GiB") from None
                raise
            self.handle = ipc_handle(int(self.pointer.value or 0))
        else:
            self.handle = handle
            named = Handle.from_buffer_copy(bytes.fromhex(handle))
            _call("ipc_open", ctypes.byref(self.pointer), named, ctypes.c_uint(LAZY_PEER_ACCESS))
            self.nbytes = nbytes = nbytes or address_range(int(self.pointer.value or 0))[1]
        # torch takes any object that has this attribute, without a copy
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (self.pointer.value, False),
            "version": 3,
        }
        self.bytes = torch.as_tensor(self, device=device)

    def close(self) -> None:
        """The tensor must not be used any more."""
        del self.bytes
        _call("free" if self.owner else "ipc_close", self.pointer)


def ipc_handle(base: int) -> str:
    """The handle (hex) of the allocation that begins at this address. Raises DriverError for memory of another kind."""
    own = Handle()
    _call("ipc_get", ctypes.byref(own), ctypes.c_uint64(base))
    return bytes(own.data).hex()


def address_range(address: int) -> tuple[int, int]:
    """The start and the size in bytes of the allocation that holds this address. Raises DriverError if there is
    none."""
    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    _call("address_range", ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(address))
    return int(base.value or 0), size.value


def stream_wait(stream: int, address: int, value: int) -> None:
    """Makes the stream's next work wait until the 32-bit word at `address` is `value`."""
    numbers = ctypes.c_void_p(stream), ctypes.c_uint64(address), ctypes.c_uint32(value)
    _call("stream_wait", *numbers, ctypes.c_uint(UNTIL_AT_LEAST))


def stream_write(stream: int, address: int, value: int) -> None:
    """When all that was queued on the stream is done, the device sets the 32-bit word at `address` to `value`."""
    numbers = ctypes.c_void_p(stream), ctypes.c_uint64(address), ctypes.c_uint32(value)
    _call("stream_write", *numbers, ctypes.c_uint(PLAIN_WRITE))


class Gate:
    """The kernel of GATE, loaded on this process's device."""

    def __init__(self) -> None:
        self.function, module = ctypes.c_void_p(), ctypes.c_void_p()
        _call("load", ctypes.byref(module), GATE)
        _call("function", ctypes.byref(self.function), module, b"gate")

    def wait(self, stream: int, address: int, value: int, tell: int = 0) -> None:
        """As stream_wait, but always equally long behind the word, within 0.5 us: a stream's own wait ends up to 8 us
        later. While a device runs this kernel it runs no other process's. When it begins, it sets the word at `tell` to
        the value, if that is an address."""
        values = ctypes.c_uint64(tell), ctypes.c_uint64(address), ctypes.c_uint32(value)
        arguments = (ctypes.c_void_p * 3)(*(ctypes.cast(ctypes.byref(one), ctypes.c_void_p) for one in values))
        one_thread = [ctypes.c_uint(1)] * 6
        _call("launch", self.function, *one_thread, ctypes.c_uint(0), ctypes.c_void_p(stream), arguments, None)


def synchronize() -> None:
    """Waits until all work of this process on its device is done. torch's does the same in twice the time."""
    _call("synchronize")


def register_host(address: int, nbytes: int) -> int:
    """Makes the host's memory readable for the device. Returns its address there."""
    _call("host_register", ctypes.c_void_p(address), ctypes.c_size_t(nbytes), ctypes.c_uint(PORTABLE_AND_MAPPED))
    pointer = ctypes.c_uint64()
    _call("host_pointer", ctypes.byref(pointer), ctypes.c_void_p(address), ctypes.c_uint(0))
    return int(pointer.value or 0)


def reset_persisting_l2() -> None:
    """Releases the lines that a kernel asked the L2 to keep, so that a flush evicts them too."""
    if not HIP:
        _library().cuCtxResetPersistingL2Cache()
