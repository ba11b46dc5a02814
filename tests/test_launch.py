"""Launchers without a GPU: which calls share a compiled kernel, and with how many programs it is launched."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

ROOT = Path(__file__).resolve().parent.parent
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
def launcher(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A launcher on a device with room for 100 programs."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(ROOT / "submissions"))
    from common import launch

    driver = SimpleNamespace(active=SimpleNamespace(get_current_stream=lambda device: 40 + device))
    monkeypatch.setattr(launch.triton, "set_allocator", lambda allocate: None)
    monkeypatch.setattr(launch.triton.runtime, "driver", driver)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 2)
    monkeypatch.setattr(launch, "_room", lambda compiled: 100)
    yield launch.Launcher(FakeKernel())
    for name in set(sys.modules) - before:
        if name.partition(".")[0] == "common":
            del sys.modules[name]


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
        (10, (one.data_ptr(), 32, 1, 16, True), 42),
        (10, (other.data_ptr(), 64, 7, 16, True), 42),
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
