"""Launchers without a GPU: which calls share a compiled kernel, and with how many programs it is launched; and what
reaches CUDA's driver, which a library of the same functions stands in for."""

import ctypes
import importlib
import struct
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from kernel_ranks import imported
from triton.experimental.gluon.language import NVMMASharedLayout, bfloat16
from triton.runtime import build

STREAM = 42
CONSTANTS, OPTIONS = {"BLOCK": 16, "FAST": True}, {"num_warps": 4}


class FakeKernel:
    """Of two tensors, two numbers, BLOCK and FAST. Keeps what is compiled and launched, each launch with its number of
    programs."""

    def __init__(self) -> None:
        self.compilations: list[dict[str, Any]] = []
        self.arguments: list[tuple[Any, ...]] = []  # of the compilations
        self.launches: list[tuple[int, tuple[Any, ...], int]] = []

    def warmup(self, *arguments: Any, grid: tuple[int, ...], **named: Any) -> "FakeKernel":
        self.compilations.append(named)
        self.arguments.append(arguments)
        return self

    def __getitem__(self, grid: tuple[int, int, int]) -> Callable[..., None]:
        assert grid[1:] == (1, 1)
        return lambda *arguments, stream: self.launches.append((grid[0], arguments, stream))


@pytest.fixture
def module() -> Iterator[Any]:
    """submissions/common/launch.py."""
    with imported("gemm_rs"):
        yield importlib.import_module("common.launch")


@pytest.fixture
def launcher(module: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A launcher on a device with room for 100 programs, whose driver does not tell kernels' parameters."""
    monkeypatch.setattr(module.triton, "set_allocator", lambda allocate: None)
    monkeypatch.setattr(module, "current_stream", lambda: STREAM)
    monkeypatch.setattr(module, "submitter", lambda *what: None)
    monkeypatch.setattr(module, "_room", lambda compiled: 100)
    return module.Launcher(FakeKernel())


def tensor(offset: int = 0) -> torch.Tensor:
    """One that begins so many bytes behind a multiple of 16."""
    memory = torch.zeros(64, dtype=torch.uint8)
    return memory[-memory.data_ptr() % 16 + offset :]


def test_calls_that_need_the_same_kernel_have_it_prepared_once(launcher: Any) -> None:
    """Tensors and numbers go to the kernel as they are: addresses, numbers, constants in order; on the stream."""
    one, other = tensor(), tensor()
    launcher(10, (one, other), (32, 1), CONSTANTS, OPTIONS)
    launcher(10, (other, one), (64, 7), CONSTANTS, OPTIONS)
    assert launcher.kernel.compilations == [{**CONSTANTS, **OPTIONS}]
    assert launcher.kernel.launches == [
        (10, (one.data_ptr(), other.data_ptr(), 32, 1, 16, True), STREAM),
        (10, (other.data_ptr(), one.data_ptr(), 64, 7, 16, True), STREAM),
    ]


def test_tensors_of_other_alignments_are_prepared_again(launcher: Any) -> None:
    """As Triton tells them apart: whether they begin at multiples of 16."""
    for offsets in ((0, 0), (8, 0), (0, 8), (8, 8), (0, 0), (4, 0), (0, 4), (2, 8)):
        launcher(10, (tensor(offsets[0]), tensor(offsets[1])), (32,), CONSTANTS, OPTIONS)
    assert len(launcher.kernel.compilations) == 4


def test_another_stream_is_prepared_again(launcher: Any, module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in (STREAM, 43, STREAM):
        monkeypatch.setattr(module, "current_stream", lambda stream=stream: stream)
        launcher(10, (tensor(),), (32,), CONSTANTS, OPTIONS)
    assert [stream for *_, stream in launcher.kernel.launches] == [STREAM, 43, STREAM]


def test_other_constants_are_prepared_again_and_kept(launcher: Any) -> None:
    """They are told apart by where they are, so the launcher has to keep them from being replaced there."""
    for block in (16, 32, 64):
        launcher(10, (tensor(),), (32, 1), {"BLOCK": block, "FAST": True}, OPTIONS)
    assert [named["BLOCK"] for named in launcher.kernel.compilations] == [16, 32, 64]
    assert [arguments[3] for _, arguments, _ in launcher.kernel.launches] == [16, 32, 64]


@pytest.mark.parametrize(("programs", "launched"), [(10, 10), (100, 100), (132, 100)])
def test_no_more_programs_are_launched_than_have_room_at_once(launcher: Any, programs: int, launched: int) -> None:
    """They wait for each other, and one that is not running would be waited for forever."""
    launcher(programs, (tensor(),), (32, 1), CONSTANTS, OPTIONS)
    assert [count for count, *_ in launcher.kernel.launches] == [launched]


def test_programs_that_work_together_are_launched_together(launcher: Any) -> None:
    """With room for 100 programs and 16 that wait for each other, the last 4 would wait forever."""
    launcher.group = "BLOCK"
    launcher(160, (tensor(),), (32, 1), CONSTANTS, OPTIONS)
    assert [count for count, *_ in launcher.kernel.launches] == [96]
    with pytest.raises(RuntimeError, match="room for 100 programs, of which 128 work together"):
        launcher(256, (tensor(),), (32, 1), {"BLOCK": 128, "FAST": True}, OPTIONS)


def test_kernels_of_several_parts_a_row_are_launched_in_whole_rows() -> None:
    with imported("cross_entropy") as submission:
        launchers = submission.launchers
        assert {name: launcher.group for name, launcher in launchers.items() if launcher.all_at_once} == {
            "ring": "PARTS",
            "registers": "PARTS",
        }


# ---- by the driver ---------------------------------------------------------------------------------------------------

POINTER, NUMBER, MAP = 8, 4, 128  # bytes of a parameter
DESCRIPTOR = [MAP, NUMBER, NUMBER, POINTER, POINTER]  # the map, two sizes and two strides
COMPILED = {
    "num_warps": 4,
    "warp_size": 32,
    "shared": 1000,
    "num_ctas": 1,
    "global_scratch_size": 24,
    "profile_scratch_size": 0,
    "launch_cooperative_grid": False,
    "launch_pdl": False,
}


class FakeDriver:
    """Of one kernel with parameters of these sizes. Keeps what it launches: everything that is given, with parameters
    by their values; the attributes of launches; and what it encodes, each map as so many equal bytes. `refuses` either
    with that error. A window has at most `window` bytes."""

    def __init__(self, sizes: list[int], refuses: int = 0, refuses_maps: int = 0, window: int = 0) -> None:
        self.launches: list[tuple[Any, ...]] = []
        self.attributes: list[tuple[Any, ...]] = []
        self.maps: list[tuple[Any, ...]] = []
        void, numbers = ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)

        def tell(function: int, index: int, offset: Any, size: Any) -> int:
            assert function == FUNCTION
            if index < len(sizes):
                size[0] = sizes[index]
            return index >= len(sizes)

        def launch(config: int, function: int, parameters: Any, extra: int) -> int:
            how = (
                *struct.unpack_from("7I", ctypes.string_at(config, 56)),
                *struct.unpack_from("QQI", ctypes.string_at(config, 56), 32),
            )
            if how[-1]:
                assert how[-1] == 1
                self.attributes.append(struct.unpack_from("I4xQQfii", ctypes.string_at(how[-2], 72)))
            kinds = {POINTER: ctypes.c_uint64, NUMBER: ctypes.c_int32, MAP: ctypes.c_char * MAP}
            read = [kinds[size].from_address(parameters[i]) for i, size in enumerate(sizes)]
            values = [one.raw if isinstance(one, ctypes.Array) else one.value for one in read]
            self.launches.append((function, *how, values, extra))
            return refuses

        def encode(place: int, kind: int, rank: int, address: int, *more: Any) -> int:
            (sizes, strides, box, steps), how = more[:4], more[4:]
            assert place % 64 == 0
            self.maps.append((kind, rank, address, sizes[:2], strides[:1], box[:2], steps[:2], *how))
            ctypes.memset(place, len(self.maps), MAP)
            return refuses_maps

        def attribute(value: Any, what: int, device: int) -> int:
            assert (what, device) == (109, 3)
            value[0] = window
            return 0

        self.cuDeviceGetAttribute = ctypes.CFUNCTYPE(
            ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.c_int, ctypes.c_int
        )(attribute)
        self.cuFuncGetParamInfo = ctypes.CFUNCTYPE(ctypes.c_int, void, ctypes.c_size_t, numbers, numbers)(tell)
        wide, narrow = ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(ctypes.c_uint32)
        arguments = (void, ctypes.c_int, ctypes.c_uint32, void, wide, wide, narrow, narrow, *[ctypes.c_int] * 4)
        self.cuTensorMapEncodeTiled = ctypes.CFUNCTYPE(ctypes.c_int, *arguments)(encode)
        self.cuLaunchKernelEx = ctypes.CFUNCTYPE(ctypes.c_int, void, void, ctypes.POINTER(void), void)(launch)


FUNCTION, SCRATCH = 4096, torch.zeros(2400, dtype=torch.int8)


@pytest.fixture
def driver_module(module: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """submissions/common/driver.py on device 3, whose current stream is STREAM."""
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 3, raising=False)
    streams = {3: STREAM}
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", streams.__getitem__, raising=False)
    found = importlib.import_module("common.driver")
    found.streams = streams
    return found


def source(parameters: int, constants: int) -> SimpleNamespace:
    """What Triton keeps of a kernel's source: the types of its arguments."""
    types = ["i32"] * parameters + ["constexpr"] * constants
    return SimpleNamespace(signature={f"argument {at}": kind for at, kind in enumerate(types)})


def by_driver(
    driver_module: Any,
    monkeypatch: pytest.MonkeyPatch,
    driver: Any,
    tensors: tuple[tuple[int, int] | int, ...] = (0, 0),
    are_floats: tuple[bool, ...] = (False,) * 2,
    aligned: bool = True,
    ones: int = 0,
    **metadata: Any,
) -> Any:
    """What launches 100 programs of a kernel of such tensors, and of as many numbers as `are_floats`, of which so many
    were 1 when it was compiled; or None."""
    compiled = SimpleNamespace(function=FUNCTION, metadata=SimpleNamespace(**{**COMPILED, **metadata}))
    compiled.src = source(len(tensors) + len(are_floats) - ones, ones)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    return driver_module.submitter(compiled, 100, STREAM, tensors, are_floats, aligned, lambda nbytes: SCRATCH[:nbytes])


@pytest.mark.parametrize("scratches", [0, 1, 2], ids=["no scratch memory", "one", "two"])
def test_what_the_driver_is_given(scratches: int, driver_module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = FakeDriver([POINTER, POINTER, NUMBER, POINTER] + [POINTER] * scratches)
    submit = by_driver(driver_module, monkeypatch, driver)
    one, other = tensor(), tensor()
    for number in (7, -(2**31)):
        assert submit((one, other), (number, 3 << 40))
    more = [SCRATCH.data_ptr(), 0][:scratches]
    assert driver.launches == [
        (
            *(FUNCTION, 100, 1, 1, 128, 1, 1, 1000, STREAM, 0, 0),
            [one.data_ptr(), other.data_ptr(), number, 3 << 40, *more],
            None,
        )
        for number in (7, -(2**31))
    ]


def test_floats_are_given_as_float32(driver_module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = FakeDriver([POINTER, NUMBER, NUMBER])
    submit = by_driver(driver_module, monkeypatch, driver, tensors=(0,), are_floats=(True, False))
    assert submit((tensor(),), (1.5, 7))
    assert submit((tensor(),), (2, 7))  # as Python's own functions take it
    first, second = (struct.unpack("f", struct.pack("i", launch[-2][1]))[0] for launch in driver.launches)
    assert (first, second) == (1.5, 2.0)


@pytest.mark.parametrize("aligned", [True, False])
def test_a_tensor_that_begins_elsewhere_needs_another_kernel(
    aligned: bool, driver_module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of multiples of 16 would read the wrong bytes."""
    driver = FakeDriver([POINTER, POINTER, NUMBER])
    submit = by_driver(driver_module, monkeypatch, driver, are_floats=(False,), aligned=aligned)
    assert submit((tensor(), tensor(8)), (7,)) is not aligned
    assert len(driver.launches) == (not aligned)


def test_tensors_that_are_read_once_have_a_window(driver_module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first to the end of the last at each call, or as far as a window may go; hits are streaming."""
    memory = torch.zeros(4096, dtype=torch.uint8)
    one, other = memory[-memory.data_ptr() % 16 :], memory[-memory.data_ptr() % 16 + 1024 :]
    for window, bytes_ in ((1 << 20, 1024 + 96), (512, 512)):
        driver = FakeDriver([POINTER] * 3 + [NUMBER], window=window)
        submit = by_driver(driver_module, monkeypatch, driver, tensors=(64, 0, 96), are_floats=(False,))
        assert submit((one, tensor(), other), (7,))
        assert submit((one, tensor(), one), (7,))
        assert driver.attributes == [
            (1, one.data_ptr(), bytes_, 1.0, 1, 0),
            (1, one.data_ptr(), 96, 1.0, 1, 0),
        ]


def test_a_launcher_tells_how_many_bytes_are_read_once(
    launcher: Any, module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []
    monkeypatch.setattr(module, "submitter", lambda *what: told.append(what[3]))
    matrix, tiles = of_matrix(module)
    launcher(10, (matrix, tensor(), tensor()), (32,), CONSTANTS, OPTIONS, (tiles, None, module.ReadOnce()))
    assert told == [((4, 32), 0, tensor().nbytes)]


def test_a_device_without_windows_gets_none(driver_module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = FakeDriver([POINTER, NUMBER])
    submit = by_driver(driver_module, monkeypatch, driver, tensors=(64,), are_floats=(False,))
    assert submit((tensor(),), (7,))
    assert (len(driver.launches), driver.attributes) == (1, [])


def test_nothing_is_launched_on_another_stream(driver_module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = FakeDriver([POINTER, NUMBER])
    submit = by_driver(driver_module, monkeypatch, driver, tensors=(0,), are_floats=(False,))
    for stream, launches in ((STREAM, 1), (43, 1), (STREAM, 2)):
        driver_module.streams[3] = stream
        assert submit((tensor(),), (7,)) is (stream == STREAM)
        assert len(driver.launches) == launches


@pytest.mark.parametrize(
    ("tensors", "numbers", "error"),
    [
        pytest.param(1, (7,), TypeError, id="too few tensors"),
        pytest.param(2, (7, 8), TypeError, id="too many numbers"),
        pytest.param(2, (2**31,), OverflowError, id="more than 32 bits"),
        pytest.param(2, (1.5,), TypeError, id="a float for an integer"),
        pytest.param(2, (None,), TypeError, id="no number"),
    ],
)
def test_arguments_that_are_no_parameters_are_refused(
    tensors: int, numbers: tuple[Any, ...], error: type, driver_module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = FakeDriver([POINTER, POINTER, NUMBER])
    submit = by_driver(driver_module, monkeypatch, driver, are_floats=(False,))
    with pytest.raises(error):
        submit((tensor(),) * tensors, numbers)
    with pytest.raises(AttributeError, match="data_ptr"):
        submit((tensor(), 7), (7,))
    assert not driver.launches


def test_what_the_driver_refuses_is_left_to_triton(
    module: Any, driver_module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a thread that has no context yet. What it does not refuse is not launched twice."""
    monkeypatch.setattr(module.triton, "set_allocator", lambda allocate: None)
    monkeypatch.setattr(module, "_allocate", lambda nbytes, alignment, stream: SCRATCH)
    kernel: Any = FakeKernel()
    kernel.function, kernel.metadata, kernel.src = FUNCTION, SimpleNamespace(**COMPILED), source(2, 2)
    launcher = module.Launcher(kernel, all_at_once=False)
    one = tensor()
    for refuses in (0, 201):
        driver = FakeDriver([POINTER, NUMBER], refuses)
        monkeypatch.setattr(ctypes, "CDLL", lambda name, driver=driver: driver)
        constants = dict(CONSTANTS)
        for _ in range(2):
            launcher(10, (one,), (7,), constants, OPTIONS)
        assert len(driver.launches) >= 2
        assert kernel.launches == ([(10, (one.data_ptr(), 7, 16, True), STREAM)] * 2 if refuses else [])


@pytest.mark.parametrize(
    ("sizes", "metadata"),
    [
        pytest.param([POINTER] * 3, {}, id="fewer parameters than arguments"),
        pytest.param([POINTER] * 7, {}, id="more than scratch memories"),
        pytest.param([POINTER] * 3 + [16], {}, id="one of another size"),
        pytest.param([*DESCRIPTOR, *[POINTER] * 3], {}, id="a descriptor of what is none"),
        pytest.param([POINTER] * 4, {"launch_cooperative_grid": True}, id="cooperative"),
        pytest.param([POINTER] * 4, {"launch_pdl": True}, id="dependent"),
        pytest.param([POINTER] * 4, {"num_ctas": 2}, id="clusters"),
        pytest.param([POINTER] * 6, {"profile_scratch_size": 8}, id="profiled"),
        pytest.param([POINTER] * 5, {"ones": 1}, id="of which a number is a constant"),
    ],
)
def test_what_is_not_an_ordinary_kernel_is_left_to_triton(
    sizes: list[int], metadata: dict[str, Any], driver_module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert by_driver(driver_module, monkeypatch, FakeDriver(sizes), **metadata) is None


# What the compiler says of two descriptors of bf16, in copies of 64 x 64 and 128 x 64, of a block each or of a part.
METAS = [{"swizzle": 3, "elem_size": 2, "elem_type": 10, "block_size": [rows, 64]} for rows in (64, 128)]
SHAPES = ((48, 640), 0, (7168, 640))


def test_a_tensor_goes_as_a_descriptor_which_is_made_at_every_call(
    driver_module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sizes and strides are fixed; what is encoded has columns first, and the bytes of a row."""
    driver = FakeDriver([*DESCRIPTOR, POINTER, *DESCRIPTOR, NUMBER, POINTER, POINTER])
    submit = by_driver(driver_module, monkeypatch, driver, SHAPES, (False,), tensordesc_meta=METAS)
    for number in (7, 8):
        given = tuple(tensor() for _ in SHAPES)
        assert submit(given, (number,))
        first, second = (
            (9, 2, one.data_ptr(), [640, rows], [1280], [64, copied], [1, 1], 0, 3, 2, 0)  # 9: bf16; 3: 128 bytes
            for one, rows, copied in ((given[0], 48, 64), (given[2], 7168, 128))
        )
        assert driver.maps[-2:] == [first, second]
        made = len(driver.maps)
        assert driver.launches[-1][-2] == [
            *(bytes([made - 1]) * MAP, 48, 640, 640, 1),
            given[1].data_ptr(),
            *(bytes([made]) * MAP, 7168, 640, 640, 1),
            *(number, SCRATCH.data_ptr(), 0),
        ]


@pytest.mark.parametrize("refuses", [0, 1])
def test_where_the_driver_makes_no_descriptor_triton_does(
    refuses: int, module: Any, driver_module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver makes none of an address that is no multiple of 16, for example."""
    monkeypatch.setattr(module.triton, "set_allocator", lambda allocate: None)
    monkeypatch.setattr(module, "_allocate", lambda nbytes, alignment, stream: SCRATCH)
    driver = FakeDriver([*DESCRIPTOR, POINTER, NUMBER], refuses_maps=refuses)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    kernel: Any = FakeKernel()
    kernel.function, kernel.metadata = FUNCTION, SimpleNamespace(**COMPILED, tensordesc_meta=METAS[:1])
    kernel.src = source(3, 2)
    launcher = module.Launcher(kernel, all_at_once=False)
    matrix, tiles = of_matrix(module)
    for _ in range(2):
        launcher(10, (matrix, tensor()), (7,), CONSTANTS, OPTIONS, (tiles,))
    assert {address for _, _, address, *_ in driver.maps} == {matrix.data_ptr()}
    assert len(driver.launches) == (0 if refuses else 2)
    assert [arguments[0].base is matrix for _, arguments, _ in kernel.launches] == [True] * (2 if refuses else 0)


@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param([POINTER] * 3 + [NUMBER], id="addresses"),
        pytest.param(
            [*[POINTER] * 5, 1, *DESCRIPTOR[1:], POINTER, *[POINTER] * 5, 1, *DESCRIPTOR[1:], NUMBER], id="parts"
        ),
    ],
)
def test_a_descriptor_that_the_kernel_has_otherwise_is_left_to_triton(
    sizes: list[int], driver_module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on chips that cannot copy by one: the kernel has its parts."""
    driver = FakeDriver(sizes)
    assert by_driver(driver_module, monkeypatch, driver, SHAPES, (False,), tensordesc_meta=[]) is None


def test_a_driver_that_does_not_tell_parameters_is_not_used(
    driver_module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert by_driver(driver_module, monkeypatch, SimpleNamespace()) is None


def test_a_machine_without_a_compiler_is_left_to_triton(
    driver_module: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Triton's own launchers may be there from before."""

    def fail(*what: str) -> None:
        raise FileNotFoundError("no gcc")

    monkeypatch.setattr(build, "compile_module_from_src", fail)
    for _ in range(2):
        assert by_driver(driver_module, monkeypatch, FakeDriver([POINTER] * 4)) is None
    assert capsys.readouterr().out.count("launched by Triton, which takes longer: no gcc") == 1


# ---- descriptors for Triton -----------------------------------------------------------------------------------------


def of_matrix(module: Any, dtype: torch.dtype = torch.bfloat16) -> tuple[torch.Tensor, Any]:
    return torch.zeros(4, 32, dtype=dtype), module.Tiles((4, 32), (2, 16))


def test_triton_is_given_descriptors_of_tensors_that_go_as_such(launcher: Any, module: Any) -> None:
    matrix, tiles = of_matrix(module)
    other = tensor()
    launcher(10, (other, matrix, other), (32,), CONSTANTS, OPTIONS, (None, tiles))
    ((_, (first, made, last, *rest), _),) = launcher.kernel.launches
    assert (first, last, *rest) == (other.data_ptr(), other.data_ptr(), 32, 16, True)
    assert made.base is matrix
    assert (made.shape, made.strides, made.block_shape) == ([4, 32], [32, 1], [2, 16])
    assert [type(one) for one in launcher.kernel.arguments[-1]] == [torch.Tensor, type(made), torch.Tensor, int]


def test_a_descriptor_of_a_tensor_that_begins_elsewhere_is_that_of_a_copy(launcher: Any, module: Any) -> None:
    _, tiles = of_matrix(module)
    matrix = torch.arange(4 * 32 + 1).bfloat16()[1:].view(4, 32)
    launcher(10, (matrix,), (32,), CONSTANTS, OPTIONS, (tiles,))
    ((_, (made, *_), _),) = launcher.kernel.launches
    assert made.base.data_ptr() % 16 == 0
    assert torch.equal(made.base, matrix)


def test_an_interpreted_kernel_is_given_descriptors_too(
    launcher: Any, module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "INTERPRETED", True)
    calls: list[tuple[Any, ...]] = []
    launcher.kernel = {(1,): lambda *arguments, **constants: calls.append(arguments)}
    matrix, tiles = of_matrix(module)
    other = tensor()
    launcher(10, (matrix, other), (32,), CONSTANTS, OPTIONS, (tiles,))
    ((made, *rest),) = calls
    assert made.base is matrix
    assert rest[0] is other


def test_a_kernel_is_compiled_for_descriptors_of_dtypes(module: Any) -> None:
    """Also one in Gluon, whose descriptors tell how blocks lie in shared memory."""
    layout = NVMMASharedLayout.get_default_for([8, 64], bfloat16)
    plain = module.described(torch.bfloat16, module.Tiles((4, 64), (8, 64)))
    gluon = module.described(torch.bfloat16, module.Tiles((4, 64), (8, 64), layout))
    assert [one.base.dtype for one in (plain, gluon)] == [torch.bfloat16] * 2
    assert [one.block_shape for one in (plain, gluon)] == [[8, 64]] * 2
    assert gluon.layout == layout


# ---- outputs made ahead ----------------------------------------------------------------------------------------------


@pytest.fixture
def ahead(module: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module, on a device with a stream whose number can be set."""
    monkeypatch.setattr(module, "current_stream", lambda: module.stream)
    monkeypatch.setattr(module, "stream", STREAM, raising=False)
    monkeypatch.setattr(module, "_ahead", {})
    return module


def test_an_output_is_what_was_made_ahead_once(ahead: Any) -> None:
    """What a call returned is its caller's: the next one gets other memory."""
    first = ahead.new_output((2, 3), torch.zeros(1))
    ahead.make_ahead(first)
    (made,) = ahead._ahead.values()
    second = ahead.new_output((2, 3), torch.zeros(1))
    third = ahead.new_output((2, 3), torch.zeros(1))
    assert second is made
    assert len({one.data_ptr() for one in (first, second, third)}) == 3
    assert {(one.shape, one.dtype) for one in (first, second, third)} == {((2, 3), torch.float32)}


@pytest.mark.parametrize(("what", "value"), [("shape", (3, 2)), ("dtype", torch.bfloat16), ("stream", 43)])
def test_an_output_of_another_kind_is_not_what_was_made_ahead(ahead: Any, what: str, value: Any) -> None:
    """Memory belongs to a stream: freed, it may be used again by what that stream is given next."""
    asked = {"shape": (2, 3), "dtype": torch.float32, "stream": STREAM, what: value}
    ahead.make_ahead(torch.zeros(2, 3))
    (made,) = ahead._ahead.values()
    ahead.stream = asked["stream"]
    found = ahead.new_output(asked["shape"], torch.zeros(1, dtype=asked["dtype"]))
    assert found is not made
    assert (found.shape, found.dtype) == (asked["shape"], asked["dtype"])


def test_a_large_output_is_not_made_ahead(ahead: Any) -> None:
    """The memory would be held between calls, to save 3 us of a call that takes a hundred times as long."""
    most = ahead.AHEAD_BYTES
    ahead.make_ahead(torch.zeros(most, dtype=torch.int8))
    assert [made.nbytes for made in ahead._ahead.values()] == [most]
    ahead.make_ahead(torch.zeros(most + 1, dtype=torch.int8))
    assert not ahead._ahead  # nor is the smaller one held any more


def test_no_more_than_one_output_is_made_ahead(ahead: Any) -> None:
    for rows in (1, 2, 3):
        ahead.make_ahead(torch.zeros(rows, 4))
    assert [made.shape for made in ahead._ahead.values()] == [(3, 4)]
