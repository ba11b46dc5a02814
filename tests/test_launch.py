"""Launchers without a GPU: which calls share a compiled kernel, and with how many programs it is launched; and what
reaches CUDA's driver, which a library of the same functions stands in for."""

import ctypes
import importlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from kernel_ranks import imported

STREAM = 42
CONSTANTS, OPTIONS = {"BLOCK": 16, "FAST": True}, {"num_warps": 4}


class FakeKernel:
    """Of the parameters x, n, rank, BLOCK and FAST; `rank` is not specialized on. Keeps what is compiled and launched,
    each launch with its number of programs."""

    def __init__(self) -> None:
        self.compilations: list[dict[str, Any]] = []
        self.launches: list[tuple[int, tuple[Any, ...], int]] = []
        parameters = {"x": "", "n": "", "rank": "do_not_specialize", "BLOCK": "is_constexpr", "FAST": "is_constexpr"}
        self.params = [
            SimpleNamespace(is_constexpr=how == "is_constexpr", do_not_specialize=how == "do_not_specialize")
            for how in parameters.values()
        ]

    def warmup(self, *arguments: Any, grid: tuple[int, ...], **named: Any) -> "FakeKernel":
        self.compilations.append(named)
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
    monkeypatch.setattr(module, "_current_stream", lambda: STREAM)
    monkeypatch.setattr(module, "_by_driver", lambda compiled, programs, stream, count, otherwise: None)
    monkeypatch.setattr(module, "_room", lambda compiled: 100)
    return module.Launcher(FakeKernel())


def tensor(offset: int = 0) -> torch.Tensor:
    """One that begins so many bytes behind a multiple of 16."""
    memory = torch.zeros(64, dtype=torch.uint8)
    return memory[-memory.data_ptr() % 16 + offset :]


def test_calls_that_need_the_same_kernel_have_it_prepared_once(launcher: Any) -> None:
    """Tensors and numbers go to the kernel as they are: addresses, numbers, constants in order; on the stream."""
    one, other = tensor(), tensor()
    launcher(10, (one, 32, 1), CONSTANTS, OPTIONS)
    launcher(10, (other, 64, 7), CONSTANTS, OPTIONS)
    assert launcher.kernel.compilations == [{**CONSTANTS, **OPTIONS}]
    assert launcher.kernel.launches == [
        (10, (one.data_ptr(), 32, 1, 16, True), STREAM),
        (10, (other.data_ptr(), 64, 7, 16, True), STREAM),
    ]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param((tensor(8), 32, 1), id="a tensor of another alignment"),
        pytest.param((tensor(), 33, 1), id="a number of another alignment"),
        pytest.param((tensor(), 1, 1), id="the number 1"),
    ],
)
def test_what_triton_tells_apart_is_prepared_again(launcher: Any, other: tuple[Any, ...]) -> None:
    for arguments in ((tensor(), 32, 1), other, (tensor(), 32, 1), other):
        launcher(10, arguments, CONSTANTS, OPTIONS)
    assert len(launcher.kernel.compilations) == 2


def test_1_and_another_odd_number_are_told_apart(launcher: Any) -> None:
    for number in (1, 33, 1, 35):
        launcher(10, (tensor(), number, 1), CONSTANTS, OPTIONS)
    assert len(launcher.kernel.compilations) == 2


def test_a_number_that_is_not_specialized_on_asks_for_nothing_new(launcher: Any) -> None:
    for rank in (0, 1, 16, 17):
        launcher(10, (tensor(), 32, rank), CONSTANTS, OPTIONS)
    assert len(launcher.kernel.compilations) == 1


def test_other_constants_are_prepared_again_and_kept(launcher: Any) -> None:
    """They are told apart by where they are, so the launcher has to keep them from being replaced there."""
    for block in (16, 32, 64):
        launcher(10, (tensor(), 32, 1), {"BLOCK": block, "FAST": True}, OPTIONS)
    assert [named["BLOCK"] for named in launcher.kernel.compilations] == [16, 32, 64]
    assert [arguments[3] for _, arguments, _ in launcher.kernel.launches] == [16, 32, 64]


@pytest.mark.parametrize(("programs", "launched"), [(10, 10), (100, 100), (132, 100)])
def test_no_more_programs_are_launched_than_have_room_at_once(launcher: Any, programs: int, launched: int) -> None:
    """They wait for each other, and one that is not running would be waited for forever."""
    launcher(programs, (tensor(), 32, 1), CONSTANTS, OPTIONS)
    assert [count for count, *_ in launcher.kernel.launches] == [launched]


# ---- by the driver ---------------------------------------------------------------------------------------------------

POINTER, NUMBER = 8, 4  # bytes of a parameter
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
    by their values. `refuses` with that error."""

    def __init__(self, sizes: list[int], refuses: int = 0) -> None:
        self.launches: list[tuple[Any, ...]] = []
        void, number, numbers = ctypes.c_void_p, ctypes.c_uint, ctypes.POINTER(ctypes.c_size_t)

        def tell(function: int, index: int, offset: Any, size: Any) -> int:
            assert function == FUNCTION
            if index < len(sizes):
                size[0] = sizes[index]
            return index >= len(sizes)

        def launch(*given: Any) -> int:
            *numbers, parameters, extra = given
            read = [ctypes.c_uint64 if size == POINTER else ctypes.c_int32 for size in sizes]
            values = [kind.from_address(parameters[i]).value for i, kind in enumerate(read)]
            self.launches.append((*numbers, values, extra))
            return refuses

        self.cuFuncGetParamInfo = ctypes.CFUNCTYPE(ctypes.c_int, void, ctypes.c_size_t, numbers, numbers)(tell)
        prototype = ctypes.CFUNCTYPE(ctypes.c_int, void, *[number] * 7, void, ctypes.POINTER(void), void)
        self.cuLaunchKernel = prototype(launch)


FUNCTION, SCRATCH = 4096, torch.zeros(2400, dtype=torch.int8)


def by_driver(
    module: Any, monkeypatch: pytest.MonkeyPatch, driver: Any, count: int = 4, **metadata: Any
) -> tuple[Any, list[tuple[int, ...]]]:
    """A launch of 100 programs of a kernel of `count` arguments, if there is one, and what was left to Triton."""
    left: list[tuple[int, ...]] = []
    compiled = SimpleNamespace(function=FUNCTION, metadata=SimpleNamespace(**{**COMPILED, **metadata}))
    for library in ("CDLL", "PyDLL"):
        monkeypatch.setattr(ctypes, library, lambda name: driver)
    monkeypatch.setattr(module, "_allocate", lambda nbytes, alignment, stream: SCRATCH[:nbytes])
    return module._by_driver(compiled, 100, STREAM, count, lambda *raw: left.append(raw)), left


@pytest.mark.parametrize("scratches", [0, 1, 2], ids=["no scratch memory", "one", "two"])
def test_what_the_driver_is_given(scratches: int, module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of 4 bytes lie between addresses, which begin at multiples of 8."""
    driver = FakeDriver([POINTER, NUMBER, POINTER, NUMBER] + [POINTER] * scratches)
    launch, left = by_driver(module, monkeypatch, driver)
    for number in (7, 8):
        launch(1 << 40, number, 3 << 50, 2**31 - 1)
    more = [SCRATCH.data_ptr(), 0][:scratches]
    assert driver.launches == [
        (FUNCTION, 100, 1, 1, 128, 1, 1, 1000, STREAM, [1 << 40, number, 3 << 50, 2**31 - 1, *more], None)
        for number in (7, 8)
    ]
    assert not left


def test_what_the_driver_refuses_is_left_to_triton(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a thread that has no context yet."""
    launch, left = by_driver(module, monkeypatch, FakeDriver([POINTER, NUMBER], refuses=201), count=2)
    launch(1 << 40, 7)
    assert left == [(1 << 40, 7)]


@pytest.mark.parametrize(
    ("sizes", "metadata"),
    [
        pytest.param([POINTER] * 3, {}, id="fewer parameters than arguments"),
        pytest.param([POINTER] * 7, {}, id="more than scratch memories"),
        pytest.param([POINTER] * 3 + [16], {}, id="one of another size"),
        pytest.param([POINTER] * 4, {"launch_cooperative_grid": True}, id="cooperative"),
        pytest.param([POINTER] * 4, {"launch_pdl": True}, id="dependent"),
        pytest.param([POINTER] * 4, {"num_ctas": 2}, id="clusters"),
        pytest.param([POINTER] * 6, {"profile_scratch_size": 8}, id="profiled"),
    ],
)
def test_what_is_not_an_ordinary_kernel_is_left_to_triton(
    sizes: list[int], metadata: dict[str, Any], module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch, _ = by_driver(module, monkeypatch, FakeDriver(sizes), **metadata)
    assert launch is None


def test_a_driver_that_does_not_tell_parameters_is_not_used(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    launch, _ = by_driver(module, monkeypatch, SimpleNamespace())
    assert launch is None
