"""Compiles Triton kernels for GPUs that are not here, and reads from the machine code what they need of one.

Nothing but Triton's wheel is used: it has the compilers for NVIDIA and AMD and NVIDIA's tools for reading binaries.
"""

import re
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
    "sm_120": GPUTarget("cuda", 120, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
    "gfx950": GPUTarget("hip", "gfx950", 64),
}
# Multiprocessors of an A100, of an H100 or H200, of a B200 and of an RTX PRO 6000, compute units of an MI300X and of an
# MI355X; white papers.
UNITS = {"sm_80": 108, "sm_90": 132, "sm_100": 148, "sm_120": 188, "gfx942": 304, "gfx950": 256}
# Of a multiprocessor: KiB of shared memory for programs, and warps (CUDA C++ Programming Guide, compute capabilities).
SHARED_KIB = {"sm_80": 163, "sm_90": 227, "sm_100": 227, "sm_120": 99}
WARPS = {"sm_80": 64, "sm_90": 64, "sm_100": 64, "sm_120": 48}
CUOBJDUMP, PTXAS = (
    Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name for name in ("cuobjdump", "ptxas")
)


def chip_of(submission: Any, chip: str) -> Any:
    """What a submission knows of that chip."""
    return submission.Chip(chip, UNITS[chip], 8 if chip.startswith("gfx") else 1)


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """One kernel for one chip. `registers` of a thread; `spilled_bytes` of a thread, from vector registers (all are, on
    NVIDIA) to memory; `spilled_scalars`: scalar registers, which go to lanes of vector registers; `shared_bytes` of a
    program."""

    registers: int
    spilled_bytes: int
    spilled_scalars: int
    shared_bytes: int
    warps: int
    assembly: str  # PTX, or AMD's assembly
    fit: int  # programs that a multiprocessor (compute unit) can hold at once


class NoDevice:
    """Triton's driver of a chip that is not here: kernels are compiled for it, and cannot be launched."""

    def __init__(self, chip: str) -> None:
        self.chip = chip

    def get_current_device(self) -> str:
        return self.chip  # Triton keeps what it has compiled by this

    def get_current_stream(self, device: str) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return TARGETS[self.chip]


@contextmanager
def compiling_for(chip: str) -> Iterator[None]:
    driver.set_active(NoDevice(chip))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what the next release will do
            yield
    finally:
        driver.set_active(None)  # who asks next gets this machine's own, where it has one


def compiled(
    chip: str, launcher: Any, arguments: Sequence[Any], constants: Mapping[str, Any], options: Mapping[str, Any]
) -> Compiled:
    """The kernel of a submission's Launcher, compiled for such arguments as it is for a call on the chip."""
    (found,) = compiled_all(chip, lambda: launcher.compile(tuple(arguments), dict(constants), dict(options)))
    return found


def compiled_all(chip: str, compile_plan: Callable[[], Any]) -> list[Compiled]:
    """The kernel, or the list of them, that a submission's plan compiles."""
    with compiling_for(chip):
        made = compile_plan()
    read = _read_nvidia if TARGETS[chip].backend == "cuda" else _read_amd
    kernels = made if isinstance(made, list) else [made]
    return [read(chip, one.asm, one.metadata.shared, one.metadata.num_warps) for one in kernels]


def _read_nvidia(chip: str, asm: Mapping[str, Any], shared_bytes: int, warps: int) -> Compiled:
    """What fits on a multiprocessor: 64 Ki registers, given to warps in units of 256; shared memory, of which a program
    takes 1 KiB more than it asks for; warps; 32 programs (CUDA C++ Programming Guide)."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(asm["cubin"])
        file.flush()
        command = [CUOBJDUMP, "--dump-resource-usage", file.name]
        shown = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    usage = {name: int(value) for name, value in re.findall(r"\b([A-Z]+):(\d+)", shown)}
    registers_of_warp = -(-usage["REG"] * 32 // 256) * 256
    most_shared, most_warps = SHARED_KIB[chip] * 1024, WARPS[chip]
    return Compiled(
        registers=usage["REG"],
        spilled_bytes=usage["STACK"] + usage["LOCAL"],
        spilled_scalars=0,
        shared_bytes=shared_bytes,
        warps=warps,
        assembly=asm["ptx"],
        fit=min((65536 // registers_of_warp) // warps, most_shared // (shared_bytes + 1024), most_warps // warps, 32),
    )


def _read_amd(chip: str, asm: Mapping[str, Any], shared_bytes: int, warps: int) -> Compiled:
    """What fits on CDNA 3: as many waves on each of 4 SIMDs as the compiler says, 64 KiB of shared memory (LDS)."""
    text = asm["amdgcn"]

    def number(pattern: str) -> int:
        (found,) = re.findall(pattern, text)
        return int(found)

    waves = number(r"; Occupancy: *(\d+)") * 4
    return Compiled(
        registers=number(r"\.vgpr_count: *(\d+)"),
        spilled_bytes=4 * number(r"\.vgpr_spill_count: *(\d+)"),
        spilled_scalars=number(r"\.sgpr_spill_count: *(\d+)"),
        shared_bytes=shared_bytes,
        warps=warps,
        assembly=text,
        fit=min(waves // warps, 64 * 1024 // max(1, shared_bytes), 32),
    )
