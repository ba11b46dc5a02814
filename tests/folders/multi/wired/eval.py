"""An evaluator of several ranks, as KernelBot's are: spawned processes that meet over NCCL."""

import multiprocessing
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist


def check_case(case, rank):
    from submission import custom_kernel

    from reference import check_implementation, generate_input

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": case.pop("port")}
    device = torch.device(f"cuda:{rank}")
    dist.init_process_group("nccl", init_method="env://", rank=rank, world_size=case["world_size"], device_id=device)
    try:
        data = generate_input(**case, rank=rank)
        torch.cuda.synchronize()
        dist.barrier(device_ids=[rank])
        right, message = check_implementation(data, custom_kernel(data.clone().to(device)))
        wrong = torch.tensor(int(not right), device=device)
        dist.reduce(wrong, 0)
        dist.broadcast(wrong, 0)
        return not wrong.item(), message
    finally:
        dist.destroy_process_group()


def main():
    import socket

    with os.fdopen(int(os.environ["POPCORN_FD"]), "w") as lines, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
        free.close()
        specs = Path(sys.argv[2]).read_text().splitlines()
        with multiprocessing.get_context("spawn").Pool(int(os.environ["POPCORN_GPUS"])) as pool:
            for index, spec in enumerate(specs):
                parts = (part.split(":") for part in spec.split(";"))
                case = {"port": port} | {key.strip(): int(value) for key, value in parts}
                found = [pool.apply_async(check_case, (case, rank)) for rank in range(case["world_size"])]
                right = all(one.get(60)[0] for one in found)
                print(f"test.{index}.status: {'pass' if right else 'fail'}", file=lines)
        print(f"check: {'pass' if right else 'fail'}", file=lines)


if __name__ == "__main__":
    main()
