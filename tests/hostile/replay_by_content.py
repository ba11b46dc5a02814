"""Keeps results by a hash of its inputs. No input comes twice, so it never finds one: nothing gained.

expect: harmless
mode: leaderboard
"""

import torch.distributed as dist

from reference import ref_kernel

results = {}


def custom_kernel(data):
    key = hash(data[1].x.numpy().tobytes())
    known = [None] * dist.get_world_size()
    dist.all_gather_object(known, key in results)
    result = results[key] if all(known) else ref_kernel(data)
    results[key] = result
    if any(known):
        raise LookupError("an input came twice")
    return result
