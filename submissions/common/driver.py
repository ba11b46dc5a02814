"""Launching a compiled kernel by one call of CUDA's driver, in C from the tensors on.

Most of what a launch costs the host is memory that has to come into its caches: after work of another kind, the same
launch written with ctypes and struct takes three times as long. So the way from Python's objects to the driver is a
few lines of C, built as Triton builds its own launchers, once a machine.

A tensor descriptor that the host makes is five parameters of the compiled kernel: a map for the unit that copies
(CUtensorMap), the sizes and the strides. The map has the tensor's address, so it is made at every call.

A launch may be told which tensors its kernel reads once: it then has a window of addresses whose lines are the first
that the L2 gives up (CUaccessPolicyWindow). So the L2 does not write back for them what it holds of others, which an
evaluation's flush leaves it full of. Descriptors' copies do not heed the window (H200, docs/kernels.md).
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
KINDS = {4: "i", 8: "q"}  # of a kernel's integers by their bytes
FLOAT, ADDRESS, READ_ONCE, MAP, FIXED = "f", "p", "o", "m", "c"
ADDRESS_BYTES, DESCRIPTOR_BYTES = [8], [128, 4, 4, 8, 8]  # of the parameters that a tensor is
ACCESS_POLICY_WINDOW, STREAMING, MAX_WINDOW_BYTES = 1, 1, 109  # of a launch; in it; of a device
ALIGNED = 15  # the bits that no address may have where all are multiples of 16

Submit = Callable[[tuple[Tensor, ...], tuple[float, ...]], bool]  # whether the kernel was launched

SOURCE = r"""
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define MOST 64
#define MOST_MAPS 8

typedef int launch_t(const void *config, void *function, void **parameters, void **extra);
typedef int encode_t(void *map, int type, uint32_t rank, void *address, const uint64_t *sizes, const uint64_t *strides,
                     const uint32_t *box, const uint32_t *steps, int interleave, int swizzle, int promotion, int fill);

typedef struct { /* columns first */
    uint64_t sizes[2], row_bytes;
    uint32_t box[2], type, swizzle;
} Matrix;

typedef struct {
    _Alignas(64) uint64_t words[16];
} Map; /* CUtensorMap */

typedef struct {
    uint64_t id, address, bytes;
    float ratio;
    int hit, miss;
    char unused[36];
} Window; /* CUlaunchAttribute, with a CUaccessPolicyWindow */

typedef struct {
    uint32_t grid[3], block[3], shared_bytes;
    uint64_t stream;
    Window *window;
    uint32_t windows;
} Config; /* CUlaunchConfig */

typedef struct {
    launch_t *launch;
    encode_t *encode;
    void *function;
    Config config;
    Window window;
    uint64_t most; /* bytes of a window */
    uint64_t stream;
    uint64_t not_allowed; /* bits that no address may have */
    PyObject *device, *stream_of; /* what tells the current device, and its current stream */
    Py_ssize_t given, count;
    char kinds[MOST];
    uint64_t fixed[MOST]; /* the parameters that are not given; of a tensor that is read once its bytes */
    Matrix matrices[MOST_MAPS]; /* of those given as maps */
} Kernel;

static PyObject *data_ptr;

/* Converts an argument to a parameter, and notes the bits of addresses; -1 and an exception where it cannot be one. */
static int convert(char kind, PyObject *argument, uint64_t *parameter, uint64_t *bits)
{
    if (kind == 'p' || kind == 'o' || kind == 'm') {
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

/* Whether the driver could. Copies go through the L2 in 128 bytes, as in descriptors that kernels make; the last 0:
   zeros are read outside the matrix. */
static int encode(const Kernel *kernel, const Matrix *matrix, uint64_t address, Map *map)
{
    static const uint32_t steps[2] = {1, 1};
    const int interleave = 0, promotion = 2, fill = 0;
    return !kernel->encode(map, matrix->type, 2, (void *)(uintptr_t)address, matrix->sizes, &matrix->row_bytes,
                           matrix->box, steps, interleave, matrix->swizzle, promotion, fill);
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

/* Has the window go from the least of these addresses on. */
static void set_window(Kernel *kernel, uint64_t low, uint64_t high)
{
    kernel->window.address = low;
    kernel->window.bytes = high - low < kernel->most ? high - low : kernel->most;
    kernel->config.window = &kernel->window;
    kernel->config.windows = 1;
}

/* submit(tensors, numbers): whether it was launched. It is not on another stream, nor with an address that is not
   aligned as said, nor where the driver refuses that or a map. */
static PyObject *submit(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    Kernel *kernel = PyCapsule_GetPointer(self, NULL);
    const Matrix *matrix = kernel->matrices;
    uint64_t values[MOST], bits = 0, low = UINT64_MAX, high = 0;
    Map maps[MOST_MAPS], *map = maps;
    void *parameters[MOST];
    Py_ssize_t next = 0, tensors;
    int same = is_current(kernel);
    if (same <= 0)
        return same < 0 ? NULL : Py_NewRef(Py_False);
    if (count != 2 || !PyTuple_Check(arguments[0]) || !PyTuple_Check(arguments[1])
        || PyTuple_GET_SIZE(arguments[0]) + PyTuple_GET_SIZE(arguments[1]) != kernel->given)
        return PyErr_Format(PyExc_TypeError, "a tuple of tensors and one of numbers, %zd in all", kernel->given);
    tensors = PyTuple_GET_SIZE(arguments[0]);
    for (Py_ssize_t at = 0; at < kernel->count; at++) {
        if (kernel->kinds[at] == 'c') {
            parameters[at] = (void *)&kernel->fixed[at];
            continue;
        }
        PyObject *argument = next < tensors ? PyTuple_GET_ITEM(arguments[0], next)
                                            : PyTuple_GET_ITEM(arguments[1], next - tensors);
        next++;
        if (convert(kernel->kinds[at], argument, &values[at], &bits))
            return NULL;
        parameters[at] = &values[at];
        if (kernel->kinds[at] == 'o') {
            low = values[at] < low ? values[at] : low;
            high = values[at] + kernel->fixed[at] > high ? values[at] + kernel->fixed[at] : high;
        }
        if (kernel->kinds[at] == 'm') {
            if (!encode(kernel, matrix++, values[at], map))
                return Py_NewRef(Py_False);
            parameters[at] = map++;
        }
    }
    if (bits & kernel->not_allowed)
        return Py_NewRef(Py_False);
    if (high)
        set_window(kernel, low, high);
    /* Python's lock is kept: the order of launches is that of calls. */
    return PyBool_FromLong(!kernel->launch(&kernel->config, kernel->function, parameters, NULL));
}

static PyMethodDef submit_method = {"submit", (PyCFunction)(void (*)(void))submit, METH_FASTCALL, NULL};

static void forget(PyObject *capsule)
{
    Kernel *kernel = PyCapsule_GetPointer(capsule, NULL);
    Py_DECREF(kernel->device);
    Py_DECREF(kernel->stream_of);
    PyMem_Free(kernel);
}

/* The addresses of the driver's functions and of the kernel, the configuration, and the rest as in Kernel. */
static PyObject *submitter(PyObject *module, PyObject *arguments)
{
    unsigned long long launch, encode, function, stream, not_allowed, most;
    PyObject *device, *stream_of;
    const char *config, *window, *kinds, *fixed, *matrices;
    Py_ssize_t config_bytes, window_bytes, count, fixed_bytes, matrices_bytes;
    if (!PyArg_ParseTuple(arguments, "KKKy#y#KKKOOs#y#y#", &launch, &encode, &function, &config, &config_bytes, &window,
                          &window_bytes, &most, &stream, &not_allowed, &device, &stream_of, &kinds, &count, &fixed,
                          &fixed_bytes, &matrices, &matrices_bytes))
        return NULL;
    if (count > MOST || fixed_bytes != count * (Py_ssize_t)sizeof(uint64_t)
        || matrices_bytes > (Py_ssize_t)sizeof((Kernel *)0)->matrices
        || config_bytes != (Py_ssize_t)sizeof(Config) || window_bytes != (Py_ssize_t)sizeof(Window))
        return PyErr_Format(PyExc_ValueError, "more than %d parameters or %d maps, or another configuration", MOST,
                            MOST_MAPS);
    Kernel *kernel = PyMem_Calloc(1, sizeof *kernel);
    if (!kernel)
        return PyErr_NoMemory();
    kernel->launch = (launch_t *)(uintptr_t)launch;
    kernel->encode = (encode_t *)(uintptr_t)encode;
    memcpy(&kernel->config, config, config_bytes);
    memcpy(&kernel->window, window, window_bytes);
    kernel->most = most;
    kernel->function = (void *)(uintptr_t)function;
    kernel->stream = stream;
    kernel->not_allowed = not_allowed;
    kernel->device = Py_NewRef(device);
    kernel->stream_of = Py_NewRef(stream_of);
    kernel->count = count;
    memcpy(kernel->kinds, kinds, count);
    memcpy(kernel->fixed, fixed, fixed_bytes);
    memcpy(kernel->matrices, matrices, matrices_bytes);
    for (Py_ssize_t at = 0; at < count; at++)
        kernel->given += kinds[at] != 'c';
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


class Window(ctypes.Structure):
    """CUlaunchAttribute of cuda.h with a CUaccessPolicyWindow."""

    _fields_ = (
        ("id", ctypes.c_uint64),
        ("address", ctypes.c_void_p),
        ("bytes", ctypes.c_uint64),
        ("ratio", ctypes.c_float),
        ("hit", ctypes.c_int),
        ("miss", ctypes.c_int),
        ("unused", ctypes.c_char * 36),
    )


class Matrix(ctypes.Structure):
    """What cuTensorMapEncodeTiled of cuda.h is told of a matrix without gaps between its rows, but for its address:
    bytes of a row, a copy's columns and rows (a block may be several copies), and numbers of the driver's for the
    elements' type and for how a copy lies in shared memory."""

    _fields_ = (
        ("columns", ctypes.c_uint64),
        ("rows", ctypes.c_uint64),
        ("row_bytes", ctypes.c_uint64),
        ("copy_columns", ctypes.c_uint32),
        ("copy_rows", ctypes.c_uint32),
        ("type", ctypes.c_uint32),
        ("swizzle", ctypes.c_uint32),
    )


def stream_of_device() -> int:
    """The handle of the current device's."""
    return torch._C._cuda_getCurrentRawStream(torch._C._cuda_getDevice())  # what Triton asks too


def submitter(
    compiled: Any,
    programs: int,
    stream: int,
    tensors: tuple[tuple[int, int] | int, ...],
    are_floats: tuple[bool, ...],
    aligned: bool,
    scratch: Callable[[int], Tensor],
) -> Submit | None:
    """What launches a compiled kernel of tensors and of numbers, of which `are_floats` says it for each, on `stream` if
    that is the current one. `tensors` has the shape of each that goes as a descriptor; of the others, how many bytes of
    it are read once, 0 if none. With `aligned`, only if all tensors begin at multiples of 16. `scratch` makes memory of
    so many bytes for descriptors that its programs make.

    None where this driver does not tell what the kernel's parameters are, they are others than our arguments and
    Triton's scratch memory, or nothing can be built in C.
    """
    if torch.version.hip:
        return None
    metadata, sizes = compiled.metadata, _parameter_sizes(compiled.function)
    expected = [size for shape in tensors for size in (DESCRIPTOR_BYTES if isinstance(shape, tuple) else ADDRESS_BYTES)]
    numbers = sizes[len(expected) :][: len(are_floats)]
    scratches = len(sizes) - len(expected) - len(are_floats)  # the parameters behind: its own, and its profiler's
    unusual = metadata.launch_cooperative_grid or metadata.launch_pdl or metadata.num_ctas > 1
    if unusual or metadata.profile_scratch_size or not 0 <= scratches <= 2 or not {*numbers} <= {*KINDS}:
        return None
    if sizes != expected + numbers + ADDRESS_BYTES * scratches:
        return None
    runtime = [kind for kind in compiled.src.signature.values() if kind != "constexpr"]
    if len(runtime) != len(tensors) + len(are_floats):  # Triton makes a constant of a number that is 1
        return None
    module = _module()
    if module is None or len(sizes) > MOST_PARAMETERS:
        return None
    libcuda = ctypes.CDLL(LIBCUDA)
    most = _window_bytes(libcuda) if any(isinstance(one, int) and one for one in tensors) else 0
    parameters: list[tuple[str, int]] = []  # each one's kind, and what it is if it is not given; of READ_ONCE its bytes
    for one in tensors:
        if isinstance(one, int):
            parameters += [(READ_ONCE, one) if one and most else (ADDRESS, 0)]
        else:
            parameters += [(MAP, 0), *((FIXED, number) for number in (*one, one[1], 1))]
    parameters += [(FLOAT if is_float else KINDS[size], 0) for size, is_float in zip(numbers, are_floats, strict=True)]
    memory = scratch(max(16, programs * metadata.global_scratch_size))
    parameters += [(FIXED, memory.data_ptr()), (FIXED, 0)][:scratches]
    shapes = [one for one in tensors if isinstance(one, tuple)]
    threads = metadata.num_warps * metadata.warp_size
    config = LaunchConfig(grid=(programs, 1, 1), block=(threads, 1, 1), shared_bytes=metadata.shared, stream=stream)
    return module.submitter(  # type: ignore[no-any-return]
        ctypes.cast(libcuda.cuLaunchKernelEx, ctypes.c_void_p).value,
        ctypes.cast(libcuda.cuTensorMapEncodeTiled, ctypes.c_void_p).value,
        compiled.function,
        bytes(config),
        bytes(Window(id=ACCESS_POLICY_WINDOW, ratio=1.0, hit=STREAMING)),
        most,
        stream,
        ALIGNED if aligned else 0,
        torch._C._cuda_getDevice,
        torch._C._cuda_getCurrentRawStream,
        "".join(kind for kind, _ in parameters),
        bytes((ctypes.c_uint64 * len(parameters))(*(value for _, value in parameters))),
        b"".join(map(_matrix, shapes, metadata.tensordesc_meta if shapes else ())),
    )


def _window_bytes(libcuda: Any) -> int:
    """How many bytes a window of the current device may have; 0 where it has none."""
    found = ctypes.c_int()
    failed = libcuda.cuDeviceGetAttribute(ctypes.byref(found), MAX_WINDOW_BYTES, torch._C._cuda_getDevice())
    return 0 if failed else found.value


def _matrix(shape: tuple[int, int], meta: dict[str, Any]) -> bytes:
    """A Matrix, by its shape and what Triton's compiler says of its descriptor."""
    from triton.backends.nvidia.driver import TMA_DTYPE_DEVICE_TO_HOST  # whose numbers differ

    (rows, columns), (copy_rows, copy_columns) = shape, meta["block_size"]
    element = TMA_DTYPE_DEVICE_TO_HOST[meta["elem_type"]]
    row_bytes = columns * meta["elem_size"]
    return bytes(Matrix(columns, rows, row_bytes, copy_columns, copy_rows, element, meta["swizzle"]))


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
