"""Compiles Triton kernels for GPUs that are not here, and reads from the machine code what they need of one.

Nothing but Triton's wheel is used: it has the compilers for NVIDIA and AMD and NVIDIA's tools for reading binaries.
"""

import re
import subprocess
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

TARGETS = {"sm_90": GPUTarget("cuda", 90, 32), "gfx942": GPUTarget("hip", "gfx942", 64)}
CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """One kernel for one chip. `registers` of a thread; `spilled_bytes` of a thread; `shared_bytes` of a program."""

    registers: int
    spilled_bytes: int
    shared_bytes: int
    warps: int
    assembly: str  # PTX, or AMD's assembly
    fit: int  # programs that a multiprocessor (compute unit) can hold at once


def compiled(
    chip: str, kernel: Any, arguments: Sequence[str], constants: Mapping[str, Any], options: Mapping[str, Any]
) -> Compiled:
    """The kernel for arguments of these types ("*fp16", "i32", ...), in the order of its parameters, of which
    `constants` are the others. Addresses are taken to be multiples of 16, of numbers nothing is known."""
    names = [name for name in kernel.arg_names if name not in constants]
    types = dict(zip(names, arguments, strict=True))
    signature = {name: types.get(name, "constexpr") for name in kernel.arg_names}
    aligned = [["tt.divisibility", 16]]
    attributes = {(i,): aligned for i, name in enumerate(kernel.arg_names) if types.get(name, "").startswith("*")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what the next release will do
        source = ASTSource(kernel, signature, dict(constants), attributes)
        made = triton.compile(source, target=TARGETS[chip], options=dict(options))
    read = _read_nvidia if TARGETS[chip].backend == "cuda" else _read_amd
    return read(made.asm, made.metadata.shared, made.metadata.num_warps)


def _read_nvidia(asm: Mapping[str, Any], shared_bytes: int, warps: int) -> Compiled:
    """What fits on compute capability 9.0: 64 Ki registers, given to warps in units of 256; 227 KiB of shared memory,
    of which a program takes 1 KiB more than it asks for; 64 warps; 32 programs (CUDA C++ Programming Guide)."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(asm["cubin"])
        file.flush()
        command = [CUOBJDUMP, "--dump-resource-usage", file.name]
        shown = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    usage = {name: int(value) for name, value in re.findall(r"\b([A-Z]+):(\d+)", shown)}
    registers_of_warp = -(-usage["REG"] * 32 // 256) * 256
    return Compiled(
        registers=usage["REG"],
        spilled_bytes=usage["STACK"] + usage["LOCAL"],
        shared_bytes=shared_bytes,
        warps=warps,
        assembly=asm["ptx"],
        fit=min((65536 // registers_of_warp) // warps, 227 * 1024 // (shared_bytes + 1024), 64 // warps, 32),
    )


def _read_amd(asm: Mapping[str, Any], shared_bytes: int, warps: int) -> Compiled:
    """What fits on CDNA 3: as many waves on each of 4 SIMDs as the compiler says, 64 KiB of shared memory (LDS)."""
    text = asm["amdgcn"]

    def number(pattern: str) -> int:
        (found,) = re.findall(pattern, text)
        return int(found)

    spilled = number(r"\.vgpr_spill_count: *(\d+)") + number(r"\.sgpr_spill_count: *(\d+)")
    waves = number(r"; Occupancy: *(\d+)") * 4
    return Compiled(
        registers=number(r"\.vgpr_count: *(\d+)"),
        spilled_bytes=4 * spilled,
        shared_bytes=shared_bytes,
        warps=warps,
        assembly=text,
        fit=min(waves // warps, 64 * 1024 // max(1, shared_bytes), 32),
    )
