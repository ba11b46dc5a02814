"""Do the collectives work here, and how fast: W ranks all-reduce and all-gather a buffer and check what arrives.

`smoke` runs in the parent: it starts this module as a program of its own, which imports torch and forks the ranks,
and ends all of it at the deadline. NVLink multicast stays off, as in every measurement of the harness. The ranks
meet in a file, so no port is needed.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.decode import DecodeError, decode
from harness.readings import Collective, SmokeFailed, printable

ROOT = Path(__file__).resolve().parent.parent
GPU_BYTES, CPU_BYTES = 64 << 20, 4 << 20  # of the reduced buffer, and of what is gathered in all
DEADLINE_S = 60.0
REPEATS, ROUNDS = 5, 4  # the best round counts: the first ones open connections
CPU_RANKS = 2
MAX_LINE_BYTES = 4096  # what a pipe takes in one piece, so that lines of ranks never mix
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
        command = [sys.executable, "-m", "harness.smoke", device, str(world_size), str(nbytes), str(deadline_s)]
        with subprocess.Popen(
            [*command, f"{folder}/meet"],
            cwd=ROOT,
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
                with contextlib.suppress(ProcessLookupError):  # every rank is in the group, whatever happened
                    os.killpg(process.pid, signal.SIGKILL)
    return judged(out.decode(errors="replace"), errors.decode(errors="replace"), device, world_size, nbytes, began)


def judged(out: str, errors: str, device: str, world_size: int, nbytes: int, began: float) -> Collective | SmokeFailed:
    """The ranks' lines in one record; the slowest rank's time is the collective's."""
    moved: dict[int, Moved] = {}
    for line in out.splitlines():
        with contextlib.suppress(DecodeError, json.JSONDecodeError):  # a library that prints
            found = decode(Moved, json.loads(line))
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


# ---- the program that `smoke` starts ---------------------------------------------------------------------------------


def main(arguments: list[str]) -> None:
    """Forks the ranks once torch is imported, which takes seconds, and waits for them."""
    device, world_size, nbytes, deadline_s, meeting = arguments
    signal.alarm(int(float(deadline_s)) + 5)  # ends this process, and every rank, should nobody else
    import torch  # noqa: F401  before the fork, once for all; no device is touched yet

    ranks: set[int] = set()
    for rank in range(int(world_size)):
        pid = os.fork()
        if pid == 0:
            signal.alarm(int(float(deadline_s)) + 5)
            run_rank(device, rank, int(world_size), int(nbytes), meeting)
            os._exit(0)
        ranks.add(pid)
    while ranks:
        pid, status = os.wait()
        ranks.remove(pid)
        if status != 0:  # the others would wait for it until the deadline
            for other in ranks:
                os.kill(other, signal.SIGTERM)


def run_rank(device: str, rank: int, world_size: int, nbytes: int, meeting: str) -> None:
    """One rank: writes its line and ends."""
    try:
        reduce_s, gather_s = measure(device, rank, world_size, nbytes, meeting)
        line = {"rank": rank, "error": "", "all_reduce_s": reduce_s, "all_gather_s": gather_s}
        code = 0
    except Exception as error:
        traceback.print_exc()
        text = f"{type(error).__name__}: {error}"[: MAX_LINE_BYTES // 8]
        line = {"rank": rank, "error": text, "all_reduce_s": 0.0, "all_gather_s": 0.0}
        code = 1
    os.write(1, (json.dumps(line) + "\n").encode())
    os._exit(code)


def measure(device: str, rank: int, world_size: int, nbytes: int, meeting: str) -> tuple[float, float]:
    """Seconds of an all-reduce of `nbytes` and of an all-gather to `nbytes`, after both gave the right answer."""
    import torch
    import torch.distributed as dist

    on_gpu = device != "cpu"
    place = torch.device("cuda", rank) if on_gpu else torch.device("cpu")
    more: dict[str, Any] = {}
    if on_gpu:
        torch.cuda.set_device(place)
        more["device_id"] = place
    else:
        torch.set_num_threads(1)
    dist.init_process_group(
        "nccl" if on_gpu else "gloo", init_method=f"file://{meeting}", rank=rank, world_size=world_size, **more
    )

    count = nbytes // 4
    whole = torch.empty(count, dtype=torch.float32, device=place)
    shard = torch.full((count // world_size,), float(rank), device=place)
    shards = list(whole.view(world_size, -1).unbind())

    whole.fill_(rank + 1)
    dist.all_reduce(whole)
    expected = world_size * (world_size + 1) / 2
    if not bool((whole == expected).all()):
        raise ValueError(f"a wrong sum: all-reduce gave {whole[0].item():g} and not {expected:g} everywhere")
    dist.all_gather(shards, shard)
    if not all(bool((part == source).all()) for source, part in enumerate(shards)):
        raise ValueError("all-gather mixed up what the ranks sent")

    def once_s(work: Callable[[], object]) -> float:
        best = float("inf")
        for _ in range(ROUNDS):
            if on_gpu:
                torch.cuda.synchronize()
            dist.barrier()  # waits for: every rank done with the round before
            began = time.monotonic()
            for _ in range(REPEATS):
                work()
            if on_gpu:
                torch.cuda.synchronize()
            best = min(best, (time.monotonic() - began) / REPEATS)
        return best

    whole.zero_()
    reduce_s = once_s(lambda: dist.all_reduce(whole))
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # the newer name first
    gather_s = once_s(lambda: gather(whole, shard))
    dist.barrier()  # waits for: every rank done, before any closes its connections
    dist.destroy_process_group()
    return reduce_s, gather_s


if __name__ == "__main__":
    main(sys.argv[1:])
