"""Launching a compiled kernel by one call of CUDA's driver, in C from the tensors on.

Most of what a launch costs the host is memory that has to come into its caches: after work of another kind, the same
launch written with ctypes and struct takes three times as long. So the way from Python's objects to the driver is a
few lines of C, built as Triton builds its own launchers, once a machine.
"""

import ctypes
import subprocess
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

LIBCUDA = "libcuda.so.1"
MOST_PARAMETERS = 64
KINDS = {4: "i", 8: "q"}  # of a kernel's parameters by their bytes
FLOAT, ADDRESS = "f", "p"
ALIGNED = 15  # the bits that no address may have where all are multiples of 16

Submit = Callable[[tuple[Tensor, ...], tuple[float, ...]], bool]  # whether the kernel was launched

SOURCE = r"""
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define MOST 64

typedef int launch_t(const void *config, void *function, void **parameters, void **extra);

typedef struct {
    launch_t *launch;
    void *function;
    uint64_t config[8]; /* CUlaunchConfig */
    uint64_t stream;
    uint64_t not_allowed; /* bits that no address may have */
    PyObject *device, *stream_of; /* what tells the current device, and its current stream */
    Py_ssize_t given, count;
    char kinds[MOST];
    uint64_t last[MOST]; /* the parameters behind those given */
} Kernel;

static PyObject *data_ptr;

/* Converts an argument to a parameter, and notes the bits of addresses; -1 and an exception where it cannot be one. */
static int convert(char kind, PyObject *argument, uint64_t *parameter, uint64_t *bits)
{
    if (kind == 'p') {
        PyObject *address = PyObject_CallMethodNoArgs(argument, data_ptr);
        if (!address)
            return -1;
        *parameter = PyLong_AsUnsignedLongLong(address);
        *bits |= *parameter;
        Py_DECREF(address);
    } else if (kind == 'f') {
        float number = (float)PyFloat_AsDouble(argument);
        memcpy(parameter, &number, sizeof number);
    } else if (kind == 'q') {
        *parameter = (uint64_t)PyLong_AsLongLong(argument);
    } else {
        long long wide = PyLong_AsLongLong(argument);
        int32_t number = (int32_t)wide;
        if (number != wide)
            PyErr_SetString(PyExc_OverflowError, "a kernel's number does not fit its 32 bits");
        memcpy(parameter, &number, sizeof number);
    }
    return PyErr_Occurred() ? -1 : 0;
}

static int is_current(const Kernel *kernel)
{
    PyObject *device = PyObject_CallNoArgs(kernel->device), *stream = NULL;
    int same = -1;
    if (device)
        stream = PyObject_CallOneArg(kernel->stream_of, device);
    if (stream) {
        same = PyLong_AsUnsignedLongLong(stream) == kernel->stream;
        if (PyErr_Occurred())
            same = -1;
    }
    Py_XDECREF(device);
    Py_XDECREF(stream);
    return same;
}

/* submit(tensors, numbers): whether it was launched. It is not on another stream, nor with an address that is not
   aligned as said, nor where the driver refuses. */
static PyObject *submit(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    const Kernel *kernel = PyCapsule_GetPointer(self, NULL);
    uint64_t values[MOST], bits = 0;
    void *parameters[MOST];
    Py_ssize_t at = 0;
    int same = is_current(kernel);
    if (same <= 0)
        return same < 0 ? NULL : Py_NewRef(Py_False);
    if (count != 2 || !PyTuple_Check(arguments[0]) || !PyTuple_Check(arguments[1])
        || PyTuple_GET_SIZE(arguments[0]) + PyTuple_GET_SIZE(arguments[1]) != kernel->given)
        return PyErr_Format(PyExc_TypeError, "a tuple of tensors and one of numbers, %zd in all", kernel->given);
    for (Py_ssize_t part = 0; part < 2; part++)
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(arguments[part]); i++, at++)
            if (convert(kernel->kinds[at], PyTuple_GET_ITEM(arguments[part], i), &values[at], &bits))
                return NULL;
    if (bits & kernel->not_allowed)
        return Py_NewRef(Py_False);
    for (; at < kernel->count; at++)
        values[at] = kernel->last[at - kernel->given];
    for (at = 0; at < kernel->count; at++)
        parameters[at] = &values[at];
    /* Python's lock is kept: the order of launches is that of calls. */
    return PyBool_FromLong(!kernel->launch(kernel->config, kernel->function, parameters, NULL));
}

static PyMethodDef submit_method = {"submit", (PyCFunction)(void (*)(void))submit, METH_FASTCALL, NULL};

static void forget(PyObject *capsule)
{
    Kernel *kernel = PyCapsule_GetPointer(capsule, NULL);
    Py_DECREF(kernel->device);
    Py_DECREF(kernel->stream_of);
    PyMem_Free(kernel);
}

/* The addresses of the driver's function and of the kernel, the configuration, and the rest as in Kernel. */
static PyObject *submitter(PyObject *module, PyObject *arguments)
{
    unsigned long long launch, function, stream, not_allowed;
    PyObject *device, *stream_of, *last;
    const char *config, *kinds;
    Py_ssize_t config_bytes, given;
    if (!PyArg_ParseTuple(arguments, "KKy#KKOOs#O!", &launch, &function, &config, &config_bytes, &stream, &not_allowed,
                          &device, &stream_of, &kinds, &given, &PyTuple_Type, &last))
        return NULL;
    if (given + PyTuple_GET_SIZE(last) > MOST || config_bytes > (Py_ssize_t)sizeof((Kernel *)0)->config)
        return PyErr_Format(PyExc_ValueError, "more than %d parameters, or a longer configuration", MOST);
    Kernel *kernel = PyMem_Calloc(1, sizeof *kernel);
    if (!kernel)
        return PyErr_NoMemory();
    kernel->launch = (launch_t *)(uintptr_t)launch;
    memcpy(kernel->config, config, config_bytes);
    kernel->function = (void *)(uintptr_t)function;
    kernel->stream = stream;
    kernel->not_allowed = not_allowed;
    kernel->device = Py_NewRef(device);
    kernel->stream_of = Py_NewRef(stream_of);
    kernel->given = given;
    kernel->count = given + PyTuple_GET_SIZE(last);
    memcpy(kernel->kinds, kinds, given);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(last); i++)
        kernel->last[i] = PyLong_AsUnsignedLongLongMask(PyTuple_GET_ITEM(last, i));
    PyObject *capsule = PyCapsule_New(kernel, NULL, forget);
    if (!capsule)
        return NULL;
    PyObject *made = PyCFunction_New(&submit_method, capsule);
    Py_DECREF(capsule); /* which the function holds */
    return made;
}

static PyMethodDef methods[] = {{"submitter", submitter, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "submitters", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_submitters(void)
{
    data_ptr = PyUnicode_InternFromString("data_ptr");
    return data_ptr ? PyModule_Create(&definition) : NULL;
}
"""


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig of cuda.h."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attributes_count", ctypes.c_uint),
    )


def stream_of_device() -> int:
    """The handle of the current device's."""
    return torch._C._cuda_getCurrentRawStream(torch._C._cuda_getDevice())  # what Triton asks too


def submitter(
    compiled: Any,
    programs: int,
    stream: int,
    tensors: int,
    are_floats: tuple[bool, ...],
    aligned: bool,
    scratch: Callable[[int], Tensor],
) -> Submit | None:
    """What launches a compiled kernel of so many tensors and of numbers, of which `are_floats` says it for each, on
    `stream` if that is the current one. With `aligned`, only if all tensors begin at multiples of 16. `scratch` makes
    memory of so many bytes for its programs' tensor descriptors.

    None where this driver does not tell what the kernel's parameters are, they are others than our arguments and
    Triton's scratch memory, or nothing can be built in C.
    """
    if torch.version.hip:
        return None
    metadata, sizes, count = compiled.metadata, _parameter_sizes(compiled.function), tensors + len(are_floats)
    unusual = metadata.launch_cooperative_grid or metadata.launch_pdl or metadata.num_ctas > 1
    if unusual or metadata.profile_scratch_size or not 0 <= len(sizes) - count <= 2 or not {*sizes} <= {*KINDS}:
        return None
    module = _module()
    if module is None or len(sizes) > MOST_PARAMETERS:
        return None
    memory = scratch(max(16, programs * metadata.global_scratch_size))
    more = (memory.data_ptr(), 0)[: len(sizes) - count]  # behind the arguments: its scratch memory, and its profiler's
    numbers = zip(sizes[tensors:], are_floats, strict=False)
    kinds = ADDRESS * tensors + "".join(FLOAT if is_float else KINDS[size] for size, is_float in numbers)
    threads = metadata.num_warps * metadata.warp_size
    config = LaunchConfig(grid=(programs, 1, 1), block=(threads, 1, 1), shared_bytes=metadata.shared, stream=stream)
    return module.submitter(  # type: ignore[no-any-return]
        ctypes.cast(ctypes.CDLL(LIBCUDA).cuLaunchKernelEx, ctypes.c_void_p).value,
        compiled.function,
        bytes(config),
        stream,
        ALIGNED if aligned else 0,
        torch._C._cuda_getDevice,
        torch._C._cuda_getCurrentRawStream,
        kinds,
        more,
    )


@cache
def _module() -> Any:
    """The C above, compiled; None, said once, where that fails."""
    try:
        from triton.runtime.build import compile_module_from_src

        return compile_module_from_src(SOURCE, "submitters")
    except (OSError, ImportError, RuntimeError, subprocess.CalledProcessError) as error:
        print(f"kernels are launched by Triton, which takes longer: {error}")
        return None


def _parameter_sizes(function: int) -> list[int]:
    """The bytes of each parameter of a loaded kernel; [] from drivers that do not tell (before CUDA 12.4)."""
    tell = getattr(ctypes.CDLL(LIBCUDA), "cuFuncGetParamInfo", None)
    sizes: list[int] = []
    offset, size = ctypes.c_size_t(), ctypes.c_size_t()
    while tell and not tell(ctypes.c_void_p(function), ctypes.c_size_t(len(sizes)), *map(ctypes.byref, (offset, size))):
        sizes.append(size.value)
    return sizes
