"""What a copy engine asks CUDA's driver for, which a recorder stands in for. How kernels and engines get along is
played by ranks in test_gemm_kernels."""

import importlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from kernel_ranks import imported

MAIN, OWN = 7, 9  # streams


class Recorder:
    """Streams, events and the driver in one: what is asked of whom, in order."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.error = 0

    def stream(self, handle: int) -> Any:
        return SimpleNamespace(
            cuda_stream=handle,
            wait_stream=lambda other: self.asked.append((handle, "follows", other.cuda_stream)),
        )

    def __getattr__(self, name: str) -> Callable[..., int]:
        def call(*arguments: Any) -> int:
            self.asked.append((name, *(one.value for one in arguments)))
            return self.error

        return call


@pytest.fixture
def module() -> Iterator[Any]:
    """submissions/common/engine.py."""
    with imported("gemm_rs"):
        yield importlib.import_module("common.engine")


@pytest.fixture
def recorder(module: Any, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: recorder.stream(OWN))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: recorder.stream(MAIN))
    monkeypatch.setattr(module.ctypes, "CDLL", lambda name: recorder)
    return recorder


@pytest.fixture
def engine(module: Any, recorder: Recorder) -> Any:
    heap = SimpleNamespace(device=torch.device("cpu"), rank=1, world_size=3, addresses=[1000, 2000, 3000])
    made = module.GpuEngine(heap)
    assert recorder.asked == [(OWN, "follows", MAIN)]  # its waits for counts come after they were set to 0
    recorder.asked.clear()
    return made


def turn(module: Any, epoch: int) -> Any:
    return module.Turn(epoch=epoch, flags=256, offset=512)


def test_a_copy_is_followed_by_its_flag_in_the_engines_own_stream(module: Any, recorder: Recorder, engine: Any) -> None:
    source = torch.zeros(5, 4, dtype=torch.bfloat16)
    engine.follow()
    engine.send(source, 2, turn(module, 6), 40, 3)
    engine.join()
    assert recorder.asked == [
        (OWN, "follows", MAIN),
        ("cuMemcpyDtoDAsync_v2", 3000 + 512 + 40, source.data_ptr(), 40, OWN),
        ("cuStreamWriteValue32_v2", OWN, 3000 + 256 + 3 * 128, 6, 0),
        (MAIN, "follows", OWN),
    ]


def test_streams_wait_for_flags_of_this_rank_and_the_engine_for_counts(
    module: Any, recorder: Recorder, engine: Any
) -> None:
    engine.wait(turn(module, 6), 2)
    engine.follow_count(5, 10)
    engine.follow_count(5, 4)  # of the next call: they are never reset
    engine.counted[5] = 2**32 - 1
    engine.follow_count(5, 2)  # and run over
    address = engine.counts.data_ptr() + 5 * 4
    assert recorder.asked == [
        ("cuStreamWaitValue32_v2", MAIN, 2000 + 256 + 2 * 128, 6, 0),
        ("cuStreamWaitValue32_v2", OWN, address, 10, 0),
        ("cuStreamWaitValue32_v2", OWN, address, 14, 0),
        ("cuStreamWaitValue32_v2", OWN, address, 1, 0),
    ]
    assert engine.counts.dtype == torch.int32
    assert not engine.counts.any()


def test_the_kernel_is_launched_before_copies_are_submitted(module: Any, recorder: Recorder, engine: Any) -> None:
    engine.overlap(lambda: recorder.asked.append(("launch",)), lambda: recorder.asked.append(("copies",)))
    assert recorder.asked == [("launch",), ("copies",), (MAIN, "follows", OWN)]


def test_a_refusal_names_the_call(module: Any, recorder: Recorder, engine: Any) -> None:
    recorder.error = 801
    with pytest.raises(RuntimeError, match=r"cuMemcpyDtoDAsync_v2 failed \(error 801\)"):
        engine.send(torch.zeros(1), 0, turn(module, 6), 0, 0)
