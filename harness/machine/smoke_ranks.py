"""The ranks of the smoke test: `python smoke_ranks.py DEVICE WORLD_SIZE NBYTES DEADLINE_S MEETING_FILE`.

torch is imported once and the ranks are forked, as the zygote does it; they meet in a file, so no port is needed.
Each prints one JSON line (smoke.Moved). Should the parent be gone, an alarm ends every process here.
"""

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

import torch
import torch.distributed as dist

REPEATS, ROUNDS = 5, 4  # the best round counts: the first ones open connections
MAX_ERROR_CHARS = 512  # a line must fit into what a pipe takes in one piece, so that lines of ranks never mix


def main(arguments: list[str]) -> None:
    """Forks the ranks, no device being touched yet, and waits for them; one that fails ends the others."""
    device, world_size, nbytes, deadline_s, meeting = arguments
    signal.alarm(int(float(deadline_s)) + 5)  # ends this process, and every rank, should nobody else
    ranks: set[int] = set()
    for rank in range(int(world_size)):
        pid = os.fork()
        if pid == 0:
            signal.alarm(int(float(deadline_s)) + 5)
            run_rank(device, rank, int(world_size), int(nbytes), meeting)
        ranks.add(pid)
    while ranks:
        pid, status = os.wait()
        ranks.remove(pid)
        if status != 0:  # the others would wait for it until the deadline
            for other in ranks:
                os.kill(other, signal.SIGTERM)


def run_rank(device: str, rank: int, world_size: int, nbytes: int, meeting: str) -> NoReturn:
    reduce_s, gather_s, failed = 0.0, 0.0, ""
    try:
        reduce_s, gather_s = measure(device, rank, world_size, nbytes, meeting)
    except Exception as error:
        traceback.print_exc()
        failed = f"{type(error).__name__}: {error}"[:MAX_ERROR_CHARS]
    line = {"rank": rank, "error": failed, "all_reduce_s": reduce_s, "all_gather_s": gather_s}
    os.write(1, (json.dumps(line) + "\n").encode())
    os._exit(1 if failed else 0)


def measure(device: str, rank: int, world_size: int, nbytes: int, meeting: str) -> tuple[float, float]:
    """Seconds of an all-reduce of `nbytes` and of an all-gather to `nbytes`, after both gave the right answer."""
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
