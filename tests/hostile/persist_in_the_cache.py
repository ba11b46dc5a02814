"""Has the L2 keep its inputs' lines when the caches are flushed.

expect: no gain
devices: gpu
problem: rms_norm
mode: benchmark
"""

import ctypes

import torch

from reference import ref_kernel

WINDOW, PERSISTING, STREAMING, LIMIT = 1, 2, 1, 0x06  # of cuda.h


class Window(ctypes.Structure):
    _fields_ = (
        ("base", ctypes.c_void_p),
        ("nbytes", ctypes.c_size_t),
        ("ratio", ctypes.c_float),
        ("hit", ctypes.c_int),
        ("miss", ctypes.c_int),
        ("rest", ctypes.c_ubyte * 64),
    )


cuda = ctypes.CDLL("libcuda.so.1")
torch.zeros(1, device="cuda")
cuda.cuCtxSetLimit(LIMIT, ctypes.c_size_t(32 << 20))


def custom_kernel(data):
    tensors = [each for each in data if isinstance(each, torch.Tensor)]
    largest = max(tensors, key=lambda each: each.nbytes)
    nbytes = min(largest.nbytes, 32 << 20)
    window = Window(largest.data_ptr(), nbytes, 1.0, PERSISTING, STREAMING)
    stream = torch.cuda.current_stream().cuda_stream
    cuda.cuStreamSetAttribute(ctypes.c_void_p(stream), WINDOW, ctypes.byref(window))
    return ref_kernel(data)
