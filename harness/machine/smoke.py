"""Do the collectives work here, and how fast: W ranks all-reduce and all-gather a buffer and check what arrives.

The parent's side: it starts smoke_ranks as a program of its own, reads its lines, and ends all of it at the
deadline. NVLink multicast stays off: it tests the collectives that do without it. Does not import torch.
"""

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from harness.core.json_file import lines_if_any
from harness.core.processes import end_group
from harness.machine.readings import Collective, SmokeFailed, printable

GPU_BYTES, CPU_BYTES = 64 << 20, 4 << 20  # of the reduced buffer, and of what is gathered in all
DEADLINE_S = 60.0
CPU_RANKS = 2
PROGRAM = Path(__file__).with_name("smoke_ranks.py")
WITHOUT_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1"}


@dataclass(frozen=True, kw_only=True)
class Moved:
    """A rank's line: seconds of one all-reduce and one all-gather, or what went wrong."""

    rank: int
    error: str
    all_reduce_s: float
    all_gather_s: float


def smoke(device: str, world_size: int, deadline_s: float = DEADLINE_S) -> Collective | SmokeFailed:
    """Runs the test on `world_size` ranks, on GPUs with NCCL or RCCL (`device` cuda or rocm), else with gloo."""
    nbytes = CPU_BYTES if device == "cpu" else GPU_BYTES
    nbytes -= nbytes % (4 * world_size)  # whole float32 shards
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="smoke-") as folder:
        arguments = (device, str(world_size), str(nbytes), str(deadline_s), f"{folder}/meet")
        with subprocess.Popen(
            [sys.executable, "-P", str(PROGRAM), *arguments],  # -P: modules beside it have names that others may use
            env={**os.environ, **WITHOUT_MULTICAST, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        ) as process:
            try:
                out, errors = process.communicate(timeout=deadline_s)
            except subprocess.TimeoutExpired:
                return SmokeFailed(why=f"not done after {deadline_s:g} s; its ranks were ended")
            finally:
                end_group(process.pid)  # every rank is in it, whatever happened
    return judged(out.decode(errors="replace"), errors.decode(errors="replace"), device, world_size, nbytes, began)


def judged(out: str, errors: str, device: str, world_size: int, nbytes: int, began: float) -> Collective | SmokeFailed:
    """The ranks' lines in one record; the slowest rank's time is the collective's."""
    moved: dict[int, Moved] = {}
    for found in lines_if_any(Moved, out):  # libraries print too
        if found.error:
            return SmokeFailed(why=f"rank {found.rank}: {printable(found.error)}")
        moved[found.rank] = found
    if sorted(moved) != list(range(world_size)):
        said = [line for line in errors.splitlines() if line.strip()][-1:] or ["it said nothing"]
        return SmokeFailed(why=f"{len(moved)} of {world_size} ranks came to the end: {printable(said[0])}")
    share = (world_size - 1) / world_size * nbytes
    return Collective(
        backend="gloo" if device == "cpu" else "RCCL" if device == "rocm" else "NCCL",
        world_size=world_size,
        nbytes=nbytes,
        all_reduce_bytes_per_s=2 * share / max(found.all_reduce_s for found in moved.values()),
        all_gather_bytes_per_s=share / max(found.all_gather_s for found in moved.values()),
        took_s=time.monotonic() - began,
    )
