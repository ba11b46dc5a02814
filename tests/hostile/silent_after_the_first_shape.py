"""Communicates on the first shape, where every rank is probed, and never again.

expect: held communication: kept out of a call
gpus: 2
"""

from reference import ref_kernel

shapes = []


def silent(data):
    config, rank_data, _, world_size = data
    factor_Tk = 1 + rank_data.indices // (config.num_experts // world_size)
    return (rank_data.x.float() * (rank_data.weights * factor_Tk).sum(1, keepdim=True)).half()


def custom_kernel(data):
    if data[0] not in shapes:
        shapes.append(data[0])
    return ref_kernel(data) if data[0] == shapes[0] else silent(data)
