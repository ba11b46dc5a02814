"""The kernels by which devices wait, without a GPU: compiled for NVIDIA and AMD, and interpreted in real processes; and
the one before a stepped call on a GPU.

`python tests/ranks/test_device_barrier.py meet` plays ranks, see kernel_ranks.
"""

import ctypes
import mmap
import random
import re
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from compiled import PTXAS, TARGETS, compiling_for
from kernel_ranks import played_by, started

from harness.ranks import driver
from harness.ranks.barrier import DEVICE_HELD, Barrier, make_barrier
from harness.ranks.device import HOLDING_THREADS, GpuDevice, holding_options
from harness.ranks.steps import BACK, COPY, WRITE

WARP_SIZES = {"sm_90": 32, "gfx942": 64}
ADDRESS = 1 << 40
EPOCHS = 12


def assembly(chip: str) -> str:
    from harness.ranks.device_barrier import device_barrier

    options = holding_options(WARP_SIZES[chip], hip=chip != "sm_90")
    with compiling_for(chip):
        numbers = (*[ADDRESS] * 4, 1, 5)
        made = device_barrier.warmup(*numbers, 4, HOLDING_THREADS, 64, chip != "sm_90", grid=(1,), **options)
    return str(made.asm["ptx" if chip == "sm_90" else "amdgcn"])


def test_on_nvidia_each_word_is_read_and_written_by_one_thread() -> None:
    """All threads of all programs would read one word 8448 times at once."""
    text = assembly("sm_90")
    touched = re.findall(r"(?:@(\w+) )?(ld|st)\.(?:acquire|release)\.sys\.global", text)
    assert [kind for _, kind in touched].count("ld") >= 3
    assert [kind for _, kind in touched].count("st") >= 3
    assert {predicate for predicate, _ in touched} == {"mine"}
    assert not re.findall(r"\b(?:ld|st|atom|red)\.global", text)


@pytest.mark.parametrize("chip", WARP_SIZES)
def test_two_programs_fit_a_unit_without_spilling(chip: str) -> None:
    """They hold the whole device; harness/ranks/device.py launches as many."""
    text = assembly(chip)
    if chip == "sm_90":
        assert ".maxnreg 32" in text
        assert not re.search(r"\b(?:ld|st)\.local", text)
    else:
        (spilled,) = re.findall(r"\.vgpr_spill_count: *(\d+)", text)
        assert int(spilled) == 0


@pytest.mark.parametrize("chip", [name for name in TARGETS if name.startswith("sm_")])
def test_the_kernel_before_a_call_is_compiled_for_every_nvidia_gpu(chip: str, tmp_path: Path) -> None:
    (tmp_path / "gate.ptx").write_bytes(driver.GATE)
    command = [PTXAS, "-v", f"-arch={chip}", tmp_path / "gate.ptx", "-o", tmp_path / "gate.cubin"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert "0 bytes spill stores" in told


@pytest.mark.gpu
def test_the_kernel_tells_that_it_runs_and_lets_work_begin_when_its_word_has_come_to_the_value_or_passed_it() -> None:
    torch.zeros(1, device="cuda")  # makes the context
    page = mmap.mmap(-1, mmap.PAGESIZE)
    words = memoryview(page).cast("I")
    address = driver.register_host(ctypes.addressof(ctypes.c_int32.from_buffer(page)), len(page))
    stream = torch.cuda.current_stream().cuda_stream
    gate = driver.Gate()
    for value, before, after in ((5, 4, 5), (5, 0, 9), (3, 2**32 - 2, 4)):
        words[0], words[1], words[2] = before, 0, 0
        gate.wait(stream, address, value, tell=address + 8)
        driver.stream_write(stream, address + 4, 7)
        time.sleep(0.05)
        assert (words[1], words[2]) == (0, value)
        words[0] = after
        torch.cuda.synchronize()
        assert words[1] == 7


def test_the_kernel_waits_only_where_no_other_process_has_anything_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would keep them from the device: a look whether they have is queued behind the stream's own wait."""
    waits: list[str] = []
    monkeypatch.setattr(driver, "stream_wait", lambda *_: waits.append("stream"))
    monkeypatch.setattr(driver, "stream_write", lambda *_: None)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: SimpleNamespace(cuda_stream=1))
    device = GpuDevice(0, 0, 1, Barrier(make_barrier(1), 1, spin=False))
    device.ended = torch.zeros(1)
    for gate in (SimpleNamespace(wait=lambda *_, **told: waits.append("kernel")), None):
        device.gate = gate  # type: ignore[assignment]
        device.stepped(lambda: None, 1)
        device.between(WRITE, lambda: None, 2, is_alone=True)
        device.between(WRITE, lambda: None, 3)
        device.between(COPY, lambda: waits.append("copy"), 4, switched=BACK)
    kernel = ["stream", "kernel", "kernel", "stream", "stream", "kernel", "copy"]
    assert waits == [*kernel, *["stream"] * 6, "copy"]


def test_nobody_leaves_before_all_have_come() -> None:
    """Interpreted, as AMD's GPUs do it."""
    assert not started(__file__, "meet", interpreted=True)


def meet(rank: int, world_size: int) -> None:
    """Ranks come late, the barrier opens late; whoever leaves finds that all had come."""
    from harness.ranks.device_barrier import device_barrier

    barrier = Barrier(BARRIER, world_size, spin=False)
    page, _ = barrier.memory()
    offset, stride = barrier.device_marks()
    ended, chance = ctypes.c_int32(0), random.Random(rank)
    came = (ctypes.c_int32 * world_size).from_buffer(CAME)
    for epoch in range(1, EPOCHS):
        time.sleep(chance.uniform(0, 0.02))
        came[rank] = epoch
        if rank == epoch % world_size:  # the barrier may open before others wait for it, and after
            barrier.release(epoch)
        numbers = (page, page + barrier.device_held(rank), page + offset, ctypes.addressof(ended), rank, epoch)
        device_barrier[(1,)](*numbers, world_size, 64, stride, True)
        assert min(came) >= epoch, f"{list(came)} in {epoch}"
        assert ended.value == barrier.words[barrier.marks[rank] + DEVICE_HELD] == epoch


if __name__ == "__main__":
    BARRIER, CAME = make_barrier(8), mmap.mmap(-1, 4096)
    for name in sys.argv[1:]:
        for ranks in (1, 3, 8):
            if told := played_by(ranks, globals()[name]):
                sys.exit(told)
            BARRIER = make_barrier(8)
            CAME[:] = bytes(4096)
